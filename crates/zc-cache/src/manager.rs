//! The cache manager: one owner of every index, events in, actions out.
//!
//! # How it works
//! [`CacheManager::handle`] takes one [`Event`], changes state, runs *maintenance* (what became possible or due: journal
//! blocks, region marks, retirements, checkpoints, evictions, loading of headers) and hands out actions. The ways of a
//! request are in `read`, `write` and `insert`; of an origin's flushes in `origin`; of a WEU in `weu` and `evict`; of a
//! restart in `load`; of durable metadata in `persist`, of a device that fails in `failure`, of a volume that goes in
//! `removal`, of a stop in `stop`. Operations in flight, holds on buffers and actions are in `port`; `op_kind` leads the
//! end of an operation to its component.
//!
//! # Races, and what decides them
//! - *A miss fill overtaken by a write* is dropped: its guard (see `tracks`) does not hold any more.
//! - *Two writes of the same sectors in flight* leave unknown bytes: neither is cached.
//! - *An eviction never takes a WEU that is being read*: readers pin the slot; victims are unpinned.
//! - *A duplicate whose slot leaves between lookup and placement* is dropped: liveness is checked when it is placed.
//! - *A slot reused under a stale duplicate entry* is told by the generation; an index sweep removes such entries
//!   before short generations can meet again (see `slots`).
//! - *Extents of the open WEU or one being written* are hits and dedup targets: they are read from memory, by the
//!   same path and with the same verification as from the device.
//! - *A header that loads after a write of its extent* is void for that extent: writes are remembered meanwhile.
//! - *Two misses of one extent* share one origin read; of two insertions the second finds the first and ends.
//!
//! # What it does not do
//! It has no clock, thread, file or lock and never sees payload bytes. Front ends map its errors.

use zc_core::{BufSlice, ErrorKind, ExtentKey, ExtentNo, Mode, OpId, VolumeId};
use zc_format::Record;

use crate::base::{Base, Volume};
use crate::clean::Clean;
use crate::config::{ManagerConfig, VolumeConfig};
use crate::deadlines::Deadlines;
use crate::device::{Core, Device};
use crate::effects::Effect;
use crate::expect_held::ExpectHeld;
use crate::health::{Distrusts, Health};
use crate::op_kind::OpKind;
use crate::origin::tracker::OriginTracker;
use crate::port::Ended;
use crate::removal::Removals;
use crate::seam::{Action, Event, Purpose, Request, RequestKind};
use crate::startup::StartState;
use crate::stats::Stats;
use crate::stop::Stop;
use crate::write_back::WriteBack;

/// The cache manager. See the module documentation.
#[derive(Debug)]
pub struct CacheManager {
    pub(crate) core: Core,
    pub(crate) clean: Clean,
    pub(crate) dirty: WriteBack,
    pub(crate) distrusts: Distrusts,
    pub(crate) deadlines: Deadlines,
    pub(crate) stop: Stop,
    pub(crate) removals: Removals,
}

impl Base {
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
}

impl Device {
    /// Appends to journal and intent log.
    pub(crate) fn record(&mut self, record: Record, base: &mut Base) {
        match base.health {
            Health::Good => self.meta.journal.append(record, base.now_ms),
            // The journal is gone; a restart after a kill still believes the intent log.
            Health::Failing => {}
            Health::Failed => return,
        }
        base.port.emit(Action::Intent { record });
    }
}

impl WriteBack {
    pub(crate) fn submit(&mut self, request: &Request, core: &mut Core, clean: &mut Clean) {
        match request.kind {
            RequestKind::Read { buf } => self.submit_read(request, buf, core, clean),
            RequestKind::Flush => self.submit_flush(request, core),
            RequestKind::Prefetch => clean.submit_prefetch(request, core),
            RequestKind::Write { .. } | RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. } => {
                self.submit_write(request, core, clean);
            }
        }
    }
}

impl Core {
    fn add_volume(&mut self, cfg: VolumeConfig) {
        assert!(cfg.region_bytes > 0, "a region has a size");
        let whole_extents = cfg.size_bytes / u64::from(self.base.extent_bytes);
        // What is not believed is not loaded, so that there is nothing to compare.
        let closed = self.device.recovery.load.is_some()
            && cfg.trusted
            && self.device.recovery.restart.mapping_trusted;
        self.device.recovery.probes.add(cfg.id, closed);
        let origin = OriginTracker::new(cfg.lost_writes);
        self.base.volumes.insert(cfg.id, Volume { cfg, whole_extents, origin });
    }

    pub(crate) fn apply_config(&mut self, cfg: VolumeConfig) {
        match self.base.volumes.get_mut(&cfg.id) {
            Some(volume) => {
                let VolumeConfig { size_bytes, region_bytes, trusted, domain, .. } = volume.cfg;
                volume.cfg = VolumeConfig { size_bytes, region_bytes, trusted, domain, ..cfg };
            }
            None => self.add_volume(cfg),
        }
    }
}

impl Core {
    /// A volume that exists becomes larger, if this is larger. The extent that its end used to cut may be cached from
    /// now on, but nothing that is under way for it: its rest was not there when that began. Nothing behind it was ever
    /// read, written or mapped, by this session or one whose mappings are believed: a start believes none behind the
    /// end, and none at all of a volume that has another length than when it stopped.
    fn grow(&mut self, id: VolumeId, size_bytes: u64) {
        let extent = u64::from(self.base.extent_bytes);
        let Some(volume) = self.base.volumes.get_mut(&id).filter(|volume| volume.cfg.size_bytes < size_bytes)
        else {
            return;
        };
        let cut = ExtentKey { volume: id, extent: ExtentNo(volume.cfg.size_bytes / extent) };
        volume.cfg.size_bytes = size_bytes;
        volume.whole_extents = size_bytes / extent;
        self.device.index.tracks.changes(cut);
    }
}

impl CacheManager {
    /// A manager for an opened cache. Then come [`CacheManager::replay`] for each record of checkpoint and journal,
    /// [`CacheManager::replay_intent`] for those of the intent log of an intact start, and [`CacheManager::begin`].
    ///
    /// # Panics
    /// When the geometry names more slots than an index location can.
    #[must_use]
    pub fn new(config: ManagerConfig, volumes: Vec<VolumeConfig>, start: StartState) -> Self {
        let summaries = start.summaries_in.map(|slot| (start.journal_next, slot));
        let mut manager = Self {
            clean: Clean::new(&config),
            dirty: WriteBack::new(start.journal_proved),
            distrusts: Distrusts::default(),
            deadlines: Deadlines::default(),
            stop: Stop::default(),
            removals: Removals::default(),
            core: Core { base: Base::new(config.clone(), &start), device: Device::new(&config, start) },
        };
        for volume in volumes {
            manager.core.add_volume(volume);
        }
        #[cfg(zc_canary)]
        core::hint::black_box(crate::config::CANARY_MARK);
        if let Some((journal_next, slot)) = summaries {
            manager.dirty.keep_summaries(journal_next, slot, &mut manager.core);
        }
        manager
    }

    /// Switches a deliberate bug on.
    #[cfg(zc_canary)]
    pub fn set_canary(&mut self, canary: Option<crate::config::Canary>) {
        self.core.base.canary = canary;
        self.clean.origin_order.lets_meet = canary == Some(crate::config::Canary::OriginMeetings);
        self.dirty.holds_nothing = canary == Some(crate::config::Canary::NoHold);
        self.core.device.units.slots.careless = canary == Some(crate::config::Canary::NoSweepGate);
        self.core.device.units.headers.careless = canary == Some(crate::config::Canary::ShortFingerprint);
    }

    /// Handles one event; appends what is to be done to `actions`.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.core.base.port.swap_out(actions);
        self.dispatch(event);
        self.settle();
        self.maintain();
        debug_assert!(self.core.base.effects.is_empty(), "maintenance has no news");
        self.core.base.port.swap_out(actions);
    }

    /// Leads news to those who have to act on them.
    fn settle(&mut self) {
        while let Some(effect) = self.core.base.effects.pop_front() {
            match effect {
                Effect::DeviceFailed(error) => self.device_failed(error),
            }
        }
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Submit(request) => {
                if !self.dirty.hold(&request) {
                    self.dirty.submit(&request, &mut self.core, &mut self.clean);
                }
            }
            Event::DeviceLost => self.core.base.fail_device(Purpose::Presence, ErrorKind::Io),
            Event::OriginDone { op, result } => self.end_op(op, Ended::Origin(result)),
            Event::DeviceDone { op, result } => self.end_op(op, Ended::Device(result)),
            Event::ExtentsRead { op, result } => self.end_op(op, Ended::Extents(result)),
            Event::HeaderRead { op, result } => self.end_op(op, Ended::Header(result)),
            Event::Hashed { op, digest } => self.end_op(op, Ended::Hashed(digest)),
            Event::Compressed { op, stored_bytes } => self.end_op(op, Ended::Compressed(stored_bytes)),
            Event::Compared { op, equal } => self.end_op(op, Ended::Compared(equal)),
            Event::RecipeArrived { op, prints } => self.end_op(op, Ended::Recipe(prints)),
            Event::Tick { now_ms } => self.tick(now_ms),
            Event::Configure(volume) => self.configure(*volume),
            Event::Destage { volume } => self.dirty.drain(volume),
            Event::DropDirty { volume, remembered } => {
                self.dirty.drop_dirty(volume, remembered, &mut self.core)
            }
            Event::GiveUpUnreadable { volume } => self.dirty.give_up_unreadable(volume, &mut self.core),
            Event::AcceptLoss { volume } => self.dirty.accept_loss(volume, &mut self.core),
            Event::Remove { volume } => self.remove_volume(volume),
            Event::Stop => self.core.base.stopping = true,
        }
    }

    fn end_op(&mut self, op: OpId, ended: Ended) {
        let kind = self.core.base.port.take_op(op);
        self.op_ended(kind, ended);
    }

    fn tick(&mut self, now_ms: u64) {
        self.core.base.now_ms = self.core.base.now_ms.max(now_ms);
        self.clean.age_staging(&mut self.core);
        self.clean.inserts.runs.age(self.core.base.now_ms, self.core.base.stopping);
        self.core.device.age_open_weu(&mut self.core.base);
        self.age_device_ops();
    }

    /// What became possible or due.
    fn maintain(&mut self) {
        self.clean.pump_origin_order(&mut self.core);
        self.dirty.pump_held(&mut self.core, &mut self.clean);
        self.dirty.wake_volumes(&mut self.core);
        self.dirty.pump_admission(&mut self.core, &mut self.clean);
        self.dirty.pump_dirty_placement(&mut self.core);
        self.clean.pump_placement(&mut self.core);
        self.dirty.keep_free_slots(&mut self.core, &mut self.clean);
        self.dirty.wake_volumes(&mut self.core);
        self.dirty.pump_commits(&mut self.core);
        self.dirty.pump_destage(&mut self.core, &mut self.clean);
        self.dirty.rest_volumes(&mut self.core);
        self.dirty.pump_scrub(&mut self.core);
        self.core.device.pump_sweep(&mut self.core.base);
        self.core.device.pump_load(&mut self.core.base);
        self.core.device.pump_probes(&mut self.core.base);
        self.pump_removals();
        self.pump_persist();
        self.pump_distrusts();
        self.pump_stop();
        self.core.base.stats.gauges(
            &self.core.device.index.files,
            &self.core.device.index.prints,
            self.core.device.meta.journal.used_blocks(),
            self.core.device.meta.regions.len(),
        );
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.base.stats
    }

    /// Bytes of RAM that the structures growing with the cache hold, by name.
    #[must_use]
    pub fn ram_by_structure(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("file_index", self.core.device.index.files.ram_bytes()),
            ("fingerprint_index", self.core.device.index.prints.ram_bytes()),
            ("slots", self.core.device.units.slots.ram_bytes()),
            ("policy", self.core.device.units.policy.ram_bytes()),
            ("headers", self.core.device.units.headers.ram_bytes()),
            ("learned_recipes", self.clean.recipes.learned_ram_bytes()),
            ("first_misses", self.clean.touched.ram_bytes()),
        ]
    }

    /// Slots that hold something, and all.
    #[must_use]
    pub fn slots_used(&self) -> (usize, usize) {
        let all = zc_core::usize_from_u32(self.core.device.units.slots.len());
        (all - self.core.device.units.slots.free_len() - self.core.device.units.slots.leaving(), all)
    }

    /// Regions marked now, and how many may be.
    #[must_use]
    pub fn active_regions(&self) -> (usize, usize) {
        (
            self.core.device.meta.regions.len() + self.core.device.meta.regions.inherited_len(),
            self.core.device.meta.regions.max(),
        )
    }

    /// Whether the cache device works.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.core.base.health == Health::Good
    }

    /// Whether nothing is under way: no request is unanswered, no action unended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.core.base.port.is_idle()
            && self.clean.reads.is_empty()
            && self.clean.writes.is_empty()
            && self.clean.fills.is_empty()
    }

    /// Whether all WEU headers have been read since the start.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.core.device.recovery.load.is_none()
    }

    fn configure(&mut self, cfg: VolumeConfig) {
        self.core.grow(cfg.id, cfg.size_bytes);
        if !self.core.base.volumes.contains_key(&cfg.id) && self.dirty.is_doubtful(&cfg, &self.core) {
            self.dirty.fence_incomplete(cfg.id, &mut self.core);
        }
        if !self.core.base.volumes.contains_key(&cfg.id) && !cfg.may_be_dirty && self.dirty.has_dirty(cfg.id)
        {
            // Known to be clean elsewhere: what the start found is an older state of the medium.
            self.dirty.drop_dirty(cfg.id, true, &mut self.core);
        }
        if !self.core.base.volumes.contains_key(&cfg.id) && self.dirty.has_dirty(cfg.id) {
            // Its dirty data was kept for it: it has to be served before it can leave write-back.
            self.core.apply_config(VolumeConfig { mode: Mode::WriteBack, ..cfg.clone() });
        }
        if !self.dirty.leave_write_back(&cfg, &mut self.core) {
            self.core.apply_config(cfg);
        }
    }
}
