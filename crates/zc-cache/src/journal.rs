//! The journal as the manager sees it: records waiting, written and durable, and when it needs a checkpoint.
//!
//! Positions count records since the start. Invariants: `durable <= written <= appended`; one block write is in
//! flight at most, so what is written is always a prefix. What it does not do: I/O, and deciding what to record.

use std::collections::VecDeque;

use zc_core::JournalSeq;
use zc_format::Record;

/// Journal state.
#[derive(Debug)]
pub(crate) struct Journal {
    pending: VecDeque<Record>,
    /// When the oldest pending record was appended.
    pending_since_ms: u64,
    appended: u64,
    written: u64,
    durable: u64,
    /// Records of the block in flight.
    in_flight: Option<u64>,
    /// Written position that a flush in flight will make durable, with the next block's number then.
    flushing: Option<(u64, JournalSeq)>,
    /// Somebody waits for this position to be durable.
    wanted: u64,
    /// Somebody waits for this position to be written.
    hurried: u64,
    /// Records put into blocks so far.
    taken: u64,
    next: JournalSeq,
    /// Blocks before this one are durable.
    durable_next: JournalSeq,
    /// First block that a restart has to read.
    start: JournalSeq,
    ring_blocks: u64,
    block_records: usize,
}

impl Journal {
    pub(crate) fn new(start: JournalSeq, next: JournalSeq, ring_blocks: u64, block_records: usize) -> Self {
        Self {
            pending: VecDeque::new(),
            pending_since_ms: 0,
            appended: 0,
            written: 0,
            durable: 0,
            in_flight: None,
            flushing: None,
            wanted: 0,
            hurried: 0,
            taken: 0,
            next,
            durable_next: next,
            start,
            ring_blocks,
            block_records,
        }
    }

    pub(crate) fn append(&mut self, record: Record, now_ms: u64) {
        if self.pending.is_empty() {
            self.pending_since_ms = now_ms;
        }
        self.pending.push_back(record);
        self.appended += 1;
    }

    pub(crate) fn is_durable(&self, position: u64) -> bool {
        self.durable >= position
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Asks for everything appended so far to become durable; returns its position.
    pub(crate) fn want_all(&mut self) -> u64 {
        self.wanted = self.appended;
        self.appended
    }

    /// Asks for everything appended so far to be written, without a flush; returns its position.
    pub(crate) fn hurry_all(&mut self) -> u64 {
        self.hurried = self.appended;
        self.appended
    }

    /// Position of the last record that was appended.
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Position of the last record that was put into a block.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Blocks before this one are durable.
    pub(crate) fn durable_next(&self) -> JournalSeq {
        self.durable_next
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Blocks a restart would have to read now.
    pub(crate) fn used_blocks(&self) -> u64 {
        self.next.0 - self.start.0
    }

    pub(crate) fn ring_blocks(&self) -> u64 {
        self.ring_blocks
    }

    pub(crate) fn next(&self) -> JournalSeq {
        self.next
    }

    /// What the region map names as required: replay must reach this block.
    pub(crate) fn durable_last(&self) -> JournalSeq {
        JournalSeq(self.durable_next.0.saturating_sub(1))
    }

    /// The next block to write, if it is time: full, old, or waited for.
    pub(crate) fn take_block(&mut self, now_ms: u64, delay_ms: u64) -> Option<(JournalSeq, Vec<Record>)> {
        let due = self.pending.len() >= self.block_records
            || self.wanted.max(self.hurried) > self.written
            || now_ms.saturating_sub(self.pending_since_ms) >= delay_ms;
        if self.pending.is_empty()
            || self.in_flight.is_some()
            || !due
            || self.used_blocks() >= self.ring_blocks
        {
            return None;
        }
        let count = self.pending.len().min(self.block_records);
        let records: Vec<_> = self.pending.drain(..count).collect();
        self.in_flight = Some(zc_core::u64_from_usize(count));
        self.taken += zc_core::u64_from_usize(count);
        self.pending_since_ms = now_ms;
        let sequence = self.next;
        self.next = JournalSeq(self.next.0 + 1);
        Some((sequence, records))
    }

    pub(crate) fn block_written(&mut self) {
        self.written += self.in_flight.take().unwrap_or(0);
    }

    /// Whether a device flush should be issued now for those who wait; `asked`: somebody wants one in any case.
    pub(crate) fn take_flush(&mut self, asked: bool) -> bool {
        let waited = self.wanted > self.durable && self.written >= self.wanted;
        let due = (waited || asked) && self.flushing.is_none();
        if due {
            let in_flight = u64::from(self.in_flight.is_some());
            self.flushing = Some((self.written, JournalSeq(self.next.0 - in_flight)));
        }
        due
    }

    pub(crate) fn flushed(&mut self) {
        if let Some((position, next)) = self.flushing.take() {
            self.durable = self.durable.max(position);
            self.durable_next = next;
        }
    }

    /// A checkpoint that makes blocks before `start` unnecessary is durable.
    pub(crate) fn truncate(&mut self, start: JournalSeq) {
        assert!(start >= self.start && start <= self.next, "journal truncated outside its range");
        self.start = start;
    }
}

#[cfg(test)]
mod tests {
    use zc_core::{ExtentKey, ExtentNo, VolumeId};

    use super::*;

    fn record() -> Record {
        Record::Zero { key: ExtentKey { volume: VolumeId(0), extent: ExtentNo(1) } }
    }

    #[test]
    fn blocks_are_written_when_full_old_or_wanted_and_never_past_the_ring() {
        let mut journal = Journal::new(JournalSeq(1), JournalSeq(1), 2, 2);
        journal.append(record(), 0);
        assert!(journal.take_block(1, 10).is_none());
        assert!(journal.take_block(10, 10).is_some());
        journal.append(record(), 11);
        journal.append(record(), 11);
        assert!(journal.take_block(11, 10).is_none(), "one block in flight at a time");
        journal.block_written();
        assert!(journal.take_block(11, 10).is_some());
        journal.block_written();
        journal.append(record(), 12);
        let position = journal.want_all();
        assert!(journal.take_block(12, 10).is_none(), "the ring is full");
        journal.truncate(JournalSeq(2));
        assert!(journal.take_block(12, 10).is_some());
        assert!(!journal.take_flush(false));
        journal.block_written();
        assert!(journal.take_flush(false));
        assert!(!journal.is_durable(position));
        journal.flushed();
        assert!(journal.is_durable(position));
        assert_eq!(journal.durable_last(), JournalSeq(3));
    }

    #[test]
    fn a_flush_makes_durable_what_was_written_before_it_and_nothing_else() {
        let mut journal = Journal::new(JournalSeq(1), JournalSeq(1), 8, 2);
        journal.append(record(), 0);
        let first = journal.want_all();
        assert!(journal.take_block(0, 10).is_some());
        journal.block_written();
        assert!(journal.take_flush(false));
        journal.append(record(), 1);
        journal.flushed();
        assert!(journal.is_durable(first));
        let second = journal.want_all();
        assert!(!journal.is_durable(second), "appended while the flush was under way");
        assert!(!journal.take_flush(false), "it has not been written yet");
        assert!(journal.take_block(1, 10).is_some());
        assert_eq!(journal.durable_last(), JournalSeq(1), "the block in flight is not durable");
        journal.block_written();
        assert!(journal.take_flush(false) && !journal.is_durable(second));
        journal.flushed();
        assert!(journal.is_durable(second));
    }

    #[test]
    fn what_is_appended_between_writing_and_flushing_is_not_durable() {
        let mut journal = Journal::new(JournalSeq(1), JournalSeq(1), 8, 2);
        journal.append(record(), 0);
        let _first = journal.want_all();
        assert!(journal.take_block(0, 10).is_some());
        journal.block_written();
        journal.append(record(), 1);
        assert!(journal.take_flush(false));
        journal.flushed();
        let second = journal.want_all();
        assert!(!journal.is_durable(second));
    }
}
