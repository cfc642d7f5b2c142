//! Pinned ranges are brought into the cache, and what is cached of them stays.
//!
//! Reads that reach the origin show which extents are not cached.

use core::ops::Range;

use zc_cache::VolumePins;
use zc_cache::config::{Admission, Replacement, VolumeConfig, WriteBackConfig};
use zc_core::{ExtentKey, ExtentNo, Mode, VolumeId};

use crate::world::{Shape, V, W, World, noise, volume};

pub(crate) const E: u64 = 8 << 10;
pub(crate) const MIB: u64 = 1 << 20;
const UNIT_BYTES: u64 = 256 << 10;
/// Extents that do not shrink in a unit.
pub(crate) const UNIT: u64 = 31;
const SLOTS: u64 = 24;
pub(crate) const VOLUME_BYTES: u64 = 16 * MIB;

pub(crate) fn shape() -> Shape {
    Shape { slots: SLOTS, volume_bytes: VOLUME_BYTES, ..Shape::default() }
}

pub(crate) fn world(shape: Shape) -> World {
    let mut world = World::new(shape);
    for extent in 0..VOLUME_BYTES / E {
        let at = usize::try_from(extent * E).unwrap();
        world.origins.get_mut(&V).unwrap()[at..at + 8192].copy_from_slice(&noise(extent, 8192));
    }
    world
}

pub(crate) fn pinned(range: Range<u64>) -> VolumeConfig {
    VolumeConfig { pins: vec![range], ..volume(V, VOLUME_BYTES) }
}

/// Lets the keeper work until nothing is left to do.
pub(crate) fn settle(world: &mut World) {
    for _ in 0..2000 {
        world.tick(20);
        if !world.manager.is_keeping() {
            return;
        }
    }
    panic!("the keeper does not end: {:?}", world.manager.pins());
}

pub(crate) fn pins(world: &World) -> VolumePins {
    world.manager.pins().into_iter().find(|pins| pins.volume == V).expect("something is pinned")
}

/// Another volume writes whole units of content that is new.
pub(crate) fn flood(world: &mut World, units: u64) {
    let first = world.stat("writes");
    for extent in 0..units * UNIT {
        world.write(W, extent * E % VOLUME_BYTES, &noise((1 << 40) + first + extent, 8192));
        if extent % 8 == 0 {
            world.tick(5);
        }
    }
}

/// Extents of a range of the volume that are read without the origin.
pub(crate) fn hits(world: &mut World, id: VolumeId, bytes: Range<u64>) -> u64 {
    let is_hit = |extent: u64| {
        world.origin_reads.clear();
        world.read(id, extent * E, E);
        u64::from(world.origin_reads.is_empty())
    };
    (bytes.start / E..bytes.end / E).map(is_hit).sum()
}

pub(crate) fn are_safe(world: &World, bytes: Range<u64>) -> bool {
    (bytes.start / E..bytes.end / E)
        .all(|extent| world.manager.is_safe(ExtentKey { volume: V, extent: ExtentNo(extent) }))
}

#[test]
fn a_pinned_range_is_brought_into_the_cache_and_outlives_a_flood() {
    for replacement in [Replacement::Lru, Replacement::CostBenefit, Replacement::S3Fifo] {
        let mut world = world(Shape { replacement, ..shape() });
        // Whatever the volume's admission says, and rounded out to whole extents.
        let range = MIB - 512..2 * MIB - 4096;
        world.configure(VolumeConfig { admission: Admission::Never, ..pinned(range) });
        settle(&mut world);
        let extents = 129;
        assert_eq!(world.stat("pinned_extents_read"), extents);
        let all = extents * E;
        assert_eq!(
            pins(&world),
            VolumePins { volume: V, asked_bytes: all, kept_bytes: all, safe_bytes: all }
        );
        flood(&mut world, 60);
        assert!(world.stat("evictions") > 40, "{replacement:?}");
        assert_eq!(hits(&mut world, V, MIB - E..2 * MIB), extents, "{replacement:?}");
        assert_eq!(world.stat("pinned_extents_read"), extents, "nothing went and was read again");
        world.stop();
    }
}

#[test]
fn what_was_cached_before_is_placed_anew_and_what_is_unpinned_ages() {
    let mut world = world(shape());
    // Among extents of the other volume, so that no unit is pinned in full.
    for extent in 0..2 * UNIT {
        world.read(V, extent * E, E);
        world.write(W, extent * E, &noise((1 << 30) + extent, 8192));
    }
    (0..3).for_each(|_| world.tick(1000));
    let range = 0..2 * UNIT * E;
    world.configure(pinned(range.clone()));
    world.origin_reads.clear();
    settle(&mut world);
    assert_eq!(world.origin_reads, vec![], "it was read from the cache device");
    assert_eq!((world.stat("pinned_extents_moved"), pins(&world).safe_bytes), (2 * UNIT, range.end));
    flood(&mut world, 60);
    assert_eq!(hits(&mut world, V, range.clone()), 2 * UNIT);
    world.configure(volume(V, VOLUME_BYTES));
    settle(&mut world);
    assert_eq!((world.manager.pins(), world.stat("pinned_units")), (vec![], 0));
    assert_eq!(hits(&mut world, V, range.clone()), 2 * UNIT, "it is not dropped");
    flood(&mut world, 60);
    assert_eq!(hits(&mut world, V, range), 0, "and goes as anything else does");
    world.stop();
}

#[test]
fn content_that_is_overwritten_again_and_again_makes_room_for_itself() {
    for overwrites in [1, 3] {
        let mut world = world(shape());
        // Eight units of the twelve that may be pinned.
        let extents = 8 * UNIT;
        world.configure(pinned(0..extents * E));
        settle(&mut world);
        for round in 0..40 * UNIT {
            // Scattered, so that no unit becomes empty by itself.
            for part in 0..overwrites {
                let number = (round * 8 + part).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let extent = (number ^ (number >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) % extents;
                world.write(V, extent * E, &noise((1 << 30) + round * 8 + part, 8192));
            }
            world.tick(20);
            assert!(world.stat("pinned_units") <= 18, "three quarters of the slots");
        }
        settle(&mut world);
        assert!(world.stat("pinned_extents_moved") > extents && world.stat("pinned_units_emptied") > 8);
        assert!(are_safe(&world, 0..extents * E));
        flood(&mut world, 40);
        assert_eq!(hits(&mut world, V, 0..extents * E), extents);
        world.stop();
    }
}

#[test]
fn a_restart_knows_what_is_pinned_again() {
    for clean in [true, false] {
        let mut world = world(shape());
        let extents = 4 * UNIT;
        world.configure(pinned(0..extents * E));
        settle(&mut world);
        (0..3).for_each(|_| world.tick(1000));
        if clean {
            world.stop();
        }
        let mut world = if clean { world.restart(true) } else { world.restart_killed() };
        world.tick(20);
        assert!(are_safe(&world, 0..extents * E), "at once, with nothing read");
        flood(&mut world, 60);
        settle(&mut world);
        assert_eq!((world.stat("pinned_extents_read"), world.stat("pinned_extents_moved")), (0, 0));
        assert_eq!(hits(&mut world, V, 0..extents * E), extents);
        world.stop();
    }
}

/// A start finds units of which everything is pinned, and newer elsewhere.
#[test]
fn what_is_newer_elsewhere_leaves_its_room_to_what_is_pinned_after_a_kill() {
    let mut world = world(shape());
    let (before, extents) = (5 * UNIT - 4, 5 * UNIT);
    for extent in 0..before {
        world.read(V, extent * E, E);
    }
    (0..3).for_each(|_| world.tick(1000));
    // The first copies stay where they are.
    world.configure(pinned(0..before * E));
    settle(&mut world);
    assert_eq!(world.stat("pinned_extents_moved"), before);
    (0..3).for_each(|_| world.tick(1000));
    let mut world = world.restart_killed();
    world.configure(pinned(0..extents * E));
    settle(&mut world);
    assert!(are_safe(&world, 0..extents * E), "{:?}", world.manager.pins());
    assert_eq!(world.stat("pinned_extents_read"), extents - before, "each was read once");
    world.stop();
}

#[test]
fn what_was_dirty_is_placed_among_what_is_pinned_when_it_is_clean() {
    let mut world = world(shape());
    let extents = 2 * UNIT;
    let write_back = WriteBackConfig { max_dirty_age_ms: 1000, ..WriteBackConfig::default() };
    world.configure(VolumeConfig { mode: Mode::WriteBack, write_back, ..pinned(0..extents * E) });
    settle(&mut world);
    for extent in 0..extents {
        world.write(V, extent * E, &noise((1 << 30) + extent, 8192));
    }
    (0..40).for_each(|_| world.tick(100));
    settle(&mut world);
    assert!(world.stat("promoted") >= extents && are_safe(&world, 0..extents * E));
    flood(&mut world, 60);
    assert_eq!(hits(&mut world, V, 0..extents * E), extents);
    world.stop();
}

#[test]
fn content_that_an_ordinary_unit_has_is_stored_again_for_a_pinned_range() {
    let mut world = world(shape());
    world.configure(VolumeConfig { recipes: false, ..volume(W, VOLUME_BYTES) });
    let content: Vec<u8> = (0..UNIT).flat_map(|extent| noise((1 << 30) + extent, 8192)).collect();
    world.write(W, 0, &content);
    (0..3).for_each(|_| world.tick(1000));
    world.configure(VolumeConfig { recipes: false, ..pinned(0..UNIT * E) });
    settle(&mut world);
    world.write(V, 0, &content);
    settle(&mut world);
    assert!(are_safe(&world, 0..UNIT * E));
    // The other way round it is shared.
    let stored = world.stat("insert_stored");
    world.write(W, UNIT * E, &content);
    world.tick(100);
    assert_eq!(world.stat("insert_stored"), stored);
    flood(&mut world, 60);
    assert_eq!(hits(&mut world, V, 0..UNIT * E), UNIT);
    world.stop();
}

#[test]
fn pins_beyond_the_bound_are_not_kept_and_the_rest_of_the_cache_gets_on() {
    let mut world = world(shape());
    world.configure(pinned(0..VOLUME_BYTES));
    settle(&mut world);
    let found = pins(&world);
    let half = u64::from(world.slots()) * UNIT_BYTES / 2;
    assert_eq!((found.asked_bytes, found.safe_bytes), (VOLUME_BYTES, found.kept_bytes));
    assert!(found.kept_bytes <= half && found.kept_bytes >= half / 5 * 4, "{found:?}");
    flood(&mut world, 60);
    assert_eq!(hits(&mut world, V, 0..found.kept_bytes), found.kept_bytes / E);
    assert_eq!(world.stat("insert_dropped") + world.stat("insert_skipped"), 0, "W was cached all the time");
    world.stop();
    let mut small = World::new(Shape { slots: 12, ..shape() });
    small.configure(pinned(0..MIB));
    (0..10).for_each(|_| small.tick(1000));
    let volume = V;
    assert_eq!(pins(&small), VolumePins { volume, asked_bytes: MIB, kept_bytes: 0, safe_bytes: 0 });
    assert_eq!(small.stat("pinned_extents_read"), 0);
    small.stop();
}

#[test]
fn a_full_file_index_drops_nothing_that_is_pinned() {
    // Zeros take no room but in the index, which has 4096 entries.
    let mut world = World::new(Shape { volume_bytes: 64 * MIB, ..shape() });
    world.configure(VolumeConfig { pins: Vec::from([0..MIB, MIB..2 * MIB]), ..volume(V, 64 * MIB) });
    settle(&mut world);
    for at in 0..63 {
        world.submit(
            W,
            at * MIB,
            MIB,
            zc_cache::seam::RequestKind::WriteZeroes { no_hole: false, fua: false },
        );
        world.read(W, at * MIB, MIB);
        world.tick(20);
    }
    assert!(world.stat("file_index_evictions") > 1000, "{}", world.stat("file_index_evictions"));
    assert!(are_safe(&world, 0..2 * MIB));
    assert_eq!(hits(&mut world, V, 0..2 * MIB), 2 * MIB / E);
    world.stop();
}

#[test]
fn what_was_read_ahead_of_a_stream_is_kept_without_another_read() {
    let mut world =
        world(Shape { prefetch_threshold_bytes: 64 << 10, prefetch_max_bytes: 128 << 10, ..shape() });
    (0..16).for_each(|extent| drop(world.read(V, extent * E, E)));
    assert!(world.stat("prefetched_extents") >= 8);
    world.origin_reads.clear();
    world.configure(pinned(8 * E..24 * E));
    settle(&mut world);
    assert!(are_safe(&world, 8 * E..24 * E));
    // Half of it was used once, and so not cached; the other half waits for its reader.
    assert_eq!(world.origin_reads, [(8 * E, 64 << 10)]);
    world.stop();
}

#[test]
fn what_a_write_overtakes_is_not_placed_and_what_rots_is_read_again() {
    let mut world = world(shape());
    for extent in 0..UNIT {
        world.read(V, extent * E, E);
    }
    (0..3).for_each(|_| world.tick(1000));
    // What is to be placed anew is damaged.
    for slot in 0..world.slots() {
        world.slot_bytes(zc_core::WeuSlot(slot))[..100_000].fill(0x11);
    }
    world.configure(pinned(0..UNIT * E));
    settle(&mut world);
    assert!(world.stat("failed_hits") > 5 && world.stat("pinned_extents_read") > 5);
    assert!(are_safe(&world, 0..UNIT * E));
    // Reads of the origin for what is pinned are overtaken by writes.
    world.configure(pinned(0..2 * UNIT * E));
    world.origin_reads_hang = true;
    (0..40).for_each(|_| world.tick(20));
    (UNIT..2 * UNIT).for_each(|extent| world.write(V, extent * E, &noise((1 << 30) + extent, 8192)));
    world.end_origin_reads();
    world.origin_reads_hang = false;
    assert_eq!(world.stat("insert_stale"), UNIT);
    settle(&mut world);
    assert_eq!(hits(&mut world, V, 0..2 * UNIT * E), 2 * UNIT);
    world.stop();
}
