//! The commit of a volume that is in progress, and the bounds of an epoch.

use zc_core::{JournalSeq, ReqId};

/// Writes of one epoch, at most.
const EPOCH_WRITES_MAX: u64 = 8192;
/// An epoch closes by itself after this share of the age that dirty data may have.
pub(crate) const EPOCH_AGE_SHARE: u64 = 4;

/// Writes that an epoch may take, so that its records (two a write at most) fill a quarter of the journal at most.
pub(crate) fn epoch_writes_max(ring_blocks: u64) -> u64 {
    let records = zc_core::u64_from_usize(zc_format::RECORDS_PER_BLOCK);
    (ring_blocks * records / 8).min(EPOCH_WRITES_MAX)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitPhase {
    /// Versions of the epoch are in memory alone.
    Placing,
    /// Unit and journal are being written.
    Writing,
    /// The unit is being written, with a summary.
    Summarized,
    /// Everything is written.
    Ready,
    /// A flush that was issued since is in flight.
    Flushing,
}

#[derive(Debug)]
pub(crate) struct Commit {
    pub(super) epoch: u64,
    pub(super) step: CommitPhase,
    pub(super) waiters: Vec<ReqId>,
    /// Some of it is stored outside the open unit: only a flush shows that it is durable.
    pub(super) elsewhere: bool,
    /// Unit writes with a smaller number are part of it.
    pub(super) writes_before: u64,
    /// Journal positions of its first record and of its last.
    pub(super) first: u64,
    pub(super) last: u64,
    /// The blocks that hold them.
    pub(super) first_block: Option<JournalSeq>,
    pub(super) block: Option<JournalSeq>,
}

impl Commit {
    pub(crate) fn step(&self) -> CommitPhase {
        self.step
    }

    /// Records that its piece is in flight, with its records in a summary.
    pub(crate) fn summarized(&mut self) {
        self.step = CommitPhase::Summarized;
    }
}
