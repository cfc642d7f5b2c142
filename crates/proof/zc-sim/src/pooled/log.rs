//! Batches of the store's log that no checkpoint covers, and their corruption.
//!
//! The newest batch of a log need not be known to be durable. A corrupt one cannot be distinguished from one torn by
//! a power cut: the log ends before it, and a start recovers an earlier state. S1 and S2 cannot promise more on one
//! device: a flush that wrote proof of itself would need a second flush for the proof.

use core::ops::Range;

use zc_store::{BatchHeader, BatchSeq, Place, SegmentNo, Superblock};

use super::UUID;
use super::setup::SEGMENT_BYTES;

#[derive(Debug, Clone)]
struct Batch {
    seq: BatchSeq,
    at: Range<u64>,
    is_rotten: bool,
}

/// Batches since the last checkpoint. Their writes complete in any order; their numbers give the log's order.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    batches: Vec<Batch>,
    /// A start began that may have ended the log before a corrupt batch.
    is_owed: bool,
}

impl Log {
    /// Records a write on the device.
    pub(super) fn wrote(&mut self, offset_bytes: u64, bytes: &[u8]) {
        let at = offset_bytes..offset_bytes + bytes.len() as u64;
        if let Some(seq) = batch_at(offset_bytes, bytes) {
            self.batches.retain(|batch| batch.at.end <= at.start || at.end <= batch.at.start);
            self.batches.push(Batch { seq, at, is_rotten: false });
        } else if offset_bytes == Superblock::offset_bytes(1)
            && let Ok(superblock) = Superblock::decode(bytes, 1)
        {
            // The other copy is durable and names the same batch: earlier batches are not read again.
            self.batches.retain(|batch| batch.seq >= superblock.log.seq);
        }
    }

    /// Records a changed byte of the device.
    pub(super) fn rot(&mut self, at: u64) {
        let hit = self.batches.iter_mut().filter(|batch| batch.at.contains(&at));
        hit.for_each(|batch| batch.is_rotten = true);
    }

    pub(super) fn is_rotten(&self) -> bool {
        self.batches.iter().any(|batch| batch.is_rotten)
    }

    /// Records that the store is opened.
    pub(super) fn started(&mut self) {
        self.is_owed |= self.is_rotten();
    }

    /// Returns `true` if the start that completed now may have ended the log before a corrupt batch.
    pub(super) fn take_owed(&mut self) -> bool {
        core::mem::take(&mut self.is_owed)
    }
}

/// Returns the number of the batch that these bytes start, if they do.
fn batch_at(offset_bytes: u64, bytes: &[u8]) -> Option<BatchSeq> {
    let start = Superblock::device_offset(Place::default(), SEGMENT_BYTES);
    let (block, size) = (offset_bytes.checked_sub(start)?, u64::from(SEGMENT_BYTES));
    let place = Place { segment: SegmentNo((block / size) as u32), offset_bytes: (block % size) as u32 };
    let header = BatchHeader::decode(bytes.get(..zc_store::BLOCK)?, UUID, place, SEGMENT_BYTES).ok()?;
    Some(header.seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(seq: u64, segment: u32, offset_bytes: u32) -> (u64, Vec<u8>) {
        let place = Place { segment: SegmentNo(segment), offset_bytes };
        let next = SegmentNo(segment + 1);
        let (nonce, durable) = (1, BatchSeq(0));
        let header =
            BatchHeader { seq: BatchSeq(seq), nonce, durable, next, payload_bytes: 0, records: Vec::new() };
        (Superblock::device_offset(place, SEGMENT_BYTES), header.encode(UUID, place).to_vec())
    }

    #[test]
    fn a_batch_whose_write_ended_early_stays_until_a_checkpoint_is_behind_it() {
        let mut superblock = Superblock::format(UUID, 64 << 20, SEGMENT_BYTES, 1).unwrap();
        let mut log = Log::default();
        let (late, early) = (batch(5, 3, 4096), batch(6, 3, 8192));
        for (at, bytes) in [&early, &late] {
            log.wrote(*at, bytes);
        }
        superblock.log.seq = BatchSeq(5);
        log.wrote(Superblock::offset_bytes(1), &superblock.encode(1)[..]);
        log.rot(early.0 + 17);
        assert!(log.is_rotten(), "a start reads it after the one that the superblock names");
        superblock.log.seq = BatchSeq(7);
        log.wrote(Superblock::offset_bytes(1), &superblock.encode(1)[..]);
        assert!(!log.is_rotten());
    }

    #[test]
    fn what_is_no_batch_is_no_part_of_the_log() {
        let mut log = Log::default();
        let (at, mut bytes) = batch(5, 3, 4096);
        bytes[4] ^= 1;
        log.wrote(at, &bytes);
        log.rot(at);
        assert!(!log.is_rotten());
    }
}
