//! A packed hash table for both indexes: exact keys, entries of any width, recency within a bucket.
//!
//! **Layout.** The table is one `Vec<u8>` of buckets with 16 entries each; an entry of N bits takes N/8 bytes,
//! rounded up. From its lowest bit up an entry holds the remainder of the key, one bit that identifies its hash
//! function of two, and the value. Values are never 0, so an all-zero entry is an empty one. Entries of a bucket are
//! kept in order of use, the latest first, without gaps. The lowest bytes of a bucket's entries come first, all 16
//! together, then the rest of each: a lookup compares the 16 at once as one number and reads an entry only where they
//! agree.
//!
//! **Quotienting** (see `quotients`) keeps keys exactly while most of their bits cost nothing.
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
//! Out of scope: growing, iterating in order of keys, and the meaning of values.

use zc_core::{u64_from_usize, usize_from_u32, usize_from_u64};
use zc_format::ImageTable;

use crate::index::quotients::{Quotients, low_u64, remainder_bits};

/// Entries of a bucket.
pub(crate) const WAYS: usize = usize_from_u32(WAYS_U32);
const WAYS_U32: u32 = 16;
/// Entries are moved for new ones only up to this load in per cent.
const MOVE_PERCENT_MAX: u64 = 97;
/// The table is sized so that its nominal capacity is this load in per cent.
const LOAD_PERCENT: u64 = 95;
/// Passes that are tracked at once.
const SWEEPS_MAX: usize = 4;
/// Most buckets: keeps p * B below 2^96.
const BUCKETS_MAX: u64 = 1 << 32;
/// Bytes that one memory access brings.
const CACHE_LINE_BYTES: usize = 64;
/// Widest entry that can be read, in bytes.
const WINDOW_BYTES: usize = 16;

/// Half of a bucket's lowest bytes with 1 in each.
const ONES: u64 = u64::MAX / 0xff;

/// Decision of a sweep on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The entry stays.
    Yes,
    /// The entry is removed.
    No,
}

/// Position of a sweep. The default is the start of a new pass. Belongs to the index it was first used with.
#[derive(Debug, Default)]
pub struct SweepCursor {
    ticket: u64,
    bucket: u64,
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

    /// Returns `true` if an entry may change buckets without being missed by a pass.
    fn allow(&self, from: u64, to: u64) -> bool {
        self.active.iter().all(|&(_, next)| from < next || to >= next)
    }
}

/// Position of an entry, until the next change of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    bucket: u64,
    index: usize,
}

/// The table. See the module documentation.
#[derive(Debug)]
pub(crate) struct Table {
    quotients: Quotients,
    buckets: u64,
    entry_bytes: u32,
    entry_mask: u128,
    bytes: Vec<u8>,
    len: u64,
    sweeps: Sweeps,
}

/// Buckets for a nominal number of entries; none for 0.
pub(crate) fn buckets_for(capacity: u64) -> u64 {
    let ways = u64_from_usize(WAYS);
    capacity.saturating_mul(100).div_ceil(ways * LOAD_PERCENT)
}

const fn entry_bits(key_bits: u32, value_bits: u32, buckets: u64) -> u32 {
    remainder_bits(key_bits, buckets) + 1 + value_bits
}

/// Future result of [`Table::ram_bytes`] of such a table.
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
        let entry_bits = entry_bits(key_bits, value_bits, buckets);
        assert!(entry_bits <= u128::BITS, "index entries are at most 128 bits wide");
        Self {
            quotients: Quotients::new(key_bits, buckets),
            buckets,
            entry_bytes: entry_bits.div_ceil(u8::BITS),
            entry_mask: u128::MAX >> (u128::BITS - entry_bits),
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

    /// Prefetches the two buckets of `key`: memory then brings those of several keys at once.
    pub(crate) fn call_up(&self, key: u64) {
        if self.buckets == 0 {
            return;
        }
        for which in 0..2 {
            let (bucket, _) = self.quotients.locate(key, which);
            for line in (self.start(bucket)..self.start(bucket + 1)).step_by(CACHE_LINE_BYTES) {
                core::hint::black_box(self.bytes[line]);
            }
        }
    }

    /// Returns the first entry of `key` whose value satisfies `wanted`.
    pub(crate) fn find(&self, key: u64, mut wanted: impl FnMut(u64) -> bool) -> Option<Spot> {
        if self.buckets == 0 {
            return None;
        }
        (0..2).find_map(|which| {
            let (bucket, tag) = self.quotients.locate(key, which);
            self.alike(bucket, tag).into_iter().zip([0, WAYS / 2]).find_map(|(mut alike, half)| {
                while alike != 0 {
                    let index = half + lowest_byte(alike);
                    alike &= alike - 1;
                    let entry = self.load(bucket, index);
                    // An empty entry looks like the tag 0; its value distinguishes it.
                    let value = self.value_of(entry);
                    if low_u64(entry) & self.quotients.tag_mask == tag && value != 0 && wanted(value) {
                        return Some(Spot { bucket, index });
                    }
                }
                None
            })
        })
    }

    pub(crate) fn value(&self, spot: Spot) -> u64 {
        self.value_of(self.load(spot.bucket, spot.index))
    }

    /// Changes the value of an entry.
    pub(crate) fn set_value(&mut self, spot: Spot, value: u64) {
        let tag = low_u64(self.load(spot.bucket, spot.index)) & self.quotients.tag_mask;
        let entry = self.entry(tag, value);
        self.store(spot.bucket, spot.index, entry);
    }

    /// Makes an entry the most recently used of its bucket.
    pub(crate) fn touch(&mut self, spot: Spot) {
        if spot.index > 0 {
            let entry = self.load(spot.bucket, spot.index);
            self.put_first(spot.bucket, spot.index, entry);
        }
    }

    pub(crate) fn remove(&mut self, spot: Spot) {
        let before = !(u128::MAX << (8 * spot.index));
        let firsts = self.firsts(spot.bucket);
        self.set_firsts(spot.bucket, (firsts & before) | ((firsts >> 8) & !before));
        let rest = self.rest(spot.bucket, spot.index);
        let end = self.rest(spot.bucket, WAYS);
        let next = self.rest(spot.bucket, spot.index + 1);
        self.bytes.copy_within(next..end, rest);
        self.bytes[end - (next - rest)..end].fill(0);
        self.len -= 1;
    }

    /// Adds an entry as the most recently used of its bucket, beside others of the same key if there are any. Returns
    /// the entry that was evicted for it. A table without buckets returns the new entry.
    pub(crate) fn insert(&mut self, key: u64, value: u64) -> Option<(u64, u64)> {
        self.insert_sparing(key, value, |_| false)
    }

    /// As [`Self::insert`]. Evicts an entry whose key `spares` does not name, unless it names all candidates.
    pub(crate) fn insert_sparing(
        &mut self,
        key: u64,
        value: u64,
        spares: impl Fn(u64) -> bool,
    ) -> Option<(u64, u64)> {
        if self.buckets == 0 {
            return Some((key, value));
        }
        let choices = [self.quotients.locate(key, 0), self.quotients.locate(key, 1)];
        let used = choices.map(|(bucket, _)| self.used(bucket));
        let emptier = usize::from(used[1] < used[0]);
        let (which, others, evicted) = if used[emptier] < WAYS {
            (emptier, used[emptier], None)
        } else if let Some(which) = self.make_room(choices.map(|(bucket, _)| bucket)) {
            (which, WAYS - 1, None)
        } else {
            let (which, index) = self.victim(choices.map(|(bucket, _)| bucket), spares);
            (which, WAYS - 1, Some(self.evict(Spot { bucket: choices[which].0, index })))
        };
        let (bucket, tag) = choices[which];
        let entry = self.entry(tag, value);
        self.put_first(bucket, others, entry);
        self.len += 1;
        evicted
    }

    /// Calls `keep` with key and value of the entries in the next `steps` buckets of the pass. Returns `true` when
    /// the pass has ended with this call; the cursor then stands at the start of the next one.
    pub(crate) fn sweep(
        &mut self,
        cursor: &mut SweepCursor,
        steps: usize,
        mut keep: impl FnMut(u64, u64) -> Keep,
    ) -> bool {
        self.sweeps.join(cursor);
        let end = self.buckets.min(cursor.bucket.saturating_add(u64_from_usize(steps)));
        for bucket in cursor.bucket..end {
            let (first, mut index) = (self.quotients.first_of(bucket), 0);
            while index < WAYS {
                let entry = self.load(bucket, index);
                if entry == 0 {
                    break;
                }
                let (key, _) = self.quotients.key_after(first, low_u64(entry));
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

    /// Inputs of its buckets, and their number.
    pub(crate) const fn shape(&self) -> ImageTable {
        ImageTable {
            buckets: self.buckets,
            entries: self.len,
            bucket_bytes: self.entry_bytes * WAYS_U32,
            key_bits: self.quotients.key_bits(),
        }
    }

    /// Some buckets without their unused parts: the number of used entries of each, and then these (`FORMAT.md`,
    /// section 10).
    pub(crate) fn packed_buckets(&self, first: u64, count: u32) -> Vec<u8> {
        let buckets = first..first + u64::from(count);
        let mut packed: Vec<u8> = buckets.clone().map(|bucket| low_u8(self.used(bucket))).collect();
        for (at, bucket) in buckets.enumerate() {
            let used = usize::from(packed[at]);
            let (start, rest, end) = (self.start(bucket), self.rest(bucket, 0), self.rest(bucket, used));
            packed.extend_from_slice(&self.bytes[start..start + used]);
            packed.extend_from_slice(&self.bytes[rest..end]);
        }
        packed
    }

    /// Replaces the buckets from `first` on by packed ones, and passes key and value of each entry to `take`. Returns
    /// `false` if they are no buckets of this table, or `take` refuses an entry: the table must not be used then.
    pub(crate) fn set_buckets(
        &mut self,
        first: u64,
        count: u32,
        packed: &[u8],
        mut take: impl FnMut(u64, u64) -> bool,
    ) -> bool {
        let Some((counts, mut entries)) = packed.split_at_checked(usize_from_u32(count)) else {
            return false;
        };
        let buckets = first..first.saturating_add(u64::from(count));
        if buckets.end > self.buckets {
            return false;
        }
        for (bucket, used) in buckets.zip(counts) {
            let used = usize::from(*used);
            let Some((own, others)) = entries.split_at_checked(used * usize_from_u32(self.entry_bytes))
            else {
                return false;
            };
            entries = others;
            if used > WAYS || !self.set_bucket(bucket, used, own, &mut take) {
                return false;
            }
        }
        entries.is_empty()
    }

    /// Replaces the entries of a bucket by those from elsewhere. Returns `false` if they are none of this table.
    fn set_bucket(
        &mut self,
        bucket: u64,
        used: usize,
        entries: &[u8],
        take: &mut impl FnMut(u64, u64) -> bool,
    ) -> bool {
        self.len -= u64_from_usize(self.used(bucket));
        let (start, rest, end) = (self.start(bucket), self.rest(bucket, 0), self.start(bucket + 1));
        self.bytes[start..end].fill(0);
        let (firsts, others) = entries.split_at(used);
        self.bytes[start..start + used].copy_from_slice(firsts);
        self.bytes[rest..rest + others.len()].copy_from_slice(others);
        let first = self.quotients.first_of(bucket);
        let ranks = self.quotients.first_of(bucket + 1) - first;
        for index in 0..used {
            let entry = self.load(bucket, index);
            let (key, value) = (low_u64(entry), self.value_of(entry));
            let rank = key & (self.quotients.tag_mask >> 1);
            let is_whole = entry == self.load_whole(bucket, index) && value != 0 && rank < ranks;
            if !is_whole || !take(self.quotients.key_after(first, key).0, value) {
                return false;
            }
        }
        self.len += u64_from_usize(used);
        true
    }

    /// Moves one entry of two full buckets elsewhere; returns the bucket that has a free place now.
    fn make_room(&mut self, full: [u64; 2]) -> Option<usize> {
        if self.len * 100 > self.places() * MOVE_PERCENT_MAX {
            return None;
        }
        for index in (0..WAYS).rev() {
            for (which, &bucket) in full.iter().enumerate() {
                let entry = self.load(bucket, index);
                let (key, placed_by) = self.quotients.key_of(bucket, low_u64(entry));
                let (other, tag) = self.quotients.locate(key, 1 - placed_by);
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

    /// Returns the entry of two full buckets to evict.
    fn victim(&self, full: [u64; 2], spares: impl Fn(u64) -> bool) -> (usize, usize) {
        let both = full.iter().enumerate();
        let mut entries =
            both.flat_map(|(which, bucket)| (0..WAYS).rev().map(move |index| (which, *bucket, index)));
        let may_go = |(_, bucket, index): &(usize, u64, usize)| {
            let entry = self.load(*bucket, *index);
            !spares(self.quotients.key_of(*bucket, low_u64(entry)).0)
        };
        entries.find(may_go).map_or((0, WAYS - 1), |(which, _, index)| (which, index))
    }

    fn evict(&mut self, spot: Spot) -> (u64, u64) {
        let entry = self.load(spot.bucket, spot.index);
        let (key, _) = self.quotients.key_of(spot.bucket, low_u64(entry));
        self.remove(spot);
        (key, self.value_of(entry))
    }

    const fn value_of(&self, entry: u128) -> u64 {
        low_u64(entry >> (self.quotients.remainder_bits + 1))
    }

    fn entry(&self, tag: u64, value: u64) -> u128 {
        debug_assert!(value != 0, "the value 0 marks an empty entry");
        let entry = u128::from(tag) | (u128::from(value) << (self.quotients.remainder_bits + 1));
        debug_assert!(entry & !self.entry_mask == 0, "value wider than the table's");
        entry
    }

    /// Entries in use of a bucket: the place of the first empty one.
    fn used(&self, bucket: u64) -> usize {
        let empty = self.firsts(bucket).leading_zeros() / u8::BITS;
        let mut used = WAYS - usize_from_u32(empty);
        // The lowest byte of an entry may be 0.
        while used < WAYS && self.load(bucket, used) != 0 {
            used += 1;
        }
        used
    }

    /// Entries of a bucket whose lowest byte matches the tag, the first half and the second: the highest bit of their
    /// byte is set. It may be set, too, for an entry behind one that matches.
    fn alike(&self, bucket: u64, tag: u64) -> [u64; 2] {
        let firsts = self.firsts(bucket);
        let (wanted, mask) = (ONES * (tag & 0xff), ONES * (self.quotients.tag_mask & 0xff));
        [low_u64(firsts), low_u64(firsts >> 64)].map(|half| {
            let differ = (half ^ wanted) & mask;
            differ.wrapping_sub(ONES) & !differ & (ONES << 7)
        })
    }

    /// Puts an entry before the first `count` ones of a bucket, in place of the one behind them.
    fn put_first(&mut self, bucket: u64, count: usize, entry: u128) {
        let moved = u128::MAX >> (8 * (WAYS - 1 - count));
        let firsts = self.firsts(bucket);
        self.set_firsts(bucket, (firsts & !moved) | ((firsts << 8) & moved));
        let [start, second, end] = [0, 1, count].map(|index| self.rest(bucket, index));
        self.bytes.copy_within(start..end, second);
        self.store(bucket, 0, entry);
    }

    const fn start(&self, bucket: u64) -> usize {
        usize_from_u64(bucket) * WAYS * usize_from_u32(self.entry_bytes)
    }

    /// Position of an entry without its lowest byte.
    const fn rest(&self, bucket: u64, index: usize) -> usize {
        self.start(bucket) + WAYS + index * usize_from_u32(self.entry_bytes - 1)
    }

    /// The lowest bytes of a bucket's entries, those of the first one lowest.
    fn firsts(&self, bucket: u64) -> u128 {
        window(&self.bytes, self.start(bucket))
    }

    fn set_firsts(&mut self, bucket: u64, firsts: u128) {
        let start = self.start(bucket);
        self.bytes[start..start + WAYS].copy_from_slice(&firsts.to_le_bytes());
    }

    fn load(&self, bucket: u64, index: usize) -> u128 {
        let first = self.bytes[self.start(bucket) + index];
        let rest = window(&self.bytes, self.rest(bucket, index));
        (u128::from(first) | (rest << 8)) & self.entry_mask
    }

    /// As [`Self::load`], with the bits that no entry has.
    fn load_whole(&self, bucket: u64, index: usize) -> u128 {
        let first = self.bytes[self.start(bucket) + index];
        let rest =
            window(&self.bytes, self.rest(bucket, index)) & !(u128::MAX << (8 * (self.entry_bytes - 1)));
        u128::from(first) | (rest << 8)
    }

    fn store(&mut self, bucket: u64, index: usize, entry: u128) {
        let [start, rest] = [self.start(bucket), self.rest(bucket, index)];
        self.bytes[start + index] = entry.to_le_bytes()[0];
        let others = u128::MAX << (8 * (self.entry_bytes - 1));
        let stored = (window(&self.bytes, rest) & others) | (entry >> 8);
        self.bytes[rest..rest + WINDOW_BYTES].copy_from_slice(&stored.to_le_bytes());
    }
}

/// A number of entries of a bucket.
fn low_u8(used: usize) -> u8 {
    u8::try_from(used).unwrap_or(u8::MAX)
}

const fn lowest_byte(bytes: u64) -> usize {
    usize_from_u32(bytes.trailing_zeros() / u8::BITS)
}

/// The number in the 16 bytes at `offset`.
fn window(bytes: &[u8], offset: usize) -> u128 {
    let mut copy = [0; WINDOW_BYTES];
    copy.copy_from_slice(&bytes[offset..offset + WINDOW_BYTES]);
    u128::from_le_bytes(copy)
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
