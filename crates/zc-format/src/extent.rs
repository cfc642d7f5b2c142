//! Stored extents: inline header, payload, and their verification (G3; `FORMAT.md`, section 9).
//!
//! Job: seal an extent into its place, verify one that was read. Invariants: no field of a header is used before its
//! bound is checked, no payload is returned before the checksum over header, payload and place matches. It does not
//! decode the payload.

use core::ops::Range;

use zc_core::{
    Codec, ExtentKey, ExtentNo, Fingerprint, Generation, VolumeId, WeuSeq, WeuSlot, limits, usize_from_u32,
};

use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};

/// Size of the inline header.
pub const EXTENT_HEADER_BYTES: u32 = 64;
const HEADER: usize = 64;
/// Fingerprint bytes kept inline.
const PRINT_BYTES: usize = 24;

/// The inline header of a stored extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentHeader {
    /// Its slot.
    pub slot: WeuSlot,
    /// The slot's generation.
    pub generation: Generation,
    /// The WEU's sequence number.
    pub weu_seq: WeuSeq,
    /// Size of the payload.
    pub stored_bytes: u32,
    /// Decoded size: the extent, or a piece of it that was stored dirty.
    pub raw_bytes: u32,
    /// First stored sector of the extent; 0 for whole extents.
    pub first_sector: u8,
    /// Base: the extent that first stored the content.
    pub key: ExtentKey,
    /// Encoding of the payload.
    pub codec: Codec,
    /// Fingerprint; the first 24 bytes are stored.
    pub fingerprint: Fingerprint,
}

/// Expected properties of the extent at a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExpectedExtent {
    /// Salt of the cache.
    pub salt: Salt,
    /// The slot.
    pub slot: WeuSlot,
    /// Its generation.
    pub generation: Generation,
    /// The WEU's sequence number.
    pub weu_seq: WeuSeq,
    /// Byte offset in the slot.
    pub offset_bytes: u32,
    /// Decoded size.
    pub raw_bytes: u32,
    /// First stored sector of the extent.
    pub first_sector: u8,
    /// Base, for base entries. A duplicate entry has none: slot, generation, sequence and offset identify content that
    /// never changes.
    pub key: Option<ExtentKey>,
    /// Expected fingerprint, if known: its first 24 bytes are compared.
    pub print: Option<Fingerprint>,
}

/// Reason why bytes are not the expected extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// Fewer bytes than header and payload need.
    #[error("the stored extent is cut off")]
    Truncated,
    /// The bytes belong to another slot, generation or WEU: misdirected, rolled back or never written.
    #[error("another WEU's bytes are in its place")]
    Place,
    /// The bytes belong to another extent.
    #[error("another extent is in its place")]
    Identity,
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// Sizes or codec are impossible.
    #[error("its header is impossible")]
    Header,
    /// The payload does not decode.
    #[error("its payload does not decode")]
    Payload,
    /// All of it verifies, but the content does not match its fingerprint.
    #[error("its content is not that of its fingerprint")]
    Content,
}

/// Verified extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedExtent {
    /// Encoding of the payload.
    pub codec: Codec,
    /// Position of the payload in the verified bytes.
    pub payload: Range<usize>,
    /// The header, with a fingerprint truncated to 24 bytes.
    pub header: ExtentHeader,
}

impl ExtentHeader {
    /// Writes header and payload to the start of `out`, for the place `offset_bytes` in the slot.
    ///
    /// # Panics
    /// When `out` is too small or the payload does not have the size in the header.
    pub fn seal(&self, offset_bytes: u32, payload: &[u8], out: &mut [u8], salt: Salt) {
        assert_eq!(payload.len(), usize_from_u32(self.stored_bytes), "payload size");
        let (head, body) = out.split_at_mut(HEADER);
        let mut w = Writer::new(head);
        let (print, _) = self.fingerprint.0.split_at(PRINT_BYTES);
        w.u32(0).u32(self.slot.0).u32(self.generation.0).u32(self.stored_bytes).u64(self.weu_seq.0);
        w.u64(self.key.extent.0).u16(self.key.volume.0).u8(self.codec.media_code());
        w.u8(self.first_sector).u32(self.raw_bytes);
        w.put(print);
        body.split_at_mut(payload.len()).0.copy_from_slice(payload);
        let (sealed, _) = out.split_at_mut(HEADER.saturating_add(payload.len()));
        binding(self.slot, self.generation, self.weu_seq, offset_bytes, salt).seal(sealed);
    }

    /// Returns the sequence in the bytes at a location. Not verified; for callers that have slot and generation only.
    #[must_use]
    pub fn peek_weu_seq(bytes: &[u8]) -> Option<WeuSeq> {
        decode(bytes).ok().map(|header| header.weu_seq)
    }

    /// Verifies that the bytes at a location are the expected extent.
    ///
    /// # Errors
    /// The fault; the caller treats a clean extent as a miss.
    pub fn verify(bytes: &[u8], expected: &ExpectedExtent) -> Result<VerifiedExtent, ExtentError> {
        let header = decode(bytes)?;
        let same_place = header.slot == expected.slot
            && header.generation == expected.generation
            && header.weu_seq == expected.weu_seq;
        if !same_place {
            return Err(ExtentError::Place);
        }
        let same_shape =
            header.raw_bytes == expected.raw_bytes && header.first_sector == expected.first_sector;
        if !same_shape || header.stored_bytes > header.raw_bytes {
            return Err(ExtentError::Header);
        }
        let end = HEADER.saturating_add(usize_from_u32(header.stored_bytes));
        let sealed = bytes.get(..end).ok_or(ExtentError::Truncated)?;
        let ExpectedExtent { slot, generation, weu_seq, offset_bytes, salt, .. } = *expected;
        let bound = binding(slot, generation, weu_seq, offset_bytes, salt);
        bound.check(sealed).map_err(|_| ExtentError::Checksum)?;
        if expected.key.is_some_and(|key| key != header.key) {
            return Err(ExtentError::Identity);
        }
        if expected.print.is_some_and(|print| !is_cut(&header.fingerprint, &print)) {
            return Err(ExtentError::Identity);
        }
        Ok(VerifiedExtent { codec: header.codec, payload: HEADER..end, header })
    }
}

impl VerifiedExtent {
    /// Returns `true` if a content with this fingerprint matches the header: the first 24 bytes are compared. A piece
    /// of an extent was stored without a fingerprint, so no content matches.
    #[must_use]
    pub fn is_content(&self, print: &Fingerprint) -> bool {
        is_cut(&self.header.fingerprint, print)
    }
}

/// Returns `true` if a stored fingerprint is a prefix of this one.
fn is_cut(stored: &Fingerprint, print: &Fingerprint) -> bool {
    stored.0.iter().zip(&print.0).take(PRINT_BYTES).all(|(stored, whole)| stored == whole)
}

fn binding(slot: WeuSlot, generation: Generation, weu_seq: WeuSeq, offset_bytes: u32, salt: Salt) -> Binding {
    Binding {
        salt,
        kind: BlockType::Extent,
        place: u64::from(slot.0) << 32 | u64::from(offset_bytes),
        sequence: weu_seq.0,
        generation: u64::from(generation.0),
    }
}

fn decode(bytes: &[u8]) -> Result<ExtentHeader, ExtentError> {
    let read = || -> Result<_, crate::FormatError> {
        let mut r = Reader::new(bytes);
        let (_, slot, generation, stored_bytes) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let (weu_seq, extent, volume, codec, first) = (r.u64()?, r.u64()?, r.u16()?, r.u8()?, r.u8()?);
        let raw_bytes = r.u32()?;
        let mut print = [0; 32];
        print.split_at_mut(PRINT_BYTES).0.copy_from_slice(r.take(PRINT_BYTES)?);
        Ok((slot, generation, stored_bytes, weu_seq, extent, volume, codec, first, raw_bytes, print))
    };
    let (slot, generation, stored_bytes, weu_seq, extent, volume, codec, first_sector, raw_bytes, print) =
        read().map_err(|_| ExtentError::Truncated)?;
    let header = ExtentHeader {
        slot: WeuSlot(slot),
        generation: Generation(generation),
        weu_seq: WeuSeq(weu_seq),
        stored_bytes,
        raw_bytes,
        first_sector,
        key: ExtentKey { volume: VolumeId(volume), extent: ExtentNo(extent) },
        codec: Codec::from_media_code(codec).ok_or(ExtentError::Header)?,
        fingerprint: Fingerprint(print),
    };
    if raw_bytes > limits::EXTENT_BYTES_MAX {
        return Err(ExtentError::Header);
    }
    Ok(header)
}
