//! The store by itself, over a device in memory that never fails: what it refuses, and that it comes to an end.

use zc_core::{BufId, Codec};

use crate::limits;
use crate::seam::{Event, RequestKind, StoreError};
use crate::test_driver::{CHUNK, Driver, VOLUME};
use crate::{CatalogChange, CatalogOp, Config, RootId, SurveyKind};

#[test]
fn contents_that_fit_no_segment_are_refused_and_the_rest_is_stored() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(16), Err(StoreError::Invalid), "a chunk is as long as a segment");
    assert_eq!(driver.create(14), Ok(()));
    // Three chunks of 16 KiB fit beside a header, four do not; nor does a header hold so many records.
    let write = driver.write(0, 4, CHUNK);
    assert_eq!(driver.ask(write), Err(StoreError::Invalid));
    let write = driver.write(0, limits::REQUEST_CHUNKS_MAX + 1, 512);
    assert_eq!(driver.ask(write), Err(StoreError::Invalid));
    for first in (0..12).step_by(3) {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    (0..12).for_each(|chunk| driver.is_there(chunk));
    assert!(driver.ask(RequestKind::Flush).is_ok() && driver.bufs.is_empty(), "{:?}", driver.bufs.keys());
}

#[test]
fn chunks_and_encodings_of_another_length_than_the_volumes_are_refused() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(14), Ok(()));
    let write = driver.write(0, 1, CHUNK - 512);
    assert_eq!(driver.ask(write), Err(StoreError::Invalid));
    driver.longer_by = 1;
    let write = driver.write(0, 3, CHUNK);
    assert_eq!(driver.ask(write), Err(StoreError::Invalid));
    assert!(driver.bufs.is_empty(), "{:?}", driver.bufs.keys());
}

#[test]
fn a_full_store_takes_discards_and_then_contents_again() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(14), Ok(()));
    let mut stored = 0;
    let refused = loop {
        let write = driver.write(stored, 3, CHUNK);
        match driver.ask(write) {
            Ok(()) => stored += 3,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, StoreError::NoSpace);
    assert!(stored >= 12, "{stored}");
    (0..stored).for_each(|chunk| driver.is_there(chunk));
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    let half = stored / 2;
    assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 0, count: half }), Ok(()));
    let write = driver.write(0, 3, CHUNK);
    assert_eq!(driver.ask(write), Ok(()), "what was discarded is free when it is needed");
    (half..stored).for_each(|chunk| driver.is_there(chunk));
}

/// Blocks of the device that are full of a byte that chunks have.
fn blocks_with_contents(driver: &Driver) -> usize {
    let is_content = |block: &&[u8]| block[0] != 0 && block.iter().all(|byte| *byte == block[0]);
    driver.device.chunks(4096).filter(is_content).count()
}

#[test]
fn what_is_freed_is_discarded_when_no_client_writes() {
    for (is_asked, refuses) in [(false, false), (true, false), (true, true)] {
        let mut driver = Driver::with(60, Config { discard: is_asked, ..Driver::config() });
        driver.refuses_discards = refuses;
        assert_eq!(driver.create(14), Ok(()));
        for first in (0..120).step_by(3) {
            let write = driver.write(first, 3, CHUNK);
            assert_eq!(driver.ask(write), Ok(()));
        }
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
        assert!(blocks_with_contents(&driver) >= 120 * 4);
        assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 3, count: 117 }), Ok(()));
        assert_eq!(driver.discards, 0, "clients write");
        driver.clean();
        if !is_asked {
            // Freed without a discard, and then no client writes for a while.
            assert!(blocks_with_contents(&driver) >= 110 * 4);
            driver = Driver::on(driver.close(), Driver::config());
            for _ in 0..200 {
                driver.now_ms += 1000;
                driver.give(Event::Tick { now_ms: driver.now_ms });
                driver.settle();
            }
        }
        if refuses {
            assert_eq!((driver.discards, driver.store.failure()), (1, None), "the device is asked once");
        } else {
            // The segments of the log and of the chunks that stay may have others.
            let left = blocks_with_contents(&driver);
            assert!(left <= 3 * 4 * 4, "{left} after {} discards, asked: {is_asked}", driver.discards);
        }
        (0..3).for_each(|chunk| driver.is_there(chunk));
        let write = driver.write(3, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
        (0..6).for_each(|chunk| driver.is_there(chunk));
        assert_eq!(driver.store.space().free_bytes % u64::from(crate::test_driver::SEGMENT), 0);
    }
}

#[test]
fn a_survey_that_lacks_nothing_waits_for_no_time_to_pass() {
    let mut driver = Driver::new(64);
    assert_eq!(driver.create(14), Ok(()));
    for first in (0..60).step_by(3) {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    for number in 2..60 {
        let snapshot = CatalogChange {
            op: CatalogOp::Snapshot,
            id: RootId(number),
            source: VOLUME,
            codec: Codec::Lz4,
            chunk_shift: 14,
            size_chunks: 0,
            flags: 0,
            name: format!("disk@{number}"),
        };
        assert_eq!(driver.ask(RequestKind::Catalog(snapshot)), Ok(()));
    }
    driver.submit(RequestKind::Survey(SurveyKind::Account));
    let mut steps = 0;
    while !driver.surveyed {
        match driver.events.pop_front() {
            Some(event) => driver.give(event),
            None => {
                assert!(driver.store.goes_on(), "the next step would wait for a tick");
                driver.give(Event::Tick { now_ms: driver.now_ms });
            }
        }
        steps += 1;
    }
    assert!(steps > 1 && !driver.store.goes_on(), "{steps}");
}

#[test]
fn a_stop_ends_although_a_change_waits_for_space() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(14), Ok(()));
    for chunk in 0..400 {
        // The same address: all but the last is garbage.
        let write = driver.write(chunk % 3, 1, CHUNK);
        driver.submit(write);
    }
    let asked = driver.answers.len();
    assert!(asked < 400, "some wait");
    driver.give(Event::Stop);
    driver.settle();
    assert!(driver.stopped, "{:?}", driver.store.space());
}

/// Where copies of a volume's first leaf are: what it was written as, again and again.
fn copies_of_the_first_leaf(device: &[u8]) -> Vec<usize> {
    let is_leaf = |at: &usize| device[at + 4..at + 10] == *b"zcSp\0\0";
    let number = |at: &usize| u64::from_le_bytes(*device[at + 16..].first_chunk().unwrap());
    let leaves: Vec<usize> = (128 << 10..device.len()).step_by(4096).filter(is_leaf).collect();
    let first = leaves.iter().map(number).min().unwrap();
    leaves.into_iter().filter(|at| number(at) == first).collect()
}

#[test]
fn a_damaged_map_page_keeps_what_it_refers_to_and_nothing_else() {
    let mut driver = Driver::new(8);
    assert_eq!(driver.create(14), Ok(()));
    for first in [0, 504] {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    driver.give(Event::Stop);
    driver.settle();
    let mut device = driver.device;
    let copies = copies_of_the_first_leaf(&device);
    let sound: Vec<u8> = copies.iter().map(|at| core::mem::replace(&mut device[at + 100], 0xee)).collect();
    let mut driver = Driver::on(device, Driver::config());
    for _ in 0..100 {
        let write = driver.write(504, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()), "what was written over is freed: {:?}", driver.store.stats());
    }
    let dest = BufId(u64::MAX >> 8);
    let read = RequestKind::Read { root: VOLUME, first: 0, count: 1, dest };
    assert!(matches!(driver.ask(read), Err(StoreError::Damaged(_))));
    assert_eq!(driver.store.stats().pages_lost, 1);
    for (at, byte) in copies.iter().zip(sound) {
        driver.device[at + 100] = byte;
    }
    (0..3).for_each(|chunk| driver.is_there(chunk));
    (504..507).for_each(|chunk| driver.is_there(chunk));
    driver.give(Event::Clean);
    driver.settle();
    assert_eq!(driver.store.stats().pages_lost, 0);
}

#[test]
fn what_lies_scattered_is_brought_together_while_no_client_writes() {
    let scattered = |gather| {
        let config = Config { gather, checkpoint_log_bytes: 1 << 20, ..Driver::config() };
        let mut driver = Driver::with(120, config);
        assert_eq!(driver.create(12), Ok(()));
        // Backwards, so that each chunk lies before the one that follows it in the volume.
        for first in (0..60).rev() {
            let write = driver.write(first, 1, 4 << 10);
            assert_eq!(driver.ask(write), Ok(()));
        }
        for _ in 0..4 {
            driver.now_ms += 1000;
            driver.give(Event::Tick { now_ms: driver.now_ms });
            driver.settle();
        }
        let places: Vec<u64> = (0..60).map(|chunk| driver.place_of(chunk)).collect();
        (0..60).for_each(|chunk| driver.is_there(chunk));
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
        let (device, roots) = (driver.device, driver.store.roots().count());
        let mut driver = Driver::on(device, Driver::config());
        assert_eq!(driver.store.roots().count(), roots);
        (0..60).for_each(|chunk| driver.is_there(chunk));
        places.windows(2).filter(|pair| pair[0] > pair[1]).count()
    };
    assert!(scattered(false) >= 58);
    assert!(scattered(true) <= 4);
}

#[test]
fn the_log_frees_segments_and_a_crash_brings_back_nothing_that_was_swept() {
    const CHUNKS: u64 = 300;
    let config = || Config {
        cache_pages: 1000,
        dirty_pages_max: 200,
        checkpoint_log_bytes: 1 << 30,
        ..Driver::config()
    };
    let mut driver = Driver::with(46, config());
    assert_eq!(driver.create(12), Ok(()));
    for write in 0..3000 {
        let write = driver.write(write * 7 % CHUNKS, 1, 4 << 10);
        assert_eq!(driver.ask(write), Ok(()));
    }
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    let before = driver.store.stats();
    assert!(before.segments_freed > 20 * before.checkpoints && before.marks > 3, "{before:?}");
    let mut driver = Driver::on(driver.device, config());
    driver.give(Event::Clean);
    driver.settle();
    let freed = before.chunks_freed + driver.store.stats().chunks_freed;
    assert_eq!(freed, before.chunks_stored - CHUNKS, "each chunk that was written over is freed once");
    (0..CHUNKS).for_each(|chunk| driver.is_there(chunk));
}
