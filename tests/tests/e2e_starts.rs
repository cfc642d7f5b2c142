//! Starts on a cache that is damaged, and starts that are refused.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use zc_format::{Access, BLOCK, Superblock, VOLUME_TABLE_BYTES};
use zc_tests::{DataGen, MIB, World, read_file, same};

const CACHE_MIB: u64 = 32;
const VOLUME_MIB: u64 = 16;

fn image(seed: u64) -> Vec<u8> {
    DataGen::new(seed, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"))
}

fn cache(world: &World) -> File {
    File::options().read(true).write(true).open(world.cache_file()).expect("the cache is there")
}

fn overwrite(world: &World, offset: u64, len: u64) {
    let bytes = vec![0x5a; usize::try_from(len).expect("small")];
    cache(world).write_all_at(&bytes, offset).expect("cannot damage the cache");
}

fn damage_tables(world: &World) {
    let bytes = read_file(&world.cache_file());
    let superblock = Superblock::decode_for(&bytes[..BLOCK], 0, Access::Read).expect("it is a cache");
    for offset in superblock.geometry.volume_table {
        overwrite(world, offset, VOLUME_TABLE_BYTES);
    }
}

fn damage_superblocks(world: &World) {
    for offset in Superblock::offsets(CACHE_MIB * MIB) {
        overwrite(world, offset + 100, 8);
    }
}

fn fill_with_garbage(world: &World) {
    overwrite(world, 0, CACHE_MIB * MIB);
}

fn truncate(world: &World) {
    cache(world).set_len(8 * MIB).expect("cannot truncate the cache");
}

fn truncate_to_nothing(world: &World) {
    cache(world).set_len(0).expect("cannot truncate the cache");
}

const DAMAGES: [fn(&World); 5] =
    [damage_tables, damage_superblocks, fill_with_garbage, truncate, truncate_to_nothing];

#[test]
fn a_damaged_cache_without_dirty_data_costs_speed_only() {
    for (number, damage) in DAMAGES.into_iter().enumerate() {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.volumes.push(("back".to_owned(), MIB, "mode = \"write-back\"\n".to_owned()));
        let mut expected = image(1);
        let daemon = world.start();
        let mut client = world.connect("disk");
        client.write(0, &expected).expect("write");
        client.flush().expect("flush");
        let mut client = world.connect("back");
        client.write(0, &[8; 65536]).expect("write");
        client.flush().expect("flush");
        assert!(world.zcctl_output(&["stop", "--flush"]).status.success());
        assert_eq!(daemon.wait().code(), Some(0));
        damage(&world);
        let before = read_file(&world.cache_file());
        let daemon = world.start();
        let status = world.status();
        assert!(status["verdict"]["state"] == "DEGRADED", "damage {number}: {status}");
        assert!(status["cache"]["healthy"] == false, "damage {number}: {status}");
        let mut client = world.connect("disk");
        same(&client.read(0, expected.len()).expect("read"), &expected, "the volume");
        expected[..4096].fill(3);
        client.write(0, &expected[..4096]).expect("write");
        client.flush().expect("flush");
        let found = world.connect("back").read(0, 65536).expect("read");
        same(&found, &[8; 65536], "the write-back volume");
        assert_eq!(daemon.terminate().code(), Some(0));
        world.origin_is("disk", &expected);
        assert!(read_file(&world.cache_file()) == before, "damage {number}: the cache was changed");
    }
}

#[test]
fn a_damaged_cache_that_may_have_dirty_data_is_refused() {
    for damage in DAMAGES {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.cache.push_str("destage_idle = \"1 h\"\n");
        world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
        let daemon = world.start();
        let mut client = world.connect("disk");
        client.write(0, &[5; 65536]).expect("write");
        client.flush().expect("flush");
        daemon.kill9();
        damage(&world);
        let before = read_file(&world.cache_file());
        let said = world.refused(&[]);
        assert!(said.contains("lacks data") && said.contains("--drop-dirty disk"), "{said}");
        assert!(read_file(&world.cache_file()) == before, "the cache was changed");
    }
}

#[test]
fn something_that_never_was_the_cache_is_not_served_without() {
    let world = World::new(CACHE_MIB, VOLUME_MIB);
    std::fs::write(world.cache_file(), vec![0x5a; 32 << 20]).expect("cannot write");
    let said = world.refused(&[]);
    assert!(said.contains("something else") && said.contains("zcctl format"), "{said}");
    assert!(!world.origin("disk").exists(), "a refused start makes no origin");
}

#[test]
fn a_refused_first_start_leaves_nothing_behind() {
    // The socket's folder does not exist; then, more connections than can be served.
    for wrong in ["unix_mode = \"0600\"\nconnections_max = 1000000\n", "listen = [\"203.0.113.1:10809\"]\n"] {
        let mut world = World::new(CACHE_MIB, VOLUME_MIB);
        world.nbd = wrong.to_owned();
        let config = world.configure();
        let text = std::fs::read_to_string(&config).expect("it is there");
        let text = if wrong.starts_with("listen") { text.replacen("listen = []\n", "", 1) } else { text };
        std::fs::write(&config, text).expect("cannot write");
        let mut daemon = zc_tests::bounded("env");
        let output = daemon.arg(zc_tests::program("zcached")).arg("--config").arg(&config).output();
        let output = output.expect("cannot start zcached");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        assert!(!world.cache_file().exists(), "a cache was left behind: {said}");
        assert!(!world.origin("disk").exists(), "an origin was left behind: {said}");
    }
}
