//! The file index (Nitro 3.1): extent address -> where its content is stored.
//!
//! **Key**: 10 bits of volume and 38 bits of extent number, kept exactly (see `table`): the index returns the entry
//! stored for an address, never that of another one.
//!
//! **Value**: mapping and generation. The mapping is one number in a mixed radix: 0 is an empty entry, 1 means zeros,
//! and 2 + ((v * slots + slot) * offsets + offset) a stored extent, where v = 2 * (pages - 1) + (1 for a duplicate).
//! Above it come the low bits of the slot's generation.
//!
//! **Arithmetic** for 10 million extents of 8 KiB in 2 MiB WEUs, 38,147 slots (no data reduction, the widest case):
//! an extent with its inline header touches at most 4 pages, so v < 8; offsets count 64-byte units, 2^15 of them;
//! log2(8 * 38,147 * 2^15) = 33.2. Remainder 29 + hash number 1 + mapping 34 + generation 8 = 72 bits = 9 bytes, and
//! 9.47 bytes per extent at 95 % load. Ten times the extents need ten times the slots, and as many fewer remainder
//! bits: the entry keeps its size.
//!
//! Out of scope: determining if a slot still holds the contents of an entry. The slot's generation does, and the
//! inline header of the stored extent; [`FileIndex::sweep`] removes stale entries.

use zc_core::{ExtentKey, ExtentNo, Generation, VolumeId, WeuSlot, limits, u64_from_usize, usize_from_u64};
use zc_format::ImageTable;

use core::ops::Range;

use crate::config::ManagerConfig;
use crate::index::divisor::Divisor;
use crate::index::layout::CALLED_UP;
use crate::index::occupancy::Occupancy;
use crate::index::table;
use crate::index::table::Table;

pub use crate::index::table::{Keep, SweepCursor};

const EXTENT_BITS: u32 = limits::EXTENTS_PER_VOLUME_MAX.trailing_zeros();
const KEY_BITS: u32 = EXTENT_BITS + limits::VOLUMES_MAX.trailing_zeros();
/// At least the size of an inline extent header, in bytes: the space that an extent may need beyond its own size.
const INLINE_HEADER_BYTES: u32 = 128;
/// Code of an extent of zeros. 0 is an empty entry, stored extents follow.
const CODE_ZERO: u64 = 1;
const CODE_STORED: u64 = 2;

/// The sizes that decide how many bits a location takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexShape {
    /// WEU slots of the cache.
    pub slots: u32,
    /// Size of a WEU slot in bytes.
    pub weu_bytes: u32,
    /// Size of an extent in bytes.
    pub extent_bytes: u32,
    /// Bits of the slot's generation that an entry keeps, at most 8.
    pub generation_bits: u8,
}

impl IndexShape {
    /// The sizes of this configuration.
    pub(crate) const fn of(config: &ManagerConfig) -> Self {
        Self {
            slots: config.geometry.slots,
            weu_bytes: config.geometry.weu_bytes,
            extent_bytes: config.geometry.extent_bytes,
            generation_bits: config.generation_bits,
        }
    }
}

/// Location of a stored extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The slot.
    pub slot: WeuSlot,
    /// The low bits of the slot's generation, as many as the index keeps.
    pub generation: Generation,
    /// Start within the slot in units of 64 bytes.
    pub offset_units: u16,
    /// 4 KiB pages that inline header and stored bytes touch, at least 1.
    pub pages: u8,
}

/// Index entry of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// The extent for which the content was stored.
    Base(Place),
    /// An extent with the same content as the base extent at that place.
    Duplicate(Place),
    /// All zeros; nothing is stored.
    Zero,
}

/// Conversion of mappings to numbers and back.
#[derive(Debug, Clone, Copy)]
struct Coding {
    slots: u64,
    by_slots: Divisor,
    offset_bits: u32,
    /// Offsets that lie inside a slot.
    offsets: u64,
    pages_max: u64,
    generation_bits: u32,
    code_bits: u32,
}

impl Coding {
    fn new(shape: &IndexShape) -> Self {
        assert!(shape.generation_bits <= 8 && shape.extent_bytes > 0, "at most 8 generation bits");
        let slots = u64::from(shape.slots.max(1));
        let offsets = u64::from((shape.weu_bytes / limits::PLACE_ALIGN_BYTES).max(1));
        let offset_bits = 64 - (offsets - 1).leading_zeros();
        assert!(offset_bits <= u16::BITS, "a WEU is at most 4 MiB");
        let last_start = limits::BLOCK_BYTES - limits::PLACE_ALIGN_BYTES;
        let span = u64::from(last_start) + u64::from(INLINE_HEADER_BYTES) + u64::from(shape.extent_bytes);
        let pages_max = span.div_ceil(u64::from(limits::BLOCK_BYTES));
        let codes = CODE_STORED + ((2 * pages_max * slots) << offset_bits);
        Self {
            slots,
            by_slots: Divisor::new(slots),
            offset_bits,
            offsets,
            pages_max,
            generation_bits: u32::from(shape.generation_bits),
            code_bits: 64 - (codes - 1).leading_zeros(),
        }
    }

    const fn value_bits(&self) -> u32 {
        self.code_bits + self.generation_bits
    }

    /// The number of a mapping; `None` for a place that no slot has.
    fn encode(&self, mapping: &Mapping) -> Option<u64> {
        let (place, duplicate) = match mapping {
            Mapping::Base(place) => (place, 0),
            Mapping::Duplicate(place) => (place, 1),
            Mapping::Zero => return Some(CODE_ZERO),
        };
        let (slot, offset) = (u64::from(place.slot.0), u64::from(place.offset_units));
        let pages = u64::from(place.pages).checked_sub(1)?;
        if slot >= self.slots || offset >= self.offsets || pages >= self.pages_max {
            return None;
        }
        let code =
            CODE_STORED + ((((2 * pages + duplicate) * self.slots + slot) << self.offset_bits) | offset);
        let generation = u64::from(place.generation.0) & ((1 << self.generation_bits) - 1);
        Some(code | (generation << self.code_bits))
    }

    /// The mapping of a number that is none that [`Self::encode`] gives for certain.
    fn decode_foreign(&self, value: u64) -> Option<Mapping> {
        let code = value & ((1 << self.code_bits) - 1);
        if code == CODE_ZERO {
            return (value == code).then_some(Mapping::Zero);
        }
        let located = code.checked_sub(CODE_STORED)?;
        let (variant, _) = self.by_slots.divide(located >> self.offset_bits);
        let offset = located & ((1 << self.offset_bits) - 1);
        (variant < 2 * self.pages_max && offset < self.offsets).then(|| self.decode(value))
    }

    fn decode(&self, value: u64) -> Mapping {
        let code = value & ((1 << self.code_bits) - 1);
        if code == CODE_ZERO {
            return Mapping::Zero;
        }
        let located = code - CODE_STORED;
        let (variant, slot) = self.by_slots.divide(located >> self.offset_bits);
        let place = Place {
            slot: WeuSlot(narrow(slot)),
            generation: Generation(narrow(value >> self.code_bits)),
            offset_units: narrow(located & ((1 << self.offset_bits) - 1)),
            pages: narrow(variant / 2 + 1),
        };
        if variant % 2 == 0 { Mapping::Base(place) } else { Mapping::Duplicate(place) }
    }
}

/// A field of an entry, whose width was fixed when it was encoded.
fn narrow<T: TryFrom<u64>>(field: u64) -> T {
    let Ok(value) = T::try_from(field) else { unreachable!("an index entry holds a field that is too wide") };
    value
}

/// The file index. See the module documentation.
#[derive(Debug)]
pub struct FileIndex {
    coding: Coding,
    table: Table,
    occupancy: Occupancy,
}

impl FileIndex {
    /// An index for `capacity_entries` mappings; capacity for at least 1.
    ///
    /// # Panics
    /// With more than 8 generation bits, WEUs above 4 MiB or more than 2^36 entries.
    #[must_use]
    pub fn new(shape: IndexShape, capacity_entries: u64) -> Self {
        let coding = Coding::new(&shape);
        let buckets = table::buckets_for(capacity_entries.max(1));
        let table = Table::new(KEY_BITS, coding.value_bits(), buckets);
        Self { coding, table, occupancy: Occupancy::new(capacity_entries) }
    }

    /// RAM that such an index will hold, in bytes: for sizing one to a bound.
    #[must_use]
    pub fn ram_bytes_for(shape: IndexShape, capacity_entries: u64) -> u64 {
        let buckets = table::buckets_for(capacity_entries.max(1));
        table::ram_bytes(KEY_BITS, Coding::new(&shape).value_bits(), buckets)
            .saturating_add(Occupancy::ram_bytes_max(capacity_entries))
            .saturating_add(u64_from_usize(size_of::<Self>()))
    }

    /// Prefetches the memory that a lookup of the extent reads. Prefetching a few extents before they are looked up,
    /// one after the other, makes them wait for memory once.
    pub fn call_up(&self, key: ExtentKey) {
        if let Some(packed) = pack(key) {
            self.table.call_up(packed);
        }
    }

    /// The mapping of an extent.
    #[must_use]
    pub fn get(&self, key: ExtentKey) -> Option<Mapping> {
        let spot = self.table.find(pack(key)?, |_| true)?;
        Some(self.coding.decode(self.table.value(spot)))
    }

    /// Notes that a mapping was used; the one that was not for the longest time is the first to be evicted.
    pub fn touch(&mut self, key: ExtentKey) {
        if let Some(spot) = pack(key).and_then(|packed| self.table.find(packed, |_| true)) {
            self.table.touch(spot);
        }
    }

    /// Maps an extent, replacing its mapping, as the most recently used one. Returns the displaced mapping: another
    /// one that was evicted, or this one (the extent is not mapped then) when its address or location lies outside
    /// the index's bounds.
    pub fn insert(&mut self, key: ExtentKey, mapping: Mapping) -> Option<(ExtentKey, Mapping)> {
        self.insert_sparing(key, mapping, |_| false)
    }

    /// As [`Self::insert`], but a mapping of an extent that `spares` names is evicted only if all that might be are.
    pub fn insert_sparing(
        &mut self,
        key: ExtentKey,
        mapping: Mapping,
        spares: impl Fn(ExtentKey) -> bool,
    ) -> Option<(ExtentKey, Mapping)> {
        let (Some(packed), Some(value)) = (pack(key), self.coding.encode(&mapping)) else {
            self.remove(key);
            return Some((key, mapping));
        };
        if let Some(spot) = self.table.find(packed, |_| true) {
            self.table.set_value(spot, value);
            self.table.touch(spot);
            return None;
        }
        self.occupancy.add(packed);
        let (evicted, value) = self.table.insert_sparing(packed, value, |other| spares(unpack(other)))?;
        self.occupancy.remove(evicted);
        Some((unpack(evicted), self.coding.decode(value)))
    }

    /// Removes the mapping of an extent.
    pub fn remove(&mut self, key: ExtentKey) -> Option<Mapping> {
        let packed = pack(key)?;
        let spot = self.table.find(packed, |_| true)?;
        let value = self.table.value(spot);
        self.table.remove(spot);
        self.occupancy.remove(packed);
        Some(self.coding.decode(value))
    }

    /// Removes the mapping of an extent if it is a wanted one; returns `true` if it was.
    pub fn remove_if(&mut self, key: ExtentKey, wanted: impl FnOnce(Mapping) -> bool) -> bool {
        let Some(packed) = pack(key) else { return false };
        let spot = self.table.find(packed, |_| true);
        let spot = spot.filter(|spot| wanted(self.coding.decode(self.table.value(*spot))));
        if let Some(spot) = spot {
            self.table.remove(spot);
            self.occupancy.remove(packed);
        }
        spot.is_some()
    }

    /// The mapped extents of a range, in order. Looks only at chunks of the address space that have mappings.
    #[must_use]
    pub fn mapped_in(&self, volume: VolumeId, extents: Range<u64>) -> Vec<ExtentKey> {
        let mut found = Vec::new();
        for (part, count) in self.occupancy.parts(packed_range(volume, &extents)) {
            let (mut left, mut ahead) = (count, part.clone());
            for (number, packed) in part.enumerate() {
                if left == 0 {
                    break;
                }
                if number % CALLED_UP == 0 {
                    ahead.by_ref().take(CALLED_UP).for_each(|packed| self.table.call_up(packed));
                }
                if self.table.find(packed, |_| true).is_some() {
                    found.push(unpack(packed));
                    left -= 1;
                }
            }
        }
        found
    }

    /// Returns the number of extents from the start of a range for which [`Self::mapped_in`] looks up at most
    /// `lookups_max` of them, and the bound on its lookups then.
    #[must_use]
    pub fn reach(&self, volume: VolumeId, extents: Range<u64>, lookups_max: u64) -> (u64, u64) {
        let packed = packed_range(volume, &extents);
        let mut lookups = 0;
        for (part, _) in self.occupancy.parts(packed.clone()) {
            let left = lookups_max - lookups;
            if part.end - part.start > left {
                return (part.start + left - packed.start, lookups_max);
            }
            lookups += part.end - part.start;
        }
        (extents.end - extents.start, lookups)
    }

    /// Number of mappings.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.table.len()
    }

    /// Returns `true` if nothing is mapped.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Places for mappings: about 5 % more than were requested.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.table.places()
    }

    /// Number of buckets, the unit of [`FileIndex::sweep`].
    #[must_use]
    pub const fn buckets(&self) -> usize {
        usize_from_u64(self.table.buckets())
    }

    /// RAM that the index holds, in bytes.
    #[must_use]
    pub fn ram_bytes(&self) -> u64 {
        self.table.ram_bytes() + self.occupancy.ram_bytes() + u64_from_usize(size_of::<Self>())
    }

    /// Inputs of its buckets, and their number.
    #[must_use]
    pub(crate) const fn shape(&self) -> ImageTable {
        self.table.shape()
    }

    /// Some buckets without their unused parts.
    pub(crate) fn packed_buckets(&self, first: u64, count: u32) -> Vec<u8> {
        self.table.packed_buckets(first, count)
    }

    /// Replaces the buckets from `first` on by packed ones, and passes their mappings to `take`. Returns `false` if
    /// they are no buckets of this index, or `take` refuses a mapping: the index must not be used then.
    pub(crate) fn set_buckets(
        &mut self,
        first: u64,
        count: u32,
        packed: &[u8],
        mut take: impl FnMut(ExtentKey, Mapping) -> bool,
    ) -> bool {
        let Self { coding, table, occupancy } = self;
        table.set_buckets(first, count, packed, |key, value| {
            let is_taken = coding.decode_foreign(value).is_some_and(|mapping| take(unpack(key), mapping));
            if is_taken {
                occupancy.add(key);
            }
            is_taken
        })
    }

    /// Shows the mappings in the next `buckets` buckets to `f`, which decides whether they stay. Returns `true` when
    /// this call ended a pass; an entry mapped throughout a pass was shown at least once in it.
    pub fn sweep(
        &mut self,
        cursor: &mut SweepCursor,
        buckets: usize,
        mut f: impl FnMut(ExtentKey, Mapping) -> Keep,
    ) -> bool {
        let Self { coding, table, occupancy } = self;
        table.sweep(cursor, buckets, |key, value| {
            let keep = f(unpack(key), coding.decode(value));
            if keep == Keep::No {
                occupancy.remove(key);
            }
            keep
        })
    }
}

/// The keys of a range as numbers; empty beyond the limits.
fn packed_range(volume: VolumeId, extents: &Range<u64>) -> Range<u64> {
    let end = extents.end.min(limits::EXTENTS_PER_VOLUME_MAX);
    if volume.0 >= limits::VOLUMES_MAX || extents.start >= end {
        return 0..0;
    }
    let first = u64::from(volume.0) << EXTENT_BITS;
    first + extents.start..first + end
}

/// The key as a number; `None` for an address beyond the limits.
fn pack(key: ExtentKey) -> Option<u64> {
    let valid = key.volume.0 < limits::VOLUMES_MAX && key.extent.0 < limits::EXTENTS_PER_VOLUME_MAX;
    valid.then(|| u64::from(key.volume.0) << EXTENT_BITS | key.extent.0)
}

fn unpack(key: u64) -> ExtentKey {
    ExtentKey {
        volume: VolumeId(narrow(key >> EXTENT_BITS)),
        extent: ExtentNo(key & (limits::EXTENTS_PER_VOLUME_MAX - 1)),
    }
}

#[cfg(test)]
#[path = "file_index_tests.rs"]
mod tests;
