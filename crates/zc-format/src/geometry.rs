//! Layout of the cache device (`FORMAT.md`, section 1).
//!
//! Job: plan a layout, validate a decoded one, compute offsets. Invariant: [`Geometry::validate`] runs before anything
//! is computed from a decoded geometry, and no computation on a valid one overflows. It does not access a device; its
//! size and granularity are arguments.

use zc_core::{JournalSeq, WeuSlot, limits, u64_from_usize};

use crate::FormatError;
use crate::bytes::{Reader, Writer};
use crate::crc::Salt;
use crate::record::RECORDS_PER_BLOCK;
use crate::region_map::REGION_MAP_BYTES;
use crate::volumes::VOLUME_TABLE_BYTES;

const BLOCK: u64 = limits::BLOCK_BYTES as u64;
/// Head and tail with two superblock copies each.
pub(crate) const END_BYTES: u64 = 64 << 10;
/// Journal blocks: 1/256 of the device, at least this many, at most 1 GiB.
const JOURNAL_BLOCKS_MIN: u64 = 64;
const JOURNAL_BLOCKS_MAX: u64 = (1 << 30) / BLOCK;
/// Smallest configurable ring: a checkpoint starts when it is half full, and needs blocks to complete.
const JOURNAL_BLOCKS_LEAST: u64 = 4;
/// File index entries planned per raw extent that fits: allowance for reduction and duplicates.
const ENTRIES_PER_RAW_EXTENT: u64 = 4;
/// More entries than any device of the largest size needs.
const INDEX_CAPACITY_MAX: u64 = 1 << 40;
/// Share of the device that one checkpoint area may take: two take 1.04 %.
const CHECKPOINT_SHARE: u64 = 192;
/// Minimum blocks of a checkpoint area, for small devices.
const CHECKPOINT_BLOCKS_MIN: u64 = 8;
/// Largest alignment of slots, for any reported erase block size.
const ALIGN_BYTES_MAX: u64 = 1 << 30;
/// A cache needs at least one unit to fill and one to evict.
const SLOTS_LEAST: u32 = 2;
/// A unit has its header and at least this many extents.
const EXTENTS_PER_WEU_LEAST: u32 = 4;
/// Addresses from here on are on the journal device, if the journal has a device of its own.
pub const JOURNAL_DEVICE: u64 = 1 << 62;
/// Start of the ring there, after the label.
const JOURNAL_DEVICE_RING: u64 = JOURNAL_DEVICE + BLOCK;
pub(crate) const GEOMETRY_BYTES: usize = 128;

/// The layout of a cache device. All offsets are in bytes and multiples of 4096.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Used size of the device.
    pub device_bytes: u64,
    /// Size of a WEU.
    pub weu_bytes: u32,
    /// Size of an extent.
    pub extent_bytes: u32,
    /// Number of WEU slots.
    pub slots: u32,
    /// The two copies of the volume table.
    pub volume_table: [u64; 2],
    /// The two copies of the region map.
    pub region_map: [u64; 2],
    /// The two checkpoint areas.
    pub checkpoint: [u64; 2],
    /// Blocks of one checkpoint area, its header included.
    pub checkpoint_blocks: u64,
    /// First byte of the journal ring.
    pub journal_offset: u64,
    /// Blocks of the journal ring.
    pub journal_blocks: u64,
    /// First byte of slot 0.
    pub slots_offset: u64,
    /// File index entries that the layout is planned for.
    pub index_capacity: u64,
    /// Salt of the cache's checksums. Not stored: derived from the superblock's uuid.
    pub salt: Salt,
}

/// Reason why a layout is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// A size is out of range or not a power of two.
    #[error(
        "WEU size {weu_bytes} and extent size {extent_bytes} are not powers of two in range with at least 4 extents a WEU"
    )]
    Sizes {
        /// WEU size.
        weu_bytes: u32,
        /// Extent size.
        extent_bytes: u32,
    },
    /// The journal device is too small.
    #[error("a journal device of {device_bytes} bytes is too small: it needs at least {needed_bytes}")]
    JournalTooSmall {
        /// Size of the journal device.
        device_bytes: u64,
        /// Required size.
        needed_bytes: u64,
    },
    /// The device is too small for two units.
    #[error("a cache of {device_bytes} bytes is too small: it needs at least {needed_bytes}")]
    TooSmall {
        /// Size of the device.
        device_bytes: u64,
        /// Required size.
        needed_bytes: u64,
    },
    /// The areas of a decoded geometry overlap or exceed the device.
    #[error("the layout in the superblock does not fit the device")]
    Overlap,
}

/// Options of planning a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// Size of the device.
    pub device_bytes: u64,
    /// Size of a WEU.
    pub weu_bytes: u32,
    /// Size of an extent.
    pub extent_bytes: u32,
    /// Alignment of slots (erase block or discard granularity) if it exceeds a unit.
    pub align_bytes: u64,
    /// Journal blocks, instead of the default rule.
    pub journal_blocks: Option<u64>,
}

impl Geometry {
    /// Plans the layout of a device by the rules of `FORMAT.md`.
    ///
    /// # Errors
    /// When the sizes are invalid or the device is too small.
    pub fn plan(options: &PlanOptions) -> Result<Self, GeometryError> {
        Self::lay_out(options, None)
    }

    /// Plans the layout of a device whose journal has a device of its own, of `journal_device_bytes`.
    ///
    /// # Errors
    /// As [`Geometry::plan`], or when the journal device is too small.
    pub fn plan_with_journal_device(
        options: &PlanOptions,
        journal_device_bytes: u64,
    ) -> Result<Self, GeometryError> {
        let blocks = (journal_device_bytes / BLOCK).saturating_sub(1).min(JOURNAL_BLOCKS_MAX);
        if blocks < JOURNAL_BLOCKS_MIN {
            let needed_bytes = JOURNAL_BLOCKS_MIN.saturating_add(1).saturating_mul(BLOCK);
            return Err(GeometryError::JournalTooSmall { device_bytes: journal_device_bytes, needed_bytes });
        }
        Self::lay_out(options, Some(blocks))
    }

    /// Returns the default size of a journal device: the size that the journal would have on the cache device.
    #[must_use]
    pub fn journal_device_bytes(cache_bytes: u64) -> u64 {
        let blocks = (cache_bytes / 256 / BLOCK).clamp(JOURNAL_BLOCKS_MIN, JOURNAL_BLOCKS_MAX);
        blocks.saturating_add(1).saturating_mul(BLOCK)
    }

    fn lay_out(options: &PlanOptions, journal_device_blocks: Option<u64>) -> Result<Self, GeometryError> {
        let PlanOptions { device_bytes, weu_bytes, extent_bytes, .. } = *options;
        check_sizes(weu_bytes, extent_bytes)?;
        let device_bytes = device_bytes.saturating_sub(device_bytes % BLOCK).min(JOURNAL_DEVICE);
        let raw_extents = device_bytes.checked_div(u64::from(extent_bytes)).unwrap_or(0);
        let index_capacity = raw_extents.saturating_mul(ENTRIES_PER_RAW_EXTENT).clamp(64, INDEX_CAPACITY_MAX);
        let journal_blocks = journal_device_blocks
            .or(options.journal_blocks)
            .unwrap_or_else(|| (device_bytes / 256 / BLOCK).clamp(JOURNAL_BLOCKS_MIN, JOURNAL_BLOCKS_MAX))
            .max(JOURNAL_BLOCKS_LEAST);
        let checkpoint_blocks = checkpoint_blocks(device_bytes, weu_bytes, index_capacity);
        let checkpoint_bytes = checkpoint_blocks.saturating_mul(BLOCK);
        let mut end = END_BYTES;
        let mut area = |len_bytes: u64| {
            let start = end;
            end = end.saturating_add(len_bytes);
            start
        };
        let volume_table = [area(VOLUME_TABLE_BYTES), area(VOLUME_TABLE_BYTES)];
        let region_map = [area(REGION_MAP_BYTES), area(REGION_MAP_BYTES)];
        let checkpoint = [area(checkpoint_bytes), area(checkpoint_bytes)];
        let journal_offset = match journal_device_blocks {
            Some(_) => JOURNAL_DEVICE_RING,
            None => area(journal_blocks.saturating_mul(BLOCK)),
        };
        let align = options.align_bytes.clamp(u64::from(weu_bytes), ALIGN_BYTES_MAX).next_power_of_two();
        let slots_offset = end.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        let room = device_bytes.saturating_sub(END_BYTES).saturating_sub(slots_offset);
        let slots = room.checked_div(u64::from(weu_bytes)).unwrap_or(0).min(u64::from(limits::SLOTS_MAX));
        let slots = u32::try_from(slots).unwrap_or(limits::SLOTS_MAX);
        if slots < SLOTS_LEAST {
            let needed_bytes = slots_offset
                .saturating_add(u64::from(SLOTS_LEAST).saturating_mul(u64::from(weu_bytes)))
                .saturating_add(END_BYTES);
            return Err(GeometryError::TooSmall { device_bytes, needed_bytes });
        }
        Ok(Self {
            device_bytes,
            weu_bytes,
            extent_bytes,
            slots,
            volume_table,
            region_map,
            checkpoint,
            checkpoint_blocks,
            journal_offset,
            journal_blocks,
            slots_offset,
            index_capacity,
            salt: Salt::NONE,
        })
    }

    /// First byte of a slot.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn slot_offset(&self, slot: WeuSlot) -> u64 {
        assert!(slot.0 < self.slots, "{slot:?} of {} slots", self.slots);
        self.slots_offset.saturating_add(u64::from(slot.0).saturating_mul(u64::from(self.weu_bytes)))
    }

    /// Returns `true` if the journal has a device of its own.
    #[must_use]
    pub const fn has_journal_device(&self) -> bool {
        self.journal_offset >= JOURNAL_DEVICE
    }

    /// Returns the first byte of the journal block with a sequence number; from [`JOURNAL_DEVICE`] on if it is on that
    /// device.
    #[must_use]
    pub fn journal_block_offset(&self, sequence: JournalSeq) -> u64 {
        let position = sequence.0.checked_rem(self.journal_blocks).unwrap_or(0);
        self.journal_offset.saturating_add(position.saturating_mul(BLOCK))
    }

    /// Returns the first byte of a record block of checkpoint area 0 or 1 (the area's header precedes block 0).
    #[must_use]
    pub const fn checkpoint_block_offset(&self, area: usize, block: u64) -> u64 {
        let [first, second] = self.checkpoint;
        let start = if area == 0 { first } else { second };
        start.saturating_add(block.saturating_add(1).saturating_mul(BLOCK))
    }

    /// Returns the capacity of a checkpoint in records. Invalidating facts come first; a slot whose invalid bases do
    /// not fit is recorded as retired; duplicates and zero extents that do not fit are omitted.
    #[must_use]
    pub const fn checkpoint_records_max(&self) -> u64 {
        self.checkpoint_blocks.saturating_sub(1).saturating_mul(u64_from_usize(RECORDS_PER_BLOCK))
    }

    /// Validates a geometry from media before anything is computed from it.
    ///
    /// # Errors
    /// When areas overlap, exceed the device, or sizes are impossible.
    pub fn validate(&self) -> Result<(), GeometryError> {
        check_sizes(self.weu_bytes, self.extent_bytes)?;
        let checkpoint_bytes = self.checkpoint_blocks.checked_mul(BLOCK).ok_or(GeometryError::Overlap)?;
        let journal_bytes = self.journal_blocks.checked_mul(BLOCK).ok_or(GeometryError::Overlap)?;
        let slots_bytes = u64::from(self.slots).saturating_mul(u64::from(self.weu_bytes));
        let [table_a, table_b] = self.volume_table;
        let [map_a, map_b] = self.region_map;
        let [checkpoint_a, checkpoint_b] = self.checkpoint;
        let before = [
            (table_a, VOLUME_TABLE_BYTES),
            (table_b, VOLUME_TABLE_BYTES),
            (map_a, REGION_MAP_BYTES),
            (map_b, REGION_MAP_BYTES),
            (checkpoint_a, checkpoint_bytes),
            (checkpoint_b, checkpoint_bytes),
        ];
        let journal = Some((self.journal_offset, journal_bytes)).filter(|_| !self.has_journal_device());
        let after =
            [(self.slots_offset, slots_bytes), (self.device_bytes.saturating_sub(END_BYTES), END_BYTES)];
        let mut end = END_BYTES;
        for (offset, len) in before.into_iter().chain(journal).chain(after) {
            let fits = offset.is_multiple_of(BLOCK) && offset >= end && len > 0;
            end = offset.checked_add(len).filter(|_| fits).ok_or(GeometryError::Overlap)?;
        }
        let journal_fits = !self.has_journal_device()
            || (self.journal_offset == JOURNAL_DEVICE_RING && self.journal_blocks <= JOURNAL_BLOCKS_MAX);
        let counts = journal_fits
            && self.device_bytes <= JOURNAL_DEVICE
            && self.checkpoint_blocks >= 2
            && self.journal_blocks >= JOURNAL_BLOCKS_LEAST
            && (SLOTS_LEAST..=limits::SLOTS_MAX).contains(&self.slots)
            && self.index_capacity <= INDEX_CAPACITY_MAX;
        counts.then_some(()).ok_or(GeometryError::Overlap)
    }

    pub(crate) fn encode(&self, out: &mut [u8]) {
        let mut w = Writer::new(out);
        w.u64(self.device_bytes).u32(self.weu_bytes).u32(self.extent_bytes).u32(self.slots).u32(0);
        for offset in self.volume_table.iter().chain(&self.region_map).chain(&self.checkpoint) {
            w.u64(*offset);
        }
        w.u64(self.checkpoint_blocks).u64(self.journal_offset).u64(self.journal_blocks);
        w.u64(self.slots_offset).u64(self.index_capacity);
    }

    pub(crate) fn decode(bytes: &[u8], salt: Salt) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes);
        let device_bytes = r.u64()?;
        let (weu_bytes, extent_bytes, slots, _) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let geometry = Self {
            device_bytes,
            weu_bytes,
            extent_bytes,
            slots,
            volume_table: [r.u64()?, r.u64()?],
            region_map: [r.u64()?, r.u64()?],
            checkpoint: [r.u64()?, r.u64()?],
            checkpoint_blocks: r.u64()?,
            journal_offset: r.u64()?,
            journal_blocks: r.u64()?,
            slots_offset: r.u64()?,
            index_capacity: r.u64()?,
            salt,
        };
        geometry.validate().map_err(|_| FormatError::Field("geometry"))?;
        Ok(geometry)
    }
}

fn check_sizes(weu_bytes: u32, extent_bytes: u32) -> Result<(), GeometryError> {
    let ok = weu_bytes.is_power_of_two()
        && extent_bytes.is_power_of_two()
        && (limits::WEU_BYTES_MIN..=limits::WEU_BYTES_MAX).contains(&weu_bytes)
        && (limits::EXTENT_BYTES_MIN..=limits::EXTENT_BYTES_MAX).contains(&extent_bytes)
        && weu_bytes >= extent_bytes.saturating_mul(EXTENTS_PER_WEU_LEAST);
    ok.then_some(()).ok_or(GeometryError::Sizes { weu_bytes, extent_bytes })
}

/// Two records per slot and two per index entry (each may be a duplicate and leave an invalid base behind), within the
/// share.
fn checkpoint_blocks(device_bytes: u64, weu_bytes: u32, index_capacity: u64) -> u64 {
    let per_block = u64_from_usize(RECORDS_PER_BLOCK);
    let slots = device_bytes.checked_div(u64::from(weu_bytes)).unwrap_or(0);
    let all = slots.saturating_add(index_capacity).saturating_mul(2).div_ceil(per_block).saturating_add(2);
    let share = device_bytes / CHECKPOINT_SHARE / BLOCK;
    all.min(share.max(CHECKPOINT_BLOCKS_MIN))
}

#[cfg(test)]
#[path = "geometry_tests.rs"]
mod tests;
