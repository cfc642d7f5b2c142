//! Flushed data with a damaged copy on the cache device, and a kill right after the flush: an unreadable extent is an
//! error, and each other one has its last write.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::os::unix::fs::FileExt as _;

use zc_tests::{BlockKind, DataGen, World, read_file, same};

const VOLUME_MIB: u64 = 16;
const EXTENT: usize = 8192;
const MIB: usize = 1 << 20;

/// A world with one write-back volume whose dirty data stays on the cache until a command.
fn world(lines: &str) -> World {
    let mut world = World::new(256, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    world.volumes[0].2 = format!("mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n{lines}");
    world
}

/// Bytes that do not compress: as written, so stored.
fn raw(seed: u64, bytes: usize) -> Vec<u8> {
    let data = DataGen::new(seed, EXTENT);
    (0..bytes / EXTENT).flat_map(|number| data.block(BlockKind::Incompressible, number as u64)).collect()
}

fn write(world: &World, offset: usize, bytes: &[u8]) {
    let mut client = world.connect("disk");
    client.write(offset as u64, bytes).expect("write");
    client.flush().expect("flush");
}

/// Changes the cache file's copies of these bytes, at any place. Returns the number of copies.
fn damage(world: &World, bytes: &[u8], change: impl Fn(&[u8], usize) -> (u64, Vec<u8>)) -> usize {
    let cache = read_file(&world.cache_file());
    let file = std::fs::File::options().write(true).open(world.cache_file()).expect("the cache file");
    let places = cache.windows(64).enumerate().filter(|(_, window)| *window == &bytes[..64]);
    let places: Vec<usize> = places.map(|(at, _)| at).collect();
    for at in &places {
        let (place, data) = change(&cache, *at);
        file.write_all_at(&data, place).expect("damage");
    }
    file.sync_all().expect("damage");
    places.len()
}

/// Flips a bit.
fn rots(cache: &[u8], at: usize) -> (u64, Vec<u8>) {
    (at as u64, vec![cache[at] ^ 1])
}

/// Zeroes the 4 KiB page that the bytes begin in.
fn is_zeroed(_: &[u8], at: usize) -> (u64, Vec<u8>) {
    ((at / 4096 * 4096) as u64, vec![0; 4096])
}

/// Reads each extent: it is as expected, or unreadable. Returns the numbers of the latter.
fn unreadable(world: &World, expected: &[u8]) -> Vec<usize> {
    let mut client = world.connect("disk");
    let extents = expected.chunks(EXTENT).enumerate();
    let failed = extents.filter(|(number, bytes)| match client.read((number * EXTENT) as u64, EXTENT) {
        Ok(found) => {
            same(&found, bytes, &format!("extent {number}"));
            false
        }
        Err(_) => {
            client = world.connect("disk");
            true
        }
    });
    failed.map(|(number, _)| number).collect()
}

fn status(world: &World) -> String {
    String::from_utf8_lossy(&world.zcctl_output(&["status"]).stdout).into_owned()
}

#[test]
fn damage_of_the_last_commit_right_after_a_kill_is_an_error_where_it_is_and_nowhere_else() {
    let world = world("");
    let daemon = world.start();
    let _loaded = world.loaded();
    let mut expected = raw(1, 8 * MIB);
    write(&world, 0, &expected);
    expected[..4 * MIB].copy_from_slice(&raw(2, 4 * MIB));
    write(&world, 0, &expected[..4 * MIB]);
    daemon.kill9();
    let victim = 100;
    let place = victim * EXTENT;
    assert_eq!(damage(&world, &expected[place..place + EXTENT], is_zeroed), 1);
    let daemon = world.start();
    let failed = unreadable(&world, &expected);
    assert!(!failed.is_empty() && failed.len() <= 2 && failed.contains(&victim), "{failed:?}");
    let _stats = world.stats_until("status names it", |stats| {
        stats["dirty"]["disk"]["unreadable_bytes"].as_u64() > Some(0)
    });
    let said = status(&world);
    assert!(said.contains("DEGRADED") && said.contains("cannot be read from the cache"), "{said}");
    // New writes are intact, and destaged.
    for number in failed {
        let at = number * EXTENT;
        write(&world, at, &expected[at..at + EXTENT]);
    }
    assert_eq!(unreadable(&world, &expected), Vec::<usize>::new());
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(daemon.terminate().code(), Some(0));
    same(&read_file(&world.origin("disk"))[..expected.len()], &expected, "the origin");
}

/// X is clean in the cache and is corrupted; then X is written elsewhere, with other data beside it.
fn content_that_rotted_before(lines: &str, others: usize) {
    let world = world(lines);
    let daemon = world.start();
    let _loaded = world.loaded();
    let shared = raw(1, EXTENT);
    let mut expected = vec![0; (others + 201) * EXTENT];
    expected[..EXTENT].copy_from_slice(&shared);
    write(&world, 0, &expected[..EXTENT]);
    // The unit is full, so that nothing of it is in memory, and clean.
    expected[EXTENT..101 * EXTENT].copy_from_slice(&raw(2, 100 * EXTENT));
    write(&world, EXTENT, &expected[EXTENT..101 * EXTENT]);
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(damage(&world, &shared, rots), 1);
    let place = 200 * EXTENT;
    expected[place..place + EXTENT].copy_from_slice(&shared);
    expected[place + EXTENT..].copy_from_slice(&raw(3, others * EXTENT));
    write(&world, place, &expected[place..]);
    daemon.kill9();
    let daemon = world.start();
    assert_eq!(unreadable(&world, &expected), Vec::<usize>::new());
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(daemon.terminate().code(), Some(0));
    same(&read_file(&world.origin("disk"))[..expected.len()], &expected, "the origin");
}

#[test]
fn a_write_does_not_rely_on_a_clean_copy_that_rotted_before_it() {
    content_that_rotted_before("", 200);
}

#[test]
fn nor_does_one_that_is_durable_when_it_is_answered() {
    content_that_rotted_before("ack = \"durable\"\n", 0);
}
