//! Coarse map of the address space: the chunks that have any mappings.
//!
//! Job: restrict work on a long range of addresses to its mapped parts. Invariants: a chunk is listed if and only if
//! it has mappings, with their number. There are at most `chunks_max` chunks: when more would be needed, all become
//! twice as long. RAM: [`CHUNK_RAM_BYTES`] each.
//!
//! Out of scope: the mapped extents of a chunk (see the file index).

use core::ops::Range;
use std::collections::BTreeMap;

/// Binary logarithm of the keys in a chunk at first: 64 MiB of extents of 8 KiB.
const CHUNK_SHIFT: u32 = 13;
/// Mappings that the index holds for each chunk that may be listed.
const MAPPINGS_PER_CHUNK: u64 = 128;
/// Fewest chunks that may be listed.
const CHUNKS_MIN: u64 = 1024;
/// RAM of a listed chunk: key and count, and the tree's share.
const CHUNK_RAM_BYTES: u64 = 24;

/// The chunks that have mappings.
#[derive(Debug)]
pub(crate) struct Occupancy {
    counts: BTreeMap<u64, u32>,
    shift: u32,
    chunks_max: usize,
}

fn chunks_max(capacity: u64) -> u64 {
    (capacity / MAPPINGS_PER_CHUNK).max(CHUNKS_MIN)
}

impl Occupancy {
    /// Occupancy of an index of `capacity` mappings.
    pub(crate) fn new(capacity: u64) -> Self {
        let chunks_max = zc_core::usize_from_u64(chunks_max(capacity));
        Self { counts: BTreeMap::new(), shift: CHUNK_SHIFT, chunks_max }
    }

    /// RAM that it takes at most, in bytes.
    pub(crate) fn ram_bytes_max(capacity: u64) -> u64 {
        chunks_max(capacity) * CHUNK_RAM_BYTES
    }

    /// RAM that it takes now, in bytes.
    pub(crate) fn ram_bytes(&self) -> u64 {
        zc_core::u64_from_usize(self.counts.len()) * CHUNK_RAM_BYTES
    }

    /// Counts a key that was mapped and had no mapping.
    pub(crate) fn add(&mut self, key: u64) {
        *self.counts.entry(key >> self.shift).or_insert(0) += 1;
        while self.counts.len() > self.chunks_max {
            self.lengthen();
        }
    }

    /// Counts a key that lost its mapping.
    pub(crate) fn remove(&mut self, key: u64) {
        let chunk = key >> self.shift;
        if let Some(count) = self.counts.get_mut(&chunk) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&chunk);
            }
        }
    }

    /// The parts of a range of keys that have mappings, in order, and how many mappings each chunk has.
    pub(crate) fn parts(&self, keys: Range<u64>) -> impl Iterator<Item = (Range<u64>, u32)> {
        let shift = self.shift;
        let chunks = if keys.is_empty() { 0..0 } else { keys.start >> shift..((keys.end - 1) >> shift) + 1 };
        self.counts.range(chunks).map(move |(chunk, count)| {
            let (start, end) = (chunk << shift, (chunk + 1) << shift);
            (start.max(keys.start)..end.min(keys.end), *count)
        })
    }

    fn lengthen(&mut self) {
        self.shift += 1;
        let mut longer: BTreeMap<u64, u32> = BTreeMap::new();
        for (chunk, count) in core::mem::take(&mut self.counts) {
            *longer.entry(chunk >> 1).or_insert(0) += count;
        }
        self.counts = longer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(occupancy: &Occupancy, keys: Range<u64>) -> Vec<(Range<u64>, u32)> {
        occupancy.parts(keys).collect()
    }

    #[test]
    fn only_what_has_mappings_is_shown() {
        let chunk = 1 << CHUNK_SHIFT;
        let mut occupancy = Occupancy::new(1000);
        for key in [5, 6, 10 * chunk] {
            occupancy.add(key);
        }
        assert_eq!(parts(&occupancy, 0..u64::MAX >> 16), [(0..chunk, 2), (10 * chunk..11 * chunk, 1)]);
        assert_eq!(parts(&occupancy, 6..10 * chunk), [(6..chunk, 2)]);
        assert_eq!(parts(&occupancy, 7..7), []);
        occupancy.remove(5);
        occupancy.remove(6);
        assert_eq!(parts(&occupancy, 0..11 * chunk), [(10 * chunk..11 * chunk, 1)]);
        assert_eq!(occupancy.ram_bytes(), CHUNK_RAM_BYTES);
    }

    #[test]
    fn chunks_become_longer_when_there_are_too_many() {
        let chunk = 1 << CHUNK_SHIFT;
        let mut occupancy = Occupancy::new(0);
        for number in 0..=CHUNKS_MIN {
            occupancy.add(number * chunk);
        }
        assert!(occupancy.ram_bytes() <= Occupancy::ram_bytes_max(0));
        assert_eq!(parts(&occupancy, 0..chunk), [(0..chunk, 2)]);
        for number in 0..=CHUNKS_MIN {
            occupancy.remove(number * chunk);
        }
        assert_eq!(occupancy.ram_bytes(), 0);
    }
}
