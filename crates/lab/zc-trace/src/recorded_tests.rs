//! Recordings as traces, whole and cut off.

#[path = "../../../zc-recording/testdata/sample.rs"]
mod sample;

use super::*;
use crate::{Format, Options, Reader, TraceError};
use proptest::prelude::*;
use sample::{HEADER, any_record, end, sample, written};
use zc_recording::{HEADER_BYTES, Writer};

fn read(bytes: Vec<u8>) -> (Vec<Request>, Reader) {
    let mut reader = Reader::from_vec(bytes, Options::default()).unwrap();
    let requests = reader.by_ref().map(Result::unwrap).collect();
    (requests, reader)
}

fn request(time_ns: u64, op: Op, offset_bytes: u64, len_bytes: u32) -> Request {
    Request::new(time_ns, op, offset_bytes, len_bytes)
}

fn content(fingerprint: u128, lz4_bytes: Option<u32>, zstd1_bytes: Option<u32>) -> Option<Content> {
    Some(Content { fingerprint, lz4_bytes, zstd1_bytes })
}

/// Decoded sample.
fn expected() -> Vec<Request> {
    let piece = |time_ns, op, offset_bytes, len_bytes, content, continues| Request {
        content,
        continues,
        ..request(time_ns, op, offset_bytes, len_bytes)
    };
    let nameless = ((1 << 112) | 1) << 8;
    vec![
        piece(0, Op::Write, 8192, 4096, content(7 << 8, Some(2000), None), false),
        piece(0, Op::Write, 12288, 4096, content(7 << 8 | 1, Some(2000), None), true),
        piece(0, Op::Write, 16384, 8192, content(0x620f_0b67_a91f_7f74, None, None), true),
        request(2000, Op::Read, 24576, 16384),
        request(3500, Op::Flush, 0, 0),
        piece(8000, Op::Read, 1 << 29, 512, content(9 << 8, Some(4096), Some(4096)), false),
        request(8001, Op::Discard, 0, 4096),
        request(11_000, Op::Discard, 65536, 1 << 20),
        request(14_000, Op::Write, 4096, 4096),
        piece(14_000, Op::Write, 8192, 4096, content(nameless, None, Some(1000)), true),
        piece(14_000, Op::Write, 12288, 4096, content(nameless | 1, None, Some(1000)), true),
        piece(14_000, Op::Write, 16384, 4096, content(7 << 8, None, None), true),
        piece(14_000, Op::Write, 20480, 4096, content(7 << 8 | 1, None, None), true),
        piece(14_000, Op::Write, 24576, 4096, None, true),
    ]
}

#[test]
fn everything_comes_back() {
    for flush_each in [false, true] {
        let (requests, reader) = read(written(&HEADER, &sample(), flush_each));
        assert_eq!(requests, expected());
        assert_eq!((reader.format(), reader.bad_count(), reader.lines()), (Format::Recording, 0, 7));
        let recorded = reader.recorded().unwrap();
        assert_eq!((recorded.header, recorded.end, recorded.lost), (HEADER, Some(end(7)), 0));
    }
}

#[test]
fn a_compressed_recording_is_read() {
    let bytes = zstd::encode_all(written(&HEADER, &sample(), false).as_slice(), 3).unwrap();
    assert_eq!(read(bytes).0, expected());
}

#[test]
fn what_was_lost_is_told() {
    let mut writer = Writer::new(Vec::new(), &HEADER).unwrap();
    writer.add(&sample()[0]).unwrap();
    writer.lost(2000, 17).unwrap();
    writer.flush().unwrap();
    writer.lost(2500, 1).unwrap();
    let (requests, reader) = read(writer.finish(&end(1)).unwrap());
    assert_eq!((requests.len(), reader.recorded().unwrap().lost), (3, 18));
}

#[test]
fn a_file_that_was_cut_off_gives_what_it_has() {
    let whole = written(&HEADER, &sample(), true);
    let mut counts = Vec::new();
    for len in HEADER_BYTES..whole.len() {
        let (requests, reader) = read(whole[..len].to_vec());
        assert_eq!(requests, expected()[..requests.len()]);
        assert_eq!(reader.bad_lines().last().map(|bad| bad.why), Some("the recording was cut off"));
        counts.push(requests.len());
    }
    assert!(counts.is_sorted() && counts.last() == Some(&14), "{counts:?}");
    for len in 0..HEADER_BYTES {
        let options = Options { format: Some(Format::Recording), ..Options::default() };
        let error = Reader::from_vec(whole[..len].to_vec(), options).unwrap_err();
        assert!(matches!(error, TraceError::Recording { .. }), "{error}");
    }
}

proptest! {
    #[test]
    fn any_requests_come_back(
        mut records in proptest::collection::vec(any_record(), 1..60),
        flush_each: bool,
    ) {
        let mut time_ns = 0;
        for record in &mut records {
            time_ns += record.time_ns;
            record.time_ns = time_ns;
        }
        let (requests, reader) = read(written(&HEADER, &records, flush_each));
        prop_assert_eq!(reader.bad_count(), 0);
        // Pieces of one request follow each other without a gap.
        let mut found: Vec<(u64, Op, u64, u64)> = Vec::new();
        for request in &requests {
            let len = u64::from(request.len_bytes);
            match found.last_mut().filter(|_| request.continues) {
                Some(last) => {
                    prop_assert_eq!((last.0, last.1, last.2 + last.3), (request.time_ns, request.op, request.offset_bytes));
                    last.3 += len;
                }
                None => found.push((request.time_ns, request.op, request.offset_bytes, len)),
            }
        }
        let op = |asked| match asked {
            Asked::Read => Op::Read,
            Asked::Write => Op::Write,
            Asked::Flush => Op::Flush,
            _ => Op::Discard,
        };
        let first_ns = records[0].time_ns;
        let wanted: Vec<_> = records
            .iter()
            .map(|record| (record.time_ns - first_ns, op(record.asked), record.offset_bytes, record.len_bytes))
            .collect();
        prop_assert_eq!(found, wanted);
        for record in &records {
            for (number, known) in record.known.iter().enumerate() {
                let Known::Named { print: Some(print), .. } = known else { continue };
                let extent = record.offset_bytes / 8192 + u64::try_from(number).unwrap();
                let named = requests.iter().any(|request| {
                    request.offset_bytes / 8192 == extent
                        && request.content.is_some_and(|content| content.fingerprint >> 8 == u128::from(*print))
                });
                prop_assert!(named, "the print of extent {extent}");
            }
        }
    }
}
