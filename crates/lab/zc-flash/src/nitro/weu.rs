//! A cache of units: extents are packed in RAM, written when the unit is full, and evicted with it.
//!
//! Invariant: an index entry is valid only if its slot still has the generation of the entry; the entries of a unit
//! are removed with it, and references of other extents to it are detected as stale by the generation.

use zc_core::{Map, usize_from_u32};

use super::{Access, Outcome, PAGE_BYTES, Settings};
use crate::Ftl;
use crate::geometry::{Geometry, Latencies};
use crate::lru::Lru;
use crate::nand::{Nand, Stored};
use crate::stats::Stats;

/// Compressed size of the fingerprints and positions in a header.
const HEADER_COMPRESSED_BYTES: u32 = 2048;
/// Overhead of compression by 4 KiB instead of 8 KiB, in thousandths (LZ4 on root file systems of Debian 12 and 13:
/// 1.785 and 1.851 times smaller).
const BY_PAGE_PERMILLE: u64 = 1037;

/// Storage of units.
pub(super) trait Store {
    /// Returns the number of slots.
    fn slots(&self) -> u32;
    /// Writes a unit, with the sizes of its pages if they were compressed one by one.
    fn write(&mut self, slot: u32, sizes: &[u32]);
    /// Reads pages of a WEU.
    fn read(&mut self, slot: u32, pages: std::ops::Range<u32>);
    fn stats(&self) -> Stats;
}

/// An SSD as it is sold.
pub(super) struct Sold {
    ftl: Box<dyn Ftl>,
    weu_pages: u32,
    shift_pages: u32,
    trim: bool,
}

impl Sold {
    pub(super) fn new(ftl: Box<dyn Ftl>, settings: &Settings, trim: bool) -> Self {
        let weu_pages = settings.weu_bytes / PAGE_BYTES;
        Self { ftl, weu_pages, shift_pages: settings.shift_pages, trim }
    }

    fn first(&self, slot: u32) -> u32 {
        self.shift_pages + slot * self.weu_pages
    }
}

impl Store for Sold {
    fn slots(&self) -> u32 {
        self.ftl.pages().saturating_sub(self.shift_pages) / self.weu_pages
    }

    fn write(&mut self, slot: u32, _sizes: &[u32]) {
        let pages = self.first(slot)..self.first(slot) + self.weu_pages;
        if self.trim {
            pages.clone().for_each(|page| self.ftl.trim(page));
        }
        pages.for_each(|page| self.ftl.write(page, 0));
    }

    fn read(&mut self, slot: u32, pages: std::ops::Range<u32>) {
        for page in pages {
            let found = self.ftl.read(self.first(slot) + page);
            assert!(found.is_some(), "what the index names is on the SSD");
        }
    }

    fn stats(&self) -> Stats {
        self.ftl.stats()
    }
}

/// An SSD that erases and programs whole WEUs, each in erase blocks of its own.
pub(super) struct Aligned {
    nand: Nand,
    weu_pages: u32,
    written: u64,
    reads: u64,
}

impl Aligned {
    pub(super) fn new(geometry: Geometry, settings: &Settings) -> Self {
        let latencies = Latencies::nitro(u64::from(settings.block_bytes));
        let weu_pages = settings.weu_bytes / PAGE_BYTES;
        Self { nand: Nand::new(geometry, latencies), weu_pages, written: 0, reads: 0 }
    }
}

impl Store for Aligned {
    fn slots(&self) -> u32 {
        self.nand.geometry().pages() / self.weu_pages
    }

    fn write(&mut self, slot: u32, _sizes: &[u32]) {
        let pages = slot * self.weu_pages..(slot + 1) * self.weu_pages;
        let len = self.nand.geometry().pages_per_block();
        for page in pages {
            let block = page / len;
            if page.is_multiple_of(len) && self.nand.next_page(block).is_none() {
                self.nand.erase(block);
            }
            self.nand.program(page, Stored { page, tag: 0 });
            self.written += 1;
        }
    }

    fn read(&mut self, slot: u32, pages: std::ops::Range<u32>) {
        for page in pages {
            self.nand.read(slot * self.weu_pages + page);
            self.reads += 1;
        }
    }

    fn stats(&self) -> Stats {
        Stats { host_writes: self.written, host_reads: self.reads, ..Stats::of(&self.nand) }
    }
}

/// A stored extent.
#[derive(Debug, Clone, Copy)]
struct Place {
    content: u64,
    slot: u32,
    generation: u32,
    offset: u32,
    bytes: u32,
}

struct Cache<S> {
    store: S,
    settings: Settings,
    generations: Vec<u32>,
    /// Extents and contents inserted by each unit.
    headers: Vec<Vec<(u64, u64)>>,
    index: Map<u64, Place>,
    contents: Map<u64, Place>,
    lru: Lru,
    unused: u32,
    /// The WEU that is being packed, and how full it is.
    open: u32,
    fill_bytes: u32,
    /// Compressed size of each of its pages.
    sizes: Vec<u32>,
    outcome: Outcome,
}

impl<S: Store> Cache<S> {
    fn good(&self, place: Option<&Place>) -> Option<Place> {
        place.copied().filter(|place| self.generations[usize_from_u32(place.slot)] == place.generation)
    }

    /// Takes a slot for the next WEU, from the least recently used one if none is unused.
    fn open(&mut self) {
        let slot = if self.unused < self.store.slots() {
            self.unused += 1;
            self.unused - 1
        } else {
            let Some(slot) = self.lru.pop() else { panic!("every slot is being packed") };
            slot
        };
        let at = usize_from_u32(slot);
        let ours = |place: &Place| place.slot == slot;
        for (key, content) in std::mem::take(&mut self.headers[at]) {
            if self.index.get(&key).is_some_and(ours) {
                self.index.remove(&key);
            }
            if self.contents.get(&content).is_some_and(ours) {
                self.contents.remove(&content);
            }
        }
        self.generations[at] += 1;
        self.open = slot;
        // The header is the first page.
        self.fill_bytes = PAGE_BYTES;
        self.sizes.fill(0);
        self.sizes[0] = HEADER_COMPRESSED_BYTES;
    }

    /// Records the compressed size of the pages that hold an extent: compressed data does not shrink again.
    fn note_sizes(&mut self, access: &Access, place: &Place) {
        let whole = u64::from(self.settings.extent_bytes);
        let alone = u64::from(access.compressed_bytes) * BY_PAGE_PERMILLE / 1000;
        let small = if self.settings.compress { u64::from(place.bytes) } else { alone.min(whole) };
        let (mut at, end) = (place.offset, place.offset + place.bytes);
        while at < end {
            let next = (at / PAGE_BYTES + 1) * PAGE_BYTES;
            let part = u64::from(end.min(next) - at) * small / u64::from(place.bytes);
            self.sizes[usize_from_u32(at / PAGE_BYTES)] += u32::try_from(part).unwrap_or(PAGE_BYTES);
            at = next;
        }
    }

    fn insert(&mut self, access: &Access) {
        if self.settings.dedup
            && let Some(place) = self.good(self.contents.get(&access.content))
        {
            self.index.insert(access.key, place);
            self.lru_touch(place.slot);
            return;
        }
        let bytes = if self.settings.compress { access.compressed_bytes } else { self.settings.extent_bytes };
        if self.fill_bytes + bytes > self.settings.weu_bytes {
            self.store.write(self.open, &self.sizes);
            self.lru.touch(self.open);
            self.open();
        }
        let at = usize_from_u32(self.open);
        let place = Place {
            content: access.content,
            slot: self.open,
            generation: self.generations[at],
            offset: self.fill_bytes,
            bytes,
        };
        self.fill_bytes += bytes;
        self.note_sizes(access, &place);
        self.headers[at].push((access.key, access.content));
        self.index.insert(access.key, place);
        self.contents.insert(access.content, place);
        self.outcome.stored += 1;
    }

    fn lru_touch(&mut self, slot: u32) {
        if slot != self.open {
            self.lru.touch(slot);
        }
    }

    fn access(&mut self, access: &Access) {
        let found = self.good(self.index.get(&access.key));
        if access.write {
            self.insert(access);
            return;
        }
        self.outcome.reads += 1;
        let Some(place) = found.filter(|place| place.content == access.content) else {
            self.outcome.stale += u64::from(found.is_some());
            self.insert(access);
            return;
        };
        self.outcome.hits += 1;
        self.lru_touch(place.slot);
        if place.slot != self.open {
            let pages = place.offset / PAGE_BYTES..(place.offset + place.bytes).div_ceil(PAGE_BYTES);
            self.store.read(place.slot, pages);
        }
    }
}

/// Runs accesses through a cache of WEUs.
pub(super) fn run<S: Store>(
    store: S,
    settings: &Settings,
    accesses: impl Iterator<Item = Access>,
) -> (Outcome, S) {
    let slots = store.slots();
    let mut cache = Cache {
        generations: vec![0; usize_from_u32(slots)],
        headers: vec![Vec::new(); usize_from_u32(slots)],
        store,
        settings: *settings,
        index: Map::default(),
        contents: Map::default(),
        lru: Lru::new(slots),
        unused: 0,
        open: 0,
        fill_bytes: 0,
        sizes: vec![0; usize_from_u32(settings.weu_bytes / PAGE_BYTES)],
        outcome: Outcome::default(),
    };
    cache.open();
    accesses.for_each(|access| cache.access(&access));
    (Outcome { flash: cache.store.stats(), ..cache.outcome }, cache.store)
}
