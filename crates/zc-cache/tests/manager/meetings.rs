//! Reads and writes that meet in a sector of the origin are never there together.

use zc_cache::config::VolumeConfig;
use zc_core::Mode;

use crate::world::{Shape, V, World, half, volume};

const EXTENT: u64 = 8 << 10;

/// With one extent written before, and forgotten: it is read from the origin.
fn uncached(mode: Mode) -> World {
    let mut world = World::new(Shape::default());
    world.origins.get_mut(&V).unwrap()[..1 << 20].copy_from_slice(&half(9, 1 << 20));
    let size_bytes = world.origins[&V].len() as u64;
    world.configure(VolumeConfig { mode, ..volume(V, size_bytes) });
    world.origin_reads.clear();
    world
}

fn answer(world: &mut World, read: u64) -> Vec<u8> {
    let (result, bytes) = world.replies.remove(&read).expect("it is answered");
    result.unwrap();
    bytes.expect("a read brings bytes")
}

#[test]
fn a_read_waits_for_the_write_that_it_meets_and_no_other_does() {
    for mode in [Mode::WriteThrough, Mode::PassThrough] {
        let mut world = uncached(mode);
        world.origin_writes_hang = true;
        let write = world.submit_write(V, 1024, &half(1, 512));
        let met = world.submit_read(V, 512, 1024);
        assert!(world.origin_reads.is_empty(), "{mode:?}: it may bring a mixture: {:?}", world.origin_reads);
        for (offset, len) in [(0, 1024), (1536, 512), (EXTENT, EXTENT)] {
            let other = world.submit_read(V, offset, len);
            assert!(world.replies.contains_key(&other), "{mode:?}: {offset}+{len} meets no write");
        }
        assert!(!world.replies.contains_key(&met));
        world.end_origin_writes();
        assert!(world.replies.contains_key(&write));
        let expected = world.origins[&V][512..1536].to_vec();
        assert!(answer(&mut world, met) == expected);
        world.stop();
    }
}

#[test]
fn a_write_waits_for_the_reads_that_it_meets_and_what_comes_later_for_the_write() {
    for mode in [Mode::WriteThrough, Mode::PassThrough] {
        let mut world = uncached(mode);
        let before = world.origins[&V].clone();
        world.origin_reads_hang = true;
        let first = world.submit_read(V, 0, EXTENT);
        let write = world.submit_write(V, 512, &half(1, 512));
        assert!(world.origins[&V] == before, "{mode:?}: the read may see a part of it");
        let later = world.submit_read(V, 512, 512);
        let elsewhere = world.submit_write(V, EXTENT, &half(2, 512));
        assert!(world.replies.contains_key(&elsewhere), "{mode:?}: it meets no read");
        world.end_origin_reads();
        assert!(answer(&mut world, first) == before[..8192]);
        assert!(world.replies.contains_key(&write));
        // With the cache in between it joins the read in flight, which the write has not overtaken.
        let joined = mode == Mode::WriteThrough;
        let expected = if joined { before[512..1024].to_vec() } else { half(1, 512) };
        assert!(answer(&mut world, later) == expected, "{mode:?}");
        world.read(V, 0, EXTENT);
        world.stop();
    }
}

#[test]
fn of_two_writes_that_meet_the_later_one_is_what_stays() {
    let mut world = uncached(Mode::WriteThrough);
    world.origin_writes_hang = true;
    world.submit_write(V, 0, &half(1, 1024));
    let later = world.submit_write(V, 512, &half(2, 1024));
    assert!(world.origins[&V][512..1024] == half(1, 1024)[512..], "the first one alone is under way");
    world.end_origin_writes();
    assert!(world.replies.contains_key(&later));
    assert!(world.origins[&V][512..1536] == half(2, 1024));
    world.read(V, 0, EXTENT);
    world.stop();
}

#[test]
fn a_write_does_not_wait_for_what_is_read_ahead() {
    let mut world = uncached(Mode::WriteThrough);
    world.origin_reads_hang = true;
    world.submit(V, 0, 64 << 10, zc_cache::seam::RequestKind::Prefetch);
    assert!(!world.origin_reads.is_empty());
    world.write(V, 512, &half(1, 512));
    world.end_origin_reads();
    world.read(V, 0, 64 << 10);
    world.stop();
}
