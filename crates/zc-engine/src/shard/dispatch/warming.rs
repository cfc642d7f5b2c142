//! Passes warm-ups to the manager.
//!
//! Job: once a turn, after the events of clients, request the pieces that may start.
//!
//! Invariants: nothing starts in a pause, in a stop, or before the index is complete. Taps do not record it.
//!
//! It does not select pieces (`warm`).

use std::collections::BTreeMap;

use zc_cache::seam::{Action, Event, Request, RequestKind};
use zc_core::{Mode, ReqId, VolumeId};

use crate::limits::WARM_PIECES_PER_TURN;
use crate::shard::dispatch::Shard;
use crate::shard::warm::{Moment, Piece, WarmCommand, WarmUp};

impl Shard {
    fn moment(&self) -> Moment {
        Moment { ms: self.base.clock.now_ms(), ns: self.base.clock.now_ns() }
    }

    /// Executes an operator's request about a warm-up.
    pub(super) fn ask_warm(&mut self, volume: VolumeId, ask: WarmCommand) -> Result<WarmUp, String> {
        if matches!(ask, WarmCommand::Start { .. } | WarmCommand::Add(_)) && !self.base.stopping.is_running()
        {
            return Err("the daemon is stopping".to_owned());
        }
        if self.volumes.get(volume).is_none() || self.leaving.has(volume) {
            return Err("it is not served".to_owned());
        }
        self.warm_ups.ask(volume, ask, self.moment())
    }

    /// Returns the progress of warm-ups by volume name.
    pub(super) fn warm_by_volume(&self) -> BTreeMap<String, WarmUp> {
        let now_ms = self.base.clock.now_ms();
        let of = |(id, volume): (VolumeId, &crate::shard::volumes::Volume)| {
            Some((volume.name.clone(), self.warm_ups.look(id, now_ms)?))
        };
        self.volumes.iter().filter_map(of).collect()
    }

    /// Requests pieces that may start.
    pub(super) fn pump_warm(&mut self, actions: &mut Vec<Action>) {
        if !self.warm_ups.are_running() {
            return;
        }
        let (volumes, is_healthy) = (&self.volumes, self.manager.is_healthy());
        self.warm_ups.end_where(self.base.clock.now_ms(), |id| {
            is_healthy && volumes.get(id).is_some_and(|volume| volume.config.mode != Mode::PassThrough)
        });
        let is_ready =
            self.base.stopping.is_running() && !self.pause.is_on() && self.manager.is_loaded() && is_healthy;
        let is_busy = self.clients.requests().len() > 0 || self.clients.nbd().are_waiting();
        for _ in 0..WARM_PIECES_PER_TURN {
            let now = self.moment();
            if !is_ready || !self.warm_ups.has_room(&self.manager) {
                return;
            }
            let Some(piece) = self.warm_ups.next(is_busy, now) else { return };
            self.begin_warm(piece, now, actions);
        }
    }

    fn begin_warm(&mut self, piece: Piece, now: Moment, actions: &mut Vec<Action>) {
        let req = ReqId(self.base.next_number());
        let (volume, offset_bytes, len_bytes) = (piece.volume, piece.bytes.start, piece.len_bytes());
        self.warm_ups.begins(piece, req);
        let before = self.manager.stats().warmed_extents;
        let request = Request { req, volume, offset_bytes, len_bytes, kind: RequestKind::Warm };
        self.manager.handle(Event::Submit(request), actions);
        let extents = self.manager.stats().warmed_extents - before;
        let read_bytes = extents.saturating_mul(self.device.extent_bytes().into());
        self.warm_ups.reads(volume, read_bytes, now);
        self.carry_out(actions);
    }
}
