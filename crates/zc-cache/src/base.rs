//! What every component of the core may use: settings, the clock of the last tick, the port, counters, and the volumes.
//!
//! Job: hold what belongs to no component alone. Components get it with each call, and reach the outside through its
//! port. Its fields are open for that reason.
//!
//! What it does not do: decide anything.

use std::collections::VecDeque;

use zc_core::{ErrorKind, Map, VolumeId};

use crate::config::{ManagerConfig, VolumeConfig};
use crate::effects::Effect;
use crate::health::{ErrorRuns, Health};
use crate::op_kind::OpKind;
use crate::origin::tracker::OriginTracker;
use crate::port::Port;
use crate::seam::{Action, Note, Purpose};
use crate::startup::StartState;
use crate::stats::Stats;

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
}
