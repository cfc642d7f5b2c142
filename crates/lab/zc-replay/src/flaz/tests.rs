//! FlaZ's layers: lines are direct-mapped, frames lose no block, the cleaner frees space.

use super::*;
use crate::Ratios;
use proptest::prelude::*;
use zc_trace::{Content, Request};

fn request(op: Op, block: u64, print: u128) -> Request {
    let lz4 = 200 + u32::try_from(print * 37 % 3900).unwrap();
    let content = Some(Content { fingerprint: print, lz4_bytes: Some(lz4), zstd1_bytes: Some(lz4 / 2) });
    Request::new(block * 1_000_000, op, block * 4096, 4096).of(content)
}

fn load(requests: &[Request]) -> Trace {
    Trace::load(requests.iter().map(|request| Ok(*request)), Ratios::default()).unwrap()
}

#[test]
fn blocks_of_one_line_displace_each_other() {
    // 8 lines without compression: blocks 0 and 8 share one, 1 does not.
    let requests = [0, 0, 8, 0, 1, 1].map(|block| request(Op::Read, block, u128::from(block) + 1));
    let outcome = run(&load(&requests), Settings::new(8 * 4096, Codec::Raw, 2.0));
    assert_eq!((outcome.reads, outcome.read_hits), (6, 2));
    assert_eq!((outcome.ssd_written_bytes, outcome.ssd_read_bytes), (4 * 4096, 2 * 4096));
    // Twice as many lines with compression.
    let outcome = run(&load(&requests), Settings::new(2 * 32768, Codec::Lz4, 2.0));
    assert_eq!(outcome.read_hits, 3);
}

#[test]
fn writes_go_through_and_stay() {
    let requests = [request(Op::Write, 3, 9), request(Op::Read, 3, 9), request(Op::Read, 4, 9)];
    for codec in [Codec::Raw, Codec::Lz4] {
        let outcome = run(&load(&requests), Settings::new(1 << 20, codec, 1.5));
        assert_eq!((outcome.writes, outcome.reads, outcome.read_hits), (1, 2, 1), "{codec:?}");
    }
}

#[test]
fn the_cleaner_makes_room_and_without_it_there_is_none() {
    // 32 frames of 32 KiB; the same 100 blocks over and over leave dead ones everywhere.
    let requests: Vec<Request> =
        (0..4000).map(|n| request(Op::Write, n % 100, u128::from(n) % 50 + 1)).collect();
    let settings = Settings::new(1 << 20, Codec::Lz4, 1.5);
    let cleaned = run(&load(&requests), settings);
    assert_eq!(cleaned.no_room, 0);
    assert!(cleaned.frames.cleanings > 0 && cleaned.frames.cleaner_written < cleaned.frames.cleaner_read);
    let packing = Packing { cleaner: None, ..Packing::default() };
    let full = run(&load(&requests), Settings { packing, ..settings });
    assert!(full.no_room > 2000, "{full:?}");
    assert_eq!(full.frames.cleaner_read, 0);
}

#[test]
fn metadata_that_fit_are_read_once() {
    let requests: Vec<Request> = (0..4000).map(|n| request(Op::Read, n * 512 % 8192, 1)).collect();
    let pages = |bytes| {
        let settings =
            Settings { metadata_cache_bytes: Some(bytes), ..Settings::new(32 << 20, Codec::Raw, 1.0) };
        run(&load(&requests), settings).metadata_operations
    };
    assert_eq!(pages(16 * 4096), 16);
    // Of a loop over more pages than fit every page comes in each time; the first time round all are changed by fills.
    assert_eq!(pages(8 * 4096), 4000 + 16);
}

#[test]
fn the_frame_that_was_used_least_recently_leaves_the_buffer() {
    let packing = Packing { frame_bytes: 8192, buffer_frames: 2, cleaner: None, ..Packing::default() };
    let mut store = Store::new(1 << 20, packing, 64);
    // Neither of the two frames has space for another such block.
    assert!(store.put(0, 5000) && store.put(1, 5001));
    store.read(0);
    assert!(store.put(2, 5002));
    assert_eq!(store.frames.written, 1);
    store.read(1);
    assert_eq!(store.frames.read, 1, "what was put first was read since, and stayed");
}

proptest! {
    #[test]
    fn no_block_is_lost(ops in proptest::collection::vec((any::<bool>(), 0..300_u64, 1..60_u128), 1..600), frame in 0..3_u32) {
        let requests: Vec<Request> = ops
            .iter()
            .map(|(write, block, print)| request(if *write { Op::Write } else { Op::Read }, *block, *print))
            .collect();
        let trace = load(&requests);
        let packing = Packing { frame_bytes: 8192 << frame, buffer_frames: 3, ..Packing::default() };
        let mut cache = Cache::new(&trace, Settings { packing, ..Settings::new(512 << 10, Codec::Lz4, 1.8) });
        for step in &trace.steps {
            cache.step(step);
            let checked = cache.store.as_ref().map_or(Ok(()), Store::check);
            prop_assert_eq!(checked, Ok(()));
        }
        let outcome = cache.finish();
        prop_assert!(outcome.read_hits <= outcome.reads);
        prop_assert_eq!(outcome.put_bytes, (outcome.writes + outcome.reads - outcome.read_hits) * 4096);
    }
}
