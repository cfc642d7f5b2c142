//! Volumes that go while the cache is used, and others that come under their numbers.

use zc_cache::config::VolumeConfig;
use zc_cache::seam::{Erased, Event, RequestKind};
use zc_core::{ErrorKind, Mode, VolumeId, WeuSlot};
use zc_format::{Geometry, WeuHeader};

use crate::world::{Shape, V, W, World, half, volume};
use crate::write_back::{Twin, extents, write_back};

const BYTES: u64 = 4 << 20;
const MIB: usize = 1 << 20;

/// A volume as a driver adds it: its number is free, so nothing speaks against what the cache holds under it.
fn fresh() -> VolumeConfig {
    VolumeConfig { trusted: true, recipes: false, ..volume(V, BYTES) }
}

/// Contents that no two extents share.
fn image(seed: u64) -> Vec<u8> {
    (0..64).flat_map(|extent| half(seed * 1000 + extent, 16 << 10)).collect()
}

/// An origin that begins with these bytes.
fn origin(begins: &[u8]) -> Vec<u8> {
    let mut origin = begins.to_vec();
    origin.resize(usize::try_from(BYTES).unwrap(), 0);
    origin
}

/// Stored contents, duplicates, zeros, and contents that a read brought and that were learned.
fn filled(shape: Shape) -> World {
    let mut world = World::new(shape);
    world.configure(fresh());
    world.write(W, 0, &image(1));
    world.write(V, 0, &image(2));
    world.write(V, 1 << 20, &image(1));
    world.write(V, 2 << 20, &vec![0; MIB]);
    world.origins.get_mut(&V).unwrap()[3 << 20..].copy_from_slice(&image(3));
    (0..2).for_each(|_| drop(world.read(V, 3 << 20, 1 << 20)));
    world.tick(1000);
    world.tick(1000);
    world
}

fn learning() -> Shape {
    Shape { learned_recipes_bytes: 1 << 20, slots: 40, ..Shape::default() }
}

fn remove(world: &mut World) {
    world.event(Event::Remove { volume: V });
    for _ in 0..100 {
        if !world.removed.is_empty() {
            break;
        }
        world.tick(10);
    }
    assert_eq!(world.removed, [(V, Ok(()))]);
    assert!(world.manager.dirty(V).is_none_or(|dirty| dirty.bytes == 0));
}

/// Another origin under the number is read as it is, and the other volume is still cached.
fn serves_the_other_origin(world: &mut World) {
    for at in (0..BYTES).step_by(MIB) {
        world.read(V, at, 1 << 20);
    }
    world.origin_reads.clear();
    world.read(W, 0, 1 << 20);
    // Without what is read ahead of it.
    world.origin_reads.retain(|(offset, _)| *offset < 1 << 20);
    assert_eq!(world.origin_reads, [], "the other volume lost nothing");
}

#[test]
fn another_origin_under_the_number_of_a_volume_that_went_is_read_as_it_is() {
    let mut world = filled(learning());
    remove(&mut world);
    world.replace_origin(fresh(), origin(&image(4)));
    serves_the_other_origin(&mut world);
    world.stop();
}

#[test]
fn what_a_volume_stored_goes_on_to_serve_others() {
    let mut world = filled(learning());
    remove(&mut world);
    let before = world.stat("insert_stored");
    world.write(W, 1 << 20, &image(2));
    world.tick(1000);
    assert_eq!(world.stat("insert_stored"), before, "the contents are there");
    world.stop();
}

#[test]
fn nothing_of_a_volume_that_went_comes_back_with_a_restart() {
    type Restart = fn(World) -> World;
    let restarts: [Restart; 3] = [
        |world| world.restart(false),
        World::restart_killed,
        |mut world| {
            world.stop();
            world.restart(true)
        },
    ];
    for restart in restarts {
        let mut world = filled(learning());
        remove(&mut world);
        let mut world = restart(world);
        // The volume is known from the start on, and nothing is known that speaks against what is cached.
        world.origins.insert(V, origin(&image(4)));
        world.tick(100);
        serves_the_other_origin(&mut world);
        world.stop();
    }
}

#[test]
fn a_crash_at_any_step_leaves_only_what_is_true() {
    for journal_hangs in [false, true] {
        let mut world = filled(learning());
        world.journal_hangs = journal_hangs;
        world.event(Event::Remove { volume: V });
        world.tick(10);
        assert_eq!(world.removed.is_empty(), journal_hangs, "{:?}", world.removed);
        let mut world = world.restart(false);
        for at in (0..BYTES).step_by(MIB) {
            world.read(V, at, 1 << 20);
        }
        world.stop();
    }
}

#[test]
fn marks_of_its_regions_go_with_a_volume() {
    let mut world = filled(Shape::default());
    world.write(V, 0, &image(5));
    assert!(world.manager.active_regions().0 > 0);
    remove(&mut world);
    world.write(W, 0, &image(5));
    let before = world.manager.active_regions().0;
    (0..40).for_each(|_| world.tick(100));
    assert!(before > 0 && world.manager.active_regions().0 == 0);
    world.stop();
}

#[test]
fn what_is_under_way_is_waited_for_and_not_kept() {
    let mut world = filled(Shape {
        prefetch_threshold_bytes: 64 << 10,
        prefetch_max_bytes: 128 << 10,
        ..Shape::default()
    });
    world.origin_reads_hang = true;
    world.submit(V, 0, 1 << 20, RequestKind::Prefetch);
    world.origins.get_mut(&V).unwrap()[..MIB].copy_from_slice(&image(6));
    world.write(V, MIB as u64 - 4096, &half(9, 4096));
    world.submit(V, 1 << 20, 1 << 20, RequestKind::Prefetch);
    world.event(Event::Remove { volume: V });
    world.tick(10);
    if world.removed.is_empty() {
        world.end_origin_reads();
    }
    for _ in 0..20 {
        world.tick(10);
    }
    assert_eq!(world.removed, [(V, Ok(()))]);
    world.replace_origin(fresh(), origin(&image(4)));
    world.origin_reads_hang = false;
    serves_the_other_origin(&mut world);
    world.stop();
}

#[test]
fn a_volume_whose_origin_does_not_flush_stays_as_it_is() {
    let mut world = filled(Shape::default());
    world.flushless = Some(V);
    world.event(Event::Remove { volume: V });
    world.tick(10);
    assert_eq!(world.removed, [(V, Err(ErrorKind::Io))]);
    world.flushless = None;
    world.write(V, 0, &image(7));
    world.read(V, 0, 1 << 20);
    world.stop();
}

/// Marks of regions go with a flush of each origin, which may be under way when the cache holds nothing any more.
#[test]
fn a_flush_that_begins_meanwhile_is_waited_for() {
    let mut world = filled(Shape::default());
    (0..40).for_each(|_| world.tick(100));
    world.write(V, 0, &image(5));
    world.journal_hangs = true;
    world.event(Event::Remove { volume: V });
    world.tick(10);
    world.origin_flushes_hang = true;
    world.tick(3000);
    world.end_journal_writes(Ok(()));
    (0..20).for_each(|_| world.tick(10));
    assert_eq!(world.removed, [], "a flush of the origin is under way");
    world.end_origin_flushes();
    world.tick(10);
    assert_eq!(world.removed, [(V, Ok(()))]);
    world.stop();
}

#[test]
fn a_removal_ends_with_the_cache_and_with_a_stop() {
    for stops in [false, true] {
        let mut world = filled(Shape::default());
        world.origin_flushes_hang = true;
        world.event(Event::Remove { volume: V });
        world.tick(10);
        assert_eq!(world.removed, []);
        world.event(if stops { Event::Stop } else { Event::DeviceLost });
        assert_eq!(world.removed, [(V, Err(ErrorKind::Io))]);
        world.end_origin_flushes();
        if !stops {
            world.read(V, 0, 1 << 20);
        }
        world.stop();
    }
}

#[test]
fn dirty_data_is_waited_for() {
    let mut t = Twin::new(Shape { idle_ms: 1 << 40, ..Shape::default() });
    t.write(0, &extents(1, 4));
    t.flush();
    t.world.event(Event::Remove { volume: V });
    (0..20).for_each(|_| t.world.tick(10));
    assert_eq!(t.world.removed, [], "the origin lacks it");
    t.world.event(Event::Destage { volume: V });
    (0..20).for_each(|_| t.world.tick(10));
    assert_eq!(t.world.removed, [(V, Ok(()))]);
    assert_eq!(t.world.origins[&V], t.twin);
}

/// A record that calls the epochs of the volume before clean must not cover those of the one that came after it.
#[test]
fn epochs_count_on_under_the_number() {
    let mut t = Twin::new(Shape { idle_ms: 1 << 40, ..Shape::default() });
    for round in 0..5 {
        t.write(0, &extents(round, 4));
        t.flush();
    }
    t.world.event(Event::Destage { volume: V });
    (0..20).for_each(|_| t.world.tick(10));
    remove(&mut t.world);
    let config = VolumeConfig { mode: Mode::WriteBack, ..write_back() };
    t.twin = origin(&image(4));
    t.world.replace_origin(config, t.twin.clone());
    t.write(0, &extents(9, 4));
    t.flush();
    for clean in [false, true] {
        if clean {
            t.world.stop();
        }
        t.world = t.world.restart(clean);
        assert!(t.world.manager.dirty(V).unwrap().bytes > 0, "the flushed write is the cache's alone");
        t.check(0, 4 << 20);
    }
}

/// Slots whose header names an extent of the volume.
fn slots_with(world: &World, volume: VolumeId) -> usize {
    let Geometry { slots, weu_bytes, extent_bytes, salt, .. } = world.geometry;
    let has_its = |slot: &u32| {
        let slot = WeuSlot(*slot);
        let at = usize::try_from(world.geometry.slot_offset(slot)).unwrap();
        let bytes = &world.device.0[at..at + usize::try_from(weu_bytes).unwrap()];
        let header = WeuHeader::decode(bytes, slot, weu_bytes, extent_bytes, salt);
        header.is_ok_and(|header| header.entries.iter().any(|entry| entry.key.volume == volume))
    };
    (0..slots).filter(has_its).count()
}

fn erase(world: &mut World, keep: &[VolumeId]) -> Erased {
    world.event(Event::Erase { keep: keep.to_vec() });
    for _ in 0..1000 {
        if !world.manager.is_erasing() {
            break;
        }
        world.tick(10);
    }
    world.manager.erased().expect("it ends")
}

#[test]
fn an_erasure_leaves_nothing_of_volumes_that_are_gone() {
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        let mut world = filled(learning());
        world.configure(VolumeConfig { mode, ..fresh() });
        // Older versions, which no mapping leads to.
        world.write(V, 0, &image(7));
        world.submit(V, 0, 0, RequestKind::Flush);
        world.event(Event::Destage { volume: V });
        (0..20).for_each(|_| world.tick(1000));
        remove(&mut world);
        assert!(slots_with(&world, V) > 0 && slots_with(&world, W) > 0, "{mode:?}");
        assert_eq!(erase(&mut world, &[V]).left, 0, "the volume may come back");
        assert!(slots_with(&world, V) > 0, "{mode:?}");
        let erased = erase(&mut world, &[]);
        assert!(erased.is_complete && erased.left == 0 && erased.slots > 0, "{mode:?} {erased:?}");
        assert_eq!(slots_with(&world, V), 0, "{mode:?}");
        // The other volume has lost cached content at most.
        world.read(W, 0, 1 << 20);
        world.write(W, 1 << 20, &image(8));
        world.tick(1000);
        world.read(W, 1 << 20, 1 << 20);
        let mut world = world.restart(false);
        world.read(W, 0, 2 << 20);
        world.stop();
    }
}
