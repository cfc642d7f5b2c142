//! Checksums: CRC-32C over a binding that is not stored and the bytes that are (`FORMAT.md`, section 2).
//!
//! Job: make a block of another cache, type, place, round or life of a slot fail like a damaged one. Invariant: what is
//! bound has a fixed size and comes first, so no two (binding, bytes) pairs share an encoding. What it does not do:
//! defend against an attacker who computes checksums.

use crate::FormatError;
use crate::bytes::Writer;

/// The kinds of blocks; the number salts the checksum, so that one kind never passes for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum BlockType {
    Superblock = 0x7a63_0001,
    VolumeTable = 0x7a63_0002,
    RegionMap = 0x7a63_0003,
    CheckpointHeader = 0x7a63_0004,
    CheckpointBlock = 0x7a63_0005,
    JournalBlock = 0x7a63_0006,
    WeuHeader = 0x7a63_0007,
    Extent = 0x7a63_0008,
    JournalLabel = 0x7a63_0009,
    Summary = 0x7a63_000a,
    ImageHead = 0x7a63_000b,
    ImagePiece = 0x7a63_000c,
}

/// What all checksums of a cache begin with: the CRC of its uuid. So a block of another cache, which was on the device
/// before, fails like a damaged one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Salt(u32);

impl Salt {
    /// That of caches of version 1, whose checksums do not cover the uuid.
    pub const NONE: Self = Self(0);

    /// That of a cache.
    #[must_use]
    pub fn of(uuid: &[u8; 16]) -> Self {
        Self(zc_core::crc32c(uuid))
    }
}

/// What a checksum covers besides the stored bytes; the reader supplies it from what it expects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    pub(crate) salt: Salt,
    pub(crate) kind: BlockType,
    pub(crate) place: u64,
    pub(crate) sequence: u64,
    pub(crate) generation: u64,
}

impl Binding {
    /// The binding of a copy of a structure that tells its own sequence.
    pub(crate) const fn copy(kind: BlockType, place: usize, salt: Salt) -> Self {
        Self { salt, kind, place: zc_core::u64_from_usize(place), sequence: 0, generation: 0 }
    }

    /// The checksum of `bytes` in this place.
    pub(crate) fn crc(&self, bytes: &[u8]) -> u32 {
        let mut prefix = [0_u8; 32];
        Writer::new(&mut prefix)
            .u64(self.kind as u64)
            .u64(self.place)
            .u64(self.sequence)
            .u64(self.generation);
        zc_core::crc32c_append(zc_core::crc32c_append(self.salt.0, &prefix), bytes)
    }

    /// Puts the checksum of everything after the first four bytes into the first four.
    pub(crate) fn seal(&self, block: &mut [u8]) {
        if let Some((head, body)) = block.split_first_chunk_mut::<4>() {
            *head = self.crc(body).to_le_bytes();
        }
    }

    /// Checks what [`Binding::seal`] put.
    pub(crate) fn check(&self, block: &[u8]) -> Result<(), FormatError> {
        let (head, body) = block.split_first_chunk::<4>().ok_or(FormatError::Truncated)?;
        self.matches(*head, body).then_some(()).ok_or(FormatError::Checksum)
    }

    /// Whether this is the checksum of `bytes`. Under a fuzzer always, so that it gets past the checksum to the fields.
    pub(crate) fn matches(&self, crc: [u8; 4], bytes: &[u8]) -> bool {
        cfg!(fuzzing) || u32::from_le_bytes(crc) == self.crc(bytes)
    }
}
