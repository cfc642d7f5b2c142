//! Which batches of the store's log no checkpoint has taken up, and which of those rotted.
//!
//! The newest batch of a log need not be known as durable. One that rotted cannot be told from one that a power cut tore:
//! the log ends before it, and what a start finds is of an earlier time. That is no more than S1 and S2 can hold on one
//! device: a flush that wrote a proof of itself would need a second flush for the proof.

use core::ops::Range;

use zc_store::Superblock;

/// A batch.
#[derive(Debug, Clone)]
struct Batch {
    at: Range<u64>,
    is_rotten: bool,
}

/// The batches since the last checkpoint, in the order in which they were written.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    batches: Vec<Batch>,
    /// A start was begun that may have ended the log before a batch that rotted.
    is_owed: bool,
}

impl Log {
    /// The device took this.
    pub(super) fn wrote(&mut self, offset_bytes: u64, bytes: &[u8]) {
        if offset_bytes > Superblock::offset_bytes(1) {
            let at = offset_bytes..offset_bytes + bytes.len() as u64;
            self.batches.push(Batch { at, is_rotten: false });
        } else if offset_bytes == Superblock::offset_bytes(1)
            && let Ok(superblock) = Superblock::decode(bytes, 1)
        {
            // The other copy is durable, and names the same place: what is before it is not read again.
            let place = Superblock::device_offset(superblock.log.place, superblock.segment_bytes);
            let first = self.batches.iter().rposition(|batch| batch.at.start == place);
            self.batches.drain(..first.unwrap_or(self.batches.len()));
        }
    }

    /// A byte of the device changes.
    pub(super) fn rot(&mut self, at: u64) {
        let hit = self.batches.iter_mut().filter(|batch| batch.at.contains(&at));
        hit.for_each(|batch| batch.is_rotten = true);
    }

    pub(super) fn is_rotten(&self) -> bool {
        self.batches.iter().any(|batch| batch.is_rotten)
    }

    /// The store is opened.
    pub(super) fn started(&mut self) {
        self.is_owed |= self.is_rotten();
    }

    /// Whether the start that ended now may have ended the log before a batch that rotted.
    pub(super) fn take_owed(&mut self) -> bool {
        core::mem::take(&mut self.is_owed)
    }
}
