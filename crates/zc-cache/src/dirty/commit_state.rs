//! State of a volume's commit in progress, and the bounds of an epoch.

use zc_core::{JournalSeq, ReqId};

/// Maximum writes of an epoch.
const EPOCH_WRITES_MAX: u64 = 8192;
/// Age at which an epoch closes, as a divisor of the maximum age of dirty data.
pub(crate) const EPOCH_AGE_SHARE: u64 = 4;

/// Maximum writes of an epoch, so that its records (at most two per write) fill at most a quarter of the journal.
pub(crate) fn epoch_writes_max(ring_blocks: u64) -> u64 {
    let records = zc_core::u64_from_usize(zc_format::RECORDS_PER_BLOCK);
    (ring_blocks * records / 8).min(EPOCH_WRITES_MAX)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitPhase {
    /// Some versions of the epoch are only in memory.
    Placing,
    /// Unit and journal are being written.
    Writing,
    /// The unit is being written, with a summary.
    Summarized,
    /// All writes have completed.
    Ready,
    /// A flush issued after the writes is in flight.
    Flushing,
}

#[derive(Debug)]
pub(crate) struct Commit {
    pub(super) epoch: u64,
    pub(super) step: CommitPhase,
    pub(super) waiters: Vec<ReqId>,
    /// Some of it is stored outside the open unit, so only a flush makes it durable.
    pub(super) elsewhere: bool,
    /// Unit writes with a smaller number are part of it.
    pub(super) writes_before: u64,
    /// Journal positions of its first and last record.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Blocks that contain them.
    pub(super) first_block: Option<JournalSeq>,
    pub(super) block: Option<JournalSeq>,
}

impl Commit {
    pub(crate) fn step(&self) -> CommitPhase {
        self.step
    }

    /// Records that its piece is being written with a summary.
    pub(crate) fn summarized(&mut self) {
        self.step = CommitPhase::Summarized;
    }
}
