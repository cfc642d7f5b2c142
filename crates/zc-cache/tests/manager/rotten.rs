//! Dirty data that rots on the cache device: what later writes replace, and what nothing does.

use zc_cache::seam::Event;
use zc_core::{Ack, ErrorKind};

use zc_cache::config::{VolumeConfig, WriteBackConfig};

use crate::world::{Shape, V, World, noise};
use crate::write_back::{E, Twin, write_back};

/// Spoils what the device holds of these bytes, which do not compress. Mends it, when it is called again.
fn rot(world: &mut World, bytes: &[u8]) {
    let found = (0..world.slots()).find(|slot| {
        let slot = world.slot_bytes(zc_core::WeuSlot(*slot));
        let at = slot.windows(63).position(|window| window == &bytes[1..64]);
        at.map(|at| slot[at - 1] ^= 1).is_some()
    });
    assert!(found.is_some(), "they are on the device");
}

fn wait(t: &mut Twin, ms: u64) {
    (0..ms / 100).for_each(|_| t.world.tick(100));
}

/// Flushed and rotten at 0, flushed at 2; what readers of the rotten extent are owed is `twin`.
fn rotten(shape: Shape) -> Twin {
    let mut t = Twin::new(shape);
    t.write(0, &noise(1, 8192));
    t.write(2 * E, &noise(2, 8192));
    t.flush();
    t
}

#[test]
fn a_rotten_version_that_a_later_flush_covers_is_left_out() {
    let mut t = rotten(Shape::default());
    t.write(E, &noise(3, 8192));
    t.flush();
    t.write(0, &noise(4, 4096));
    t.flush();
    t.write(4096, &noise(5, 4096));
    t.flush();
    t.world = t.world.restart(false);
    rot(&mut t.world, &noise(1, 8192));
    t.check(0, 3 * E);
    t.clean();
    assert!(t.world.origins[&V] == t.twin, "what was written later is on the origin");
    assert_eq!((t.world.stat("dirty_skipped_bytes"), t.world.stat("destage_failures")), (8192, 0));
    t.check(0, 3 * E);
    t.world = t.world.restart(false);
    t.check(0, 3 * E);
    assert_eq!(t.world.manager.dirty(V).unwrap().extents, 0);
}

#[test]
fn what_is_around_a_rotten_version_in_one_write_goes_to_the_origin() {
    let mut t = Twin::new(Shape::default());
    (0..5).for_each(|extent| t.write(extent * E, &noise(10 + extent, 8192)));
    t.flush();
    t.write(E, &noise(20, 8192));
    t.write(3 * E, &noise(21, 8192));
    t.flush();
    t.world = t.world.restart(false);
    rot(&mut t.world, &noise(11, 8192));
    rot(&mut t.world, &noise(13, 8192));
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
    assert_eq!(t.world.stat("dirty_skipped_bytes"), 2 * 8192);
}

#[test]
fn a_rotten_version_that_is_covered_in_part_keeps_its_epoch_and_all_later_ones_off_the_origin() {
    let mut t = rotten(Shape::default());
    t.write(512, &noise(3, 7680));
    t.flush();
    t.write(3 * E, &noise(4, 8192));
    t.flush();
    t.world = t.world.restart(false);
    rot(&mut t.world, &noise(1, 8192));
    t.world.event(Event::Destage { volume: V });
    wait(&mut t, 5000);
    assert_eq!(t.world.stat("epochs_clean"), 0);
    assert!(t.world.origins[&V][3 * 8192..4 * 8192].iter().all(|byte| *byte == 0), "G6");
    assert_eq!(t.world.try_read(V, 0, 512), Err(ErrorKind::Io));
    let state = t.world.manager.dirty(V).unwrap();
    assert_eq!((state.stuck_offset_bytes, state.stuck_bytes), (0, 512), "what nothing covers is named");
    t.write(0, &noise(5, 512));
    t.flush();
    assert_eq!(t.world.manager.dirty(V).unwrap().stuck_bytes, 0);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn what_is_not_committed_covers_nothing() {
    let mut t = Twin::new(Shape::default());
    let settings = WriteBackConfig { ack: Ack::Volatile, ..write_back().write_back };
    t.world.configure(VolumeConfig { write_back: settings, ..write_back() });
    t.write(0, &noise(1, 8192));
    t.flush();
    t.world = t.world.restart(false);
    t.world.configure(VolumeConfig { write_back: settings, ..write_back() });
    rot(&mut t.world, &noise(1, 8192));
    t.world.journal_hangs = true;
    t.write(0, &noise(2, 8192));
    t.world.event(Event::Destage { volume: V });
    wait(&mut t, 5000);
    assert_eq!((t.world.stat("dirty_skipped_bytes"), t.world.stat("epochs_clean")), (0, 0));
    t.world.end_journal_writes(Ok(()));
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn a_step_from_a_gap_to_what_covers_it_is_not_slowed_down() {
    for (spoils, ends) in [(false, false), (true, true)] {
        let mut t = rotten(Shape { destage_bytes_per_s: 1024, ..Shape::default() });
        t.write(5 * E, &noise(3, 65536));
        t.flush();
        t.write(0, &noise(4, 8192));
        t.flush();
        t.world = t.world.restart(false);
        if spoils {
            rot(&mut t.world, &noise(1, 8192));
        }
        wait(&mut t, 20_000);
        let is_clean = t.world.manager.dirty(V).unwrap().extents == 0;
        assert_eq!(is_clean, ends, "{:?}", t.world.manager.dirty(V));
    }
}

/// Destaging meets the rotten extent at 0; behind it lies one that was flushed later, at 3.
fn stuck(shape: Shape) -> Twin {
    let mut t = rotten(shape);
    t.write(3 * E, &noise(4, 8192));
    t.flush();
    t.world = t.world.restart(false);
    rot(&mut t.world, &noise(1, 8192));
    t.world.event(Event::Destage { volume: V });
    wait(&mut t, 5000);
    assert_eq!(t.world.manager.dirty(V).unwrap().unreadable_bytes, 8192);
    t
}

#[test]
fn what_is_given_up_becomes_zeros_and_the_rest_goes_to_the_origin() {
    for crash in [false, true] {
        let mut t = stuck(Shape::default());
        t.write(512, &noise(5, 1024));
        t.world.event(Event::GiveUpUnreadable { volume: V });
        wait(&mut t, 100);
        assert!(!t.world.manager.is_giving_up(V), "{:?}", t.world.manager.dirty(V));
        t.twin[..512].fill(0);
        t.twin[1536..8192].fill(0);
        assert_eq!(
            t.world.stat("dirty_given_up_bytes"),
            8192 - 1024,
            "what was written anew is not given up"
        );
        t.hears_of_loss();
        t.flush();
        if crash {
            t.world = t.world.restart(false);
        }
        t.check(0, 4 * E);
        t.clean();
        assert!(t.world.origins[&V] == t.twin, "crash: {crash}");
        t.check(0, 4 * E);
    }
}

#[test]
fn nothing_is_given_up_where_everything_can_be_read() {
    let mut t = rotten(Shape::default());
    t.world.event(Event::GiveUpUnreadable { volume: V });
    wait(&mut t, 100);
    assert!(!t.world.manager.is_giving_up(V) && !t.world.manager.owes_loss(V));
    t.check(0, 4 * E);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn without_room_a_write_of_what_cannot_be_read_is_let_in_and_makes_some() {
    let mut t = stuck(Shape::default());
    let bytes = t.twin.len() as u64;
    let mut refused = None;
    for at in (4 * E..bytes).step_by(8192) {
        let data = noise(100 + at, 8192);
        let req = t.world.submit_write(V, at, &data);
        t.world.tick(10);
        match t.world.replies.remove(&req).expect("an answer").0 {
            Ok(()) => {
                let at = usize::try_from(at).unwrap();
                t.twin[at..at + 8192].copy_from_slice(&data);
            }
            Err(error) => {
                refused = Some((at, error));
                break;
            }
        }
    }
    let (at, error) = refused.expect("there is no room for ever");
    assert_eq!(error, ErrorKind::Io);
    let useless = t.world.submit_write(V, at, &noise(7, 8192));
    t.write(0, &noise(8, 8192));
    assert_eq!(t.world.replies.remove(&useless).expect("an answer").0, Err(ErrorKind::Io));
    t.flush();
    t.clean();
    t.check(0, 4 * E);
    let taken = ..usize::try_from(at).unwrap();
    assert!(t.world.origins[&V][taken] == t.twin[taken], "all that was taken in is on the origin");
}

#[test]
fn a_scrub_tells_of_rot_before_destaging_meets_it_and_reads_nothing_twice() {
    let mut t = rotten(Shape { scrub_interval_ms: 2000, idle_ms: 3_600_000, ..Shape::default() });
    t.world = t.world.restart(false);
    wait(&mut t, 4100);
    let first = t.world.stat("dirty_scrubbed_bytes");
    assert_eq!((first, t.world.stat("dirty_unreadable")), (2 * 2 * 8192, 0), "two passes over two extents");
    rot(&mut t.world, &noise(1, 8192));
    wait(&mut t, 4000);
    let state = t.world.manager.dirty(V).unwrap();
    assert_eq!((state.stuck_offset_bytes, state.stuck_bytes, state.unreadable_bytes), (0, 8192, 8192));
    assert_eq!((t.world.stat("dirty_unreadable"), t.world.stat("destage_failures")), (1, 0), "told once");
    assert_eq!(t.world.stat("dirty_scrubbed_bytes") - first, 2 * 8192);
    t.write(0, &noise(3, 8192));
    t.flush();
    assert_eq!(t.world.manager.dirty(V).unwrap().unreadable_bytes, 0);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn what_can_be_read_again_is_not_given_up() {
    for by_scrub in [true, false] {
        let interval = if by_scrub { 2000 } else { 0 };
        let mut t = rotten(Shape { scrub_interval_ms: interval, idle_ms: 3_600_000, ..Shape::default() });
        t.world = t.world.restart(false);
        rot(&mut t.world, &noise(1, 8192));
        if !by_scrub {
            t.world.event(Event::Destage { volume: V });
        }
        wait(&mut t, 2100);
        assert_eq!(t.world.manager.dirty(V).unwrap().unreadable_bytes, 8192);
        // What failed was not the medium.
        rot(&mut t.world, &noise(1, 8192));
        t.world.origin_flushes_hang = true;
        wait(&mut t, 17_000);
        assert_eq!(t.world.manager.dirty(V).unwrap().unreadable_bytes, 0, "scrub: {by_scrub}");
        t.world.event(Event::GiveUpUnreadable { volume: V });
        t.world.origin_flushes_hang = false;
        t.world.end_origin_flushes();
        assert!(!t.world.manager.owes_loss(V));
        t.check(0, 4 * E);
        t.clean();
        assert!(t.world.origins[&V] == t.twin);
    }
}
