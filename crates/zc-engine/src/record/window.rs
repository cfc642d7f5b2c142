//! Requests that wait for information about their extents.
//!
//! Job: hold each request until its information is complete or a second has passed, and return requests in order.
//!
//! Invariants: information belongs to all requests on the extent since its last write, that write included, because
//! the manager reports it in this order. At most [`RECORD_WINDOW_MAX`] requests are held, and a few per extent.
//!
//! It does not know the contents of hits; they wait until the time-out, and the trace derives them from earlier
//! requests.

use std::collections::VecDeque;

use smallvec::SmallVec;
use zc_core::{KeyedMap, u64_from_usize, usize_from_u64};
use zc_recording::{Asked, KNOWN_MAX, Known, Record, extents_of};

use crate::front::settings;
use crate::limits::{RECORD_WINDOW_MAX, RECORD_WINDOW_NS};

/// Most requests of one extent that share information.
const SHARERS_MAX: usize = 8;

#[derive(Debug)]
struct Open {
    record: Record,
    /// Records whose information is incomplete.
    open: usize,
}

#[derive(Debug)]
pub(crate) struct Window {
    extent_bytes: u32,
    records: VecDeque<Open>,
    first: u64,
    /// Numbers of requests by extent: the last write of it and reads since.
    by_extent: KeyedMap<u64, SmallVec<[u64; 2]>>,
    newest_ns: u64,
}

impl Window {
    pub(crate) fn new(extent_bytes: u32) -> Self {
        Self {
            extent_bytes,
            records: VecDeque::new(),
            first: 0,
            by_extent: settings::hash_key().map(),
            newest_ns: 0,
        }
    }

    /// Returns the extents with possible information: the first ones of a read or write.
    fn extents(&self, record: &Record) -> std::ops::Range<u64> {
        if !matches!(record.asked, Asked::Read | Asked::Write) {
            return 0..0;
        }
        let count = extents_of(record.offset_bytes, record.len_bytes, self.extent_bytes);
        let first = record.offset_bytes / u64::from(self.extent_bytes);
        first..first + count.min(u64_from_usize(KNOWN_MAX))
    }

    /// Adds a request.
    pub(crate) fn add(&mut self, mut record: Record) {
        // Times are unique, so that a reader can distinguish requests.
        record.time_ns = record.time_ns.max(self.newest_ns + 1);
        self.newest_ns = record.time_ns;
        let number = self.first + u64_from_usize(self.records.len());
        let extents = self.extents(&record);
        let open = usize_from_u64(extents.end - extents.start);
        for extent in extents {
            let sharers = self.by_extent.entry(extent).or_default();
            if record.asked == Asked::Write {
                sharers.clear();
            }
            if sharers.len() < SHARERS_MAX {
                sharers.push(number);
            }
        }
        self.records.push_back(Open { record, open });
    }

    /// Records information about an extent. Returns `true` if a request was waiting for it.
    pub(crate) fn learned(&mut self, extent: u64, known: Known) -> bool {
        let Some(sharers) = self.by_extent.get(&extent) else { return false };
        let mut taken = false;
        for number in sharers {
            let at = number.checked_sub(self.first).map(usize_from_u64);
            let Some(found) = at.and_then(|at| self.records.get_mut(at)) else { continue };
            let Record { offset_bytes, len_bytes, known: all, .. } = &mut found.record;
            let count = extents_of(*offset_bytes, *len_bytes, self.extent_bytes);
            if all.is_empty() {
                all.resize(usize_from_u64(count), Known::Unknown);
            }
            let index = usize_from_u64(extent - *offset_bytes / u64::from(self.extent_bytes));
            if let Some(place) = all.get_mut(index).filter(|place| **place == Known::Unknown) {
                *place = known;
                found.open -= 1;
                taken = true;
            }
        }
        taken
    }

    /// The oldest request, if it need not wait any more.
    pub(crate) fn next(&mut self, all: bool) -> Option<Record> {
        let oldest = self.records.front()?;
        let late = oldest.record.time_ns + RECORD_WINDOW_NS < self.newest_ns;
        if !(all || late || oldest.open == 0 || self.records.len() > RECORD_WINDOW_MAX) {
            return None;
        }
        let record = self.records.pop_front()?.record;
        let number = self.first;
        self.first += 1;
        for extent in self.extents(&record) {
            if let Some(sharers) = self.by_extent.get_mut(&extent) {
                sharers.retain(|other| *other != number);
                if sharers.is_empty() {
                    self.by_extent.remove(&extent);
                }
            }
        }
        Some(record)
    }

    /// The time passes without requests.
    pub(crate) fn pass(&mut self, now_ns: u64) {
        self.newest_ns = self.newest_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_core::Codec;

    const E: u64 = 8192;

    fn record(time_ns: u64, asked: Asked, extent: u64, extents: u64) -> Record {
        Record { time_ns, asked, offset_bytes: extent * E, len_bytes: extents * E, known: Vec::new() }
    }

    const fn print(print: u64) -> Known {
        Known::Named { print: Some(print), stored: Some((Codec::Lz4, 100)) }
    }

    fn all(window: &mut Window) -> Vec<(Asked, Vec<Known>)> {
        std::iter::from_fn(|| window.next(true)).map(|record| (record.asked, record.known)).collect()
    }

    #[test]
    fn what_is_learned_goes_to_the_last_write_and_reads_since() {
        let mut window = Window::new(8192);
        window.add(record(1, Asked::Read, 0, 2));
        window.add(record(2, Asked::Write, 1, 1));
        window.add(record(3, Asked::Read, 1, 2));
        assert!(window.learned(1, print(7)) && window.learned(0, Known::Zero));
        assert!(!window.learned(1, print(8)), "known already");
        assert!(!window.learned(5, print(9)), "no request asked");
        let unknown = Known::Unknown;
        assert_eq!(
            all(&mut window),
            [
                (Asked::Read, vec![Known::Zero, unknown]),
                (Asked::Write, vec![print(7)]),
                (Asked::Read, vec![print(7), unknown])
            ]
        );
        assert!(window.by_extent.is_empty());
    }

    #[test]
    fn requests_leave_in_order_when_they_are_known_or_late() {
        let mut window = Window::new(8192);
        window.add(record(5, Asked::Read, 0, 1));
        window.add(record(5, Asked::Write, 1, 1));
        window.add(record(5, Asked::Flush, 0, 0));
        window.learned(1, print(1));
        assert_eq!(window.next(false), None, "the first is not known");
        window.learned(0, print(2));
        let times: Vec<u64> =
            std::iter::from_fn(|| window.next(false)).map(|record| record.time_ns).collect();
        assert_eq!(times, [5, 6, 7], "no two at the same time");
        window.add(record(10, Asked::Read, 0, 1));
        window.pass(10 + RECORD_WINDOW_NS);
        assert_eq!(window.next(false), None);
        window.pass(11 + RECORD_WINDOW_NS);
        assert_eq!(window.next(false).map(|record| record.known), Some(Vec::new()));
        assert!(!window.learned(0, print(3)), "it is gone");
    }

    #[test]
    fn the_window_is_bounded() {
        let mut window = Window::new(8192);
        for number in 0..u64_from_usize(RECORD_WINDOW_MAX) + 5 {
            window.add(record(number, Asked::Read, number % 3, 1));
        }
        assert_eq!(std::iter::from_fn(|| window.next(false)).count(), 5);
        assert!(window.by_extent.values().all(|sharers| sharers.len() <= SHARERS_MAX));
        // A range without possible information uses no memory.
        window.add(record(0, Asked::Discard, 0, 1 << 40));
        assert_eq!(window.by_extent.len(), 3);
    }
}
