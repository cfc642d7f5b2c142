//! Entries of maps that changed since they were last folded.
//!
//! Invariant: the count of changed leaves is that of the leaves of the entries. It does not know which roots exist.

use std::collections::BTreeMap;
use std::ops::Range;

use super::LEAF_BLOCKS;
use crate::format2::leaf::Cell;
use zc_core::u64_from_usize;

/// Changed entries by root and block.
#[derive(Debug, Default)]
pub(super) struct Changes {
    cells: BTreeMap<(u32, u64), Cell>,
    /// Entries of each changed leaf.
    leaves: BTreeMap<(u32, u64), u32>,
}

impl Changes {
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub(super) fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    pub(super) fn insert(&mut self, root: u32, block: u64, cell: Cell) {
        if self.cells.insert((root, block), cell).is_none() {
            *self.leaves.entry((root, block / LEAF_BLOCKS)).or_default() += 1;
        }
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        self.cells.values().copied()
    }

    /// Returns the entries of a range of blocks.
    pub(super) fn range(&self, root: u32, blocks: Range<u64>) -> impl Iterator<Item = (u64, Cell)> {
        let blocks = self.cells.range((root, blocks.start)..(root, blocks.end.max(blocks.start)));
        blocks.map(|((_, block), cell)| (*block, *cell))
    }

    /// Returns the changed leaves of a root, or of all.
    pub(super) fn leaves(&self, only: Option<u32>) -> Vec<(u32, u64)> {
        let ids = only.map_or((0, u32::MAX), |id| (id, id));
        self.leaves.range((ids.0, 0)..=(ids.1, u64::MAX)).map(|(key, _)| *key).collect()
    }

    /// Removes the entries of a range of blocks.
    pub(super) fn remove(&mut self, root: u32, blocks: Range<u64>) {
        let gone: Vec<u64> = self.range(root, blocks).map(|(block, _)| block).collect();
        for block in gone {
            self.cells.remove(&(root, block));
            let key = (root, block / LEAF_BLOCKS);
            if let Some(count) = self.leaves.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.leaves.remove(&key);
                }
            }
        }
    }

    /// Removes the entries of a root, or of all.
    pub(super) fn clear(&mut self, only: Option<u32>) {
        match only {
            Some(root) => self.remove(root, 0..u64::MAX),
            None => *self = Self::default(),
        }
    }

    /// Roots that have entries, with the last block of each.
    pub(super) fn last_blocks(&self) -> BTreeMap<u32, u64> {
        self.cells.keys().copied().collect()
    }

    /// Checks the counts of leaves.
    pub(super) fn check(&self) -> Result<(), String> {
        let counted: u64 = self.leaves.values().map(|count| u64::from(*count)).sum();
        let has_all = self.cells.keys().all(|(root, block)| {
            let key = (*root, block / LEAF_BLOCKS);
            self.leaves.contains_key(&key)
        });
        let is_sound = counted == u64_from_usize(self.cells.len()) && has_all;
        if is_sound { Ok(()) } else { Err(format!("{counted} entries are counted of {}", self.cells.len())) }
    }
}
