//! Journal state of the manager: pending, written and durable records, and the need for a checkpoint.
//!
//! Positions count records since the start. Invariants: `durable <= written <= appended`; at most one block write is
//! in flight, so the written records are always a prefix. A block that a commit or retirement waits for is written
//! with FUA, and counts as durable once all blocks before it are durable, by a flush or also by FUA. Out of scope:
//! I/O, and the choice of facts to record.

use std::collections::VecDeque;

use zc_core::JournalSeq;
use zc_format::Record;

#[derive(Debug)]
pub(crate) struct Journal {
    pending: VecDeque<Record>,
    /// Append time of the oldest pending record.
    pending_since_ms: u64,
    appended: u64,
    written: u64,
    durable: u64,
    /// Last record of the block in flight, and `true` if the block is written with FUA.
    in_flight: Option<(u64, bool)>,
    /// Newest consecutive blocks that were written with FUA.
    sealed: Option<Sealed>,
    /// Position that the flush in flight will make durable, and the number of the next block at that time.
    flushing: Option<(u64, JournalSeq)>,
    /// Position for whose durability a component waits.
    wanted: u64,
    /// Position for whose write a component waits.
    hurried: u64,
    /// Position up to which blocks are written with FUA.
    sealing: u64,
    taken: u64,
    next: JournalSeq,
    durable_next: JournalSeq,
    /// First block that a restart must read.
    start: JournalSeq,
    ring_blocks: u64,
    block_records: usize,
}

/// Records that are durable by FUA, independently of those before them.
#[derive(Debug, Clone, Copy)]
struct Sealed {
    /// Position before the first record.
    from: u64,
    /// Position of the last record.
    to: u64,
    /// Number of the following block.
    next: JournalSeq,
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
            sealed: None,
            flushing: None,
            wanted: 0,
            hurried: 0,
            sealing: 0,
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

    /// Requests durability of everything appended so far; returns its position.
    pub(crate) fn want_all(&mut self) -> u64 {
        self.want(self.appended);
        self.appended
    }

    /// Requests durability of everything up to a position.
    pub(crate) fn want(&mut self, position: u64) {
        self.wanted = self.wanted.max(position);
        self.sealing = self.sealing.max(position);
    }

    /// Requests the write of everything appended so far, with FUA if `durably`; returns its position.
    pub(crate) fn hurry_all(&mut self, durably: bool) -> u64 {
        self.hurried = self.appended;
        if durably {
            self.sealing = self.appended;
        }
        self.appended
    }

    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// Position of the last record that is part of a block.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    pub(crate) fn durable_next(&self) -> JournalSeq {
        self.durable_next
    }

    /// Returns `true` if all blocks handed out are durable.
    pub(crate) fn is_all_durable(&self) -> bool {
        self.in_flight.is_none() && self.durable >= self.taken && self.durable_next == self.next
    }

    /// Pending records after the first `skip` ones.
    pub(crate) fn pending_from(&self, skip: usize) -> Vec<Record> {
        self.pending.iter().skip(skip).copied().collect()
    }

    pub(crate) fn block_records(&self) -> usize {
        self.block_records
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Number of blocks that a restart would have to read now.
    pub(crate) fn used_blocks(&self) -> u64 {
        self.next.0 - self.start.0
    }

    pub(crate) fn ring_blocks(&self) -> u64 {
        self.ring_blocks
    }

    pub(crate) fn next(&self) -> JournalSeq {
        self.next
    }

    /// Last durable block; the region map names it, and replay must reach it.
    pub(crate) fn durable_last(&self) -> JournalSeq {
        JournalSeq(self.durable_next.0.saturating_sub(1))
    }

    /// Returns the next block and its durability if a write is due because the block is full, old, or requested.
    /// `durably`: in any case.
    pub(crate) fn take_block(
        &mut self,
        now_ms: u64,
        delay_ms: u64,
        durably: bool,
    ) -> Option<(JournalSeq, Vec<Record>, bool)> {
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
        let durably = durably || self.sealing > self.taken;
        self.in_flight = Some((zc_core::u64_from_usize(count), durably));
        self.taken += zc_core::u64_from_usize(count);
        self.pending_since_ms = now_ms;
        let sequence = self.next;
        self.next = JournalSeq(self.next.0 + 1);
        Some((sequence, records, durably))
    }

    pub(crate) fn block_written(&mut self) {
        let Some((count, durably)) = self.in_flight.take() else { return };
        let before = self.written;
        self.written += count;
        self.sealed = durably.then(|| {
            let from = self.sealed.filter(|sealed| sealed.to == before).map_or(before, |sealed| sealed.from);
            Sealed { from, to: self.written, next: self.next }
        });
        self.join_sealed();
    }

    /// Counts FUA blocks as durable once all blocks before them are.
    fn join_sealed(&mut self) {
        if let Some(sealed) = self.sealed.filter(|sealed| sealed.from <= self.durable) {
            self.durable = self.durable.max(sealed.to);
            self.durable_next = self.durable_next.max(sealed.next);
        }
    }

    /// Returns `true` if a device flush should be issued now for waiting requests; `asked`: a commit needs one in any
    /// case.
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
            self.durable_next = self.durable_next.max(next);
            self.join_sealed();
        }
    }

    /// Frees the blocks before `start`, which a durable checkpoint has made obsolete.
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
        assert!(journal.take_block(1, 10, false).is_none());
        assert!(journal.take_block(10, 10, false).is_some());
        journal.append(record(), 11);
        journal.append(record(), 11);
        assert!(journal.take_block(11, 10, false).is_none(), "one block in flight at a time");
        journal.block_written();
        assert!(journal.take_block(11, 10, false).is_some());
        journal.block_written();
        journal.append(record(), 12);
        let position = journal.want_all();
        assert!(journal.take_block(12, 10, false).is_none(), "the ring is full");
        journal.truncate(JournalSeq(2));
        assert!(journal.take_block(12, 10, false).is_some());
        assert!(!journal.is_durable(position));
        journal.block_written();
        assert!(
            !journal.is_durable(position) && journal.take_flush(false),
            "the blocks before it were not flushed"
        );
        journal.flushed();
        assert!(journal.is_durable(position));
        assert_eq!(journal.durable_last(), JournalSeq(3));
    }

    /// Appends a record and writes its block, with FUA if `durably`.
    fn write_one(journal: &mut Journal, durably: bool) -> u64 {
        journal.append(record(), 0);
        let position = journal.hurry_all(durably);
        assert_eq!(journal.take_block(0, 10, false).map(|(_, _, durably)| durably), Some(durably));
        position
    }

    #[test]
    fn a_flush_makes_durable_what_was_written_before_it_and_nothing_else() {
        let mut journal = Journal::new(JournalSeq(1), JournalSeq(1), 8, 2);
        let first = write_one(&mut journal, false);
        journal.block_written();
        assert!(!journal.is_durable(first) && !journal.take_flush(false), "no component wants it");
        assert!(journal.take_flush(true));
        journal.append(record(), 1);
        journal.flushed();
        assert!(journal.is_durable(first));
        let second = journal.hurry_all(false);
        assert!(!journal.is_durable(second), "appended while the flush was under way");
        assert!(journal.take_block(1, 10, false).is_some());
        assert_eq!(journal.durable_last(), JournalSeq(1), "the block in flight is not durable");
        journal.block_written();
        assert!(journal.take_flush(true) && !journal.is_durable(second));
        journal.flushed();
        assert!(journal.is_durable(second));
    }

    #[test]
    fn a_block_that_is_waited_for_is_durable_by_itself_once_all_before_it_are() {
        let mut journal = Journal::new(JournalSeq(1), JournalSeq(1), 16, 2);
        let alone = write_one(&mut journal, true);
        assert!(!journal.is_durable(alone), "in flight");
        journal.block_written();
        assert!(journal.is_durable(alone) && !journal.take_flush(false));
        assert_eq!(journal.durable_last(), JournalSeq(1));
        write_one(&mut journal, false);
        journal.block_written();
        let behind = write_one(&mut journal, true);
        journal.block_written();
        let last = write_one(&mut journal, true);
        journal.block_written();
        assert!(!journal.is_durable(behind), "the block before it may be lost");
        journal.append(record(), 0);
        let wanted = journal.want_all();
        assert!(!journal.take_flush(false), "it is not written yet");
        assert!(journal.take_flush(true));
        assert!(journal.take_block(0, 10, false).is_some_and(|(_, _, durably)| durably));
        journal.flushed();
        assert!(journal.is_durable(last) && !journal.is_durable(wanted));
        assert_eq!(journal.durable_last(), JournalSeq(4));
        journal.block_written();
        assert!(journal.is_durable(wanted));
        assert_eq!(journal.durable_last(), JournalSeq(5));
    }
}
