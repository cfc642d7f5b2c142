//! What every component of the core may use: settings, the clock of the last tick, the port, counters, and the volumes.
//!
//! Job: hold what belongs to no component alone. Components get it with each call, and reach the outside through its
//! port. Its fields are open for that reason.
//!
//! What it does not do: decide anything.

use std::collections::VecDeque;

use zc_core::{BufId, BufSlice, Codec, ErrorKind, ExtentKey, Map, Mode, VolumeId};

use crate::base::effects::Effect;
use crate::base::health::{ErrorRuns, Health};
use crate::base::origin::{FlushWaiter, OriginTracker};
use crate::base::port::Port;
use crate::config::{ManagerConfig, VolumeConfig};
use crate::expect_held::ExpectHeld;
use crate::ops::OpKind;
use crate::seam::{Action, Digest, Note, Purpose, Request, RequestKind};
use crate::startup::StartState;
use crate::stats::Stats;

pub(crate) mod effects;
pub(crate) mod health;
pub(crate) mod origin;
pub(crate) mod port;

/// A volume as the manager sees it.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) cfg: VolumeConfig,
    /// Extents that lie wholly inside the volume: only those are cached.
    pub(crate) whole_extents: u64,
    pub(crate) origin: OriginTracker,
}

/// What is written by this session, and what tells it from earlier ones.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) number: u64,
    /// The cache's identity, if units may hold summaries.
    pub(crate) uuid: Option<[u8; 16]>,
    /// Headers of sessions before it were written by an earlier cache on the device.
    pub(crate) first: u64,
    pub(crate) weu_seq_next: u64,
    /// Units of this session have this sequence or a later one.
    pub(crate) weu_seq_first: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) cfg: ManagerConfig,
    /// A deliberate bug, to prove that the tests can fail.
    #[cfg(zc_canary)]
    pub(crate) canary: Option<crate::config::Canary>,
    pub(crate) extent_bytes: u32,
    /// Time of the last tick.
    pub(crate) now_ms: u64,
    /// The driver wants the manager to stop: nothing new is cached.
    pub(crate) stopping: bool,
    /// When a client last wrote, or the start.
    pub(crate) last_write_ms: u64,
    pub(crate) session: Session,
    pub(crate) volumes: Map<VolumeId, Volume>,
    /// Volumes of whose contents is told what becomes known.
    pub(crate) told: Vec<VolumeId>,
    pub(crate) health: Health,
    pub(crate) errors: ErrorRuns,
    pub(crate) port: Port<OpKind>,
    /// What the manager has to lead to other components.
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) stats: Stats,
}

impl Base {
    /// Without volumes, at time 0, after a start that found this on the device.
    pub(crate) fn new(cfg: ManagerConfig, start: &StartState) -> Self {
        Self {
            #[cfg(zc_canary)]
            canary: None,
            extent_bytes: cfg.geometry.extent_bytes,
            now_ms: 0,
            stopping: false,
            last_write_ms: 0,
            session: Session {
                number: start.session,
                uuid: start.summary_uuid,
                first: start.first_session,
                weu_seq_next: start.weu_seq_next.0,
                weu_seq_first: start.weu_seq_next.0,
            },
            volumes: Map::default(),
            told: Vec::new(),
            health: Health::Good,
            errors: ErrorRuns::default(),
            port: Port::default(),
            effects: VecDeque::new(),
            stats: Stats::default(),
            cfg,
        }
    }
    /// Puts the cache out of order. What follows of it comes with [`Effect::DeviceFailed`].
    pub(crate) fn fail_device(&mut self, during: Purpose, error: ErrorKind) {
        if self.health != Health::Good {
            return;
        }
        self.health = Health::Failing;
        self.port.emit(Action::Note(Note::CacheFailed { during, error }));
        self.effects.push_back(Effect::DeviceFailed(error));
    }

    /// The device read something.
    pub(crate) const fn device_read_worked(&mut self) {
        self.errors.read_ended(false);
    }

    /// The device did not read. Too many times in a row, and the cache is out of order.
    pub(crate) fn device_read_failed(&mut self, purpose: Purpose, error: ErrorKind) {
        self.stats.device_read_errors += 1;
        if self.errors.read_ended(true) {
            self.fail_device(purpose, error);
        }
    }

    pub(crate) fn whole(&self, buf: BufId) -> BufSlice {
        BufSlice { buf, start_bytes: 0, len_bytes: self.extent_bytes }
    }

    /// The fingerprint of an extent of this volume is wanted.
    pub(crate) fn hash(&mut self, kind: impl Into<OpKind>, volume: VolumeId, src: BufSlice) {
        let domain = self.volumes.get(&volume).expect_held().cfg.domain;
        #[cfg(zc_canary)]
        let domain = match self.canary {
            Some(crate::config::Canary::ForgetDomain) => zc_core::DedupDomain::COMMON,
            _ => domain,
        };
        let op = self.port.op(kind);
        self.port.emit(Action::Hash { op, src, domain });
    }

    pub(crate) fn is_flushing(&self, volume: VolumeId) -> bool {
        self.volumes.get(&volume).is_some_and(|entry| entry.origin.is_flushing())
    }

    pub(crate) fn answer_write(&mut self, request: &Request, result: Result<(), ErrorKind>) {
        self.port.emit(Action::Reply { req: request.req, result });
        if let RequestKind::Write { buf, .. } = request.kind {
            self.port.release(buf);
        }
    }

    /// Acknowledged writes are lost, whether a client could know or not: the next flush of the volume says so.
    pub(crate) fn owe_loss(&mut self, volume: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.origin.owe_loss();
        }
    }

    /// Has an origin flushed as soon as the flush under way has ended.
    pub(crate) fn flush_origin(&mut self, volume: VolumeId, waiter: FlushWaiter) {
        let origin = &mut self.volumes.get_mut(&volume).expect_held().origin;
        origin.want_flush(waiter);
        origin.pump_flush(volume, &mut self.port);
    }

    /// Whether the cache is in use for the volume: it has not failed, and the volume is not in pass-through.
    pub(crate) fn is_used_by(&self, volume: VolumeId) -> bool {
        self.health == Health::Good
            && self.volumes.get(&volume).is_some_and(|volume| volume.cfg.mode != Mode::PassThrough)
    }

    /// Whether somebody wants to know what the extent holds.
    pub(crate) fn tells(&self, key: ExtentKey) -> bool {
        !self.told.is_empty() && self.told.contains(&key.volume)
    }

    /// Tells it.
    pub(crate) fn tell(&mut self, key: ExtentKey, digest: Digest, stored: Option<(Codec, u32)>) {
        self.port.emit(Action::Note(Note::Content { key, digest, stored }));
    }

    /// From now on tells what becomes known of the volume's contents, or no longer.
    pub(crate) fn tell_contents(&mut self, volume: VolumeId, tell: bool) {
        self.told.retain(|other| *other != volume);
        if tell {
            self.told.push(volume);
        }
    }

    /// Has the distrust of a volume, or of all, recorded.
    pub(crate) fn distrust(&mut self, volume: Option<VolumeId>) {
        let op = self.port.op(OpKind::Distrust(volume));
        self.port.emit(Action::Distrust { op, volume });
    }
}
