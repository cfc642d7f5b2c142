//! Partly written extents: completed by later writes, merged with the old copy, or dropped (see `staging`).

use core::ops::Range;

use smallvec::SmallVec;
use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, Mode, SectorMap, VolumeId, WeuSlot};

use crate::base::Base;
use crate::clean::copies::Copies;
use crate::clean::insert::InsertOptions;
use crate::clean::staging::{OldCopy, Staged};
use crate::config::Admission;
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Mapping;
use crate::ops::write::Op;
use crate::seam::{Action, ExtentRead, PartResults};

/// Idle time after which a partly written extent is merged with its old copy.
const MERGE_AFTER_MS: u64 = 20;
/// Idle time after which a partly written extent that cannot be completed is dropped.
const STAGED_AGE_MS: u64 = 2000;
const MERGES_PER_TICK: usize = 64;

/// Returns `true` if writes of the volume are inserted into the cache.
pub(crate) fn fills_from_writes(volume: VolumeId, base: &Base) -> bool {
    base.is_good()
        && !base.is_stopping()
        && base.volume(volume).is_some_and(|volume| {
            matches!(volume.cfg().mode, Mode::WriteThrough | Mode::WriteBack)
                && volume.cfg().admission != Admission::Never
        })
}

fn unpin_old(staged: &Staged, core: &mut Core) {
    if let OldCopy::Cached(Mapping::Base(place) | Mapping::Duplicate(place)) = staged.old {
        core.device.catalog.table_mut().unpin(place.slot);
    }
}

impl Copies {
    /// Stages a partly written extent.
    pub(crate) fn stage(
        &mut self,
        id: u64,
        key: ExtentKey,
        old: Option<Mapping>,
        sectors: Range<u32>,
        core: &mut Core,
    ) {
        let whole = core.base.volume(key.volume).is_some_and(|volume| volume.has_whole(key.extent));
        if self.staging.is_crowded() {
            self.make_staging_room(core);
        }
        if !whole || !self.staging.has_room() {
            core.base.stats.staged_dropped += u64::from(whole);
            return;
        }
        if let Some(Mapping::Base(place) | Mapping::Duplicate(place)) = old {
            core.device.catalog.table_mut().pin(place.slot);
        }
        let buf = core.base.port.alloc(core.base.extent_bytes());
        let mut staged = Staged {
            buf,
            valid: SectorMap::EMPTY,
            touched: SectorMap::EMPTY,
            writers: SmallVec::new(),
            old: old.map_or(OldCopy::None, OldCopy::Cached),
            touched_ms: core.base.now_ms(),
            ticket: 0,
        };
        staged.write_begins(id, sectors);
        self.staging.insert(key, staged);
    }

    /// Handles the completion of a trim or zeroing that covers part of an extent, or all of it.
    pub(crate) fn range_cleared(&mut self, id: u64, key: ExtentKey, is_zero: bool, core: &mut Core) {
        let certain = core.base.tracks.write_ends(key, id);
        if let Some(staged) = self.staging.get_mut(&key) {
            staged.write_ends(id);
            self.finish_staged(key, None, core);
        } else if certain
            && is_zero
            && !core.base.tracks.is_written(&key)
            && !core.device.catalog.is_mapped(key)
        {
            let whole = core.base.volume(key.volume).is_some_and(|volume| volume.has_whole(key.extent));
            if whole && !core.device.catalog.meta().is_pressed() {
                core.base.stats.insert_offered += 1;
                core.base.stats.insert_offered_written += 1;
                core.base.stats.insert_zero += 1;
                core.device.catalog.map_extent(key, Mapping::Zero, &mut core.base);
            }
        }
    }

    /// Inserts a staged extent if it is complete.
    pub(crate) fn finish_staged(&mut self, key: ExtentKey, batch: Option<u64>, core: &mut Core) {
        let sectors = core.base.extent_bytes() / zc_core::SECTOR_BYTES;
        let whole = self
            .staging
            .get(&key)
            .is_some_and(|staged| staged.is_whole(sectors) && staged.old != OldCopy::Merging);
        if !whole {
            return;
        }
        let staged = self.staging.remove(&key).expect_held();
        unpin_old(&staged, core);
        match core.base.tracks.guard(key) {
            Some(guard) if fills_from_writes(key.volume, &core.base) => {
                core.base.stats.staged_whole += 1;
                let src = BufSlice { buf: staged.buf, start_bytes: 0, len_bytes: core.base.extent_bytes() };
                let own = batch.is_none();
                let batch = match batch {
                    Some(batch) => batch,
                    None => self.inserts.begin_batch(None, core),
                };
                core.base.stats.insert_offered_written += 1;
                self.inserts.insert(batch, guard, src, InsertOptions { only_if_duplicate: false }, core);
                if own {
                    self.inserts.end_batch(batch);
                }
            }
            guard => {
                if let Some(guard) = guard {
                    core.base.tracks.release(&guard);
                }
                core.base.port.release(staged.buf);
            }
        }
    }

    /// Drops the idle staged part of an extent that a miss fill replaces or that has changed.
    pub(crate) fn drop_idle_staged(&mut self, key: ExtentKey, core: &mut Core) {
        if self
            .staging
            .get(&key)
            .is_some_and(|staged| staged.writers.is_empty() && staged.old != OldCopy::Merging)
        {
            self.drop_staged(key, core);
        }
    }

    fn drop_staged(&mut self, key: ExtentKey, core: &mut Core) {
        if let Some(staged) = self.staging.remove(&key) {
            unpin_old(&staged, core);
            core.base.port.release(staged.buf);
        }
    }

    /// Merges idle partly written extents, and drops those that cannot be completed.
    pub(crate) fn age_staging(&mut self, core: &mut Core) {
        let now_ms = core.base.now_ms();
        let due: Vec<_> = self
            .staging
            .idle()
            .filter(|(_, staged)| {
                let wait = if staged.old == OldCopy::None { STAGED_AGE_MS } else { MERGE_AFTER_MS };
                now_ms.saturating_sub(staged.touched_ms) >= wait
            })
            .map(|(key, staged)| (key, staged.old))
            .take(MERGES_PER_TICK)
            .collect();
        for (key, old) in due {
            self.complete_staged(key, old, core);
        }
    }

    fn complete_staged(&mut self, key: ExtentKey, old: OldCopy, core: &mut Core) {
        match old {
            OldCopy::Cached(Mapping::Zero) => self.merge_zero(key, core),
            OldCopy::Cached(mapping @ (Mapping::Base(place) | Mapping::Duplicate(place))) => {
                self.begin_merge(key, &mapping, &place, core);
            }
            OldCopy::None => {
                core.base.stats.staged_dropped += 1;
                self.drop_staged(key, core);
            }
            OldCopy::Merging => {}
        }
    }

    fn make_staging_room(&mut self, core: &mut Core) {
        let oldest = self.staging.idle().map(|(key, staged)| (key, staged.old)).next();
        match oldest {
            Some((key, OldCopy::None)) => {
                core.base.stats.staged_dropped += 1;
                self.drop_staged(key, core);
            }
            Some((key, old)) => self.complete_staged(key, old, core),
            None => {}
        }
    }

    /// Drops the old copies that pin slots when no slot can be evicted.
    pub(crate) fn drop_old_copies(&mut self, core: &mut Core) {
        let pinning: Vec<_> = self
            .staging
            .idle()
            .filter(|(_, staged)| {
                matches!(staged.old, OldCopy::Cached(Mapping::Base(_) | Mapping::Duplicate(_)))
            })
            .map(|(key, _)| key)
            .collect();
        for key in pinning {
            core.base.stats.staged_dropped += 1;
            self.drop_staged(key, core);
        }
    }

    /// Drops all idle staged extents at a stop.
    pub(crate) fn drop_all_staged(&mut self, core: &mut Core) {
        let idle: Vec<_> = self.staging.idle().map(|(key, _)| key).collect();
        for key in idle {
            self.drop_staged(key, core);
        }
    }

    fn merge_zero(&mut self, key: ExtentKey, core: &mut Core) {
        let sectors = core.base.extent_bytes() / zc_core::SECTOR_BYTES;
        let staged = self.staging.get_mut(&key).expect_held();
        let runs: Vec<_> = staged.touched.runs(sectors, false).collect();
        for run in runs {
            staged.valid.insert(run.clone());
            staged.touched.insert(run.clone());
            core.base.port.emit(Action::Zero { dest: sector_slice(staged.buf, &run) });
        }
        staged.old = OldCopy::None;
        core.base.stats.merges += 1;
        self.finish_staged(key, None, core);
    }

    fn begin_merge(
        &mut self,
        key: ExtentKey,
        mapping: &Mapping,
        place: &crate::index::file_index::Place,
        core: &mut Core,
    ) {
        let expected = core.device.catalog.slots().expected(mapping, place, key, &core.base);
        let into = core.base.port.alloc(core.base.extent_bytes());
        let dest = BufSlice { buf: into, start_bytes: 0, len_bytes: core.base.extent_bytes() };
        let proof = self.hit_proof(key.volume, place, &core.base.whole_sectors(), core);
        self.staging.get_mut(&key).expect_held().old = OldCopy::Merging;
        let slot = place.slot;
        core.device.units.read_stored_extent(
            Op::Merge { key, slot, into },
            place,
            ExtentRead { expected, skip_bytes: 0, dest, proof, keep: false },
            &mut core.base,
        );
    }

    pub(crate) fn merge_done(
        &mut self,
        key: ExtentKey,
        slot: WeuSlot,
        into: BufId,
        result: Result<PartResults, ErrorKind>,
        core: &mut Core,
    ) {
        core.device.catalog.table_mut().unpin(slot);
        let ok = result.is_ok_and(|parts| parts.iter().all(Result::is_ok));
        let sectors = core.base.extent_bytes() / zc_core::SECTOR_BYTES;
        let staged = self.staging.get_mut(&key).expect_held();
        staged.old = OldCopy::None;
        if ok {
            let runs: Vec<_> = staged.touched.runs(sectors, false).collect();
            for run in runs {
                staged.valid.insert(run.clone());
                staged.touched.insert(run.clone());
                let to = sector_slice(staged.buf, &run);
                core.base.port.emit(Action::Copy { from: sector_slice(into, &run), to });
            }
            core.base.stats.merges += 1;
        }
        core.base.port.release(into);
        self.finish_staged(key, None, core);
    }

    /// Begins to clear a range of whole extents: invalidates their cached contents.
    pub(crate) fn range_begins(&mut self, id: u64, volume: VolumeId, extents: &Range<u64>, core: &mut Core) {
        let is_in = |key: &ExtentKey| key.volume == volume && extents.contains(&key.extent.0);
        core.base.tracks.range_begins(volume, extents.clone());
        let buffered = sorted(self.read_buffer.keys().filter(is_in));
        for buf in buffered.iter().filter_map(|key| self.read_buffer.invalidate(key)) {
            core.base.port.release(buf);
        }
        for key in sorted(self.ahead.keys().filter(is_in)) {
            self.drop_prefetched(key, core);
        }
        self.recipes.remove_range(volume, extents);
        core.device.catalog.forget_range(volume, extents.clone(), &mut core.base);
        let now_ms = core.base.now_ms();
        let sectors = core.base.whole_sectors();
        for key in self.staged_in(volume, extents) {
            if let Some(staged) = self.staging.get_mut(&key) {
                staged.write_begins(id, sectors.clone());
                staged.touched_ms = now_ms;
            }
        }
    }

    /// Completes the clearing of a range, with or without success.
    pub(crate) fn range_ends(&mut self, id: u64, volume: VolumeId, extents: &Range<u64>, core: &mut Core) {
        core.base.tracks.range_ends(volume, extents.start);
        for key in self.staged_in(volume, extents) {
            if let Some(staged) = self.staging.get_mut(&key) {
                staged.write_ends(id);
                self.finish_staged(key, None, core);
            }
        }
    }

    fn staged_in(&self, volume: VolumeId, extents: &Range<u64>) -> Vec<ExtentKey> {
        sorted(self.staging.keys().filter(|key| key.volume == volume && extents.contains(&key.extent.0)))
    }
}

fn sector_slice(buf: BufId, run: &Range<u32>) -> BufSlice {
    BufSlice {
        buf,
        start_bytes: run.start * zc_core::SECTOR_BYTES,
        len_bytes: (run.end - run.start) * zc_core::SECTOR_BYTES,
    }
}

fn sorted(keys: impl Iterator<Item = ExtentKey>) -> Vec<ExtentKey> {
    let mut keys: Vec<ExtentKey> = keys.collect();
    keys.sort_unstable_by_key(|key| key.extent);
    keys
}
