//! A pause of the data plane, in which its manager can be exchanged (see `reattach`).
//!
//! Job: hold back what clients ask of the manager until everything that it is at has ended; then put another one in its
//! place, or let things go on.
//!
//! Invariants: while requests are held back none is lost, answered or reordered; their number is bounded as that of
//! requests in flight is. Connections, ranges and origins are the same before and after. A pause whose asker has gone
//! ends, and one in which what is under way does not end either.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Event, RequestKind};
use zc_core::{JournalSeq, Map, VolumeId};
use zc_io::BlockFile;

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::limits::PAUSE_MAX_MS;
use crate::origin::Facing;
use crate::shard::settled::Settled;
use crate::shard::{Device, Shard};
use crate::state::intent::IntentLog;
use crate::state::risk::RiskFile;

/// What the data plane has open.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) cache: Arc<BlockFile>,
    pub(crate) journal: Option<Arc<BlockFile>>,
    pub(crate) facing: Vec<(VolumeId, Facing)>,
    /// Volumes whose clients have to be told that acknowledged writes are lost.
    pub(crate) lost: Vec<VolumeId>,
}

/// What takes the place of a manager that lost its cache device.
pub(crate) struct Replacement {
    pub(crate) manager: CacheManager,
    pub(crate) device: Device,
    pub(crate) intent: IntentLog,
    pub(crate) risk: RiskFile,
    pub(crate) volumes: Vec<VolumeConfig>,
    pub(crate) bytes_read: u64,
}

impl std::fmt::Debug for Replacement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Replacement")
    }
}

/// What is held back, and who is told when nothing else is left.
#[derive(Debug)]
pub(crate) struct Pause {
    held: VecDeque<Event>,
    since_ms: u64,
    reply: Option<oneshot::Sender<Result<Looked, EngineError>>>,
}

impl Shard {
    pub(crate) fn look(&mut self, pause: bool, reply: oneshot::Sender<Result<Looked, EngineError>>) {
        if pause {
            let since_ms = self.clock.now_ms();
            self.pause = Some(Pause { held: VecDeque::new(), since_ms, reply: Some(reply) });
        } else {
            let _asker_left = reply.send(self.looked());
        }
    }

    fn looked(&self) -> Result<Looked, EngineError> {
        let mut facing = Vec::new();
        for (id, volume) in &self.volumes {
            facing.push((*id, Facing::of(&volume.origin)?));
        }
        let (cache, journal) = (self.device.file.clone(), self.device.journal.clone());
        let has_to_be_told = |id: &VolumeId| self.manager.has_volatile(*id) || self.manager.owes_loss(*id);
        let lost = self.volumes.keys().copied().filter(has_to_be_told).collect();
        Ok(Looked { cache, journal, facing, lost })
    }

    /// The event, unless it has to wait.
    pub(crate) fn not_held(&mut self, event: Event) -> Option<Event> {
        match &mut self.pause {
            Some(pause) if matches!(event, Event::Submit(_)) => {
                pause.held.push_back(event);
                None
            }
            _ => Some(event),
        }
    }

    /// Tells the asker, once, that nothing but what is held back is left.
    pub(crate) fn pump_pause(&mut self) {
        let Some(pause) = &self.pause else { return };
        let is_quiet = self.parts.len() == pause.held.len()
            && self.events.is_empty()
            && self.manager.is_idle()
            && self.tokens.device_ops() == 0;
        if !is_quiet {
            self.give_up_pause();
            return;
        }
        let looked = self.looked();
        if let Some(reply) = self.pause.as_mut().and_then(|pause| pause.reply.take())
            && reply.send(looked).is_err()
        {
            self.resume();
        }
    }

    /// What is under way does not end, or nobody waits for that any more: what is held back has waited long enough.
    fn give_up_pause(&mut self) {
        let now_ms = self.clock.now_ms();
        let Some(pause) = &mut self.pause else { return };
        let is_late = now_ms.saturating_sub(pause.since_ms) > PAUSE_MAX_MS;
        let Some(reply) = pause.reply.take_if(|reply| is_late || reply.is_closed()) else { return };
        let refusal = Refusal::NotPaused { seconds: PAUSE_MAX_MS / 1000 };
        let _asker_left = reply.send(Err(EngineError::refused(refusal)));
        self.resume();
    }

    pub(crate) fn resume(&mut self) {
        if let Some(pause) = self.pause.take() {
            self.events.extend(pause.held);
        }
    }

    /// Another manager takes over, on the cache device that is back.
    pub(crate) fn swap(&mut self, replacement: Replacement) {
        let Some(pause) = &self.pause else { return };
        if !self.stopping.is_running() {
            // The old one may have been told to stop, and is the one to end.
            self.resume();
            return;
        }
        let buf = |event: &Event| match event {
            Event::Submit(request) => match request.kind {
                RequestKind::Read { buf } | RequestKind::Write { buf, .. } => Some(buf),
                _ => None,
            },
            _ => None,
        };
        let held: Map<_, ()> = pause.held.iter().filter_map(buf).map(|buf| (buf, ())).collect();
        self.buffers.keep(|buf| held.contains_key(&buf));
        let lost: Vec<VolumeId> =
            self.volumes.keys().copied().filter(|id| self.manager.has_volatile(*id)).collect();
        let Replacement { manager, device, intent, risk, volumes, bytes_read } = replacement;
        (self.manager, self.device, self.intent, self.risk) = (manager, device, intent, risk);
        for config in volumes {
            let id = config.id;
            self.volume_mut(id).config = config;
        }
        (self.journal_written, self.restart_bytes_read) = (JournalSeq(0), bytes_read);
        (self.cache_fault, self.loaded_ms, self.metrics.distrusts) = (None, None, 0);
        self.settled = Settled::default();
        self.tell_contents_again();
        let mut actions = Vec::new();
        self.manager.begin(self.clock.now_ms(), &mut actions);
        self.carry_out(&mut actions);
        self.events.push_back(Event::Tick { now_ms: self.clock.now_ms() });
        self.close_connections_of(&lost);
        self.resume();
    }

    /// Clients of volumes that lost what was acknowledged and not flushed learn of it as of a server that restarts.
    fn close_connections_of(&mut self, lost: &[VolumeId]) {
        for id in lost {
            let name = &self.volume_mut(*id).name;
            tracing::warn!(
                "volume \"{name}\": acknowledged writes that no client had flushed are lost with the failed cache device; \
                 its connections are closed, and the next flush fails once"
            );
        }
        let concerned = |conn: &crate::shard::clients::conn::Conn| {
            conn.volume.is_some_and(|volume| lost.contains(&volume))
        };
        let conns: Vec<u64> =
            self.nbd.conns.iter().filter(|(_, conn)| concerned(conn)).map(|(id, _)| *id).collect();
        for conn in conns {
            self.kill(conn);
        }
    }
}
