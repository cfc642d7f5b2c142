//! Trims and zeroings that are much longer than what is dirty.
//!
//! Job: let such a clearing wait until the origin has everything that is dirty, so that it goes past the dirty layer, as
//! one of a clean volume does. As dirty data it takes a record, a version and a write of the origin for each extent of
//! its range, of which the origin may hold nothing.
//!
//! Invariants: a clearing waits at the head of its volume's writes, and nothing of it was taken in; those behind it wait
//! with it, so the origin gets nothing out of order (G6). The wait has a bound, and none begins that an origin, an
//! operator or a stop stands in the way of. A clearing that waited without success becomes dirty data.

use zc_core::VolumeId;

use crate::device::Core;
use crate::dirty::{DirtyLayer, VolumeDirty, is_held_back};
use crate::seam::RequestKind;

/// A clearing of [`crate::config::ManagerConfig::drain_extents_min`] extents waits for this many records of dirty data
/// at most, and a longer one for more in proportion.
const RECORDS_MAX: u64 = 512;

impl DirtyLayer {
    /// Begins the wait of a clearing that is first among the volume's waiting writes, or ends one without success.
    pub(super) fn wait_to_clear(&mut self, volume: VolumeId, core: &mut Core) {
        let now_ms = core.base.now_ms();
        let Some(dirty) = self.volumes.get(&volume) else { return };
        let is_free = self.is_free_to_drain(volume, dirty, core);
        let begins = is_free && !dirty.phase.is_clearing() && is_much_longer(dirty, core);
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        if begins {
            dirty.phase.clear(now_ms);
            core.base.stats.dirty_clears += 1;
        } else if dirty.phase.is_clearing()
            && !(is_free && is_untouched(dirty) && !dirty.phase.clears_late(now_ms))
        {
            dirty.phase.clear_no_more();
            if let Some(first) = dirty.waiting.front_mut() {
                first.has_waited = true;
            }
        }
    }

    /// Returns `true` if nothing stands in the way of bringing everything dirty to the origin.
    fn is_free_to_drain(&self, volume: VolumeId, dirty: &VolumeDirty, core: &Core) -> bool {
        self.writes_back(volume, core)
            && !dirty.phase.is_leaving()
            && !dirty.is_settling()
            && !dirty.destaging.is_stuck()
            && !dirty.destaging.is_refused()
            && !is_held_back(volume, dirty, &core.base)
            && !core.base.is_stopping()
    }
}

/// Returns `true` if the first waiting write is a clearing of which nothing was taken in.
fn is_untouched(dirty: &VolumeDirty) -> bool {
    dirty.waiting.front().is_some_and(|first| {
        let clears = matches!(first.request.kind, RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. });
        clears && first.done_bytes == 0
    })
}

/// Returns `true` if the first waiting write is a clearing of many more extents than there are records of dirty data.
fn is_much_longer(dirty: &VolumeDirty, core: &Core) -> bool {
    let Some(first) = dirty.waiting.front() else { return false };
    let extents = first.request.len_bytes / u64::from(core.base.extent_bytes());
    let extents_min = core.base.cfg().drain_extents_min;
    is_untouched(dirty)
        && !first.has_waited
        && extents >= extents_min
        && dirty.data.record_count().saturating_mul(extents_min) <= extents.saturating_mul(RECORDS_MAX)
}
