//! Queries of drivers: health, dirty data, sizes, places of extents.
//!
//! Nothing here changes the cached contents.

use zc_core::{BufId, BufSlice, ExtentKey, JournalSeq, VolumeId};

use crate::clean::ghosts::Curve;
use crate::clean::read::portion::{portions, sector_range};
use crate::clean::read::reads::Reads;
use crate::clean::write::clear::{self, ClearPiece};
use crate::dirty::overlay::residency_overlaid;
use crate::dirty::versions::{DirtyFill, DirtyState};
use crate::manager::CacheManager;
use crate::residency::{OriginLag, RESIDENCY_EXTENTS_MAX, RESIDENCY_RUNS_MAX, Residency, ResidencyRun, push};
use crate::seam::Erased;
use crate::shares::{VolumePins, VolumeShare};
use crate::stats::Stats;

impl CacheManager {
    /// Returns `true` if all WEU headers have been read since the start, or the index image in their place.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.core.base.is_loaded()
    }

    /// Returns `true` if nothing is in progress: no request is unanswered, no action unfinished.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.core.base.port.is_idle() && self.clean.is_idle()
    }

    /// Returns `true` if `len_bytes` bytes more of a [`Warm`](crate::seam::RequestKind::Warm) would be inserted now.
    /// At least half of the capacity for insertions remains for client requests.
    #[must_use]
    pub fn has_room_to_warm(&self, len_bytes: u64) -> bool {
        Reads::has_room_to_warm(len_bytes, self.clean.copies(), &self.core)
    }

    /// Returns the part of a trim or a zeroing that the volume does at once, within the bound on lookups. While dirty
    /// data has to go first, that is as much as so many extents have.
    #[must_use]
    pub fn clear_piece(
        &self,
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u64,
        lookups_max: u64,
    ) -> ClearPiece {
        let piece = clear::piece(volume, offset_bytes, len_bytes, lookups_max, &self.core);
        let by_extents = lookups_max * u64::from(self.core.base.extent_bytes());
        if piece.len_bytes > by_extents && self.dirty.volumes().has_dirty(volume) {
            return ClearPiece { len_bytes: by_extents, lookups: lookups_max };
        }
        piece
    }

    /// Returns `true` if the cache device works.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.core.base.is_good()
    }

    /// Regions marked now, and how many may be.
    #[must_use]
    pub fn active_regions(&self) -> (usize, usize) {
        (
            self.core.device.catalog.meta().regions().len()
                + self.core.device.catalog.meta().regions().inherited_len(),
            self.core.device.catalog.meta().regions().max(),
        )
    }

    /// Slots that hold something, and all.
    #[must_use]
    pub fn slots_used(&self) -> (usize, usize) {
        let all = zc_core::usize_from_u32(self.core.device.catalog.table().len());
        (all - self.core.device.catalog.table().free_len() - self.core.device.catalog.table().leaving(), all)
    }

    /// The volumes with a quota, a reserve or a priority, and their holdings. While headers are read after a start,
    /// units that are not read yet are missing.
    #[must_use]
    pub fn shares(&self) -> Vec<VolumeShare> {
        self.core.device.catalog.slots().classes().shares().collect()
    }

    /// Pinned ranges, by volume.
    #[must_use]
    pub fn pins(&self) -> Vec<VolumePins> {
        self.core.device.catalog.slots().kept().pins()
    }

    /// Returns `true` if the extent is pinned and cached where only a write, damage or its unpinning removes it.
    #[must_use]
    pub fn is_safe(&self, key: ExtentKey) -> bool {
        self.core.device.catalog.is_safe(key)
    }

    /// Returns `true` if pinned extents are being read into the cache, so that ticks must stay frequent.
    #[must_use]
    pub fn is_keeping(&self) -> bool {
        self.clean.is_keeping(&self.core)
    }

    /// Hit ratios of caches of other sizes, and of another admission.
    #[must_use]
    pub fn curve(&self) -> Curve {
        self.clean.curve(&self.core)
    }

    /// Bytes of RAM that the structures growing with the cache hold, by name.
    #[must_use]
    pub fn ram_by_structure(&self) -> Vec<(&'static str, u64)> {
        let mut ram = self.core.device.ram_by_structure().to_vec();
        ram.extend(self.clean.copies().ram_by_structure());
        ram
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.base.stats
    }

    /// The dirty data of a volume; `None` when the manager does not know the volume.
    #[must_use]
    pub fn dirty(&self, volume: VolumeId) -> Option<DirtyState> {
        self.dirty.state(volume, &self.core)
    }

    /// Use of the capacity for dirty data of all volumes.
    #[must_use]
    pub fn dirty_fill(&self) -> DirtyFill {
        self.dirty.fill(&self.core)
    }

    /// Returns `true` if an erasure ([`Event::Erase`](crate::seam::Event::Erase)) is in progress.
    #[must_use]
    pub const fn is_erasing(&self) -> bool {
        self.core.device.erasure.is_active()
    }

    /// Result of the last erasure; `None` if there was none.
    #[must_use]
    pub const fn erased(&self) -> Option<Erased> {
        self.core.device.erasure.last()
    }

    /// Returns `true` if dirty data of the volume is being dropped, or the device has not recorded that yet. When it
    /// ends, [`DirtyState::fenced`] reports that the device was lost before it recorded that.
    #[must_use]
    pub fn is_dropping(&self, volume: VolumeId) -> bool {
        self.dirty.is_dropping(volume, &self.core)
    }

    /// Returns `true` if the unreadable data of the volume is still being dropped. When it ends,
    /// [`DirtyState::unreadable_bytes`] is 0, or the volume is fenced or out of reach.
    #[must_use]
    pub fn is_giving_up(&self, volume: VolumeId) -> bool {
        self.dirty.is_giving_up(volume, &self.core)
    }

    /// Returns `true` if writes of the volume were acknowledged that are neither on the origin nor durable on the
    /// cache device: they are lost with the manager.
    #[must_use]
    pub fn has_volatile(&self, volume: VolumeId) -> bool {
        self.dirty.has_volatile(volume)
    }

    /// Returns `true` if a loss is not reported to clients of the volume yet: the next flush of theirs fails.
    #[must_use]
    pub fn owes_loss(&self, volume: VolumeId) -> bool {
        self.core.base.volume(volume).is_some_and(|volume| volume.origin().owes_loss())
    }

    /// Records that a loss was reported to clients of the volume in another way than by a flush.
    pub fn loss_is_told(&mut self, volume: VolumeId) {
        if let Some(volume) = self.core.base.volume_mut(volume) {
            volume.origin_mut().take_loss();
        }
    }

    /// Data that the origin may lack at this moment.
    #[must_use]
    pub fn origin_lag(&self, volume: VolumeId) -> OriginLag {
        self.dirty.origin_lag(volume, &self.core)
    }

    /// Appends the residency of `len_bytes` from `offset_bytes` on to `runs`, neighbours of one state merged. It
    /// covers at most [`RESIDENCY_EXTENTS_MAX`] extents and a bounded number of runs, which may be less than was
    /// requested, but at least one extent. A cache that is not in use (failed, or the volume in pass-through) holds
    /// nothing; [`Self::origin_lag`] reports the data that the origin lacks then. Returns the number of extents
    /// inspected, the cost of the answer.
    pub fn residency(
        &self,
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u64,
        runs: &mut Vec<ResidencyRun>,
    ) -> u64 {
        if !self.core.base.is_used_by(volume) {
            push(runs, len_bytes, Residency::OriginOnly);
            return 0;
        }
        let bound_bytes = RESIDENCY_EXTENTS_MAX * u64::from(self.core.base.extent_bytes());
        let Ok(len_bytes) = u32::try_from(len_bytes.min(bound_bytes)) else {
            unreachable!("the bound is at most 2 GiB")
        };
        // Positions only; there is no buffer behind it.
        let range = BufSlice { buf: BufId(0), start_bytes: 0, len_bytes };
        let mut extents = 0;
        for portion in portions(volume, offset_bytes, range, self.core.base.extent_bytes()) {
            if runs.len() >= RESIDENCY_RUNS_MAX {
                break;
            }
            extents += 1;
            let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
            let visible = self.dirty.volumes().overlay(portion.key, &sectors);
            if visible.is_empty() {
                let state = self.clean.copies().residency_of(
                    portion.key,
                    portion.skip_bytes,
                    portion.len_bytes,
                    &self.core,
                );
                push(runs, portion.len_bytes.into(), state);
            } else {
                residency_overlaid(portion.key, &sectors, &visible, runs, &self.core, &self.clean);
            }
        }
        extents
    }

    /// Returns `true` if the distrust of a failed device's contents is not recorded yet, so that some writes wait or
    /// fail.
    #[must_use]
    pub fn is_distrust_pending(&self) -> bool {
        self.core.base.is_failing()
    }

    /// Returns `true` if volumes are being removed, which requires frequent ticks.
    #[must_use]
    pub fn is_removing(&self) -> bool {
        self.removals.is_active()
    }

    /// Starts or stops reports of the volume's contents.
    pub fn tell_contents(&mut self, volume: VolumeId, tell: bool) {
        self.core.base.tell_contents(volume, tell);
    }

    /// After a clean stop, the session whose index image the superblock may name; 0: there is none.
    #[must_use]
    pub fn index_image(&self) -> u64 {
        if self.core.device.image.is_whole(&self.core.device.catalog) {
            self.core.base.session.number()
        } else {
            0
        }
    }

    /// The first journal block that is not durable; after a clean stop the journal's end.
    #[must_use]
    pub fn journal_next(&self) -> JournalSeq {
        self.core.device.catalog.meta().journal().durable_next()
    }
}
