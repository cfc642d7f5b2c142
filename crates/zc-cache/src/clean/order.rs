//! Order of overlapping reads and writes of one origin.
//!
//! An origin write and another access to the same sectors are never in flight together. Kernels copy between page
//! cache and callers in arbitrary steps, so a read that overlaps a write may return a mixture within a sector (G1).
//! Overlapping accesses are serialised in arrival order.
//!
//! Invariants: of overlapping accesses that include a write, at most one is *held*; an access waits only for held or
//! earlier waiting accesses that it overlaps. Each access completes independently of later ones, so no access starves.
//! There is at most one entry for each piece of a request in flight. Out of scope: accesses that no client's bytes
//! depend on (prefetches, probes): their guards detect overlapping writes.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};

use zc_core::{BufSlice, Map, VolumeId};

use crate::expect_held::ExpectHeld;

/// Operation that starts when its access is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A client read that bypasses the cache.
    Read {
        read: u64,
        dest: BufSlice,
    },
    Piece(u64),
}

impl Turn {
    fn writes(&self) -> bool {
        matches!(self, Self::Piece(_))
    }
}

/// Byte ranges in use, by start.
#[derive(Debug, Default)]
struct Spans {
    ends: BTreeMap<(u64, u64), u64>,
    /// Upper bound of span lengths; reset when no span is left.
    longest: u64,
}

impl Spans {
    fn insert(&mut self, id: u64, bytes: &Range<u64>) {
        self.longest = self.longest.max(bytes.end - bytes.start);
        self.ends.insert((bytes.start, id), bytes.end);
    }

    fn remove(&mut self, id: u64, start: u64) {
        self.ends.remove(&(start, id)).expect_held();
        if self.ends.is_empty() {
            self.longest = 0;
        }
    }

    fn overlap(&self, bytes: &Range<u64>) -> bool {
        let first = bytes.start.saturating_sub(self.longest);
        self.ends.range((first, 0)..(bytes.end, 0)).any(|(_, end)| *end > bytes.start)
    }
}

/// A waiting or granted access.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) id: u64,
    pub(crate) bytes: Range<u64>,
    pub(crate) turn: Turn,
}

#[derive(Debug, Default)]
struct Accesses {
    reads: Spans,
    writes: Spans,
    waiting: VecDeque<Waiting>,
}

impl Accesses {
    fn meets_entered(&self, bytes: &Range<u64>, writes: bool) -> bool {
        self.writes.overlap(bytes) || (writes && self.reads.overlap(bytes))
    }

    fn meets_waiting(&self, before: usize, bytes: &Range<u64>, writes: bool) -> bool {
        self.waiting.iter().take(before).any(|other| {
            (writes || other.turn.writes()) && other.bytes.start < bytes.end && bytes.start < other.bytes.end
        })
    }

    fn must_wait(&self, bytes: &Range<u64>, writes: bool) -> bool {
        self.meets_entered(bytes, writes) || self.meets_waiting(self.waiting.len(), bytes, writes)
    }

    fn enter(&mut self, id: u64, bytes: &Range<u64>, writes: bool) {
        let spans = if writes { &mut self.writes } else { &mut self.reads };
        spans.insert(id, bytes);
    }

    /// Removes the accesses that overlap nothing earlier, in order.
    fn grant(&mut self) -> Vec<Waiting> {
        let mut granted = Vec::new();
        let mut at = 0;
        while let Some(Waiting { id, bytes, turn }) = self.waiting.get(at) {
            let (id, bytes, writes) = (*id, bytes.clone(), turn.writes());
            if self.meets_entered(&bytes, writes) || self.meets_waiting(at, &bytes, writes) {
                at += 1;
                continue;
            }
            self.enter(id, &bytes, writes);
            granted.extend(self.waiting.remove(at));
        }
        granted
    }
}

#[derive(Debug, Default)]
pub(crate) struct OriginOrder {
    volumes: Map<VolumeId, Accesses>,
    /// Held accesses: volume, first byte, and `true` for a write.
    entered: Map<u64, (VolumeId, u64, bool)>,
    /// Accesses completed during this event; the accesses that wait for them start at its end.
    ended: Vec<u64>,
}

impl OriginOrder {
    /// Returns `true` if a read of these bytes must wait.
    pub(crate) fn read_waits(&self, volume: VolumeId, bytes: &Range<u64>) -> bool {
        self.volumes.get(&volume).is_some_and(|accesses| accesses.must_wait(bytes, false))
    }

    /// Begins an access and returns `true`, or queues it.
    pub(crate) fn begin(&mut self, id: u64, volume: VolumeId, bytes: Range<u64>, turn: Turn) -> bool {
        let accesses = self.volumes.entry(volume).or_default();
        let writes = turn.writes();
        if accesses.must_wait(&bytes, writes) {
            accesses.waiting.push_back(Waiting { id, bytes, turn });
            return false;
        }
        accesses.enter(id, &bytes, writes);
        self.entered.insert(id, (volume, bytes.start, writes));
        true
    }

    /// Registers a read that a client's bytes depend on and that no write overlaps; it starts now or is in flight.
    pub(crate) fn join(&mut self, id: u64, volume: VolumeId, bytes: &Range<u64>) {
        let accesses = self.volumes.entry(volume).or_default();
        let is_met = accesses.writes.overlap(bytes);
        assert!(!is_met, "a read of {bytes:?} joins past a write");
        accesses.enter(id, bytes, false);
        self.entered.insert(id, (volume, bytes.start, false));
    }

    pub(crate) fn end(&mut self, id: u64) {
        self.ended.push(id);
    }

    /// Returns the accesses that may start.
    pub(crate) fn grant(&mut self) -> Vec<(VolumeId, Waiting)> {
        if self.ended.is_empty() {
            return Vec::new();
        }
        let mut granted = Vec::new();
        for id in core::mem::take(&mut self.ended) {
            let (volume, start, writes) = self.entered.remove(&id).expect_held();
            let accesses = self.volumes.get_mut(&volume).expect_held();
            let spans = if writes { &mut accesses.writes } else { &mut accesses.reads };
            spans.remove(id, start);
            for waiting in accesses.grant() {
                self.entered.insert(waiting.id, (volume, waiting.bytes.start, waiting.turn.writes()));
                granted.push((volume, waiting));
            }
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use zc_core::BufId;

    use super::*;

    const V: VolumeId = VolumeId(1);

    fn read(order: &mut OriginOrder, id: u64, bytes: Range<u64>) -> bool {
        let dest = BufSlice { buf: BufId(id), start_bytes: 0, len_bytes: 0 };
        order.begin(id, V, bytes, Turn::Read { read: id, dest })
    }

    fn write(order: &mut OriginOrder, id: u64, bytes: Range<u64>) -> bool {
        order.begin(id, V, bytes, Turn::Piece(id))
    }

    fn end(order: &mut OriginOrder, id: u64) -> Vec<u64> {
        order.end(id);
        order.grant().into_iter().map(|(_, waiting)| waiting.id).collect()
    }

    #[test]
    fn only_accesses_that_overlap_wait_and_only_if_one_writes() {
        let mut order = OriginOrder::default();
        assert!(write(&mut order, 1, 1024..2048));
        assert!(read(&mut order, 2, 0..1024) && read(&mut order, 3, 2048..4096));
        assert!(read(&mut order, 4, 512..1024) && write(&mut order, 5, 4096..8192));
        assert!(!read(&mut order, 6, 1536..2048) && !write(&mut order, 7, 512..1536));
        assert!(order.begin(8, VolumeId(2), 1024..2048, Turn::Piece(8)), "another volume's");
        assert_eq!(end(&mut order, 1), [6]);
        assert_eq!(end(&mut order, 2), [0; 0]);
        assert_eq!(end(&mut order, 4), [7]);
    }

    #[test]
    fn who_waits_is_not_overtaken_by_who_comes_later() {
        let mut order = OriginOrder::default();
        assert!(read(&mut order, 1, 0..512));
        assert!(!write(&mut order, 2, 0..512));
        assert!(!read(&mut order, 3, 0..512), "else reads could keep the write from its turn for ever");
        assert!(!write(&mut order, 4, 0..512));
        assert_eq!(end(&mut order, 1), [2]);
        assert_eq!(end(&mut order, 2), [3]);
        assert_eq!(end(&mut order, 3), [4]);
        assert_eq!(end(&mut order, 4), [0; 0]);
        assert!(order.entered.is_empty());
    }

    #[test]
    fn a_long_access_is_found_by_those_far_behind_its_beginning() {
        let mut order = OriginOrder::default();
        assert!(write(&mut order, 1, 0..1 << 30));
        assert!(write(&mut order, 2, 1 << 30..(1 << 30) + 512));
        assert!(order.read_waits(V, &((1 << 30) - 512..1 << 30)));
        assert_eq!(end(&mut order, 1), [0; 0]);
        assert!(!order.read_waits(V, &((1 << 30) - 512..1 << 30)));
    }
}
