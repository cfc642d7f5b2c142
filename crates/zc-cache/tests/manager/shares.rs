//! Shares of the cache: quotas, reserves and priorities hold, change live, and are known again after a restart.
//!
//! What a volume holds is counted on the device too: by the headers of the slots, which say whose extents are in them.

use zc_cache::VolumeShare;
use zc_cache::config::{Replacement, ShareConfig, VolumeConfig};
use zc_core::units::SizeOrShare;
use zc_core::{Mode, Priority, VolumeId, WeuSlot};

use crate::world::{Shape, V, W, World, noise, volume};

const E: u64 = 8 << 10;
const UNIT_BYTES: u64 = 256 << 10;
const SLOTS: u64 = 24;
/// Extents that do not shrink in a unit.
const UNIT: u64 = 31;
const VOLUME_BYTES: u64 = 16 << 20;
const EXTENTS: u64 = VOLUME_BYTES / E;

fn shape() -> Shape {
    Shape { slots: SLOTS, volume_bytes: VOLUME_BYTES, ..Shape::default() }
}

fn units(count: u64) -> Option<SizeOrShare> {
    Some(SizeOrShare::Bytes(count * UNIT_BYTES))
}

fn quota(count: u64) -> ShareConfig {
    ShareConfig { quota: units(count), ..ShareConfig::default() }
}

fn reserve(count: u64) -> ShareConfig {
    ShareConfig { reserve: units(count), ..ShareConfig::default() }
}

fn priority(priority: Priority) -> ShareConfig {
    ShareConfig { priority, ..ShareConfig::default() }
}

fn configure(world: &mut World, id: VolumeId, share: ShareConfig) {
    world.configure(VolumeConfig { share, ..volume(id, VOLUME_BYTES) });
}

fn share(world: &World, id: VolumeId) -> Option<VolumeShare> {
    world.manager.shares().into_iter().find(|share| share.volume == id)
}

fn held(world: &World, id: VolumeId) -> u32 {
    share(world, id).expect("the volume has a share").units
}

/// Writes whole units of content that is new; `each` sees the world after each extent.
fn fill(world: &mut World, id: VolumeId, extents: core::ops::Range<u64>, mut each: impl FnMut(&World)) {
    for extent in extents {
        let content = noise(u64::from(id.0) * 1_000_000 + extent, 8 << 10);
        world.write(id, extent % EXTENTS * E, &content);
        each(world);
    }
}

/// Extents of a range that are read without the origin.
fn hits(world: &mut World, id: VolumeId, extents: core::ops::Range<u64>) -> u64 {
    let is_hit = |extent: u64| {
        world.origin_reads.clear();
        world.read(id, extent * E, E);
        u64::from(world.origin_reads.is_empty())
    };
    extents.map(is_hit).sum()
}

/// Units on the device that hold extents of a volume that read as hits, by reading all of it.
fn slots_read(world: &mut World, id: VolumeId) -> std::collections::BTreeSet<WeuSlot> {
    world.device_reads.clear();
    for extent in 0..EXTENTS {
        world.read_any(id, extent * E, E);
    }
    world.device_reads.iter().map(|(slot, _)| *slot).collect()
}

#[test]
fn a_volume_never_has_more_than_its_quota_and_others_use_the_rest() {
    for replacement in [Replacement::Lru, Replacement::CostBenefit, Replacement::S3Fifo] {
        let mut world = World::new(Shape { replacement, ..shape() });
        configure(&mut world, V, quota(5));
        fill(&mut world, W, 0..4 * UNIT, |_| ());
        fill(&mut world, V, 0..14 * UNIT, |world| assert!(held(world, V) <= 5, "{replacement:?}"));
        assert_eq!(held(&world, V), 5);
        assert_eq!(hits(&mut world, W, 0..4 * UNIT), 4 * UNIT, "{replacement:?}: nothing of W went");
        assert!(world.stat("evictions") == world.stat("evictions_for_quota") && world.stat("evictions") > 7);
        assert_eq!(world.stat("insert_over_quota"), 0, "a unit of its own could always go");
        (0..3).for_each(|_| world.tick(1000));
        // What missed is inserted as it is read, so that only the newest content counts.
        let newest = 14 * UNIT - 3 * UNIT..14 * UNIT;
        assert_eq!(hits(&mut world, V, newest), 3 * UNIT, "{replacement:?}: the newest is there");
        world.stop();
    }
}

#[test]
fn a_flooding_volume_does_not_push_another_below_its_reserve() {
    let mut world = World::new(shape());
    configure(&mut world, V, reserve(6));
    fill(&mut world, V, 0..5 * UNIT, |_| ());
    (0..3).for_each(|_| world.tick(1000));
    let before = held(&world, V);
    fill(&mut world, W, 0..60 * UNIT, |world| assert!(held(world, V) >= before));
    assert!(before >= 5 && hits(&mut world, V, 0..5 * UNIT) == 5 * UNIT);
    assert!(world.stat("evictions") > 30);
    // What is above the reserve goes as anything else does.
    fill(&mut world, V, 5 * UNIT..12 * UNIT, |_| ());
    assert!(held(&world, V) > 6);
    fill(&mut world, W, 60 * UNIT..120 * UNIT, |world| assert!(held(world, V) >= 6));
    assert_eq!((held(&world, V), world.stat("evictions_within_reserve")), (6, 0));
    world.stop();
}

#[test]
fn within_its_reserve_a_volume_s_new_content_takes_the_place_of_its_old_one_when_no_other_may_go() {
    let mut world = World::new(shape());
    configure(&mut world, V, reserve(19));
    let write_back = VolumeConfig { mode: Mode::WriteBack, ..volume(W, VOLUME_BYTES) };
    world.configure(VolumeConfig {
        write_back: zc_cache::config::WriteBackConfig {
            max_dirty_age_ms: 600_000,
            destages_idly: false,
            ..write_back.write_back
        },
        ..write_back
    });
    // Dirty units fill what is not reserved, as far as they may; then V has the rest.
    fill(&mut world, W, 0..11 * UNIT, |_| ());
    fill(&mut world, V, 0..30 * UNIT, |_| ());
    (0..3).for_each(|_| world.tick(100));
    assert_eq!(world.stat("insert_stored"), 30 * UNIT, "all of V was placed");
    let held = held(&world, V);
    assert!((10..19).contains(&held), "{held}: dirty data has the rest");
    assert!(world.stat("evictions_within_reserve") > 5);
    world.stop();
}

#[test]
fn a_low_priority_loses_before_others_and_a_high_one_after_them() {
    for (of_v, v_stays) in [(Priority::Low, false), (Priority::High, true)] {
        let mut world = World::new(shape());
        configure(&mut world, V, priority(of_v));
        // The first ten units are the older ones.
        let (first, second) = if v_stays { (V, W) } else { (W, V) };
        fill(&mut world, first, 0..9 * UNIT, |_| ());
        fill(&mut world, second, 0..40 * UNIT, |_| ());
        assert_eq!(hits(&mut world, first, 0..9 * UNIT), 9 * UNIT, "{of_v:?}");
        world.stop();
    }
}

#[test]
fn of_equal_priorities_the_least_recently_used_goes_as_without_shares() {
    let mut world = World::new(shape());
    // No bound that matters, but a class of its own.
    configure(&mut world, V, quota(SLOTS - 1));
    fill(&mut world, V, 0..8 * UNIT, |_| ());
    fill(&mut world, W, 0..8 * UNIT, |_| ());
    for _ in 0..6 {
        // V is read again and again; W is not.
        assert_eq!(hits(&mut world, V, 0..8 * UNIT), 8 * UNIT);
        let from = 8 + world.stat("evictions");
        fill(&mut world, W, from * UNIT..(from + 2) * UNIT, |_| ());
    }
    assert_eq!(hits(&mut world, V, 0..8 * UNIT), 8 * UNIT, "W lost its own old units");
    world.stop();
}

#[test]
fn new_settings_count_at_once_and_a_lower_quota_gives_units_back() {
    let mut world = World::new(shape());
    fill(&mut world, V, 0..12 * UNIT, |_| ());
    (0..3).for_each(|_| world.tick(1000));
    assert_eq!(share(&world, V), None, "no share of its own");
    configure(&mut world, V, quota(11));
    assert!(held(&world, V) <= 11 && world.stat("units_moved") >= 11, "what is there counts");
    let used = world.manager.slots_used().0;
    configure(&mut world, V, quota(4));
    world.tick(1);
    assert_eq!(held(&world, V), 4);
    assert!(world.manager.slots_used().0 <= used - 7, "the others are free");
    assert!(slots_read(&mut world, V).len() <= 4 + 1, "and one for what was read just now");
    configure(&mut world, V, quota(9));
    fill(&mut world, V, 0..12 * UNIT, |_| ());
    assert_eq!(held(&world, V), 9);
    configure(&mut world, V, ShareConfig::default());
    assert_eq!(share(&world, V), None);
    fill(&mut world, V, 0..14 * UNIT, |_| ());
    assert!(slots_read(&mut world, V).len() > 10, "without a quota it has what there is");
    world.stop();
}

#[test]
fn a_restart_knows_again_whose_units_are_whose() {
    let mut world = World::new(shape());
    configure(&mut world, V, quota(6));
    fill(&mut world, V, 0..6 * UNIT, |_| ());
    fill(&mut world, W, 0..8 * UNIT, |_| ());
    world.stop();
    let mut world = world.restart(true);
    (0..5).for_each(|_| world.tick(1));
    assert!(world.manager.is_loaded());
    assert_eq!(held(&world, V), 6);
    assert_eq!(hits(&mut world, V, 0..6 * UNIT), 6 * UNIT);
    world.stop();
    // A share that is new since counts what sessions before stored.
    let mut world = world.restart(true);
    configure(&mut world, W, reserve(8));
    (0..5).for_each(|_| world.tick(1));
    assert!(held(&world, W) >= 8, "{}", held(&world, W));
    fill(&mut world, V, 0..20 * UNIT, |world| assert!(held(world, V) <= 6 && held(world, W) >= 8));
    assert_eq!(hits(&mut world, W, 0..8 * UNIT), 8 * UNIT);
    world.stop();
}

#[test]
fn what_was_written_back_counts_once_it_is_clean() {
    let mut world = World::new(shape());
    let write_back = VolumeConfig { mode: Mode::WriteBack, ..volume(V, VOLUME_BYTES) };
    world.configure(VolumeConfig { share: quota(4), ..write_back });
    for round in 0..8 {
        fill(&mut world, V, round * 2 * UNIT..(round + 1) * 2 * UNIT, |_| ());
        for _ in 0..40 {
            world.tick(100);
        }
        assert!(held(&world, V) <= 4, "{} after {round} rounds", held(&world, V));
    }
    assert_eq!(world.manager.dirty(V).map(|dirty| dirty.bytes), Some(0));
    assert!(held(&world, V) >= 3 && world.stat("evictions_for_quota") > 5);
    world.stop();
}

#[test]
fn a_volume_that_goes_leaves_its_units_to_the_others() {
    let mut world = World::new(shape());
    configure(&mut world, V, reserve(12));
    fill(&mut world, V, 0..12 * UNIT, |_| ());
    world.event(zc_cache::seam::Event::Remove { volume: V });
    (0..20).for_each(|_| world.tick(10));
    assert_eq!(world.removed, [(V, Ok(()))]);
    assert_eq!(world.manager.shares(), []);
    fill(&mut world, W, 0..20 * UNIT, |_| ());
    assert_eq!(hits(&mut world, W, 2 * UNIT..20 * UNIT), 18 * UNIT);
    world.stop();
}
