//! The recipe path (Nitro 3.1, 3.2): fingerprints of extents that an origin knows without reading them.
//!
//! On a file index miss of a volume whose origin has recipes, the recipe cache may name the extent's content; if the
//! fingerprint index finds it, the miss becomes a duplicate hit without the origin. What the recipe cache lacks is
//! asked for in runs, in the background; the miss itself never waits for it.
//!
//! A fingerprint that arrives counts only if its extent was not written since it was asked for, and goes with the next
//! write: the staleness rules of data. Under a weak hash recipes are no use: bytes could not be compared without the
//! origin.

use std::collections::VecDeque;

use zc_core::{ExtentKey, ExtentNo, Fingerprint, Map, VolumeId};

use crate::file_index::{Mapping, Place};
use crate::manager::{CacheManager, OpKind};
use crate::persist::Health;
use crate::seam::Action;
use crate::tracks::{ExpectHeld, Guard};

/// Extents whose fingerprints are kept: 3 MiB or so.
const RECIPES_MAX: usize = 1 << 16;
/// Extents asked for at once: 1 MiB of 8 KiB extents, 4 KiB of fingerprints.
const RUN_EXTENTS: u64 = 128;
/// Questions in flight.
const ASKED_MAX: usize = 16;

/// Known fingerprints of extents that are not cached.
#[derive(Debug, Default)]
pub(crate) struct Recipes {
    prints: Map<ExtentKey, Fingerprint>,
    order: VecDeque<ExtentKey>,
    asked: Map<u64, Vec<Option<Guard>>>,
}

impl Recipes {
    pub(crate) fn remove(&mut self, key: &ExtentKey) {
        self.prints.remove(key);
    }

    fn insert(&mut self, key: ExtentKey, print: Fingerprint) {
        if self.prints.insert(key, print).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > RECIPES_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.prints.remove(&oldest);
            }
        }
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
        let print = *self.recipes.prints.get(&key)?;
        let (slot, generation, stored) = self.found_since(&print)?;
        let place = self.place(slot, generation, stored);
        self.stats.recipe_hits += 1;
        self.prints.touch(&print, slot);
        let mapping = Mapping::Duplicate(place);
        self.map_extent(key, mapping);
        Some((mapping, place))
    }

    /// Asks for the fingerprints around a miss.
    pub(crate) fn want_recipe(&mut self, key: ExtentKey) {
        if !self.has_recipes(key.volume) || self.stopping || self.recipes.prints.contains_key(&key) {
            return;
        }
        let Some(whole) = self.volumes.get(&key.volume).map(|volume| volume.whole_extents) else { return };
        if self.recipes.asked.len() >= ASKED_MAX || key.extent.0 >= whole {
            return;
        }
        let end = whole.min(key.extent.0 + RUN_EXTENTS);
        let guards: Vec<_> = (key.extent.0..end)
            .map(|extent| self.tracks.guard(ExtentKey { volume: key.volume, extent: ExtentNo(extent) }))
            .collect();
        let count = u32::try_from(guards.len()).unwrap_or(u32::MAX);
        let id = self.number();
        self.recipes.asked.insert(id, guards);
        self.stats.recipes_wanted += 1;
        let op = self.op(OpKind::Recipe(id));
        self.out.push(Action::WantRecipe { op, volume: key.volume, first: key.extent, count });
    }

    pub(crate) fn recipe_arrived(&mut self, id: u64, prints: &[Option<Fingerprint>]) {
        let guards = self.recipes.asked.remove(&id).expect_held();
        for (index, guard) in guards.into_iter().enumerate() {
            let Some(guard) = guard else { continue };
            if let Some(print) = prints.get(index).copied().flatten()
                && self.tracks.holds(&guard)
            {
                self.recipes.insert(guard.key, print);
            }
            self.tracks.release(&guard);
        }
    }
}
