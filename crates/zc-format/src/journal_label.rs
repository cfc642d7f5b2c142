//! Label of a journal device: identifies the cache of the journal (`FORMAT.md`, section 8.1).
//!
//! Job: encode and decode the first block of a device that holds only a journal. It does not decide on the
//! consequences of a missing or foreign label.

use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};
use crate::{BLOCK, FormatError, Superblock};

const MAGIC: [u8; 4] = *b"zcJl";

/// Owner of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLabel {
    /// The cache's identity.
    pub uuid: [u8; 16],
    /// When the cache was formatted, in seconds since 1970.
    pub created_unix_s: u64,
    /// Blocks of the ring behind the label.
    pub journal_blocks: u64,
}

impl JournalLabel {
    /// Returns the label of a cache's journal device.
    #[must_use]
    pub const fn of(superblock: &Superblock) -> Self {
        Self {
            uuid: superblock.uuid,
            created_unix_s: superblock.created_unix_s,
            journal_blocks: superblock.geometry.journal_blocks,
        }
    }

    /// Encodes the block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mut w = Writer::new(&mut block);
        w.u32(0).put(&MAGIC).put(&self.uuid).u64(self.created_unix_s).u64(self.journal_blocks);
        Binding::copy(BlockType::JournalLabel, 0, Salt::NONE).seal(&mut block);
        block
    }

    /// Decodes the block.
    ///
    /// # Errors
    /// When it is not a label or corrupt.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes = bytes.get(..BLOCK).ok_or(FormatError::Truncated)?;
        let mut r = Reader::new(bytes);
        r.u32()?;
        if r.array::<4>()? != MAGIC {
            return Err(FormatError::Magic);
        }
        Binding::copy(BlockType::JournalLabel, 0, Salt::NONE).check(bytes)?;
        Ok(Self { uuid: r.array()?, created_unix_s: r.u64()?, journal_blocks: r.u64()? })
    }
}
