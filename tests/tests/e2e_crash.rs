//! Repeated `kill -9` under load, and the data after a restart.
//!
//! The load records acknowledged writes: those must be present. Of those in flight each sector is old or new, and does
//! not change after its first read. `ZC_KILL_CYCLES` sets the number of kills.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use rand::RngExt as _;
use serde_json::Value;
use zc_engine::{NbdClient, NbdRequest};
use zc_tests::{BlockKind, DataGen, MIB, Rng, World, rng, same, seed_from_env};

const VOLUME_MIB: u64 = 48;
const IN_FLIGHT: usize = 12;
/// Extents in the four units of 256 KiB that may be on their way to the device, compressed 2:1.
const TORN_EXTENTS_MAX: u64 = 4 * 64;

/// A write without an answer: cookie, first byte, bytes.
type Pending = (u64, usize, Vec<u8>);

/// Half of it duplicates of the other half.
fn half_duplicates(seed: u64, mib: u64) -> Vec<u8> {
    let data = DataGen::new(seed, 8192);
    let blocks = mib * MIB / 8192;
    let mut image = Vec::new();
    for block in 0..blocks {
        image.extend_from_slice(&data.block(BlockKind::Compressible, block % (blocks / 2)));
    }
    image
}

/// Writes until `acked` writes are acknowledged, then kills during more. Returns the unanswered ones.
fn load_and_kill(
    daemon: zc_tests::Daemon,
    client: &mut NbdClient,
    twin: &mut [u8],
    random: &mut Rng,
) -> Vec<Pending> {
    let mut pending: Vec<Pending> = Vec::new();
    let mut acked = 0;
    let target = random.random_range(20..600);
    let data = DataGen::new(5, 512);
    while acked < target {
        while pending.len() < IN_FLIGHT {
            let sectors = random.random_range(1..=64_usize);
            let at = random.random_range(0..twin.len() / 512 - sectors) * 512;
            let len = sectors * 512;
            if pending.iter().any(|(_, other, bytes)| at < other + bytes.len() && *other < at + len) {
                continue;
            }
            let block = data.block(BlockKind::Compressible, random.random_range(0..500));
            let bytes: Vec<u8> = block.iter().copied().cycle().take(len).collect();
            let fua = random.random_bool(0.02);
            let offset = u64::try_from(at).expect("small");
            let cookie =
                client.submit(NbdRequest::Write { offset, data: &bytes, fua }).expect("a request is sent");
            pending.push((cookie, at, bytes));
        }
        acknowledge(client, &mut pending, twin).expect("the daemon answers");
        acked += 1;
    }
    daemon.kill9();
    // Answers that had left before the kill count as well.
    while !pending.is_empty() && acknowledge(client, &mut pending, twin).is_some() {}
    pending
}

fn acknowledge(client: &mut NbdClient, pending: &mut Vec<Pending>, twin: &mut [u8]) -> Option<()> {
    let done = client.wait().ok()?;
    done.result.expect("the write succeeds");
    let index = pending.iter().position(|(cookie, ..)| *cookie == done.cookie).expect("it was asked for");
    let (_, at, bytes) = pending.swap_remove(index);
    twin[at..at + bytes.len()].copy_from_slice(&bytes);
    Some(())
}

/// Sectors of writes in flight may be old or new; the twin adopts the present ones.
fn adopt(found: &[u8], pending: &[Pending], twin: &mut [u8]) {
    for (_, at, bytes) in pending {
        for (index, new) in bytes.chunks(512).enumerate() {
            let sector = at + index * 512..at + index * 512 + 512;
            if found[sector.clone()] == *new {
                twin[sector].copy_from_slice(new);
            }
        }
    }
    same(found, twin, "the volume after a kill");
}

fn entries(stats: &Value) -> u64 {
    stats["manager"]["file_index_len"].as_u64().expect("the gauge is there")
}

/// At least 99 % of the entries that were there before.
fn assert_warm(before: u64, after: u64) {
    assert!(before > 0 && after * 100 >= before * 99, "{after} of {before} file index entries kept");
}

#[test]
fn acknowledged_writes_outlive_kill_9_again_and_again() {
    let cycles = std::env::var("ZC_KILL_CYCLES").map_or(12, |text| text.parse().expect("a number"));
    // Small units and a cache smaller than the volume: evictions and journal are in full swing.
    let mut world = World::new(24, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    world.nbd = "[sandbox]\nlandlock = \"required\"\nseccomp = \"required\"\n".to_owned();
    let mut random = rng(seed_from_env(9));
    let mut twin = half_duplicates(3, VOLUME_MIB);
    let mut daemon = world.start();
    world.connect("disk").write(0, &twin).expect("fill");
    for cycle in 0..cycles {
        eprintln!("kill {cycle}");
        let mut client = world.connect("disk");
        let pending = load_and_kill(daemon, &mut client, &mut twin, &mut random);
        daemon = world.start();
        let mut client = world.connect("disk");
        // Odd cycles read while the index loads, even ones after it: both must be right.
        if cycle % 2 == 0 {
            world.loaded();
        }
        let found = client.read(0, twin.len()).expect("read all");
        // First of all: a cache that differs from its origin is stale.
        world.origin_is("disk", &found);
        adopt(&found, &pending, &mut twin);
        same(&client.read(0, twin.len()).expect("read again"), &twin, "the second reading");
        // The sample that a start compares with the origin would hide a stale cache by dropping it.
        assert_eq!(world.counter("probes_differed"), 0);
        // Units that were being written may have a header without all of their extents: misses, and few.
        let torn = world.counter("failed_hits");
        assert!(torn <= TORN_EXTENTS_MAX, "{torn} extents failed verification");
    }
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &twin);
}

/// Writes the volume no faster than it is inserted: skipped insertions are not the subject of these tests.
fn fill(world: &World, image: &[u8]) {
    for (piece, at) in image.chunks(8 << 20).zip((0_u64..).step_by(8 << 20)) {
        world.connect("disk").write(at, piece).expect("fill");
        world.inserted();
    }
}

#[test]
fn a_killed_daemon_finds_its_cache_warm() {
    let world = World::new(128, 64);
    let image = half_duplicates(4, 64);
    let daemon = world.start();
    fill(&world, &image);
    let before = world.settled();
    assert!(before["manager"]["insert_duplicates"].as_u64() > Some(3000), "{before}");
    daemon.kill9();
    let daemon = world.start();
    let after = world.loaded();
    assert_warm(entries(&before), entries(&after));
    same(&world.connect("disk").read(0, image.len()).expect("read"), &image, "the volume");
    let misses = world.counter("extent_misses");
    assert!(misses * 100 <= entries(&before), "{misses} extents had to be read from the origin");
    daemon.kill9();
}

#[test]
fn a_clean_stop_keeps_everything() {
    let world = World::new(128, 64);
    let image = half_duplicates(6, 64);
    let daemon = world.start();
    fill(&world, &image);
    let before = world.settled();
    assert_eq!(daemon.terminate().code(), Some(0));
    let daemon = world.start();
    let after = world.loaded();
    assert_eq!(entries(&before), entries(&after));
    same(&world.connect("disk").read(0, image.len()).expect("read"), &image, "the volume");
    assert_eq!(world.counter("extent_misses"), 0, "reads that needed the origin");
    assert_eq!(daemon.terminate().code(), Some(0));
}
