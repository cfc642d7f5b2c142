//! Durable metadata besides the units: journal, region marks and their map, retirements.
//!
//! Owns these parts, and determines if all of them are idle. Journal and regions are components of their own; the
//! others are modified in this folder only.
//!
//! Out of scope: deciding when a part is due (its neighbours do), and the effects of a failed device (`failure`).

use zc_core::{ErrorKind, VolumeId};
use zc_format::{RECORDS_PER_BLOCK, Record};

use super::journal::Journal;
use super::region_map::RegionMaps;
use super::regions::Regions;
use super::retire::{Marks, Retired, Retirements};
use crate::base::Base;
use crate::base::health::Health;
use crate::config::ManagerConfig;
use crate::ops::meta::Op;
use crate::seam::Action;
use crate::startup::StartState;

/// Pending journal records at which insertion pauses: 64 blocks.
const PENDING_RECORDS_PRESSED: usize = 64 * RECORDS_PER_BLOCK;

pub(crate) fn flush_cache(kind: Op, base: &mut Base) {
    base.stats.device_flushes += 1;
    let op = base.port.op(kind);
    base.port.emit(Action::FlushCache { op });
}

#[derive(Debug)]
pub(crate) struct MetaLog {
    journal: Journal,
    regions: Regions,
    maps: RegionMaps,
    retirements: Retirements,
    is_checkpointing: bool,
    /// Journal records already trimmed from the intent log.
    intent_trimmed: u64,
}

impl MetaLog {
    /// Creates the metadata from the session found on the device.
    pub(crate) fn new(config: &ManagerConfig, start: &StartState) -> Self {
        let ring_blocks = config.geometry.journal_blocks;
        let (first, next) = (start.journal_start, start.journal_next);
        let marked = start.active_regions.iter().copied();
        Self {
            journal: Journal::new(first, next, ring_blocks, RECORDS_PER_BLOCK),
            regions: Regions::new(config.regions_active_max, marked, &config.hash_key),
            maps: RegionMaps::new(start.region_map_sequence, start.region_map_copy),
            retirements: Retirements::default(),
            is_checkpointing: false,
            intent_trimmed: 0,
        }
    }

    #[inline]
    pub(crate) const fn journal(&self) -> &Journal {
        &self.journal
    }

    #[inline]
    pub(crate) const fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    #[inline]
    pub(crate) const fn regions(&self) -> &Regions {
        &self.regions
    }

    #[inline]
    pub(crate) const fn regions_mut(&mut self) -> &mut Regions {
        &mut self.regions
    }

    /// Returns `true` if the journal backlog is so long that insertions must wait.
    pub(crate) fn is_pressed(&self) -> bool {
        let nearly_full = self.journal.used_blocks() + 2 >= self.journal.ring_blocks();
        self.journal.pending_len() > PENDING_RECORDS_PRESSED || (nearly_full && self.is_checkpointing)
    }

    /// Appends to journal and intent log.
    pub(crate) fn record(&mut self, record: Record, base: &mut Base) {
        match base.health() {
            Health::Good => self.journal.append(record, base.now_ms()),
            // The journal cannot be written; a restart after a kill still uses the intent log.
            Health::Failing => {}
            Health::Failed => return,
        }
        base.port.emit(Action::Intent { record });
    }

    /// Records the beginning or end of a checkpoint.
    pub(crate) const fn set_checkpointing(&mut self, is_under_way: bool) {
        self.is_checkpointing = is_under_way;
    }

    /// Writes the next region map if the one on the device lacks a mark, or contains a removed one and there is time.
    pub(crate) fn pump_map(&mut self, base: &mut Base) {
        self.maps.pump(&mut self.regions, &self.journal, base);
    }

    pub(crate) fn map_durable(&mut self) {
        if let Some(written) = self.maps.end() {
            self.regions.map_is_durable(&written);
        }
    }

    /// Begins a due retirement, or completes the one in progress if possible. `is_room_wanted`: writes wait for
    /// capacity for their marks.
    pub(crate) fn pump_retiring(&mut self, is_room_wanted: bool, base: &mut Base) -> Retired {
        let Self { regions, maps, journal, retirements, .. } = self;
        retirements.pump(&mut Marks { regions, maps, journal }, is_room_wanted, base)
    }

    /// Handles an origin flush of the retirement in progress.
    pub(crate) fn retire_flush_done(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        self.retirements.flush_done(volume, result);
    }

    /// Returns `true` if a clean stop may record that no region of a served volume is marked.
    pub(crate) fn is_unmarked(&self, base: &Base) -> bool {
        self.retirements.is_unmarked(&self.regions, &self.maps, base)
    }

    /// Handles a device failure: abandons all operations in progress.
    pub(crate) fn device_failed(&mut self) {
        self.retirements.give_up();
        self.maps.give_up();
        self.is_checkpointing = false;
    }

    /// Returns `true` if no map, retirement or checkpoint is in progress.
    pub(crate) const fn is_idle(&self) -> bool {
        !self.is_checkpointing && !self.maps.is_writing() && !self.retirements.is_running()
    }

    /// Requests a map write even without a new mark.
    pub(crate) const fn want_map(&mut self) {
        self.maps.mark_stale();
    }

    /// Sequence of the newest map, written or in flight.
    pub(crate) const fn newest_map(&self) -> u64 {
        self.maps.newest()
    }

    /// Sequence of the newest durable map, which journal and checkpoint may refer to.
    pub(crate) const fn durable_map(&self) -> u64 {
        self.maps.durable()
    }

    /// Trims records from the intent log that are durable in the journal.
    pub(crate) fn trim_intent(&mut self, base: &mut Base) {
        let written = self.journal.written();
        if written > self.intent_trimmed {
            self.intent_trimmed = written;
            base.port.emit(Action::IntentTrim { records: written });
        }
    }

    /// Waits for a durable region map with a higher sequence.
    pub(crate) fn await_map(&mut self, above: u64) {
        self.maps.await_above(above);
    }

    /// Prevents further retirements before the final flush of the device.
    pub(crate) const fn close(&mut self) {
        self.retirements.close();
    }

    /// Returns `true` if marks remain on the device after a stop, because an origin does not flush.
    pub(crate) const fn do_marks_stay(&self) -> bool {
        self.retirements.do_marks_stay()
    }

    /// Records that mappings loaded from media were invalidated: a region map must name the journal block with these
    /// records.
    pub(crate) const fn want_voids(&mut self) {
        self.retirements.want_voids();
    }
}
