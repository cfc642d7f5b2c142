//! The unit header, at the end of its slot: the contents of the slot (`FORMAT.md`, section 9). Read at a restart, at
//! an eviction and to verify fingerprint hints; never rewritten within a generation.
//!
//! Job: encode and decode it. Invariants of decoded headers: entries are in order, do not overlap, precede the header,
//! and have addresses in range. It does not compare the session with the cache's; the caller must, because a slot may
//! still hold the header of an older cache on the same device.

use zc_core::{
    Codec, ExtentKey, ExtentNo, Fingerprint, Generation, SectorSpan, VolumeId, WeuSeq, WeuSlot, limits,
    usize_from_u32,
};

use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};
use crate::extent::EXTENT_HEADER_BYTES;
use crate::{BLOCK, FormatError};

const MAGIC: u32 = u32::from_le_bytes(*b"zcWh");
const ENTRY_BYTES: u32 = 56;
/// Flag of an entry that was stored dirty.
const DIRTY: u8 = 1;
/// Fixed fields, at the very end of the slot.
const TRAILER_BYTES: u32 = 64;
const TRAILER: usize = usize_from_u32(TRAILER_BYTES);
/// Entries of the largest header: half of the largest WEU.
const ENTRIES_MAX: u32 = (limits::WEU_BYTES_MAX / 2 - TRAILER_BYTES) / ENTRY_BYTES;

/// Stored extent of a unit: a base, or data that was stored dirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeuEntry {
    /// The extent.
    pub key: ExtentKey,
    /// Byte offset of its inline header in the slot.
    pub offset_bytes: u32,
    /// Size of its payload.
    pub stored_bytes: u32,
    /// Encoding of the payload.
    pub codec: Codec,
    /// Fingerprint of the extent; zeros for a piece of one.
    pub fingerprint: Fingerprint,
    /// For dirty data: its sectors of the extent. Such an entry does not map them by itself.
    pub dirty: Option<SectorSpan>,
}

/// The header of a WEU.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeuHeader {
    /// The slot.
    pub slot: WeuSlot,
    /// Its generation.
    pub generation: Generation,
    /// The WEU's sequence number.
    pub weu_seq: WeuSeq,
    /// Session that wrote it.
    pub session: u64,
    /// Stored extents by ascending offset.
    pub entries: Vec<WeuEntry>,
}

impl WeuHeader {
    /// Returns the size of a header with this many entries, a multiple of 4096. For absurd counts it saturates at the
    /// size of the largest unit, which no valid header has.
    #[must_use]
    pub fn encoded_bytes(entries: u32) -> u32 {
        let bytes = entries
            .min(ENTRIES_MAX.saturating_mul(2))
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(TRAILER_BYTES);
        bytes.next_multiple_of(limits::BLOCK_BYTES)
    }

    /// Encodes the header into the last [`WeuHeader::encoded_bytes`] bytes of the slot.
    ///
    /// # Panics
    /// When `tail` has another size.
    pub fn encode_into(&self, tail: &mut [u8], salt: Salt) {
        let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let size = Self::encoded_bytes(count);
        assert_eq!(tail.len(), usize_from_u32(size), "header size");
        tail.fill(0);
        let mut w = Writer::new(tail);
        for entry in &self.entries {
            let (first, last) = entry.dirty.map_or((0, 0), |span| (span.first(), span.last()));
            w.u16(entry.key.volume.0).u8(entry.codec.media_code()).u8(u8::from(entry.dirty.is_some()));
            w.u32(entry.offset_bytes).u32(entry.stored_bytes).u8(first).u8(last).u16(0);
            w.u64(entry.key.extent.0).put(&entry.fingerprint.0);
        }
        if let Some((_, trailer)) = tail.split_last_chunk_mut::<TRAILER>() {
            let mut w = Writer::new(trailer);
            w.u32(MAGIC).u32(size).u32(count).u32(self.slot.0).u32(self.generation.0).u32(0);
            w.u64(self.weu_seq.0).u64(self.session);
        }
        if let Some((covered, crc)) = tail.split_last_chunk_mut::<4>() {
            *crc = binding(self.slot, self.generation.0, self.weu_seq.0, salt).crc(covered).to_le_bytes();
        }
    }

    /// Returns the size of the header with this last block. Not verified, but within bounds.
    ///
    /// # Errors
    /// When there is no header.
    pub fn peek_len(last_block: &[u8], weu_bytes: u32) -> Result<u32, FormatError> {
        let mut r = Reader::new(trailer(last_block)?);
        if r.u32()? != MAGIC {
            return Err(FormatError::Magic);
        }
        let (size, count) = (r.u32()?, r.u32()?);
        if count > ENTRIES_MAX || size > weu_bytes / 2 || size != Self::encoded_bytes(count) {
            return Err(FormatError::Field("header size"));
        }
        Ok(size)
    }

    /// Decodes the header of a slot from at least its last bytes.
    ///
    /// # Errors
    /// When there is none, or it is torn, corrupt, from another slot, or contradictory.
    pub fn decode(
        tail: &[u8],
        slot: WeuSlot,
        weu_bytes: u32,
        extent_bytes: u32,
        salt: Salt,
    ) -> Result<Self, FormatError> {
        let size = usize_from_u32(Self::peek_len(tail, weu_bytes)?);
        let start = tail.len().checked_sub(size).ok_or(FormatError::Truncated)?;
        let bytes = tail.get(start..).ok_or(FormatError::Truncated)?;
        let mut r = Reader::new(trailer(bytes)?);
        r.u64()?;
        let (count, found, generation, _) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let (weu_seq, session) = (r.u64()?, r.u64()?);
        if found != slot.0 {
            return Err(FormatError::Field("slot"));
        }
        let (covered, crc) = bytes.split_last_chunk::<4>().ok_or(FormatError::Truncated)?;
        if !binding(slot, generation, weu_seq, salt).matches(*crc, covered) {
            return Err(FormatError::Checksum);
        }
        let data_end = weu_bytes.saturating_sub(u32::try_from(size).unwrap_or(weu_bytes));
        let entries = decode_entries(bytes, count, data_end, extent_bytes)?;
        Ok(Self { slot, generation: Generation(generation), weu_seq: WeuSeq(weu_seq), session, entries })
    }
}

fn trailer(bytes: &[u8]) -> Result<&[u8], FormatError> {
    if bytes.len() < BLOCK {
        return Err(FormatError::Truncated);
    }
    let (_, trailer) = bytes.split_last_chunk::<TRAILER>().ok_or(FormatError::Truncated)?;
    Ok(trailer)
}

fn binding(slot: WeuSlot, generation: u32, weu_seq: u64, salt: Salt) -> Binding {
    Binding {
        salt,
        kind: BlockType::WeuHeader,
        place: u64::from(slot.0),
        sequence: weu_seq,
        generation: u64::from(generation),
    }
}

fn decode_entries(
    bytes: &[u8],
    count: u32,
    data_end: u32,
    extent_bytes: u32,
) -> Result<Vec<WeuEntry>, FormatError> {
    let mut r = Reader::new(bytes);
    let mut entries = Vec::with_capacity(usize_from_u32(count));
    let mut free_from = 0;
    for _ in 0..count {
        let (volume, codec, flags, offset_bytes) = (r.u16()?, r.u8()?, r.u8()?, r.u32()?);
        let (stored_bytes, first, last, _) = (r.u32()?, r.u8()?, r.u8()?, r.u16()?);
        let extent = r.u64()?;
        let fingerprint = Fingerprint(r.array()?);
        let end = offset_bytes.saturating_add(EXTENT_HEADER_BYTES).saturating_add(stored_bytes);
        let span = SectorSpan::from_ends(first, last);
        let dirty = if flags & DIRTY == 0 { None } else { span };
        let raw_bytes = dirty.map_or(extent_bytes, SectorSpan::len_bytes);
        let sane = offset_bytes.is_multiple_of(limits::PLACE_ALIGN_BYTES)
            && offset_bytes >= free_from
            && stored_bytes <= raw_bytes
            && raw_bytes <= extent_bytes
            && span.is_some()
            && flags & !DIRTY == 0
            && end <= data_end
            && volume < limits::VOLUMES_MAX
            && extent < limits::EXTENTS_PER_VOLUME_MAX;
        let codec = Codec::from_media_code(codec).filter(|_| sane).ok_or(FormatError::Field("WEU entry"))?;
        free_from = end;
        let key = ExtentKey { volume: VolumeId(volume), extent: ExtentNo(extent) };
        entries.push(WeuEntry { key, offset_bytes, stored_bytes, codec, fingerprint, dirty });
    }
    Ok(entries)
}
