//! The region map on its way to the device: two copies in turn, and the writes that wait for their mark.

use zc_core::RegionKey;
use zc_format::RegionMap;

use crate::clean::Clean;
use crate::device::Core;
use crate::health::Health;
use crate::manager::CacheManager;
use crate::persist::Op;
use crate::seam::Action;

use super::retire::IDLE_RETIRE_MS;

/// The region maps on the device and the one that is under way.
#[derive(Debug)]
pub(super) struct RegionMaps {
    /// The regions of the map that is on its way.
    writing: Option<Vec<RegionKey>>,
    /// Sequence of the newest map that was written or is on its way.
    sequence: u64,
    /// Sequence of the newest map that is durable: what journal and checkpoint may vouch for.
    durable: u64,
    /// Which of the two copies that map is in.
    copy: usize,
    /// The map on the device has marks that are gone.
    stale: bool,
}

impl RegionMaps {
    /// After a start that found the map of this sequence in this copy.
    pub(super) const fn new(sequence: u64, copy: usize) -> Self {
        Self { writing: None, sequence, durable: 0, copy, stale: false }
    }

    /// Sequence of the newest map that was written or is on its way.
    pub(super) const fn newest(&self) -> u64 {
        self.sequence
    }

    /// Sequence of the newest map that is durable.
    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether a map is on its way.
    pub(super) const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// The map on the device has marks that are gone, or lacks a journal block that it has to name.
    pub(super) const fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Whether the map on the device has marks that are gone.
    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// The map on its way will not get there.
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

    /// The map on its way is durable: its regions.
    fn end(&mut self) -> Option<Vec<RegionKey>> {
        let written = self.writing.take()?;
        self.durable = self.sequence;
        Some(written)
    }
}

impl Clean {
    pub(super) fn map_durable(&mut self, core: &mut Core) {
        if let Some(written) = core.device.meta.maps.end() {
            core.device.meta.regions.map_is_durable(&written);
        }
        self.start_marked_pieces(core);
    }

    pub(crate) fn start_marked_pieces(&mut self, core: &mut Core) {
        for id in core::mem::take(&mut self.waiting.for_mark) {
            if core.base.health == Health::Failed || self.piece_is_marked(id, core) {
                self.start_piece(id, core);
            } else {
                self.waiting.for_mark.push(id);
            }
        }
    }
}

impl CacheManager {
    pub(super) fn pump_map(&mut self) {
        let idle = self.core.base.now_ms.saturating_sub(self.core.base.last_write_ms) >= IDLE_RETIRE_MS;
        let is_awaited = self.core.base.stopping || self.removals.want_map();
        let meta = &mut self.core.device.meta;
        let wanted = meta.regions.has_new_marks() || (meta.maps.is_stale() && (idle || is_awaited));
        if self.core.base.health != Health::Good || meta.maps.is_writing() || !wanted {
            return;
        }
        let regions = meta.regions.snapshot();
        let (sequence, copy) = meta.maps.begin(&regions);
        let journal_required = meta.journal.durable_last();
        self.core.base.stats.region_map_bytes_written += zc_format::REGION_MAP_BYTES;
        let map = RegionMap { sequence, session: self.core.base.session.number, journal_required, regions };
        let op = self.core.base.port.op(Op::MapWrite);
        self.core.base.port.emit(Action::WriteRegionMap { op, copy, map: Box::new(map) });
    }
}
