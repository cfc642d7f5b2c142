//! Streams longer than a volume's cutoff pass the cache by: nothing more of them is inserted, what is cached is served.

use crate::world::{Shape, V, World, half, volume};
use zc_cache::config::VolumeConfig;

const EXTENT: u64 = 8 << 10;
const REQUEST: u64 = 16 << 10;
const CUTOFF: u64 = 1 << 20;
/// Consecutive bytes that make a stream.
const STREAM: u64 = 64 << 10;

/// A world whose volume cuts streams off at 1 MiB, with an origin of contents that all differ.
fn world(prefetch_max_bytes: u32) -> World {
    let mut world =
        World::new(Shape { prefetch_threshold_bytes: 64 << 10, prefetch_max_bytes, ..Shape::default() });
    let image: Vec<u8> = (0..512).flat_map(|n| half(n, 8 << 10)).collect();
    world.origins.insert(V, image);
    world.configure(VolumeConfig { sequential_cutoff_bytes: CUTOFF, ..volume(V, 4 << 20) });
    world
}

fn scan(world: &mut World) {
    for at in 0..(4 << 20) / REQUEST {
        world.read(V, at * REQUEST, REQUEST);
    }
    (0..3).for_each(|_| world.tick(1000));
}

/// Extents of a range that a read brings from the origin.
fn missing(world: &mut World, from: u64, until: u64) -> usize {
    world.origin_reads.clear();
    // From the end to the start: these reads are no stream.
    for at in (from / EXTENT..until / EXTENT).rev() {
        world.read(V, at * EXTENT, EXTENT);
    }
    world.origin_reads.len()
}

#[test]
fn a_long_stream_of_misses_is_cached_up_to_the_cutoff_and_hits_are_served() {
    let mut world = world(0);
    scan(&mut world);
    let inserted = (CUTOFF - REQUEST) / EXTENT;
    let at_once = (STREAM - REQUEST) / EXTENT;
    assert_eq!(world.stat("insert_stored"), at_once, "what makes it a stream is beyond");
    assert_eq!(
        world.stat("insert_sequential"),
        512 - inserted,
        "the request that makes 1 MiB full is beyond"
    );
    scan(&mut world);
    assert_eq!(world.stat("insert_stored"), inserted, "a second scan is inserted up to the cutoff");
    scan(&mut world);
    assert_eq!(world.stat("insert_stored"), inserted, "a third scan changes nothing");
    assert_eq!(
        world.stat("extent_misses"),
        512 + (512 - at_once) + (512 - inserted),
        "what is cached is served within the stream"
    );
    assert_eq!(missing(&mut world, 0, CUTOFF - REQUEST), 0);
    // Reads that are no part of a stream are cached as ever.
    assert_eq!(missing(&mut world, 2 << 20, 3 << 20), 128);
    (0..3).for_each(|_| world.tick(1000));
    assert_eq!(missing(&mut world, 2 << 20, 3 << 20), 0);
    world.stop();
}

#[test]
fn what_was_read_ahead_of_a_long_stream_is_used_and_not_cached() {
    let mut world = world(128 << 10);
    // Read-ahead is cached when it is seen again: two scans would insert all.
    (0..3).for_each(|_| scan(&mut world));
    assert!(world.stat("prefetched_used") > 600, "read-ahead serves long streams too");
    let stored = world.stat("insert_stored");
    assert!(stored <= (CUTOFF + (256 << 10)) / EXTENT, "{stored} extents stored of a stream that is cut off");
    assert!(world.stat("insert_sequential") > 900);
    world.stop();
}

#[test]
fn a_long_stream_of_writes_leaves_no_old_content_and_is_not_inserted() {
    let mut world = world(0);
    for at in 0..(4 << 20) / REQUEST {
        world.write(V, at * REQUEST, &half(at + 1000, 16 << 10));
    }
    (0..3).for_each(|_| world.tick(1000));
    let inserted = (CUTOFF - REQUEST) / EXTENT;
    assert_eq!((world.stat("insert_offered"), world.stat("insert_sequential")), (inserted, 512 - inserted));
    // The world compares what reads bring: after the second pass nothing of the first may be left.
    for at in 0..(4 << 20) / REQUEST {
        world.write(V, at * REQUEST, &half(at + 5000, 16 << 10));
    }
    (0..3).for_each(|_| world.tick(1000));
    assert_eq!(missing(&mut world, CUTOFF, 4 << 20), 384);
    world.stop();
}

#[test]
fn without_a_cutoff_a_stream_of_any_length_is_inserted() {
    let mut world = world(0);
    world.configure(volume(V, 4 << 20));
    (0..2).for_each(|_| scan(&mut world));
    assert_eq!((world.stat("insert_sequential"), world.stat("insert_stored")), (0, 512));
    world.stop();
}
