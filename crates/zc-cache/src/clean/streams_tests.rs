//! Tests of the detection of streams, and of their read-ahead.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;
const VOLUME: VolumeId = VolumeId(1);

fn table(streams_max: usize) -> StreamTable {
    StreamTable::new(StreamConfig { streams_max, threshold_bytes: 64 * KIB, prefetch_max_bytes: 128 * KIB })
}

#[test]
fn a_sequential_reader_is_found_at_the_threshold_and_read_ahead_for() {
    let mut table = table(4);
    let mut asked: Vec<Range<u64>> = Vec::new();
    for n in 0..128 {
        let verdict = table.on_read(VOLUME, n * 4 * KIB, 4 * KIB);
        assert_eq!(verdict.stream.is_some(), n >= 15, "request {n}");
        asked.extend(verdict.prefetch);
    }
    assert_eq!(asked[0], 64 * KIB..72 * KIB, "twice the request");
    for pair in asked.windows(2) {
        assert_eq!(pair[0].end, pair[1].start, "no gap, nothing twice");
        assert!(pair[1].end - pair[1].start <= 128 * KIB);
    }
    let last = asked.last().expect("asked");
    assert!(last.end - last.start >= 64 * KIB, "the window has grown: {last:?}");
    assert!(last.end >= 512 * KIB + 64 * KIB, "at least half a window ahead: {last:?}");
}

#[test]
fn a_large_request_is_a_stream_by_itself() {
    let verdict = table(4).on_read(VOLUME, 0, 1 << 20);
    assert_eq!(verdict.prefetch, Some(1 << 20..(1 << 20) + 128 * KIB));
    assert!(verdict.stream.is_some());
}

#[test]
fn a_descending_reader_is_found_in_mirrored_addresses() {
    let config = StreamConfig { streams_max: 4, threshold_bytes: 256 * KIB, prefetch_max_bytes: 0 };
    let (mut up, mut down) = (StreamTable::new(config), StreamTable::descending(config));
    let first = up.on_read(VOLUME, 0, 256 * KIB).stream.unwrap().id;
    let mut ids = BTreeSet::new();
    for n in (0..64).rev() {
        // Two requests are in flight and reordered.
        let at = (n ^ 1) * 64 * KIB;
        assert_eq!(up.on_read(VOLUME, (1 << 30) + at, 64 * KIB).stream, None);
        let found = down.on_descending_read(VOLUME, (1 << 30) + at, 64 * KIB);
        assert!(found.is_some() || n >= 58, "request {n}");
        ids.extend(found.map(|stream| stream.id));
    }
    assert_eq!(ids.len(), 1);
    assert!(!ids.contains(&first));
    assert_eq!(down.on_descending_read(VOLUME, 0, u64::MAX), down.on_descending_read(VOLUME, 0, u64::MAX));
}

#[test]
fn random_and_strided_access_is_no_stream() {
    let mut random = table(64);
    let mut strided = table(64);
    let mut x = 1u64;
    for n in 0..10_000 {
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let at = (x >> 40) * 4 * KIB;
        assert_eq!(random.on_read(VOLUME, at, 4 * KIB), StreamVerdict { stream: None, prefetch: None });
        assert_eq!(strided.on_read(VOLUME, n * 8 * KIB, 4 * KIB).stream, None);
    }
}

#[test]
fn an_occasional_gap_does_not_end_a_stream() {
    let mut table = table(4);
    let mut streams = BTreeSet::new();
    for n in (0..1000u64).filter(|n| n % 100 != 50) {
        let stream = table.on_read(VOLUME, n * 4 * KIB, 4 * KIB).stream.map(|stream| stream.id);
        assert!(n < 16 || stream.is_some(), "lost at request {n}");
        streams.extend(stream);
    }
    assert_eq!(streams.len(), 1);
}

#[test]
fn requests_that_overtake_each_other_are_one_stream() {
    let mut table = table(4);
    let (mut ids, mut missed, mut asked) = (BTreeSet::new(), 0, 0u64);
    for group in 0..32u64 {
        for place in [3, 0, 2, 1, 6, 7, 5, 4] {
            let verdict = table.on_read(VOLUME, (group * 8 + place) * 32 * KIB, 32 * KIB);
            match verdict.stream {
                Some(stream) => ids.extend([stream.id]),
                None => missed += 1,
            }
            if let Some(range) = verdict.prefetch {
                assert!(range.start >= asked, "asked twice: {range:?}");
                asked = range.end;
            }
        }
    }
    assert_eq!(ids.len(), 1);
    assert!(missed < 8, "{missed} requests before it was found");
}

#[test]
fn overlapping_and_repeated_reads_belong_to_the_stream() {
    let mut table = table(4);
    let mut read = |volume, at, len| table.on_read(volume, at, len).stream;
    let last = (0..32).filter_map(|n| read(VOLUME, n * 4 * KIB, 4 * KIB)).last().unwrap();
    assert_eq!(last.run_bytes, 128 * KIB);
    assert_eq!(read(VOLUME, 30 * 4 * KIB, 8 * KIB), Some(last), "nothing new");
    let longer = |bytes| Some(InStream { run_bytes: bytes, ..last });
    assert_eq!(read(VOLUME, 31 * 4 * KIB, 8 * KIB), longer(132 * KIB), "half of it is new");
    assert_eq!(read(VOLUME, 33 * 4 * KIB, 4 * KIB), longer(136 * KIB));
    assert_eq!(read(VolumeId(2), 34 * 4 * KIB, 4 * KIB), None, "another volume");
}

#[test]
fn streams_are_told_apart_and_survive_random_access() {
    let mut table = table(16);
    let mut ids = BTreeSet::new();
    for n in 0..200u64 {
        for stream in 0..6 {
            if let Some(stream) = table.on_write(VOLUME, (stream << 30) + n * 8 * KIB, 8 * KIB) {
                ids.insert(stream.id);
            }
        }
        if n > 20 {
            for noise in 0..40 {
                assert_eq!(table.on_write(VOLUME, (1 << 40) + ((n * 40 + noise) << 22), 8 * KIB), None);
            }
        }
    }
    assert_eq!(ids.len(), 6);
}

#[test]
fn old_streams_make_room_for_new_ones() {
    let mut table = table(4);
    for pair in 0..50u64 {
        let found = (0..40).filter(|n| {
            let at = ((2 * pair + n % 2) << 30) + n / 2 * 8 * KIB;
            table.on_write(VOLUME, at, 8 * KIB).is_some()
        });
        assert_eq!(found.count(), 26, "two streams at once, pair {pair}");
    }
    assert_eq!(table.streams.len(), 4);
}

#[test]
fn nothing_is_read_ahead_where_it_is_switched_off() {
    let off = StreamConfig { streams_max: 4, threshold_bytes: 0, prefetch_max_bytes: 0 };
    assert_eq!(StreamTable::new(off).on_read(VOLUME, 0, 4 * KIB).prefetch, None);
    let none = StreamConfig { streams_max: 0, ..off };
    assert_eq!(StreamTable::new(none).on_read(VOLUME, 0, 4 * KIB).stream, None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_end_of_the_address_space_does_no_harm(
        requests in prop::collection::vec((prop_oneof![0u64..1 << 22, u64::MAX - (1 << 22)..=u64::MAX], 0u64..1 << 23), 1..200),
    ) {
        let mut table = table(3);
        for (start, len) in requests {
            let verdict = table.on_read(VOLUME, start, len);
            if let Some(range) = verdict.prefetch {
                prop_assert!(range.start < range.end && range.end - range.start <= 128 * KIB);
                prop_assert!(range.start >= start.saturating_add(len));
            }
            prop_assert!(table.streams.len() <= 3);
            for stream in &table.streams {
                prop_assert!(stream.early.len() <= EARLY_MAX);
                prop_assert!(stream.early.iter().all(|part| part.start > stream.front && part.start < part.end));
                prop_assert!(stream.early.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
