//! A cache of extents, each in a slot of its own, evicted one by one.
//!
//! Invariants: a slot without references is free; equal contents have one slot if the cache deduplicates.

use std::collections::VecDeque;

use zc_core::{Map, usize_from_u32};

use super::{Access, Outcome, PAGE_BYTES, Settings};
use crate::Ftl;
use crate::lru::Lru;
use crate::stats::Stats;

/// Storage of extents.
pub(super) trait Store {
    /// Most extents.
    fn slots(&self) -> u32;
    /// Returns `true` if another extent can be written now; if not, one has to be dropped.
    fn room(&mut self) -> bool;
    fn write(&mut self, slot: u32);
    fn read(&mut self, slot: u32);
    /// The extent is not needed any more.
    fn release(&mut self, slot: u32);
    fn stats(&self) -> Stats;
}

/// An SSD as it is sold.
pub(super) struct Sold {
    ftl: Box<dyn Ftl>,
    extent_pages: u32,
    trim: bool,
}

impl Sold {
    pub(super) fn new(ftl: Box<dyn Ftl>, settings: &Settings, trim: bool) -> Self {
        Self { ftl, extent_pages: settings.extent_bytes / PAGE_BYTES, trim }
    }

    fn pages(&self, slot: u32) -> std::ops::Range<u32> {
        slot * self.extent_pages..(slot + 1) * self.extent_pages
    }
}

impl Store for Sold {
    fn slots(&self) -> u32 {
        self.ftl.pages() / self.extent_pages
    }

    fn room(&mut self) -> bool {
        true
    }

    fn write(&mut self, slot: u32) {
        self.pages(slot).for_each(|page| self.ftl.write(page, slot));
    }

    fn read(&mut self, slot: u32) {
        for page in self.pages(slot) {
            assert_eq!(self.ftl.read(page), Some(slot), "what the index names is on the SSD");
        }
    }

    fn release(&mut self, slot: u32) {
        if self.trim {
            self.pages(slot).for_each(|page| self.ftl.trim(page));
        }
    }

    fn stats(&self) -> Stats {
        self.ftl.stats()
    }
}

/// Contents of a slot.
#[derive(Debug, Clone, Default)]
struct Slot {
    content: u64,
    keys: Vec<u64>,
}

struct Cache<S> {
    store: S,
    dedup: bool,
    slots: Vec<Slot>,
    index: Map<u64, u32>,
    contents: Map<u64, u32>,
    lru: Lru,
    free: VecDeque<u32>,
    outcome: Outcome,
}

impl<S: Store> Cache<S> {
    /// The last reference to a slot went.
    fn release(&mut self, slot: u32) {
        let held = std::mem::take(&mut self.slots[usize_from_u32(slot)]);
        if self.dedup {
            self.contents.remove(&held.content);
        }
        held.keys.iter().for_each(|key| {
            self.index.remove(key);
        });
        self.lru.remove(slot);
        self.store.release(slot);
        self.free.push_back(slot);
    }

    /// Unmaps an extent that is being overwritten.
    fn unmap(&mut self, key: u64) {
        let Some(slot) = self.index.remove(&key) else { return };
        let keys = &mut self.slots[usize_from_u32(slot)].keys;
        keys.retain(|other| *other != key);
        if keys.is_empty() {
            self.release(slot);
        }
    }

    fn insert(&mut self, access: &Access) {
        let shared = if self.dedup { self.contents.get(&access.content).copied() } else { None };
        if let Some(slot) = shared {
            if self.index.get(&access.key) != Some(&slot) {
                self.unmap(access.key);
                self.index.insert(access.key, slot);
                self.slots[usize_from_u32(slot)].keys.push(access.key);
            }
            self.lru.touch(slot);
            return;
        }
        self.unmap(access.key);
        let slot = loop {
            if !self.free.is_empty()
                && self.store.room()
                && let Some(slot) = self.free.pop_front()
            {
                break slot;
            }
            let Some(victim) = self.lru.pop() else {
                panic!("the SSD takes no extent, though it holds none")
            };
            self.release(victim);
        };
        self.store.write(slot);
        self.slots[usize_from_u32(slot)] = Slot { content: access.content, keys: vec![access.key] };
        self.index.insert(access.key, slot);
        if self.dedup {
            self.contents.insert(access.content, slot);
        }
        self.lru.touch(slot);
        self.outcome.stored += 1;
    }

    fn access(&mut self, access: &Access) {
        if access.write {
            self.insert(access);
            return;
        }
        self.outcome.reads += 1;
        let found = self.index.get(&access.key).copied();
        let newest = |slot: &u32| self.slots[usize_from_u32(*slot)].content == access.content;
        if let Some(slot) = found.filter(newest) {
            self.outcome.hits += 1;
            self.lru.touch(slot);
            self.store.read(slot);
        } else {
            self.outcome.stale += u64::from(found.is_some());
            self.insert(access);
        }
    }
}

/// Runs accesses through a cache of extents.
pub(super) fn run(store: impl Store, settings: &Settings, accesses: impl Iterator<Item = Access>) -> Outcome {
    let slots = store.slots();
    let mut cache = Cache {
        store,
        dedup: settings.dedup,
        slots: vec![Slot::default(); usize_from_u32(slots)],
        index: Map::default(),
        contents: Map::default(),
        lru: Lru::new(slots),
        free: (0..slots).collect(),
        outcome: Outcome::default(),
    };
    accesses.for_each(|access| cache.access(&access));
    let used = cache.slots.iter().filter(|slot| !slot.keys.is_empty()).count();
    assert_eq!(used + cache.free.len(), cache.slots.len(), "a slot is referred to or free");
    Outcome { flash: cache.store.stats(), ..cache.outcome }
}
