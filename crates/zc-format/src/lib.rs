//! zcached's on-media format: encode, decode, check; no I/O.
//!
//! Job: turn the structures of `FORMAT.md` into blocks and back. Invariants: little-endian; every block carries a
//! CRC-32C that is salted by block type and bound to its place; decoding arbitrary bytes yields an error, never a
//! panic or an allocation larger than the input warrants. It does no I/O, and does not choose a copy for a restart (it
//! only identifies the newest valid one).
//!
//! Headers are read whole at a restart, and every hit verifies a checksum, because both are cheap: parsing a header of
//! 480 extents takes 7 us (15 ns an extent; inserting it into the index takes 20 times that), building one 4 us;
//! verifying an extent with 4 KiB stored takes 0.4 us, as does sealing it (`cargo xtask bench`, two busy cores).
//! us; verifying an extent with 4 KiB stored takes 0.4 us, as does sealing it (`cargo xtask bench`, two busy cores).
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod bytes;
mod checkpoint;
#[cfg(test)]
mod codec_tests;
mod crc;
pub mod damage;
mod error;
mod extent;
mod geometry;
#[cfg(test)]
mod golden_tests;
mod index_image;
mod journal_label;
mod record;
pub mod recover;
mod region_map;
#[cfg(test)]
mod samples_tests;
mod summary;
mod superblock;
mod volumes;
mod weu;

pub use checkpoint::CheckpointHeader;
pub use crc::Salt;
pub use error::FormatError;
pub use extent::{EXTENT_HEADER_BYTES, ExpectedExtent, ExtentError, ExtentHeader, VerifiedExtent};
pub use geometry::{Geometry, GeometryError, JOURNAL_DEVICE, PlanOptions};
pub use index_image::{ImageDirectory, ImageHead, ImagePart, ImagePiece, ImagePlace, ImageSlot, ImageTable};
pub use journal_label::JournalLabel;
pub use record::{
    GrowingUnit, JournalBlock, RECORD_BYTES, RECORDS_PER_BLOCK, Record, decode_checkpoint_block,
    encode_checkpoint_block,
};
pub use region_map::{REGION_MAP_BYTES, RegionMap};
pub use summary::{Summary, SummaryChain, SummaryPlace};
pub use superblock::{Access, Features, SUPERBLOCK_COPIES, Superblock};
pub use volumes::{
    OriginIdentity, OriginKind, VOLUME_TABLE_BYTES, VOLUMES_PER_TABLE, VolumeRecord, VolumeTable,
};
pub use weu::{WeuEntry, WeuHeader};

/// Size of a metadata block, as a length.
pub const BLOCK: usize = zc_core::usize_from_u32(zc_core::limits::BLOCK_BYTES);
