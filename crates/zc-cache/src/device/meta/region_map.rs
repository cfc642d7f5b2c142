//! Writes of the region map: two alternating copies, and the writes that wait for their mark.

use zc_core::RegionKey;
use zc_format::RegionMap;

use crate::base::Base;
use crate::device::meta::journal::Journal;
use crate::device::meta::regions::Regions;
use crate::ops::meta::Op;
use crate::seam::Action;

/// Time without writes after which all marks are retired, so that the cache stays warm over a power failure.
pub(super) const IDLE_RETIRE_MS: u64 = 2000;

#[derive(Debug)]
pub(super) struct RegionMaps {
    /// Regions of the map in flight.
    writing: Option<Vec<RegionKey>>,
    /// Sequence of the newest map, written or in flight.
    sequence: u64,
    /// Sequence of the newest durable map, which journal and checkpoint may refer to.
    durable: u64,
    copy: usize,
    /// The map on the device contains removed marks.
    stale: bool,
    /// A map with a higher sequence than this is awaited.
    awaited_above: Option<u64>,
}

impl RegionMaps {
    /// Creates the state from the map that a start found, with its sequence and copy.
    pub(super) const fn new(sequence: u64, copy: usize) -> Self {
        Self { writing: None, sequence, durable: 0, copy, stale: false, awaited_above: None }
    }

    pub(super) const fn newest(&self) -> u64 {
        self.sequence
    }

    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Records that the map on the device has removed marks, or lacks a journal block that it must name.
    pub(super) const fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Waits for a map with a higher sequence.
    pub(super) fn await_above(&mut self, sequence: u64) {
        self.awaited_above = self.awaited_above.max(Some(sequence));
    }

    fn is_awaited(&self) -> bool {
        self.awaited_above.is_some_and(|above| self.durable <= above)
    }

    /// Returns `true` if the map on the device has removed marks.
    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// Abandons the map in flight.
    pub(super) fn give_up(&mut self) {
        self.writing = None;
    }

    /// Begins a map of these regions in the other copy.
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

    /// Writes the next map if the one on the device lacks a mark, or contains a removed one and there is time.
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
