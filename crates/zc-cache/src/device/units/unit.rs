//! Unit being filled: its slot, memory, and contents so far. Clean and dirty extents use the same kind of unit; the
//! unit's owner chooses the place of an extent.
//!
//! Invariant: each extent in memory has its inline header and its entry; the header receives the entries when the unit
//! is sealed. Out of scope: writing.

use zc_core::{
    BufId, BufSlice, Codec, ExtentKey, Fingerprint, Generation, SectorSpan, VolumeId, WeuSeq, WeuSlot,
};
use zc_format::{ExtentHeader, WeuEntry, WeuHeader};

use crate::base::Base;
use crate::device::stored::Stored;
use crate::device::stored::stored_of;
use crate::seam::Action;

/// Extent to be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Content {
    pub(crate) key: ExtentKey,
    pub(crate) print: Fingerprint,
    pub(crate) codec: Codec,
    pub(crate) payload: BufSlice,
    pub(crate) raw_bytes: u32,
    /// Sectors of the extent that it contains, if it is dirty.
    pub(crate) dirty: Option<SectorSpan>,
}

#[derive(Debug)]
pub(super) struct Unit {
    slot: WeuSlot,
    buf: BufId,
    generation: Generation,
    weu_seq: WeuSeq,
    entries: Vec<WeuEntry>,
}

impl Unit {
    pub(super) const fn new(slot: WeuSlot, generation: Generation, weu_seq: WeuSeq, buf: BufId) -> Self {
        Self { slot, buf, generation, weu_seq, entries: Vec::new() }
    }

    pub(super) const fn slot(&self) -> WeuSlot {
        self.slot
    }

    pub(super) const fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) const fn buf(&self) -> BufId {
        self.buf
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns `true` if it has an extent of a matching volume.
    pub(super) fn has_extent_of(&self, is_one: impl Fn(VolumeId) -> bool) -> bool {
        self.entries.iter().any(|entry| is_one(entry.key.volume))
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Header length with one more extent, in bytes.
    pub(super) fn header_bytes_with_next(&self) -> u32 {
        WeuHeader::encoded_bytes(self.len().saturating_add(1))
    }

    /// Stores an extent at this offset. Returns its place.
    pub(super) fn place(&mut self, content: &Content, offset_bytes: u32, base: &mut Base) -> Stored {
        let Content { key, print, codec, payload, raw_bytes, dirty } = *content;
        let stored_bytes = payload.len_bytes;
        let header = ExtentHeader {
            slot: self.slot,
            generation: self.generation,
            weu_seq: self.weu_seq,
            stored_bytes,
            raw_bytes,
            first_sector: dirty.map_or(0, |span| span.first()),
            key,
            codec,
            fingerprint: print,
        };
        self.entries.push(WeuEntry { key, offset_bytes, stored_bytes, codec, fingerprint: print, dirty });
        base.port.emit(Action::Place { weu: self.buf, offset_bytes, header, payload });
        stored_of(offset_bytes, stored_bytes)
    }

    /// Zeros a range of the memory, so that old contents do not reach the device.
    pub(super) fn zero(&self, from_bytes: u32, to_bytes: u32, base: &mut Base) {
        if from_bytes < to_bytes {
            let dest = BufSlice { buf: self.buf, start_bytes: from_bytes, len_bytes: to_bytes - from_bytes };
            base.port.emit(Action::Zero { dest });
        }
    }

    /// Returns the header of the full unit, and its length in bytes.
    pub(super) fn into_header(mut self, session: u64) -> (Box<WeuHeader>, u32) {
        let header_bytes = WeuHeader::encoded_bytes(self.len());
        self.entries.sort_unstable_by_key(|entry| entry.offset_bytes);
        let Self { slot, generation, weu_seq, entries, .. } = self;
        (Box::new(WeuHeader { slot, generation, weu_seq, session, entries }), header_bytes)
    }
}
