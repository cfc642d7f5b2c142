//! Faults of the device: what is damaged is an error for what it held, and for nothing else, until it is written over.

use crate::ids::BatchSeq;
use crate::media::superblock::Superblock;
use crate::seam::{Event, RequestKind, StoreError};
use crate::test_driver::{CHUNK, Driver, SEGMENT, VOLUME, byte_of};
use crate::{CatalogChange, CatalogOp, Config, RootId};

/// A cleaner that empties whatever it can.
fn eager() -> Config {
    Config { clean_below_percent: 90, clean_until_percent: 95, quiet_ms: 0, ..Driver::config() }
}

/// Chunks 0 to 2, chunk 0 once more at address 3, and other contents behind them so that the log has gone on.
fn shared() -> Driver {
    let mut driver = Driver::with(40, eager());
    driver.prints = true;
    assert_eq!(driver.create(14), Ok(()));
    let write = driver.write(0, 3, CHUNK);
    assert_eq!(driver.ask(write), Ok(()));
    let write = driver.write_bytes(3, vec![byte_of(0)], CHUNK);
    assert_eq!(driver.ask(write), Ok(()));
    assert_eq!(driver.store.stats().chunks_shared, 1);
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    let write = driver.write(30, 1, CHUNK);
    assert_eq!(driver.ask(write), Ok(()));
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    driver
}

fn rewrite_is_read_everywhere(mut driver: Driver, addresses: &[u64]) {
    let write = driver.write_bytes(10, vec![byte_of(0)], CHUNK);
    assert_eq!(driver.ask(write), Ok(()));
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    for _ in 0..2 {
        for address in addresses {
            assert_eq!(driver.read(VOLUME, *address), Ok(Some(byte_of(0))), "address {address}");
        }
        (1..3).for_each(|chunk| driver.is_there(chunk));
        driver = Driver::on(driver.device, Driver::config());
    }
}

#[test]
fn contents_that_are_written_again_heal_all_that_refers_to_a_damaged_chunk() {
    let mut driver = shared();
    driver.damage_chunk(0);
    assert!(matches!(driver.read(VOLUME, 3), Err(StoreError::Damaged(_))));
    rewrite_is_read_everywhere(driver, &[0, 3, 10]);
}

#[test]
fn what_a_scrub_found_damaged_is_not_shared_with() {
    let mut driver = shared();
    driver.damage_chunk(0);
    assert_eq!(driver.scrub(), [(VOLUME, 0, 1), (VOLUME, 3, 1)]);
    rewrite_is_read_everywhere(driver, &[0, 3, 10]);
}

#[test]
fn what_the_cleaner_found_damaged_is_not_shared_with() {
    let mut driver = shared();
    driver.damage_chunk(0);
    for first in (20..80).step_by(3) {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    // The other chunks of its segment are garbage, so it is a victim.
    assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 1, count: 2 }), Ok(()));
    driver.clean();
    assert!(driver.store.stats().damaged > 0, "{:?}", driver.store.stats());
    let write = driver.write_bytes(10, vec![byte_of(0)], CHUNK);
    assert_eq!(driver.ask(write), Ok(()));
    for address in [0, 3, 10] {
        assert_eq!(driver.read(VOLUME, address), Ok(Some(byte_of(0))), "address {address}");
    }
}

#[test]
fn what_was_found_damaged_is_not_shared_with_after_a_restart() {
    for crashes in [false, true] {
        let mut driver = shared();
        driver.damage_chunk(0);
        assert_eq!(driver.scrub().len(), 2);
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
        let device = if crashes { driver.device } else { driver.close() };
        let mut driver = Driver::on(device, Driver::config());
        driver.prints = true;
        // The cleaner passes all fingerprints.
        driver.clean();
        if crashes {
            assert_eq!(driver.scrub().len(), 2, "what was found is told again");
        }
        rewrite_is_read_everywhere(driver, &[0, 3, 10]);
    }
}

#[test]
fn a_snapshot_is_healed_by_a_write_of_the_volume() {
    let mut driver = shared();
    let snapshot = Driver::catalog(CatalogOp::Snapshot, RootId(1));
    assert_eq!(driver.ask(RequestKind::Catalog(snapshot)), Ok(()));
    driver.damage_chunk(0);
    driver.read(RootId(1), 0).unwrap_err();
    let write = driver.write_bytes(0, vec![byte_of(0)], CHUNK);
    assert_eq!(driver.ask(write), Ok(()));
    assert_eq!(driver.read(RootId(1), 0), Ok(Some(byte_of(0))));
    assert_eq!(driver.scrub(), []);
}

#[test]
fn segments_in_which_the_cleaner_met_damage_are_freed_when_nothing_refers_to_them() {
    for damages_header in [false, true] {
        let mut driver = Driver::with(40, eager());
        assert_eq!(driver.create(14), Ok(()));
        let empty = driver.store.space().free_bytes / u64::from(SEGMENT);
        for first in (0..60).step_by(3) {
            let write = driver.write(first, 3, CHUNK);
            assert_eq!(driver.ask(write), Ok(()));
        }
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
        // In each segment two chunks are garbage, so all are victims; what is left in them is damaged.
        for first in (0..60).step_by(3) {
            let at = zc_core::usize_from_u64(driver.place_of(first));
            // A chunk lies behind its header, which is the first of its segment or near it.
            let segment = (at - (128 << 10)) / (64 << 10) * (64 << 10) + (128 << 10);
            driver.device[if damages_header { segment + 100 } else { at + 5 }] ^= 1;
            let discard = RequestKind::Discard { root: VOLUME, first: first + 1, count: 2 };
            assert_eq!(driver.ask(discard), Ok(()));
        }
        for _ in 0..3 {
            driver.clean();
        }
        assert!(driver.store.stats().damaged > 0, "{:?}", driver.store.stats());
        assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 0, count: 1 << 20 }), Ok(()));
        for _ in 0..3 {
            driver.clean();
        }
        let free = |driver: &Driver| driver.store.space().free_bytes / u64::from(SEGMENT);
        assert!(free(&driver) + 2 >= empty, "{} of {empty} segments", free(&driver));
        let mut driver = Driver::on(driver.close(), eager());
        for _ in 0..3 {
            driver.clean();
        }
        assert!(free(&driver) + 2 >= empty, "{} of {empty} segments after a restart", free(&driver));
    }
}

#[test]
fn a_segment_that_could_not_be_read_once_is_cleaned_when_it_can_be() {
    let mut driver = Driver::with(40, eager());
    assert_eq!(driver.create(14), Ok(()));
    for first in (0..60).step_by(3) {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
        let discard = RequestKind::Discard { root: VOLUME, first: first + 1, count: 2 };
        assert_eq!(driver.ask(discard), Ok(()));
    }
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    let full = driver.store.space().free_bytes;
    let sound = driver.device.clone();
    let places: Vec<u64> = (0..60).step_by(3).map(|first| driver.place_of(first)).collect();
    for at in &places {
        driver.device[zc_core::usize_from_u64(*at) + 5] ^= 1;
    }
    driver.clean();
    for at in places {
        let at = zc_core::usize_from_u64(at);
        driver.device[at + 5] = sound[at + 5];
    }
    for _ in 0..3 {
        driver.clean();
    }
    let gained = driver.store.space().free_bytes.saturating_sub(full) / u64::from(SEGMENT);
    assert!(gained >= 10, "{gained} segments: {:?}", driver.store.stats());
    (0..60).step_by(3).for_each(|chunk| driver.is_there(chunk));
}

/// Places of a tree's pages on the device: each copy that was ever written, with its level and number.
fn pages_of(device: &[u8], table: u8) -> Vec<(usize, u8, u64)> {
    let is_page = |at: &usize| device[at + 4..at + 9] == [b'z', b'c', b'S', b'p', table];
    let pages = (128 << 10..device.len()).step_by(4096).filter(is_page);
    pages.map(|at| (at, device[at + 9], crate::media::u64_at(device, at + 16))).collect()
}

/// A store with two leaves of the map written, closed, and all copies of some pages damaged.
fn with_damaged_pages(size: u64, table: u8, picks: impl Fn(u8, u64) -> bool) -> Driver {
    let mut driver = Driver::new(40);
    assert_eq!(driver.create_of(14, size), Ok(()));
    for first in [0, 504, 1008] {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    let mut device = driver.close();
    for (at, _, _) in pages_of(&device, table).into_iter().filter(|(_, level, index)| picks(*level, *index)) {
        device[at + 100] ^= 0xee;
    }
    Driver::on(device, Driver::config())
}

/// The numbers of a map's leaves, lowest first: they were made in this order.
fn leaf_numbers() -> Vec<u64> {
    let mut driver = Driver::new(40);
    assert_eq!(driver.create_of(14, 1011), Ok(()));
    for first in [0, 504, 1008] {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    let device = driver.close();
    let mut leaves: Vec<u64> =
        pages_of(&device, 0).into_iter().filter(|(_, level, _)| *level == 0).map(|(_, _, n)| n).collect();
    leaves.sort_unstable();
    leaves.dedup();
    leaves
}

#[test]
fn what_lies_below_a_damaged_map_page_can_be_written_over_and_the_rest_is_an_error() {
    let first_leaf = leaf_numbers()[0];
    for crashes in [false, true] {
        let mut driver = with_damaged_pages(1011, 0, |level, index| level == 0 && index == first_leaf);
        assert!(matches!(driver.read(VOLUME, 0), Err(StoreError::Damaged(_))));
        let write = driver.write(1, 1, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
        for _ in 0..2 {
            driver.is_there(1);
            assert!(matches!(driver.read(VOLUME, 0), Err(StoreError::Damaged(_))), "never zeros");
            assert!(matches!(driver.read(VOLUME, 400), Err(StoreError::Damaged(_))));
            (504..507).for_each(|chunk| driver.is_there(chunk));
            let found = driver.scrub();
            let covers =
                |chunk| found.iter().any(|(_, first, count)| (*first..first + count).contains(&chunk));
            assert!(covers(0) && covers(400) && !covers(1) && !covers(504), "{found:?}");
            let device = if crashes { driver.device } else { driver.close() };
            driver = Driver::on(device, Driver::config());
        }
        // All of it written over: nothing is damaged any more.
        for first in (0..504).step_by(3) {
            let write = driver.write(first, 3, CHUNK);
            if driver.ask(write) == Err(StoreError::NoSpace) {
                break;
            }
        }
        assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 0, count: 504 }), Ok(()));
        assert_eq!(driver.scrub(), []);
        assert_eq!(driver.read(VOLUME, 0), Ok(None));
    }
}

#[test]
fn the_last_partial_page_of_a_volume_is_trimmed_although_it_is_damaged() {
    let last_leaf = *leaf_numbers().last().unwrap();
    let damaged = || with_damaged_pages(1011, 0, |level, index| level == 0 && index == last_leaf);
    let mut driver = damaged();
    driver.read(VOLUME, 1008).unwrap_err();
    assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 1008, count: 3 }), Ok(()));
    assert_eq!((driver.read(VOLUME, 1008), driver.scrub()), (Ok(None), vec![]));
    // A part of it.
    let mut driver = damaged();
    assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 1009, count: 2 }), Ok(()));
    driver.read(VOLUME, 1008).unwrap_err();
    assert_eq!(driver.read(VOLUME, 1009), Ok(None));
    // What a volume did not have before it grew is zero, not lost.
    let grow = CatalogChange { size_chunks: 1100, ..Driver::catalog(CatalogOp::Grow, VOLUME) };
    assert_eq!(driver.ask(RequestKind::Catalog(grow)), Ok(()));
    assert_eq!(driver.read(VOLUME, 1050), Ok(None));
}

#[test]
fn a_snapshot_keeps_what_a_damaged_page_of_the_volume_hides() {
    let first_leaf = leaf_numbers()[0];
    let mut driver = with_damaged_pages(1011, 0, |level, index| level == 0 && index == first_leaf);
    let snapshot = Driver::catalog(CatalogOp::Snapshot, RootId(1));
    assert_eq!(driver.ask(RequestKind::Catalog(snapshot)), Ok(()));
    let write = driver.write(0, 1, CHUNK);
    assert_eq!(driver.ask(write), Ok(()));
    driver.is_there(0);
    driver.read(RootId(1), 0).unwrap_err();
    for _ in 0..3 {
        driver.clean();
    }
    assert_eq!(driver.read(RootId(1), 504), Ok(Some(byte_of(504))));
    driver.is_there(0);
}

#[test]
fn any_damaged_page_of_a_map_or_table_leaves_the_store_writable() {
    // Leaves and pages above them, of maps, of the chunk table and of the page table.
    for (table, level) in [(0, 0), (0, 1), (1, 0), (2, 0)] {
        let mut driver = with_damaged_pages(1011, table, |found, _| found == level);
        for first in [0, 504, 600] {
            let write = driver.write(first, 3, CHUNK);
            assert_eq!(driver.ask(write), Ok(()), "table {table}, level {level}, address {first}");
        }
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
        for _ in 0..2 {
            (504..507).chain(0..3).for_each(|chunk| driver.is_there(chunk));
            driver = Driver::on(driver.device, Driver::config());
        }
        assert_eq!(driver.ask(RequestKind::Discard { root: VOLUME, first: 0, count: 1011 }), Ok(()));
        assert_eq!(driver.scrub(), [], "table {table}, level {level}");
    }
}

#[test]
fn a_map_page_that_was_damaged_under_a_session_does_not_keep_the_store_closed() {
    let first_leaf = leaf_numbers()[0];
    let mut driver = with_damaged_pages(1011, 0, |_, _| false);
    let write = driver.write(1, 1, CHUNK);
    assert_eq!(driver.ask(write), Ok(()));
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    let mut device = driver.device;
    for (at, level, index) in pages_of(&device, 0) {
        device[at + 100] ^= if level == 0 && index == first_leaf { 0xee } else { 0 };
    }
    let mut driver = Driver::on(device, Driver::config());
    driver.is_there(1);
    assert!(matches!(driver.read(VOLUME, 0), Err(StoreError::Damaged(_))));
    driver.is_there(504);
}

/// A superblock in place of both copies.
fn with_superblock(device: &mut [u8], change: impl Fn(&mut Superblock)) {
    for copy in 0..2 {
        let at = zc_core::usize_from_u64(Superblock::offset_bytes(copy));
        let mut superblock = Superblock::decode(&device[at..at + 4096], copy).unwrap();
        change(&mut superblock);
        device[at..at + 4096].copy_from_slice(&superblock.encode(copy)[..]);
    }
}

#[test]
fn a_session_with_more_batches_than_a_session_was_given_numbers_is_followed_by_another() {
    // As after 2^34 batches and a bit in one session: its numbers are those of sessions that are still to come.
    let mut device = Driver::new(20).close();
    with_superblock(&mut device, |superblock| superblock.session = 5);
    let mut driver = Driver::on(device, Driver::config());
    assert_eq!(driver.create(14), Ok(()));
    for round in 0..40 {
        let write = driver.write(round % 5 * 3, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    let mut device = driver.close();
    with_superblock(&mut device, |superblock| superblock.session = 1);
    let mut driver = Driver::on(device, Driver::config());
    for round in 0..100 {
        let write = driver.write(round % 5 * 3, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()), "round {round}: {:?}", driver.store.stats());
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    }
    let checkpoints = driver.store.stats().checkpoints;
    assert!(checkpoints < 100, "{checkpoints} checkpoints");
    let mut driver = Driver::on(driver.device, Driver::config());
    (0..15).for_each(|chunk| driver.is_there(chunk));
}

#[test]
fn a_store_at_the_end_of_a_counter_is_refused_and_not_damaged() {
    let device = Driver::new(20).close();
    type Change = fn(&mut Superblock);
    let changes: [Change; 4] = [
        |superblock| superblock.session = u64::MAX,
        |superblock| superblock.sequence = u64::MAX,
        |superblock| superblock.epoch = u64::MAX,
        |superblock| superblock.log.seq = BatchSeq(u64::MAX),
    ];
    for change in changes {
        let mut device = device.clone();
        // What cannot be decoded is put there as it is.
        for copy in 0..2 {
            let at = zc_core::usize_from_u64(Superblock::offset_bytes(copy));
            let mut superblock = Superblock::decode(&device[at..at + 4096], copy).unwrap();
            change(&mut superblock);
            device[at..at + 4096].copy_from_slice(&superblock.encode(copy)[..]);
        }
        let driver = Driver::try_on(device.clone(), Driver::config());
        assert!(matches!(driver.opened, Some(Err(_))), "{:?}", driver.opened);
        assert_eq!(driver.device, device);
    }
}

/// Milliseconds pass without an event.
fn idle(driver: &mut Driver, milliseconds: u64) {
    for _ in 0..milliseconds.div_ceil(20) {
        driver.now_ms += 20;
        let now_ms = driver.now_ms;
        driver.give(Event::Tick { now_ms });
        driver.settle();
    }
}

/// Two flushed states of chunks 0 to 2 in a store that does no work of its own.
fn two_commits() -> Driver {
    let config = Config { clean_below_percent: 0, ..Driver::config() };
    let mut driver = Driver::with(40, config);
    assert_eq!(driver.create(14), Ok(()));
    for bytes in [[1, 2, 3], [101, 102, 103]] {
        let write = driver.write_bytes(0, bytes.to_vec(), CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    }
    driver
}

#[test]
fn a_commit_is_proven_when_no_other_follows_and_its_damage_is_an_error_for_its_sectors_alone() {
    let mut driver = two_commits();
    idle(&mut driver, 1000);
    driver.damage_chunk(1);
    let mut driver = Driver::on(driver.device, Driver::config());
    assert_eq!(driver.read(VOLUME, 0), Ok(Some(101)), "nothing goes back");
    assert!(matches!(driver.read(VOLUME, 1), Err(StoreError::Damaged(_))));
    assert_eq!(driver.read(VOLUME, 2), Ok(Some(103)));
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    assert!(!driver.store.stats().torn);
}

#[test]
fn a_commit_that_another_one_follows_costs_nothing_more_and_an_idle_store_writes_nothing() {
    let mut driver = two_commits();
    let batches = driver.batches;
    for round in 0..50 {
        let write = driver.write_bytes(round % 3, vec![7], CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
        assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
        let checkpoints = driver.store.stats().checkpoints;
        driver.now_ms += 5;
        let now_ms = driver.now_ms;
        driver.give(Event::Tick { now_ms });
        assert_eq!(driver.store.stats().checkpoints, checkpoints);
    }
    assert_eq!(driver.batches, batches + 50);
    idle(&mut driver, 10_000);
    assert_eq!(driver.batches, batches + 51, "one for the last of them");
}

#[test]
fn commits_that_are_dropped_fail_the_next_flush_and_are_told_until_then() {
    let mut driver = two_commits();
    // At once: nothing proves the last commit yet.
    driver.damage_chunk(1);
    let mut driver = Driver::on(driver.device, Driver::config());
    assert_eq!(driver.read(VOLUME, 0), Ok(Some(1)));
    assert!(driver.store.stats().torn);
    assert!(driver.store.dropped_commits() > 0);
    // Also for a program that opens it again without a report.
    let mut driver = Driver::on(driver.close(), Driver::config());
    assert!(driver.store.dropped_commits() > 0);
    assert_eq!(driver.ask(RequestKind::Flush), Err(StoreError::Dropped));
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
    assert_eq!(driver.store.dropped_commits(), 0);
    let mut driver = Driver::on(driver.close(), Driver::config());
    assert_eq!(driver.store.dropped_commits(), 0);
    assert_eq!(driver.ask(RequestKind::Flush), Ok(()));
}

#[test]
fn a_volume_is_written_over_although_another_has_filled_the_pool() {
    let mut driver = Driver::new(60);
    assert_eq!(driver.create(14), Ok(()));
    for first in (0..12).step_by(3) {
        let write = driver.write(first, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()));
    }
    let new = |driver: &mut Driver, first| {
        let write = driver.write(first, 3, CHUNK);
        driver.ask(write)
    };
    let full = (100..).step_by(3).find(|first| new(&mut driver, *first) == Err(StoreError::NoSpace)).unwrap();
    for round in 0..400 {
        let write = driver.write(round % 4 * 3, 3, CHUNK);
        assert_eq!(driver.ask(write), Ok(()), "round {round}: {:?}", driver.store.space());
    }
    assert_eq!(new(&mut driver, full), Err(StoreError::NoSpace), "what is kept is not for new contents");
    (0..12).chain(100..full).for_each(|chunk| driver.is_there(chunk));
}
