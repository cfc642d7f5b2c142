//! The fingerprint index: a part of what is stored, within a budget.
//!
//! Job: say which chunk may have a fingerprint. A hint: the chunk table holds the whole fingerprint, and is asked before
//! contents are shared. Half of the budget are *samples*: every 2^n-th fingerprint of the whole store, by its bits, so a
//! stream of duplicates meets one soon. The other half are *lists*: all fingerprints of leaves of the chunk table, whose
//! numbers were given one after the other, so they belong to one stream. A hit brings the list of its leaf and of the
//! next, and a stream that goes on finds all (Zhu and others, FAST 2008; Lillibridge and others, FAST 2009).
//!
//! Invariant: never more entries than the budget; the list that was of use longest ago goes first. What it does not do:
//! read the table; live through a restart (the sweep, which passes all chunks, takes samples again).

use std::collections::BTreeMap;

use zc_core::{Fingerprint, HashKey, KeyedMap, Map};

use crate::ids::ChunkNo;

/// Bytes of an entry: 8 and 8 in a table at 7/8 load with a control byte, 8 in a list.
const ENTRY_BYTES: usize = 28;
/// And of a list: 40 and 8 in a table, 16 in an ordered set, each with what is empty.
const LIST_BYTES: usize = 80;
/// Samples are taken at most this seldom.
const SHIFT_MAX: u32 = 32;

/// The fingerprints of one leaf of the chunk table, or those of them that were stored lately.
#[derive(Debug, Default)]
struct List {
    prefixes: Vec<u64>,
    used: u64,
    /// The whole leaf was read.
    is_whole: bool,
}

/// The index.
#[derive(Debug)]
pub(crate) struct Fingerprints {
    samples: KeyedMap<u64, ChunkNo>,
    samples_max: usize,
    /// One of 2^shift is taken.
    shift: u32,
    listed: KeyedMap<u64, ChunkNo>,
    listed_max: usize,
    lists: Map<u64, List>,
    by_use: BTreeMap<u64, u64>,
    clock: u64,
    /// Chunks of a leaf.
    per_leaf: u64,
}

impl Fingerprints {
    pub(crate) fn new(max: usize, per_leaf: u64, key: &HashKey) -> Self {
        Self {
            samples: key.map(),
            samples_max: max / 2,
            shift: 0,
            listed: key.map(),
            listed_max: max - max / 2,
            lists: Map::default(),
            by_use: BTreeMap::new(),
            clock: 0,
            per_leaf,
        }
    }

    pub(crate) fn find(&self, print: &Fingerprint) -> Option<ChunkNo> {
        let prefix = print.prefix();
        self.listed.get(&prefix).or_else(|| self.samples.get(&prefix)).copied()
    }

    /// A new chunk.
    pub(crate) fn insert(&mut self, print: &Fingerprint, number: ChunkNo) {
        self.sample(print, number);
        let leaf = number.0 / self.per_leaf;
        self.touch(leaf);
        self.list(leaf, print.prefix(), number);
        self.shrink();
    }

    /// A chunk that a sweep passed.
    pub(crate) fn sample(&mut self, print: &Fingerprint, number: ChunkNo) {
        if self.samples_max == 0 || !self.is_sample(print.prefix()) {
            return;
        }
        self.samples.insert(print.prefix(), number);
        while self.samples.len() > self.samples_max && self.shift < SHIFT_MAX {
            self.shift += 1;
            let shift = self.shift;
            self.samples.retain(|prefix, _| is_sample(*prefix, shift));
        }
    }

    fn is_sample(&self, prefix: u64) -> bool {
        is_sample(prefix, self.shift)
    }

    /// Contents were found stored under this number: the leaves whose lists are needed now.
    pub(crate) fn found(&mut self, number: ChunkNo) -> Vec<u64> {
        if self.listed_max == 0 {
            return Vec::new();
        }
        let leaf = number.0 / self.per_leaf;
        self.touch(leaf);
        let is_needed = |leaf: &u64| !self.lists.get(leaf).is_some_and(|list| list.is_whole);
        [leaf, leaf + 1].into_iter().filter(is_needed).collect()
    }

    /// The fingerprints of a leaf.
    pub(crate) fn load(&mut self, leaf: u64, prints: &[(Fingerprint, ChunkNo)]) {
        self.touch(leaf);
        for (print, number) in prints {
            self.list(leaf, print.prefix(), *number);
        }
        if let Some(list) = self.lists.get_mut(&leaf) {
            list.is_whole = true;
        }
        self.shrink();
    }

    fn touch(&mut self, leaf: u64) {
        self.clock += 1;
        let list = self.lists.entry(leaf).or_default();
        self.by_use.remove(&list.used);
        list.used = self.clock;
        self.by_use.insert(self.clock, leaf);
    }

    fn list(&mut self, leaf: u64, prefix: u64, number: ChunkNo) {
        let is_new = self.listed.insert(prefix, number).is_none();
        if is_new && let Some(list) = self.lists.get_mut(&leaf) {
            list.prefixes.push(prefix);
        }
    }

    /// Drops lists until the rest is within the budget. An empty list counts for one entry.
    fn shrink(&mut self) {
        while self.listed.len().max(self.lists.len()) > self.listed_max {
            let Some((_, leaf)) = self.by_use.pop_first() else { return };
            for prefix in self.lists.remove(&leaf).map(|list| list.prefixes).into_iter().flatten() {
                self.listed.remove(&prefix);
            }
        }
    }

    /// Memory in use.
    pub(crate) fn bytes(&self) -> usize {
        (self.samples.len() + self.listed.len()) * ENTRY_BYTES + self.lists.len() * LIST_BYTES
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.samples.len() + self.listed.len()
    }
}

/// The low bits of a fingerprint's prefix say whether it is a sample.
const fn is_sample(prefix: u64, shift: u32) -> bool {
    prefix & ((1 << shift) - 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_LEAF: u64 = 72;

    /// The fingerprint of some contents.
    fn print(contents: u64) -> Fingerprint {
        let mut print = Fingerprint([0; 32]);
        let mut word = contents;
        for at in (0..32).step_by(8) {
            word = (word ^ (word >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ contents;
            print.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        print
    }

    /// A chunk table, and an index that reads its leaves.
    struct Table {
        prints: Vec<Fingerprint>,
        index: Fingerprints,
        leaf_reads: u64,
    }

    impl Table {
        fn new(budget: usize) -> Self {
            Self {
                prints: Vec::new(),
                index: Fingerprints::new(budget, PER_LEAF, &HashKey::fixed()),
                leaf_reads: 0,
            }
        }

        /// Whether the contents were found; they are stored if not.
        fn write(&mut self, contents: u64) -> bool {
            let print = print(contents);
            let found = self.index.find(&print).filter(|number| {
                self.prints.get(usize::try_from(number.0).unwrap()).is_some_and(|known| *known == print)
            });
            let Some(number) = found else {
                let number = ChunkNo(self.prints.len() as u64);
                self.prints.push(print);
                self.index.insert(&print, number);
                return false;
            };
            for leaf in self.index.found(number) {
                let numbers = leaf * PER_LEAF..((leaf + 1) * PER_LEAF).min(self.prints.len() as u64);
                let list: Vec<_> =
                    numbers.map(|n| (self.prints[usize::try_from(n).unwrap()], ChunkNo(n))).collect();
                self.index.load(leaf, &list);
                self.leaf_reads += 1;
            }
            true
        }
    }

    #[test]
    fn a_hundred_generations_find_what_is_stored_within_a_seventh_of_it() {
        const CHUNKS: usize = 40_000;
        const BUDGET: usize = 16 << 10;
        let mut table = Table::new(BUDGET);
        let mut volume: Vec<u64> = (0..CHUNKS as u64).map(|n| n + 1).collect();
        assert!(!volume.iter().any(|contents| table.write(*contents)), "all is new");
        let (mut next, mut draw, mut duplicates, mut found) = (1 << 32, 1_u64, 0_u64, 0_u64);
        for _ in 0..100 {
            let mut is_new = vec![false; CHUNKS];
            // Two per cent change, 40 chunks at a place.
            for _ in 0..CHUNKS / 50 / 40 {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let first = usize::try_from((draw >> 33) % (CHUNKS as u64 - 40)).unwrap();
                for address in first..first + 40 {
                    next += 1;
                    volume[address] = next;
                    is_new[address] = true;
                }
            }
            for (contents, is_new) in volume.iter().zip(is_new) {
                duplicates += u64::from(!is_new);
                found += u64::from(table.write(*contents));
                assert!(table.index.len() <= BUDGET);
            }
        }
        let share = found * 1000 / duplicates;
        let per_chunk = (table.index.bytes() * 100 / table.prints.len()) as u64;
        println!(
            "{found} of {duplicates} duplicates found ({share} per mille), {} stored, {}.{:02} bytes a chunk, \
             {} leaves read",
            table.prints.len(),
            per_chunk / 100,
            per_chunk % 100,
            table.leaf_reads
        );
        assert!(share >= 950, "{share} per mille of the duplicates were found");
        assert!(table.leaf_reads < duplicates / 20, "{} leaves read", table.leaf_reads);
    }

    #[test]
    fn samples_thin_out_and_lists_leave_by_use() {
        let mut index = Fingerprints::new(8, 2, &HashKey::fixed());
        (0..100).for_each(|n| index.sample(&print(n), ChunkNo(n)));
        assert!(index.samples.len() <= 4 && index.shift >= 4, "{index:?}");
        let mut index = Fingerprints::new(8, 2, &HashKey::fixed());
        let all = |leaf: u64| [2 * leaf, 2 * leaf + 1].map(|n| (print(n), ChunkNo(n)));
        index.load(0, &all(0));
        index.load(1, &all(1));
        assert_eq!(index.found(ChunkNo(0)), Vec::<u64>::new());
        index.load(2, &all(2));
        let found = |index: &Fingerprints, n| index.find(&print(n)).is_some();
        assert!(found(&index, 0) && found(&index, 1) && found(&index, 4) && !found(&index, 2));
        assert_eq!(index.found(ChunkNo(1)), [1]);
    }

    #[test]
    fn a_budget_of_nothing_holds_nothing() {
        let mut index = Fingerprints::new(0, 72, &HashKey::fixed());
        index.insert(&print(1), ChunkNo(1));
        assert_eq!((index.len(), index.find(&print(1))), (0, None));
        assert_eq!(index.found(ChunkNo(1)), Vec::<u64>::new());
    }
}
