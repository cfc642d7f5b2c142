//! Tests of the segments: what is kept beside them agrees with a scan over all, after any change.

use std::collections::BTreeSet;

use super::*;
use crate::limits::{BLOCK_BYTES, victim_gain_bytes_min};

const SIZE: u32 = 64 << 10;

/// Numbers without any order.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(bound)).unwrap()
    }
}

fn place(number: u32) -> Place {
    Place { segment: SegmentNo(number), offset_bytes: BLOCK_BYTES }
}

/// Sealed segments, the first oldest, each with so much referred to.
fn filled(live: impl Iterator<Item = u32>, count: u32) -> Segments {
    let mut segments = Segments::new(count, SIZE);
    for (number, live_bytes) in (0..count).zip(live) {
        segments.open(SegmentNo(number), BatchSeq(u64::from(number) + 1));
        segments.refer(place(number), live_bytes);
        segments.seal(SegmentNo(number), SIZE, BatchSeq(u64::from(number) + 1));
    }
    segments
}

fn scan_unreferred(segments: &Segments) -> Vec<SegmentNo> {
    let done = |number: &SegmentNo| {
        let segment = segments.get(*number);
        segment.state == State::Used && segment.end_bytes != 0 && segment.live_bytes() == 0
    };
    (0..segments.count()).map(SegmentNo).filter(done).collect()
}

fn scan_best(segments: &Segments, now: BatchSeq, limits: [BatchSeq; 2]) -> Option<u64> {
    let fits = |number: &SegmentNo| {
        let segment = segments.get(*number);
        let old = segment.first_seq <= limits[0] && segment.last_seq <= limits[1];
        let live = segment.live_bytes();
        old && segment.state == State::Used
            && segment.end_bytes != 0
            && live > 0
            && live + victim_gain_bytes_min(SIZE) <= SIZE
    };
    let fitting = (0..segments.count()).map(SegmentNo).filter(fits);
    fitting.map(|number| segments.score(number, now)).max()
}

#[test]
fn what_is_kept_agrees_with_a_scan_after_any_change() {
    let mut draw = Draw(7);
    let mut segments = filled((0..).map(|_| 0), 40);
    for seq in 100..4000 {
        let number = draw.below(40);
        let (state, referred) =
            (segments.get(SegmentNo(number)).state, segments.get(SegmentNo(number)).referred_bytes);
        match draw.below(8) {
            0..3 => segments.refer(place(number), draw.below(SIZE - referred + 1)),
            3 | 4 => segments.unrefer(place(number), draw.below(referred + 1)),
            5 => segments.unrefer(place(number), referred),
            6 if state == State::Used && referred == 0 => segments.release(&[SegmentNo(number)]),
            6 if state == State::Free => segments.open(SegmentNo(number), BatchSeq(seq)),
            _ if state == State::Used => segments.seal(SegmentNo(number), SIZE, BatchSeq(seq)),
            _ => {}
        }
        let live: u64 = (0..40).map(|n| u64::from(segments.get(SegmentNo(n)).live_bytes())).sum();
        assert_eq!(segments.live_bytes(), live);
        assert_eq!(segments.unreferred(BatchSeq(u64::MAX)), scan_unreferred(&segments));
        assert_eq!(segments.unreferred_count(), scan_unreferred(&segments).len());
        let limits = [BatchSeq(seq - 50), BatchSeq(seq - u64::from(draw.below(30)))];
        let found = segments.victim(BatchSeq(seq), limits, &BTreeSet::new());
        let found = found.map(|number| segments.score(number, BatchSeq(seq)));
        let best = scan_best(&segments, BatchSeq(seq), limits);
        assert_eq!(found.is_some(), best.is_some());
        // A class is as wide as a 64th of a segment, and the fullest victim has 19 of 64 to give.
        assert!(found >= best.map(|best| best * 9 / 10), "{found:?}, and the best is {best:?}");
    }
}

#[test]
fn of_a_hundred_thousand_segments_one_a_class_is_looked_at() {
    let mut draw = Draw(1);
    let live: Vec<u32> = (0..100_000).map(|_| 1 + draw.below(SIZE)).collect();
    let segments = filled(live.into_iter(), 100_000);
    let limits = [BatchSeq(u64::MAX), BatchSeq(u64::MAX)];
    let but = BTreeSet::from([SegmentNo(0), SegmentNo(1)]);
    let candidates: Vec<_> = segments.candidates(limits, &but).collect();
    assert!((40..=65).contains(&candidates.len()), "{} candidates", candidates.len());
    let victim = segments.victim(BatchSeq(200_000), limits, &but).unwrap();
    assert!(candidates.contains(&victim) && !but.contains(&victim));
    assert!(segments.get(victim).live_bytes() < SIZE / CLASSES, "the emptiest class gives most");
}
