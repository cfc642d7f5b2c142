//! Requests of a store of format 2, across restarts.

use super::test_driver::{Driver, SLOT};
use crate::format2::Config;
use crate::format2::catalog::{CatalogOp, OrderMark};
use crate::format2::seam::{RequestKind, StoreError};

fn volume() -> Driver {
    let mut driver = Driver::new(64);
    assert_eq!(driver.change(CatalogOp::Create, 1, 0), Ok(()));
    driver
}

fn reopened(driver: Driver) -> Driver {
    Driver::on(driver.close(), Driver::config(), 3)
}

#[test]
fn blocks_are_read_as_they_were_written_before_and_after_a_restart() {
    let mut driver = volume();
    let contents: Vec<u64> = (1..=30).collect();
    assert_eq!(driver.write_blocks(1, 500, &contents), Ok(()));
    for _ in 0..3 {
        assert_eq!(driver.read(1, 500, 30), Ok(contents.clone()));
        assert_eq!(driver.read(1, 498, 4), Ok(vec![0, 0, 1, 2]));
        assert_eq!(driver.read(1, 1 << 19, 2), Ok(vec![0, 0]));
        driver = reopened(driver);
    }
}

#[test]
fn a_killed_store_has_all_that_was_answered() {
    let mut driver = volume();
    for round in 0..40_u64 {
        assert_eq!(driver.write_blocks(1, round * 7 % 50, &[round + 1, round + 2]), Ok(()));
    }
    let expected = driver.read(1, 0, 60).unwrap();
    let mut driver = Driver::on(driver.device, Driver::config(), 5);
    assert_eq!(driver.read(1, 0, 60), Ok(expected));
}

#[test]
fn equal_blocks_are_stored_once_and_across_volumes() {
    let mut driver = volume();
    assert_eq!(driver.change(CatalogOp::Create, 2, 0), Ok(()));
    let contents: Vec<u64> = (1..=64).collect();
    assert_eq!(driver.write_blocks(1, 0, &contents), Ok(()));
    let before = driver.appended_bytes;
    assert_eq!(driver.write_blocks(2, 1003, &contents), Ok(()));
    assert!(driver.appended_bytes - before <= 4096, "{}", driver.appended_bytes - before);
    let mut driver = reopened(driver);
    assert_eq!(driver.read(2, 1003, 64), Ok(contents.clone()));
    assert_eq!(driver.read(1, 0, 64), Ok(contents));
}

#[test]
fn cleared_and_zero_blocks_read_as_zeros() {
    let mut driver = volume();
    let contents: Vec<u64> = (1..=100).collect();
    for first in (0..4000).step_by(100) {
        assert_eq!(driver.write_blocks(1, first, &contents), Ok(()));
    }
    let mut driver = reopened(driver);
    assert_eq!(driver.request(RequestKind::Clear { root: 1, first: 100, count: 2500 }), Ok(()));
    assert_eq!(driver.write_blocks(1, 50, &[0, 9]), Ok(()));
    for _ in 0..3 {
        assert_eq!(driver.read(1, 49, 3), Ok(vec![50, 0, 9]));
        assert_eq!(driver.read(1, 98, 4), Ok(vec![99, 100, 0, 0]));
        assert_eq!(driver.read(1, 1024, 4), Ok(vec![0; 4]));
        assert_eq!(driver.read(1, 2598, 4), Ok(vec![0, 0, 1, 2]));
        driver = reopened(driver);
    }
}

#[test]
fn clearing_an_empty_volume_of_any_size_takes_no_work() {
    let mut driver = Driver::new(64);
    let mut change = Driver::catalog(CatalogOp::Create, 1, 0);
    change.size_blocks = 1 << 36;
    assert_eq!(driver.request(RequestKind::Catalog(change)), Ok(()));
    assert_eq!(driver.write_blocks(1, (1 << 35) + 5, &[1, 2]), Ok(()));
    let (reads, bytes) = (driver.node_reads, driver.appended_bytes);
    assert_eq!(driver.request(RequestKind::Clear { root: 1, first: 3, count: (1 << 36) - 3 }), Ok(()));
    assert_eq!(driver.read(1, (1 << 35) + 5, 2), Ok(vec![0, 0]));
    assert!(driver.node_reads - reads <= 4 && driver.appended_bytes - bytes <= 8192);
}

#[test]
fn snapshots_and_clones_keep_what_the_volume_had() {
    let mut driver = volume();
    assert_eq!(driver.write_blocks(1, 0, &[1, 2, 3, 4]), Ok(()));
    assert_eq!(driver.change(CatalogOp::Snapshot, 2, 1), Ok(()));
    assert_eq!(driver.write_blocks(1, 1, &[20]), Ok(()));
    assert_eq!(driver.write_blocks(2, 1, &[99]), Err(StoreError::Invalid), "a snapshot");
    assert_eq!(driver.change(CatalogOp::Clone, 3, 2), Ok(()));
    assert_eq!(driver.write_blocks(3, 2, &[30]), Ok(()));
    for _ in 0..3 {
        assert_eq!(driver.read(1, 0, 4), Ok(vec![1, 20, 3, 4]));
        assert_eq!(driver.read(2, 0, 4), Ok(vec![1, 2, 3, 4]));
        assert_eq!(driver.read(3, 0, 4), Ok(vec![1, 2, 30, 4]));
        driver = reopened(driver);
    }
    assert_eq!(driver.change(CatalogOp::Rollback, 1, 2), Ok(()));
    assert_eq!(driver.read(1, 0, 4), Ok(vec![1, 2, 3, 4]));
    assert_eq!(driver.change(CatalogOp::Delete, 2, 0), Ok(()));
    let mut driver = reopened(driver);
    assert_eq!(driver.read(2, 0, 4), Err(StoreError::NoSuchRoot));
    assert_eq!(driver.read(1, 0, 4), Ok(vec![1, 2, 3, 4]));
}

#[test]
fn the_last_durable_order_mark_is_returned_at_the_opening() {
    let mut driver = volume();
    let mark = |run| OrderMark { cache: [5; 16], run };
    assert_eq!(driver.request(RequestKind::Mark { root: 1, mark: mark(7) }), Ok(()));
    let mut driver = Driver::on(driver.device, Driver::config(), 1);
    assert_eq!(driver.opened, Some(Ok(vec![(1, mark(7))])), "from the log");
    assert_eq!(driver.request(RequestKind::Mark { root: 1, mark: mark(8) }), Ok(()));
    let driver = Driver::on(driver.close(), Driver::config(), 1);
    assert_eq!(driver.opened, Some(Ok(vec![(1, mark(8))])), "from the catalog");
}

#[test]
fn a_changed_byte_of_contents_is_an_error_and_nothing_else() {
    let mut driver = volume();
    assert_eq!(driver.write_blocks(1, 0, &[1, 2, 3, 4, 5]), Ok(()));
    let mut driver = reopened(driver);
    assert_eq!(driver.read(1, 1, 1), Ok(vec![2]));
    let at = driver.fetched_at;
    let mut device = driver.close();
    device[at + 20] ^= 1;
    let mut driver = Driver::on(device, Driver::config(), 1);
    assert!(matches!(driver.read(1, 0, 1), Err(StoreError::Damaged { .. })), "compressed with block 1");
    assert_eq!(driver.read(1, 4, 1), Ok(vec![5]));
}

#[test]
fn a_full_store_refuses_writes_and_keeps_what_it_has() {
    let mut driver = Driver::new(24);
    assert_eq!(driver.change(CatalogOp::Create, 1, 0), Ok(()));
    let mut written = 0;
    loop {
        let contents: Vec<u64> = (1..=32).map(|value| 1000 * (written + 1) + value).collect();
        match driver.write_blocks(1, written * 32, &contents) {
            Ok(()) => written += 1,
            Err(error) => {
                assert_eq!(error, StoreError::NoSpace);
                break;
            }
        }
    }
    assert!(written * 32 * 1800 > u64::from(8 * SLOT), "{written} writes");
    let mut driver = reopened(driver);
    for round in 0..written {
        assert_eq!(driver.read(1, round * 32, 1), Ok(vec![1000 * (round + 1) + 1]));
    }
}

#[test]
fn a_cold_random_read_takes_the_leaf_and_the_contents() {
    let mut driver = Driver::new(240);
    assert_eq!(driver.change(CatalogOp::Create, 1, 0), Ok(()));
    for first in (0..512 * 40).step_by(64) {
        let contents: Vec<u64> = (1..=64).map(|value| first * 100 + value).collect();
        assert_eq!(driver.write_blocks(1, first, &contents), Ok(()));
    }
    let mut driver = reopened(driver);
    assert_eq!(driver.read(1, 0, 1), Ok(vec![1]));
    let (nodes, contents) = (driver.node_reads, driver.fetches);
    for leaf in 1..40 {
        driver.read(1, 512 * leaf + 17, 1).unwrap();
    }
    assert_eq!((driver.node_reads - nodes, driver.fetches - contents), (39, 39));
}

/// Two flushed states of a block, and the place of the batch with the last one.
fn two_commits() -> (Driver, usize) {
    let mut driver = volume();
    for value in [1, 2] {
        assert_eq!(driver.write_blocks(1, 0, &[value]), Ok(()));
        assert_eq!(driver.request(RequestKind::Flush), Ok(()));
    }
    let at = driver.batch_at;
    (driver, at)
}

#[test]
fn a_proven_commit_that_is_gone_is_an_error_and_not_an_older_state() {
    let (mut driver, at) = two_commits();
    let bytes = driver.appended_bytes;
    driver.idle();
    assert_eq!(driver.appended_bytes, bytes + 4096, "one header, once");
    let mut device = driver.device;
    device[at] ^= 1;
    let refused = Driver::try_on(device.clone(), Driver::config(), 1);
    assert_eq!(refused.opened, Some(Err(StoreError::LogLost)));
    let mut accepted = Driver::on(device, Config { accept_loss: true, ..Driver::config() }, 1);
    assert_eq!(accepted.read(1, 0, 1), Ok(vec![1]));
}

#[test]
fn proven_contents_that_are_corrupt_are_an_error_for_their_blocks_alone() {
    let (mut driver, at) = two_commits();
    driver.idle();
    driver.device[at + 4096 + 20] ^= 1;
    let mut driver = Driver::on(driver.device, Driver::config(), 1);
    assert!(matches!(driver.read(1, 0, 1), Err(StoreError::Damaged { .. })));
    assert_eq!(driver.read(1, 1, 1), Ok(vec![0]));
    assert_eq!(driver.request(RequestKind::Flush), Ok(()));
}

#[test]
fn an_unproven_commit_that_is_corrupt_is_dropped_and_reported_once() {
    let (mut driver, at) = two_commits();
    driver.device[at + 4096 + 20] ^= 1;
    let mut driver = Driver::on(driver.device, Driver::config(), 1);
    assert_eq!(driver.read(1, 0, 1), Ok(vec![1]));
    assert_eq!(driver.store.dropped_commits(), 1);
    assert_eq!(driver.request(RequestKind::Flush), Err(StoreError::Dropped));
    assert_eq!(driver.request(RequestKind::Flush), Ok(()));
}

#[test]
fn space_of_overwritten_cleared_and_deleted_contents_is_used_again() {
    let mut driver = Driver::new(60);
    assert_eq!(driver.change(CatalogOp::Create, 1, 0), Ok(()));
    let mut value = 0;
    // Ten times what the device holds.
    for round in 0..2600 {
        value += 32;
        let contents: Vec<u64> = (value..value + 32).collect();
        assert_eq!(driver.write_blocks(1, round % 20 * 32, &contents), Ok(()), "round {round}");
    }
    assert!(driver.appended_bytes > 600 * u64::from(SLOT) / 2, "{}", driver.appended_bytes);
    assert_eq!(driver.read(1, 2599 % 20 * 32, 1), Ok(vec![value]));
    assert_eq!(driver.change(CatalogOp::Delete, 1, 0), Ok(()));
    for _ in 0..3 {
        driver.clean();
    }
    let free = driver.store.free_bytes() / u64::from(SLOT);
    assert!(free >= 50, "{free} of 60 slots are free");
    let driver = reopened(driver);
    assert!(driver.store.free_bytes() / u64::from(SLOT) >= 48);
}

#[test]
fn what_a_snapshot_has_is_not_freed() {
    let mut driver = volume();
    let contents: Vec<u64> = (1..=100).collect();
    assert_eq!(driver.write_blocks(1, 0, &contents), Ok(()));
    assert_eq!(driver.change(CatalogOp::Snapshot, 2, 1), Ok(()));
    for round in 0..30 {
        let other: Vec<u64> = (0..100).map(|block| 1000 * (round + 1) + block).collect();
        assert_eq!(driver.write_blocks(1, 0, &other), Ok(()));
        driver.clean();
    }
    for _ in 0..2 {
        assert_eq!(driver.read(2, 0, 100), Ok(contents.clone()));
        driver = reopened(driver);
    }
}
