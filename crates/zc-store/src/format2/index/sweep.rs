//! What lives: segments that maps and nodes lead to, for the cleaner.
//!
//! Invariant: [`Index::sweep`] is one step, so its answer is exact when it returns. It does not release segments.

use std::collections::BTreeSet;

use super::{Blocked, Index};
use crate::format2::leaf::{BLOCKS, Cell, Leaf};
use crate::format2::node::NodeRecord;

impl Index {
    /// Returns the leaves that a root's map has.
    pub(in crate::format2) fn leaves_of(&mut self, id: u32) -> Result<Vec<u64>, Blocked> {
        let Some(top) = self.roots.get(&id).map(|root| root.top) else { return Ok(Vec::new()) };
        Ok(self.all(top)?.into_iter().map(|(leaf, _)| leaf).collect())
    }

    /// Returns the segments to which a leaf leads, without the changes in memory.
    pub(in crate::format2) fn segments_of(&mut self, id: u32, leaf: u64) -> Result<BTreeSet<u64>, Blocked> {
        self.leaf(id, leaf).map(|leaf| named_segments(&leaf))
    }

    /// Returns the segments to which the changes in memory lead.
    pub(in crate::format2) fn changed_segments(&self) -> BTreeSet<u64> {
        self.changes.cells().filter_map(segment_of).collect()
    }

    /// Removes the records of nodes that no tree has, and returns the segments that hold the others.
    pub(in crate::format2) fn sweep(&mut self) -> Result<BTreeSet<u64>, Blocked> {
        let mut reached = BTreeSet::new();
        let tops: Vec<_> =
            self.roots.values().map(|root| root.top).chain([self.segments, self.catalog]).collect();
        for top in tops {
            self.numbers(top, &mut reached)?;
        }
        let (records, mut segments) = self.pages.all(&mut self.cache)?;
        for (number, record) in records {
            if reached.contains(&number) {
                let parts = [record.base, record.delta, record.recipes];
                segments.extend(parts.iter().flatten().map(|spot| spot.segment));
            } else {
                self.pages.touch(&mut self.cache, number)?;
                self.pages.set(number, NodeRecord::default());
            }
        }
        Ok(segments)
    }
}

fn segment_of(cell: Cell) -> Option<u64> {
    match cell {
        Cell::Stored(stored) => Some(stored.name.segment),
        Cell::Lost | Cell::Zero | Cell::Hole => None,
    }
}

/// Returns the segments that the entries of a leaf name.
pub(in crate::format2) fn named_segments(leaf: &Leaf) -> BTreeSet<u64> {
    (0..BLOCKS).filter_map(|block| leaf.get(block).and_then(segment_of)).collect()
}
