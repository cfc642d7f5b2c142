//! Checksums: CRC-32C over an implicit binding and the stored bytes (`FORMAT.md`, section 2).
//!
//! Job: make a block of another cache, type, place, ring cycle or generation fail like a corrupt one. Invariant: the
//! binding has a fixed size and comes first, so no two (binding, bytes) pairs share an encoding. It does not defend
//! against an attacker who computes checksums.

use crate::FormatError;
use crate::bytes::Writer;

/// Kind of a block; its number salts the checksum, so that one kind never passes for another.
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

/// Prefix of all checksums of a cache: the CRC of its uuid. A block that an earlier cache left on the device fails
/// like a corrupt one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Salt(u32);

impl Salt {
    /// Salt of structures that are read before the uuid is known, or that contain it.
    pub const NONE: Self = Self(0);

    /// Returns the salt of a cache.
    #[must_use]
    pub fn of(uuid: &[u8; 16]) -> Self {
        Self(zc_core::crc32c(uuid))
    }
}

/// Implicit part of a checksum; the reader derives it from its expectation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    pub(crate) salt: Salt,
    pub(crate) kind: BlockType,
    pub(crate) place: u64,
    pub(crate) sequence: u64,
    pub(crate) generation: u64,
}

impl Binding {
    /// Returns the binding of a copy of a structure that stores its own sequence.
    pub(crate) const fn copy(kind: BlockType, place: usize, salt: Salt) -> Self {
        Self { salt, kind, place: zc_core::u64_from_usize(place), sequence: 0, generation: 0 }
    }

    /// Returns the checksum of `bytes` in this place.
    pub(crate) fn crc(&self, bytes: &[u8]) -> u32 {
        let mut prefix = [0_u8; 32];
        Writer::new(&mut prefix)
            .u64(self.kind as u64)
            .u64(self.place)
            .u64(self.sequence)
            .u64(self.generation);
        zc_core::crc32c_append(zc_core::crc32c_append(self.salt.0, &prefix), bytes)
    }

    /// Writes the checksum of everything after the first four bytes into the first four.
    pub(crate) fn seal(&self, block: &mut [u8]) {
        if let Some((head, body)) = block.split_first_chunk_mut::<4>() {
            *head = self.crc(body).to_le_bytes();
        }
    }

    /// Verifies the checksum written by [`Binding::seal`].
    pub(crate) fn check(&self, block: &[u8]) -> Result<(), FormatError> {
        let (head, body) = block.split_first_chunk::<4>().ok_or(FormatError::Truncated)?;
        self.matches(*head, body).then_some(()).ok_or(FormatError::Checksum)
    }

    /// Returns `true` if this is the checksum of `bytes`. Always `true` under a fuzzer, so that it reaches the fields.
    pub(crate) fn matches(&self, crc: [u8; 4], bytes: &[u8]) -> bool {
        cfg!(fuzzing) || u32::from_le_bytes(crc) == self.crc(bytes)
    }
}
