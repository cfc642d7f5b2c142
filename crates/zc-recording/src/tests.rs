//! Round trips of recordings, and corrupt ones.

#[path = "../testdata/sample.rs"]
mod sample;

use super::*;
use proptest::prelude::*;
use sample::{HEADER, any_record, end, named, sample, written};

/// Decoded contents of a file.
struct Found {
    runs: Vec<Run>,
    whys: Vec<&'static str>,
    decoder: Decoder,
}

fn read(bytes: &[u8]) -> Found {
    let mut input = bytes;
    let mut decoder = Decoder::new(&mut input).unwrap().unwrap();
    let (mut runs, mut whys) = (Vec::new(), Vec::new());
    while let Some(next) = decoder.next(&mut input).unwrap() {
        match next {
            Ok(run) => runs.push(run),
            Err(why) => whys.push(why),
        }
    }
    Found { runs, whys, decoder }
}

/// Returns the error of a header.
fn refused(bytes: &[u8]) -> &'static str {
    let mut input = bytes;
    Decoder::new(&mut input).unwrap().unwrap_err()
}

/// Returns the information without the level of a codec, which is not written.
fn unlevelled(known: Known) -> Known {
    let Known::Named { print, stored } = known else { return known };
    let codec = |codec: Codec| Codec::from_media_code(codec.media_code()).unwrap();
    match (print, stored.map(|(how, bytes)| (codec(how), bytes))) {
        (None, None) => Known::Unknown,
        (print, stored) => Known::Named { print, stored },
    }
}

/// Returns the runs of the decoded sample.
fn expected() -> Vec<Run> {
    let run = |time_ns, asked, offset_bytes, len_bytes, known, continues| Run {
        time_ns,
        asked,
        offset_bytes,
        len_bytes,
        known,
        continues,
    };
    let nothing = Known::Unknown;
    let size = Known::Named { print: None, stored: Some((Codec::Zstd(0), 1884)) };
    vec![
        run(1000, Asked::Write, 8192, 8192, named(7, Codec::Lz4, 3820), false),
        run(1000, Asked::Write, 16384, 8192, Known::Zero, true),
        run(3000, Asked::Read, 24576, 16384, nothing, false),
        run(4500, Asked::Flush, 0, 0, nothing, false),
        run(9000, Asked::Read, 1 << 29, 512, named(9, Codec::Raw, 8192), false),
        run(9001, Asked::Discard, 0, 4096, nothing, false),
        run(12_000, Asked::Zeroes, 65536, 1 << 20, nothing, false),
        run(15_000, Asked::Write, 4096, 4096, nothing, false),
        run(15_000, Asked::Write, 8192, 8192, size, true),
        run(15_000, Asked::Write, 16384, 8192, Known::Named { print: Some(7), stored: None }, true),
        run(15_000, Asked::Write, 24576, 4096, nothing, true),
    ]
}

#[test]
fn everything_comes_back() {
    for flush_each in [false, true] {
        let found = read(&written(&HEADER, &sample(), flush_each));
        assert_eq!((found.runs, found.whys), (expected(), vec![]));
        let decoder = found.decoder;
        assert_eq!((*decoder.header(), decoder.end(), decoder.lost()), (HEADER, Some(&end(7)), 0));
    }
}

/// A file of version 1, written when the version was new.
#[test]
fn an_old_file_is_read() {
    const GOLDEN: &[u8] = include_bytes!("../testdata/golden.zcrec");
    assert_eq!(written(&HEADER, &sample(), false), GOLDEN, "a change of the format is a new version");
    assert_eq!(read(GOLDEN).runs, expected());
}

#[test]
fn what_was_lost_is_reported() {
    let mut writer = Writer::new(Vec::new(), &HEADER).unwrap();
    writer.add(&sample()[0]).unwrap();
    writer.lost(2000, 17).unwrap();
    writer.flush().unwrap();
    writer.lost(2500, 1).unwrap();
    let found = read(&writer.finish(&end(1)).unwrap());
    assert_eq!((found.runs.len(), found.decoder.lost()), (2, 18));
}

#[test]
fn a_file_that_was_cut_off_gives_what_it_has() {
    let whole = written(&HEADER, &sample(), true);
    let mut counts = Vec::new();
    for len in HEADER_BYTES..whole.len() {
        let found = read(&whole[..len]);
        assert_eq!(found.runs, expected()[..found.runs.len()]);
        assert_eq!(found.whys.last(), Some(&"the recording was cut off"));
        counts.push(found.runs.len());
    }
    assert!(counts.is_sorted() && counts.last() == Some(&11), "{counts:?}");
    for len in 0..HEADER_BYTES {
        assert_eq!(refused(&whole[..len]), "the recording is cut in its header");
    }
}

#[test]
fn a_flipped_bit_costs_a_block_and_is_reported() {
    let whole = written(&HEADER, &sample(), true);
    for bit in (HEADER_BYTES * 8)..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = read(&bytes);
        assert!(!found.whys.is_empty(), "bit {bit}");
        assert!(found.runs.iter().all(|run| expected().contains(run)), "bit {bit}: never asked");
    }
    for bit in 0..HEADER_BYTES * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        refused(&bytes);
    }
}

#[test]
fn missing_blocks_are_reported() {
    let two = written(&HEADER, &sample(), true);
    assert!(written(&HEADER, &sample(), false).len() < two.len());
    let len = usize::try_from(u32::from_le_bytes(two[68..72].try_into().unwrap())).unwrap();
    let without = [&two[..HEADER_BYTES], &two[HEADER_BYTES + BLOCK_HEADER_BYTES + len..]].concat();
    let found = read(&without);
    assert_eq!((found.runs, found.whys), (expected()[2..].to_vec(), vec!["blocks are missing"]));
}

/// Returns a block with a valid checksum over any payload.
fn sealed(magic: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut block = [&magic[..], &u32::try_from(payload.len()).unwrap().to_le_bytes(), &[0; 4]].concat();
    let crc = zc_core::crc32c_append(zc_core::crc32c(&block), payload);
    block.extend_from_slice(&crc.to_le_bytes());
    block.extend_from_slice(payload);
    [&HEADER.to_bytes()[..], &block].concat()
}

#[test]
fn blocks_that_make_no_sense_are_reported() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let wrong: [&[u8]; 9] = [
        &[],
        &[5, 6, 0],                           // no such request
        &[5, 0x40, 0],                        // no such bit
        &[5, 0x20, 0, 0],                     // a read of nothing
        &[5, 8, 0, 0, 1],                     // contents that do not come
        &[5, 8, 0, 0, 1, 9 << 3 | 1],         // contents of more extents than there are
        &[5, 8, 0, 0, 1, 1],                  // a run of none
        &[5, 8, 0, 0, 1, 1 << 3 | 7],         // a kind that is none
        &[&[5, 0, 0, 0][..], &huge].concat(), // beyond all addresses
    ];
    for payload in wrong {
        let found = read(&sealed(RECORDS, payload));
        let whys = vec![NONSENSE_TOLD, "the recording was cut off"];
        assert_eq!((found.runs, found.whys), (vec![], whys), "{payload:?}");
    }
    let found = read(&sealed(END, &[9, 0, 0, 0, 0]));
    assert_eq!((found.whys[0], found.decoder.end()), (NONSENSE_TOLD, None));
}

const NONSENSE_TOLD: &str = "a block makes no sense";

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
        let found = read(&written(&HEADER, &records, flush_each));
        prop_assert_eq!(found.whys, Vec::<&str>::new());
        // The runs of each record follow each other without a gap, with the information on their extents.
        let mut runs = found.runs.into_iter();
        for record in &records {
            let mut at = record.offset_bytes;
            let end = at + record.len_bytes;
            let mut continues = false;
            loop {
                let run = runs.next().expect("a run of each record");
                prop_assert_eq!((run.time_ns, run.asked, run.continues), (record.time_ns, record.asked, continues));
                prop_assert_eq!(run.offset_bytes, at);
                let first = at / 8192 - record.offset_bytes / 8192;
                let extents = extents_of(at, run.len_bytes, 8192);
                for extent in first..first + extents {
                    let known = record.known.get(usize::try_from(extent).unwrap()).copied();
                    prop_assert_eq!(run.known, unlevelled(known.unwrap_or_default()));
                }
                at += run.len_bytes;
                continues = true;
                if at == end {
                    break;
                }
            }
        }
        prop_assert!(runs.next().is_none());
    }
}
