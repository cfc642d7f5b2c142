//! Named corruption, planned from a geometry: tests and `zcctl` apply it to a cache image to verify that it is
//! detected.
//!
//! Job: choose the bytes of a structure to flip, zero, tear, swap or roll back. Invariants: a plan depends on its
//! arguments alone and changes only the named structure (for a swap: also its neighbour of the same kind). It does no
//! I/O beyond the given [`Image`], and does not check that a place was ever written.

use core::fmt;

use zc_core::{JournalSeq, WeuSlot, limits, usize_from_u64};

use crate::region_map::REGION_MAP_BYTES;
use crate::superblock::{SUPERBLOCK_COPIES, Superblock};
use crate::volumes::VOLUME_TABLE_BYTES;
use crate::{EXTENT_HEADER_BYTES, Geometry};

const BLOCK: u64 = limits::BLOCK_BYTES as u64;
/// Payload bytes of a slot's first extent that corruption hits: no relevant stored extent is shorter.
const BODY_BYTES: u64 = 32;

/// A structure of the cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// A copy of the superblock, 0-3.
    Superblock(usize),
    /// A copy of the volume table, 0-1.
    VolumeTable(usize),
    /// A copy of the region map, 0-1.
    RegionMap(usize),
    /// The header of checkpoint area 0 or 1.
    CheckpointHeader(usize),
    /// A record block of a checkpoint area.
    CheckpointBlock {
        /// Area 0 or 1.
        area: usize,
        /// Number of the block in it.
        block: u64,
    },
    /// Place of a journal block in the ring.
    JournalBlock(JournalSeq),
    /// The last block of a slot's WEU header, which holds its trailer.
    WeuHeader(WeuSlot),
    /// The inline header of a slot's first extent.
    InlineHeader(WeuSlot),
    /// The first bytes of the payload of a slot's first extent.
    ExtentBody(WeuSlot),
    /// A whole slot.
    Slot(WeuSlot),
}

/// Effect on a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// One bit is flipped.
    Flip,
    /// The place reads as zeros.
    Zero,
    /// A torn write: the first half is new, the second half as in an older image.
    Tear,
    /// The place is as in an older image.
    RollBack,
    /// The place and its neighbour of the same kind are swapped.
    Swap,
}

/// One kind of corruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Damage {
    /// An effect on a structure.
    At(Place, Effect),
    /// The device ends here.
    Truncate {
        /// Remaining bytes.
        len_bytes: u64,
    },
}

/// Change of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Patch {
    /// First byte.
    pub offset_bytes: u64,
    /// Kind of change.
    pub kind: PatchKind,
}

/// Kind of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PatchKind {
    /// Flips bits of one byte.
    Xor {
        /// Bits to flip.
        mask: u8,
    },
    /// Writes zeros.
    Zero {
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Copies bytes from another place, as they were before the plan.
    CopyOf {
        /// First byte of the source.
        from_bytes: u64,
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Copies bytes of an older image at this place.
    Older {
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Truncates the image.
    Truncate,
}

/// Target of corruption: a file, a vector, a simulated device.
pub trait Image {
    /// Error of the image.
    type Error;

    /// Fills `buf` from `offset_bytes`.
    ///
    /// # Errors
    /// When the bytes cannot be read.
    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes all of `data` at `offset_bytes`.
    ///
    /// # Errors
    /// When the bytes cannot be written.
    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), Self::Error>;

    /// Truncates the image.
    ///
    /// # Errors
    /// When it cannot be truncated.
    fn truncate(&mut self, len_bytes: u64) -> Result<(), Self::Error>;
}

impl Place {
    /// Returns offset and length in bytes, or `None` if the layout has no such place.
    #[must_use]
    pub fn range(self, geometry: &Geometry) -> Option<(u64, u64)> {
        let slot_offset = |slot: WeuSlot| (slot.0 < geometry.slots).then(|| geometry.slot_offset(slot));
        let inline_bytes = u64::from(EXTENT_HEADER_BYTES);
        match self {
            Self::Superblock(copy) => {
                Superblock::offsets(geometry.device_bytes).get(copy).map(|offset| (*offset, BLOCK))
            }
            Self::VolumeTable(copy) => {
                geometry.volume_table.get(copy).map(|offset| (*offset, VOLUME_TABLE_BYTES))
            }
            Self::RegionMap(copy) => geometry.region_map.get(copy).map(|offset| (*offset, REGION_MAP_BYTES)),
            Self::CheckpointHeader(area) => geometry.checkpoint.get(area).map(|offset| (*offset, BLOCK)),
            Self::CheckpointBlock { area, block } => {
                let exists = area < 2 && block < geometry.checkpoint_blocks.saturating_sub(1);
                exists.then(|| (geometry.checkpoint_block_offset(area, block), BLOCK))
            }
            // A journal device is not part of the image.
            Self::JournalBlock(_) if geometry.has_journal_device() => None,
            Self::JournalBlock(sequence) => Some((geometry.journal_block_offset(sequence), BLOCK)),
            Self::WeuHeader(slot) => {
                let end = slot_offset(slot)?.saturating_add(u64::from(geometry.weu_bytes));
                Some((end.saturating_sub(BLOCK), BLOCK))
            }
            Self::InlineHeader(slot) => Some((slot_offset(slot)?, inline_bytes)),
            Self::ExtentBody(slot) => Some((slot_offset(slot)?.saturating_add(inline_bytes), BODY_BYTES)),
            Self::Slot(slot) => Some((slot_offset(slot)?, u64::from(geometry.weu_bytes))),
        }
    }

    /// Returns the neighbour of the same kind for a swap.
    fn neighbour(self, geometry: &Geometry) -> Self {
        let next_slot = |slot: WeuSlot| {
            let next = slot.0.saturating_add(1);
            WeuSlot(if next < geometry.slots { next } else { 0 })
        };
        match self {
            Self::Superblock(copy) => Self::Superblock(copy ^ 1),
            Self::VolumeTable(copy) => Self::VolumeTable(copy ^ 1),
            Self::RegionMap(copy) => Self::RegionMap(copy ^ 1),
            Self::CheckpointHeader(area) => Self::CheckpointHeader(area ^ 1),
            Self::CheckpointBlock { area, block } => {
                let next = block.saturating_add(1);
                let last = geometry.checkpoint_blocks.saturating_sub(2);
                Self::CheckpointBlock { area, block: if next <= last { next } else { 0 } }
            }
            Self::JournalBlock(sequence) => Self::JournalBlock(JournalSeq(sequence.0.wrapping_add(1))),
            Self::WeuHeader(slot) => Self::WeuHeader(next_slot(slot)),
            Self::InlineHeader(slot) => Self::InlineHeader(next_slot(slot)),
            Self::ExtentBody(slot) => Self::ExtentBody(next_slot(slot)),
            Self::Slot(slot) => Self::Slot(next_slot(slot)),
        }
    }
}

impl Damage {
    /// Returns every effect on every structure, for the copies, areas and slots that `seed` selects, and a truncation
    /// in the last slot. Journal and checkpoint blocks are the first ones.
    #[must_use]
    pub fn every(geometry: &Geometry, seed: u64) -> Vec<Self> {
        let mut dice = Dice(seed);
        let copies = zc_core::u64_from_usize(SUPERBLOCK_COPIES);
        let slot = WeuSlot(u32::try_from(dice.below(u64::from(geometry.slots))).unwrap_or(0));
        let (copy, area) = (usize_from_u64(dice.below(copies)), usize_from_u64(dice.below(2)));
        let places = [
            Place::Superblock(copy),
            Place::VolumeTable(area),
            Place::RegionMap(area),
            Place::CheckpointHeader(area),
            Place::CheckpointBlock { area, block: 0 },
            Place::JournalBlock(JournalSeq(0)),
            Place::WeuHeader(slot),
            Place::InlineHeader(slot),
            Place::ExtentBody(slot),
            Place::Slot(slot),
        ];
        let effects = [Effect::Flip, Effect::Zero, Effect::Tear, Effect::RollBack, Effect::Swap];
        let all = places.iter().flat_map(|place| effects.iter().map(|effect| Self::At(*place, *effect)));
        let last = geometry.slot_offset(WeuSlot(geometry.slots.saturating_sub(1)));
        all.chain([Self::Truncate { len_bytes: last.saturating_add(BLOCK) }]).collect()
    }

    /// Returns the patches; empty if the layout has no such place. The seed selects the bit to flip.
    #[must_use]
    pub fn plan(&self, geometry: &Geometry, seed: u64) -> Vec<Patch> {
        let (place, effect) = match *self {
            Self::Truncate { len_bytes } => {
                return vec![Patch { offset_bytes: len_bytes, kind: PatchKind::Truncate }];
            }
            Self::At(place, effect) => (place, effect),
        };
        let Some((offset_bytes, len_bytes)) = place.range(geometry) else { return Vec::new() };
        let one = |offset_bytes, kind| vec![Patch { offset_bytes, kind }];
        match effect {
            Effect::Flip => {
                let mut dice = Dice(seed);
                let byte = offset_bytes.saturating_add(dice.below(len_bytes));
                let bit = u32::try_from(dice.below(8)).unwrap_or(0);
                one(byte, PatchKind::Xor { mask: 1_u8.rotate_left(bit) })
            }
            Effect::Zero => one(offset_bytes, PatchKind::Zero { len_bytes }),
            Effect::Tear => {
                let half = len_bytes / 2;
                let rest = len_bytes.saturating_sub(half);
                one(offset_bytes.saturating_add(half), PatchKind::Older { len_bytes: rest })
            }
            Effect::RollBack => one(offset_bytes, PatchKind::Older { len_bytes }),
            Effect::Swap => {
                let Some((from_bytes, _)) = place.neighbour(geometry).range(geometry) else {
                    return Vec::new();
                };
                vec![
                    Patch { offset_bytes, kind: PatchKind::CopyOf { from_bytes, len_bytes } },
                    Patch {
                        offset_bytes: from_bytes,
                        kind: PatchKind::CopyOf { from_bytes: offset_bytes, len_bytes },
                    },
                ]
            }
        }
    }
}

/// Applies a plan. `older` is an earlier state of the image, for [`PatchKind::Older`].
///
/// # Errors
/// When an image fails; the image may then be partially patched.
pub fn apply<I: Image, O: Image<Error = I::Error>>(
    patches: &[Patch],
    image: &mut I,
    older: &mut O,
) -> Result<(), I::Error> {
    let mut writes = Vec::with_capacity(patches.len());
    let mut cut = None;
    for patch in patches {
        let mut data = Vec::new();
        match patch.kind {
            PatchKind::Xor { mask } => {
                let mut byte = [0_u8; 1];
                image.read(patch.offset_bytes, &mut byte)?;
                data.extend(byte.map(|byte| byte ^ mask));
            }
            PatchKind::Zero { len_bytes } => data.resize(usize_from_u64(len_bytes), 0),
            PatchKind::CopyOf { from_bytes, len_bytes } => {
                data.resize(usize_from_u64(len_bytes), 0);
                image.read(from_bytes, &mut data)?;
            }
            PatchKind::Older { len_bytes } => {
                data.resize(usize_from_u64(len_bytes), 0);
                older.read(patch.offset_bytes, &mut data)?;
            }
            PatchKind::Truncate => cut = Some(patch.offset_bytes),
        }
        writes.push((patch.offset_bytes, data));
    }
    for (offset_bytes, data) in writes.iter().filter(|(_, data)| !data.is_empty()) {
        image.write(*offset_bytes, data)?;
    }
    cut.map_or(Ok(()), |len_bytes| image.truncate(len_bytes))
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncate { len_bytes } => write!(f, "cut off at byte {len_bytes}"),
            Self::At(place, effect) => {
                let effect = match effect {
                    Effect::Flip => "one bit flipped in",
                    Effect::Zero => "zeros in place of",
                    Effect::Tear => "torn:",
                    Effect::RollBack => "rolled back:",
                    Effect::Swap => "swapped with its neighbour:",
                };
                write!(f, "{effect} {place}")
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock(copy) => write!(f, "superblock copy {copy}"),
            Self::VolumeTable(copy) => write!(f, "volume table copy {copy}"),
            Self::RegionMap(copy) => write!(f, "region map copy {copy}"),
            Self::CheckpointHeader(area) => write!(f, "checkpoint header {area}"),
            Self::CheckpointBlock { area, block } => write!(f, "block {block} of checkpoint {area}"),
            Self::JournalBlock(sequence) => write!(f, "journal block {sequence}"),
            Self::WeuHeader(slot) => write!(f, "WEU header of slot {slot}"),
            Self::InlineHeader(slot) => write!(f, "first inline header of slot {slot}"),
            Self::ExtentBody(slot) => write!(f, "first extent of slot {slot}"),
            Self::Slot(slot) => write!(f, "slot {slot}"),
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): a small generator, of which every seed is good enough to select a bit.
struct Dice(u64);

impl Dice {
    /// Returns a number below `bound`, or 0 if that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "damage_tests.rs"]
mod tests;
