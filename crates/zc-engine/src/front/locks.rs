//! Write ranges of a volume: overlapping writes are serialised.
//!
//! Job: grant each write (write, trim, zeroing) its sector range, and delay later ones that overlap. Three properties
//! follow: a read-modify-write of unaligned edges never loses another write's bytes, writes of a vanished client
//! complete before overlapping ones of a new connection start, and the cache never has two writes of one sector in
//! flight, after which the contents of the origin would be unknown.
//!
//! Invariants: granted ranges are disjoint. A range waits only for earlier requests, so there is no starvation and no
//! cycle.
//!
//! It does not order reads. NBD leaves the result of a read that overlaps a write in flight undefined.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use zc_core::Set;

/// Granted and waiting ranges of one volume.
#[derive(Debug, Default)]
pub(crate) struct RangeLocks {
    /// Start to end.
    granted: BTreeMap<u64, u64>,
    waiting: VecDeque<(Range<u64>, u64)>,
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl RangeLocks {
    /// Requests a range for `id`. Returns `true` if it was granted; otherwise [`Self::release`] will return the id.
    pub(crate) fn acquire(&mut self, range: Range<u64>, id: u64) -> bool {
        assert!(!range.is_empty(), "a write has bytes");
        if self.is_taken(&range) || self.waiting.iter().any(|(other, _)| overlap(other, &range)) {
            self.waiting.push_back((range, id));
            return false;
        }
        self.granted.insert(range.start, range.end);
        true
    }

    fn is_taken(&self, range: &Range<u64>) -> bool {
        self.granted.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    /// Releases a granted range; appends the ids of newly granted requests, in order.
    pub(crate) fn release(&mut self, range: &Range<u64>, granted: &mut Vec<u64>) {
        let end = self.granted.remove(&range.start);
        assert_eq!(end, Some(range.end), "a range is released as it was granted");
        // Only requests that overlap the released range can be granted.
        self.grant_waiting(|candidate| overlap(candidate, range), granted);
    }

    /// Withdraws the waiting requests of these ids; appends the ids of newly granted requests, in order.
    pub(crate) fn withdraw(&mut self, ids: &Set<u64>, granted: &mut Vec<u64>) {
        let before = self.waiting.len();
        self.waiting.retain(|(_, id)| !ids.contains(id));
        assert_eq!(before - self.waiting.len(), ids.len(), "only what waits is withdrawn");
        self.grant_waiting(|_| true, granted);
    }

    /// Grants waiting ranges that `may_be_free` and that nothing before them bars.
    fn grant_waiting(&mut self, may_be_free: impl Fn(&Range<u64>) -> bool, granted: &mut Vec<u64>) {
        if self.waiting.is_empty() {
            return;
        }
        let mut left: VecDeque<(Range<u64>, u64)> = VecDeque::with_capacity(self.waiting.len());
        let mut barred = Union::default();
        for (candidate, id) in std::mem::take(&mut self.waiting) {
            let freed = may_be_free(&candidate) && !self.is_taken(&candidate) && !barred.overlaps(&candidate);
            if freed {
                self.granted.insert(candidate.start, candidate.end);
                granted.push(id);
            } else {
                barred.add(&candidate);
                left.push_back((candidate, id));
            }
        }
        self.waiting = left;
    }

    /// Returns `true` if no range is granted, and so none waits.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.granted.is_empty()
    }
}

/// Union of several ranges, so that many are tested with one lookup of their neighbours.
#[derive(Debug, Default)]
struct Union(BTreeMap<u64, u64>);

impl Union {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    fn add(&mut self, range: &Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&other, &other_end)) =
            self.0.range(..=end).next_back().filter(|(_, other_end)| **other_end >= start)
        {
            (start, end) = (start.min(other), end.max(other_end));
            self.0.remove(&other);
        }
        self.0.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn disjoint_ranges_go_at_once_and_overlapping_ones_in_order() {
        let mut locks = RangeLocks::default();
        assert!(locks.acquire(0..10, 1));
        assert!(locks.acquire(10..20, 2));
        assert!(!locks.acquire(5..15, 3));
        assert!(!locks.acquire(14..16, 4));
        assert!(!locks.acquire(15..30, 5), "it would overtake number 3 and 4");
        let mut granted = Vec::new();
        locks.release(&(0..10), &mut granted);
        assert!(granted.is_empty());
        locks.release(&(10..20), &mut granted);
        assert_eq!(granted, [3]);
        locks.release(&(5..15), &mut granted);
        assert_eq!(granted, [3, 4]);
        locks.release(&(14..16), &mut granted);
        assert_eq!(granted, [3, 4, 5]);
        locks.release(&(15..30), &mut granted);
        assert!(locks.is_idle());
    }

    #[test]
    fn a_withdrawn_range_lets_those_behind_it_go() {
        let mut locks = RangeLocks::default();
        assert!(locks.acquire(0..10, 1));
        assert!(!locks.acquire(0..30, 2));
        assert!(!locks.acquire(5..15, 3));
        assert!(!locks.acquire(20..25, 4), "it would overtake number 2");
        assert!(!locks.acquire(0..30, 5));
        let mut granted = Vec::new();
        locks.withdraw(&Set::from_iter([2, 5]), &mut granted);
        assert_eq!(granted, [4], "number 3 still waits for number 1");
        locks.release(&(0..10), &mut granted);
        assert_eq!(granted, [4, 3]);
        locks.release(&(5..15), &mut granted);
        locks.release(&(20..25), &mut granted);
        assert!(locks.is_idle() && granted.len() == 2);
    }

    proptest! {
        #[test]
        fn granted_ranges_are_disjoint_and_all_end(asked in prop::collection::vec((0u64..40, 1u64..12), 1..60)) {
            let mut locks = RangeLocks::default();
            let ranges: Vec<_> = asked.iter().map(|&(start, len)| start..start + len).collect();
            let mut running: Vec<u64> = Vec::new();
            let mut finished = Vec::new();
            for (id, range) in (0u64..).zip(&ranges) {
                if locks.acquire(range.clone(), id) {
                    running.push(id);
                }
                if id % 3 == 0 && !running.is_empty() {
                    let done = running.remove(0);
                    locks.release(&ranges[usize::try_from(done).unwrap()], &mut running);
                    finished.push(done);
                }
            }
            while !running.is_empty() {
                for (at, one) in running.iter().enumerate() {
                    for other in &running[at + 1..] {
                        let (one, other) = (usize::try_from(*one).unwrap(), usize::try_from(*other).unwrap());
                        prop_assert!(!overlap(&ranges[one], &ranges[other]));
                    }
                }
                let done = running.pop().unwrap();
                locks.release(&ranges[usize::try_from(done).unwrap()], &mut running);
                finished.push(done);
            }
            prop_assert!(locks.is_idle());
            prop_assert_eq!(finished.len(), ranges.len());
            for (at, one) in finished.iter().enumerate() {
                for other in &finished[at + 1..] {
                    let (a, b) = (usize::try_from(*one).unwrap(), usize::try_from(*other).unwrap());
                    prop_assert!(!overlap(&ranges[a], &ranges[b]) || one < other, "overlapping ranges end in order");
                }
            }
        }
    }
}
