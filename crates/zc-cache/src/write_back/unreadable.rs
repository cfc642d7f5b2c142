//! Dirty data that the device does not give back, when it is to be destaged.
//!
//! Job: say whether the volume has anything newer in its place. If committed epochs behind it cover all of its
//! sectors, it is left out, and destaging goes on without a pause up to the last of them. If not, its run waits
//! (`CONSISTENCY.md`, G6).
//!
//! Invariant: only what was read twice in vain counts as unreadable; only what is committed covers.

use core::ops::Range;

use zc_core::{ExtentNo, SECTOR_BYTES, SectorMap, SectorSpan};

use crate::manager::CacheManager;
use crate::seam::{Action, Note};
use crate::write::tracks::ExpectHeld;
use crate::write_back::VolumeDirty;
use crate::write_back::destage::Gather;
use crate::write_back::dirty::{DirtyVolume, EpochState, Version};

/// What committed epochs behind a version leave of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cover {
    /// Sectors that none of them has.
    pub(crate) open: SectorMap,
    /// The last that was needed.
    pub(crate) until: u64,
}

impl DirtyVolume {
    /// Which sectors of a version committed epochs behind it have anew.
    pub(crate) fn cover(&self, extent: ExtentNo, version: &Version) -> Cover {
        let mut cover = Cover { open: SectorMap::from_range(version.span.clone()), until: version.epoch };
        let newer = version.epoch + 1..=u64::MAX;
        for later in self.versions(extent, &newer) {
            let committed = self.epoch(later.epoch).is_some_and(|epoch| epoch.state == EpochState::Committed);
            if cover.open.is_empty() || !committed {
                break;
            }
            cover.open.remove(later.span.clone());
            cover.until = later.epoch;
        }
        cover
    }
}

impl VolumeDirty {
    /// An epoch is committed: what destaging is stuck at may be covered by now.
    pub(crate) fn look_at_gap(&mut self) {
        if let Some((extent, version)) = self.destaging.stuck_at()
            && self.data.cover(*extent, version).open.is_empty()
        {
            self.destaging.try_again();
        }
    }

    /// The bytes of the volume that destaging is stuck at: the first piece that nothing covers.
    pub(crate) fn gap(&self, extent_bytes: u32) -> Option<Range<u64>> {
        let (extent, version) = self.destaging.stuck_at()?;
        let run = self.data.cover(*extent, version).open.runs(extent_bytes / SECTOR_BYTES, true).next()?;
        let at =
            |sector: u32| extent.0 * u64::from(extent_bytes) + u64::from(sector) * u64::from(SECTOR_BYTES);
        Some(at(run.start)..at(run.end))
    }
}

impl CacheManager {
    /// Parts of a write of destaging could not be read.
    pub(crate) fn gather_failed(&mut self, gather: Gather) {
        let Gather { volume, batch, failed, again, .. } = gather;
        if !again {
            self.gather(volume, batch, true);
            return;
        }
        let Some(dirty) = self.wb.volumes.get(&volume) else { return };
        let parts = || failed.iter().filter_map(|part| batch.parts.get(*part));
        let open = parts().find(|(extent, version)| !dirty.data.cover(*extent, version).open.is_empty());
        if let Some((extent, version)) = open.cloned() {
            self.stats.dirty_unreadable += 1;
            self.destage_stuck(volume, extent, version);
            return;
        }
        let until = parts().map(|(extent, version)| dirty.data.cover(*extent, version).until).max();
        for (extent, version) in parts() {
            let sectors = SectorSpan::new(&version.span).expect_held();
            self.stats.dirty_skipped_bytes += u64::from(sectors.len_bytes());
            self.out.push(Action::Note(Note::DirtySkipped { volume, extent: *extent, sectors }));
        }
        self.destaging(volume).hurry_until(until.unwrap_or(0));
        self.replace_batch(volume, &batch, batch.without(&failed));
    }
}
