//! The cache device does not answer.

use zc_core::ErrorKind;

use crate::world::{Shape, V, World, half};
use crate::write_back::Twin;

/// Ticks as the daemon's come, for so long.
fn wait(world: &mut World, ms: u64) {
    for _ in 0..ms / 10 {
        world.tick(10);
    }
}

/// A world whose first 64 KiB of V are stored on the device.
fn stored() -> World {
    let mut world = World::new(Shape { read_buffer_bytes: 0, ..Shape::default() });
    world.write(V, 0, &half(1, 64 << 10));
    wait(&mut world, 2_000);
    world.origin_reads.clear();
    world.read(V, 0, 8 << 10);
    assert_eq!((world.device_reads.len(), world.origin_reads.len()), (1, 0), "a hit of the device");
    world
}

#[test]
fn a_write_to_an_unmarked_region_waits_for_the_deadline_and_no_longer() {
    let mut world = World::new(Shape::default());
    world.device_hangs = true;
    let req = world.submit_write(V, 0, &half(1, 8192));
    wait(&mut world, 9_900);
    assert!(world.replies.is_empty() && world.manager.is_healthy(), "the map has not been written");
    wait(&mut world, 300);
    assert!(!world.manager.is_healthy());
    assert_eq!(world.replies[&req].0, Ok(()), "the distrust is recorded: the origin has it");
    assert_eq!(world.distrusts, 1);
    assert!(world.hung.is_empty(), "all operations were abandoned");
    world.read(V, 0, 8192);
    world.stop();
    assert_eq!(world.stopped, Some(false));
}

#[test]
fn a_slow_hit_is_answered_by_the_origin_and_many_put_the_cache_out_of_order() {
    let mut world = stored();
    world.device_hangs = true;
    for hit in 1..=8 {
        let req = world.submit_read(V, 0, 8192);
        wait(&mut world, 1_800);
        assert!(!world.replies.contains_key(&req), "hit {hit} waits for the device at first");
        wait(&mut world, 400);
        world.is_read(req, V, 0);
        assert_eq!(world.manager.is_healthy(), hit < 8, "after {hit} slow hits");
    }
    assert_eq!(world.stat("slow_hits"), 8);
    world.stop();
}

#[test]
fn a_slow_hit_costs_nothing_when_the_device_goes_on() {
    let mut world = stored();
    world.device_hangs = true;
    let req = world.submit_read(V, 0, 8192);
    wait(&mut world, 2_200);
    world.is_read(req, V, 0);
    world.device_hangs = false;
    let before = world.device_reads.len();
    world.read(V, 16 << 10, 8192);
    assert_eq!(world.device_reads.len(), before + 1, "the rest is still served from the cache");
    assert!(world.manager.is_healthy());
    world.stop();
    assert_eq!(world.stopped, Some(true));
}

#[test]
fn the_time_in_which_the_process_was_stopped_counts_as_one_tick() {
    let mut world = World::new(Shape::default());
    world.device_hangs = true;
    world.submit_write(V, 0, &half(1, 8192));
    world.tick(10);
    world.tick(3_600_000);
    wait(&mut world, 5_000);
    assert!(world.manager.is_healthy());
    wait(&mut world, 5_200);
    assert!(!world.manager.is_healthy());
}

#[test]
fn a_read_that_only_the_cache_can_answer_fails_at_the_deadline() {
    let mut t = Twin::new(Shape { read_buffer_bytes: 0, ..Shape::default() });
    t.write(0, &half(2, 64 << 10));
    t.flush();
    let mut world = t.world.restart_killed();
    assert!(world.manager.dirty(V).unwrap().bytes > 0);
    world.device_hangs = true;
    let req = world.submit_read(V, 0, 8192);
    wait(&mut world, 9_800);
    assert!(!world.replies.contains_key(&req), "no other place has it");
    wait(&mut world, 400);
    assert_eq!(world.replies[&req].0, Err(ErrorKind::Io));
    assert!(world.manager.dirty(V).unwrap().fenced);
}
