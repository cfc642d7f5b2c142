//! Recipe path (Nitro 3.1, 3.2): fingerprints that an origin reports without a read of the extents.
//!
//! On a file index miss of a volume whose origin has recipes, the recipe cache may hold the extent's fingerprint; if
//! the fingerprint index finds it, the miss becomes a duplicate hit without the origin. Absent runs are requested in
//! the background; the miss itself never waits for them. For a reader that moves from run to run the next one is
//! requested in advance: when a snapshot is read, its recipe arrives before it (Nitro 3.3).
//!
//! A run is stored and evicted as a whole. It is requested again when a miss concerns an entry that a write has
//! invalidated.
//!
//! Most origins have no fingerprints. For their volumes recipes are *learned* if memory is configured for it: the
//! fingerprint of a cached extent is kept when its data is evicted. Dirty data is included once it is destaged: before
//! that the origin may never receive it. If the content is cached again for another address, the old address is a hit
//! without its origin.
//!
//! The header of a WEU locates its contents. A miss whose recorded fingerprint may be in a WEU with an uncached header
//! waits for that header: one SSD read instead of an origin read.
//!
//! A fingerprint that arrives is valid only if its extent was not written since it was requested, and is dropped with
//! the next write, as cached data is. A weak hash rules recipes out: bytes could not be compared without the origin.

use core::ops::Range;
use std::collections::VecDeque;

use zc_core::{
    ExtentKey, ExtentNo, Fingerprint, HashKey, KeyedMap, Map, VolumeId, u64_from_usize, usize_from_u64,
};

use crate::base::Base;
use crate::base::tracks::Guard;
use crate::clean::read::portion::Portion;
use crate::clean::streams::InStream;
use crate::device::Core;
use crate::device::contents::header_reads::HeaderWaiter;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Mapping, Place};
use crate::ops::read::Op;
use crate::seam::Action;

/// Extents per request: 1 MiB of 8 KiB extents, 4 KiB of fingerprints.
const RUN_EXTENTS: u64 = 128;
/// Maximum number of runs: about 17 MiB, which cover 4 GiB.
const RUNS_MAX: usize = 4096;
/// Maximum requests in flight.
const ASKED_MAX: usize = 16;
/// Extents after a miss whose headers are prefetched: those of one or two requests.
const LEARNED_AHEAD: u64 = 16;
/// Memory of a run of learned fingerprints, with its entries in two tables.
const LEARNED_RUN_BYTES: u64 = RUN_EXTENTS * size_of::<Option<Fingerprint>>() as u64 + 64;

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

/// Known fingerprint of an extent of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recipe {
    Print(Fingerprint),
    /// The origin has no fingerprint of the extent.
    None,
    /// Invalidated by a write.
    Void,
}

fn index_in_run(key: ExtentKey) -> usize {
    usize_from_u64(key.extent.0 % RUN_EXTENTS)
}

/// Returns the recorded runs of a range. Scans the range or the recorded runs, whichever is shorter.
fn runs_in<T>(runs: &KeyedMap<Run, Vec<T>>, volume: VolumeId, extents: &Range<u64>) -> Vec<u64> {
    let numbers = extents.start / RUN_EXTENTS..extents.end.div_ceil(RUN_EXTENTS);
    if numbers.end - numbers.start < u64_from_usize(runs.len()) {
        return numbers.filter(|number| runs.contains_key(&Run { volume, number: *number })).collect();
    }
    let is_in = |run: &&Run| run.volume == volume && numbers.contains(&run.number);
    runs.keys().filter(is_in).map(|run| run.number).collect()
}

/// Entries of runs with the extent of each.
fn keyed<T>(runs: &mut KeyedMap<Run, Vec<T>>) -> impl Iterator<Item = (ExtentKey, &mut T)> {
    runs.iter_mut().flat_map(|(run, known)| {
        let extents = (run.number * RUN_EXTENTS..).map(ExtentNo);
        extents.zip(known).map(|(extent, known)| (ExtentKey { volume: run.volume, extent }, known))
    })
}

/// Fingerprints of extents that are or were cached, in runs; the oldest run is evicted first.
#[derive(Debug)]
struct Learned {
    runs: KeyedMap<Run, Vec<Option<Fingerprint>>>,
    order: VecDeque<Run>,
    runs_max: usize,
}

impl Learned {
    fn get(&self, key: ExtentKey) -> Option<Fingerprint> {
        *self.runs.get(&Run::of(key))?.get(index_in_run(key))?
    }

    fn remove(&mut self, key: ExtentKey) {
        if let Some(known) = self.runs.get_mut(&Run::of(key)).and_then(|run| run.get_mut(index_in_run(key))) {
            *known = None;
        }
    }

    fn insert(&mut self, key: ExtentKey, print: Fingerprint) {
        let run = Run::of(key);
        if !self.runs.contains_key(&run) {
            self.order.push_back(run);
            if self.order.len() > self.runs_max
                && let Some(oldest) = self.order.pop_front()
            {
                self.runs.remove(&oldest);
            }
        }
        let prints = self.runs.entry(run).or_insert_with(|| vec![None; usize_from_u64(RUN_EXTENTS)]);
        if let Some(known) = prints.get_mut(index_in_run(key)) {
            *known = Some(print);
        }
    }
}

/// A miss that waits for headers.
#[derive(Debug)]
pub(crate) struct RecipeWait {
    pub(crate) read: u64,
    pub(crate) portion: Portion,
    pub(crate) stream: Option<InStream>,
}

/// Fingerprints of uncached extents.
#[derive(Debug)]
pub(crate) struct Recipes {
    waiting: Map<u64, RecipeWait>,
    /// Entries of requested runs.
    runs: KeyedMap<Run, Vec<Recipe>>,
    order: VecDeque<Run>,
    asked: Map<u64, (Run, Vec<Option<Guard>>)>,
    /// Run of each volume's last miss.
    last: Map<VolumeId, u64>,
    learned: Learned,
}

impl Recipes {
    /// Creates an empty cache with at most `learned_bytes` of learned fingerprints.
    pub(crate) fn new(learned_bytes: u64, key: &HashKey) -> Self {
        let runs_max = usize_from_u64(learned_bytes / LEARNED_RUN_BYTES);
        Self {
            waiting: Map::default(),
            runs: key.map(),
            order: VecDeque::new(),
            asked: Map::default(),
            last: Map::default(),
            learned: Learned { runs: key.map(), order: VecDeque::new(), runs_max },
        }
    }

    /// Returns the extent's fingerprint, with `true` if it was learned.
    fn print(&self, key: ExtentKey) -> Option<(Fingerprint, bool)> {
        match self.get(key) {
            Some(Recipe::Print(print)) => Some((print, false)),
            Some(Recipe::None | Recipe::Void) | None => self.learned.get(key).map(|print| (print, true)),
        }
    }

    pub(crate) fn end_wait(&mut self, id: u64) -> RecipeWait {
        self.waiting.remove(&id).expect_held()
    }

    /// Approximate RAM of learned fingerprints, in bytes.
    pub(crate) fn learned_ram_bytes(&self) -> u64 {
        u64_from_usize(self.learned.runs.len()) * LEARNED_RUN_BYTES
    }

    fn get(&self, key: ExtentKey) -> Option<Recipe> {
        self.runs.get(&Run::of(key))?.get(index_in_run(key)).copied()
    }

    pub(crate) fn remove(&mut self, key: &ExtentKey) {
        self.learned.remove(*key);
        let known = self.runs.get_mut(&Run::of(*key)).and_then(|run| run.get_mut(index_in_run(*key)));
        if let Some(known) = known {
            *known = Recipe::Void;
        }
    }

    pub(crate) fn remove_range(&mut self, volume: VolumeId, extents: &Range<u64>) {
        let is_in = |extent: u64| extents.contains(&extent);
        for number in runs_in(&self.learned.runs, volume, extents) {
            let run = self.learned.runs.get_mut(&Run { volume, number }).into_iter().flatten();
            let known = (number * RUN_EXTENTS..).zip(run);
            known.filter(|(extent, _)| is_in(*extent)).for_each(|(_, known)| *known = None);
        }
        for number in runs_in(&self.runs, volume, extents) {
            let run = self.runs.get_mut(&Run { volume, number }).into_iter().flatten();
            let known = (number * RUN_EXTENTS..).zip(run);
            known.filter(|(extent, _)| is_in(*extent)).for_each(|(_, known)| *known = Recipe::Void);
        }
    }

    pub(crate) fn remove_all(&mut self, which: impl Fn(&ExtentKey) -> bool) {
        keyed(&mut self.learned.runs).filter(|(key, _)| which(key)).for_each(|(_, known)| *known = None);
        keyed(&mut self.runs).filter(|(key, _)| which(key)).for_each(|(_, known)| *known = Recipe::Void);
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

    /// Returns `true` if a request about the volume is in flight.
    pub(crate) fn is_asking(&self, volume: VolumeId) -> bool {
        self.asked.values().any(|(asked, _)| asked.volume == volume)
    }

    fn is_asked(&self, run: Run) -> bool {
        self.asked.values().any(|(asked, _)| *asked == run)
    }
}

/// Returns `true` if the volume can use recipes, from its origin or learned.
fn uses_recipes(volume: VolumeId, base: &Base) -> bool {
    base.is_good()
        && base.cfg().fingerprint.is_collision_resistant()
        && base.volume(volume).is_some_and(|volume| volume.cfg().dedup)
}

impl Recipes {
    /// Records the fingerprint of a cached extent.
    pub(crate) fn learn(&mut self, key: ExtentKey, print: Fingerprint, core: &mut Core) {
        let has_recipes = core.base.volume(key.volume).is_some_and(|volume| volume.cfg().recipes);
        if self.learned.runs_max > 0 && !has_recipes && uses_recipes(key.volume, &core.base) {
            self.learned.insert(key, print);
        }
    }

    /// Handles a miss: prefetches the headers of following extents with learned fingerprints.
    pub(crate) fn expect_learned(&mut self, key: ExtentKey, core: &mut Core) {
        if self.learned.runs.is_empty() || !uses_recipes(key.volume, &core.base) || core.base.is_stopping() {
            return;
        }
        for ahead in 1..=LEARNED_AHEAD {
            let next = ExtentKey { extent: ExtentNo(key.extent.0.saturating_add(ahead)), ..key };
            if let Some(print) = self.learned.get(next)
                && !core.device.catalog.is_mapped(next)
            {
                core.device.catalog.read_headers_ahead(&print, &mut core.base);
            }
        }
    }

    /// Turns a miss into a duplicate hit if the extent's content is known and cached.
    pub(crate) fn find(&self, key: ExtentKey, is_staged: bool, core: &mut Core) -> Option<(Mapping, Place)> {
        if !uses_recipes(key.volume, &core.base) {
            return None;
        }
        let (print, learned) = self.print(key)?;
        if core.base.tracks.is_written(&key) || is_staged {
            return None;
        }
        // Mapped extents wait for their volume's sample; a new mapping would wait for the journal.
        if core.device.catalog.is_mapped(key) || core.device.catalog.meta().is_pressed() {
            return None;
        }
        let (slot, generation, stored) = core.device.catalog.find_content(&print, &core.base)?;
        let place = core.device.catalog.place(slot, generation, stored);
        core.base.stats.recipe_hits += 1;
        core.base.stats.recipe_hits_learned += u64::from(learned);
        core.device.catalog.contents_mut().prints_mut().touch(&print, slot);
        let mapping = Mapping::Duplicate(place);
        core.device.catalog.map_extent(key, mapping, &mut core.base);
        Some((mapping, place))
    }

    /// Returns `true` if a recipe would turn a miss of the extent into a hit, so that a prefetch would only load the
    /// origin.
    pub(crate) fn has_hit(&self, key: ExtentKey, core: &mut Core) -> bool {
        if !uses_recipes(key.volume, &core.base)
            || core.device.catalog.is_mapped(key)
            || core.base.tracks.is_written(&key)
        {
            return false;
        }
        let Some((print, _)) = self.print(key) else { return false };
        core.device.catalog.find_content(&print, &core.base).is_some()
    }

    /// Defers a miss with a learned fingerprint until the headers that may locate its content are loaded. Returns
    /// `true` if it is deferred.
    pub(crate) fn wait_for_headers(
        &mut self,
        read: u64,
        portion: Portion,
        stream: Option<InStream>,
        is_staged: bool,
        core: &mut Core,
    ) -> bool {
        let key = portion.key;
        if core.base.is_stopping()
            || !uses_recipes(key.volume, &core.base)
            || core.base.tracks.is_written(&key)
        {
            return false;
        }
        let Some(print) = self.learned.get(key) else { return false };
        if is_staged || core.device.catalog.is_mapped(key) {
            return false;
        }
        let id = core.base.port.number();
        let waiter = HeaderWaiter::Miss(id);
        for slot in core.device.catalog.candidates(&print) {
            core.device.catalog.wait_for_header(waiter, slot, &print, &mut core.base);
        }
        if !core.device.catalog.contents().is_waiting(waiter) {
            return false;
        }
        self.waiting.insert(id, RecipeWait { read, portion, stream });
        core.base.stats.recipe_waits += 1;
        true
    }

    /// Requests the fingerprints around a miss. Requests the next run too if the miss is the first of a run, or the
    /// previous miss was in the previous run.
    pub(crate) fn want(&mut self, key: ExtentKey, core: &mut Core) {
        if !uses_recipes(key.volume, &core.base) || core.base.is_stopping() {
            return;
        }
        if !core.base.volume(key.volume).is_some_and(|volume| volume.cfg().recipes) {
            return;
        }
        let run = Run::of(key);
        let before = self.last.insert(key.volume, run.number);
        if !self.runs.contains_key(&run) || self.get(key) == Some(Recipe::Void) {
            self.ask_for(run, core);
        }
        let next = Run { number: run.number + 1, ..run };
        // A reader that begins at the start of a run probably reads a whole volume.
        let follows = before.is_some_and(|before| before.checked_add(1) == Some(run.number));
        if (follows || index_in_run(key) == 0) && !self.runs.contains_key(&next) {
            self.ask_for(next, core);
        }
    }

    fn ask_for(&mut self, run: Run, core: &mut Core) {
        let Some(volume) = core.base.volume(run.volume) else { return };
        let (whole, domain) = (volume.whole_extents(), volume.cfg().domain);
        let first = run.number * RUN_EXTENTS;
        let full = self.asked.len() >= ASKED_MAX;
        if full || first >= whole || self.is_asked(run) {
            return;
        }
        let guards: Vec<_> = (first..whole.min(first + RUN_EXTENTS))
            .map(|extent| core.base.tracks.guard(ExtentKey { volume: run.volume, extent: ExtentNo(extent) }))
            .collect();
        let count = u32::try_from(guards.len()).unwrap_or(u32::MAX);
        let id = core.base.port.number();
        self.asked.insert(id, (run, guards));
        core.base.stats.recipes_wanted += 1;
        let op = core.base.port.op(Op::Recipe(id));
        let first = ExtentNo(first);
        core.base.port.emit(Action::WantRecipe { op, volume: run.volume, first, count, domain });
    }

    /// Handles the arrival of recipes of a run.
    pub(crate) fn arrived(&mut self, id: u64, prints: &[Option<Fingerprint>], core: &mut Core) {
        let (run, guards) = self.asked.remove(&id).expect_held();
        let prints = prints.iter().copied().chain(core::iter::repeat(None));
        let current = guards.into_iter().zip(prints).map(|(guard, print)| {
            let Some(guard) = guard else { return Recipe::Void };
            let holds = core.base.tracks.holds(&guard);
            core.base.tracks.release(&guard);
            match print {
                _ if !holds => Recipe::Void,
                Some(print) => Recipe::Print(print),
                None => Recipe::None,
            }
        });
        let recipes: Vec<Recipe> = current.collect();
        for recipe in &recipes {
            if let Recipe::Print(print) = recipe {
                core.device.catalog.read_headers_ahead(print, &mut core.base);
            }
        }
        self.insert(run, recipes);
    }
}
