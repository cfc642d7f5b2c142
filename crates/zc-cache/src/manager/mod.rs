//! The cache manager: one owner of every index, events in, actions out.
//!
//! # How it works
//! [`CacheManager::handle`] takes one [`Event`] and routes it to its component. Findings of a component that others
//! have to act on are passed on next. Then comes *maintenance*: operations that have become possible or due (journal
//! blocks, region marks, retirements, checkpoints, evictions, loading of headers). All operations to perform are
//! returned as actions.
//!
//! Components own their state. Each gets those below it with the call. No other module sees the manager.
//!
//! # Races, and their resolution
//! - *A miss fill overtaken by a write* is dropped: its guard (see `base::tracks`) does not hold any more.
//! - *Two writes of the same sectors in flight* leave unknown bytes: neither is cached.
//! - *An eviction never takes a WEU that is being read*: readers pin the slot; victims are unpinned.
//! - *A duplicate whose slot leaves between lookup and placement* is dropped: liveness is checked when it is placed.
//! - *A slot reused under a stale duplicate entry* is detected by the generation; an index sweep removes such entries
//!   before short generations can match again (see `device::slots::table`).
//! - *Extents of the open WEU or one being written* are hits and dedup targets: they are read from memory, by the
//!   same path and with the same verification as from the device.
//! - *A header that loads after a write of its extent* is invalid for that extent: writes are recorded in the
//!   meantime.
//! - *Two misses of one extent* share one origin read; of two insertions the second finds the first and ends.
//!
//! # Out of scope
//! It has no clock, thread, file or lock and never sees payload bytes. Front ends map its errors.

mod dispatch;
mod queries;

use zc_core::{ErrorKind, Mode, OpId};
use zc_format::Record;

use crate::base::Base;
use crate::base::health::Distrusts;
use crate::base::port::Ended;
use crate::clean::Clean;
use crate::config::{ManagerConfig, VolumeConfig};
use crate::deadlines::Deadlines;
use crate::device::catalog::evict::SlotNeed;
use crate::device::{Core, Device};
use crate::dirty::DirtyLayer;
use crate::removal::Removals;
use crate::seam::{Action, Event, Purpose};
use crate::startup::StartState;
use crate::stop::Stop;

/// The cache manager. See the module documentation.
#[derive(Debug)]
pub struct CacheManager {
    core: Core,
    clean: Clean,
    dirty: DirtyLayer,
    distrusts: Distrusts,
    deadlines: Deadlines,
    stop: Stop,
    removals: Removals,
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
        let (clean, base) = (Clean::new(&config), Base::new(config, &start));
        let dirty = DirtyLayer::new(start.journal_proved);
        let device = Device::new(base.cfg(), start);
        let mut manager = Self {
            core: Core { base, device },
            clean,
            dirty,
            distrusts: Distrusts::default(),
            deadlines: Deadlines::default(),
            stop: Stop::default(),
            removals: Removals::default(),
        };
        for volume in volumes {
            manager.core.configure_share(volume.id, &volume.share);
            manager.core.configure_pins(volume.id, &volume.pins, volume.size_bytes);
            manager.core.add_volume(volume);
        }
        if let Some((journal_next, slot)) = summaries {
            manager.dirty.commits_mut().summaries_mut().keep(journal_next, slot, &mut manager.core);
        }
        manager
    }

    /// Handles one event; appends the operations to perform to `actions`.
    pub fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.core.base.port.swap_out(actions);
        self.dispatch(event);
        self.handle_effects();
        self.maintain();
        debug_assert!(self.core.base.has_no_effects(), "the manager leads effects on within the event");
        self.core.base.port.swap_out(actions);
    }

    /// Has the next [`Event::Stop`] write no index image: the stop is sooner over, and the next start takes longer.
    pub fn leave_no_image(&mut self) {
        self.core.device.image.leave_none();
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Submit(request) => {
                if !self.dirty.defer(&request) {
                    self.dirty.submit_any(&request, &mut self.core, &mut self.clean);
                }
            }
            Event::DeviceLost => self.core.base.fail_device(Purpose::Presence, ErrorKind::Io),
            Event::OriginDone { op, result } => self.end_op(op, Ended::Origin(result)),
            Event::DeviceDone { op, result } => self.end_op(op, Ended::Device(result)),
            Event::ExtentsRead { op, result } => self.end_op(op, Ended::Extents(result)),
            Event::HeaderRead { op, result } => self.end_op(op, Ended::Header(result)),
            Event::ImageRead { op, result } => self.end_op(op, Ended::Image(result)),
            Event::Hashed { op, digest } => self.end_op(op, Ended::Hashed(digest)),
            Event::Compressed { op, stored_bytes } => self.end_op(op, Ended::Compressed(stored_bytes)),
            Event::Compared { op, equal } => self.end_op(op, Ended::Compared(equal)),
            Event::RecipeArrived { op, prints } => self.end_op(op, Ended::Recipe(prints)),
            Event::Tick { now_ms } => self.tick(now_ms),
            Event::Configure(volume) => self.configure(*volume),
            Event::Destage { volume } => self.dirty.drain(volume),
            Event::DropDirty { volume, remembered } => {
                self.dirty.drop_dirty(volume, remembered, &mut self.core);
            }
            Event::GiveUpUnreadable { volume } => self.dirty.give_up_unreadable(volume, &mut self.core),
            Event::AcceptLoss { volume } => self.dirty.volumes_mut().accept_loss(volume, &mut self.core),
            Event::Remove { volume } => self.removals.remove_volume(volume, &mut self.core),
            Event::Erase { keep } => self.core.device.erasure.begin(&keep, &self.core.base),
            Event::Stop => self.core.base.stop(),
        }
    }

    fn end_op(&mut self, op: OpId, ended: Ended) {
        let kind = self.core.base.port.take_op(op);
        self.op_ended(kind, ended);
    }

    fn tick(&mut self, now_ms: u64) {
        self.core.base.tick(now_ms);
        self.dirty.count_sharers(&self.core);
        self.clean.copies_mut().age(&mut self.core);
        self.core.device.units.clean_mut().age_open_weus(&mut self.core.device.catalog, &mut self.core.base);
        self.clean.keep(&mut self.core);
        self.deadlines.age_device_ops(&mut self.core, &mut self.clean);
    }

    /// Evicts units while slots are needed.
    fn keep_free_slots(&mut self) {
        let need = SlotNeed {
            is_for_clean: self.clean.copies().inserts().is_placing(),
            is_for_dirty: self.dirty.is_placing(),
            are_hits: self.clean.reads().is_reading_hits(),
        };
        self.core.device.catalog.keep_quotas(need, &mut self.core.base);
        if !self.core.device.catalog.keep_free_slots(need, &mut self.core.base) {
            self.clean.copies_mut().drop_old_copies(&mut self.core);
        }
    }

    /// Performs operations that have become possible or due.
    fn maintain(&mut self) {
        self.clean.pump_origin_order(&mut self.core);
        self.dirty.pump_deferred(&mut self.core, &mut self.clean);
        self.dirty.volumes_mut().wake_some(&mut self.core);
        self.dirty.pump_admission(&mut self.core, &mut self.clean);
        self.dirty.pump_dirty_placement(&mut self.core);
        self.clean.copies_mut().pump_placement(&mut self.core);
        self.keep_free_slots();
        self.dirty.volumes_mut().wake_some(&mut self.core);
        self.dirty.pump_commits(&mut self.core);
        self.dirty.pump_destage(&mut self.core, &mut self.clean);
        self.dirty.volumes_mut().rest_some(&mut self.core);
        self.dirty.pump_scrub(&mut self.core);
        self.core.device.catalog.pump_sweep(&mut self.core.base);
        self.core.device.recovery.pump_load(&mut self.core.device.catalog, &mut self.core.base);
        self.core.device.pump_probes(&mut self.core.base);
        self.removals.pump_removals(&mut self.core, &mut self.clean, &mut self.dirty);
        let Core { device: Device { catalog, units, erasure, .. }, base } = &mut self.core;
        erasure.pump(catalog, units, base);
        self.dirty.pump_persist(&mut self.core, &mut self.clean);
        self.distrusts.pump_distrusts(&mut self.core, &mut self.clean);
        self.handle_effects();
        self.stop.pump_stop(&mut self.core, &mut self.clean, &mut self.dirty, &mut self.distrusts);
        self.core.device.gauges(&mut self.core.base.stats);
    }

    fn configure(&mut self, cfg: VolumeConfig) {
        self.core.configure_share(cfg.id, &cfg.share);
        self.core.configure_pins(cfg.id, &cfg.pins, cfg.size_bytes);
        self.core.grow(cfg.id, cfg.size_bytes);
        if !self.core.base.has_volume(cfg.id) && self.dirty.is_doubtful(&cfg, &self.core) {
            self.dirty.volumes_mut().fence_incomplete(cfg.id, &mut self.core);
        }
        if !self.core.base.has_volume(cfg.id) && !cfg.may_be_dirty && self.dirty.volumes().has_dirty(cfg.id) {
            // Recorded as clean elsewhere: the start found an older state of the medium.
            self.dirty.drop_dirty(cfg.id, true, &mut self.core);
        }
        if !self.core.base.has_volume(cfg.id) && self.dirty.volumes().has_data(cfg.id) {
            // Its dirty data was kept for it: it has to be served before it can leave write-back. A volume whose drop
            // is only unrecorded does not enter that mode: a device that then fails would fence it.
            self.core.apply_config(VolumeConfig { mode: Mode::WriteBack, ..cfg.clone() });
        }
        if !self.dirty.leave_write_back(&cfg, &mut self.core) {
            self.core.apply_config(cfg);
        }
        self.dirty.count_sharers(&self.core);
    }
}

/// The start: records of an earlier session are replayed, then requests may come.
impl CacheManager {
    /// Replays a record of the intent log, after those of checkpoint and journal. The journal lacks it, so that it is
    /// recorded again.
    pub fn replay_intent(&mut self, record: &Record) {
        let Device { catalog, recovery, .. } = &mut self.core.device;
        recovery.replay_intent(record, catalog.table_mut());
    }

    /// Replays one record of checkpoint, then journal, before [`CacheManager::begin`].
    pub fn replay(&mut self, record: &Record) {
        let Device { catalog, recovery, .. } = &mut self.core.device;
        recovery.replay(record, catalog.table_mut());
    }

    /// Ends the replay; requests may come now.
    pub fn begin(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let Self { core, clean, dirty, .. } = self;
        core.base.port.swap_out(actions);
        core.base.begin(now_ms);
        core.device.recovery.record_unjournaled(&mut core.device.catalog, &mut core.base);
        dirty.install_dirty(core);
        core.device.recovery.begin(&mut core.device.catalog, &mut core.base);
        dirty.commits_mut().summaries_mut().repeat(core);
        core.device.recovery.pump_load(&mut core.device.catalog, &mut core.base);
        core.device.pump_probes(&mut core.base);
        dirty.pump_persist(core, clean);
        core.base.port.swap_out(actions);
    }
}
