//! Superblock of the device container: identity, session, and the state from which the log continues (`FORMAT-2.md`,
//! section 5.5).
//!
//! Invariants: a decoded superblock has a sound geometry, a log place within it, and counts that can still rise. It does
//! not choose between copies.

use super::bytes::{Cursor, NodeError};
use super::catalog::Top;
use super::node::{LEVELS_MAX, NODES_MAX, Spot};
use super::{BLOCK_BYTES, SEGMENTS_MAX, UNIT_BYTES, UNITS_MAX, checksum, has_checksum};
use zc_core::usize_from_u32;

const MAGIC: [u8; 8] = *b"zcstore\x02";
const VERSION: u32 = 2;
const BYTES: usize = usize_from_u32(BLOCK_BYTES);
/// Distance between the copies.
const COPY_STEP_BYTES: u64 = 64 << 10;
/// Offset of the first slot.
pub const SLOTS_START_BYTES: u64 = 128 << 10;
/// Bounds of the size of a slot: the upper one is that of offsets in units.
pub const SLOT_BYTES_MIN: u32 = 64 << 10;
/// See [`SLOT_BYTES_MIN`].
pub const SLOT_BYTES_MAX: u32 = UNITS_MAX * UNIT_BYTES;
/// Fewest slots of a store.
pub const SLOTS_MIN: u32 = 8;
/// Upper bound of counts that only rise.
pub const COUNT_MAX: u64 = 1 << 62;

/// Place in the log where the next batch is looked for: here, or at the start of the next slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPlace {
    /// Number of the batch.
    pub seq: u64,
    /// Random number of the session that writes it.
    pub nonce: u64,
    /// Segment; the one in the next slot has the next number.
    pub segment: u64,
    /// Slot of the segment.
    pub slot: u32,
    /// Offset in the segment, in units: a multiple of a block.
    pub offset_units: u32,
    /// Ordinal of the next block of the segment.
    pub ordinal: u32,
    /// Slot of the next segment.
    pub next_slot: u32,
}

/// Top of the page table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageTop {
    /// Place of the top node; `None` if no node has a record.
    pub spot: Option<Spot>,
    /// Levels of the page table; at least 1 if there is a top.
    pub levels: u8,
}

/// Superblock of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the pool.
    pub uuid: [u8; 16],
    /// Count of rewrites.
    pub sequence: u64,
    /// Count of openings.
    pub session: u64,
    /// Random number of the opening.
    pub nonce: u64,
    /// Number of slots.
    pub slots: u32,
    /// Size of a slot in bytes.
    pub slot_bytes: u32,
    /// Segments from this number on were never written.
    pub segments_end: u64,
    /// Nodes from this number on do not exist.
    pub nodes_end: u64,
    /// Place of the first batch behind the state.
    pub log: LogPlace,
    /// Number of times that an operator accepted the loss of a part of the log.
    pub losses: u32,
    /// Number of recoveries that dropped commits that nothing proved, since that was last reported.
    pub dropped: u32,
    /// Page table.
    pub pages: PageTop,
    /// Segment table.
    pub segments: Top,
    /// Catalog.
    pub catalog: Top,
    /// Forwards.
    pub forwards: Top,
}

impl Superblock {
    /// Returns the byte offset of a copy on the device.
    #[must_use]
    pub const fn offset_bytes(copy: u8) -> u64 {
        copy as u64 * COPY_STEP_BYTES
    }

    /// Returns the byte offset of a slot on the device.
    #[must_use]
    pub const fn slot_offset_bytes(&self, slot: u32) -> u64 {
        SLOTS_START_BYTES + slot as u64 * self.slot_bytes as u64
    }

    /// Returns the first superblock of an empty store, or `None` if the device is too small or a size is out of bounds.
    #[must_use]
    pub fn format(uuid: [u8; 16], device_bytes: u64, slot_bytes: u32, nonce: u64) -> Option<Self> {
        let room = device_bytes.checked_sub(SLOTS_START_BYTES)?;
        let slots = room.checked_div(u64::from(slot_bytes))?.min(u64::from(u32::MAX));
        let log =
            LogPlace { seq: 1 << 32, nonce, segment: 1, slot: 0, offset_units: 0, ordinal: 0, next_slot: 1 };
        let superblock = Self {
            uuid,
            sequence: 1,
            session: 1,
            nonce,
            slots: u32::try_from(slots).ok()?,
            slot_bytes,
            segments_end: 3,
            nodes_end: 1,
            log,
            losses: 0,
            dropped: 0,
            pages: PageTop::default(),
            segments: Top::default(),
            catalog: Top::default(),
            forwards: Top::default(),
        };
        superblock.validate().ok().map(|()| superblock)
    }

    /// Encodes a copy.
    #[must_use]
    pub fn encode(&self, copy: u8) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend(VERSION.to_le_bytes());
        out.extend(MAGIC);
        out.extend(self.uuid);
        let mut long = |value: u64| out.extend(value.to_le_bytes());
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let spot = self.pages.spot.unwrap_or(Spot { segment: 0, slot: 0, offset_units: 0, bytes: 0, crc: 0 });
        [self.sequence, self.session, self.nonce].into_iter().for_each(&mut long);
        long(pair(self.slots, self.slot_bytes));
        [self.segments_end, self.nodes_end].into_iter().for_each(&mut long);
        [self.log.seq, self.log.nonce, self.log.segment].into_iter().for_each(&mut long);
        long(pair(self.log.slot, self.log.offset_units));
        long(pair(self.log.next_slot, self.log.ordinal));
        long(pair(self.losses, self.dropped));
        long(spot.segment);
        long(pair(spot.offset_units, spot.bytes));
        long(pair(spot.crc, u32::from(self.pages.levels)));
        for top in [self.segments, self.catalog, self.forwards] {
            [top.node, u64::from(top.levels)].into_iter().for_each(&mut long);
        }
        long(u64::from(spot.slot));
        out.resize(BYTES, 0);
        let crc = checksum(&Self::binding(copy), &out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a copy.
    ///
    /// # Errors
    /// When it is no superblock, corrupt, the other copy, of a version or with features unknown here, or a field is out
    /// of bounds.
    pub fn decode(bytes: &[u8], copy: u8) -> Result<Self, NodeError> {
        let bytes = bytes.get(..BYTES).ok_or(NodeError::Truncated)?;
        let mut cursor = Cursor(bytes);
        let crc = u32::from_le_bytes(cursor.array()?);
        let version = u32::from_le_bytes(cursor.array()?);
        if cursor.array()? != MAGIC {
            return Err(NodeError::Magic);
        }
        if !has_checksum(&Self::binding(copy), &bytes[4..], crc) {
            return Err(NodeError::Checksum);
        }
        if version != VERSION {
            return Err(NodeError::Version);
        }
        let uuid = cursor.array()?;
        let mut long = || cursor.array().map(u64::from_le_bytes);
        let (sequence, session, nonce) = (long()?, long()?, long()?);
        let (slots, slot_bytes) = halves(long()?);
        let (segments_end, nodes_end) = (long()?, long()?);
        let (seq, log_nonce, segment) = (long()?, long()?, long()?);
        let (slot, offset_units) = halves(long()?);
        let (next_slot, ordinal) = halves(long()?);
        let log = LogPlace { seq, nonce: log_nonce, segment, slot, offset_units, ordinal, next_slot };
        let (losses, dropped) = halves(long()?);
        let top_segment = long()?;
        let (top_offset, top_bytes) = halves(long()?);
        let (top_crc, page_levels) = halves(long()?);
        let mut tree = || Ok(Top { node: long()?, levels: levels(halves(long()?).0)? });
        let (segments, catalog, forwards) = (tree()?, tree()?, tree()?);
        let (slot, _) = halves(long()?);
        let (offset_units, bytes) = (top_offset, top_bytes);
        let top = Spot { segment: top_segment, slot, offset_units, bytes, crc: top_crc };
        let pages = PageTop { spot: (top.segment != 0).then_some(top), levels: levels(page_levels)? };
        if long()? != 0 {
            return Err(NodeError::Version);
        }
        let found = Self {
            uuid,
            sequence,
            session,
            nonce,
            slots,
            slot_bytes,
            segments_end,
            nodes_end,
            log,
            losses,
            dropped,
            pages,
            segments,
            catalog,
            forwards,
        };
        found.validate().map(|()| found)
    }

    /// Bytes that the checksum covers besides the block. The uuid is in the block, and not known before it is read.
    fn binding(copy: u8) -> [u8; 16] {
        let mut binding = *b"superblock      ";
        binding[15] = copy;
        binding
    }

    /// Checks the fields before anything is computed from them.
    fn validate(&self) -> Result<(), NodeError> {
        let has_sizes = (SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&self.slot_bytes)
            && self.slot_bytes.is_multiple_of(BLOCK_BYTES)
            && self.slots >= SLOTS_MIN;
        if !has_sizes {
            return Err(NodeError::Field("geometry"));
        }
        let counts = [self.sequence, self.session, self.log.seq];
        if counts.iter().any(|count| *count == 0 || *count >= COUNT_MAX) || self.session >= 1 << 28 {
            return Err(NodeError::Field("count"));
        }
        let are_numbers = (1..NODES_MAX).contains(&self.nodes_end) && self.segments_end < SEGMENTS_MAX;
        if !are_numbers {
            return Err(NodeError::Field("end of numbers"));
        }
        let log = &self.log;
        let is_log = log.segment > 0
            && log.segment < self.segments_end
            && log.slot < self.slots
            && log.next_slot < self.slots
            && log.slot != log.next_slot
            && log.offset_units <= self.slot_bytes / UNIT_BYTES
            && log.offset_units.is_multiple_of(BLOCK_BYTES / UNIT_BYTES)
            && log.ordinal <= 1 << 16;
        if !is_log {
            return Err(NodeError::Field("log"));
        }
        let is_page_top = match &self.pages.spot {
            None => self.pages.levels == 0,
            Some(spot) => {
                spot.is_valid()
                    && spot.end_units() <= self.slot_bytes / UNIT_BYTES
                    && spot.segment < self.segments_end
                    && spot.slot < self.slots
                    && (1..=LEVELS_MAX).contains(&self.pages.levels)
            }
        };
        let tops = [self.segments, self.catalog, self.forwards];
        let are_tops = tops.iter().all(|top| top.is_valid() && top.node < self.nodes_end);
        if is_page_top && are_tops { Ok(()) } else { Err(NodeError::Field("table")) }
    }
}

fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

fn levels(value: u32) -> Result<u8, NodeError> {
    u8::try_from(value).map_err(|_| NodeError::Field("levels"))
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
