//! Dirty data that is corrupted on the cache device under a running daemon: later writes reach the origin.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::os::unix::fs::FileExt as _;

use serde_json::{Value, json};
use zc_tests::{BlockKind, DataGen, World, read_file, same};

const VOLUME_MIB: u64 = 16;
const EXTENT: usize = 8192;

/// A world with one write-back volume whose dirty data stays on the cache until a command.
fn world() -> World {
    let mut world = World::new(256, VOLUME_MIB);
    world.cache.push_str("weu_size = \"256 KiB\"\n");
    world.cache.push_str("dirty_high = \"90 %\"\ndirty_low = \"90 %\"\ndestage_idle = \"1 h\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
    world
}

/// Bytes that do not compress: as written, so stored.
fn raw(seed: u64, extents: u64) -> Vec<u8> {
    let data = DataGen::new(seed, EXTENT);
    (0..extents).flat_map(|number| data.block(BlockKind::Incompressible, number)).collect()
}

fn write(world: &World, offset: u64, bytes: &[u8]) {
    let mut client = world.connect("disk");
    client.write(offset, bytes).expect("write");
    client.flush().expect("flush");
}

fn is(world: &World, expected: &[u8], what: &str) {
    let found = world.connect("disk").read(0, expected.len()).expect("read the whole volume");
    same(&found, expected, what);
}

fn dirty(world: &World) -> Value {
    world.stats()["dirty"]["disk"].clone()
}

/// Flips a bit in the cache file's copies of these bytes.
fn rot(world: &World, bytes: &[u8]) {
    let cache = read_file(&world.cache_file());
    let at = cache.windows(64).position(|window| window == &bytes[..64]).expect("it is on the cache");
    let file = std::fs::File::options().write(true).open(world.cache_file()).expect("the cache file");
    file.write_all_at(&[cache[at] ^ 1], u64::try_from(at).expect("a place")).expect("damage");
    file.sync_all().expect("damage");
}

#[test]
fn a_rotten_extent_that_was_written_anew_does_not_keep_the_volume_from_its_origin() {
    let world = world();
    let daemon = world.start();
    let mut expected = raw(1, VOLUME_MIB << 7);
    write(&world, 0, &expected);
    // Data in memory is not corrupted: another start reads the device.
    assert_eq!(world.zcctl_output(&["stop", "--keep-dirty"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(0));
    let place = 100 * EXTENT;
    rot(&world, &expected[place..place + EXTENT]);
    let daemon = world.start();
    world.connect("disk").read(place as u64, EXTENT).expect_err("it is nowhere");
    let _began = world.control(&json!({ "cmd": "flush", "volume": "disk" }));
    let stuck =
        world.stats_until("destaging finds it", |stats| stats["dirty"]["disk"]["stuck_bytes"] != 0)["dirty"]
            ["disk"]
            .clone();
    assert!(stuck["stuck_bytes"] == EXTENT && stuck["stuck_offset_bytes"] == place, "{stuck}");
    let status = String::from_utf8_lossy(&world.zcctl_output(&["status"]).stdout).into_owned();
    for part in ["DEGRADED", "8192 bytes at offset 819200", "rewrite these bytes"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    let anew = raw(2, 1);
    write(&world, place as u64, &anew);
    expected[place..place + EXTENT].copy_from_slice(&anew);
    is(&world, &expected, "the volume");
    // A crash between does not matter.
    daemon.kill9();
    let daemon = world.start();
    is(&world, &expected, "the volume after a kill");
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(dirty(&world)["bytes"], 0);
    // By the session before the kill or by this one.
    let log = String::from_utf8_lossy(&read_file(daemon.log_path())).into_owned();
    assert!(log.contains("of extent 100 were corrupt on the cache and have been rewritten since"), "{log}");
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &expected);
}

#[test]
fn a_scrub_finds_what_rots_and_an_operator_gives_it_up_alone() {
    let mut world = world();
    world.cache.push_str("dirty_scrub = \"200 ms\"\n");
    let daemon = world.start();
    let mut expected = raw(1, VOLUME_MIB << 7);
    write(&world, 0, &expected);
    assert_eq!(world.zcctl_output(&["stop", "--keep-dirty"]).status.code(), Some(0));
    assert_eq!(daemon.wait().code(), Some(0));
    let place = 200 * EXTENT;
    rot(&world, &expected[place..place + EXTENT]);
    let daemon = world.start();
    let found =
        world.stats_until("the scrub finds it", |stats| stats["dirty"]["disk"]["unreadable_bytes"] != 0);
    assert_eq!(found["dirty"]["disk"]["unreadable_bytes"], EXTENT);
    assert_eq!(found["manager"]["destage_writes"], 0, "destaging has not met it");
    let refusal = world.zcctl_output(&["drop-dirty", "disk", "--unreadable"]);
    let said = String::from_utf8_lossy(&refusal.stderr).into_owned();
    assert!(
        refusal.status.code() == Some(2) && said.contains("8.0 KiB") && said.contains("1638400"),
        "{said}"
    );
    let given_up = world.zcctl_output(&["drop-dirty", "disk", "--unreadable", "--yes"]);
    assert_eq!(given_up.status.code(), Some(0), "{given_up:?}");
    expected[place..place + EXTENT].fill(0);
    daemon.kill9();
    let daemon = world.start();
    is(&world, &expected, "the volume after a kill");
    world.connect("disk").flush().expect_err("a client is told of the loss once");
    assert_eq!(world.zcctl_output(&["flush", "disk"]).status.code(), Some(0));
    assert_eq!(dirty(&world)["bytes"], 0);
    assert_eq!(daemon.terminate().code(), Some(0));
    world.origin_is("disk", &expected);
}
