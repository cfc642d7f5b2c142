//! The region map on its way to the device: two copies in turn, and the writes that wait for their mark.

use zc_core::RegionKey;
use zc_format::RegionMap;

use crate::base::Base;
use crate::device::meta::journal::Journal;
use crate::device::meta::regions::Regions;
use crate::ops::meta::Op;
use crate::seam::Action;

/// Without writes for so long, all marks are retired, so that a power cut finds everything warm.
pub(super) const IDLE_RETIRE_MS: u64 = 2000;

/// The region maps on the device and the one that is in progress.
#[derive(Debug)]
pub(super) struct RegionMaps {
    /// The regions of the map that is on its way.
    writing: Option<Vec<RegionKey>>,
    /// Sequence of the newest map that was written or is on its way.
    sequence: u64,
    /// Sequence of the newest durable map, which journal and checkpoint may vouch for.
    durable: u64,
    copy: usize,
    /// The map on the device has marks that were removed.
    stale: bool,
    /// A map of a higher sequence than this is waited for.
    awaited_above: Option<u64>,
}

impl RegionMaps {
    /// After a start that found the map of this sequence in this copy.
    pub(super) const fn new(sequence: u64, copy: usize) -> Self {
        Self { writing: None, sequence, durable: 0, copy, stale: false, awaited_above: None }
    }

    /// Sequence of the newest map that was written or is on its way.
    pub(super) const fn newest(&self) -> u64 {
        self.sequence
    }

    /// Sequence of the newest map that is durable.
    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Returns `true` if a map is in flight.
    pub(super) const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Records that the map on the device has removed marks, or lacks a journal block that it has to name.
    pub(super) const fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Waits for a map of a higher sequence than this.
    pub(super) fn await_above(&mut self, sequence: u64) {
        self.awaited_above = self.awaited_above.max(Some(sequence));
    }

    /// Returns `true` if a map is waited for.
    fn is_awaited(&self) -> bool {
        self.awaited_above.is_some_and(|above| self.durable <= above)
    }

    /// Returns `true` if the map on the device has marks that are removed.
    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// Abandons the map in flight.
    pub(super) fn give_up(&mut self) {
        self.writing = None;
    }

    /// The next map, for the other copy, with these regions.
    fn begin(&mut self, regions: &[RegionKey]) -> (u64, usize) {
        self.stale = false;
        self.sequence += 1;
        self.copy = 1 - self.copy;
        self.writing = Some(regions.to_vec());
        (self.sequence, self.copy)
    }

    /// Completes the map in flight; returns its regions.
    pub(super) fn end(&mut self) -> Option<Vec<RegionKey>> {
        let written = self.writing.take()?;
        self.durable = self.sequence;
        Some(written)
    }

    /// Writes the next map, if the one on the device lacks a mark, or has one too many and there is time.
    pub(super) fn pump(&mut self, regions: &mut Regions, journal: &Journal, base: &mut Base) {
        let idle = base.is_idle_for(IDLE_RETIRE_MS);
        let may_tidy = idle || base.is_stopping() || self.is_awaited();
        let wanted = regions.has_new_marks() || (self.is_stale() && may_tidy);
        if !base.is_good() || self.is_writing() || !wanted {
            return;
        }
        let regions = regions.snapshot();
        let (sequence, copy) = self.begin(&regions);
        let journal_required = journal.durable_last();
        base.stats.region_map_bytes_written += zc_format::REGION_MAP_BYTES;
        let map = RegionMap { sequence, session: base.session.number(), journal_required, regions };
        let op = base.port.op(Op::MapWrite);
        base.port.emit(Action::WriteRegionMap { op, copy, map: Box::new(map) });
    }
}
