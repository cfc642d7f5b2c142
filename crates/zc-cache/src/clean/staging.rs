//! Partly written extents, until they are complete.
//!
//! Small sequential writes complete an extent in memory. Otherwise the rest comes from the copy that the cache held
//! before the write (*merge*), never from the origin: a partial overwrite must not cost an origin read. An extent with
//! neither is dropped after some time. The memory is bounded.
//!
//! Invariant: the `valid` sectors of the buffer are the newest acknowledged bytes; `touched` covers every write that
//! began since the entry was created, so the old copy is valid for exactly the other sectors.

use core::ops::Range;
use std::collections::VecDeque;

use smallvec::SmallVec;
use zc_core::{BufId, ExtentKey, HashKey, KeyedMap, SectorMap};

use crate::index::file_index::Mapping;

/// Cached content before the first write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OldCopy {
    /// No copy, or a merged one.
    None,
    /// A mapping that readers must not use; its slot is pinned.
    Cached(Mapping),
    /// The old copy is being read into the entry.
    Merging,
}

#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) buf: BufId,
    pub(crate) valid: SectorMap,
    pub(crate) touched: SectorMap,
    /// Writes in flight that began after the entry was created.
    pub(crate) writers: SmallVec<[u64; 2]>,
    pub(crate) old: OldCopy,
    pub(crate) touched_ms: u64,
    /// Distinguishes entries of the same extent in the order of age.
    pub(crate) ticket: u64,
}

#[derive(Debug)]
pub(crate) struct Staging {
    entries: KeyedMap<ExtentKey, Staged>,
    order: VecDeque<(ExtentKey, u64)>,
    tickets: u64,
    max: usize,
}

impl Staging {
    pub(crate) fn new(bytes_max: u32, extent_bytes: u32, key: &HashKey) -> Self {
        let max = usize::try_from(bytes_max / extent_bytes.max(1)).unwrap_or(0);
        Self { entries: key.map(), order: VecDeque::new(), tickets: 0, max }
    }

    pub(crate) fn get(&self, key: &ExtentKey) -> Option<&Staged> {
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &ExtentKey) -> Option<&mut Staged> {
        self.entries.get_mut(key)
    }

    /// Staged extents, in no particular order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ExtentKey> {
        self.entries.keys().copied()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() < self.max
    }

    /// Returns `true` if entries should be completed or dropped now: completing one takes a device read, which a burst
    /// of writes must not wait for.
    pub(crate) fn is_crowded(&self) -> bool {
        self.entries.len() >= self.max / 4 * 3
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn insert(&mut self, key: ExtentKey, mut staged: Staged) {
        self.tickets += 1;
        staged.ticket = self.tickets;
        let before = self.entries.insert(key, staged);
        assert!(before.is_none(), "{key:?} staged twice");
        self.order.push_back((key, self.tickets));
    }

    pub(crate) fn remove(&mut self, key: &ExtentKey) -> Option<Staged> {
        let staged = self.entries.remove(key);
        if staged.is_some() && self.order.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.order
                .retain(|(key, ticket)| entries.get(key).is_some_and(|staged| staged.ticket == *ticket));
        }
        staged
    }

    /// Entries without a write in flight, oldest first.
    pub(crate) fn idle(&self) -> impl Iterator<Item = (ExtentKey, &Staged)> {
        self.order
            .iter()
            .filter_map(|(key, ticket)| self.entries.get(key).map(|staged| (*key, *ticket, staged)))
            .filter(|(_, ticket, staged)| staged.ticket == *ticket)
            .map(|(key, _, staged)| (key, staged))
            .filter(|(_, staged)| staged.writers.is_empty() && staged.old != OldCopy::Merging)
    }
}

impl Staged {
    pub(crate) fn write_begins(&mut self, id: u64, sectors: Range<u32>) {
        self.valid.remove(sectors.clone());
        self.touched.insert(sectors);
        self.writers.push(id);
    }

    /// Completes a write. Returns `false` if it began before the entry was created, so that its sectors are not
    /// recorded here.
    pub(crate) fn write_ends(&mut self, id: u64) -> bool {
        let at = self.writers.iter().position(|writer| *writer == id);
        at.map(|at| self.writers.swap_remove(at)).is_some()
    }

    /// Drops the contents and the old copy, which are both out of date.
    pub(crate) fn forget(&mut self, sectors: u32) {
        self.valid = SectorMap::EMPTY;
        self.touched.insert(0..sectors);
    }

    pub(crate) fn is_whole(&self, sectors: u32) -> bool {
        self.writers.is_empty() && self.valid.count() == sectors
    }
}
