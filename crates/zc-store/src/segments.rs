//! Segments: which are free, how much of each is referred to, who still reads.
//!
//! Job: count, for every segment, the bytes that records of the tables point to; hand out free segments. Invariants: a
//! segment that anything refers to, that the log since the checkpoint uses or that is being read is never handed out; the
//! count changes with the record, so it is exact. What it does not do: decide when they become free.

use std::collections::BTreeSet;

use crate::ids::{BatchSeq, Place, SegmentNo};
use crate::media::superblock::LogPlace;
use crate::media::{put_u32, put_u64, u32_at, u64_at};

/// Classes of segments by how much of them is referred to.
const CLASSES: u32 = 64;
/// Bytes of a record of the segment table.
pub(crate) const RECORD_BYTES: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    #[default]
    Free,
    Used,
    /// Something that is referred to could not be read. It is not cleaned until it is tried again, and freed like any
    /// other. On media it is used.
    Damaged,
    /// Its count was wrong. It is neither cleaned nor freed.
    Miscounted,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Segment {
    pub(crate) state: State,
    /// Number of its first batch: its age.
    pub(crate) first_seq: BatchSeq,
    /// Bytes that tables refer to, and pages of the segment table, which are counted apart.
    pub(crate) referred_bytes: u32,
    own_bytes: u32,
    /// Where its batches end; 0 while the log is in it.
    pub(crate) end_bytes: u32,
    readers: u32,
    /// Its last batch, if this session wrote it.
    last_seq: BatchSeq,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Segments {
    all: Vec<Segment>,
    /// The lowest is used first: so what was used is used again before the rest of a thin device is, and what was freed
    /// too early would be noticed soon.
    free: BTreeSet<SegmentNo>,
    /// Free, but still being read or discarded.
    leaving: BTreeSet<SegmentNo>,
    /// Free, and used since it was last discarded.
    stale: BTreeSet<SegmentNo>,
    /// Differ from the segment table.
    changed: BTreeSet<SegmentNo>,
    segment_bytes: u32,
    /// Sealed, and nothing refers to them.
    unreferred: BTreeSet<SegmentNo>,
    /// Other sealed ones by class, the oldest of each first.
    by_class: Vec<BTreeSet<(BatchSeq, SegmentNo)>>,
    /// All bytes that anything refers to.
    live_bytes: u64,
}

/// Where a segment is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shelf {
    /// Free, damaged and referred to, miscounted, or the log is in it.
    Nowhere,
    Unreferred,
    Class(usize, BatchSeq),
}

impl Segment {
    pub(crate) const fn live_bytes(&self) -> u32 {
        self.referred_bytes.saturating_add(self.own_bytes)
    }

    pub(crate) fn encode(&self, out: &mut [u8]) {
        put_u64(out, 0, self.first_seq.0);
        put_u32(out, 8, self.referred_bytes);
        put_u32(out, 12, self.end_bytes);
        out[16] = match self.state {
            State::Free => 0,
            State::Used | State::Damaged => 1,
            State::Miscounted => 3,
        };
    }

    /// Returns `true` if a record of the segment table can be true.
    pub(crate) fn is_sane(bytes: &[u8], segment_bytes: u32) -> bool {
        let segment = Self::decode(bytes);
        let is_free = segment.state == State::Free;
        bytes[16] <= 3
            && segment.first_seq.0 < crate::limits::COUNT_MAX
            && segment.referred_bytes <= segment_bytes
            && segment.end_bytes <= segment_bytes
            && segment.end_bytes.is_multiple_of(crate::limits::BLOCK_BYTES)
            && !(is_free && segment.referred_bytes > 0)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let state = match bytes[16] {
            0 => State::Free,
            3 => State::Miscounted,
            _ => State::Used,
        };
        Self {
            state,
            first_seq: BatchSeq(u64_at(bytes, 0)),
            referred_bytes: u32_at(bytes, 8),
            end_bytes: u32_at(bytes, 12),
            ..Self::default()
        }
    }
}

impl Segments {
    pub(crate) fn new(count: u32, segment_bytes: u32) -> Self {
        let all = vec![Segment::default(); zc_core::usize_from_u32(count)];
        let (free, leaving, changed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let stale = BTreeSet::new();
        let by_class = vec![BTreeSet::new(); zc_core::usize_from_u32(CLASSES) + 1];
        let unreferred = BTreeSet::new();
        Self { all, free, leaving, stale, changed, segment_bytes, unreferred, by_class, live_bytes: 0 }
    }

    pub(crate) fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.all.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, number: SegmentNo) -> &Segment {
        &self.all[zc_core::usize_from_u32(number.0)]
    }

    fn shelf_of(&self, segment: &Segment) -> Shelf {
        let is_filled = matches!(segment.state, State::Used | State::Damaged) && segment.end_bytes > 0;
        if !is_filled {
            return Shelf::Nowhere;
        }
        if segment.live_bytes() == 0 {
            return Shelf::Unreferred;
        }
        if segment.state == State::Damaged {
            return Shelf::Nowhere;
        }
        let class = u64::from(segment.live_bytes()) * u64::from(CLASSES) / u64::from(self.segment_bytes);
        Shelf::Class(zc_core::usize_from_u64(class.min(u64::from(CLASSES))), segment.first_seq)
    }

    /// Changes a segment, and with it where it is found.
    fn change(&mut self, number: SegmentNo, act: impl FnOnce(&mut Segment)) {
        let mut segment = *self.get(number);
        let (before, before_bytes) = (self.shelf_of(&segment), segment.live_bytes());
        act(&mut segment);
        let after = self.shelf_of(&segment);
        self.live_bytes = self.live_bytes - u64::from(before_bytes) + u64::from(segment.live_bytes());
        self.all[zc_core::usize_from_u32(number.0)] = segment;
        if before == after {
            return;
        }
        match before {
            Shelf::Nowhere => {}
            Shelf::Unreferred => drop(self.unreferred.remove(&number)),
            Shelf::Class(class, seq) => drop(self.by_class[class].remove(&(seq, number))),
        }
        match after {
            Shelf::Nowhere => {}
            Shelf::Unreferred => drop(self.unreferred.insert(number)),
            Shelf::Class(class, seq) => drop(self.by_class[class].insert((seq, number))),
        }
    }

    fn edit(&mut self, number: SegmentNo, act: impl FnOnce(&mut Segment)) {
        self.changed.insert(number);
        self.change(number, act);
    }

    /// What the segment table says, at the start.
    pub(crate) fn load(&mut self, number: SegmentNo, loaded: Segment) {
        self.change(number, |segment| *segment = loaded);
    }

    /// The log was followed from `log` on: what is free is known. Both superblocks name the state before it by now, so
    /// what nothing refers to there is free too, although the table, which is older than that, does not say so.
    pub(crate) fn find_free(&mut self, log: LogPlace) {
        let mut unreferred = self.unreferred(log.seq);
        unreferred.retain(|number| *number != log.place.segment);
        self.release(&unreferred);
        let numbers = (0..self.count()).map(SegmentNo);
        self.free = numbers.filter(|number| self.get(*number).state == State::Free).collect();
        let was_used = |number: &SegmentNo| self.get(*number).first_seq > BatchSeq(0);
        self.stale = self.free.iter().copied().filter(was_used).collect();
    }

    pub(crate) fn free_segments(&self) -> usize {
        self.free.len()
    }

    /// A free segment leaves the list.
    pub(crate) fn take(&mut self) -> Option<SegmentNo> {
        let number = self.free.pop_first()?;
        self.stale.remove(&number);
        Some(number)
    }

    /// The highest free segment that is to be discarded leaves the list meanwhile.
    pub(crate) fn take_stale(&mut self) -> Option<SegmentNo> {
        let number = self.stale.iter().rev().find(|number| self.free.contains(number)).copied()?;
        self.stale.remove(&number);
        self.free.remove(&number);
        self.leaving.insert(number);
        Some(number)
    }

    /// Its discard has ended, and it is in the list again.
    pub(crate) fn put_back(&mut self, number: SegmentNo, is_discarded: bool) {
        if is_discarded {
            // Not worth a page of its table: a checkpoint that wrote one would free another segment, without end.
            self.change(number, |segment| segment.first_seq = BatchSeq(0));
        }
        if self.leaving.remove(&number) {
            self.free.insert(number);
        }
    }

    /// The log enters a segment.
    pub(crate) fn open(&mut self, number: SegmentNo, first_seq: BatchSeq) {
        self.edit(number, |segment| {
            let (referred_bytes, own_bytes) = (segment.referred_bytes, segment.own_bytes);
            *segment =
                Segment { state: State::Used, first_seq, referred_bytes, own_bytes, ..Segment::default() };
        });
    }

    /// The log leaves it.
    pub(crate) fn seal(&mut self, number: SegmentNo, end_bytes: u32, last_seq: BatchSeq) {
        self.edit(number, |segment| (segment.end_bytes, segment.last_seq) = (end_bytes, last_seq));
    }

    pub(crate) fn refer(&mut self, place: Place, bytes: u32) {
        let size = self.segment_bytes;
        self.recount(place, |referred_bytes| referred_bytes.checked_add(bytes).filter(|sum| *sum <= size));
    }

    pub(crate) fn unrefer(&mut self, place: Place, bytes: u32) {
        self.recount(place, |referred_bytes| referred_bytes.checked_sub(bytes));
    }

    /// Counts. What cannot be is the fault of a table that has been wrong from the start: the segment stays.
    fn recount(&mut self, place: Place, count: impl FnOnce(u32) -> Option<u32>) {
        self.edit(place.segment, |segment| match count(segment.referred_bytes) {
            Some(referred_bytes) => segment.referred_bytes = referred_bytes,
            None => segment.state = State::Miscounted,
        });
    }

    /// A page of the segment table.
    pub(crate) fn refer_own(&mut self, place: Place) {
        self.change(place.segment, |segment| segment.own_bytes += crate::limits::BLOCK_BYTES);
    }

    pub(crate) fn unrefer_own(&mut self, place: Place) {
        self.change(place.segment, |segment| {
            segment.own_bytes = segment.own_bytes.saturating_sub(crate::limits::BLOCK_BYTES);
        });
    }

    /// Something in it cannot be read: it is not cleaned until it is tried again.
    pub(crate) fn damage(&mut self, number: SegmentNo) {
        if self.get(number).state == State::Used {
            self.change(number, |segment| segment.state = State::Damaged);
        }
    }

    /// Lets damaged segments be tried again.
    pub(crate) fn try_damaged_again(&mut self) {
        for number in (0..self.count()).map(SegmentNo) {
            if self.get(number).state == State::Damaged {
                self.change(number, |segment| segment.state = State::Used);
            }
        }
    }

    /// A request reads there.
    pub(crate) fn pin(&mut self, number: SegmentNo) {
        self.all[zc_core::usize_from_u32(number.0)].readers += 1;
    }

    pub(crate) fn unpin(&mut self, number: SegmentNo) {
        let segment = &mut self.all[zc_core::usize_from_u32(number.0)];
        segment.readers -= 1;
        if segment.readers == 0 && self.leaving.remove(&number) {
            self.free.insert(number);
        }
    }

    /// Sealed segments that nothing refers to and whose batches are all before `log`: free once a checkpoint is durable.
    pub(crate) fn unreferred(&self, log: BatchSeq) -> Vec<SegmentNo> {
        self.unreferred.iter().copied().filter(|number| self.get(*number).first_seq < log).collect()
    }

    /// Sealed segments that nothing refers to.
    pub(crate) fn unreferred_numbers(&self) -> impl Iterator<Item = SegmentNo> {
        self.unreferred.iter().copied()
    }

    /// Whether it is sealed, and nothing refers to it.
    pub(crate) fn is_unreferred(&self, number: SegmentNo) -> bool {
        self.unreferred.contains(&number)
    }

    /// How many sealed segments nothing refers to.
    pub(crate) fn unreferred_count(&self) -> usize {
        self.unreferred.len()
    }

    /// They become free.
    pub(crate) fn release(&mut self, numbers: &[SegmentNo]) {
        for number in numbers {
            let readers = self.get(*number).readers;
            // Its age is kept until it is discarded, by which a restart knows that it is stale.
            self.edit(*number, |segment| {
                *segment = Segment { readers, first_seq: segment.first_seq, ..Segment::default() };
            });
            self.stale.insert(*number);
            if readers == 0 {
                self.free.insert(*number);
            } else {
                self.leaving.insert(*number);
            }
        }
    }

    /// Segments that are neither free, nor about to be, nor referred to, nor the log's: none, or something is wrong.
    pub(crate) fn lost_segments(&self) -> usize {
        let is_lost = |number: &SegmentNo| {
            let segment = self.get(*number);
            match segment.state {
                State::Free => !self.free.contains(number) && !self.leaving.contains(number),
                State::Used | State::Damaged => {
                    segment.end_bytes > 0 && segment.live_bytes() == 0 && !self.unreferred.contains(number)
                }
                State::Miscounted => true,
            }
        };
        // The log has taken one in advance.
        (0..self.count()).map(SegmentNo).filter(is_lost).count().saturating_sub(1)
    }

    /// Takes the numbers of segments that differ from the segment table.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<SegmentNo> {
        core::mem::take(&mut self.changed)
    }

    /// All bytes that anything refers to.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Age times what is free in it, over what must be read and written (Rosenblum and Ousterhout, 1992).
    fn score(&self, number: SegmentNo, now: BatchSeq) -> u64 {
        let segment = self.get(number);
        let (size, live) = (u64::from(self.segment_bytes), u64::from(segment.live_bytes()));
        let age = now.0.saturating_sub(segment.first_seq.0).min(1 << 24) + 1;
        size.saturating_sub(live) * age * 256 / (size + live)
    }

    /// The oldest segment of each class that may be cleaned: it began before the first limit, its last batch is not
    /// after the second, it gives enough, and is none of `but`.
    fn candidates(
        &self,
        [began, durable]: [BatchSeq; 2],
        but: &BTreeSet<SegmentNo>,
    ) -> impl Iterator<Item = SegmentNo> {
        let gain_min = crate::limits::victim_gain_bytes_min(self.segment_bytes);
        let live_max = self.segment_bytes.saturating_sub(gain_min);
        self.by_class.iter().filter_map(move |class| {
            let old = class.range(..=(began, SegmentNo(u32::MAX))).map(|(_, number)| *number);
            let mut fit = old.filter(|number| {
                let segment = self.get(*number);
                segment.last_seq <= durable && segment.live_bytes() <= live_max && !but.contains(number)
            });
            fit.next()
        })
    }

    /// The segment that is cheapest to clean for what it gives, to a class's width. `now` is the log's number; limits and
    /// `but` as above.
    pub(crate) fn victim(
        &self,
        now: BatchSeq,
        limits: [BatchSeq; 2],
        but: &BTreeSet<SegmentNo>,
    ) -> Option<SegmentNo> {
        self.candidates(limits, but)
            .max_by_key(|number| (self.score(*number, now), core::cmp::Reverse(*number)))
    }
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
