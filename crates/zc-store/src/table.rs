//! Tables: arrays of fixed records in checksummed pages, copied on write.
//!
//! Job: find, read and change records by number. Invariants: a page that can be changed is dirty and so are all above it,
//! because its place will change; a pointer holds the CRC of what it points to. What it does not do: choose places for
//! changed pages (the checkpoint does), or know what a record means.

use crate::ids::{Place, Pointer};
use crate::media::page::{CONTENTS, HEADER, PageKey, TableId, new_page};
use crate::media::superblock::{TableRoot, pointer_at, put_pointer};
use crate::pager::{Missing, Pager};

/// Bytes of a pointer in a page.
const POINTER_BYTES: usize = 16;
/// Pointers of a page.
pub(crate) const FANOUT: u64 = (CONTENTS / POINTER_BYTES) as u64;

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    id: TableId,
    record_bytes: usize,
    root: Pointer,
    height: u8,
}

impl Table {
    pub(crate) fn new(id: TableId, record_bytes: usize, root: TableRoot) -> Self {
        let height = u8::try_from(root.height).unwrap_or(u8::MAX);
        Self { id, record_bytes, root: root.pointer, height }
    }

    pub(crate) fn root(&self) -> TableRoot {
        TableRoot { pointer: self.root, height: u32::from(self.height) }
    }

    pub(crate) fn height(&self) -> u8 {
        self.height
    }

    /// Records of a leaf.
    pub(crate) fn per_leaf(&self) -> u64 {
        (CONTENTS / self.record_bytes) as u64
    }

    /// Leaves that the present height reaches.
    pub(crate) fn leaves(&self) -> u64 {
        self.capacity() / self.per_leaf()
    }

    /// Numbers that the present height reaches.
    pub(crate) fn capacity(&self) -> u64 {
        match self.height {
            0 => 0,
            height => FANOUT
                .checked_pow(u32::from(height) - 1)
                .map_or(u64::MAX, |leaves| leaves.saturating_mul(self.per_leaf())),
        }
    }

    fn key(&self, level: u8, index: u64) -> PageKey {
        PageKey { table: self.id, level, index }
    }

    fn leaf_of(&self, number: u64) -> PageKey {
        self.key(0, number / self.per_leaf())
    }

    fn at(&self, number: u64) -> core::ops::Range<usize> {
        let slot = zc_core::usize_from_u64(number % self.per_leaf());
        let start = HEADER + slot * self.record_bytes;
        start..start + self.record_bytes
    }

    /// Whether there is a page; if so it is in memory.
    fn find(&self, pager: &mut Pager, key: PageKey) -> Result<bool, Missing> {
        if pager.get(key).is_some() {
            return Ok(true);
        }
        match self.pointer(pager, key)? {
            pointer if pointer.is_some() => Err(Missing { key, pointer }),
            _ => Ok(false),
        }
    }

    /// The pointer to a page of this table.
    pub(crate) fn pointer(&self, pager: &mut Pager, key: PageKey) -> Result<Pointer, Missing> {
        if key.level + 1 >= self.height {
            return Ok(if key.level + 1 == self.height && key.index == 0 {
                self.root
            } else {
                Pointer::default()
            });
        }
        let above = self.key(key.level + 1, key.index / FANOUT);
        if !self.find(pager, above)? {
            return Ok(Pointer::default());
        }
        Ok(pointer_at(pager.page(above), slot_of(key.index)))
    }

    /// The record, or `None` where nothing was ever put.
    pub(crate) fn read<'a>(&self, pager: &'a mut Pager, number: u64) -> Result<Option<&'a [u8]>, Missing> {
        if number >= self.capacity() {
            return Ok(None);
        }
        let leaf = self.leaf_of(number);
        if !self.find(pager, leaf)? {
            return Ok(None);
        }
        Ok(Some(&pager.page(leaf)[self.at(number)]))
    }

    /// Numbers whose records are in a page or below it.
    pub(crate) fn numbers_below(&self, page: PageKey) -> core::ops::Range<u64> {
        let span = FANOUT.saturating_pow(u32::from(page.level)).saturating_mul(self.per_leaf());
        let first = span.saturating_mul(page.index);
        first..first.saturating_add(span)
    }

    /// Makes sure that a record can be changed: its page and those above it are in memory, and stay.
    pub(crate) fn make_writable(&mut self, pager: &mut Pager, number: u64) -> Result<(), Missing> {
        while number >= self.capacity() {
            let top = self.key(self.height, 0);
            let mut page = new_page(top, top.level, 0);
            put_pointer(&mut page[..], HEADER, self.root);
            pager.insert_new(top, page);
            self.root = Pointer::default();
            self.height += 1;
        }
        self.make_page_writable(pager, self.leaf_of(number))
    }

    /// Makes sure that a page can be changed: the page and those above it are in memory, and stay.
    pub(crate) fn make_page_writable(&mut self, pager: &mut Pager, page: PageKey) -> Result<(), Missing> {
        for level in (page.level..self.height).rev() {
            let index = page.index / FANOUT.pow(u32::from(level - page.level));
            let key = self.key(level, index);
            if self.find(pager, key)? {
                pager.mark_dirty(key);
            } else {
                pager.insert_new(key, new_page(key, level, 0));
            }
        }
        Ok(())
    }

    /// A record that was made writable.
    pub(crate) fn record_mut<'a>(&self, pager: &'a mut Pager, number: u64) -> &'a mut [u8] {
        let range = self.at(number);
        &mut pager.edit(self.leaf_of(number))[range]
    }

    /// A changed page gets a place. The place it had before, if any.
    pub(crate) fn set_pointer(&mut self, pager: &mut Pager, key: PageKey, pointer: Pointer) -> Option<Place> {
        let old = if key.level + 1 == self.height {
            core::mem::replace(&mut self.root, pointer)
        } else {
            let above = pager.edit(self.key(key.level + 1, key.index / FANOUT));
            let old = pointer_at(above, slot_of(key.index));
            put_pointer(above, slot_of(key.index), pointer);
            old
        };
        old.is_some().then_some(old.place)
    }
}

fn slot_of(index: u64) -> usize {
    HEADER + zc_core::usize_from_u64(index % FANOUT) * POINTER_BYTES
}
