//! Why a request may fail although the cache is in order and its volume is not fenced.
//!
//! Job: remember what faults explain, sector by sector, and judge each failure by it. A read may fail if an extent that
//! it needs could not be read, and a fault explains that: the read itself failed, it brought another place's bytes, or
//! its own pages do not hold what the device acknowledged. Or an origin failed where the request is, while it was under
//! way. A write may fail if it waits for room, and dirty data that stands in the way cannot go to its origin.
//!
//! What it does not do: judge a cache that is out of order, or a fenced volume (`write_back`). There a request may fail
//! that was under way when the cache failed, or whose volume has dirty data out of reach.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use zc_cache::seam::{Action, ExtentRead};
use zc_core::{BufId, OpId};

/// What explains failures.
#[derive(Debug, Default)]
pub(crate) struct Excuses {
    /// Buffers into which something should have been read, and a fault explains that it was not: which bytes of the
    /// buffer, and when the fault was.
    unread: BTreeMap<BufId, Vec<(Range<u32>, u64)>>,
    /// Errors of origins.
    origins: Vec<OriginError>,
    /// Volumes whose origin failed a flush that no client has heard of: the next flush of a client fails.
    owed: BTreeSet<usize>,
    /// Volumes whose origin had no space in this session.
    no_space: BTreeSet<usize>,
    /// When a flush of a client told last, by volume: what was asked for before that may have failed with it.
    reported: BTreeMap<usize, u64>,
}

/// An operation of an origin that failed.
#[derive(Debug, Clone, Copy)]
struct OriginError {
    op: OpId,
    volume: usize,
    /// Its bytes; a flush has all.
    start: u64,
    end: u64,
    /// The operation was to make written data durable. That data may be lost, and clients have to hear of it.
    flushes: bool,
    /// When the manager heard of it.
    at: u64,
}

impl Excuses {
    /// An extent could not be read, and a fault explains that.
    pub(crate) fn unreadable(&mut self, part: &ExtentRead) {
        self.unreadable_since(part, u64::MAX);
    }

    /// An extent could not be read, as the device has not had it since then.
    pub(crate) fn unreadable_since(&mut self, part: &ExtentRead, since: u64) {
        let bytes = part.dest.start_bytes..part.dest.start_bytes + part.dest.len_bytes;
        self.unread.entry(part.dest.buf).or_default().push((bytes, since));
    }

    /// The faults that may explain that a read into this buffer failed. It has ended.
    pub(crate) fn take_unread(&mut self, buf: BufId) -> Vec<(Range<u32>, u64)> {
        self.unread.remove(&buf).unwrap_or_default()
    }

    /// An operation of an origin failed at these bytes.
    fn origin_failed(&mut self, op: OpId, volume: usize, bytes: Range<u64>, flushes: bool) {
        let Range { start, end } = bytes;
        self.origins.push(OriginError { op, volume, start, end, flushes, at: u64::MAX });
    }

    /// An operation fails: requests at its bytes may.
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

    /// The manager hears of a failed operation of an origin.
    pub(crate) fn heard(&mut self, op: OpId, now: u64) {
        for error in self.origins.iter_mut().filter(|error| error.op == op) {
            error.at = now;
            if error.flushes {
                self.owed.insert(error.volume);
            }
        }
    }

    /// Whether a client's flush that was asked for at `asked` may have failed for an earlier one of the origin. `owes`:
    /// the manager has not told that yet, so this one failed for something else.
    pub(crate) fn explains_flush(&mut self, volume: usize, asked: u64, now: u64, owes: bool) -> bool {
        if !owes && self.owed.remove(&volume) {
            self.reported.insert(volume, now);
        }
        self.reported.get(&volume).is_some_and(|reported| asked <= *reported)
    }

    /// The origin of a volume has no space.
    pub(crate) fn no_space(&mut self, volume: usize) {
        self.no_space.insert(volume);
    }

    /// Returns `true` if the origin of a volume had no space in this session: writes may fail for that.
    pub(crate) fn had_no_space(&self, volume: usize) -> bool {
        self.no_space.contains(&volume)
    }

    /// Returns `true` if an operation of the origin failed at these bytes since then.
    pub(crate) fn has_origin_failed(&self, volume: usize, start: u64, end: u64, since: u64) -> bool {
        let there = |error: &OriginError| error.volume == volume && error.start < end && start < error.end;
        self.origins.iter().any(|error| error.at >= since && there(error))
    }

    /// Returns `true` if the origin of any volume failed a flush in this session. Writes that wait for room in the map
    /// fail when the last of several flushes has ended, which may be long after the one that failed.
    pub(crate) fn has_flush_failed(&self) -> bool {
        self.origins.iter().any(|error| error.flushes && error.at != u64::MAX)
    }

    /// The session is over.
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
