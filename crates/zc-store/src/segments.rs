//! Segments: which are free, how much of each is referred to, who still reads.
//!
//! Job: count, for every segment, the bytes that records of the tables point to; hand out free segments. Invariants: a
//! segment that anything refers to, that the log since the checkpoint uses or that is being read is never handed out; the
//! count changes with the record, so it is exact. What it does not do: decide when a checkpoint makes them free.

use std::collections::{BTreeSet, VecDeque};

use crate::ids::{BatchSeq, Place, SegmentNo};
use crate::media::superblock::LogPlace;
use crate::media::{put_u32, put_u64, u32_at, u64_at};

/// Bytes of a record of the segment table.
pub(crate) const RECORD_BYTES: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    #[default]
    Free,
    Used,
    Damaged,
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
    free: VecDeque<SegmentNo>,
    /// Free, but still being read.
    leaving: BTreeSet<SegmentNo>,
    /// Differ from the segment table.
    changed: BTreeSet<SegmentNo>,
    segment_bytes: u32,
}

impl Segment {
    pub(crate) const fn live_bytes(&self) -> u32 {
        self.referred_bytes + self.own_bytes
    }

    pub(crate) fn encode(&self, out: &mut [u8]) {
        put_u64(out, 0, self.first_seq.0);
        put_u32(out, 8, self.referred_bytes);
        put_u32(out, 12, self.end_bytes);
        out[16] = self.state as u8;
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let state = match bytes[16] {
            0 => State::Free,
            1 => State::Used,
            _ => State::Damaged,
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
        let (free, leaving, changed) = (VecDeque::new(), BTreeSet::new(), BTreeSet::new());
        Self { all, free, leaving, changed, segment_bytes }
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

    fn edit(&mut self, number: SegmentNo) -> &mut Segment {
        self.changed.insert(number);
        &mut self.all[zc_core::usize_from_u32(number.0)]
    }

    /// What the segment table says, at the start.
    pub(crate) fn load(&mut self, number: SegmentNo, segment: Segment) {
        self.all[zc_core::usize_from_u32(number.0)] = segment;
    }

    /// The log was followed from `log` on: what is free is known. Both superblocks name the state before it by now, so
    /// what nothing refers to there is free too, although the table, which is older than that, does not say so.
    pub(crate) fn find_free(&mut self, log: LogPlace) {
        let mut unreferred = self.unreferred(log.seq);
        unreferred.retain(|number| *number != log.place.segment);
        self.release(&unreferred);
        let numbers = (0..self.count()).map(SegmentNo);
        self.free = numbers.filter(|number| self.get(*number).state == State::Free).collect();
    }

    pub(crate) fn free_segments(&self) -> usize {
        self.free.len()
    }

    /// A free segment leaves the list.
    pub(crate) fn take(&mut self) -> Option<SegmentNo> {
        self.free.pop_front()
    }

    /// The log enters a segment.
    pub(crate) fn open(&mut self, number: SegmentNo, first_seq: BatchSeq) {
        let segment = self.edit(number);
        let (referred_bytes, own_bytes) = (segment.referred_bytes, segment.own_bytes);
        *segment = Segment { state: State::Used, first_seq, referred_bytes, own_bytes, ..Segment::default() };
    }

    /// The log leaves it.
    pub(crate) fn seal(&mut self, number: SegmentNo, end_bytes: u32, last_seq: BatchSeq) {
        let segment = self.edit(number);
        (segment.end_bytes, segment.last_seq) = (end_bytes, last_seq);
    }

    pub(crate) fn refer(&mut self, place: Place, bytes: u32) {
        self.edit(place.segment).referred_bytes += bytes;
    }

    pub(crate) fn unrefer(&mut self, place: Place, bytes: u32) {
        self.edit(place.segment).referred_bytes -= bytes;
    }

    /// A page of the segment table.
    pub(crate) fn refer_own(&mut self, place: Place) {
        self.all[zc_core::usize_from_u32(place.segment.0)].own_bytes += crate::limits::BLOCK_BYTES;
    }

    pub(crate) fn unrefer_own(&mut self, place: Place) {
        self.all[zc_core::usize_from_u32(place.segment.0)].own_bytes -= crate::limits::BLOCK_BYTES;
    }

    /// Something in it cannot be read: it is not cleaned any more.
    pub(crate) fn damage(&mut self, number: SegmentNo) {
        self.edit(number).state = State::Damaged;
    }

    /// Somebody reads there.
    pub(crate) fn pin(&mut self, number: SegmentNo) {
        self.all[zc_core::usize_from_u32(number.0)].readers += 1;
    }

    pub(crate) fn unpin(&mut self, number: SegmentNo) {
        let segment = &mut self.all[zc_core::usize_from_u32(number.0)];
        segment.readers -= 1;
        if segment.readers == 0 && self.leaving.remove(&number) {
            self.free.push_back(number);
        }
    }

    /// Sealed segments that nothing refers to and whose batches are all before `log`: free once a checkpoint is durable.
    pub(crate) fn unreferred(&self, log: BatchSeq) -> Vec<SegmentNo> {
        let numbers = (0..self.count()).map(SegmentNo);
        let is_done = |segment: &Segment| {
            segment.state == State::Used && segment.end_bytes != 0 && segment.live_bytes() == 0
        };
        numbers.filter(|number| is_done(self.get(*number)) && self.get(*number).first_seq < log).collect()
    }

    /// They become free.
    pub(crate) fn release(&mut self, numbers: &[SegmentNo]) {
        for number in numbers {
            let readers = self.get(*number).readers;
            *self.edit(*number) = Segment { readers, ..Segment::default() };
            if readers == 0 {
                self.free.push_back(*number);
            } else {
                self.leaving.insert(*number);
            }
        }
    }

    /// Those that differ from the segment table.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<SegmentNo> {
        core::mem::take(&mut self.changed)
    }

    /// All bytes that anything refers to.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.all.iter().map(|segment| u64::from(segment.live_bytes())).sum()
    }

    /// The segment that is cheapest to clean for what it gives: age times what is free in it, over what must be read and
    /// written (Rosenblum and Ousterhout, 1992). `now` is the log's number. Segments that began before
    /// the first limit count, whose last batch is not after the second, but none of `but`.
    pub(crate) fn victim(
        &self,
        now: BatchSeq,
        [began, durable]: [BatchSeq; 2],
        but: &BTreeSet<SegmentNo>,
    ) -> Option<SegmentNo> {
        let size = u64::from(self.segment_bytes);
        let score = |number: &SegmentNo| {
            let segment = self.get(*number);
            let live = u64::from(segment.live_bytes());
            let is_old = segment.first_seq <= began && segment.last_seq <= durable;
            let is_whole = segment.end_bytes != 0 && is_old;
            let worth = segment.state == State::Used && is_whole && live > 0;
            let age = now.0.saturating_sub(segment.first_seq.0).min(1 << 24) + 1;
            let gain_min = u64::from(crate::limits::victim_gain_bytes_min(self.segment_bytes));
            (worth && live + gain_min <= size)
                .then(|| ((size - live) * age * 256 / (size + live), core::cmp::Reverse(*number)))
        };
        let numbers = (0..self.count()).map(SegmentNo);
        let numbers = numbers.filter(|number| !but.contains(number));
        numbers.filter_map(|number| score(&number)).max().map(|(_, number)| number.0)
    }
}
