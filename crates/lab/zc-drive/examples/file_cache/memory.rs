//! The bytes behind the manager's numbers of buffers and slots.

use zc_cache::seam::{ExtentRead, Source};
use zc_core::{BufId, BufSlice, Map, WeuSlot, usize_from_u32};
use zc_format::{ExtentError, ExtentHeader, Salt};

/// Buffers, and a cache device in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) bufs: Map<BufId, Vec<u8>>,
    pub(crate) slots: Map<WeuSlot, Vec<u8>>,
}

impl Memory {
    pub(crate) fn slice(&mut self, slice: BufSlice) -> &mut [u8] {
        let bytes = self.bufs.entry(slice.buf).or_default();
        &mut bytes[usize_from_u32(slice.start_bytes)..][..usize_from_u32(slice.len_bytes)]
    }

    /// Writes an extent, with the header that identifies it, into a unit's buffer.
    pub(crate) fn seal(&mut self, weu: BufId, at: u32, header: &ExtentHeader, payload: BufSlice, salt: Salt) {
        let payload = self.slice(payload).to_vec();
        let unit = self.bufs.entry(weu).or_default();
        header.seal(at, &payload, &mut unit[usize_from_u32(at)..], salt);
    }

    /// Returns the bytes of a unit: open units are in their buffer.
    pub(crate) fn unit(&self, source: Source, slot: WeuSlot) -> Vec<u8> {
        match source {
            Source::Memory(buf) => self.bufs[&buf].clone(),
            Source::Device => self.slots[&slot].clone(),
        }
    }

    /// Verifies an extent of a unit, and copies the wanted part out.
    pub(crate) fn copy_out(&mut self, unit: &[u8], part: &ExtentRead) -> Result<(), ExtentError> {
        let stored = &unit[usize_from_u32(part.expected.offset_bytes)..];
        let payload = &stored[ExtentHeader::verify(stored, &part.expected)?.payload];
        let wanted = &payload[usize_from_u32(part.skip_bytes)..][..usize_from_u32(part.dest.len_bytes)];
        self.slice(part.dest).copy_from_slice(wanted);
        Ok(())
    }
}
