//! `zcctl format` destroys dirty data only with explicit consent.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use zc_format::{Access, BLOCK, Superblock, VOLUME_TABLE_BYTES};
use zc_tests::{DataGen, MIB, World};

const CACHE_MIB: u64 = 32;
static DIRTY: [u8; 65536] = [0xd1; 65536];

/// A write-back world whose dirty data stays where it is.
fn world() -> World {
    let mut world = World::new(CACHE_MIB, 16);
    world.cache.push_str("destage_idle = \"1 h\"\n");
    world.volumes[0].2 = "mode = \"write-back\"\nmax_dirty_age = \"24 h\"\n".to_owned();
    world
}

/// Writes, flushes, and kills the daemon. Returns when the kernel has closed the cache file too: it does so for a ring of
/// a killed process after its end.
fn leave_dirty(world: &World) {
    let daemon = world.start();
    let mut client = world.connect("disk");
    client.write(0, &DIRTY).expect("it works");
    client.flush().expect("it works");
    daemon.kill9();
    let cache = File::open(world.cache_file()).expect("it works");
    cache.lock().expect("it works");
}

/// Runs `zcctl format` on the cache; returns `true` on success, and the output.
fn format(world: &World, arguments: &[&str]) -> (bool, String) {
    let mut zcctl = std::process::Command::new(zc_tests::program("zcctl"));
    zcctl.arg("format").arg(world.cache_file()).arg("--state-dir").arg(world.path("state")).args(arguments);
    let output = zcctl.output().expect("it works");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn is_refused(world: &World, parts: &[&str]) {
    let (done, said) = format(world, &["--force"]);
    assert!(!done, "{said}");
    for part in parts.iter().chain(&["dirty data", "--discard-dirty", "zcctl stop --flush"]) {
        assert!(said.contains(part), "{part} in {said}");
    }
}

fn overwrite(world: &World, offset: u64, len: usize) {
    let file = File::options().write(true).open(world.cache_file()).expect("it works");
    file.write_all_at(&vec![0x5a; len], offset).expect("it works");
}

fn damage_tables(world: &World) {
    let bytes = std::fs::read(world.cache_file()).expect("it works");
    let superblock = Superblock::decode_for(&bytes[..BLOCK], 0, Access::Read).expect("it works");
    for offset in superblock.geometry.volume_table {
        overwrite(world, offset, usize::try_from(VOLUME_TABLE_BYTES).expect("it works"));
    }
}

fn damage_superblocks(world: &World) {
    for offset in Superblock::offsets(CACHE_MIB * MIB) {
        overwrite(world, offset + 100, 8);
    }
}

#[test]
fn dirty_data_is_named_and_kept_until_it_is_discarded() {
    let world = world();
    leave_dirty(&world);
    let origin = world.origin("disk").display().to_string();
    is_refused(&world, &["64.0 KiB", "volume \"disk\"", &origin, " ago"]);
    // The refusal changed nothing.
    let daemon = world.start();
    assert!(world.connect("disk").read(0, DIRTY.len()).expect("it works") == DIRTY);
    assert_eq!(daemon.terminate().code(), Some(0));
    // Without --force the question does not arise.
    let (done, said) = format(&world, &[]);
    assert!(!done && said.contains("a cache already"), "{said}");
    let (done, said) = format(&world, &["--discard-dirty"]);
    assert!(!done && said.contains("--force"), "{said}");
    let (done, said) = format(&world, &["--force", "--discard-dirty"]);
    assert!(done && said.contains("--drop-dirty disk"), "{said}");
    let daemon = world.start_with(&["--drop-dirty", "disk"]);
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn what_cannot_be_read_counts_as_dirty() {
    for damage in [damage_tables, damage_superblocks] {
        let world = world();
        leave_dirty(&world);
        damage(&world);
        is_refused(&world, &["unknown amount", "volume \"disk\""]);
        // An empty state directory does not prove the absence of dirty data either.
        std::fs::remove_dir_all(world.path("state")).expect("it works");
        is_refused(&world, &["unknown amount", "has no record of the cache"]);
        assert!(format(&world, &["--force", "--discard-dirty"]).0);
    }
}

#[test]
fn the_state_directory_proves_that_a_damaged_cache_has_no_dirty_data() {
    for damage in [damage_tables, damage_superblocks] {
        let world = world();
        leave_dirty(&world);
        let daemon = world.start();
        assert!(world.zcctl_output(&["stop", "--flush"]).status.success());
        assert_eq!(daemon.wait().code(), Some(0));
        world.origin_is("disk", &[&DIRTY[..], &vec![0; (16 << 20) - DIRTY.len()]].concat());
        damage(&world);
        let (done, said) = format(&world, &["--force"]);
        assert!(done, "{said}");
    }
}

/// Returns the number of blocks of `content` that are still in a file.
fn found(file: &std::path::Path, content: &[u8]) -> usize {
    let bytes = std::fs::read(file).expect("it works");
    let places: BTreeSet<&[u8]> = bytes.windows(16).step_by(16).collect();
    content.chunks(BLOCK).filter(|block| places.contains(&block[1024..1040])).count()
}

#[test]
fn an_erased_cache_holds_nothing_of_what_was_there() {
    let mut world = world();
    world.cache.push_str("compression = \"none\"\n");
    let journal = world.path("journal.img");
    world.cache.push_str(&format!("journal_path = \"{}\"\njournal_size = \"4 MiB\"\n", journal.display()));
    let daemon = world.start();
    let secret = DataGen::new(52, BLOCK).mixed(256);
    let secret: Vec<u8> = secret.iter().map(|byte| byte | 1).collect();
    let mut client = world.connect("disk");
    client.write(0, &secret).expect("it works");
    client.flush().expect("it works");
    drop(client);
    assert!(world.zcctl_output(&["flush", "disk"]).status.success());
    assert_eq!(daemon.terminate().code(), Some(0));
    let cache = world.cache_file();
    assert!(found(&cache, &secret) > 128, "it was cached as it is");
    let again = format!("--journal={}", journal.display());
    let (done, said) = format(&world, &["--force", &again]);
    assert!(done, "{said}");
    assert!(found(&cache, &secret) > 128, "a format leaves it");
    let before = std::fs::metadata(&cache).expect("it works").blocks();
    let (done, said) = format(&world, &["--force", "--erase", &again]);
    assert!(done, "{said}");
    assert_eq!(found(&cache, &secret), 0);
    assert!(
        std::fs::metadata(&cache).expect("it works").blocks() < before,
        "the file system has its space back"
    );
    // It is an empty cache.
    let daemon = world.start_with(&["--cold"]);
    assert!(world.connect("disk").read(0, secret.len()).expect("it works") == secret);
    assert_eq!(daemon.terminate().code(), Some(0));
}
