//! Commits whose extents are damaged later: durable extents are distinguished from those that were cut off, one by one.

use zc_core::{Ack, ErrorKind};

use zc_cache::config::{VolumeConfig, WriteBackConfig};

use crate::world::{Shape, V, W, World, noise, volume};
use crate::write_back::{E, Twin, write_back};

/// Flips a bit of what the device holds of these bytes, which do not compress.
fn damage(world: &mut World, bytes: &[u8]) {
    let found = (0..world.slots()).find(|slot| {
        let slot = world.slot_bytes(zc_core::WeuSlot(*slot));
        let at = slot.windows(63).position(|window| window == &bytes[1..64]);
        at.map(|at| slot[at - 1] ^= 1).is_some()
    });
    assert!(found.is_some(), "they are on the device");
}

/// Reads each extent: those of `lost` fail, the others hold what was written last.
fn check_all_but(t: &mut Twin, extents: u64, lost: &[u64]) {
    for extent in 0..extents {
        if lost.contains(&extent) {
            assert_eq!(t.world.try_read(V, extent * E, E), Err(ErrorKind::Io), "extent {extent}");
        } else {
            t.check(extent * E, E);
        }
    }
}

/// Extents 0 to 8 are flushed, then 0 to 4 with other contents.
fn flushed_twice() -> Twin {
    let mut t = Twin::new(Shape::default());
    (0..8).for_each(|extent| t.write(extent * E, &noise(10 + extent, 8192)));
    t.flush();
    (0..4).for_each(|extent| t.write(extent * E, &noise(20 + extent, 8192)));
    t.flush();
    t
}

#[test]
fn an_idle_device_proves_the_last_commit_so_that_damage_takes_no_other_extent_along() {
    let mut t = flushed_twice();
    t.world.tick(20);
    damage(&mut t.world, &noise(22, 8192));
    t.world = t.world.restart(false);
    check_all_but(&mut t, 8, &[2]);
    assert_eq!(t.world.manager.dirty(V).unwrap().unreadable_bytes, 8192, "status names what a client missed");
    t.flush();
    // Once more: nothing is decided otherwise.
    t.world = t.world.restart(false);
    check_all_but(&mut t, 8, &[2]);
    t.write(2 * E, &noise(30, 8192));
    t.flush();
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn after_a_kill_the_intent_log_proves_what_was_answered() {
    let mut t = flushed_twice();
    damage(&mut t.world, &noise(22, 8192));
    t.world = t.world.restart_killed_with_intents();
    check_all_but(&mut t, 8, &[2]);
    t.flush();
}

#[test]
fn a_commit_that_nothing_proves_and_that_is_not_there_is_left_out_as_a_whole() {
    let mut t = flushed_twice();
    let before: Vec<u8> = (0..8).flat_map(|extent| noise(10 + extent, 8192)).collect();
    damage(&mut t.world, &noise(22, 8192));
    t.world = t.world.restart(false);
    t.twin[..before.len()].copy_from_slice(&before);
    t.check(0, 8 * E);
    t.flush();
}

/// A start that counts a commit because all of it is there shows it to readers: the next start must not undo that.
#[test]
fn a_commit_that_a_start_counted_stays_when_it_is_damaged_later() {
    let mut t = flushed_twice();
    t.world = t.world.restart(false);
    check_all_but(&mut t, 8, &[]);
    damage(&mut t.world, &noise(22, 8192));
    t.world = t.world.restart(false);
    check_all_but(&mut t, 8, &[2]);
}

#[test]
fn a_commit_is_proved_by_one_block_and_by_none_if_another_commit_follows() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &noise(1, 8192));
    t.flush();
    t.world.tick(20);
    let written = |t: &Twin| t.world.stat("journal_bytes_written") / 4096;
    for number in 1..5 {
        let before = written(&t);
        t.write(number * E, &noise(10 + number, 8192));
        t.flush();
        t.world.tick(20);
        t.world.tick(200);
        t.world.tick(200);
        assert_eq!(written(&t) - before, 1, "commit {number}: a summary, and the block that proves it");
    }
    let before = written(&t);
    for number in 0..20 {
        t.write(number % 8 * E, &noise(100 + number, 8192));
        t.flush();
        t.world.tick(2);
    }
    assert!(written(&t) - before <= 2, "{} blocks for 20 commits", written(&t) - before);
}

/// A clean copy of another volume rots, and dirty data of the same content comes then: it does not rely on that copy.
#[test]
fn dirty_data_does_not_share_content_that_rotted_before_it_was_written() {
    for ack in [Ack::Volatile, Ack::Durable] {
        let mut t = Twin::new(Shape::default());
        let settings = WriteBackConfig { ack, ..write_back().write_back };
        t.world.configure(VolumeConfig { write_back: settings, ..write_back() });
        t.world.configure(volume(W, Shape::default().volume_bytes));
        t.world.write(W, 0, &noise(1, 8192));
        (1..40).for_each(|extent| t.world.write(W, extent * E, &noise(50 + extent, 8192)));
        t.world.tick(2000);
        damage(&mut t.world, &noise(1, 8192));
        (0..20).for_each(|extent| t.write(extent * E, &noise(100 + extent, 8192)));
        t.write(20 * E, &noise(1, 8192));
        t.flush();
        t.world.tick(20);
        t.world = t.world.restart(false);
        check_all_but(&mut t, 24, &[]);
        assert_eq!(t.world.stat("dirty_read_failures"), 0, "{ack:?}");
    }
}

/// A damaged copy within the unit that dirty data fills: memory still has the sound bytes, the device has not.
#[test]
fn dirty_data_does_not_share_a_page_of_the_open_unit_that_rotted_since_it_was_flushed() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &noise(1, 8192));
    t.flush();
    damage(&mut t.world, &noise(1, 8192));
    t.write(5 * E, &noise(1, 8192));
    t.flush();
    t.world.tick(20);
    t.world = t.world.restart(false);
    check_all_but(&mut t, 8, &[0]);
}

#[test]
fn dirty_data_shares_what_is_sound_and_reads_it_first() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &noise(1, 8192));
    t.flush();
    t.write(5 * E, &noise(1, 8192));
    t.write(6 * E, &noise(2, 8192));
    t.write(7 * E, &noise(2, 8192));
    t.flush();
    assert_eq!(t.world.stat("dirty_shared"), 2);
    assert_eq!(t.world.stat("dirty_proofs"), 1, "what goes to the device with the same commit is not read");
}
