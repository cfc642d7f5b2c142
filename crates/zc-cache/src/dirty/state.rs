//! What is asked of the dirty layer: how much of a volume is dirty, what its origin may lack, and whether a stop waits.

use zc_core::VolumeId;

use crate::device::Core;
use crate::dirty::versions::{DirtyState, EpochState};
use crate::dirty::{DirtyLayer, VolumeDirty};
use crate::residency::OriginLag;

impl DirtyLayer {
    /// The dirty data of a volume; `None` when the manager does not know the volume.
    pub(crate) fn state(&self, volume: VolumeId, core: &Core) -> Option<DirtyState> {
        let Some(dirty) = self.volumes.get(&volume) else {
            return core.base.volume(volume).map(|_| DirtyState::default());
        };
        let oldest = dirty.data.oldest().map_or_else(|| core.base.now_ms(), |epoch| epoch.began_ms);
        let epochs = dirty.data.epochs.iter().filter(|epoch| !epoch.extents.is_empty()).count();
        let gap = dirty.gap(core.base.extent_bytes());
        Some(DirtyState {
            stuck_offset_bytes: gap.first.start,
            stuck_bytes: gap.first.end - gap.first.start,
            unreadable_bytes: gap.bytes,
            bytes: dirty.data.bytes(),
            extents: zc_core::u64_from_usize(dirty.data.extent_count()),
            epochs: zc_core::u64_from_usize(epochs),
            oldest_age_ms: core.base.now_ms().saturating_sub(oldest),
            fenced: self.fence(volume, core).is_some(),
            refusing: dirty.destaging.is_refused() && !dirty.destaging.is_stuck(),
            unproved: self.unproved.is_some_and(|unproved| unproved.is_of(volume)),
            draining: dirty.is_draining(),
            waiting: zc_core::u64_from_usize(dirty.waiting.len()),
            waiting_ms: dirty
                .waiting
                .front()
                .map_or(0, |first| core.base.now_ms().saturating_sub(first.since_ms)),
            no_space: dirty.destaging.is_out_of_space(),
            newest_epoch: dirty.data.epochs.back().map_or(dirty.data.clean, |epoch| epoch.number),
            dirty_epoch: dirty.data.dirty_until(),
            clean_epoch: dirty.data.clean,
            destaged_bytes: dirty.destaged_bytes,
        })
    }

    /// Whether dirty data of the volume is being given up, or the device is being told so.
    pub(crate) fn is_dropping(&self, volume: VolumeId, core: &Core) -> bool {
        let telling = |dirty: &VolumeDirty| dirty.phase.is_unrecorded() && core.base.is_good();
        self.volumes.get(&volume).is_some_and(|dirty| dirty.phase.dropping().is_some() || telling(dirty))
    }

    /// Whether what cannot be read of the volume is still being given up.
    pub(crate) fn is_giving_up(&self, volume: VolumeId, core: &Core) -> bool {
        let dirty = self.volumes.get(&volume);
        core.base.is_good() && dirty.is_some_and(|dirty| dirty.is_giving_up(core.base.extent_bytes()))
    }

    /// Whether acknowledged writes of the volume are lost with the manager.
    pub(crate) fn has_volatile(&self, volume: VolumeId) -> bool {
        let epochs = self.volumes.get(&volume).map(|dirty| dirty.data.epochs.iter().rev());
        let mut newer = epochs.into_iter().flatten().take_while(|epoch| epoch.state != EpochState::Committed);
        newer.any(|epoch| epoch.acknowledged)
    }

    /// What the origin of a volume may lack.
    pub(crate) fn origin_lag(&self, volume: VolumeId, core: &Core) -> OriginLag {
        let Some(dirty) = self.volumes.get(&volume) else { return OriginLag::Nothing };
        let is_undecided = dirty.phase.dropping().is_some() || dirty.phase.is_unrecorded();
        if !dirty.is_dirty() && !is_undecided {
            OriginLag::Nothing
        } else if is_undecided || self.fence(volume, core).is_some() || !core.base.is_used_by(volume) {
            OriginLag::Unknown
        } else {
            OriginLag::Dirty
        }
    }

    /// Whether nothing is under way for the volume, and nothing of it is dirty.
    pub(crate) fn is_quiet(&self, volume: VolumeId) -> bool {
        !self.jobs.values().any(|job| job.volume() == volume)
            && !self.volumes.get(&volume).is_some_and(|dirty| dirty.is_dirty() || dirty.is_busy())
    }

    /// Whether anything is dirty, of any volume, or may be.
    pub(crate) fn keeps_dirty(&self) -> bool {
        self.volumes.iter().any(|(_, dirty)| dirty.is_dirty() || dirty.phase.is_unrecorded())
    }

    /// A stop: a cache that is out of order places nothing any more.
    pub(crate) fn wind_down(&mut self, core: &mut Core) {
        if !core.base.is_good() {
            self.abandon_dirty_jobs(core);
        }
    }

    /// Whether a stop need not wait for anything here.
    pub(crate) fn is_wound_down(&self, core: &Core) -> bool {
        let is_busy = if core.base.is_good() { self.is_busy() } else { !self.jobs.is_empty() };
        !is_busy && self.gathers.is_empty() && !self.scrub.is_reading()
    }
}
