//! The page cache: pages of all trees in memory, within a budget.
//!
//! Job: hold pages, know which differ from the device, drop the longest unused clean ones. Invariants: a page that
//! differs from the device, or whose write has not ended, is never dropped; so a page that is not here can be read.
//! What it does not do: find pages on the device (the trees do), read or write.

use std::collections::{BTreeMap, BTreeSet};

use zc_core::{HashKey, KeyedMap};

use crate::ids::Pointer;
use crate::media::Block;
use crate::media::page::PageKey;

/// A page that has to be read before the work can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) key: PageKey,
    pub(crate) pointer: Pointer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Clean,
    Dirty,
    /// In a batch whose write has not ended.
    Writing,
}

#[derive(Debug)]
struct Frame {
    block: Box<Block>,
    state: State,
    used: u64,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Pager {
    frames: KeyedMap<PageKey, Frame>,
    by_use: BTreeMap<u64, PageKey>,
    dirty: BTreeSet<PageKey>,
    writing: BTreeSet<PageKey>,
    clock: u64,
}

impl Pager {
    pub(crate) fn new(key: &HashKey) -> Self {
        Self {
            frames: key.map(),
            by_use: BTreeMap::new(),
            dirty: BTreeSet::new(),
            writing: BTreeSet::new(),
            clock: 0,
        }
    }

    /// The page, if it is here.
    pub(crate) fn get(&mut self, key: PageKey) -> Option<&Block> {
        self.clock += 1;
        let frame = self.frames.get_mut(&key)?;
        self.by_use.remove(&frame.used);
        frame.used = self.clock;
        self.by_use.insert(self.clock, key);
        Some(&frame.block)
    }

    pub(crate) fn has(&self, key: PageKey) -> bool {
        self.frames.contains_key(&key)
    }

    /// A page that a step before this one has made sure of.
    ///
    /// # Panics
    /// When it is not here.
    pub(crate) fn page(&mut self, key: PageKey) -> &Block {
        let Some(block) = self.get(key) else { panic!("{key:?} was made sure of and is not in memory") };
        block
    }

    /// A page that is to be changed.
    ///
    /// # Panics
    /// When it is not here.
    pub(crate) fn edit(&mut self, key: PageKey) -> &mut Block {
        self.mark_dirty(key);
        let Some(frame) = self.frames.get_mut(&key) else {
            panic!("{key:?} is to be changed, not in memory")
        };
        &mut frame.block
    }

    /// Marks a page dirty: the page has to be written, so it stays.
    pub(crate) fn mark_dirty(&mut self, key: PageKey) {
        self.page(key);
        if let Some(frame) = self.frames.get_mut(&key) {
            frame.state = State::Dirty;
        }
        self.writing.remove(&key);
        self.dirty.insert(key);
    }

    /// A page that did not exist.
    pub(crate) fn insert_new(&mut self, key: PageKey, block: Box<Block>) {
        self.insert(key, block, State::Dirty);
        self.dirty.insert(key);
    }

    /// A page was read. One that is here already is newer.
    pub(crate) fn insert_read(&mut self, key: PageKey, block: Box<Block>) {
        if !self.has(key) {
            self.insert(key, block, State::Clean);
        }
    }

    fn insert(&mut self, key: PageKey, block: Box<Block>, state: State) {
        self.forget(key);
        self.clock += 1;
        self.by_use.insert(self.clock, key);
        self.frames.insert(key, Frame { block, state, used: self.clock });
    }

    /// The page is not part of any tree any more.
    pub(crate) fn forget(&mut self, key: PageKey) {
        if let Some(frame) = self.frames.remove(&key) {
            self.by_use.remove(&frame.used);
            self.dirty.remove(&key);
            self.writing.remove(&key);
        }
    }

    pub(crate) fn pages(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }

    /// Changed pages of one level of a table, in order.
    pub(crate) fn dirty_of(&self, first: PageKey) -> Vec<PageKey> {
        let last = PageKey { index: u64::MAX, ..first };
        self.dirty.range(first..=last).copied().collect()
    }

    /// The page is in a batch: a change from now on makes it dirty again.
    pub(crate) fn begin_write(&mut self, key: PageKey) {
        self.dirty.remove(&key);
        self.writing.insert(key);
        if let Some(frame) = self.frames.get_mut(&key) {
            frame.state = State::Writing;
        }
    }

    /// All writes that were begun have ended.
    pub(crate) fn end_writes(&mut self) {
        for key in core::mem::take(&mut self.writing) {
            if let Some(frame) = self.frames.get_mut(&key)
                && frame.state == State::Writing
            {
                frame.state = State::Clean;
            }
        }
    }

    /// The present moment, in uses of pages.
    pub(crate) fn now(&self) -> u64 {
        self.clock
    }

    /// Drops the longest unused clean pages beyond `pages_max`, none that `keeps` names and none used since `since`.
    pub(crate) fn shrink(&mut self, pages_max: usize, since: u64, keeps: impl Fn(PageKey) -> bool) {
        let mut excess = self.frames.len().saturating_sub(pages_max);
        if excess == 0 {
            return;
        }
        let mut gone = Vec::new();
        for (used, key) in self.by_use.range(..since) {
            let clean = self.frames.get(key).is_some_and(|frame| frame.state == State::Clean);
            if clean && !keeps(*key) {
                gone.push((*used, *key));
                excess -= 1;
                if excess == 0 {
                    break;
                }
            }
        }
        for (used, key) in gone {
            self.by_use.remove(&used);
            self.frames.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::BLOCK;
    use crate::media::page::TableId;

    fn key(index: u64) -> PageKey {
        PageKey { table: TableId::Chunks, level: 0, index }
    }

    fn read(pager: &mut Pager, index: u64) {
        pager.insert_read(key(index), Box::new([0; BLOCK]));
    }

    fn shrink(pager: &mut Pager, pages: usize) {
        let now = pager.now() + 1;
        pager.shrink(pages, now, |_| false);
    }

    #[test]
    fn only_clean_pages_leave_the_longest_unused_first() {
        let mut pager = Pager::new(&HashKey::fixed());
        (1..=4).for_each(|index| read(&mut pager, index));
        pager.get(key(1));
        pager.mark_dirty(key(2));
        shrink(&mut pager, 2);
        let held: Vec<bool> = (1..=4).map(|index| pager.has(key(index))).collect();
        assert_eq!(held, [true, true, false, false]);
        shrink(&mut pager, 0);
        assert!(!pager.has(key(1)) && pager.has(key(2)), "a changed page stays");
    }

    #[test]
    fn a_page_that_changes_while_it_is_written_stays() {
        let mut pager = Pager::new(&HashKey::fixed());
        pager.insert_new(key(1), Box::new([0; BLOCK]));
        pager.insert_new(key(2), Box::new([0; BLOCK]));
        pager.begin_write(key(1));
        pager.begin_write(key(2));
        shrink(&mut pager, 0);
        assert_eq!((pager.pages(), pager.dirty_pages()), (2, 0), "its write has not ended");
        pager.edit(key(2));
        pager.end_writes();
        shrink(&mut pager, 0);
        assert!(!pager.has(key(1)) && pager.has(key(2)));
        assert_eq!(pager.dirty_of(key(0)), [key(2)]);
    }

    #[test]
    fn what_is_here_is_newer_than_what_is_read_and_used_pages_stay() {
        let mut pager = Pager::new(&HashKey::fixed());
        pager.insert_new(key(1), Box::new([7; BLOCK]));
        read(&mut pager, 1);
        assert_eq!(pager.page(key(1))[0], 7);
        read(&mut pager, 2);
        let since = pager.now();
        read(&mut pager, 3);
        pager.shrink(0, since, |_| false);
        assert!(pager.has(key(2)) && pager.has(key(3)), "used since then");
        pager.forget(key(1));
        assert_eq!((pager.has(key(1)), pager.dirty_pages()), (false, 0));
    }
}
