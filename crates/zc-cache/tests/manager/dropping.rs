//! Dirty data that an operator gives up: what waits for that, what it takes along, and what it does not.

use zc_cache::config::{VolumeConfig, WriteBackConfig};
use zc_cache::seam::{Event, RequestKind};
use zc_core::{Ack, ErrorKind, Mode};

use crate::world::{Shape, V, noise, volume};
use crate::write_back::{E, Twin, extents, write_back};

/// Acknowledged in memory, with a flushed write to be dropped and the journal hanging.
fn dropping() -> Twin {
    let mut t = Twin::new(Shape::default());
    t.world.configure(VolumeConfig {
        write_back: WriteBackConfig { ack: Ack::Volatile, ..write_back().write_back },
        ..write_back()
    });
    t.write(0, &extents(1, 1));
    t.flush();
    t.world.journal_hangs = true;
    t.world.event(Event::DropDirty { volume: V, remembered: false });
    t
}

#[test]
fn requests_wait_until_the_device_knows_that_dirty_data_was_dropped() {
    let mut t = dropping();
    let data = extents(2, 1);
    let req = t.world.submit_write(V, E, &data);
    assert!(!t.world.replies.contains_key(&req), "a crash now would bring back what was dropped");
    assert!(t.world.manager.is_dropping(V));
    t.world.end_journal_writes(Ok(()));
    assert!(!t.world.manager.is_dropping(V) && !t.world.manager.dirty(V).unwrap().fenced);
    assert_eq!(t.world.replies.remove(&req).expect("the write goes on").0, Ok(()));
    t.hears_of_loss();
    t.flush();
    t.world = t.world.restart(false);
    t.twin.fill(0);
    t.twin[8 << 10..16 << 10].copy_from_slice(&data);
    t.check(0, 3 * E);
}

#[test]
fn a_loss_that_was_told_otherwise_fails_no_flush() {
    let mut t = dropping();
    t.world.end_journal_writes(Ok(()));
    assert!(t.world.manager.owes_loss(V));
    t.world.manager.loss_is_told(V);
    t.flush();
}

#[test]
fn a_flush_after_a_drop_takes_what_was_destaged_before_it() {
    for fails in [false, true] {
        let mut t = Twin::new(Shape::default());
        t.write(0, &extents(1, 1));
        t.flush();
        t.world.origin_flushes_fail = true;
        t.world.event(Event::Destage { volume: V });
        assert!(
            t.world.origins[&V] == t.twin && t.world.stat("destage_failures") == 1,
            "written, not flushed"
        );
        t.world.event(Event::DropDirty { volume: V, remembered: false });
        t.world.origin_flushes_fail = fails;
        t.world.origin_flushes_hang = true;
        let flush = t.world.submit(V, 0, 0, RequestKind::Flush);
        assert!(!t.world.replies.contains_key(&flush), "readers see what a power cut would take");
        t.world.end_origin_flushes();
        // The first flush reports that writes are lost, whatever the origin returns.
        assert_eq!(t.world.replies.remove(&flush).expect("an answer").0, Err(ErrorKind::Io));
        t.world.origin_flushes_hang = false;
        let next = t.world.submit(V, 0, 0, RequestKind::Flush);
        let answer = if fails { Err(ErrorKind::Io) } else { Ok(()) };
        assert_eq!(t.world.replies.remove(&next).expect("an answer").0, answer);
    }
}

#[test]
fn a_loss_of_what_was_destaged_before_a_drop_is_told() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 1));
    t.flush();
    t.world.origin_flushes_fail = true;
    t.world.event(Event::Destage { volume: V });
    t.world.event(Event::DropDirty { volume: V, remembered: false });
    // Marks of regions that are not written any more go, with a flush of our own.
    (0..30).for_each(|_| t.world.tick(100));
    t.world.origin_flushes_fail = false;
    let flush = t.world.submit(V, 0, 0, RequestKind::Flush);
    assert_eq!(t.world.replies.remove(&flush).expect("an answer").0, Err(ErrorKind::Io));
    t.flush();
}

/// A write that is larger than the room there is, of which a part was taken in, while the origin does not flush.
fn waiting_for_room() -> (Twin, u64, Vec<u8>) {
    let mut t = Twin::new(Shape::default());
    t.flush();
    t.world.origin_flushes_fail = true;
    let data = noise(9, 3 << 20);
    let write = t.world.submit_write(V, E, &data);
    assert!(!t.world.replies.contains_key(&write) && t.world.manager.dirty(V).unwrap().bytes > 0);
    (t, write, data)
}

#[test]
fn a_write_that_waits_while_its_volume_is_dropped_begins_again() {
    let (mut t, write, data) = waiting_for_room();
    t.world.event(Event::DropDirty { volume: V, remembered: false });
    t.world.origin_flushes_fail = false;
    (0..300).for_each(|_| t.world.tick(100));
    assert_eq!(t.world.replies.remove(&write).expect("there is room").0, Ok(()));
    let at = usize::try_from(E).unwrap();
    t.twin[at..at + data.len()].copy_from_slice(&data);
    t.check(0, 4 << 20);
}

#[test]
fn a_drop_does_not_wait_for_the_rest_of_a_run() {
    let mut t = Twin::new(Shape { destage_bytes_per_s: 8 << 10, ..Shape::default() });
    for at in 0..16 {
        t.write(at * 3 * E, &extents(at + 1, 1));
    }
    t.flush();
    let begun = |t: &Twin| t.world.stat("destage_writes") > 0;
    (0..100).for_each(|_| {
        if !begun(&t) {
            t.world.tick(100);
        }
    });
    let before = t.world.stat("destage_writes");
    assert!((1..16).contains(&before), "{before}: it is under way");
    t.world.event(Event::DropDirty { volume: V, remembered: false });
    assert!(!t.world.manager.is_dropping(V) && t.world.stat("destage_writes") == before);
    t.twin.copy_from_slice(&t.world.origins[&V]);
    t.check(0, 4 << 20);
}

/// A commit that hangs, and a drop that waits for its end.
pub(crate) fn dropping_behind_a_commit() -> (Twin, u64) {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 1));
    t.world.journal_hangs = true;
    let flush = t.world.submit(V, 0, 0, RequestKind::Flush);
    t.world.event(Event::DropDirty { volume: V, remembered: false });
    assert!(t.world.manager.is_dropping(V) && !t.world.replies.contains_key(&flush));
    (t, flush)
}

#[test]
fn what_comes_after_a_drop_is_not_dropped() {
    let (mut t, flush) = dropping_behind_a_commit();
    let data = extents(2, 1);
    let write = t.world.submit_write(V, E, &data);
    let second = t.world.submit(V, 0, 0, RequestKind::Flush);
    assert!(!t.world.replies.contains_key(&write), "it would be dropped");
    t.world.end_journal_writes(Ok(()));
    t.world.tick(100);
    for req in [flush, write] {
        assert_eq!(t.world.replies.remove(&req).expect("an answer").0, Ok(()));
    }
    let answer = t.world.replies.remove(&second).expect("an answer").0;
    assert_eq!(answer, Err(ErrorKind::Io), "it hears of what was dropped");
    t.flush();
    t.twin.fill(0);
    t.twin[8 << 10..16 << 10].copy_from_slice(&data);
    t.check(0, 3 * E);
    t.world = t.world.restart(false);
    t.check(0, 3 * E);
}

#[test]
fn a_drop_ends_when_the_device_fails_before_it_could_begin() {
    let (mut t, flush) = dropping_behind_a_commit();
    let write = t.world.submit_write(V, E, &extents(2, 1));
    t.world.end_journal_writes(Err(ErrorKind::Io));
    assert!(!t.world.manager.is_dropping(V) && t.world.manager.dirty(V).unwrap().fenced);
    for req in [flush, write] {
        assert_eq!(t.world.replies.remove(&req).expect("an answer").0, Err(ErrorKind::Io));
    }
}

#[test]
fn a_drop_that_the_device_never_learnt_of_leaves_the_volume_fenced() {
    let mut t = dropping();
    let req = t.world.submit_write(V, 0, &extents(2, 1));
    t.world.end_journal_writes(Err(ErrorKind::Io));
    assert_eq!(t.world.replies.remove(&req).unwrap().0, Err(ErrorKind::Io));
    assert!(!t.world.manager.is_dropping(V) && t.world.manager.dirty(V).unwrap().fenced);
    t.world.event(Event::DropDirty { volume: V, remembered: false });
    assert!(t.world.manager.dirty(V).unwrap().fenced, "the next start would find it");
    t.world.event(Event::DropDirty { volume: V, remembered: true });
    assert!(!t.world.manager.dirty(V).unwrap().fenced);
    t.twin.fill(0);
    t.write(0, &extents(3, 1));
    assert!(t.world.origins[&V] == t.twin, "without its cache the volume is its origin");
}

#[test]
fn a_volume_that_is_known_elsewhere_to_be_clean_is_not_fenced_by_new_settings_when_the_device_fails() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 1));
    t.flush();
    // The state directory says that nothing is dirty: the dirty data was given up without the device.
    let clean = VolumeConfig { mode: Mode::PassThrough, ..volume(V, Shape::default().volume_bytes) };
    let mut world = t.world.restart_hanging_with(&clean);
    let read = world.submit_read(V, 0, E);
    world.configure(clean);
    world.end_journal_writes(Err(ErrorKind::Io));
    assert!(!world.manager.dirty(V).unwrap().fenced);
    world.is_read(read, V, 0);
}

#[test]
fn a_volume_added_as_clean_is_not_fenced_when_the_device_fails_before_it_records_that() {
    for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough] {
        let mut t = Twin::new(Shape::default());
        t.write(0, &extents(1, 1));
        t.flush();
        let mut world = t.world.without(V).restart_hanging();
        // The state directory says that nothing is dirty: the dirty data was given up without the device.
        world.configure(VolumeConfig { mode, ..volume(V, Shape::default().volume_bytes) });
        let read = world.submit_read(V, 0, E);
        let write = world.submit_write(V, E, &extents(2, 1));
        assert!(
            !world.replies.contains_key(&read),
            "{mode:?}: a crash now would bring back what was given up"
        );
        world.end_journal_writes(Err(ErrorKind::Io));
        assert!(!world.manager.dirty(V).unwrap().fenced, "{mode:?}");
        world.is_read(read, V, 0);
        assert_eq!(world.replies.remove(&write).expect("an answer").0, Ok(()), "{mode:?}");
    }
}
