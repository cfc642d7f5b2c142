//! Cache of single extents with LRU replacement, with or without deduplication: the baseline of Nitro (Li et al.,
//! USENIX ATC 2014, 5.3) for write-evict units.
//!
//! Extents are stored uncompressed and without metadata on the device, each in its own place. Writes are written
//! through and cached if they cover a whole extent or the extent is cached. With deduplication, equal extents are
//! stored once, and evicted when none of them was used recently; with recipes, a read finds contents that were stored
//! under another address. Content without an address is freed at once, like an overwritten extent without
//! deduplication.

use zc_core::{Map, u64_from_usize, usize_from_u64};
use zc_policy::Lru;
use zc_trace::Op;

use crate::content::BLOCK_BYTES;
use crate::held::Held;
use crate::load::{Step, Trace, block_key};

/// The cache.
#[derive(Debug, Clone, Copy)]
pub struct ExtentLru {
    /// Size of an extent in bytes: a power of two, at least 4096.
    pub extent_bytes: u32,
    /// Bytes of all extents.
    pub capacity_bytes: u64,
    /// Equal contents are stored once.
    pub dedup: bool,
    /// The origin supplies fingerprints.
    pub recipes: bool,
    /// Requests that only warm the cache.
    pub warm_requests: u64,
}

/// Result of a run, after warming.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtentOutcome {
    /// Extents read.
    pub reads: u64,
    /// Cached ones among them.
    pub read_hits: u64,
    /// Bytes written to the cache device.
    pub written_bytes: u64,
}

impl ExtentOutcome {
    /// Hits over extents read.
    #[must_use]
    pub fn read_hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.read_hits as f64 / self.reads as f64 }
    }
}

/// Operation of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Did {
    /// An extent was read that is there.
    Found { slot: u64 },
    /// An extent that begins at this block was read that is not there.
    Missed { first_block: u64 },
    /// An extent was written to the cache device.
    Stored { slot: u64 },
}

/// The cache while it runs.
pub(crate) struct Cache<'a> {
    settings: ExtentLru,
    held: Held<'a>,
    stored: Lru,
    /// The content that an extent was last cached as.
    mapped: Map<u64, u64>,
    /// Extents that were last cached as a content. Content without any is not there.
    references: Map<u64, u64>,
    /// Operations of the present step.
    did: Vec<Did>,
    outcome: ExtentOutcome,
}

/// Runs a trace through the cache.
///
/// # Panics
/// If the cache is smaller than an extent, or larger than [`zc_policy::CAPACITY_MAX`].
#[must_use]
pub fn run(trace: &Trace, settings: ExtentLru) -> ExtentOutcome {
    let mut cache = Cache::new(trace, settings);
    for (number, step) in trace.steps.iter().enumerate() {
        if u64_from_usize(number) == settings.warm_requests {
            cache.outcome = ExtentOutcome::default();
        }
        cache.step(step);
    }
    cache.outcome
}

impl<'a> Cache<'a> {
    /// An empty cache.
    ///
    /// # Panics
    /// As [`run`].
    pub(crate) fn new(trace: &'a Trace, settings: ExtentLru) -> Self {
        assert!(settings.extent_bytes.is_power_of_two() && settings.extent_bytes >= BLOCK_BYTES);
        let capacity = usize_from_u64(settings.capacity_bytes / u64::from(settings.extent_bytes));
        Self {
            settings,
            held: Held::new(trace),
            stored: Lru::new(capacity),
            mapped: Map::default(),
            references: Map::default(),
            did: Vec::new(),
            outcome: ExtentOutcome::default(),
        }
    }

    /// Processes a request; returns its operations.
    pub(crate) fn step(&mut self, step: &Step) -> &[Did] {
        self.did.clear();
        if step.op == Op::Flush || step.blocks == 0 {
            return &self.did;
        }
        let per_extent = u64::from(self.settings.extent_bytes / BLOCK_BYTES);
        let (first, end) = (step.first_block, step.first_block + u64::from(step.blocks));
        self.held.take(step);
        for extent in first / per_extent..end.div_ceil(per_extent) {
            let whole = first <= extent * per_extent && (extent + 1) * per_extent <= end;
            let start = block_key(step.volume, extent * per_extent);
            match step.op {
                Op::Write => self.write(start, whole),
                Op::Discard => self.unmap(start),
                _ => self.read(start, extent * per_extent),
            }
        }
        &self.did
    }

    /// Returns the assumed place of an extent on the cache device: neighbouring extents are on different dies.
    fn slot(&self, key: u64) -> u64 {
        let per_extent = u64::from(self.settings.extent_bytes / BLOCK_BYTES);
        key / per_extent % (self.settings.capacity_bytes / u64::from(self.settings.extent_bytes))
    }

    fn written(&mut self, key: u64) {
        self.outcome.written_bytes += u64::from(self.settings.extent_bytes);
        self.did.push(Did::Stored { slot: self.slot(key) });
    }

    /// Returns the key of an extent in the policy.
    fn key(&mut self, start: u64) -> u64 {
        if !self.settings.dedup {
            return start;
        }
        self.held.print(start, u64::from(self.settings.extent_bytes / BLOCK_BYTES))
    }

    fn store(&mut self, key: u64) -> bool {
        let there = self.stored.access(key);
        if !there {
            self.written(key);
        }
        there
    }

    /// Maps an extent to its content, and frees the content it had if no other extent has that.
    fn map(&mut self, start: u64, key: u64) {
        if self.mapped.get(&start) == Some(&key) {
            return;
        }
        self.unmap(start);
        *self.references.entry(key).or_default() += 1;
        self.mapped.insert(start, key);
    }

    /// Ends an extent's mapping. Content that no extent is mapped to any more is freed.
    fn unmap(&mut self, start: u64) {
        let Some(key) = self.mapped.remove(&start) else { return };
        let references = self.references.entry(key).and_modify(|count| *count -= 1).or_default();
        if *references == 0 {
            self.references.remove(&key);
            self.stored.remove(key);
        }
    }

    fn read(&mut self, start: u64, first_block: u64) {
        let key = self.key(start);
        let known = self.settings.recipes && self.settings.dedup || self.mapped.get(&start) == Some(&key);
        self.map(start, key);
        let there = self.store(key);
        self.outcome.reads += 1;
        let found = there && known;
        self.outcome.read_hits += u64::from(found);
        self.did.push(if found { Did::Found { slot: self.slot(key) } } else { Did::Missed { first_block } });
    }

    fn write(&mut self, start: u64, whole: bool) {
        if !whole && !self.mapped.contains_key(&start) {
            return;
        }
        let key = self.key(start);
        self.map(start, key);
        let there = self.store(key);
        if there && !self.settings.dedup {
            // New content in the same place.
            self.written(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ratios;
    use crate::plain;
    use zc_policy::Kind;
    use zc_trace::workload::{Kind as Shape, Mix, Workload};

    fn workload() -> Workload {
        Workload {
            kind: Shape::Mix(Mix { spread: 4, ..Mix::default() }),
            blocks: 4096,
            requests: 4000,
            reads: 0.0,
            shared: 0.4,
            ratio: (2.0, 0.5),
            seed: 3,
        }
    }

    fn hits(dedup: bool, recipes: bool) -> ExtentOutcome {
        let trace = Trace::load(workload().generate().map(Ok), Ratios::default()).unwrap();
        let capacity_bytes = 100 * 8192;
        run(&trace, ExtentLru { extent_bytes: 8192, capacity_bytes, dedup, recipes, warm_requests: 0 })
    }

    #[test]
    fn without_dedup_it_is_plain_lru() {
        let requests =
            || workload().generate().step_by(2).map(|r| Ok(zc_trace::Request { len_bytes: 8192, ..r }));
        let plain = plain::run(requests(), Kind::Lru, 100, 8192).unwrap();
        let outcome = hits(false, true);
        assert_eq!((outcome.reads, outcome.read_hits), (plain.read_accesses, plain.read_hits));
        let stored = plain.write_accesses + plain.read_accesses - plain.read_hits;
        assert_eq!(outcome.written_bytes, stored * 8192);
    }

    #[test]
    fn without_equal_contents_dedup_changes_no_hit() {
        let unique = Workload { shared: 0.0, reads: 0.2, ..workload() };
        let trace = Trace::load(unique.generate().map(Ok), Ratios::default()).unwrap();
        let hits = |dedup| {
            let settings = ExtentLru {
                extent_bytes: 8192,
                capacity_bytes: 200 * 8192,
                dedup,
                recipes: false,
                warm_requests: 0,
            };
            run(&trace, settings).read_hits
        };
        assert!(hits(false) > 0);
        assert_eq!(hits(true), hits(false), "overwritten content takes no room from live content");
    }

    #[test]
    fn dedup_and_recipes_find_more_and_write_less() {
        let (none, dedup, both) = (hits(false, false), hits(true, false), hits(true, true));
        assert!(
            none.read_hits < dedup.read_hits && dedup.read_hits < both.read_hits,
            "{none:?} {dedup:?} {both:?}"
        );
        assert!(dedup.written_bytes < none.written_bytes);
        assert_eq!(dedup.written_bytes, both.written_bytes);
    }
}
