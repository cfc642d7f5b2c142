//! The store's second format (`FORMAT-2.md`): encodings, and the machine that writes and reads them.
//!
//! Job: names of blocks, nodes of trees, frames of contents, batches of the log and superblocks, as bytes and back; the
//! store of thin volumes over them ([`Store`]). Invariants: a decoded value is within the bounds of the format; whatever
//! decodes encodes to something that decodes to the same. It does no I/O.
//!
//! The programs still use format 1. Section 13 of the design lists what is missing.

pub mod batch;
mod bytes;
pub mod catalog;
mod cleaning;
mod config;
mod core;
pub mod frame;
mod index;
pub mod leaf;
mod log;
pub mod node;
pub mod recipes;
mod recovery;
pub mod seam;
pub mod segments;
pub mod superblock;
pub mod varint;

pub use self::core::Store;
pub use bytes::NodeError;
pub use config::Config;

/// Size of a block, the unit of identity.
pub const BLOCK_BYTES: u32 = 4096;
/// Unit of offsets and lengths of frames in a segment.
pub const UNIT_BYTES: u32 = 64;
/// Upper bound of offsets in a segment, in units: segments of 64 MiB.
pub const UNITS_MAX: u32 = 1 << 20;
/// Upper bound of blocks in a frame.
pub const FRAME_BLOCKS_MAX: u8 = 16;
/// Upper bound of segment numbers, which are never reused.
pub const SEGMENTS_MAX: u64 = 1 << 40;

/// Name of a block: the segment in which it was written first, and its position there. A name is never reused, and the
/// contents under it never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Pool: 0 for the store itself, else the position of a parent pool.
    pub pool: u8,
    /// Segment, below [`SEGMENTS_MAX`]; not 0.
    pub segment: u64,
    /// Position among the blocks of the segment.
    pub ordinal: u16,
}

impl Name {
    /// Returns the name `blocks` later in the same segment, or `None` beyond its last ordinal.
    #[must_use]
    pub fn later(self, blocks: u16) -> Option<Self> {
        Some(Self { ordinal: self.ordinal.checked_add(blocks)?, ..self })
    }

    const fn is_valid(self) -> bool {
        self.segment != 0 && self.segment < SEGMENTS_MAX
    }

    /// Returns pool and segment as one number of 48 bits.
    const fn place(self) -> u64 {
        (self.pool as u64) << 40 | self.segment
    }

    /// Returns the name with this number of pool and segment, or `None` out of bounds.
    fn from_place(place: u64, ordinal: u64) -> Option<Self> {
        let segment = place & (SEGMENTS_MAX - 1);
        let name =
            Self { pool: u8::try_from(place >> 40).ok()?, segment, ordinal: u16::try_from(ordinal).ok()? };
        name.is_valid().then_some(name)
    }
}

/// Checksum of a structure: covers the uuid of the pool, so that a structure of another pool does not match.
fn checksum(uuid: &[u8; 16], covered: &[u8]) -> u32 {
    zc_core::crc32c_append(zc_core::crc32c(uuid), covered)
}

/// Returns `true` if the bytes have this checksum. Under a fuzzer every checksum passes, so that it reaches the fields.
fn has_checksum(uuid: &[u8; 16], covered: &[u8], crc: u32) -> bool {
    cfg!(fuzzing) || checksum(uuid, covered) == crc
}
