//! Blocks on media: fields at fixed offsets, checksums bound to kind, store and place (`FORMAT.md`).
//!
//! Job: encode and decode; no I/O. Invariants: little-endian; a decoded block has a checksum that matches where it was
//! read from; arbitrary bytes give an error, never a panic. What it does not do: decide which copy or batch counts.

pub(crate) mod batch;
#[cfg(test)]
mod media_tests;
pub(crate) mod page;
pub(crate) mod superblock;

use crate::ids::Place;

/// Bytes of a block.
pub const BLOCK: usize = zc_core::usize_from_u32(crate::limits::BLOCK_BYTES);
/// A block.
pub type Block = [u8; BLOCK];

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// Not a whole block.
    #[error("the block is truncated")]
    Truncated,
    /// Not this kind of block, or nothing was ever written there.
    #[error("the block does not begin with the expected magic number")]
    Magic,
    /// Damaged, torn, of another store or from another place.
    #[error("the block's checksum does not match its contents and place")]
    Checksum,
    /// Made by a version that this one cannot read.
    #[error("the store was written by a newer version of zcached")]
    Version,
    /// The checksum is right, a field is not.
    #[error("field {0} of the block has an impossible value")]
    Field(&'static str),
}

/// What a checksum covers besides the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    kind: u64,
    uuid: [u8; 16],
    place: (u64, u64),
}

impl Binding {
    const SUPERBLOCK: u64 = 0x7a73_0001;
    const BATCH: u64 = 0x7a73_0002;
    const PAGE: u64 = 0x7a73_0003;

    pub(crate) const fn superblock(copy: u8) -> Self {
        Self { kind: Self::SUPERBLOCK, uuid: [0; 16], place: (copy as u64, 0) }
    }

    pub(crate) const fn batch(uuid: [u8; 16], place: Place) -> Self {
        Self::at(Self::BATCH, uuid, place)
    }

    pub(crate) const fn page(uuid: [u8; 16], place: Place) -> Self {
        Self::at(Self::PAGE, uuid, place)
    }

    const fn at(kind: u64, uuid: [u8; 16], place: Place) -> Self {
        Self { kind, uuid, place: (place.segment.0 as u64, place.offset_bytes as u64) }
    }

    fn crc(&self, bytes: &[u8]) -> u32 {
        let mut prefix = [0; 40];
        put_u64(&mut prefix, 0, self.kind);
        prefix[8..24].copy_from_slice(&self.uuid);
        put_u64(&mut prefix, 24, self.place.0);
        put_u64(&mut prefix, 32, self.place.1);
        zc_core::crc32c_append(zc_core::crc32c(&prefix), bytes)
    }

    /// Puts the checksum into the block's first four bytes, and tells it.
    pub(crate) fn seal(&self, block: &mut Block) -> u32 {
        let crc = self.crc(&block[4..]);
        put_u32(block, 0, crc);
        crc
    }

    /// Checks what [`Binding::seal`] put.
    pub(crate) fn check(&self, block: &Block) -> Result<(), MediaError> {
        if u32_at(block, 0) == self.crc(&block[4..]) { Ok(()) } else { Err(MediaError::Checksum) }
    }
}

/// The CRC of a payload, as chunk records have it.
#[must_use]
pub fn payload_crc(stored: &[u8]) -> u32 {
    zc_core::crc32c(stored)
}

pub(crate) fn as_block(bytes: &[u8]) -> Result<&Block, MediaError> {
    bytes.first_chunk().ok_or(MediaError::Truncated)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// A text of at most 64 bytes, cut at a character.
pub(crate) fn put_name(bytes: &mut [u8], at: usize, name: &str) {
    let kept = (0..=crate::limits::NAME_BYTES_MAX).rev().find_map(|len| name.get(..len)).unwrap_or_default();
    bytes[at..at + kept.len()].copy_from_slice(kept.as_bytes());
}

pub(crate) fn name_at(bytes: &[u8], at: usize) -> Result<String, MediaError> {
    let field = &bytes[at..at + crate::limits::NAME_BYTES_MAX];
    let text = core::str::from_utf8(field).map_err(|_| MediaError::Field("name"))?;
    Ok(text.trim_end_matches('\0').to_owned())
}
