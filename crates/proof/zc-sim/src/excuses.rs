//! Faults that excuse a failed request while the cache is healthy and the volume is not fenced.
//!
//! Job: record the explanations sector by sector, and check each failure against them. A read may fail if a needed
//! extent was unreadable because of a fault: a read error, bytes of another place, or pages that differ from the
//! acknowledged contents. It may also fail if an origin failed at its range while it was in progress. A write may
//! fail while it waits for capacity held by dirty data that its origin rejects.
//!
//! It does not check a failed cache or a fenced volume (`answers` does). There a request may fail if it was in
//! progress when the cache failed, or if its volume has dirty data out of reach.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use zc_cache::seam::{Action, ExtentRead};
use zc_core::{BufId, OpId};

/// Explanations of failures.
#[derive(Debug, Default)]
pub(crate) struct Excuses {
    /// Byte ranges of buffers that a fault kept from being read, with the time of the fault.
    unread: BTreeMap<BufId, Vec<(Range<u32>, u64)>>,
    origins: Vec<OriginError>,
    /// Volumes whose origin failed a flush that no client was notified of: a client's next flush fails.
    owed: BTreeSet<usize>,
    /// Volumes whose origin had no space in this session.
    no_space: BTreeSet<usize>,
    /// Time of the last failed flush of a client, by volume: flushes issued before it may have failed with it.
    reported: BTreeMap<usize, u64>,
}

/// Failed operation of an origin.
#[derive(Debug, Clone, Copy)]
struct OriginError {
    op: OpId,
    volume: usize,
    /// First byte; a flush covers all bytes.
    start: u64,
    end: u64,
    /// The operation makes written data durable. That data may be lost, and clients must be notified.
    flushes: bool,
    /// Time at which the manager was notified.
    at: u64,
}

impl Excuses {
    /// Records an extent that a fault made unreadable.
    pub(crate) fn unreadable(&mut self, part: &ExtentRead) {
        self.unreadable_since(part, u64::MAX);
    }

    /// Records an extent that is unreadable because the device lost it at `since`.
    pub(crate) fn unreadable_since(&mut self, part: &ExtentRead, since: u64) {
        let bytes = part.dest.start_bytes..part.dest.start_bytes + part.dest.len_bytes;
        self.unread.entry(part.dest.buf).or_default().push((bytes, since));
    }

    /// Removes and returns the faults that may explain a failed read into this buffer. The read has ended.
    pub(crate) fn take_unread(&mut self, buf: BufId) -> Vec<(Range<u32>, u64)> {
        self.unread.remove(&buf).unwrap_or_default()
    }

    /// Records a failed operation of an origin at these bytes.
    fn origin_failed(&mut self, op: OpId, volume: usize, bytes: Range<u64>, flushes: bool) {
        let Range { start, end } = bytes;
        self.origins.push(OriginError { op, volume, start, end, flushes, at: u64::MAX });
    }

    /// Records a failing operation, which may fail requests at its bytes.
    pub(crate) fn note_failed(&mut self, action: &Action) {
        let (op, volume, start, len, flushes) = match action {
            Action::OriginRead { op, volume, offset_bytes, dest } => {
                (op, volume, *offset_bytes, dest.len_bytes.into(), false)
            }
            Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
                (op, volume, *offset_bytes, src.len_bytes.into(), *fua)
            }
            Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua }
            | Action::OriginZero { op, volume, offset_bytes, len_bytes, fua, .. } => {
                (op, volume, *offset_bytes, *len_bytes, *fua)
            }
            Action::OriginFlush { op, volume } => (op, volume, 0, u64::MAX, true),
            other => panic!("{other:?} is not the origin's"),
        };
        let bytes = start..start.saturating_add(len);
        self.origin_failed(*op, usize::from(volume.0), bytes, flushes);
    }

    /// Records that the manager was notified of a failed operation of an origin.
    pub(crate) fn heard(&mut self, op: OpId, now: u64) {
        for error in self.origins.iter_mut().filter(|error| error.op == op) {
            error.at = now;
            if error.flushes {
                self.owed.insert(error.volume);
            }
        }
    }

    /// Returns `true` if a client's flush issued at `asked` may have failed for an earlier one of the origin. `owes`:
    /// the manager has not reported that one yet, so this flush failed for another reason.
    pub(crate) fn explains_flush(&mut self, volume: usize, asked: u64, now: u64, owes: bool) -> bool {
        if !owes && self.owed.remove(&volume) {
            self.reported.insert(volume, now);
        }
        self.reported.get(&volume).is_some_and(|reported| asked <= *reported)
    }

    /// Records that the origin of a volume has no space.
    pub(crate) fn no_space(&mut self, volume: usize) {
        self.no_space.insert(volume);
    }

    /// Returns `true` if the origin of a volume had no space in this session, which excuses failed writes.
    pub(crate) fn had_no_space(&self, volume: usize) -> bool {
        self.no_space.contains(&volume)
    }

    /// Returns `true` if an operation of the origin failed at these bytes at or after `since`.
    pub(crate) fn has_origin_failed(&self, volume: usize, start: u64, end: u64, since: u64) -> bool {
        let there = |error: &OriginError| error.volume == volume && error.start < end && start < error.end;
        self.origins.iter().any(|error| error.at >= since && there(error))
    }

    /// Returns `true` if the origin of any volume failed a flush in this session. Writes that wait for capacity in
    /// the map fail when the last of several flushes ends, possibly long after the one that failed.
    pub(crate) fn has_flush_failed(&self) -> bool {
        self.origins.iter().any(|error| error.flushes && error.at != u64::MAX)
    }

    /// Returns `true` if the manager was notified at or after `since` that an origin failed a flush.
    pub(crate) fn has_flush_failed_since(&self, since: u64) -> bool {
        self.origins.iter().any(|error| error.flushes && error.at != u64::MAX && error.at >= since)
    }

    /// Clears all explanations at the end of a session.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_failed_unheard_is_told_once() {
        let mut excuses = Excuses::default();
        excuses.origin_failed(OpId(7), 1, 0..u64::MAX, true);
        excuses.heard(OpId(7), 50);
        assert!(!excuses.explains_flush(0, 60, 61, false), "another volume");
        assert!(!excuses.explains_flush(1, 52, 53, true), "it is not told yet");
        assert!(excuses.explains_flush(1, 60, 65, false));
        assert!(excuses.explains_flush(1, 63, 66, false), "it was under way when the first one failed");
        assert!(!excuses.explains_flush(1, 70, 71, false));
    }

    #[test]
    fn a_failed_flush_counts_from_the_time_at_which_it_was_heard() {
        let mut excuses = Excuses::default();
        excuses.origin_failed(OpId(7), 1, 0..u64::MAX, true);
        assert!(!excuses.has_flush_failed_since(0), "it was not heard");
        excuses.heard(OpId(7), 50);
        assert!(excuses.has_flush_failed_since(50) && !excuses.has_flush_failed_since(51));
    }

    #[test]
    fn an_origin_explains_what_was_under_way_in_the_same_place() {
        let mut excuses = Excuses::default();
        excuses.origin_failed(OpId(7), 1, 4096..8192, false);
        excuses.heard(OpId(7), 50);
        assert!(excuses.has_origin_failed(1, 0, 4097, 50));
        assert!(!excuses.has_origin_failed(1, 0, 4096, 50), "another place");
        assert!(!excuses.has_origin_failed(0, 0, 9000, 50), "another volume");
        assert!(!excuses.has_origin_failed(1, 0, 9000, 51), "before it was asked for");
    }
}
