//! Placement of ready batches in order while slots are available.

use zc_core::{ExtentKey, WeuSlot};

use crate::base::volume::Volume;
use crate::clean::insert::Inserts;
use crate::clean::read::recipes::Recipes;
use crate::device::Core;
use crate::device::units::unit::Content;
use crate::device::{catalog::evict::NoRoom, contents::in_share};
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Mapping;
use crate::reduce::Outcome;

#[derive(Debug, PartialEq, Eq)]
enum Placed {
    Done,
    NeedsSlot,
}

impl Inserts {
    /// Places ready jobs in order while slots are available.
    pub(crate) fn pump_placement(&mut self, recipes: &mut Recipes, core: &mut Core) {
        while let Some(jobs) = self.batches.take_first() {
            let together = jobs.len() > 1;
            let mut jobs = jobs.into_iter();
            while let Some(job) = jobs.next() {
                if self.place_job(job.1, together, recipes, core) == Placed::NeedsSlot {
                    self.batches.put_back(core::iter::once(job).chain(jobs).collect());
                    return;
                }
                self.end_job(job.1, core);
            }
            self.batches.first_placed();
        }
    }

    /// Places an extent; `together`: it belongs to a batch of several.
    fn place_job(&mut self, id: u64, together: bool, recipes: &mut Recipes, core: &mut Core) -> Placed {
        let job = self.job(id);
        let guard = job.guard;
        let (print, outcome) = (job.reduction.print(), job.reduction.outcome().expect_held());
        let key = guard.key;
        let holds = core.base.tracks.holds(&guard);
        if !core.base.is_good() {
            core.base.stats.insert_dropped += 1;
        } else if !holds {
            core.base.stats.insert_stale += 1;
        } else if core.device.catalog.is_mapped(key) && !core.device.catalog.is_astray(key) {
            core.base.stats.insert_present += 1;
        } else {
            match outcome {
                Outcome::Zero => {
                    core.base.stats.insert_zero += 1;
                    core.device.catalog.remap_extent(key, Mapping::Zero, &mut core.base);
                }
                Outcome::Duplicate(found) => {
                    let is_moved = core.device.catalog.is_mapped(key)
                        && !core.device.catalog.slots().may_keep_in(found.slot);
                    if found.may_share(&core.device.catalog) && !is_moved {
                        let place = found.place(&core.device.catalog);
                        Self::share(key, print, found.slot, place, recipes, core);
                    } else {
                        core.base.stats.insert_dropped += 1;
                    }
                }
                Outcome::Store { .. } => return self.store(id, together, recipes, core),
                Outcome::OnceOnly => core.base.stats.insert_once_only += 1,
            }
        }
        Placed::Done
    }

    fn share(
        key: ExtentKey,
        print: Option<zc_core::Fingerprint>,
        slot: WeuSlot,
        place: crate::index::file_index::Place,
        recipes: &mut Recipes,
        core: &mut Core,
    ) {
        core.base.stats.insert_duplicates += 1;
        if let Some(print) = print {
            core.device.catalog.contents_mut().prints_mut().touch(&print, slot);
            recipes.learn(key, print, core);
        }
        core.device.catalog.slots_mut().slot_shared(slot);
        core.device.catalog.remap_extent(key, Mapping::Duplicate(place), &mut core.base);
    }

    fn store(&mut self, id: u64, together: bool, recipes: &mut Recipes, core: &mut Core) -> Placed {
        let job = self.job(id);
        let (key, print) = (job.guard.key, job.reduction.print().expect_held());
        let Some(Outcome::Store { codec, payload }) = job.reduction.outcome() else { return Placed::Done };
        let volume = core.base.volume(key.volume).map(Volume::cfg);
        let volume = volume.map(|cfg| (cfg.dedup, cfg.index_share_percent));
        let (dedup, share) = volume.unwrap_or((false, 0));
        if dedup && let Some(found) = job.reduction.found_since(core) {
            let place = found.place(&core.device.catalog);
            Self::share(key, Some(print), found.slot, place, recipes, core);
            return Placed::Done;
        }
        let raw_bytes = core.base.extent_bytes();
        let content = Content { key, print, codec, payload, raw_bytes, dirty: None };
        let (slot, generation, stored) = match core.device.units.clean_mut().append(
            &content,
            together,
            &mut core.device.catalog,
            &mut core.base,
        ) {
            Ok(place) => place,
            Err(NoRoom::Slot) => return Placed::NeedsSlot,
            Err(NoRoom::Quota) => {
                core.base.stats.insert_over_quota += 1;
                core.device.catalog.slots_mut().kept_not_placed(key);
                return Placed::Done;
            }
        };
        core.base.stats.insert_stored += 1;
        core.base.stats.stored_raw_bytes += u64::from(core.base.extent_bytes());
        core.base.stats.stored_bytes += u64::from(payload.len_bytes);
        if dedup && in_share(&print, share) {
            core.device.catalog.contents_mut().add(print, slot, stored);
        }
        let place = core.device.catalog.place(slot, generation, stored);
        recipes.learn(key, print, core);
        core.device.catalog.remap_extent(key, Mapping::Base(place), &mut core.base);
        Placed::Done
    }

    /// Drops jobs that need a slot: nothing is evicted during a stop.
    pub(crate) fn drop_unplaceable(&mut self, core: &mut Core) {
        if core.base.is_good()
            && (core.device.catalog.table().free_len() > 0 || core.device.catalog.table().leaving() > 0)
        {
            return;
        }
        while let Some(jobs) = self.batches.take_first() {
            self.batches.first_placed();
            for (_, job) in jobs {
                core.base.stats.insert_dropped += 1;
                self.end_job(job, core);
            }
        }
    }
}
