//! The fingerprint index: a part of what is stored, within a budget.
//!
//! Job: say which chunk may have a fingerprint. A hint: the chunk table holds the whole fingerprint, and is asked before
//! contents are shared. Invariant: never more entries than the budget; the oldest goes first. What it does not do: live
//! through a restart; the sweep, which passes all chunks, fills it again.

use std::collections::VecDeque;

use zc_core::{Fingerprint, Map};

use crate::ids::ChunkNo;

/// Bytes of an entry: 8 and 8 in the table at 7/8 load with a control byte, 8 in the line.
pub(crate) const ENTRY_BYTES: usize = 28;

/// The index.
#[derive(Debug)]
pub(crate) struct Fingerprints {
    by_prefix: Map<u64, ChunkNo>,
    line: VecDeque<u64>,
    max: usize,
}

impl Fingerprints {
    pub(crate) fn new(max: usize) -> Self {
        Self { by_prefix: Map::default(), line: VecDeque::new(), max }
    }

    pub(crate) fn find(&self, print: &Fingerprint) -> Option<ChunkNo> {
        self.by_prefix.get(&print.prefix()).copied()
    }

    pub(crate) fn insert(&mut self, print: &Fingerprint, number: ChunkNo) {
        if self.max == 0 {
            return;
        }
        if self.by_prefix.insert(print.prefix(), number).is_none() {
            self.line.push_back(print.prefix());
        }
        while self.line.len() > self.max {
            if let Some(oldest) = self.line.pop_front() {
                self.by_prefix.remove(&oldest);
            }
        }
    }

    /// Adds one that a sweep passed, if there is room.
    pub(crate) fn remember(&mut self, print: &Fingerprint, number: ChunkNo) {
        if self.line.len() < self.max {
            self.insert(print, number);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_goes_first_and_the_budget_holds() {
        let print = |n: u8| Fingerprint([n; 32]);
        let mut index = Fingerprints::new(2);
        (1..=3).for_each(|n| index.insert(&print(n), ChunkNo(u64::from(n))));
        assert_eq!((index.find(&print(1)), index.find(&print(3)), index.len()), (None, Some(ChunkNo(3)), 2));
        index.remember(&print(4), ChunkNo(4));
        assert_eq!(index.find(&print(4)), None);
        index.insert(&print(3), ChunkNo(9));
        assert_eq!((index.find(&print(3)), index.len()), (Some(ChunkNo(9)), 2));
    }
}
