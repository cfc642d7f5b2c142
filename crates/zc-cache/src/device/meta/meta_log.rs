//! What is durable of the cache beside its units: journal, region marks and their map, retirements, checkpoints.
//!
//! Job: own these parts, and say of all of them together whether they are at rest. Journal and regions are components of
//! their own; the others change in this folder alone.
//!
//! What it does not do: decide when a part is due (its neighbours do), or what a failed device means (`failure` does).

use super::checkpoint::Checkpoints;
use super::image::ImageWrite;
use super::journal::Journal;
use super::region_map::RegionMaps;
use super::regions::Regions;
use super::retire::Retirements;
use crate::base::Base;
use crate::config::ManagerConfig;
use crate::seam::Action;
use crate::startup::StartState;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct MetaLog {
    pub(in crate::device) journal: Journal,
    pub(in crate::device) regions: Regions,
    pub(super) maps: RegionMaps,
    pub(super) retirements: Retirements,
    pub(super) checkpoints: Checkpoints,
    pub(super) image: ImageWrite,
    /// Journal records that the intent log was told to forget.
    intent_trimmed: u64,
}

impl MetaLog {
    /// After a start that found this on the device.
    pub(crate) fn new(config: &ManagerConfig, start: &StartState) -> Self {
        let ring_blocks = config.geometry.journal_blocks;
        let (first, next) = (start.journal_start, start.journal_next);
        let marked = start.active_regions.iter().copied();
        Self {
            journal: Journal::new(first, next, ring_blocks, zc_format::RECORDS_PER_BLOCK),
            regions: Regions::new(config.regions_active_max, marked, &config.hash_key),
            maps: RegionMaps::new(start.region_map_sequence, start.region_map_copy),
            retirements: Retirements::default(),
            checkpoints: Checkpoints::new(
                start.checkpoint_sequence,
                start.checkpoint_area,
                start.checkpoint_found,
            ),
            image: ImageWrite::default(),
            intent_trimmed: 0,
        }
    }

    /// The device failed: nothing that is under way will end.
    pub(crate) fn device_failed(&mut self) {
        self.retirements.give_up();
        self.maps.give_up();
        self.checkpoints.give_up();
    }

    /// Whether no map, retirement or checkpoint is under way.
    pub(crate) const fn is_idle(&self) -> bool {
        !self.checkpoints.is_running() && !self.maps.is_writing() && !self.retirements.is_running()
    }

    /// Has a map written, though no mark is new.
    pub(crate) const fn want_map(&mut self) {
        self.maps.mark_stale();
    }

    /// Sequence of the newest map that was written or is on its way.
    pub(crate) const fn newest_map(&self) -> u64 {
        self.maps.newest()
    }

    /// Sequence of the newest map that is durable: what journal and checkpoint may vouch for.
    pub(crate) const fn durable_map(&self) -> u64 {
        self.maps.durable()
    }

    /// Has the intent log forget what the journal has durably.
    pub(crate) fn trim_intent(&mut self, base: &mut Base) {
        let written = self.journal.written();
        if written > self.intent_trimmed {
            self.intent_trimmed = written;
            base.port.emit(Action::IntentTrim { records: written });
        }
    }

    /// A region map is waited for until one of a higher sequence than this is durable.
    pub(crate) fn await_map(&mut self, above: u64) {
        self.maps.await_above(above);
    }

    /// No retirement begins any more: the last flush of the device is next.
    pub(crate) const fn close(&mut self) {
        self.retirements.close();
    }

    /// Whether marks stay on the device past a stop, because an origin does not flush.
    pub(crate) const fn do_marks_stay(&self) -> bool {
        self.retirements.do_marks_stay()
    }

    /// Mappings from media were voided: a region map has to name the journal block that says so.
    pub(crate) const fn want_voids(&mut self) {
        self.retirements.want_voids();
    }
}
