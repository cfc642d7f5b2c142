//! A start by the index image that an orderly stop leaves, and starts that cannot have it.

#![expect(clippy::expect_used, reason = "a test; what fails here is a failure")]

use std::os::unix::fs::FileExt as _;

use serde_json::Value;
use zc_tests::{Daemon, DataGen, World, read_file, same};

const VOLUME_MIB: u64 = 16;
/// A piece of the image begins with a checksum and this (FORMAT.md, section 10).
const PIECE: &[u8] = b"zcIp";
const BLOCK: usize = 4096;

/// Starts; returns the reads of its indexes, once they are complete.
fn started(world: &World) -> (Daemon, Value) {
    let daemon = world.start();
    let stats = world.stats_until("the index is complete", |stats| !stats["index_loaded_ms"].is_null());
    (daemon, stats["manager"].clone())
}

fn is_by_image(loaded: &Value) -> bool {
    let is = |name: &str| loaded[name].as_u64().expect("a number") > 0;
    assert_ne!(is("load_by_image"), is("load_headers"), "one or the other: {loaded}");
    is("load_by_image")
}

/// All of the volume is a hit, with the right bytes.
fn is_cached(world: &World, expected: &[u8]) {
    let hits = || world.stats()["extents"]["hits"].as_u64().expect("a number");
    let before = hits();
    same(&world.connect("disk").read(0, expected.len()).expect("a read"), expected, "what is cached");
    assert_eq!(hits() - before, VOLUME_MIB << 6, "extents of 16 KiB");
}

#[test]
fn a_stop_leaves_an_index_image_and_what_cannot_be_believed_is_read_from_headers() {
    let mut world = World::new(64, VOLUME_MIB);
    world.cache.push_str("extent_size = \"16 KiB\"\nread_buffer = 0\nprefetch_max = 0\n");
    let bytes = DataGen::new(1, 8192).mixed(usize::try_from(VOLUME_MIB << 7).expect("small"));
    let (daemon, _) = started(&world);
    world.connect("disk").write(0, &bytes).expect("a write");
    world.settled();
    assert_eq!(daemon.terminate().code(), Some(0));

    let (daemon, loaded) = started(&world);
    assert!(is_by_image(&loaded), "after an orderly stop: {loaded}");
    is_cached(&world, &bytes);
    daemon.kill9();

    let (daemon, loaded) = started(&world);
    assert!(!is_by_image(&loaded), "after a kill: {loaded}");
    is_cached(&world, &bytes);
    assert_eq!(daemon.terminate().code(), Some(0));

    let cache = read_file(&world.cache_file());
    let mut blocks = cache.chunks(BLOCK);
    let piece = blocks.position(|block| block[4..8] == *PIECE).expect("the stop left an image");
    let file = std::fs::File::options().write(true).open(world.cache_file()).expect("the cache is there");
    let offset = zc_core::u64_from_usize(piece * BLOCK + 64);
    file.write_all_at(&[0x5a; 64], offset).expect("cannot damage the image");
    let (daemon, loaded) = started(&world);
    assert!(!is_by_image(&loaded) && loaded["load_image_refused"] == 1, "a damaged image: {loaded}");
    is_cached(&world, &bytes);
    assert_eq!(daemon.terminate().code(), Some(0));
}
