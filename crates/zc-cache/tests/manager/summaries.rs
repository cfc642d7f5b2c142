//! Commits in one write: what a restart finds of them, and what it does when a part is lost.

use zc_cache::config::VolumeConfig;
use zc_cache::seam::RequestKind;
use zc_core::{ErrorKind, WeuSlot};

use crate::world::{V, W, World};
use crate::write_back::{E, Twin, extents, write_back};

const PAGE: usize = 4096;
const TRAILER: usize = 64;

/// Where the device has summaries: slot and first byte of the page, in the order of their pages.
fn summaries(world: &mut World) -> Vec<(WeuSlot, usize)> {
    let mut found = Vec::new();
    for slot in (0..world.slots()).map(WeuSlot) {
        let pages = world.slot_bytes(slot).chunks(PAGE).enumerate();
        let ends_so = pages.filter(|(_, page)| page[PAGE - TRAILER..].starts_with(b"zcSm"));
        found.extend(ends_so.map(|(page, _)| (slot, page * PAGE)));
    }
    found
}

/// One flush into a journal block, then `count` into summaries; the states after each of these.
fn flushed(count: u64) -> (Twin, Vec<Vec<u8>>) {
    let mut t = Twin::new(crate::Shape::default());
    t.write(0, &extents(1, 1));
    t.flush();
    let mut states = vec![t.twin.clone()];
    for number in 1..=count {
        t.write(number * E, &extents(number + 1, 1));
        t.flush();
        states.push(t.twin.clone());
    }
    assert_eq!(t.world.stat("epochs_committed_by_summary"), count);
    assert_eq!(summaries(&mut t.world).len(), usize::try_from(count).unwrap());
    (t, states)
}

#[test]
fn a_flush_is_one_write_once_the_journal_names_the_unit() {
    let (mut t, _) = flushed(0);
    let count = |t: &Twin| {
        let stats = ["journal_bytes_written", "device_flushes", "weu_bytes_written"];
        stats.map(|name| t.world.stat(name))
    };
    for number in 1..20 {
        let [journal, flushes, units] = count(&t);
        t.write(number * E, &extents(number + 1, 1));
        t.flush();
        // Half of an extent, its header and the summary.
        assert_eq!(count(&t), [journal, flushes, units + 8192], "flush {number}");
    }
    t.world = t.world.restart(false);
    t.check(0, 32 * E);
    assert!(t.world.stat("journal_bytes_written") > 0, "the journal repeats them");
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn a_block_takes_what_summaries_told_and_a_new_chain_begins() {
    let (mut t, _) = flushed(0);
    let mut blocks = 0;
    for number in 1..300 {
        let before = t.world.stat("journal_bytes_written");
        t.write(number % 30 * E, &extents(number + 1, 1));
        t.flush();
        blocks += u64::from(t.world.stat("journal_bytes_written") > before);
        if number % 50 == 0 {
            t.world = t.world.restart(false);
            t.check(0, 32 * E);
        }
    }
    assert!((3..60).contains(&blocks), "{blocks} blocks for 300 flushes");
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

/// Units fill up and blocks become due at any of them.
#[test]
fn a_restart_after_any_number_of_flushes_finds_all_of_them() {
    for count in 0..100 {
        let mut t = Twin::new(crate::Shape::default());
        for number in 0..count {
            t.write(number % 30 * E, &extents(number + 1, 1));
            t.flush();
        }
        t.world = t.world.restart(false);
        t.check(0, 32 * E);
    }
}

#[test]
fn a_clean_stop_leaves_nothing_to_summaries() {
    let (mut t, _) = flushed(5);
    t.world.stop();
    for (slot, at) in summaries(&mut t.world) {
        t.world.slot_bytes(slot)[at + PAGE - TRAILER..at + PAGE].fill(0);
    }
    t.world = t.world.restart(true);
    assert!(!t.world.manager.dirty(V).unwrap().fenced);
    t.check(0, 8 * E);
}

/// Or a crash after an answer could decide otherwise, if the summaries are lost in it.
#[test]
fn requests_wait_until_the_journal_repeats_what_summaries_told() {
    let (mut t, _) = flushed(5);
    t.world = t.world.restart_hanging();
    let req = t.world.submit_read(V, E, E);
    assert!(!t.world.replies.contains_key(&req), "answered before what it rests on is in the journal");
    let len = usize::try_from(E).unwrap();
    t.world.end_journal_writes(Ok(()));
    let (result, bytes) = t.world.replies.remove(&req).expect("answered");
    assert_eq!(result, Ok(()));
    assert!(bytes.is_some_and(|bytes| bytes == t.twin[len..2 * len]));
}

#[test]
fn the_last_summary_that_is_torn_was_never_answered() {
    let (mut t, states) = flushed(4);
    let (slot, at) = summaries(&mut t.world)[3];
    t.world.slot_bytes(slot)[at + PAGE - 512..at + PAGE].fill(0);
    t.world = t.world.restart(false);
    assert!(!t.world.manager.dirty(V).unwrap().fenced);
    t.twin = states[3].clone();
    t.check(0, 8 * E);
}

#[test]
fn a_summary_that_is_lost_before_others_fences_the_volume() {
    let (mut t, _) = flushed(4);
    let (slot, at) = summaries(&mut t.world)[1];
    t.world.slot_bytes(slot)[at + PAGE - 512..at + PAGE].fill(0);
    t.world = t.world.restart(false);
    assert!(t.world.manager.dirty(V).unwrap().fenced);
    assert_eq!(t.world.try_read(V, 4 * E, E), Err(ErrorKind::Io));
}

/// Whether the last commit was acknowledged is unknown; the one before was, or there would be no last one.
#[test]
fn an_extent_that_is_lost_beside_its_summary_takes_the_last_commit_along_and_no_other() {
    for (number, replayed) in [(3, 4), (2, 5)] {
        let (mut t, states) = flushed(4);
        let (slot, at) = summaries(&mut t.world)[number];
        t.world.slot_bytes(slot)[at - PAGE + 200] ^= 1;
        t.world = t.world.restart(false);
        assert_eq!(t.world.manager.dirty(V).unwrap().extents, replayed);
        if number == 3 {
            t.twin = states[3].clone();
            t.check(0, 8 * E);
        } else {
            assert_eq!(t.world.try_read(V, 3 * E, E), Err(ErrorKind::Io), "known to be dirty, and lost");
            t.check(4 * E, 4 * E);
        }
    }
}

/// While a summary of V is being written, W commits content that a clean unit has, and V asks for more flushes.
/// Returns the slot of that unit, what W's flush is, and the last flush of V.
fn committed_beside_a_summary(t: &mut Twin) -> (WeuSlot, u64, u64) {
    t.world.write(W, 0, &extents(9, 1));
    t.world.tick(2000);
    let mut slots = (0..t.world.slots()).map(WeuSlot);
    let clean =
        slots.find(|slot| t.world.slot_bytes(*slot).iter().any(|byte| *byte != 0)).expect("a clean unit");
    t.world.configure(VolumeConfig { id: W, ..write_back() });
    t.write(0, &extents(1, 1));
    t.flush();
    t.world.parts = Some(std::collections::VecDeque::new());
    t.write(E, &extents(2, 1));
    t.world.submit(V, 0, 0, RequestKind::Flush);
    t.world.write(W, 4 * E, &extents(9, 1));
    let shared = t.world.submit(W, 0, 0, RequestKind::Flush);
    assert_eq!(t.world.stat("dirty_shared"), 1);
    t.write(2 * E, &extents(3, 1));
    let last = t.world.submit(V, 0, 0, RequestKind::Flush);
    (clean, shared, last)
}

/// A summary that follows says that the commits before it are complete: it must not say so of one that waits for a flush.
#[test]
fn no_summary_vouches_for_a_commit_that_waits_for_a_flush() {
    let mut t = Twin::new(crate::Shape::default());
    let (clean, shared, _) = committed_beside_a_summary(&mut t);
    t.world.journal_hangs = true;
    for number in 3..6 {
        t.write(number * E, &extents(number + 1, 1));
        t.world.submit(V, 0, 0, RequestKind::Flush);
        if t.world.parts.as_ref().is_some_and(|parts| !parts.is_empty()) {
            t.world.end_part();
        }
    }
    assert!(!t.world.replies.contains_key(&shared), "no flush of the device was asked for");
    // The power goes, and with it the unit that was never flushed.
    t.world.slot_bytes(clean).fill(0);
    t.world = t.world.restart(false);
    let read = t.world.try_read(W, 4 * E, E);
    assert!(read.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)), "what was there before is readable");
    assert_eq!(t.world.manager.dirty(W).unwrap().extents, 0);
}

#[test]
fn a_commit_that_waits_for_a_flush_is_not_starved_by_summaries() {
    let mut t = Twin::new(crate::Shape::default());
    let (_, shared, last) = committed_beside_a_summary(&mut t);
    t.world.end_part();
    let answer = t.world.replies.remove(&shared).expect("the next piece of V does not go first");
    assert_eq!(answer.0, Ok(()));
    t.world.end_part();
    assert_eq!(t.world.replies.remove(&last).expect("answered").0, Ok(()));
}
