//! Words that every zcached crate shares: ids, units, fingerprints, codecs, sector maps and limits.
//!
//! Job: give each concept of the design one type, so that a slot can never be passed for an extent number
//! and a byte count never for a sector count.
//!
//! Invariants: no I/O, no clock, no threads; arithmetic on ids and units is checked or saturating.
//!
//! What it does not do: anything with behaviour of its own. Policy lives in `zc-cache`, layout in `zc-format`.
#![forbid(unsafe_code)]

mod convert;
mod error;
mod ids;
pub mod limits;
mod map;
mod reduced;
mod sectors;

pub use convert::{u64_from_usize, usize_from_u32, usize_from_u64};
pub use error::{Errno, ErrorKind};
pub use ids::{
    BufId, BufSlice, ExtentKey, ExtentNo, Generation, JournalSeq, OpId, RegionKey, ReqId, VolumeId, WeuSeq,
    WeuSlot,
};
pub use map::{FixedHasher, Map, Set};
pub use reduced::{Codec, Fingerprint, FingerprintKind};
pub use sectors::{SECTOR_BYTES, SectorMap, SectorSpan};
