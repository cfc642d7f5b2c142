//! A recording with one of each feature, for the tests of this crate and of readers.
//!
//! Invariants: the bytes equal those of `testdata/golden.zcrec` while the format is unchanged.

use proptest::prelude::*;
use zc_core::Codec;
use zc_recording::{Asked, End, Ended, Header, Known, Record, Share, Writer, extents_of};

pub(crate) const HEADER: Header =
    Header { extent_bytes: 8192, volume_bytes: 1 << 30, share: Share::WHOLE, began_s: 1_700_000_000 };

pub(crate) fn record(
    time_ns: u64,
    asked: Asked,
    offset_bytes: u64,
    len_bytes: u64,
    known: Vec<Known>,
) -> Record {
    Record { time_ns, asked, offset_bytes, len_bytes, known }
}

pub(crate) fn named(print: u64, codec: Codec, stored: u32) -> Known {
    Known::Named { print: Some(print), stored: Some((codec, stored)) }
}

pub(crate) fn sample() -> Vec<Record> {
    vec![
        record(1000, Asked::Write, 8192, 16384, vec![named(7, Codec::Lz4, 3820), Known::Zero]),
        record(3000, Asked::Read, 24576, 16384, vec![]),
        record(4500, Asked::Flush, 0, 0, vec![]),
        record(9000, Asked::Read, 1 << 29, 512, vec![named(9, Codec::Raw, 8192)]),
        record(9001, Asked::Discard, 0, 4096, vec![]),
        record(12_000, Asked::Zeroes, 65536, 1 << 20, vec![]),
        record(
            15_000,
            Asked::Write,
            4096,
            3 * 8192,
            vec![
                Known::Unknown,
                Known::Named { print: None, stored: Some((Codec::Zstd(3), 1884)) },
                Known::Named { print: Some(7), stored: None },
                Known::Unknown,
            ],
        ),
    ]
}

pub(crate) fn end(requests: usize) -> End {
    let requests = u64::try_from(requests).unwrap();
    End { why: Ended::Time, requests, lost: 3, known: 5, duration_ns: 20_000 }
}

pub(crate) fn written(header: &Header, records: &[Record], flush_each: bool) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    for record in records {
        writer.add(record).unwrap();
        if flush_each {
            writer.flush().unwrap();
        }
    }
    let foreseen = writer.bytes();
    let bytes = writer.finish(&end(records.len())).unwrap();
    assert!(u64::try_from(bytes.len()).unwrap() <= foreseen, "{} of {foreseen}", bytes.len());
    bytes
}

pub(crate) fn any_known() -> impl Strategy<Value = Known> {
    let codec = prop_oneof![
        Just((Codec::Raw, 8192)),
        (1..8192_u32).prop_map(|size| (Codec::Lz4, size)),
        (1..8192_u32).prop_map(|size| (Codec::Zstd(1), size))
    ];
    prop_oneof![
        3 => Just(Known::Unknown),
        1 => Just(Known::Zero),
        3 => (proptest::option::of(any::<u64>()), proptest::option::of(codec))
            .prop_map(|(print, stored)| Known::Named { print, stored })
    ]
}

pub(crate) fn any_record() -> impl Strategy<Value = Record> {
    let asked = prop_oneof![4 => Just(Asked::Read), 4 => Just(Asked::Write), 1 => Just(Asked::Flush), 1 => Just(Asked::Discard)];
    let place = prop_oneof![0..64_u64, any::<u64>().prop_map(|place| place >> 14)];
    let len = prop_oneof![Just(16_u64), 1..200_u64];
    (asked, 1..1_000_000_u64, place, len, proptest::collection::vec(any_known(), 14)).prop_map(
        |(asked, time_ns, place, len, mut known)| {
            let (offset_bytes, len_bytes) =
                if asked == Asked::Flush { (0, 0) } else { (place * 512, len * 512) };
            known.truncate(usize::try_from(extents_of(offset_bytes, len_bytes, 8192)).unwrap());
            Record { time_ns, asked, offset_bytes, len_bytes, known }
        },
    )
}
