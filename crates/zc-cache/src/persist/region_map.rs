//! The region map on its way to the device: two copies in turn, and the writes that wait for their mark.

use zc_core::RegionKey;
use zc_format::RegionMap;

use crate::health::Health;
use crate::manager::CacheManager;
use crate::persist::Op;
use crate::seam::Action;

use super::retire::IDLE_RETIRE_MS;

/// The region maps on the device and the one that is under way.
#[derive(Debug)]
pub(crate) struct RegionMaps {
    /// The regions of the map that is on its way.
    pub(crate) writing: Option<Vec<RegionKey>>,
    /// Sequence of the newest map that was written or is on its way.
    sequence: u64,
    /// Sequence of the newest map that is durable: what journal and checkpoint may vouch for.
    pub(crate) durable: u64,
    /// Which of the two copies that map is in.
    copy: usize,
    /// The map on the device has marks that are gone.
    pub(crate) stale: bool,
}

impl RegionMaps {
    /// After a start that found the map of this sequence in this copy.
    pub(crate) const fn new(sequence: u64, copy: usize) -> Self {
        Self { writing: None, sequence, durable: 0, copy, stale: false }
    }
}

impl RegionMaps {
    /// Sequence of the newest map that was written or is on its way.
    pub(crate) const fn newest(&self) -> u64 {
        self.sequence
    }
}

impl CacheManager {
    pub(super) fn pump_map(&mut self) {
        let idle = self.maps.stale && self.now_ms.saturating_sub(self.last_write_ms) >= IDLE_RETIRE_MS;
        let is_awaited = self.stop.wanted || self.removals.want_map();
        let wanted = self.regions.has_new_marks() || (self.maps.stale && (idle || is_awaited));
        if self.health != Health::Good || self.maps.writing.is_some() || !wanted {
            return;
        }
        let keys = self.regions.snapshot();
        self.maps.stale = false;
        self.maps.sequence += 1;
        self.maps.copy = 1 - self.maps.copy;
        self.stats.region_map_bytes_written += zc_format::REGION_MAP_BYTES;
        let map = RegionMap {
            sequence: self.maps.sequence,
            session: self.session.number,
            journal_required: self.journal.durable_last(),
            regions: keys.clone(),
        };
        self.maps.writing = Some(keys);
        let op = self.port.op(Op::MapWrite);
        self.port.emit(Action::WriteRegionMap { op, copy: self.maps.copy, map: Box::new(map) });
    }

    pub(super) fn map_durable(&mut self) {
        if let Some(written) = self.maps.writing.take() {
            self.regions.map_is_durable(&written);
            self.maps.durable = self.maps.sequence;
        }
        self.start_marked_pieces();
    }

    pub(crate) fn start_marked_pieces(&mut self) {
        for id in core::mem::take(&mut self.waiting.for_mark) {
            if self.health == Health::Failed || self.piece_is_marked(id) {
                self.start_piece(id);
            } else {
                self.waiting.for_mark.push(id);
            }
        }
    }
}
