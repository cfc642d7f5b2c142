//! Types that every zcached crate shares: ids, fingerprints, codecs, sector maps, checksums and limits.
//!
//! Job: give each concept one type, so that a slot cannot be passed for an extent number. Counts are plain integers
//! with their unit in the name (`_bytes`, `_ms`).
//!
//! Invariants: no I/O, no clock, no threads; conversions between widths are lossless or report an error.
//!
//! Out of scope: behaviour. Policy lives in `zc-cache`, layout in `zc-format`.
#![forbid(unsafe_code)]

mod checksum;
mod convert;
mod error;
mod hex;
mod ids;
pub mod limits;
mod map;
mod reduced;
mod sectors;
pub mod units;
mod words;

pub use checksum::{crc32c, crc32c_append};
pub use convert::{u64_from_usize, usize_from_u32, usize_from_u64};
pub use error::{Errno, ErrorKind};
pub use hex::hex;
pub use ids::{
    BufId, BufSlice, ExtentKey, ExtentNo, Generation, JournalSeq, OpId, RegionKey, ReqId, VolumeId, WeuSeq,
    WeuSlot,
};
pub use map::{FixedHasher, HashKey, KeyedMap, KeyedSet, Map, Set};
pub use reduced::{Codec, DedupDomain, Fingerprint, FingerprintKind};
pub use sectors::{SECTOR_BYTES, SectorMap, SectorSpan};
pub use words::{Ack, Destage, Mode, NoSuchWord, Priority};
