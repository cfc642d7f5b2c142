//! A cache device that does not answer: volumes go on without it.
//!
//! The device is a file in FUSE whose server is stopped: the kernel holds its operations as it does those of a disk.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::process::Command;

use zc_tests::{DataGen, FilteredFile, MIB, World, program, same};

const VOLUME_MIB: u64 = 16;

/// A world whose cache is a file that can hang, formatted.
fn world() -> (World, FilteredFile) {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache = "weu_max_age = \"100 ms\"\nread_buffer = 0\nprefetch_max = 0\ndirect = false\n\
                   device_deadline = \"2 s\"\nslow_read = \"300 ms\"\n"
        .to_owned();
    let behind = world.path("behind.img");
    File::create(&behind).and_then(|file| file.set_len(64 * MIB)).expect("cannot make the cache");
    let cache = FilteredFile::failing(&world, &behind);
    world.cache_path = cache.path().to_owned();
    let formatted = Command::new(program("zcctl"))
        .args(["format", "--state-dir"])
        .arg(world.path("state"))
        .arg(&behind)
        .status()
        .expect("cannot start zcctl");
    assert!(formatted.success());
    (world, cache)
}

#[test]
fn reads_and_writes_go_on_when_the_cache_hangs() {
    let (world, cache) = world();
    let daemon = world.start();
    let mut client = world.connect("disk");
    let mut expected = DataGen::new(1, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"));
    client.write(0, &expected[..usize::try_from(4 * MIB).expect("small")]).expect("write");
    client.flush().expect("flush");
    world.settled();
    expected[usize::try_from(4 * MIB).expect("small")..].fill(0);

    cache.hang(true);
    same(&client.read(0, 1 << 20).expect("a read of cached data"), &expected[..1 << 20], "the origin has it");
    let changed = DataGen::new(2, 8192).mixed(8);
    let at = usize::try_from(12 * MIB).expect("small");
    // A region that no write has marked.
    client.write(12 * MIB, &changed).expect("a write to an unmarked region");
    expected[at..at + changed.len()].copy_from_slice(&changed);
    world.stats_until("the cache is out of order", |stats| stats["cache_healthy"] == false);
    let status = world.status();
    assert!(status["cache"]["fault"].to_string().contains("no answer in time"), "{status}");
    same(&client.read(0, expected.len()).expect("a read of all"), &expected, "after the failure");
    drop(client);

    // The kernel keeps a process whose operations a device has until it answers.
    daemon.signal(rustix::process::Signal::TERM);
    cache.hang(false);
    daemon.wait();
    world.origin_is("disk", &expected);

    let _daemon = world.start();
    same(&world.connect("disk").read(0, expected.len()).expect("read"), &expected, "after the next start");
}

#[test]
fn a_hang_that_ends_in_time_costs_a_slow_read_and_nothing_else() {
    let (mut world, cache) = world();
    world.cache = world.cache.replace("\"2 s\"", "\"60 s\"");
    let _daemon = world.start();
    let mut client = world.connect("disk");
    let bytes = DataGen::new(3, 8192).mixed(8);
    client.write(0, &bytes).expect("write");
    client.flush().expect("flush");
    world.settled();
    cache.hang(true);
    same(&client.read(0, bytes.len()).expect("a read of cached data"), &bytes, "the origin has it");
    assert!(world.counter("slow_hits") > 0);
    cache.hang(false);
    let hits = world.counter("verified_hits");
    same(&client.read(0, bytes.len()).expect("a read of cached data"), &bytes, "the cache has it");
    assert!(world.counter("verified_hits") > hits);
    assert_eq!(world.stats()["cache_healthy"], true);
}
