//! Header of a checkpoint area: written last, it makes the area's record blocks valid (`FORMAT.md`, section 7).
//!
//! Job: encode and decode it; the record blocks are in `record`. Invariant: a decoded header has at most the blocks of
//! its area and the records that these can hold. It does not choose the newest area.

use zc_core::{JournalSeq, WeuSeq};

use crate::bytes::{Reader, Writer};
use crate::crc::{Binding, BlockType, Salt};
use crate::{BLOCK, FormatError, RECORDS_PER_BLOCK};

const MAGIC: u32 = u32::from_le_bytes(*b"zcKh");

/// Header block of a checkpoint area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CheckpointHeader {
    /// Sequence number; the newest valid checkpoint is used.
    pub sequence: u64,
    /// Session that wrote it.
    pub session: u64,
    /// First journal block to replay.
    pub journal_start: JournalSeq,
    /// Record blocks that follow.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
    /// Next WEU sequence number when it was written.
    pub weu_seq_next: WeuSeq,
    /// Sequence of the newest region map when it was written.
    pub region_map_sequence: u64,
}

impl CheckpointHeader {
    /// Returns the block's bytes for area 0 or 1.
    #[must_use]
    pub fn encode(&self, area: usize, salt: Salt) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mut w = Writer::new(&mut block);
        w.u32(0).u32(MAGIC).u64(self.sequence).u64(self.session).u64(self.journal_start.0);
        w.u64(self.blocks).u64(self.records).u64(self.weu_seq_next.0).u64(self.region_map_sequence);
        Binding::copy(BlockType::CheckpointHeader, area, salt).seal(&mut block);
        block
    }

    /// Decodes the header of area 0 or 1, whose size is `area_blocks`, header included.
    ///
    /// # Errors
    /// When it is corrupt, from another place, or has more blocks than the area.
    pub fn decode(bytes: &[u8], area: usize, area_blocks: u64, salt: Salt) -> Result<Self, FormatError> {
        let bytes = bytes.get(..BLOCK).ok_or(FormatError::Truncated)?;
        let mut r = Reader::new(bytes);
        r.u32()?;
        if r.u32()? != MAGIC {
            return Err(FormatError::Magic);
        }
        Binding::copy(BlockType::CheckpointHeader, area, salt).check(bytes)?;
        let header = Self {
            sequence: r.u64()?,
            session: r.u64()?,
            journal_start: JournalSeq(r.u64()?),
            blocks: r.u64()?,
            records: r.u64()?,
            weu_seq_next: WeuSeq(r.u64()?),
            region_map_sequence: r.u64()?,
        };
        let records_max = header.blocks.saturating_mul(zc_core::u64_from_usize(RECORDS_PER_BLOCK));
        if header.blocks >= area_blocks || header.records > records_max {
            return Err(FormatError::Field("checkpoint blocks"));
        }
        Ok(header)
    }
}
