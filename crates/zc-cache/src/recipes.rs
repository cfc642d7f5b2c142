//! The recipe path (Nitro 3.1, 3.2): fingerprints of extents that an origin knows without reading them.
//!
//! On a file index miss of a volume whose origin has recipes, the recipe cache may name the extent's content; if the
//! fingerprint index finds it, the miss becomes a duplicate hit without the origin. What the recipe cache lacks is
//! asked for in runs, in the background; the miss itself never waits for it. Who goes from run to run finds the next
//! one asked for already: reading a snapshot, its recipe is there before it (Nitro 3.3).
//!
//! A run is kept and forgotten as a whole. It is asked for again when a miss meets what a write has voided since.
//!
//! A fingerprint that arrives counts only if its extent was not written since it was asked for, and goes with the next
//! write: the staleness rules of data. Under a weak hash recipes are no use: bytes could not be compared without the
//! origin.

use std::collections::VecDeque;

use zc_core::{ExtentKey, ExtentNo, Fingerprint, Map, VolumeId, usize_from_u64};

use crate::file_index::{Mapping, Place};
use crate::manager::{CacheManager, OpKind};
use crate::persist::Health;
use crate::seam::Action;
use crate::tracks::{ExpectHeld, Guard};

/// Extents asked for at once: 1 MiB of 8 KiB extents, 4 KiB of fingerprints.
const RUN_EXTENTS: u64 = 128;
/// Runs that are kept: 3 MiB or so.
const RUNS_MAX: usize = 512;
/// Questions in flight.
const ASKED_MAX: usize = 16;

/// A run of extents of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Run {
    volume: VolumeId,
    number: u64,
}

impl Run {
    const fn of(key: ExtentKey) -> Self {
        Self { volume: key.volume, number: key.extent.0 / RUN_EXTENTS }
    }
}

/// What is known of an extent of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recipe {
    Print(Fingerprint),
    /// The origin could not tell.
    None,
    /// It was written since.
    Void,
}

fn index_in_run(key: ExtentKey) -> usize {
    usize_from_u64(key.extent.0 % RUN_EXTENTS)
}

/// Known fingerprints of extents that are not cached.
#[derive(Debug, Default)]
pub(crate) struct Recipes {
    /// What is known of runs that were asked for.
    runs: Map<Run, Vec<Recipe>>,
    order: VecDeque<Run>,
    asked: Map<u64, (Run, Vec<Option<Guard>>)>,
    /// The run of each volume's last miss.
    last: Map<VolumeId, u64>,
}

impl Recipes {
    fn get(&self, key: ExtentKey) -> Option<Recipe> {
        self.runs.get(&Run::of(key))?.get(index_in_run(key)).copied()
    }

    pub(crate) fn remove(&mut self, key: &ExtentKey) {
        let known = self.runs.get_mut(&Run::of(*key)).and_then(|run| run.get_mut(index_in_run(*key)));
        if let Some(known) = known {
            *known = Recipe::Void;
        }
    }

    fn insert(&mut self, run: Run, recipes: Vec<Recipe>) {
        if self.runs.insert(run, recipes).is_none() {
            self.order.push_back(run);
        }
        if self.order.len() > RUNS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.runs.remove(&oldest);
        }
    }

    fn is_asked(&self, run: Run) -> bool {
        self.asked.values().any(|(asked, _)| *asked == run)
    }
}

impl CacheManager {
    fn has_recipes(&self, volume: VolumeId) -> bool {
        self.health == Health::Good
            && self.cfg.fingerprint.is_collision_resistant()
            && self.volumes.get(&volume).is_some_and(|volume| volume.cfg.recipes && volume.cfg.dedup)
    }

    /// Turns a miss into a duplicate hit if the extent's content is known and cached.
    pub(crate) fn find_by_recipe(&mut self, key: ExtentKey) -> Option<(Mapping, Place)> {
        if !self.has_recipes(key.volume) || self.tracks.is_written(&key) || self.staging.get(&key).is_some() {
            return None;
        }
        if self.is_mapped(key) {
            // Its volume's sample has not been seen yet.
            return None;
        }
        let Some(Recipe::Print(print)) = self.recipes.get(key) else { return None };
        let (slot, generation, stored) = self.found_since(&print)?;
        let place = self.place(slot, generation, stored);
        self.stats.recipe_hits += 1;
        self.prints.touch(&print, slot);
        let mapping = Mapping::Duplicate(place);
        self.map_extent(key, mapping);
        Some((mapping, place))
    }

    /// Asks for the fingerprints around a miss of the cache, and for the next ones if the miss before was in the run
    /// before.
    pub(crate) fn want_recipe(&mut self, key: ExtentKey) {
        if !self.has_recipes(key.volume) || self.stopping {
            return;
        }
        let run = Run::of(key);
        let before = self.recipes.last.insert(key.volume, run.number);
        if !self.recipes.runs.contains_key(&run) || self.recipes.get(key) == Some(Recipe::Void) {
            self.ask_for(run);
        }
        let next = Run { number: run.number + 1, ..run };
        let follows = before.is_some_and(|before| before.checked_add(1) == Some(run.number));
        if follows && !self.recipes.runs.contains_key(&next) {
            self.ask_for(next);
        }
    }

    fn ask_for(&mut self, run: Run) {
        let Some(whole) = self.volumes.get(&run.volume).map(|volume| volume.whole_extents) else { return };
        let first = run.number * RUN_EXTENTS;
        let full = self.recipes.asked.len() >= ASKED_MAX;
        if full || first >= whole || self.recipes.is_asked(run) {
            return;
        }
        let guards: Vec<_> = (first..whole.min(first + RUN_EXTENTS))
            .map(|extent| self.tracks.guard(ExtentKey { volume: run.volume, extent: ExtentNo(extent) }))
            .collect();
        let count = u32::try_from(guards.len()).unwrap_or(u32::MAX);
        let id = self.number();
        self.recipes.asked.insert(id, (run, guards));
        self.stats.recipes_wanted += 1;
        let op = self.op(OpKind::Recipe(id));
        self.out.push(Action::WantRecipe { op, volume: run.volume, first: ExtentNo(first), count });
    }

    pub(crate) fn recipe_arrived(&mut self, id: u64, prints: &[Option<Fingerprint>]) {
        let (run, guards) = self.recipes.asked.remove(&id).expect_held();
        let prints = prints.iter().copied().chain(core::iter::repeat(None));
        let current = guards.into_iter().zip(prints).map(|(guard, print)| {
            let Some(guard) = guard else { return Recipe::Void };
            let holds = self.tracks.holds(&guard);
            self.tracks.release(&guard);
            match print {
                _ if !holds => Recipe::Void,
                Some(print) => Recipe::Print(print),
                None => Recipe::None,
            }
        });
        let recipes: Vec<Recipe> = current.collect();
        for recipe in &recipes {
            if let Recipe::Print(print) = recipe {
                self.expect_print(print);
            }
        }
        self.recipes.insert(run, recipes);
    }
}
