//! Checksums: CRC-32C over a binding that is not stored and the bytes that are.

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Fewer bytes than the structure needs.
    #[error("the block is truncated")]
    Truncated,
    /// Not this kind of block, or nothing was ever written there.
    #[error("the block does not begin with the expected magic number")]
    Magic,
    /// The checksum does not match: damaged, torn, or from another place.
    #[error("the block's checksum does not match its contents and place")]
    Checksum,
    /// Written by a version of zcached that this one cannot read.
    #[error("the cache was written by a newer version of zcached")]
    Version,
    /// The checksum is right, a field is not.
    #[error("field {0} of the block has an impossible value")]
    Field(&'static str),
}

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
}

/// Checksum of `bytes` as a block of a type, bound to a place and a sequence (or generation).
pub(crate) fn bound_crc(kind: BlockType, place: u64, sequence: u64, bytes: &[u8]) -> u32 {
    let mut binding = [0_u8; 24];
    let (tag, rest) = binding.split_at_mut(8);
    let (at, order) = rest.split_at_mut(8);
    tag.copy_from_slice(&(kind as u64).to_le_bytes());
    at.copy_from_slice(&place.to_le_bytes());
    order.copy_from_slice(&sequence.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&binding), bytes)
}

/// Puts the checksum of everything after the first four bytes into the first four.
pub(crate) fn seal(kind: BlockType, place: u64, sequence: u64, block: &mut [u8]) {
    let Some((head, body)) = block.split_first_chunk_mut::<4>() else { return };
    *head = bound_crc(kind, place, sequence, body).to_le_bytes();
}

/// Checks what [`seal`] put.
pub(crate) fn check(kind: BlockType, place: u64, sequence: u64, block: &[u8]) -> Result<(), FormatError> {
    let (head, body) = block.split_first_chunk::<4>().ok_or(FormatError::Truncated)?;
    let good = u32::from_le_bytes(*head) == bound_crc(kind, place, sequence, body);
    good.then_some(()).ok_or(FormatError::Checksum)
}
