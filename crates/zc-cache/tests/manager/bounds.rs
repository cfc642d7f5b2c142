//! What is bounded, what is remembered, and what a full or stuck part of the cache means for clients: nothing.

use crate::world::{Shape, V, W, World, half, noise};
use zc_cache::seam::RequestKind;
use zc_core::FingerprintKind;

const EXTENT: u64 = 8 << 10;

/// A cache of eight slots that hold fifteen extents of `half` each.
fn small() -> World {
    World::new(Shape { slots: 8, weu_bytes: 64 << 10, ..Shape::default() })
}

#[test]
fn a_burst_of_partial_overwrites_larger_than_the_staging_area_keeps_every_hit() {
    let mut world = World::new(Shape { slots: 40, ..Shape::default() });
    for at in 0..32 {
        world.write(V, at * (128 << 10), &half(at, 128 << 10));
    }
    world.tick(1000);
    // 512 extents are written in part and 128 can be staged; no time passes.
    for extent in 0..512 {
        world.write(V, extent * EXTENT + 4096, &half(extent + 5000, 4096));
    }
    (0..50).for_each(|_| world.tick(20));
    assert_eq!(world.stat("staged_dropped"), 0);
    world.origin_reads.clear();
    for extent in 0..512 {
        world.read(V, extent * EXTENT, EXTENT);
    }
    assert!(world.origin_reads.is_empty(), "{} extents were lost", world.origin_reads.len());
    world.stop();
}

#[test]
fn the_cut_extent_at_the_end_of_a_volume_is_served_and_not_cached() {
    let mut world = World::new(Shape { volume_bytes: (1 << 20) + 4096, ..Shape::default() });
    world.origins.get_mut(&V).unwrap()[1 << 20..].copy_from_slice(&half(1, 4096));
    for _ in 0..2 {
        world.origin_reads.clear();
        world.read(V, 1 << 20, 4096);
        assert_eq!(world.origin_reads, vec![(1 << 20, 4096)]);
    }
    world.write(V, (1 << 20) + 512, &half(2, 1024));
    world.tick(1000);
    world.read(V, (1 << 20) - EXTENT, EXTENT + 4096);
    world.submit(
        V,
        (1 << 20) - EXTENT,
        EXTENT + 4096,
        RequestKind::WriteZeroes { no_hole: false, fua: false },
    );
    world.origin_reads.clear();
    world.read(V, (1 << 20) - EXTENT, EXTENT + 4096);
    assert_eq!(world.origin_reads, vec![(1 << 20, 4096)], "the whole extent before it is cached");
    world.stop();
}

#[test]
fn a_volume_that_grows_is_cached_up_to_its_new_end_also_after_a_restart() {
    let old_end = (1 << 20) + 4096;
    let mut world = World::new(Shape { volume_bytes: old_end, ..Shape::default() });
    world.write(V, 1 << 20, &half(1, 4096));
    world.grow(V, &half(2, (1 << 20) + 512));
    // What used to be cut is whole, and of two parts: one that was written, one that came with the origin.
    world.read(V, 1 << 20, 64 << 10);
    world.write(V, (2 << 20) - EXTENT, &half(3, 8192));
    for _ in 0..2 {
        world.tick(1000);
        world.origin_reads.clear();
        world.read(V, 1 << 20, 64 << 10);
        world.read(V, (2 << 20) - EXTENT, EXTENT);
        assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
        world.read(V, 2 << 20, 4096 + 512);
        assert_eq!(world.origin_reads, vec![(2 << 20, 4608)], "cut by the new end");
        world.stop();
        world = world.restart(true);
    }
}

#[test]
fn what_was_under_way_when_a_volume_grew_says_nothing_about_what_came_with_it() {
    let mut world = World::new(Shape { volume_bytes: (1 << 20) + 4096, ..Shape::default() });
    world.origin_reads_hang = true;
    let first = world.submit_read(V, (1 << 20) - EXTENT, EXTENT + 4096);
    world.grow(V, &half(2, 1 << 20));
    // Has to go to the origin: the read under way brings nothing from behind the old end.
    let second = world.submit_read(V, 1 << 20, EXTENT);
    world.end_origin_reads();
    world.is_read(first, V, (1 << 20) - EXTENT);
    world.is_read(second, V, 1 << 20);
    world.tick(1000);
    world.read(V, 1 << 20, EXTENT);
    world.stop();
}

#[test]
fn a_volume_never_becomes_smaller() {
    let mut world = World::new(Shape::default());
    world.write(V, (4 << 20) - EXTENT, &half(1, 8192));
    world.configure(crate::world::volume(V, 1 << 20));
    world.tick(1000);
    world.origin_reads.clear();
    world.read(V, (4 << 20) - EXTENT, EXTENT);
    assert!(world.origin_reads.is_empty());
    world.stop();
}

#[test]
fn more_insertions_than_may_be_under_way_are_skipped_and_counted() {
    let mut world = World::new(Shape { insert_bytes_max: 32 << 10, ..Shape::default() });
    world.write(V, 0, &half(1, 128 << 10));
    assert_eq!(world.stat("insert_offered"), 16);
    assert_eq!(world.stat("insert_skipped"), 12, "four extents may be under way");
    world.tick(1000);
    world.write(V, 256 << 10, &half(2, 32 << 10));
    assert_eq!(world.stat("insert_skipped"), 12, "room came free");
    world.read(V, 0, 128 << 10);
    world.stop();
}

#[test]
fn equal_prints_of_a_weak_hash_with_different_bytes_are_not_shared() {
    let mut world = World::new(Shape { kind: FingerprintKind::Sha1, ..Shape::default() });
    world.write(V, 0, &half(1, 64 << 10));
    world.tick(1000);
    world.all_differs = true;
    world.write(W, 0, &half(1, 64 << 10));
    world.tick(1000);
    assert_eq!(world.stat("insert_duplicates"), 0);
    assert_eq!(world.stat("compares_differed"), 8);
    assert_eq!(world.stat("insert_stored"), 16);
    world.read(W, 0, 64 << 10);
    world.stop();
}

#[test]
fn slots_are_reused_more_often_than_there_are_short_generations() {
    let mut world = small();
    // 4 bits: 16 generations. Every slot is reused some 25 times.
    for round in 0..60 {
        for chunk in 0..8 {
            world.write(V, chunk * (128 << 10), &half(1000 + round * 8 + chunk, 128 << 10));
            world.tick(10);
        }
    }
    world.tick(1000);
    assert!(world.stat("sweep_passes") > 10);
    assert_eq!((world.stat("insert_dropped"), world.stat("insert_skipped")), (0, 0));
    assert!(world.stat("weu_writes") > 400, "{} units", world.stat("weu_writes"));
    world.origin_reads.clear();
    world.read(V, 7 * (128 << 10), 128 << 10);
    assert!(world.origin_reads.is_empty(), "what was written last is cached");
    world.stop();
}

#[test]
fn what_is_read_again_and_again_outlives_what_is_written_once() {
    let mut world = small();
    world.write(V, 0, &half(1, 64 << 10));
    world.tick(1000);
    world.origin_reads.clear();
    for cold in 0..400 {
        world.write(V, (1 << 20) + cold * EXTENT % (2 << 20), &half(100 + cold, 8192));
        if cold % 8 == 0 {
            world.read(V, 0, 64 << 10);
        }
        world.tick(5);
    }
    assert!(world.stat("evictions") > 10);
    assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
    world.stop();
}

#[test]
fn after_a_while_without_writes_a_power_cut_finds_everything_warm() {
    let mut world = World::new(Shape::default());
    for chunk in 0..8 {
        world.write(V, chunk * (128 << 10), &half(chunk, 128 << 10));
        world.write(W, chunk * (128 << 10), &half(chunk % 4, 128 << 10));
    }
    (0..60).for_each(|_| world.tick(100));
    assert_eq!(world.stat("regions_active"), 0);
    let mut world = world.restart(false);
    assert_eq!(world.stat("load_distrusted"), 0);
    // A sample was compared with the origins.
    world.origin_reads.clear();
    for volume in [V, W] {
        world.read(volume, 0, 1 << 20);
    }
    assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
    world.stop();
}

#[test]
fn a_device_read_for_hits_is_bounded() {
    let mut world = World::new(Shape { slots: 4, weu_bytes: 2 << 20, ..Shape::default() });
    world.write(V, 0, &noise(1, 1 << 20));
    world.tick(1000);
    world.device_reads.clear();
    world.read(V, 0, 1 << 20);
    let longest = world.device_reads.iter().map(|(_, len_bytes)| *len_bytes).max();
    assert!(longest <= Some(512 << 10), "{:?}", world.device_reads);
    assert!((3..=4).contains(&world.device_reads.len()), "{:?}", world.device_reads);
    world.stop();
}

#[test]
fn a_journal_that_hangs_stops_insertion_and_nothing_else() {
    let mut world = World::new(Shape::default());
    world.journal_hangs = true;
    let zeroes = RequestKind::WriteZeroes { no_hole: false, fua: false };
    // As many regions as may be marked: to unmark one takes the journal.
    for round in 0..80 {
        world.submit(V, 0, 1 << 20, zeroes);
        world.write(V, 0, &half(round, 1 << 20));
        world.tick(1);
    }
    let before = (world.stat("insert_zero"), world.stat("insert_stored"));
    world.submit(V, 0, 1 << 20, zeroes);
    world.read(V, 0, 1 << 20);
    world.write(V, 0, &half(99, 1 << 20));
    world.tick(1);
    world.read(V, 0, 1 << 20);
    assert_eq!((world.stat("insert_zero"), world.stat("insert_stored")), before);
    assert!(world.stat("insert_skipped") > 0);
}

#[test]
fn a_unit_on_its_way_to_the_device_is_served_from_memory() {
    let mut world = small();
    world.weus_hang = true;
    world.write(V, 0, &half(1, 384 << 10));
    world.origin_reads.clear();
    world.read(V, 0, 384 << 10);
    assert!(world.origin_reads.is_empty() && world.device_reads.is_empty());
    assert_eq!(world.stat("failed_hits"), 0);
}

#[test]
fn stored_extents_far_from_each_other_are_not_read_with_all_that_lies_between() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &noise(1, 8192));
    for other in 0..20 {
        world.write(V, (512 << 10) + other * 2 * EXTENT, &noise(10 + other, 8192));
    }
    world.write(V, EXTENT, &noise(2, 8192));
    world.tick(1000);
    world.device_reads.clear();
    world.read(V, 0, 2 * EXTENT);
    let bytes: u32 = world.device_reads.iter().map(|(_, len_bytes)| len_bytes).sum();
    assert_eq!(world.device_reads.len(), 2);
    assert!(bytes <= 24 << 10, "{:?}", world.device_reads);
    world.stop();
}

#[test]
fn hints_are_dropped_while_many_are_being_followed() {
    let mut world = World::new(Shape { slots: 128, volume_bytes: 32 << 20, ..Shape::default() });
    world.origin_reads_hang = true;
    for round in 0..500 {
        let req = world.submit(V, round % 8 * (4 << 20), 4 << 20, RequestKind::Prefetch);
        assert_eq!(
            world.replies.remove(&req).unwrap().0,
            Ok(()),
            "a hint is answered whatever becomes of it"
        );
    }
    let bytes = |world: &World| world.origin_reads.iter().map(|(_, len)| u64::from(*len)).sum::<u64>();
    assert_eq!(bytes(&world), 8 << 20, "in flight");
    world.end_origin_reads();
    world.tick(1000);
    // There is room again, and read-ahead has its own.
    world.submit(V, 16 << 20, 4 << 20, RequestKind::Prefetch);
    assert_eq!(bytes(&world), 12 << 20);
    world.stop();
}

#[test]
fn a_long_clearing_takes_work_for_what_is_cached_alone() {
    const BYTES: u64 = 48 << 20;
    let mut world = World::new(Shape { volume_bytes: BYTES, range_extents_min: 4, ..Shape::default() });
    let nothing = world.manager.clear_piece(V, 512, 1 << 40, 512);
    assert_eq!((nothing.len_bytes, nothing.lookups), (1 << 30, 0), "an empty cache");
    let places = [3 * EXTENT, 9 << 20, (20 << 20) + EXTENT, BYTES - EXTENT];
    for round in 0..2 {
        for (id, at) in (10 * round..).zip(places) {
            world.write(V, at, &half(id, 8192));
        }
        world.tick(1000);
        // A partly written extent, one in the read buffer, one read ahead, and a read that is overtaken.
        world.write(V, (30 << 20) + 512, &half(99, 1024));
        world.read(V, places[1], 512);
        world.submit(V, 40 << 20, 64 << 10, RequestKind::Prefetch);
        world.origin_reads_hang = true;
        let overtaken = world.submit_read(V, 25 << 20, EXTENT);
        world.origin_reads_hang = false;
        let kind = if round == 0 {
            RequestKind::WriteZeroes { no_hole: false, fua: false }
        } else {
            RequestKind::Trim { fua: false }
        };
        let before = (world.stat("insert_zero"), world.stat("bases_voided"));
        world.submit(V, 512, BYTES - 1024, kind);
        world.end_origin_reads();
        assert!(world.replies.contains_key(&overtaken));
        assert_eq!(world.stat("insert_zero"), before.0, "zeros of a long range are not mapped");
        assert!(world.stat("bases_voided") >= before.1 + 3, "what was cached is void");
        // The world compares all that is read with the origin.
        for at in places.into_iter().chain([25 << 20, 30 << 20, 40 << 20, 0]) {
            world.read(V, at, EXTENT);
        }
        world.tick(3000);
    }
    let piece = world.manager.clear_piece(V, 0, 1 << 40, 512);
    assert_eq!(
        (piece.len_bytes, piece.lookups),
        (512 * EXTENT, 512),
        "what is cached is looked up in pieces"
    );
    let mut world = world.restart_killed();
    for at in places {
        world.read(V, at, EXTENT);
    }
    world.stop();
}
