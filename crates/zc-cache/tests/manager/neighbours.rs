//! Room for dirty data beside a volume whose origin has no space, is slow or refuses.

use zc_cache::config::{FULL_WAIT_MS_DEFAULT, VolumeConfig};
use zc_cache::seam::RequestKind;
use zc_core::{ErrorKind, Mode, VolumeId};

use crate::world::{Shape, V, W, World};
use crate::write_back::{E, extents, write_back};

const DISCARD: RequestKind = RequestKind::WriteZeroes { no_hole: false, fua: false };
const TRIM: RequestKind = RequestKind::Trim { fua: false };

/// A cache of 64 small units, with two volumes in write-back, or one.
fn world(volumes: usize) -> World {
    let mut world = World::new(Shape { slots: 64, weu_bytes: 64 << 10, ..Shape::default() });
    for id in [W, V].into_iter().take(volumes) {
        world.configure(VolumeConfig { id, ..write_back() });
    }
    world
}

/// Writes one extent after the other until one has to wait; the requests, of which the last waits. Ticks pass between.
fn fill(world: &mut World, volume: VolumeId) -> Vec<u64> {
    let mut requests = Vec::new();
    for number in 0..400 {
        let req = world.submit_write(volume, number * E, &extents(1000 + number, 1));
        requests.push(req);
        (0..3).for_each(|_| world.tick(10));
        if !world.replies.contains_key(&req) {
            return requests;
        }
    }
    panic!("no write has to wait");
}

/// The answer to a request, which comes within so many ticks of 10 ms.
fn answer(world: &mut World, req: u64, ticks: u64) -> Result<(), ErrorKind> {
    for _ in 0..ticks {
        if let Some((result, _)) = world.replies.remove(&req) {
            return result;
        }
        world.tick(10);
    }
    world.replies.remove(&req).expect("the request is answered in time").0
}

/// A volume overwrites its own blocks without an end in sight, in small and large writes; each is answered soon.
fn keeps_writing(world: &mut World, volume: VolumeId) {
    for round in 0..200 {
        let (at, count) = (round * 7 % 120, if round % 5 == 0 { 8 } else { 1 });
        let req = world.submit_write(volume, at * E, &extents(round, count));
        assert_eq!(answer(world, req, 30), Ok(()), "write {round}");
        if round % 16 == 0 {
            let req = world.submit(volume, 0, 0, RequestKind::Flush);
            assert_eq!(answer(world, req, 30), Ok(()), "flush {round}");
        }
    }
}

fn is_clean(world: &mut World, volume: VolumeId) {
    world.event(zc_cache::seam::Event::Destage { volume });
    for _ in 0..4000 {
        if world.manager.dirty(volume).unwrap().bytes == 0 {
            return;
        }
        world.tick(10);
    }
    panic!("not clean: {:?}", world.manager.dirty(volume));
}

#[test]
fn a_volume_keeps_writing_beside_one_whose_origin_has_no_space() {
    let mut world = world(2);
    world.full = Some((W, u64::MAX));
    let theirs = fill(&mut world, W);
    assert!(world.manager.dirty(W).unwrap().no_space);
    keeps_writing(&mut world, V);
    let refused = *theirs.last().unwrap();
    assert_eq!(answer(&mut world, refused, FULL_WAIT_MS_DEFAULT / 10 + 10), Err(ErrorKind::NoSpace));
    // What was acknowledged is kept; further writes fail at once, and the neighbour goes on.
    let req = world.submit_write(W, 390 * E, &extents(7, 1));
    assert_eq!(answer(&mut world, req, 1), Err(ErrorKind::NoSpace));
    for number in 0..theirs.len() as u64 - 1 {
        assert!(world.read_any(W, number * E, E) == extents(1000 + number, 1), "extent {number}");
    }
    keeps_writing(&mut world, V);
    is_clean(&mut world, V);
    // With space everything goes on.
    world.full = None;
    is_clean(&mut world, W);
    let req = world.submit_write(W, 390 * E, &extents(7, 1));
    assert_eq!(answer(&mut world, req, 1), Ok(()));
    world.stop();
}

#[test]
fn a_volume_waits_for_its_own_origin_alone_beside_one_whose_origin_is_slow() {
    let mut world = world(2);
    world.slow = Some(W);
    let theirs = fill(&mut world, W);
    keeps_writing(&mut world, V);
    assert!(!world.replies.contains_key(theirs.last().unwrap()), "its origin has not answered");
    is_clean(&mut world, V);
    world.end_origin_writes();
    for req in theirs {
        assert_eq!(answer(&mut world, req, 200), Ok(()), "a slow origin is no reason to fail");
    }
    world.stop();
}

#[test]
fn a_volume_keeps_writing_beside_one_that_takes_back_what_its_origin_refused() {
    let mut world = world(2);
    world.full = Some((W, u64::MAX));
    // Their small writes lie between ours in the same units.
    for number in 0..100 {
        let _theirs = world.submit_write(W, number * E, &extents(5000 + number, 1));
        let ours = world.submit_write(V, number * E, &extents(number, 1));
        assert_eq!(answer(&mut world, ours, 30), Ok(()), "write {number}");
    }
    keeps_writing(&mut world, V);
    world.full = None;
    is_clean(&mut world, W);
    world.stop();
}

#[test]
fn one_volume_alone_has_all_room_and_then_fails_with_no_space() {
    let mut world = world(1);
    world.full = Some((W, u64::MAX));
    let requests = fill(&mut world, W);
    let waiting = *requests.last().unwrap();
    assert!(requests.len() > 64, "half of 64 units of 64 KiB have room for {} extents", requests.len());
    (0..FULL_WAIT_MS_DEFAULT / 10 - 100).for_each(|_| world.tick(10));
    assert!(!world.replies.contains_key(&waiting), "it waits as long as it may");
    assert_eq!(answer(&mut world, waiting, 110), Err(ErrorKind::NoSpace));
    world.stop();
}

#[test]
fn what_is_discarded_reaches_an_origin_without_space_before_what_it_refuses() {
    for (kind, is_dirty) in [(TRIM, false), (DISCARD, false), (TRIM, true), (DISCARD, true)] {
        let mut world = world(1);
        let old = extents(1, 100);
        world.origins.get_mut(&W).unwrap()[..old.len()].copy_from_slice(&old);
        world.full = Some((W, 8 * E));
        // Over the old data, beside it, and all flushed.
        let first = if is_dirty { 0 } else { 100 };
        let mut requests = Vec::new();
        for number in first..400 {
            requests.push(world.submit_write(W, number * E, &extents(1000 + number, 1)));
            (0..3).for_each(|_| world.tick(10));
            if !world.replies.contains_key(requests.last().unwrap()) {
                break;
            }
        }
        let waiting = *requests.last().unwrap();
        let flush = world.submit(W, 0, 0, RequestKind::Flush);
        assert_eq!(answer(&mut world, flush, 30), Ok(()));
        assert!(world.full.is_some() && world.manager.dirty(W).unwrap().no_space);
        let discard = world.submit(W, 8 * E, 8 * E, kind);
        assert_eq!(answer(&mut world, discard, 10), Ok(()), "it waits behind no write");
        assert!(world.read_any(W, 8 * E, 8 * E).iter().all(|byte| *byte == 0));
        assert_eq!(answer(&mut world, waiting, 500), Ok(()), "{kind:?}: there is room again");
        assert!(world.full.is_none());
        assert_eq!(world.stat("discarded_ahead_bytes"), if is_dirty { 8 * E } else { 0 });
        is_clean(&mut world, W);
        let origin = &world.origins[&W];
        let at = |extent: u64| usize::try_from(extent * E).unwrap();
        assert!(origin[at(8)..at(16)].iter().all(|byte| *byte == 0), "and what was discarded stays so");
        for (number, _) in (first..).zip(&requests).filter(|(number, _)| !(8..16).contains(number)) {
            assert!(origin[at(number)..at(number + 1)] == extents(1000 + number, 1)[..], "extent {number}");
        }
        world.stop();
    }
}

#[test]
fn what_was_discarded_and_written_anew_is_kept_while_the_origin_has_no_space() {
    let mut world = world(1);
    world.full = Some((W, 16 * E));
    for (round, kind) in [(0, None), (1, Some(TRIM)), (2, None), (3, Some(DISCARD))] {
        match kind {
            None => world.write(W, 0, &extents(10 + round, 16)),
            Some(kind) => {
                let req = world.submit(W, round * 4 * E, 4 * E, kind);
                assert_eq!(answer(&mut world, req, 10), Ok(()));
            }
        }
        let flush = world.submit(W, 0, 0, RequestKind::Flush);
        assert_eq!(answer(&mut world, flush, 10), Ok(()));
        (0..100).for_each(|_| world.tick(50));
    }
    let mut expected = extents(12, 16);
    let at = |extent: u64| usize::try_from(extent * E).unwrap();
    expected[at(12)..at(16)].fill(0);
    assert!(world.read_any(W, 0, 16 * E) == expected);
    world = world.restart(false);
    assert!(world.read_any(W, 0, 16 * E) == expected, "after a power cut");
    world.full = None;
    is_clean(&mut world, W);
    assert!(world.origins[&W][..at(16)] == expected[..]);
    world.stop();
}

#[test]
fn a_write_that_waits_for_a_mode_change_fails_when_the_origin_has_no_space_for_long() {
    let mut world = world(1);
    world.full = Some((W, u64::MAX));
    let first = world.submit_write(W, 0, &extents(1, 2));
    assert_eq!(answer(&mut world, first, 1), Ok(()));
    // The volume leaves write-back with so little dirty data that new writes wait until it is clean.
    world.configure(VolumeConfig { id: W, mode: Mode::WriteThrough, ..write_back() });
    let waiting = world.submit_write(W, 8 * E, &extents(2, 1));
    (0..FULL_WAIT_MS_DEFAULT / 10 - 100).for_each(|_| world.tick(10));
    assert!(!world.replies.contains_key(&waiting), "it waits as long as it may");
    let trim = world.submit(W, 20 * E, E, TRIM);
    assert_eq!(answer(&mut world, trim, 30), Ok(()), "a trim may make space, so it does not wait");
    assert_eq!(answer(&mut world, waiting, 110), Err(ErrorKind::NoSpace));
    assert!(world.read_any(W, 0, 2 * E) == extents(1, 2), "what was acknowledged is kept");
    world.full = None;
    is_clean(&mut world, W);
    world.stop();
}
