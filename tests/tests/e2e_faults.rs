//! A cache file that is corrupted, rolled back, truncated, removed or filled, and an origin that fails.
//!
//! Clients of a write-through volume see no error and right bytes under any fault of the cache device; errors of the
//! origin are visible. The test does the damage through its own file handle; the daemon reads with direct I/O.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use rand::RngExt as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use zc_tests::{DataGen, FilteredFile, MIB, Mount, World, read_file, rng, same};

const IMAGE_BLOCKS: usize = 4096;

/// A world whose whole volume is cached, with nothing in flight.
fn filled(seed: u64) -> (World, zc_tests::Daemon, Vec<u8>) {
    let mut world = World::new(64, 32);
    // Reads must come from the device: no other copies in memory.
    world.cache.push_str("weu_size = \"256 KiB\"\nread_buffer = 0\nprefetch_max = 0\n");
    let image = DataGen::new(seed, 8192).mixed(IMAGE_BLOCKS);
    let daemon = world.start();
    world.connect("disk").write(0, &image).expect("fill");
    world.settled();
    (world, daemon, image)
}

/// Reads everything, twice, as a client that allows no error.
fn reads_right(world: &World, image: &[u8]) {
    let mut client = world.connect("disk");
    for _ in 0..2 {
        same(&client.read(0, image.len()).expect("clients see no error of the cache"), image, "the volume");
    }
}

/// Writes something new everywhere, as a client that allows no error, and checks the origin.
fn writes_right(world: &World, seed: u64) -> Vec<u8> {
    let image = DataGen::new(seed, 8192).mixed(IMAGE_BLOCKS);
    let mut client = world.connect("disk");
    client.write(0, &image).expect("clients see no error of the cache");
    client.flush().expect("flush");
    world.origin_is("disk", &image);
    image
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).expect("cannot open the cache file")
}

/// The bytes of the write units: behind the metadata, which lies in the first sixteenth of so small a cache.
fn data_range(len: u64) -> std::ops::Range<u64> {
    len / 16..len
}

/// Flips one bit in every 16 KiB of the write units.
fn flip_bits(path: &Path, seed: u64) {
    let file = open(path);
    let range = data_range(file.metadata().expect("metadata").len());
    let mut random = rng(seed);
    for block in range.step_by(16 << 10) {
        let at = block + random.random_range(0..16 << 10);
        let mut byte = [0];
        if file.read_at(&mut byte, at).expect("read") == 1 {
            byte[0] ^= 1 << random.random_range(0..8);
            file.write_all_at(&byte, at).expect("write");
        }
    }
    file.sync_all().expect("sync");
}

#[test]
fn bits_that_flip_while_serving_are_noticed_and_refetched() {
    let (world, daemon, image) = filled(1);
    flip_bits(&world.cache_file(), 1);
    reads_right(&world, &image);
    let failed = world.counter("failed_hits");
    assert!(failed > 50, "only {failed} hits failed");
    world.settled();
    let image = writes_right(&world, 2);
    reads_right(&world, &image);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn blocks_overwritten_or_rolled_back_are_not_served() {
    let (world, daemon, _) = filled(3);
    let old = read_file(&world.cache_file());
    // Enough is written for slots to be used again: the old copies are of other generations.
    for seed in 4..8 {
        let _image = writes_right(&world, seed);
    }
    let image = writes_right(&world, 8);
    // Insertions that were skipped on a busy machine happen now.
    reads_right(&world, &image);
    world.settled();
    let file = open(&world.cache_file());
    let mut random = rng(5);
    let junk = vec![0x5a_u8; 4096];
    for at in data_range(64 * MIB).step_by(4096) {
        let from = usize::try_from(at).expect("small");
        match random.random_range(0..4) {
            0 => file.write_all_at(&junk, at).expect("write"),
            1 => file.write_all_at(&old[from..from + 4096], at).expect("write"),
            _ => {}
        }
    }
    file.sync_all().expect("sync");
    reads_right(&world, &image);
    let failed = world.counter("failed_hits");
    assert!(failed > 50, "only {failed} hits failed");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn bits_that_flip_between_runs_cost_hits_only() {
    let (world, daemon, image) = filled(9);
    assert_eq!(daemon.terminate().code(), Some(0));
    flip_bits(&world.cache_file(), 2);
    let daemon = world.start();
    world.loaded();
    reads_right(&world, &image);
    let image = writes_right(&world, 10);
    reads_right(&world, &image);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_cache_that_was_put_back_from_a_backup_serves_nothing_old() {
    let (world, daemon, _) = filled(11);
    assert_eq!(daemon.terminate().code(), Some(0));
    let backup = read_file(&world.cache_file());
    let daemon = world.start();
    let image = writes_right(&world, 12);
    assert_eq!(daemon.terminate().code(), Some(0));
    std::fs::write(world.cache_file(), backup).expect("cannot put the backup back");
    let daemon = world.start();
    reads_right(&world, &image);
    world.loaded();
    reads_right(&world, &image);
    let status = world.status();
    assert!(status["volumes"][0]["info"]["cold_reason"].is_string(), "{status}");
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_truncated_cache_file_ends_in_pass_through_that_says_so() {
    let (world, daemon, image) = filled(13);
    open(&world.cache_file()).set_len(MIB).expect("cannot truncate");
    reads_right(&world, &image);
    let image = writes_right(&world, 14);
    reads_right(&world, &image);
    world.settled();
    let status = world.status();
    let noticed = status["cache"]["healthy"] == false && status["cache"]["fault"].is_string();
    let refetched = world.counter("failed_hits") + world.counter("device_read_errors") > 0;
    assert!(noticed || refetched, "nothing tells of it: {status}");
    daemon.terminate();
}

#[test]
fn a_deleted_cache_file_is_no_error_and_the_next_start_makes_a_new_one() {
    let (world, daemon, image) = filled(15);
    std::fs::remove_file(world.cache_file()).expect("cannot delete");
    reads_right(&world, &image);
    let image = writes_right(&world, 16);
    daemon.terminate();
    let daemon = world.start();
    reads_right(&world, &image);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_full_disk_under_the_cache_is_no_error() {
    let mut world = World::new(64, 32);
    let _mount = Mount::new(&["-t", "tmpfs", "-o", "size=24m", "none"], world.path("small"));
    world.cache_path = "small/cache.img".into();
    world.cache.push_str("direct = false\nweu_size = \"256 KiB\"\n");
    // A sparse file promises more than the disk has.
    std::fs::create_dir_all(world.path("small")).expect("the mount is there");
    File::create(world.cache_file())
        .and_then(|file| file.set_len(64 * MIB))
        .expect("cannot make the cache file");
    let daemon = world.start();
    for seed in 20..24 {
        let image = writes_right(&world, seed);
        reads_right(&world, &image);
    }
    let stats = world.settled();
    let errors = stats["manager"]["device_write_errors"].as_u64();
    assert!(errors > Some(0) || stats["cache_healthy"] == false, "the disk did not fill: {stats}");
    daemon.terminate();
}

#[test]
fn errors_of_the_origin_reach_the_client_and_nothing_else_does() {
    let mut world = World::new(64, 32);
    let image = DataGen::new(30, 8192).mixed(IMAGE_BLOCKS);
    let behind = world.path("behind.img");
    std::fs::write(&behind, &image).expect("cannot write the image");
    let failing = FilteredFile::failing(&world, &behind);
    world.volumes[0].2 = failing.as_origin();
    let daemon = world.start();
    let half = image.len() / 2;
    let mut client = world.connect("disk");
    same(&client.read(0, half).expect("read"), &image[..half], "the first half");
    world.settled();
    failing.fail(true);
    let end = u64::try_from(image.len()).expect("small") - 65536;
    for _ in 0..3 {
        let refused = client.write(end, &[7; 65536]).and_then(|()| client.flush());
        assert!(refused.is_err(), "a write that fails on the origin is not acknowledged as durable");
    }
    failing.fail(false);
    let new = vec![9; 65536];
    client.write(end, &new).expect("the origin works again");
    client.flush().expect("flush");
    same(&client.read(end, 65536).expect("read"), &new, "what was written at last");
    same(&client.read(0, half).expect("read"), &image[..half], "the first half again");
    assert!(world.stats()["driver"]["origin_errors"].as_u64() > Some(0));
    drop(client);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_flush_on_one_connection_covers_what_another_was_told_is_written() {
    let mut world = World::new(64, 32);
    let (behind, log) = (world.path("behind.img"), world.path("requests"));
    std::fs::write(&behind, vec![1; 32 << 20]).expect("cannot write the image");
    let file = FilteredFile::logged(&world, &behind, &log);
    world.volumes[0].2 = file.as_origin();
    let daemon = world.start();
    let (mut one, mut two) = (world.connect("disk"), world.connect("disk"));
    for round in 0..4_u64 {
        one.write(round << 16, &[7; 65536]).expect("write");
        two.flush().expect("flush");
        // Writes in the order of arrival at the origin; both requests were completed.
        let requests = String::from_utf8(read_file(&log)).expect("the log is text");
        let last = |name: &str| requests.rfind(name);
        assert!(last(" Write ").is_some_and(|write| last(" Flush ") > Some(write)), "{requests}");
    }
    drop((one, two));
    assert_eq!(daemon.terminate().code(), Some(0));
}
