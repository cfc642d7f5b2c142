//! Bound on an open epoch.

use zc_core::VolumeId;

use crate::device::Core;
use crate::dirty::commit_state::epoch_writes_max;
use crate::dirty::volumes::DirtyVolumes;

/// Returns `true` if the volume's open epoch has reached its maximum of records, at which it closes.
pub(crate) fn is_epoch_full(volume: VolumeId, extents: u64, volumes: &DirtyVolumes, core: &Core) -> bool {
    let open = volumes.get(&volume).and_then(|dirty| dirty.data.epochs.back());
    let writes = open.map_or(0, |epoch| epoch.writes);
    writes > 0 && writes + extents > epoch_writes_max(core.device.catalog.meta().journal().ring_blocks())
}
