//! Runs of one seed: kind of device, events, and checks after each restart.

use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};

use rand::RngExt as _;
use zc_store::seam::{RequestKind, StoreError};
use zc_store::{CatalogOp, Config, Event, RootId};

use super::model::State;
use super::perform::{cut, forget, rot, step};
use super::space::TABLE_PAGES;
use super::survey::{judge_accounts, judge_scrub};
use super::world::{ADDRESSES, Probe, RUN, STEPS_MAX, StoreCanary, Waits, World};
use crate::disk::PAGE;
use crate::run::Violation;

/// Segments that are not free though unreferenced: the log's two, and those that the next checkpoint frees.
const UNFREED_SEGMENTS: u64 = 2 + zc_store::limits::EMPTIED_MAX as u64;
/// Maximum number of roots at a time.
const ROOTS: u16 = 6;

/// Events that every full run must reach.
pub const STORE_REQUIRED: &[&str] = &[
    "reads",
    "recipes",
    "allocations",
    "power cuts",
    "power cuts in a recovery",
    "stops",
    "flush errors",
    "write errors",
    "writes lost",
    "writes misdirected",
    "bits rotted",
    "no space",
    "no space judged",
    "contents from memory",
    "restarts judged",
    "chunks shared",
    "chunks freed",
    "pages freed",
    "chunks moved",
    "segments cleaned",
    "windows gathered",
    "pages read",
    "everything freed",
    "freed beside a lost page",
    "accounts judged",
    "scrubs judged",
    "damage found by a scrub",
    "restarts judged after one damage",
    "dropped commits told",
    "proofs",
    "chunks healed",
    "free space added up",
];

/// Options of a run of one seed.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Number of requests.
    pub ops: u64,
    /// Deliberate bug to enable.
    pub canary: Option<StoreCanary>,
    /// Receives every event and action as text.
    pub trace: Option<fn(&str)>,
}

/// Report of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// Number of requests.
    pub ops: u64,
    /// Digest of all counts.
    pub digest: u64,
    /// Counts of events, by name.
    pub coverage: BTreeMap<&'static str, u64>,
}

/// Runs a seed.
///
/// # Errors The first violation.
///
/// # Panics If the store panics on a broken internal invariant.
pub fn run_store_seed(seed: u64, options: &StoreOptions) -> Result<StoreReport, Violation> {
    let mut world = setup(seed, options);
    let mut ops = 0;
    world.open();
    while ops < options.ops && world.violation.is_none() && world.serves() {
        ops += u64::from(world.turn());
    }
    if world.serves() {
        world.end();
    }
    if let Some(text) = world.violation.take() {
        return Err(Violation { seed, op: ops, text });
    }
    let mut hasher = std::hash::DefaultHasher::new();
    world.coverage.hash(&mut hasher);
    world.history.describe().hash(&mut hasher);
    Ok(StoreReport { ops, digest: hasher.finish(), coverage: world.coverage })
}

/// Draws device, settings and faults of a seed.
fn setup(seed: u64, options: &StoreOptions) -> World {
    let pages = [2, 8, 30][seed as usize % 3];
    #[cfg_attr(not(zc_canary), expect(unused_mut, reason = "a deliberate bug is put in"))]
    let mut config = Config {
        cache_pages: [8, 24, 1000][seed as usize / 3 % 3],
        dirty_pages_max: pages,
        checkpoint_log_bytes: [60_000, 400_000][seed as usize % 2],
        batch_bytes_max: [8 << 10, 24 << 10, 64 << 10][seed as usize / 2 % 3],
        fingerprints_max: [0, 4, 1000, 1000][seed as usize % 4],
        clean_below_percent: [20, 60, 90][seed as usize / 4 % 3],
        clean_until_percent: 95,
        // The cleaner works ahead all the time, or only when it must.
        quiet_ms: [0, 0, 1000][seed as usize / 4 % 3],
        clean_bytes_per_s: 4 << 20,
        gather: (seed / 3).is_multiple_of(2),
        ..Config::default()
    }
    .bounded(super::world::SEGMENT);
    #[cfg(zc_canary)]
    if let Some(StoreCanary::Store(bug)) = options.canary {
        config.canary = Some(bug);
    }
    let reserve = config.reserve_segments(super::world::shape(0)) as u32;
    let spare = [6, 12, 40][seed as usize / 5 % 3];
    let mut world = World::new(seed, (reserve + spare).max(16), config);
    world.canary = options.canary;
    world.trace = options.trace;
    world.values = [12, 60, 1 << 40][seed as usize / 7 % 3];
    world.faults.crashes = [0.002, 0.02, 0.0][seed as usize / 2 % 3];
    match seed % 8 {
        0 => world.faults.write_errors = 0.003,
        1 => world.faults.rot = 0.01,
        2 => world.faults.lost = 0.003,
        3 => world.faults.misdirected = 0.003,
        _ => {}
    }
    world
}

impl World {
    /// Returns `true` if the store opened. A reported error is excused by a lying device.
    pub(crate) fn serves(&self) -> bool {
        self.opened == Some(Ok(()))
    }

    /// Runs until recovery ends; it may be cut off.
    pub(crate) fn open(&mut self) {
        let lies = self.faults.lies();
        for _ in 0..STEPS_MAX {
            if let Some(result) = self.opened {
                match result {
                    Ok(()) => self.has_dropped = self.store.dropped_commits() > 0,
                    Err(StoreError::Device(_)) if self.fenced => {
                        self.note("recoveries that failed");
                        forget(self);
                        continue;
                    }
                    Err(_) if lies => self.note("refusals to open"),
                    Err(error) => self.violate(format!("the store does not open: {error}")),
                }
                return;
            }
            let crashes = self.faults.crashes > 0.0 && self.rng.random_bool(self.faults.crashes / 4.0);
            if crashes {
                self.note("power cuts in a recovery");
                cut(self);
            }
            step(self);
        }
        self.violate("the store does not come to an end of opening".to_owned());
    }

    /// Executes one turn. Returns `true` if it was a request.
    fn turn(&mut self) -> bool {
        let width = self.rng.random_range(1..10);
        let (crashes, rots) = (self.faults.crashes, self.faults.rot);
        if self.happens(crashes) {
            self.note("power cuts");
            self.crash();
        } else if self.happens(rots) {
            rot(self);
        } else if self.fenced && self.rng.random_bool(0.02) {
            self.crash();
        }
        if !self.serves() {
            // The store refused to open on a lying device, so clients cannot submit requests.
            return false;
        }
        match self.rng.random_range(0..100) {
            0..45 if self.waiting.len() < width => {
                self.request();
                return true;
            }
            90..93 => self.tick(),
            93 if self.rng.random_bool(0.2) => self.give(Event::Clean),
            94 if self.rng.random_bool(0.03) => self.stop_and_start(),
            95 if self.rng.random_bool(0.03) => judge_accounts(self),
            _ if self.pending.is_empty() => self.tick(),
            _ => step(self),
        }
        false
    }

    pub(crate) fn tick(&mut self) {
        self.now_ms += self.rng.random_range(1..50);
        let now_ms = self.now_ms;
        self.give(Event::Tick { now_ms });
    }

    fn random_root(&mut self) -> RootId {
        let roots: Vec<RootId> = self.history.now().roots.keys().copied().collect();
        if roots.is_empty() || self.rng.random_bool(0.01) {
            return RootId(self.rng.random_range(0..ROOTS));
        }
        roots[self.rng.random_range(0..roots.len())]
    }

    fn random_volume(&mut self) -> RootId {
        let volumes: Vec<RootId> =
            self.history.now().roots.iter().filter(|(_, held)| !held.snapshot).map(|(id, _)| *id).collect();
        if volumes.is_empty() {
            return self.random_root();
        }
        volumes[self.rng.random_range(0..volumes.len())]
    }

    fn random_address(&mut self) -> u64 {
        ADDRESSES[self.rng.random_range(0..ADDRESSES.len())] + self.rng.random_range(0..RUN)
    }

    fn value(&mut self) -> u64 {
        if self.rng.random_bool(0.1) { 0 } else { self.rng.random_range(1..=self.values) }
    }

    pub(crate) fn request(&mut self) {
        match self.rng.random_range(0..100) {
            0..50 => {
                let (root, first) = (self.random_volume(), self.random_address());
                let count = self.rng.random_range(1..=RUN);
                let values = (0..count).map(|_| self.value()).collect();
                self.write(root, first, values);
            }
            50..70 => {
                let (root, first) = (self.random_root(), self.random_address());
                let count = self.rng.random_range(1..=RUN as u32);
                self.read(root, first, count);
            }
            70..84 => self.flush(),
            84..88 => {
                let (root, first) = (self.random_volume(), self.random_address());
                let count = [1, 3, 600, 254_000][self.rng.random_range(0..4)];
                self.clear(root, first, count);
            }
            88 => {
                let (root, first) = (self.random_root(), self.random_address());
                let since = self.history.index();
                let count = [1, 4, 600, 254_000][self.rng.random_range(0..4)];
                let kind = RequestKind::Allocation { root, first, count };
                self.submit(kind, Waits::Allocation { root, first, end: first + count, since });
            }
            89 => {
                let (root, first) = (self.random_root(), self.random_address());
                let since = self.history.index();
                self.submit(
                    RequestKind::Recipe { root, first, count: 4 },
                    Waits::Recipe { root, first, since },
                );
            }
            _ => self.catalog_request(),
        }
    }

    fn catalog_request(&mut self) {
        let free = (0..ROOTS).map(RootId).find(|id| !self.history.now().roots.contains_key(id));
        let id = free.unwrap_or(RootId(0));
        let (volume, any) = (self.random_volume(), self.random_root());
        match self.rng.random_range(0..10) {
            _ if self.history.now().roots.is_empty() => self.catalog(CatalogOp::Create, id, id),
            0 => self.catalog(CatalogOp::Create, id, id),
            1..4 => self.catalog(CatalogOp::Snapshot, id, volume),
            4 => self.catalog(CatalogOp::Clone, id, any),
            5 | 6 => self.catalog(CatalogOp::Rollback, volume, any),
            7 if self.rng.random_bool(0.3) => self.catalog(CatalogOp::Grow, volume, volume),
            _ => self.catalog(CatalogOp::Delete, any, any),
        }
    }

    fn crash(&mut self) {
        self.count_store();
        cut(self);
        self.open();
        self.judge_restart();
    }

    fn stop_and_start(&mut self) {
        if !self.drain() {
            return;
        }
        self.give(Event::Stop);
        for _ in 0..STEPS_MAX {
            if self.stopped {
                break;
            }
            step(self);
        }
        if !self.stopped {
            self.violate("the store does not stop".to_owned());
        }
        self.note("stops");
        self.count_store();
        // A stop whose device fails is interrupted.
        let in_order = self.store.failure().is_none() && !self.faults.lies();
        forget(self);
        self.open();
        if in_order && self.serves() && self.store.stats().torn {
            self.violate("a log that was closed in order ends torn".to_owned());
        }
        self.judge_restart();
    }

    /// Waits for all answers. Returns `false` if the device failed before that.
    pub(crate) fn drain(&mut self) -> bool {
        for _ in 0..STEPS_MAX {
            if self.waiting.is_empty() || self.violation.is_some() {
                return !self.fenced && self.violation.is_none();
            }
            if self.pending.is_empty() {
                self.tick();
            }
            step(self);
        }
        let waiting: Vec<_> = self.waiting.values().collect();
        let (space, stats) = (self.store.space(), self.store.stats());
        let text = format!("requests are never answered: {waiting:?}; {space:?}, {stats:?}");
        self.violate(text);
        false
    }

    /// Reads everything, and finds the matching state.
    pub(crate) fn judge_restart(&mut self) {
        if !self.serves() || self.violation.is_some() {
            return;
        }
        let Some(seen) = self.see_all() else { return };
        if self.lost_unflushed && !self.faults.lies() {
            // Data lost by a failed flush cannot be read, so the state cannot be determined before the next restart.
            self.crash();
            return;
        }
        let shown: Vec<(RootId, bool, u64)> = self
            .store
            .roots()
            .map(|(id, root)| (id, root.kind == zc_store::RootKind::Snapshot, root.size_chunks))
            .collect();
        let agrees = |state: &State| {
            let roots = state.roots.iter().map(|(id, held)| (*id, held.snapshot, held.size));
            roots.eq(shown.iter().copied())
                && seen.iter().all(|((root, address), value)| {
                    value.is_none_or(|value| state.value(*root, *address) == Some(value))
                })
        };
        // Several states may match if contents are damaged. Recipes and runs distinguish them without reading
        // contents.
        self.unknown =
            seen.iter().filter(|(_, value)| value.is_none()).map(|((_, address), _)| *address).collect();
        let once = self.faults.rot > 0.0 && self.rots_before <= 1;
        if once {
            self.note("restarts judged after one damage");
        }
        if !self.history.settle((self.faults.lies(), once), agrees) {
            let text =
                format!("a restart shows no state that there was: {seen:?}; {}", self.history.describe());
            self.violate(text);
        }
        self.note("restarts judged");
    }

    /// Returns the value of every address of every root, or `None` for a damaged one.
    pub(crate) fn see_all(&mut self) -> Option<BTreeMap<(RootId, u64), Option<u64>>> {
        let roots: Vec<RootId> = self.store.roots().map(|(id, _)| id).collect();
        let mut seen = BTreeMap::new();
        for root in roots {
            for first in ADDRESSES {
                for address in first..first + 2 * RUN {
                    let value = self.read_now(root, address)?;
                    seen.insert((root, address), value);
                }
            }
        }
        Some(seen)
    }

    /// Reads outside the history, as the basis for checking it.
    pub(crate) fn read_now(&mut self, root: RootId, address: u64) -> Option<Option<u64>> {
        let dest = self.buf(super::world::Buf::Dest(vec![0]));
        self.next += 1;
        let req = zc_core::ReqId(self.next);
        let kind = RequestKind::Read { root, first: address, count: 1, dest };
        self.probe = Some(Probe { req, dest, brought: None, stored: None });
        self.give(Event::Submit(zc_store::seam::Request { req, kind }));
        for _ in 0..STEPS_MAX {
            if let Some(result) = self.probe.and_then(|probe| probe.brought) {
                let excused = match result {
                    Ok(_) => true,
                    Err(StoreError::Damaged(place)) => self.is_damage_excused(place),
                    Err(_) => self.faults.lies() || self.lost_unflushed,
                };
                if let Err(error) = result
                    && !excused
                {
                    self.violate(format!("{root:?} address {address} cannot be read: {error}"));
                    return None;
                }
                return Some(result.ok());
            }
            if self.pending.is_empty() {
                break;
            }
            step(self);
        }
        self.violate(format!("a read of {root:?} at {address} is never answered"));
        None
    }

    fn count_store(&mut self) {
        let stats = self.store.stats();
        for (what, count) in [
            ("chunks shared", stats.chunks_shared),
            ("chunks freed", stats.chunks_freed),
            ("pages freed", stats.pages_freed),
            ("proofs", stats.proofs),
            ("chunks healed", stats.chunks_healed),
            ("chunks moved", stats.chunks_moved),
            ("segments cleaned", stats.segments_cleaned),
            ("segments freed", stats.segments_freed),
            ("segments discarded", stats.segments_discarded),
            ("windows gathered", stats.windows_gathered),
            ("pages read", stats.page_reads),
            ("marks", stats.marks),
            ("checkpoints", stats.checkpoints),
        ] {
            *self.coverage.entry(what).or_default() += count;
        }
    }

    /// Reads everything, again after a restart; then deletes everything, which must become free.
    fn end(&mut self) {
        self.faults.write_errors = 0.0;
        if self.fenced {
            self.crash();
        }
        self.drain();
        self.stop_and_start();
        judge_scrub(self);
        judge_accounts(self);
        self.judge_freed_beside_damage();
        let only_rots = self.faults.lost == 0.0 && self.faults.misdirected == 0.0;
        if !only_rots || self.violation.is_some() || !self.serves() {
            return;
        }
        // A creation in progress must finish before its result is looked up.
        self.drain();
        let roots: Vec<RootId> = self.store.roots().map(|(id, _)| id).collect();
        for root in roots {
            self.catalog(CatalogOp::Delete, root, root);
        }
        self.drain();
        self.judge_freed();
        self.count_store();
        cut(self);
        self.open();
        self.judge_restart();
    }

    /// Checks the second half of S3: unreferenced space is freed within bounded cleaning.
    fn judge_freed(&mut self) {
        for _ in 0..6 {
            self.clean();
        }
        let (space, stats) = (self.store.space(), self.store.stats());
        // Tables keep pages without records. An unreadable leaf keeps everything that it may refer to.
        let pages = space.referred_bytes / PAGE as u64;
        if (pages > TABLE_PAGES && self.faults.rot == 0.0) || self.violation.is_some() {
            self.violate(format!("all was deleted, and {pages} pages are still referred to: {stats:?}"));
        }
        let segments = (space.total_bytes - space.free_bytes) / u64::from(super::world::SEGMENT);
        if segments > pages + UNFREED_SEGMENTS {
            self.violate(format!(
                "{pages} pages are referred to, and {segments} segments are not free: {stats:?}"
            ));
        }
        self.note("everything freed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: StoreOptions = StoreOptions { ops: 600, canary: None, trace: None };

    #[test]
    fn what_a_lost_page_of_a_map_held_is_called_data() {
        run_store_seed(900_083, &StoreOptions { ops: 500, canary: None, trace: None }).unwrap();
    }

    #[test]
    fn the_same_seed_gives_the_same_digest() {
        let first = run_store_seed(3, &OPTIONS).unwrap();
        assert_eq!(first, run_store_seed(3, &OPTIONS).unwrap());
        assert_ne!(first.digest, run_store_seed(4, &OPTIONS).unwrap().digest);
    }

    #[test]
    fn seeds_are_clean() {
        for seed in 1..=24 {
            run_store_seed(seed, &OPTIONS).unwrap();
        }
    }

    #[test]
    fn every_canary_is_found() {
        for (name, canary) in super::super::STORE_CANARIES {
            let options = StoreOptions { ops: 2000, canary: Some(*canary), ..OPTIONS };
            let found = (1..=100).any(|seed| {
                std::panic::catch_unwind(|| run_store_seed(seed, &options)).is_ok_and(|run| run.is_err())
            });
            assert!(found, "{name} was not found in 100 seeds");
        }
    }
}
