//! Scans leave the hot set where it is, whatever the size and the order of their requests.

use crate::world::{Shape, V, World, half, volume};

const EXTENT: u64 = 8 << 10;
/// Extents of the hot set, at the beginning of the volume.
const HOT: u64 = 128;
/// The scanned range, eight times what the cache holds.
const SCAN: core::ops::Range<u64> = (8 << 20)..(40 << 20);

/// A world with a hot set that is cached, and an origin of contents that all differ.
fn world() -> World {
    let mut world = World::new(Shape {
        prefetch_threshold_bytes: 256 << 10,
        prefetch_max_bytes: 128 << 10,
        ..Shape::default()
    });
    let image: Vec<u8> = (0..SCAN.end / EXTENT).flat_map(|n| half(n, 8 << 10)).collect();
    world.origins.insert(V, image);
    world.configure(volume(V, SCAN.end));
    hot(&mut world);
    settle(&mut world);
    assert_eq!(hot(&mut world), 0, "the hot set is cached");
    world
}

fn settle(world: &mut World) {
    (0..3).for_each(|_| world.tick(1000));
}

/// Reads the hot set in an order that is no stream. Returns the extents that came from the origin.
fn hot(world: &mut World) -> usize {
    world.origin_reads.clear();
    for n in 0..HOT {
        world.read(V, (n.reverse_bits() >> 57) * EXTENT, EXTENT);
    }
    world.origin_reads.len()
}

/// Reads of `len` bytes that cover a range.
fn requests(range: core::ops::Range<u64>, len: u64) -> Vec<(u64, u64)> {
    let starts = range.clone().step_by(usize::try_from(len).unwrap());
    starts.map(|at| (at, len.min(range.end - at))).collect()
}

/// Carries a scan out beside a few reads of the hot set, and judges what is left.
fn scan_leaves_the_hot_set(name: &str, reads: &[(u64, u64)]) {
    let mut world = world();
    let stored = world.stat("insert_stored");
    for (at, len) in reads {
        world.read(V, *at, *len);
    }
    settle(&mut world);
    let scanned = (SCAN.end - SCAN.start) / EXTENT;
    let written = world.stat("insert_stored") - stored;
    assert!(written * 20 <= scanned, "{name}: {written} of {scanned} extents were stored");
    let missed = hot(&mut world);
    assert!(u64::try_from(missed).unwrap() * 100 <= HOT, "{name}: {missed} of {HOT} hot extents were lost");
    world.stop();
}

#[test]
fn a_scan_of_any_request_size_leaves_the_hot_set() {
    for len in [64 << 10, 128 << 10, 192 << 10, 256 << 10, 1 << 20, 4 << 20, 32 << 20] {
        scan_leaves_the_hot_set(&format!("ascending {len}"), &requests(SCAN, len));
        let mut down = requests(SCAN, len);
        down.reverse();
        scan_leaves_the_hot_set(&format!("descending {len}"), &down);
    }
}

#[test]
fn two_interleaved_scans_leave_the_hot_set() {
    let middle = SCAN.start.midpoint(SCAN.end);
    for len in [64 << 10, 256 << 10, 1 << 20] {
        let (low, high) = (requests(SCAN.start..middle, len), requests(middle..SCAN.end, len));
        let both: Vec<(u64, u64)> = low.iter().zip(&high).flat_map(|(low, high)| [*low, *high]).collect();
        scan_leaves_the_hot_set(&format!("interleaved {len}"), &both);
        let opposite: Vec<(u64, u64)> =
            low.iter().zip(high.iter().rev()).flat_map(|(low, high)| [*low, *high]).collect();
        scan_leaves_the_hot_set(&format!("opposite {len}"), &opposite);
    }
}

#[test]
fn a_stream_that_came_before_is_inserted_and_so_is_one_of_known_contents() {
    let mut world = world();
    let range = SCAN.start..SCAN.start + (2 << 20);
    let reads = requests(range.clone(), 1 << 20);
    let misses = |world: &mut World| {
        world.origin_reads.clear();
        for (at, len) in &reads {
            world.read(V, *at, *len);
        }
        settle(world);
        world.origin_reads.len()
    };
    assert_ne!(misses(&mut world), 0);
    assert_ne!(misses(&mut world), 0, "the second pass is inserted");
    assert_eq!(misses(&mut world), 0);
    // The same contents elsewhere, as a clone has them, cost no write and are inserted at once.
    let clone = SCAN.start + (16 << 20);
    let (from, to) = (usize::try_from(range.start).unwrap(), usize::try_from(clone).unwrap());
    let image = world.origins.get_mut(&V).unwrap();
    image.copy_within(from..from + (2 << 20), to);
    let stored = world.stat("insert_stored");
    for _ in 0..2 {
        world.origin_reads.clear();
        for (at, len) in requests(clone..clone + (2 << 20), 1 << 20) {
            world.read(V, at, len);
        }
        settle(&mut world);
    }
    assert_eq!((world.origin_reads.len(), world.stat("insert_stored")), (0, stored));
    world.stop();
}
