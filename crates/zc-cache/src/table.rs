//! A packed hash table for both indexes: exact keys, entries of any width, recency within a bucket.
//!
//! **Layout.** The table is one `Vec<u8>` of buckets with 16 entries each; an entry of N bits takes N/8 bytes, rounded
//! up. From its lowest bit up an entry holds the remainder of the key, one bit that says which of two hash functions
//! placed it, and the value. Values are never 0, so an all-zero entry is an empty one. Entries of a bucket are kept in
//! order of use, the latest first, without gaps.
//!
//! **Quotienting.** A hash function here is a permutation of the K-bit keys (odd multiplications and xor-shifts, both
//! invertible). For B buckets, any number, the permuted key p belongs to bucket b = floor(p * B / 2^K), and its rank
//! among the keys of that bucket is r = ((p * B) mod 2^K) / B, below ceil(2^K / B). Only r is stored: bucket, hash
//! number and r give p = ceil(b * 2^K / B) + r back, and the inverse permutation gives the key. Keys are exact, and
//! log2(B) of their bits cost nothing: for 48-bit keys and 10 million entries at 95 % load B = 657,895 and r has
//! 29 bits.
//!
//! **Load.** A new entry goes into the emptier of its two buckets. When both are full, one of their 32 entries moves to
//! its other bucket, oldest first. Two choices alone overflow a 16-entry bucket at about 85 % load; with the move the
//! first eviction comes above 97 %. Beyond [`MOVE_PERCENT_MAX`] nothing is moved: the table counts as full and the
//! oldest entry of a bucket is evicted.
//!
//! **Sweeps** visit every bucket once in ascending order, in steps. An entry that sits in the table for a whole pass is
//! visited in it: entries change buckets only by the move above, and no move goes from a bucket that a pass has still
//! to visit to one that it has visited. Up to [`SWEEPS_MAX`] passes are known at once; one that was displaced (an
//! abandoned pass leaves its cursor behind) starts again from the first bucket.
//!
//! What it does not do: grow, iterate in order of keys, give meaning to values.

use zc_core::{u64_from_usize, usize_from_u64};

/// Entries of a bucket.
pub(crate) const WAYS: usize = 16;
/// Entries are moved to make room only up to this load in per cent.
const MOVE_PERCENT_MAX: u64 = 97;
/// The table is sized so that its nominal capacity is this load in per cent.
const LOAD_PERCENT: u64 = 95;
/// Passes that are tracked at once.
const SWEEPS_MAX: usize = 4;
/// Most buckets: keeps p * B below 2^96.
const BUCKETS_MAX: u64 = 1 << 32;
/// Widest entry that can be read, in bytes.
const WINDOW_BYTES: usize = 16;

/// What a sweep does with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The entry stays.
    Yes,
    /// The entry is removed.
    No,
}

/// How far a sweep has come. The default is the start of a new pass. Belongs to the index it was first used with.
#[derive(Debug, Default)]
pub struct SweepCursor {
    ticket: u64,
    bucket: u64,
}

/// An invertible map of K-bit numbers to themselves.
#[derive(Debug)]
struct Permutation {
    mask: u64,
    shift: u32,
    forward: [u64; 3],
    backward: [u64; 3],
}

impl Permutation {
    fn new(bits: u32, factors: [u64; 3]) -> Self {
        Self {
            mask: u64::MAX >> (64 - bits),
            // With a shift of at least half the width, x ^= x >> shift is its own inverse.
            shift: bits.div_ceil(2),
            forward: factors,
            backward: factors.map(inverse),
        }
    }

    const fn apply(&self, key: u64) -> u64 {
        let [a, b, c] = self.forward;
        self.mix(key, a, b, c)
    }

    const fn invert(&self, permuted: u64) -> u64 {
        let [a, b, c] = self.backward;
        self.mix(permuted, c, b, a)
    }

    const fn mix(&self, key: u64, a: u64, b: u64, c: u64) -> u64 {
        let mut x = key.wrapping_mul(a) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(b) & self.mask;
        x ^= x >> self.shift;
        x.wrapping_mul(c) & self.mask
    }
}

/// Inverse of an odd number modulo 2^64 (Newton; each round doubles the correct bits, the first guess has 3).
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// The passes in progress: ticket and next bucket, the most recently moved last.
#[derive(Debug, Default)]
struct Sweeps {
    tickets: u64,
    active: smallvec::SmallVec<[(u64, u64); SWEEPS_MAX]>,
}

impl Sweeps {
    fn join(&mut self, cursor: &mut SweepCursor) {
        if self.active.contains(&(cursor.ticket, cursor.bucket)) {
            return;
        }
        if self.active.len() == SWEEPS_MAX {
            self.active.remove(0);
        }
        self.tickets += 1;
        *cursor = SweepCursor { ticket: self.tickets, bucket: 0 };
        self.active.push((cursor.ticket, 0));
    }

    fn advance(&mut self, cursor: &mut SweepCursor, bucket: u64) {
        self.leave(cursor);
        cursor.bucket = bucket;
        self.active.push((cursor.ticket, bucket));
    }

    fn leave(&mut self, cursor: &SweepCursor) {
        self.active.retain(|(ticket, _)| *ticket != cursor.ticket);
    }

    /// Whether an entry may change buckets without being missed by a pass.
    fn allow(&self, from: u64, to: u64) -> bool {
        self.active.iter().all(|&(_, next)| from < next || to >= next)
    }
}

/// Where an entry is, until the next change of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    bucket: u64,
    index: usize,
}

/// The table. See the module documentation.
#[derive(Debug)]
pub(crate) struct Table {
    permutations: [Permutation; 2],
    key_bits: u32,
    remainder_bits: u32,
    entry_bits: u32,
    entry_bytes: usize,
    buckets: u64,
    bytes: Vec<u8>,
    len: u64,
    sweeps: Sweeps,
}

/// Buckets for a nominal number of entries; none for 0.
pub(crate) fn buckets_for(capacity: u64) -> u64 {
    let ways = u64_from_usize(WAYS);
    capacity.saturating_mul(100).div_ceil(ways * LOAD_PERCENT)
}

/// Bits that a remainder takes when keys of `key_bits` bits are spread over `buckets`.
pub(crate) const fn remainder_bits(key_bits: u32, buckets: u64) -> u32 {
    let most = (1u128 << key_bits).div_ceil(if buckets == 0 { 1 } else { buckets as u128 }) - 1;
    128 - most.leading_zeros()
}

/// Width of an entry.
const fn entry_bits(key_bits: u32, value_bits: u32, buckets: u64) -> u32 {
    remainder_bits(key_bits, buckets) + 1 + value_bits
}

/// What [`Table::ram_bytes`] of such a table will be.
pub(crate) fn ram_bytes(key_bits: u32, value_bits: u32, buckets: u64) -> u64 {
    let entry_bytes = u64::from(entry_bits(key_bits, value_bits, buckets).div_ceil(8));
    let entries = buckets.saturating_mul(u64_from_usize(WAYS) * entry_bytes);
    if buckets == 0 { 0 } else { entries.saturating_add(u64_from_usize(WINDOW_BYTES)) }
}

impl Table {
    /// A table for keys below 2^`key_bits` and values from 1 to 2^`value_bits` - 1.
    ///
    /// # Panics
    /// When an entry would not fit in 128 bits, or with more than 2^32 buckets.
    pub(crate) fn new(key_bits: u32, value_bits: u32, buckets: u64) -> Self {
        assert!((1..=63).contains(&key_bits) && (1..=64).contains(&value_bits), "key or value too wide");
        assert!(buckets <= BUCKETS_MAX, "an index holds at most 2^36 entries");
        let remainder_bits = remainder_bits(key_bits, buckets);
        let entry_bits = entry_bits(key_bits, value_bits, buckets);
        assert!(entry_bits <= u128::BITS, "index entries are at most 128 bits wide");
        let entry_bytes = zc_core::usize_from_u32(entry_bits.div_ceil(8));
        Self {
            permutations: [
                Permutation::new(
                    key_bits,
                    [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xff51_afd7_ed55_8ccd],
                ),
                Permutation::new(
                    key_bits,
                    [0xc2b2_ae3d_27d4_eb4f, 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db],
                ),
            ],
            key_bits,
            remainder_bits,
            entry_bits,
            entry_bytes,
            buckets,
            // The last entry, too, is read through a window of 16 bytes.
            bytes: vec![0; usize_from_u64(ram_bytes(key_bits, value_bits, buckets))],
            len: 0,
            sweeps: Sweeps::default(),
        }
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) const fn buckets(&self) -> u64 {
        self.buckets
    }

    pub(crate) const fn places(&self) -> u64 {
        self.buckets * WAYS as u64
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        u64_from_usize(self.bytes.capacity())
    }

    /// The first entry of `key` whose value satisfies `wanted`.
    pub(crate) fn find(&self, key: u64, mut wanted: impl FnMut(u64) -> bool) -> Option<Spot> {
        if self.buckets == 0 {
            return None;
        }
        let same_tag = self.tag_mask();
        (0..2).find_map(|which| {
            let (bucket, tag) = self.locate(key, which);
            let bytes = &self.bytes[self.offset(bucket, 0)..];
            (0..WAYS)
                .filter(|index| window(bytes, index * self.entry_bytes, u64::from_le_bytes) & same_tag == tag)
                .map(|index| Spot { bucket, index })
                // An empty entry looks like the tag 0; its value tells it apart.
                .find(|spot| match self.value(*spot) {
                    0 => false,
                    value => wanted(value),
                })
        })
    }

    pub(crate) fn value(&self, spot: Spot) -> u64 {
        self.value_of(self.load(spot.bucket, spot.index))
    }

    /// Changes the value of an entry.
    pub(crate) fn set_value(&mut self, spot: Spot, value: u64) {
        let tag = low_u64(self.load(spot.bucket, spot.index)) & self.tag_mask();
        let entry = self.entry(tag, value);
        self.store(spot.bucket, spot.index, entry);
    }

    /// Makes an entry the most recently used of its bucket.
    pub(crate) fn touch(&mut self, spot: Spot) {
        let start = self.offset(spot.bucket, 0);
        let end = self.offset(spot.bucket, spot.index + 1);
        self.bytes[start..end].rotate_right(self.entry_bytes);
    }

    pub(crate) fn remove(&mut self, spot: Spot) {
        let start = self.offset(spot.bucket, spot.index);
        let end = self.offset(spot.bucket, WAYS);
        self.bytes[start..end].rotate_left(self.entry_bytes);
        self.store(spot.bucket, WAYS - 1, 0);
        self.len -= 1;
    }

    /// Adds an entry as the most recently used of its bucket, beside others of the same key if there are any.
    /// Returns the entry that had to go for it. A table without buckets hands the new entry back.
    pub(crate) fn insert(&mut self, key: u64, value: u64) -> Option<(u64, u64)> {
        if self.buckets == 0 {
            return Some((key, value));
        }
        let choices = [self.locate(key, 0), self.locate(key, 1)];
        let (used, which) = {
            let [first, second] = choices.map(|(bucket, _)| self.used(bucket));
            if second < first { (second, 1) } else { (first, 0) }
        };
        let (which, evicted) =
            match (used < WAYS).then_some(which).or_else(|| self.make_room(choices.map(|(b, _)| b))) {
                Some(which) => (which, None),
                None => (0, Some(self.evict(choices[0].0))),
            };
        let (bucket, tag) = choices[which];
        let used = self.used(bucket);
        let entry = self.entry(tag, value);
        self.store(bucket, used, entry);
        self.touch(Spot { bucket, index: used });
        self.len += 1;
        evicted
    }

    /// Calls `keep` with key and value of the entries in the next `steps` buckets of the pass. True when the pass has
    /// ended with this call; the cursor then stands at the start of the next one.
    pub(crate) fn sweep(
        &mut self,
        cursor: &mut SweepCursor,
        steps: usize,
        mut keep: impl FnMut(u64, u64) -> Keep,
    ) -> bool {
        self.sweeps.join(cursor);
        let end = self.buckets.min(cursor.bucket.saturating_add(u64_from_usize(steps)));
        for bucket in cursor.bucket..end {
            let mut index = 0;
            while index < WAYS {
                let entry = self.load(bucket, index);
                if entry == 0 {
                    break;
                }
                let (key, _) = self.key_of(bucket, entry);
                match keep(key, self.value_of(entry)) {
                    Keep::Yes => index += 1,
                    Keep::No => self.remove(Spot { bucket, index }),
                }
            }
        }
        if end == self.buckets {
            self.sweeps.leave(cursor);
            *cursor = SweepCursor::default();
            return true;
        }
        self.sweeps.advance(cursor, end);
        false
    }

    /// Moves one entry of two full buckets elsewhere; says which bucket has room now.
    fn make_room(&mut self, full: [u64; 2]) -> Option<usize> {
        if self.len * 100 > self.places() * MOVE_PERCENT_MAX {
            return None;
        }
        for index in (0..WAYS).rev() {
            for (which, &bucket) in full.iter().enumerate() {
                let entry = self.load(bucket, index);
                let (key, placed_by) = self.key_of(bucket, entry);
                let (other, tag) = self.locate(key, 1 - placed_by);
                let used = self.used(other);
                if used < WAYS && self.sweeps.allow(bucket, other) {
                    let moved = self.entry(tag, self.value_of(entry));
                    self.store(other, used, moved);
                    self.remove(Spot { bucket, index });
                    self.len += 1;
                    return Some(which);
                }
            }
        }
        None
    }

    fn evict(&mut self, bucket: u64) -> (u64, u64) {
        let entry = self.load(bucket, WAYS - 1);
        let (key, _) = self.key_of(bucket, entry);
        self.remove(Spot { bucket, index: WAYS - 1 });
        (key, self.value_of(entry))
    }

    /// Bucket of a key under one of the hash functions, and the key's part of the entry.
    fn locate(&self, key: u64, which: usize) -> (u64, u64) {
        debug_assert!(key >> self.key_bits == 0, "key wider than the table's");
        let scaled = u128::from(self.permutations[which].apply(key)) * u128::from(self.buckets);
        let bucket = low_u64(scaled >> self.key_bits);
        let rank = (low_u64(scaled) & self.permutations[which].mask) / self.buckets;
        (bucket, rank | (u64::from(which == 1) << self.remainder_bits))
    }

    /// Key of an entry and the number of the hash function that placed it.
    fn key_of(&self, bucket: u64, entry: u128) -> (u64, usize) {
        let rank = low_u64(entry & ((1 << self.remainder_bits) - 1));
        let which = usize::from((entry >> self.remainder_bits) & 1 == 1);
        let first = (u128::from(bucket) << self.key_bits).div_ceil(u128::from(self.buckets));
        (self.permutations[which].invert(low_u64(first) + rank), which)
    }

    const fn value_of(&self, entry: u128) -> u64 {
        low_u64(entry >> (self.remainder_bits + 1))
    }

    fn entry(&self, tag: u64, value: u64) -> u128 {
        debug_assert!(value != 0, "the value 0 marks an empty entry");
        let entry = u128::from(tag) | (u128::from(value) << (self.remainder_bits + 1));
        debug_assert!(entry & !self.entry_mask() == 0, "value wider than the table's");
        entry
    }

    fn entry_mask(&self) -> u128 {
        u128::MAX >> (u128::BITS - self.entry_bits)
    }

    const fn tag_mask(&self) -> u64 {
        u64::MAX >> (63 - self.remainder_bits)
    }

    /// Entries in use of a bucket: the place of the first empty one.
    fn used(&self, bucket: u64) -> usize {
        let (mut low, mut high) = (0, WAYS);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.load(bucket, middle) == 0 { high = middle } else { low = middle + 1 }
        }
        low
    }

    const fn offset(&self, bucket: u64, index: usize) -> usize {
        (usize_from_u64(bucket) * WAYS + index) * self.entry_bytes
    }

    fn load(&self, bucket: u64, index: usize) -> u128 {
        window(&self.bytes, self.offset(bucket, index), u128::from_le_bytes) & self.entry_mask()
    }

    fn store(&mut self, bucket: u64, index: usize, entry: u128) {
        let offset = self.offset(bucket, index);
        self.bytes[offset..offset + self.entry_bytes]
            .copy_from_slice(&entry.to_le_bytes()[..self.entry_bytes]);
    }
}

/// The number in the `N` bytes at `offset`.
fn window<const N: usize, T>(bytes: &[u8], offset: usize, number: fn([u8; N]) -> T) -> T {
    let mut copy = [0; N];
    copy.copy_from_slice(&bytes[offset..offset + N]);
    number(copy)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
const fn low_u64(wide: u128) -> u64 {
    wide as u64
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
