//! The fingerprint index (Nitro 3.1): fingerprint -> slots whose WEU may hold that content.
//!
//! It is a hint. An entry keeps only the part of a fingerprint that fits its bytes, and names only the slot. The full
//! fingerprint and the location are read from the slot's WEU header (held in RAM or read from the device), which
//! decides (contract G7: fewer than 128 bits are a hint only). The index may be smaller than the file index, or
//! absent.
//!
//! **Arithmetic.** A key is the first t + floor(log2 B) bits of the fingerprint for B buckets, so that its remainder
//! has t bits (see `table`); an entry is t + 1 + slot bits. The slot is stored plus one. t is at least [`TAG_BITS_MIN`]
//! and fills the entry up to whole bytes: 10 million entries over 40 GiB of 2 MiB slots take 15 slot bits, 1 bit and t
//! = 16, 4 bytes, 4.21 bytes at 95 % load; up to 131,071 slots (256 GiB) 4 bytes still do with t = 14. A lookup
//! compares at most 32 remainders of which half were placed by the other hash function: the share of lookups with a
//! false candidate is below 16 / 2^(t - 1), 0.05 % for t = 16 and 0.2 % for t = 14.
//!
//! One fingerprint may have several entries, each with another slot. Out of scope: verifying, and counting
//! references.

use smallvec::SmallVec;
use zc_core::{Fingerprint, WeuSlot, u64_from_usize, usize_from_u64};
use zc_format::ImageTable;

use crate::index::file_index::IndexShape;
use crate::index::table;
use crate::index::table::{Keep, SweepCursor, Table};

/// Fewest bits of a fingerprint that an entry keeps beside those that its bucket implies.
const TAG_BITS_MIN: u32 = 14;

/// The fingerprint index. See the module documentation.
#[derive(Debug)]
pub struct FingerprintIndex {
    table: Table,
    key_shift: u32,
    slots: u32,
    evictions: u64,
}

impl FingerprintIndex {
    /// An index for `capacity_entries` fingerprints; 0 disables it.
    ///
    /// # Panics
    /// With more than 2^36 entries or 2^32 - 1 slots.
    #[must_use]
    pub fn new(shape: IndexShape, capacity_entries: u64) -> Self {
        let (key_bits, slot_bits, buckets) = Self::widths(&shape, capacity_entries);
        Self {
            table: Table::new(key_bits, slot_bits, buckets),
            key_shift: u64::BITS - key_bits,
            slots: shape.slots.max(1),
            evictions: 0,
        }
    }

    /// RAM that such an index will hold, in bytes: for sizing one to a bound.
    #[must_use]
    pub fn ram_bytes_for(shape: IndexShape, capacity_entries: u64) -> u64 {
        let (key_bits, slot_bits, buckets) = Self::widths(&shape, capacity_entries);
        table::ram_bytes(key_bits, slot_bits, buckets) + u64_from_usize(size_of::<Self>())
    }

    /// Bits of a key and of a slot, and buckets.
    fn widths(shape: &IndexShape, capacity_entries: u64) -> (u32, u32, u64) {
        let slot_bits = u32::BITS - shape.slots.max(1).leading_zeros();
        let entry_bits = (slot_bits + 1 + TAG_BITS_MIN).next_multiple_of(8);
        let tag_bits = entry_bits - slot_bits - 1;
        let buckets = table::buckets_for(capacity_entries);
        (tag_bits + buckets.max(1).ilog2(), slot_bits, buckets)
    }

    /// Prefetches the memory that a lookup reads: see [`FileIndex::call_up`](super::FileIndex::call_up).
    pub fn call_up(&self, fingerprint: &Fingerprint) {
        self.table.call_up(self.key(fingerprint));
    }

    /// Slots that may hold the content, the most recently used of each bucket first.
    #[must_use]
    pub fn candidates(&self, fingerprint: &Fingerprint) -> SmallVec<[WeuSlot; 4]> {
        let mut slots = SmallVec::new();
        let _ = self.table.find(self.key(fingerprint), |value| {
            let slot = slot_of(value);
            if !slots.contains(&slot) {
                slots.push(slot);
            }
            false
        });
        slots
    }

    /// Adds the fingerprint of content in `slot`, as the most recently used one; in a full bucket it replaces the
    /// least recently used one, which [`FingerprintIndex::evictions`] counts.
    pub fn insert(&mut self, fingerprint: &Fingerprint, slot: WeuSlot) {
        if self.table.buckets() == 0 || slot.0 >= self.slots {
            return;
        }
        let (key, value) = (self.key(fingerprint), value_of(slot));
        if let Some(spot) = self.table.find(key, |held| held == value) {
            self.table.touch(spot);
        } else if self.table.insert(key, value).is_some() {
            self.evictions += 1;
        }
    }

    /// Notes that content was found through its entry.
    pub fn touch(&mut self, fingerprint: &Fingerprint, slot: WeuSlot) {
        if let Some(spot) = self.table.find(self.key(fingerprint), |value| value == value_of(slot)) {
            self.table.touch(spot);
        }
    }

    /// Removes an entry; false when there was none.
    pub fn remove(&mut self, fingerprint: &Fingerprint, slot: WeuSlot) -> bool {
        let spot = self.table.find(self.key(fingerprint), |value| value == value_of(slot));
        if let Some(spot) = spot {
            self.table.remove(spot);
        }
        spot.is_some()
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.table.len()
    }

    /// Returns `true` if there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Places for entries: about 5 % more than were requested.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.table.places()
    }

    /// Number of buckets, the unit of [`FingerprintIndex::sweep`].
    #[must_use]
    pub const fn buckets(&self) -> usize {
        usize_from_u64(self.table.buckets())
    }

    /// Entries evicted for others since the start.
    #[must_use]
    pub const fn evictions(&self) -> u64 {
        self.evictions
    }

    /// RAM that the index holds, in bytes.
    #[must_use]
    pub fn ram_bytes(&self) -> u64 {
        self.table.ram_bytes() + u64_from_usize(size_of::<Self>())
    }

    /// Inputs of its buckets, and their number.
    pub(crate) const fn shape(&self) -> ImageTable {
        self.table.shape()
    }

    /// Some buckets without their unused parts.
    pub(crate) fn packed_buckets(&self, first: u64, count: u32) -> Vec<u8> {
        self.table.packed_buckets(first, count)
    }

    /// Replaces the buckets from `first` on by packed ones. Returns `false` if they are no buckets of this index,
    /// which must not be used then.
    pub(crate) fn set_buckets(&mut self, first: u64, count: u32, packed: &[u8]) -> bool {
        let slots = u64::from(self.slots);
        self.table.set_buckets(first, count, packed, |_, value| value <= slots)
    }

    /// Shows the slots of the entries in the next `buckets` buckets to `f`, which decides whether they stay. Returns
    /// `true` when this call ended a pass.
    pub fn sweep(
        &mut self,
        cursor: &mut SweepCursor,
        buckets: usize,
        mut f: impl FnMut(WeuSlot) -> Keep,
    ) -> bool {
        self.table.sweep(cursor, buckets, |_, value| f(slot_of(value)))
    }

    /// The leading bits of the fingerprint's first eight bytes.
    const fn key(&self, fingerprint: &Fingerprint) -> u64 {
        fingerprint.prefix() >> self.key_shift
    }
}

fn value_of(slot: WeuSlot) -> u64 {
    u64::from(slot.0) + 1
}

fn slot_of(value: u64) -> WeuSlot {
    let Ok(slot) = u32::try_from(value - 1) else { unreachable!("an entry names a slot beyond 32 bits") };
    WeuSlot(slot)
}

#[cfg(test)]
#[path = "fingerprint_index_tests.rs"]
mod tests;
