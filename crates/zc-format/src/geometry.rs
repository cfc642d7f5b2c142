//! Where everything is on the cache device.

use zc_core::{WeuSlot, limits, u64_from_usize};

use crate::bytes::{Reader, Writer};
use crate::record::RECORDS_PER_BLOCK;
use crate::region_map::REGION_MAP_BYTES;
use crate::volumes::VOLUME_TABLE_BYTES;
use crate::FormatError;

const BLOCK: u64 = limits::BLOCK_BYTES as u64;
/// The superblock copies at the start and whatever follows them: one 64 KiB piece at each end.
const END_BYTES: u64 = 64 << 10;
/// Journal blocks: 1/256 of the device, at least this many, at most 1 GiB.
const JOURNAL_BLOCKS_MIN: u64 = 64;
const JOURNAL_BLOCKS_MAX: u64 = (1 << 30) / BLOCK;
/// File index entries planned per raw extent that fits: room for reduction and for duplicates.
const ENTRIES_PER_RAW_EXTENT: u64 = 4;
/// Share of the device that one checkpoint area may take: 1/160, so that two take 1.25 %.
const CHECKPOINT_SHARE: u64 = 160;
/// Bytes of an encoded geometry.
pub(crate) const GEOMETRY_BYTES: usize = 128;

/// The layout of a cache device. All offsets are in bytes and multiples of 4096.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the device that is used.
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
}

/// Why a layout cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// A size is out of range or not a power of two.
    #[error("WEU size {weu_bytes} and extent size {extent_bytes} are not powers of two in range with at least 4 extents a WEU")]
    Sizes {
        /// WEU size.
        weu_bytes: u32,
        /// Extent size.
        extent_bytes: u32,
    },
    /// The device is too small for two WEUs.
    #[error("a cache of {device_bytes} bytes is too small: it needs at least {needed_bytes}")]
    TooSmall {
        /// Its size.
        device_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// The areas of a decoded geometry overlap or leave the device.
    #[error("the layout in the superblock does not fit the device")]
    Overlap,
}

/// Choices in planning a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// Size of the device.
    pub device_bytes: u64,
    /// Size of a WEU.
    pub weu_bytes: u32,
    /// Size of an extent.
    pub extent_bytes: u32,
    /// Slots begin at multiples of this (erase block or discard granularity) if it is larger than a WEU.
    pub align_bytes: u64,
    /// Journal blocks, if not by the rule.
    pub journal_blocks: Option<u64>,
}

impl Geometry {
    /// Plans the layout of a device by the rules of `FORMAT.md`.
    ///
    /// # Errors
    /// When the sizes cannot be used or the device is too small.
    pub fn plan(options: &PlanOptions) -> Result<Self, GeometryError> {
        let PlanOptions { device_bytes, weu_bytes, extent_bytes, .. } = *options;
        check_sizes(weu_bytes, extent_bytes)?;
        let device_bytes = device_bytes / BLOCK * BLOCK;
        let raw_extents = device_bytes / u64::from(extent_bytes);
        let index_capacity = (raw_extents * ENTRIES_PER_RAW_EXTENT).max(64);
        let journal_blocks = options
            .journal_blocks
            .unwrap_or_else(|| (device_bytes / 256 / BLOCK).clamp(JOURNAL_BLOCKS_MIN, JOURNAL_BLOCKS_MAX));
        let checkpoint_blocks = checkpoint_blocks(device_bytes, weu_bytes, index_capacity);
        let volume_table = [END_BYTES, END_BYTES + VOLUME_TABLE_BYTES];
        let region_map =
            [volume_table[1] + VOLUME_TABLE_BYTES, volume_table[1] + VOLUME_TABLE_BYTES + REGION_MAP_BYTES];
        let first = region_map[1] + REGION_MAP_BYTES;
        let checkpoint = [first, first + checkpoint_blocks * BLOCK];
        let journal_offset = checkpoint[1] + checkpoint_blocks * BLOCK;
        let align = options.align_bytes.max(u64::from(weu_bytes)).next_power_of_two();
        let slots_offset = (journal_offset + journal_blocks * BLOCK).next_multiple_of(align);
        let room = device_bytes.saturating_sub(END_BYTES).saturating_sub(slots_offset);
        let slots = u32::try_from(room / u64::from(weu_bytes)).unwrap_or(u32::MAX).min(limits::SLOTS_MAX);
        if slots < 2 {
            let needed_bytes = slots_offset + 2 * u64::from(weu_bytes) + END_BYTES;
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
        })
    }

    /// First byte of a slot.
    ///
    /// # Panics
    /// When there is no such slot.
    #[must_use]
    pub fn slot_offset(&self, slot: WeuSlot) -> u64 {
        assert!(slot.0 < self.slots, "{slot:?} of {} slots", self.slots);
        self.slots_offset + u64::from(slot.0) * u64::from(self.weu_bytes)
    }

    /// First byte of the journal block with a sequence number.
    #[must_use]
    pub fn journal_block_offset(&self, sequence: zc_core::JournalSeq) -> u64 {
        self.journal_offset + sequence.0 % self.journal_blocks * BLOCK
    }

    /// First byte of a record block of a checkpoint area (the area's header comes before block 0).
    #[must_use]
    pub fn checkpoint_block_offset(&self, area: usize, block: u64) -> u64 {
        self.checkpoint[area & 1] + (1 + block) * BLOCK
    }

    /// Checks a geometry that came from media before anything is computed from it.
    ///
    /// # Errors
    /// When areas overlap, leave the device, or sizes are impossible.
    pub fn validate(&self) -> Result<(), GeometryError> {
        check_sizes(self.weu_bytes, self.extent_bytes)?;
        let checkpoint_bytes = self.checkpoint_blocks.checked_mul(BLOCK).ok_or(GeometryError::Overlap)?;
        let journal_bytes = self.journal_blocks.checked_mul(BLOCK).ok_or(GeometryError::Overlap)?;
        let slots_bytes = u64::from(self.slots) * u64::from(self.weu_bytes);
        let areas = [
            (self.volume_table[0], VOLUME_TABLE_BYTES),
            (self.volume_table[1], VOLUME_TABLE_BYTES),
            (self.region_map[0], REGION_MAP_BYTES),
            (self.region_map[1], REGION_MAP_BYTES),
            (self.checkpoint[0], checkpoint_bytes),
            (self.checkpoint[1], checkpoint_bytes),
            (self.journal_offset, journal_bytes),
            (self.slots_offset, slots_bytes),
            (self.device_bytes.saturating_sub(END_BYTES), END_BYTES),
        ];
        let mut end = END_BYTES;
        for (offset, len) in areas {
            let fits = offset % BLOCK == 0 && offset >= end && len > 0;
            end = offset.checked_add(len).filter(|_| fits).ok_or(GeometryError::Overlap)?;
        }
        let counts = self.checkpoint_blocks >= 2
            && self.journal_blocks >= 4
            && (2..=limits::SLOTS_MAX).contains(&self.slots)
            && end <= self.device_bytes
            && self.index_capacity <= 1 << 40;
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

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
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
        && weu_bytes / extent_bytes >= 4;
    ok.then_some(()).ok_or(GeometryError::Sizes { weu_bytes, extent_bytes })
}

/// Room for what a checkpoint must hold (two records a slot and one per void base, at most one base per KiB) and for
/// duplicates as far as the share allows: a duplicate left out is a miss after a restart, nothing worse.
fn checkpoint_blocks(device_bytes: u64, weu_bytes: u32, index_capacity: u64) -> u64 {
    let per_block = u64_from_usize(RECORDS_PER_BLOCK);
    let slots = device_bytes / u64::from(weu_bytes);
    let all = (2 * slots + 2 * index_capacity).div_ceil(per_block) + 2;
    let share = device_bytes / CHECKPOINT_SHARE / BLOCK;
    all.min(share.max(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(device_bytes: u64) -> Result<Geometry, GeometryError> {
        Geometry::plan(&PlanOptions {
            device_bytes,
            weu_bytes: 2 << 20,
            extent_bytes: 8 << 10,
            align_bytes: 0,
            journal_blocks: None,
        })
    }

    #[test]
    fn layouts_from_small_to_large_are_valid_and_lean() {
        for shift in 23..45 {
            let geometry = plan(1 << shift).unwrap();
            geometry.validate().unwrap();
            let slots = u64::from(geometry.slots) * u64::from(geometry.weu_bytes);
            if shift > 32 {
                assert!((1_u64 << shift) - slots < (1 << shift) / 50, "overhead above 2 % at 2^{shift}");
            }
            let mut bytes = [0; GEOMETRY_BYTES];
            geometry.encode(&mut bytes);
            assert_eq!(Geometry::decode(&bytes), Ok(geometry));
        }
        assert!(matches!(plan(1 << 20), Err(GeometryError::TooSmall { .. })));
    }
}
