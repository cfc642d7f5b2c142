//! Recordings of the daemon (`TRACE.md`): a compact binary format with the fingerprints and compressed sizes that the
//! cache computed.
//!
//! Job: [`Writer`] writes [`Record`]s into independently readable blocks; [`Decoder`] returns them as [`Run`]s. The
//! daemon writes, `zc-trace` reads: a crate of its own keeps the readers of other formats out of the daemon.
//!
//! Invariants: a decoder returns exactly the written records; a corrupt block costs its requests and is reported, and
//! so is a missing end. No length in a file causes an allocation beyond [`PAYLOAD_BYTES_MAX`].
//!
//! It does not observe requests, hold keys, or open files: it uses any reader or writer.
#![forbid(unsafe_code)]

mod decode;
mod encode;
mod sample;
mod varint;

pub use decode::{Decoder, Run};
pub use encode::Writer;
pub use sample::{SAMPLE_UNIT_BYTES, Share};

use zc_core::Codec;
use zc_core::limits::{EXTENT_BYTES_MAX, EXTENT_BYTES_MIN};

/// First bytes of a recording.
pub const MAGIC: [u8; 8] = *b"ZCREC\r\n\x1a";
/// Version that is written, and the only one that is accepted.
const VERSION: u16 = 1;
/// Bytes of the file's header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 16;
/// First bytes of a block of records.
const RECORDS: [u8; 4] = *b"ZCRb";
/// First bytes of the last block.
const END: [u8; 4] = *b"ZCRe";
/// Payload after which a block is written.
pub const PAYLOAD_BYTES: usize = 64 << 10;
/// Longest payload that is accepted.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Extents of one request with recorded information, from its start: 32 MiB in extents of 4 KiB.
pub const KNOWN_MAX: usize = 8192;
/// Largest end of an accepted request, in bytes.
pub const ADDRESS_MAX: u64 = 1 << 62;
/// Bytes of a sector, the unit of positions and lengths.
const SECTOR: u64 = zc_core::SECTOR_BYTES as u64;

const TAG_CONTENTS: u8 = 1 << 3;
const TAG_FOLLOWS: u8 = 1 << 4;
const TAG_AS_LONG: u8 = 1 << 5;
const TAG_LOST: u8 = 5;

const KIND_UNKNOWN: u64 = 0;
const KIND_ZERO: u64 = 1;
const KIND_PRINT: u64 = 2;
const KIND_SIZE: u64 = 3;
const KIND_BOTH: u64 = 4;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Makes everything durable.
    Flush,
    /// Releases data.
    Discard,
    /// Writes zeros without transferring them.
    Zeroes,
}

const ASKED: [Asked; 5] = [Asked::Read, Asked::Write, Asked::Flush, Asked::Discard, Asked::Zeroes];

/// Information on an extent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Known {
    /// None.
    #[default]
    Unknown,
    /// All zeros.
    Zero,
    /// At least one of these.
    Named {
        /// Fingerprint, equal for equal extents.
        print: Option<u64>,
        /// Codec and size after compression; [`Codec::Raw`] if incompressible.
        stored: Option<(Codec, u32)>,
    },
}

/// A request to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since the recording began; later than the record before.
    pub time_ns: u64,
    /// Kind.
    pub asked: Asked,
    /// First byte, of a whole sector.
    pub offset_bytes: u64,
    /// Length in bytes, in whole sectors.
    pub len_bytes: u64,
    /// Information on each extent, in order; empty if there is none.
    pub known: Vec<Known>,
}

/// Header of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of an extent.
    pub extent_bytes: u32,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// The sample.
    pub share: Share,
    /// Start, in seconds since 1970.
    pub began_s: u64,
}

/// Reason of the end of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// On request of an operator.
    Asked,
    /// The duration was reached.
    Time,
    /// The size of the file was reached.
    Size,
    /// The daemon stopped.
    Stopped,
}

const ENDED: [Ended; 4] = [Ended::Asked, Ended::Time, Ended::Size, Ended::Stopped];

impl Ended {
    /// Returns the word for machine-readable output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Time => "time",
            Self::Size => "size",
            Self::Stopped => "stopped",
        }
    }
}

/// End record of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Reason.
    pub why: Ended,
    /// Requests in the recording.
    pub requests: u64,
    /// Requests that are missing because the recorder did not keep up.
    pub lost: u64,
    /// Extents with information.
    pub known: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
}

/// Returns the number of extents that a range overlaps.
#[must_use]
pub const fn extents_of(offset_bytes: u64, len_bytes: u64, extent_bytes: u32) -> u64 {
    let extent = extent_bytes as u64;
    match offset_bytes.saturating_add(len_bytes) {
        _ if len_bytes == 0 => 0,
        end => end.div_ceil(extent) - offset_bytes / extent,
    }
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &64_u16.to_le_bytes());
        put(12, &self.extent_bytes.to_le_bytes());
        put(16, &self.volume_bytes.to_le_bytes());
        put(24, &self.share.kept().to_le_bytes());
        put(28, &self.share.of().to_le_bytes());
        put(32, &SAMPLE_UNIT_BYTES.to_le_bytes());
        put(40, &self.began_s.to_le_bytes());
        let crc = zc_core::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, &'static str> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(short(at)) | (u32::from(short(at + 2)) << 16);
        let long = |at: usize| u64::from(word(at)) | (u64::from(word(at + 4)) << 32);
        if bytes[..8] != MAGIC {
            return Err("it does not begin like a recording");
        }
        if word(60) != zc_core::crc32c(&bytes[..60]) {
            return Err("the header of the recording is damaged");
        }
        if (short(8), usize::from(short(10))) != (VERSION, HEADER_BYTES) {
            return Err("the recording is of a version that this program does not know");
        }
        let extent_bytes = word(12);
        let unit = word(32);
        let extent_fits = extent_bytes.is_power_of_two()
            && (EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent_bytes)
            && unit != 0
            && unit.is_multiple_of(extent_bytes);
        let share = Share::new(word(24), word(28));
        match share {
            Some(share) if extent_fits => {
                Ok(Self { extent_bytes, volume_bytes: long(16), share, began_s: long(40) })
            }
            _ => Err("the header of the recording makes no sense"),
        }
    }
}

// The tests' sample names the crate as other crates do.
#[cfg(test)]
extern crate self as zc_recording;

#[cfg(test)]
mod tests;
