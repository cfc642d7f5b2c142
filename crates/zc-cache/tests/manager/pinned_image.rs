//! Pinned ranges after a start by the index image: as after one by headers.

use zc_cache::config::VolumeConfig;
use zc_cache::seam::RequestKind;

use crate::image::{damage_the_last_piece, start_of};
use crate::pinned::{E, MIB, UNIT, VOLUME_BYTES, are_safe, flood, hits, pinned, pins, settle, shape};
use crate::world::{Shape, V, W, World, noise, volume};

/// A cache with an area that has room for an image.
fn world(shape: Shape) -> World {
    let mut world = crate::pinned::world(shape);
    (world.config.file_index_entries, world.config.fingerprint_index_entries) = (1024, 1024);
    world.restart(false)
}

/// So many of the first extents are pinned and cached.
fn with_pinned(extents: u64) -> World {
    let mut world = world(shape());
    world.configure(pinned(0..extents * E));
    settle(&mut world);
    (0..3).for_each(|_| world.tick(1000));
    world
}

/// Stops, with an image or without.
fn stop(world: &mut World, has_image: bool) {
    if !has_image {
        world.manager.leave_no_image();
    }
    world.stop();
}

/// Starts in order with so many extents pinned.
fn restart(mut world: World, extents: u64, has_image: bool) -> World {
    stop(&mut world, has_image);
    world.remember(&pinned(0..extents * E));
    let mut world = world.restart(true);
    world.tick(1);
    let is_by_image = u64::from(has_image);
    assert_eq!(start_of(&world), (is_by_image, 0, !has_image));
    world
}

/// No unit counts more of what is pinned than there is: with the last pin, the last unit leaves the class.
fn all_can_be_unpinned(world: &mut World) {
    world.configure(volume(V, VOLUME_BYTES));
    settle(world);
    assert_eq!((world.manager.pins(), world.stat("pinned_units")), (vec![], 0));
    world.stop();
}

#[test]
fn what_is_pinned_is_safe_at_once_and_counted_as_before() {
    for has_image in [true, false] {
        let extents = 4 * UNIT;
        let mut world = with_pinned(extents);
        // Another volume shares what one unit stored.
        let shared: Vec<u8> = (0..UNIT).flat_map(|extent| noise(extent, 8192)).collect();
        world.write(W, 0, &shared);
        // Zeros are safe as well.
        world.write(V, 2 * UNIT * E, &vec![0; 8192]);
        world.tick(1000);
        let units = world.stat("pinned_units");
        let mut world = restart(world, extents, has_image);
        assert!(are_safe(&world, 0..extents * E), "at once, with nothing read");
        assert_eq!((world.stat("pinned_units"), pins(&world).safe_bytes), (units, extents * E));
        flood(&mut world, 60);
        settle(&mut world);
        assert_eq!((world.stat("pinned_extents_read"), world.stat("pinned_extents_moved")), (0, 0));
        assert_eq!(hits(&mut world, V, 0..extents * E), extents);
        all_can_be_unpinned(&mut world);
    }
}

#[test]
fn with_fewer_pins_than_before_the_rest_ages() {
    for has_image in [true, false] {
        // The second unit holds both.
        let (before, extents) = (4 * UNIT, UNIT + 9);
        let mut world = restart(with_pinned(before), extents, has_image);
        assert_eq!(world.stat("pinned_units"), 1, "a unit with others is no unit of what is pinned");
        assert_eq!(pins(&world).safe_bytes, UNIT * E);
        settle(&mut world);
        assert_eq!((world.stat("pinned_extents_read"), world.stat("pinned_extents_moved")), (0, 9));
        assert_eq!(pins(&world).safe_bytes, extents * E);
        flood(&mut world, 60);
        assert_eq!(hits(&mut world, V, 0..before * E), extents);
        all_can_be_unpinned(&mut world);
    }
}

#[test]
fn with_more_pins_than_before_units_of_them_alone_stay_where_they_are() {
    let extents = 5 * UNIT;
    let started = [true, false].map(|has_image| {
        let mut world = with_pinned(UNIT);
        (UNIT..4 * UNIT).for_each(|extent| drop(world.read(V, extent * E, E)));
        // Then units that it shares with another volume.
        for extent in 0..UNIT / 2 {
            world.read(V, (4 * UNIT + extent) * E, E);
            world.write(W, extent * E, &noise((1 << 30) + extent, 8192));
        }
        (0..3).for_each(|_| world.tick(1000));
        let mut world = restart(world, extents, has_image);
        let (units, safe) = (world.stat("pinned_units"), pins(&world).safe_bytes / E);
        let are_safe_now = (0..extents).filter(|extent| are_safe(&world, extent * E..(extent + 1) * E));
        assert!(safe >= 3 * UNIT && safe < extents - UNIT / 2, "{safe} safe");
        assert_eq!(are_safe_now.count() as u64, safe);
        settle(&mut world);
        let (read, moved) = (world.stat("pinned_extents_read"), world.stat("pinned_extents_moved"));
        assert_eq!(read, UNIT - UNIT / 2);
        assert!(are_safe(&world, 0..extents * E));
        flood(&mut world, 60);
        assert_eq!(hits(&mut world, V, 0..extents * E), extents);
        all_can_be_unpinned(&mut world);
        (units, safe, moved)
    });
    assert_eq!(started[0], started[1], "by image and by headers");
}

/// Pins change while the image is read, and once more. It is taken, or given up when almost all of it has been read.
#[test]
fn a_pin_that_changes_while_the_image_is_read_waits_until_that_is_over() {
    for (is_damaged, before, extents) in
        [(false, 4, 2), (false, 2, 4), (false, 3, 0), (true, 4, 2), (true, 2, 4)]
    {
        let mut world = with_pinned(before * UNIT);
        (0..5 * UNIT).for_each(|extent| drop(world.read(V, extent * E, E)));
        (0..3).for_each(|_| world.tick(1000));
        world.stop();
        if is_damaged {
            damage_the_last_piece(&mut world);
        }
        let mut world = world.restart_reading();
        world.configure(pinned(0..extents * UNIT * E));
        world.tick(1);
        // All but the last.
        for read in 0..3 {
            world.end_an_image_read();
            let pins = if read == 1 { 1 } else { extents };
            world.configure(pinned(0..pins * UNIT * E));
            world.tick(1);
        }
        assert!(!world.manager.is_loaded());
        world.end_image_reads();
        world.tick(1);
        let is_by_image = u64::from(!is_damaged);
        assert_eq!(start_of(&world), (is_by_image, u64::from(is_damaged), is_damaged));
        settle(&mut world);
        let case = (is_damaged, before, extents);
        assert_eq!(world.stat("pinned_extents_read"), 0, "{case:?}: all was cached");
        assert!(are_safe(&world, 0..extents * UNIT * E), "{case:?}");
        flood(&mut world, 60);
        assert_eq!(hits(&mut world, V, 0..5 * UNIT * E), extents * UNIT, "{case:?}");
        all_can_be_unpinned(&mut world);
    }
}

#[test]
fn what_is_written_to_a_pinned_range_while_the_image_is_read_is_kept_in_place_of_the_older() {
    let extents = 4 * UNIT;
    let mut world = with_pinned(extents);
    world.stop();
    let mut world = world.restart_reading();
    // The directory, and then the slots: some are free.
    world.end_an_image_read();
    world.end_an_image_read();
    // All of a unit, and some of the next.
    for extent in 0..UNIT + 9 {
        world.write(V, extent * E, &noise((1 << 30) + extent, 8192));
    }
    world.write(V, 2 * UNIT * E, &vec![0; 8192]);
    world.tick(1000);
    world.end_image_reads();
    world.tick(1);
    assert_eq!(start_of(&world), (1, 0, false));
    assert!(are_safe(&world, 0..extents * E), "old and new");
    assert_eq!(pins(&world).safe_bytes, extents * E);
    // The unit of which nothing is left is the first to go.
    let units = world.stat("pinned_units");
    flood(&mut world, 60);
    settle(&mut world);
    assert_eq!(world.stat("pinned_units"), units - 1);
    assert_eq!(hits(&mut world, V, 0..extents * E), extents);
    assert_eq!((world.stat("pinned_extents_read"), world.stat("pinned_extents_moved")), (0, 0));
    all_can_be_unpinned(&mut world);
}

/// A start finds more units that hold what is pinned alone than the class may have.
#[test]
fn what_the_class_has_no_room_for_is_placed_anew() {
    let stays = |extent: u64| extent % UNIT < 7;
    for has_image in [true, false] {
        // Streams of writes are placed in batches, so that neighbours lie in one unit.
        let mut world = world(Shape { prefetch_threshold_bytes: 64 << 10, ..shape() });
        (0..11 * UNIT).for_each(|extent| world.write(V, extent * E, &noise(extent, 8192)));
        (0..3).for_each(|_| world.tick(1000));
        // Of each unit all but a few extents are overwritten.
        let overwritten = (0..11 * UNIT).filter(|extent| !stays(*extent));
        for (at, extent) in (0..).zip(overwritten) {
            world.write(V, extent * E, &noise((1 << 30) + at, 8192));
        }
        (0..3).for_each(|_| world.tick(1000));
        stop(&mut world, has_image);
        let kept = (0..11).map(|unit| unit * UNIT * E..(unit * UNIT + 7) * E).collect();
        world.remember(&VolumeConfig { pins: kept, ..volume(V, VOLUME_BYTES) });
        let mut world = world.restart(true);
        world.tick(1);
        // Three units of extents, a few more, and of those two for what is placed anew.
        let joined = if has_image { 5 } else { 0 };
        assert_eq!((start_of(&world).0, world.stat("pinned_units")), (u64::from(has_image), joined));
        assert_eq!(pins(&world).safe_bytes, joined * 7 * E);
        settle(&mut world);
        assert_eq!(pins(&world).safe_bytes, 77 * E);
        let moved = world.stat("pinned_extents_moved");
        assert!(moved >= 77 - joined * 7 && world.stat("pinned_units") <= 7, "{moved} moved");
        flood(&mut world, 60);
        let all = (0..11 * UNIT).filter(|extent| stays(*extent));
        let cached: u64 = all.map(|extent| hits(&mut world, V, extent * E..(extent + 1) * E)).sum();
        assert_eq!((cached, world.stat("pinned_extents_read")), (77, 0));
        all_can_be_unpinned(&mut world);
    }
}

#[test]
fn what_was_mapped_while_the_image_was_read_drops_nothing_that_is_pinned() {
    let zeros = RequestKind::WriteZeroes { no_hole: false, fua: false };
    // Zeros take no room but in the index.
    let mut world = World::new(Shape { volume_bytes: 64 * MIB, ..shape() });
    (world.config.file_index_entries, world.config.fingerprint_index_entries) = (1024, 1024);
    let mut world = world.restart(false);
    world.configure(VolumeConfig { size_bytes: 64 * MIB, ..pinned(0..2 * MIB) });
    settle(&mut world);
    world.stop();
    let mut world = world.restart_reading();
    for at in 0..7 {
        world.submit(W, at * MIB, MIB, zeros);
        world.read(W, at * MIB, MIB);
    }
    assert_eq!(world.stat("file_index_evictions"), 0, "{}", world.stat("file_index_evictions"));
    world.end_image_reads();
    world.tick(1);
    assert_eq!(start_of(&world), (1, 0, false));
    assert!(world.stat("file_index_evictions") > 0);
    assert!(are_safe(&world, 0..2 * MIB));
    assert_eq!(hits(&mut world, V, 0..2 * MIB), 2 * MIB / E);
    world.stop();
}
