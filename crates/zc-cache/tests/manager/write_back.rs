//! Write-back without faults: what readers get, what the origin has and when, what a restart finds.

use zc_cache::config::{OnLoss, VolumeConfig, WriteBackConfig};
use zc_cache::seam::{Event, RequestKind};
use zc_cache::{OriginLag, Residency};
use zc_core::{Ack, Codec, Destage, ErrorKind, FingerprintKind, Generation, Mode, WeuSeq, WeuSlot};
use zc_format::Record;

use crate::world::{Shape, V, W, World, half, noise, volume};

pub(crate) const E: u64 = 8 << 10;

/// Bytes of whole extents.
pub(crate) fn extents(id: u64, count: usize) -> Vec<u8> {
    half(id, count * (8 << 10))
}

pub(crate) fn write_back() -> VolumeConfig {
    VolumeConfig {
        mode: Mode::WriteBack,
        may_be_dirty: true,
        write_back: WriteBackConfig { max_dirty_age_ms: 3_600_000, ..WriteBackConfig::default() },
        ..volume(V, Shape::default().volume_bytes)
    }
}

/// A world whose first volume writes back; `twin` is what readers must get.
pub(crate) struct Twin {
    pub(crate) world: World,
    pub(crate) twin: Vec<u8>,
}

impl Twin {
    pub(crate) fn new(shape: Shape) -> Self {
        let mut world = World::new(shape);
        world.configure(write_back());
        let twin = world.origins[&V].clone();
        Self { world, twin }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.world.write(V, offset, data);
        let at = usize::try_from(offset).unwrap();
        self.twin[at..at + data.len()].copy_from_slice(data);
    }

    pub(crate) fn check(&mut self, offset: u64, len: u64) {
        let bytes = self.world.read_any(V, offset, len);
        let at = usize::try_from(offset).unwrap();
        assert!(bytes == self.twin[at..at + bytes.len()], "wrong bytes at {offset}+{len}");
    }

    pub(crate) fn flush(&mut self) {
        let req = self.world.submit(V, 0, 0, RequestKind::Flush);
        assert_eq!(self.world.replies.remove(&req).expect("a flush is answered").0, Ok(()));
    }

    /// A flush that fails because acknowledged writes are lost.
    pub(crate) fn hears_of_loss(&mut self) {
        assert!(self.world.manager.owes_loss(V));
        let req = self.world.submit(V, 0, 0, RequestKind::Flush);
        assert_eq!(self.world.replies.remove(&req).expect("a flush is answered").0, Err(ErrorKind::Io));
        assert!(!self.world.manager.owes_loss(V));
    }

    /// A flush, and a journal block that repeats what the flush put into a summary.
    fn flush_into_journal(&mut self) {
        self.flush();
        self.world.tick(100);
    }

    pub(crate) fn clean(&mut self) {
        self.world.event(Event::Destage { volume: V });
        for _ in 0..100 {
            if self.world.manager.dirty(V).unwrap().extents == 0 {
                return;
            }
            self.world.tick(10);
        }
        panic!("not clean: {:?}", self.world.manager.dirty(V));
    }
}

#[test]
fn a_write_is_answered_and_read_back_before_the_origin_has_it() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 2));
    t.write(3 * E + 512, &half(2, 1024));
    t.check(0, 5 * E);
    t.check(3 * E + 1024, 1024);
    assert!(t.world.origins[&V].iter().all(|byte| *byte == 0), "nothing is destaged yet");
    assert_eq!(t.world.manager.dirty(V).unwrap().extents, 3);
    t.flush();
    t.check(0, 5 * E);
    assert!(t.world.origins[&V].iter().all(|byte| *byte == 0));
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
    t.check(0, 5 * E);
    assert_eq!(t.world.stat("promoted"), 2, "whole extents stay where they are");
    let reads = t.world.origin_reads.len();
    t.check(0, 2 * E);
    assert_eq!(t.world.origin_reads.len(), reads, "and are hits");
    t.world.stop();
    assert_eq!(t.world.stopped, Some(true));
}

#[test]
fn what_was_destaged_and_evicted_is_a_hit_again_when_it_comes_back_elsewhere() {
    let mut t = Twin::new(Shape { learned_recipes_bytes: 64 << 10, ..Shape::default() });
    t.world.configure(VolumeConfig { recipes: false, ..write_back() });
    t.world.configure(VolumeConfig { recipes: false, ..volume(W, 4 << 20) });
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    t.write(0, &image);
    t.flush();
    t.clean();
    assert_eq!(t.world.stat("promoted"), 64);
    // Written anew since, and not on the origin.
    t.write(5 * E, &extents(77, 1));
    for round in 0..4 {
        for at in 0..64 {
            let other: Vec<u8> =
                (0..8).flat_map(|n| half(10_000 + round * 1000 + at * 8 + n, 8192)).collect();
            t.world.write(W, at * 8 * E, &other);
        }
        t.world.tick(2000);
    }
    t.world.write(W, 1 << 20, &image);
    t.world.tick(2000);
    t.world.origin_reads.clear();
    t.check(0, 64 * E);
    assert!(t.world.origin_reads.is_empty(), "{:?}", t.world.origin_reads);
    assert!(t.world.stat("recipe_hits_learned") > 40, "most of it was evicted");
    t.world.stop();
}

#[test]
fn newer_writes_hide_older_ones_sector_by_sector() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 1));
    t.flush();
    t.write(1024, &half(2, 2048));
    t.write(512, &half(3, 1024));
    t.check(0, E);
    t.flush();
    t.write(2048, &vec![0; 512]);
    t.write(0, &half(4, 512));
    t.check(0, E);
    t.check(512, 2048);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
    t.check(0, E);
}

#[test]
fn what_was_flushed_is_there_after_a_power_cut_and_what_was_not_is_gone_as_a_whole() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 3));
    t.write(5 * E, &half(2, 512));
    t.flush();
    let flushed = t.twin.clone();
    t.write(E, &extents(3, 1));
    t.check(0, 6 * E);
    t.world = t.world.restart(false);
    t.twin = flushed;
    t.check(0, 6 * E);
    assert_eq!(t.world.manager.dirty(V).unwrap().extents, 4);
    t.write(2 * E, &extents(4, 1));
    t.flush();
    t.world = t.world.restart(false);
    t.check(0, 6 * E);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
    t.world = t.world.restart(false);
    assert_eq!(t.world.manager.dirty(V).unwrap().extents, 0);
    t.check(0, 6 * E);
}

#[test]
fn dirty_data_outlives_a_clean_stop_and_many_checkpoints() {
    let mut t = Twin::new(Shape::default());
    for round in 0..200 {
        t.write((round % 40) * E, &extents(round, 1));
        t.flush_into_journal();
    }
    assert!(t.world.stat("checkpoints") > 0, "the journal has wrapped");
    t.world.stop();
    assert_eq!(t.world.stopped, Some(true));
    t.world = t.world.restart(true);
    t.check(0, 40 * E);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn durable_acknowledgement_survives_without_a_flush() {
    let mut t = Twin::new(Shape::default());
    let durable = WriteBackConfig { ack: Ack::Durable, ..write_back().write_back };
    t.world.configure(VolumeConfig { write_back: durable, ..write_back() });
    t.write(512, &extents(1, 3));
    t.world = t.world.restart(false);
    t.check(0, 4 * E);
}

#[test]
fn dirty_content_that_is_stored_already_is_shared() {
    for kind in [FingerprintKind::Blake3, FingerprintKind::Sha1] {
        let mut t = Twin::new(Shape { kind, ..Shape::default() });
        let data = extents(7, 1);
        t.world.write(W, 0, &data);
        t.world.tick(2000);
        t.write(9 * E, &data);
        t.write(4 * E, &extents(8, 1));
        t.write(5 * E, &extents(8, 1));
        t.flush();
        assert_eq!(t.world.stat("dirty_shared"), 2);
        assert_eq!(t.world.stat("dirty_stored"), 1);
        assert_eq!(t.world.stat("compares"), if kind == FingerprintKind::Sha1 { 2 } else { 0 });
        t.world = t.world.restart(false);
        t.check(0, 10 * E);
        t.clean();
        assert!(t.world.origins[&V] == t.twin);
    }
}

#[test]
fn dirty_content_of_a_weak_hash_is_not_shared_when_bytes_differ() {
    let mut t = Twin::new(Shape { kind: FingerprintKind::Sha1, ..Shape::default() });
    t.world.all_differs = true;
    t.write(0, &extents(1, 1));
    t.write(E, &extents(1, 1));
    t.flush();
    let counts = ["compares_differed", "dirty_shared", "dirty_stored"].map(|name| t.world.stat(name));
    assert_eq!(counts, [1, 0, 2]);
    t.world = t.world.restart(false);
    t.check(0, 2 * E);
}

#[test]
fn zeroing_and_trimming_are_dirty_data_too() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 4));
    t.clean();
    t.write(8 * E, &half(2, 512));
    let zero = RequestKind::WriteZeroes { no_hole: true, fua: true };
    let req = t.world.submit(V, E + 512, 2 * E, zero);
    assert_eq!(t.world.replies.remove(&req).unwrap().0, Ok(()));
    let at = usize::try_from(E + 512).unwrap();
    t.twin[at..at + 2 * usize::try_from(E).unwrap()].fill(0);
    assert!(t.world.origins[&V][at] != 0, "the origin does not know yet");
    t.check(0, 9 * E);
    t.world = t.world.restart(false);
    t.check(0, 9 * E);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn a_small_cache_takes_more_than_it_holds_by_waiting_for_the_origin() {
    let mut t = Twin::new(Shape { slots: 5, weu_bytes: 64 << 10, ..Shape::default() });
    for round in 0..120 {
        let data = extents(round, 2);
        let at = (round * 7 % 250) * E;
        let req = t.world.submit_write(V, at, &data);
        for _ in 0..100 {
            if t.world.replies.contains_key(&req) {
                break;
            }
            t.world.tick(10);
        }
        assert_eq!(t.world.replies.remove(&req).expect("a write is answered").0, Ok(()));
        let start = usize::try_from(at).unwrap();
        t.twin[start..start + data.len()].copy_from_slice(&data);
    }
    assert!(t.world.stat("dirty_waits") > 0 && t.world.stat("epochs_clean") > 1);
    t.check(0, 256 * E);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
    t.world.stop();
}

/// A small world whose first volume has written so often, or until there was no room: after so many writes.
fn filled(writes: u64) -> (World, Option<u64>) {
    let mut world = World::new(Shape { slots: 5, weu_bytes: 64 << 10, ..Shape::default() });
    world.configure(write_back());
    world.configure(VolumeConfig { id: W, ..write_back() });
    let crowded = (0..writes).find(|number| {
        let _req = world.submit_write(V, number * E, &extents(*number, 1));
        world.stat("dirty_waits") > 0
    });
    (world, crowded)
}

/// One whose first volume has taken all the room there is, in an epoch that no flush closes.
fn full() -> World {
    let room = filled(500).1.expect("there is room for so many writes alone");
    let (world, crowded) = filled(room);
    assert_eq!((crowded, world.stat("epochs_closed")), (None, 0));
    world
}

#[test]
fn room_that_another_volume_took_and_did_not_flush_is_made_free() {
    let mut world = full();
    let req = world.submit_write(W, 0, &extents(1000, 12));
    assert!(world.stat("dirty_waits") > 0 && world.stat("epochs_closed") > 0, "room is made at once");
    (0..20).for_each(|_| world.tick(10));
    assert_eq!(world.replies.remove(&req).expect("the write is answered").0, Ok(()));
}

#[test]
fn volumes_that_wait_for_room_take_turns() {
    let mut world = World::new(Shape { slots: 5, weu_bytes: 64 << 10, ..Shape::default() });
    world.configure(write_back());
    world.configure(VolumeConfig { id: W, ..write_back() });
    world.origin_flushes_hang = true;
    let mut number = 0;
    let mut write = |world: &mut World, volume| {
        number += 1;
        world.submit_write(volume, number * E % (1 << 20), &extents(number, 1))
    };
    while world.stat("dirty_waits") == 0 {
        let _req = write(&mut world, V);
    }
    let theirs: Vec<u64> = (0..60).map(|_| write(&mut world, V)).collect();
    // Its reserve is its own; behind that it has to wait as well.
    let mut ours = write(&mut world, W);
    while world.answered.contains(&ours) {
        ours = write(&mut world, W);
    }
    world.end_origin_flushes();
    (0..20).for_each(|_| world.tick(500));
    let at = world.answered.iter().position(|req| *req == ours).expect("the write is answered");
    let before = world.answered[..at].iter().filter(|req| theirs.contains(req)).count();
    assert!(before < 3, "{before} writes of another volume were taken in first");
    assert!(theirs.iter().all(|req| world.answered.contains(req)), "and these go on");
}

#[test]
fn leaving_write_back_brings_everything_to_the_origin_first() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 4));
    t.world.configure(VolumeConfig { mode: Mode::WriteThrough, ..write_back() });
    let data = extents(2, 1);
    let req = t.world.submit_write(V, E, &data);
    for _ in 0..100 {
        t.world.tick(10);
    }
    assert_eq!(t.world.replies.remove(&req).expect("the write went on").0, Ok(()));
    let at = usize::try_from(E).unwrap();
    t.twin[at..at + data.len()].copy_from_slice(&data);
    assert!(t.world.origins[&V] == t.twin, "written through");
    t.check(0, 5 * E);
    t.world.configure(write_back());
    t.write(0, &half(3, 512));
    assert!(t.world.origins[&V] != t.twin);
    t.check(0, 5 * E);
}

#[test]
fn an_epoch_is_not_destaged_before_the_one_it_follows() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &half(1, 512));
    t.flush();
    t.write(E, &half(2, 512));
    t.flush();
    t.write(0, &half(3, 512));
    t.flush();
    t.world.origin_flushes_hang = true;
    t.world.event(Event::Destage { volume: V });
    t.world.tick(100);
    let origin = &t.world.origins[&V];
    assert!(origin[..512] == half(1, 512)[..], "the version that its epoch owes, not the newest");
    let at = usize::try_from(E).unwrap();
    assert!(origin[at..at + 512].iter().all(|byte| *byte == 0), "the next epoch waits for the flush");
    t.check(0, 2 * E);
}

/// What ends the last epoch of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    /// A flush behind an epoch that had ended by itself.
    Flush,
    WriteAndFlush,
    Fua,
    AckDurable,
}

/// Epochs that ended by their size are one run for the origin, up to the first that ended with a flush or with a write
/// that is durable when it is answered.
#[test]
fn what_is_written_over_without_a_flush_between_is_destaged_once() {
    for end in [RunEnd::Flush, RunEnd::WriteAndFlush, RunEnd::Fua, RunEnd::AckDurable] {
        let mut t = Twin::new(Shape { slots: 128, ..Shape::default() });
        let mut id = 0;
        while t.world.stat("epochs_closed") < 2 {
            id += 1;
            t.write(512 * (id % 8), &half(id, 512));
        }
        let mut newest = id - id % 8;
        match end {
            RunEnd::Flush => t.flush(),
            RunEnd::WriteAndFlush => {
                newest = 7000;
                t.write(0, &half(newest, 512));
                t.flush();
            }
            RunEnd::Fua => {
                t.world.submit(V, E * 9, 512, RequestKind::WriteZeroes { no_hole: true, fua: true });
            }
            RunEnd::AckDurable => {
                let settings = WriteBackConfig { ack: Ack::Durable, ..write_back().write_back };
                t.world.configure(VolumeConfig { write_back: settings, ..write_back() });
                t.write(E * 9, &half(7001, 512));
            }
        }
        assert_eq!(t.world.stat("epochs_closed"), if end == RunEnd::Flush { 2 } else { 3 }, "{end:?}");
        t.write(0, &half(8000, 512));
        t.flush();
        assert_eq!((t.world.stat("epochs_clean"), t.world.stat("destage_writes")), (0, 0), "{end:?}");
        t.world.origin_flushes_hang = true;
        t.world.event(Event::Destage { volume: V });
        t.world.tick(100);
        assert!(t.world.origins[&V][..512] == half(newest, 512)[..], "{end:?}: not what was written later");
        let elsewhere = u64::from(matches!(end, RunEnd::Fua | RunEnd::AckDurable));
        assert_eq!(t.world.stat("destaged_bytes"), (8 + elsewhere) * 512, "{end:?}: each place once");
    }
}

#[test]
fn a_gap_in_the_journal_fences_what_may_be_dirty_until_an_operator_accepts_the_loss() {
    let mut t = Twin::new(Shape::default());
    t.world.configure(write_back());
    t.write(0, &extents(1, 1));
    t.flush_into_journal();
    let first = t.world.journal_end();
    t.write(E, &extents(2, 1));
    t.flush_into_journal();
    // A summary after the previous block contains the records that the damaged block repeated.
    let kept = t.twin.clone();
    t.write(2 * E, &extents(3, 1));
    t.flush_into_journal();
    t.write(3 * E, &extents(4, 1));
    t.flush_into_journal();
    t.world.damage_journal_block(first);
    t.world = t.world.restart(false);
    assert!(t.world.manager.dirty(V).unwrap().fenced);
    let req = t.world.submit_write(V, 0, &extents(5, 1));
    assert_eq!(t.world.replies.remove(&req).unwrap().0, Err(ErrorKind::Io));
    t.world.write(W, 0, &extents(6, 1));
    t.world.event(Event::AcceptLoss { volume: V });
    t.twin = kept;
    t.check(0, 5 * E);
    t.write(2 * E, &extents(7, 1));
    t.hears_of_loss();
    t.flush_into_journal();
    t.world = t.world.restart(false);
    assert!(!t.world.manager.dirty(V).unwrap().fenced, "the gap is behind a checkpoint or a new block");
    t.check(0, 5 * E);
}

#[test]
fn what_the_origin_lacks_is_told_as_long_as_it_lacks_it() {
    let mut t = Twin::new(Shape::default());
    let residency = |t: &Twin, offset, len| {
        let mut runs = Vec::new();
        t.world.manager.residency(V, offset, len, &mut runs);
        runs.iter().map(|run| (run.len_bytes, run.residency)).collect::<Vec<_>>()
    };
    assert_eq!(t.world.manager.origin_lag(V), OriginLag::Nothing);
    t.write(E, &extents(1, 1));
    assert_eq!(t.world.manager.origin_lag(V), OriginLag::Dirty);
    let expected = [(E, Residency::OriginOnly), (E, Residency::Dirty), (E, Residency::OriginOnly)];
    assert_eq!(residency(&t, 0, 3 * E), expected);
    t.clean();
    assert_eq!(t.world.manager.origin_lag(V), OriginLag::Nothing);
    assert_eq!(residency(&t, E, E), [(E, Residency::Cached)]);
    // Without its device this is not known.
    let (t, _flush) = crate::dropping::dropping_behind_a_commit();
    assert_eq!(t.world.manager.origin_lag(V), OriginLag::Unknown, "it is being given up");
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 1));
    t.world.journal_hangs = true;
    let _flush = t.world.submit(V, 0, 0, RequestKind::Flush);
    t.world.end_journal_writes(Err(ErrorKind::Io));
    assert_eq!(t.world.manager.origin_lag(V), OriginLag::Unknown);
}

#[test]
fn nothing_is_read_from_the_origin_while_it_is_not_known_what_is_dirty() {
    let mut t = Twin::new(Shape::default());
    let on_loss = OnLoss::ReadOnly;
    t.world.configure(VolumeConfig {
        write_back: WriteBackConfig { on_loss, ..write_back().write_back },
        ..write_back()
    });
    t.write(0, &extents(1, 1));
    t.flush_into_journal();
    let first = t.world.journal_end();
    t.write(E, &extents(2, 1));
    t.flush_into_journal();
    t.write(2 * E, &extents(3, 1));
    t.flush_into_journal();
    t.world.damage_journal_block(first);
    t.world = t.world.restart(false);
    assert!(t.world.manager.dirty(V).unwrap().fenced);
    assert_eq!(t.world.try_read(V, E, E), Err(ErrorKind::Io), "what the gap tells of is not on the origin");
}

#[test]
fn dirty_data_in_a_unit_that_was_replaced_fences_the_volume() {
    for replaced in [false, true] {
        let mut t = Twin::new(Shape::default());
        t.write(0, &extents(1, 1));
        t.flush();
        if replaced {
            // The device lost what calls the epoch clean, and not what came after it.
            let sealed = |slot| Record::SlotSealed {
                slot: WeuSlot(slot),
                generation: Generation(100),
                weu_seq: WeuSeq(1),
                header_bytes: 0,
            };
            t.world.append_journal((0..16).map(sealed).collect());
        }
        t.world = t.world.restart(false);
        assert_eq!(t.world.manager.dirty(V).unwrap().fenced, replaced);
        if replaced {
            t.world.event(Event::AcceptLoss { volume: V });
            assert_eq!(t.world.try_read(V, 0, E), Err(ErrorKind::Io), "its bytes are gone");
        } else {
            t.check(0, E);
        }
    }
}

#[test]
fn a_commit_is_flushed_if_a_piece_it_needs_was_not_written_durably() {
    let mut t = Twin::new(Shape::default());
    let settings =
        WriteBackConfig { ack: Ack::Volatile, max_dirty_age_ms: 4000, ..WriteBackConfig::default() };
    t.world.configure(VolumeConfig { write_back: settings, ..write_back() });
    let durable = WriteBackConfig { ack: Ack::Durable, ..write_back().write_back };
    t.world.configure(VolumeConfig { id: W, write_back: durable, ..write_back() });
    let by_fua = |world: &World| world.stat("epochs_committed_by_fua");
    t.world.journal_hangs = true;
    let first = t.world.submit_write(W, 0, &extents(1, 1));
    t.write(0, &extents(2, 1));
    // No client waits: its piece and its records are written plainly, the records behind the block that hangs.
    t.world.tick(2000);
    let second = t.world.submit_write(W, E, &extents(3, 1));
    let flushes = t.world.stat("device_flushes");
    t.world.end_journal_writes(Ok(()));
    for req in [first, second] {
        assert_eq!(t.world.replies.remove(&req).expect("a durable write").0, Ok(()));
    }
    assert_eq!(t.world.stat("epochs_committed"), 3);
    assert_eq!(by_fua(&t.world), 1, "the second shares a durable block with records of a plain piece");
    assert!(t.world.stat("device_flushes") > flushes, "the piece is flushed");
}

#[test]
fn what_is_clean_is_recorded_with_the_next_commit_or_soon_without_one() {
    let mut t = Twin::new(Shape::default());
    let durable = WriteBackConfig { ack: Ack::Durable, ..write_back().write_back };
    t.world.configure(VolumeConfig { write_back: durable, ..write_back() });
    let blocks = |world: &World| world.stat("journal_bytes_written") / 4096;
    t.world.tick(1000);
    t.write(0, &extents(1, 1));
    let before = blocks(&t.world);
    t.world.event(Event::Destage { volume: V });
    assert_eq!((t.world.stat("epochs_clean"), blocks(&t.world)), (0, before), "it waits for a block");
    t.write(E, &extents(2, 1));
    assert_eq!((t.world.stat("epochs_clean"), blocks(&t.world)), (1, before), "one summary for both");
    assert!(!t.world.manager.dirty(V).unwrap().draining, "the second write came after the request");
    t.world.event(Event::Destage { volume: V });
    for _ in 0..3 {
        t.check(0, 3 * E);
        t.world.tick(5);
    }
    assert_eq!(t.world.stat("epochs_clean"), 2, "no client commits");
    assert!(t.world.origins[&V] == t.twin);
}

/// Where the origin keeps up, what it lacks is not older than it may be, however the writes come.
#[test]
fn the_oldest_dirty_data_keeps_to_its_age() {
    const MAX_MS: u64 = 4000;
    let mut t = Twin::new(Shape { slots: 128, ..Shape::default() });
    let settings = WriteBackConfig { max_dirty_age_ms: MAX_MS, ..WriteBackConfig::default() };
    t.world.configure(VolumeConfig { write_back: settings, ..write_back() });
    let mut ages = Vec::new();
    for step in 0..6000_u64 {
        // Bursts and pauses, all over the volume, some of them flushed.
        if step % 700 < 400 {
            t.write(E * (step * 37 % 512), &extents(step, 1));
        }
        if step % 97 == 0 {
            t.flush();
        }
        t.world.tick(10);
        ages.push(t.world.manager.dirty(V).unwrap().oldest_age_ms);
    }
    ages.sort_unstable();
    assert!(ages[ages.len() * 999 / 1000] <= MAX_MS, "{:?}", ages.last());
    assert!(ages[ages.len() / 2] > MAX_MS / 8, "not destaged at once: {}", ages[ages.len() / 2]);
}

/// Outside a window, silence of clients is no reason to destage. Age, an operator and a need of room are.
#[test]
fn dirty_data_waits_while_it_may_not_be_destaged_idly() {
    let closed =
        || WriteBackConfig { destages_idly: false, max_dirty_age_ms: 100_000, ..WriteBackConfig::default() };
    let mut t = Twin::new(Shape::default());
    t.world.configure(VolumeConfig { write_back: closed(), ..write_back() });
    t.write(0, &extents(1, 2));
    t.flush();
    // What no flush covers wakes the volume when it has to be committed.
    t.write(8 * E, &extents(4, 1));
    (0..400).for_each(|_| t.world.tick(100));
    assert_eq!(t.world.stat("destaged_bytes"), 0, "40 s of silence");
    (0..150).for_each(|_| t.world.tick(100));
    assert_eq!(t.world.stat("destaged_bytes"), 3 * E, "half of its age");
    t.write(0, &extents(2, 2));
    t.flush();
    t.clean();
    assert_eq!(t.world.stat("destaged_bytes"), 5 * E, "an operator");
    t.write(0, &extents(3, 2));
    t.flush();
    (0..100).for_each(|_| t.world.tick(100));
    assert_eq!(t.world.stat("destaged_bytes"), 5 * E);
    // A window opens: the volume that slept wakes.
    let open = WriteBackConfig { destages_idly: true, ..closed() };
    t.world.configure(VolumeConfig { write_back: open, ..write_back() });
    (0..20).for_each(|_| t.world.tick(100));
    assert_eq!(t.world.stat("destaged_bytes"), 7 * E);
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn destaging_keeps_to_its_rate_unless_a_client_waits() {
    let mut t = Twin::new(Shape { destage_bytes_per_s: 64 << 10, ..Shape::default() });
    let settings = WriteBackConfig { max_dirty_age_ms: 1000, ..WriteBackConfig::default() };
    t.world.configure(VolumeConfig { write_back: settings, ..write_back() });
    for extent in (0..64).step_by(2) {
        t.write(E * extent, &extents(extent, 1));
    }
    t.flush();
    let dirty = 32 * E;
    for _ in 0..200 {
        t.world.tick(10);
    }
    let written = t.world.stat("destaged_bytes");
    assert!((64 << 10..=(2 * 64 + 16 + 8) << 10).contains(&written), "{written} of {dirty} in two seconds");
    t.clean();
    assert_eq!(t.world.stat("destaged_bytes"), dirty, "who asks for it does not wait for the rate");
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn a_commit_that_relies_on_another_unit_is_flushed() {
    let mut t = Twin::new(Shape::default());
    let durable = WriteBackConfig { ack: Ack::Durable, ..write_back().write_back };
    t.world.configure(VolumeConfig { write_back: durable, ..write_back() });
    t.world.write(W, 0, &extents(1, 1));
    t.world.tick(5000);
    let flushes = t.world.stat("device_flushes");
    t.write(0, &extents(1, 1));
    assert_eq!(t.world.stat("dirty_shared"), 1, "stored once");
    assert_eq!(t.world.stat("epochs_committed_by_fua"), 0, "the unit may be in the device's memory alone");
    assert!(t.world.stat("device_flushes") > flushes);
    t.write(E, &extents(2, 1));
    assert_eq!(t.world.stat("epochs_committed_by_fua"), 1);
}

#[test]
fn a_commit_whose_data_did_not_arrive_does_not_count_and_never_will() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 1));
    t.flush();
    let flushed = t.twin.clone();
    t.world.parts_vanish = true;
    t.write(0, &extents(2, 1));
    t.flush();
    t.world.parts_vanish = false;
    t.world = t.world.restart(false);
    t.twin = flushed;
    t.check(0, E);
    t.write(E, &extents(3, 1));
    t.flush();
    t.world = t.world.restart(false);
    t.check(0, 2 * E);
}

#[test]
fn the_next_epoch_waits_until_it_is_durable_that_the_last_one_is_clean() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &half(1, 512));
    t.flush();
    t.write(E, &half(2, 512));
    t.flush();
    t.world.journal_hangs = true;
    t.world.event(Event::Destage { volume: V });
    t.world.tick(100);
    let origin = &t.world.origins[&V];
    assert!(origin[..512] == half(1, 512)[..]);
    let at = usize::try_from(E).unwrap();
    assert!(origin[at..at + 512].iter().all(|byte| *byte == 0), "a replay would write the first over it");
}

#[test]
fn a_change_of_the_codec_does_not_reach_what_is_being_compressed() {
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        let mut t = Twin::new(Shape::default());
        t.world.configure(VolumeConfig { mode, ..write_back() });
        t.world.compressions = Some(Vec::new());
        t.write(0, &extents(1, 1));
        t.world.configure(VolumeConfig { mode, codec: Codec::Zlib(6), ..write_back() });
        for event in t.world.compressions.take().unwrap() {
            t.world.event(event);
        }
        t.flush();
        t.world.tick(2000);
        let reads = t.world.origin_reads.len();
        t.check(0, E);
        assert_eq!(t.world.origin_reads.len(), reads, "a hit");
    }
}

#[test]
fn dirty_data_does_not_rely_on_content_of_an_earlier_session_that_is_torn() {
    let mut t = Twin::new(Shape::default());
    let data = extents(7, 1);
    t.world.write(W, 0, &data);
    t.world.tick(2000);
    t.world.stop();
    t.world = t.world.restart(true);
    t.write(4 * E, &data);
    t.flush();
    assert_eq!((t.world.stat("dirty_proofs"), t.world.stat("dirty_shared")), (1, 1), "it is sound");
    t.clean();
    t.world.stop();
    t.world = t.world.restart(true);
    for slot in 0..16 {
        // The first extent of every unit, behind its inline header.
        t.world.slot_bytes(WeuSlot(slot))[100] ^= 1;
    }
    t.write(9 * E, &data);
    t.flush();
    assert_eq!((t.world.stat("dirty_proofs"), t.world.stat("dirty_shared")), (1, 0));
    t.world = t.world.restart(false);
    t.check(0, 10 * E);
}

#[test]
fn a_flush_that_fails_beside_destaging_has_the_run_written_again() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 1));
    t.flush();
    t.clean();
    // The flush that ends the mark of what was just destaged hangs, and the next run is written meanwhile.
    (t.world.origin_flushes_hang, t.world.origin_flushes_fail) = (true, true);
    t.world.tick(2500);
    t.world.tick(100);
    t.write(64 * E, &extents(2, 1));
    t.flush();
    let before = t.world.origins[&V].clone();
    t.world.event(Event::Destage { volume: V });
    assert!(t.world.origins[&V] == t.twin, "the run is written");
    *t.world.origins.get_mut(&V).unwrap() = before;
    t.world.origin_flushes_fail = false;
    t.world.end_origin_flushes();
    t.clean();
    assert!(t.world.origins[&V] == t.twin, "the run is written again");
}

#[test]
fn zeros_keep_their_room_on_the_origin_unless_a_hole_was_allowed() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 8));
    let mut clear = |kind, at: u64| {
        let req = t.world.submit(V, at, E, kind);
        assert_eq!(t.world.replies.remove(&req).unwrap().0, Ok(()));
    };
    clear(RequestKind::WriteZeroes { no_hole: true, fua: false }, E);
    clear(RequestKind::WriteZeroes { no_hole: false, fua: false }, 2 * E);
    clear(RequestKind::Trim { fua: false }, 4 * E);
    t.write(6 * E, &[0; 8 << 10]);
    t.flush();
    t.world = t.world.restart(false);
    t.clean();
    assert_eq!(t.world.origin_zeroed, [(E, E, true), (2 * E, E, false), (4 * E, E, false), (6 * E, E, true)]);
}

#[test]
fn stopping_waits_for_room_only_if_an_origin_can_make_some() {
    for (refuses, expected) in [(true, Err(ErrorKind::Io)), (false, Ok(()))] {
        let mut world = full();
        world.origin_flushes_fail = refuses;
        world.journal_hangs = true;
        let ours = world.submit_write(W, 0, &extents(1000, 12));
        assert!(!world.replies.contains_key(&ours), "there is no room");
        world.event(Event::Stop);
        world.end_journal_writes(Ok(()));
        world.stop();
        assert_eq!(world.replies.remove(&ours).expect("the write is answered").0, expected);
    }
}

#[test]
fn who_comes_back_to_write_back_is_not_drained_any_more() {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 4));
    t.world.origin_flushes_hang = true;
    t.world.configure(VolumeConfig { mode: Mode::WriteThrough, ..write_back() });
    assert!(t.world.manager.dirty(V).unwrap().draining);
    t.world.configure(write_back());
    assert!(!t.world.manager.dirty(V).unwrap().draining);
    t.world.event(Event::Destage { volume: V });
    t.world.configure(write_back());
    assert!(t.world.manager.dirty(V).unwrap().draining, "another operator asked for it");
}

#[test]
fn sharing_does_not_take_the_room_of_data_that_is_taken_in() {
    let shape = Shape { slots: 1, weu_bytes: 64 << 10, dirty_high_percent: 90, ..Shape::default() };
    let mut t = Twin::new(shape);
    (0..200).for_each(|number| t.world.write(W, number * E, &extents(number, 1)));
    t.world.tick(2000);
    t.world.hashes = Some(Vec::new());
    // What is stored already, all over the device, and what is not: all of it is taken in.
    (0..20).for_each(|number| t.write(number * E, &extents(199 - number * 6, 1)));
    (0..30).for_each(|number| t.write((20 + number) * E, &noise(number, 8 << 10)));
    t.world.hashes.take().unwrap().into_iter().for_each(|event| t.world.event(event));
    assert!(t.world.stat("dirty_shared") > 0 && t.world.stat("dirty_waits") == 0);
    (0..20).for_each(|_| t.world.tick(500));
    t.flush();
    t.clean();
}

#[test]
fn copies_of_what_lies_all_over_the_device_leave_room_for_what_is_new() {
    let mut t = Twin::new(Shape { weu_bytes: 64 << 10, ..Shape::default() });
    (0..200).for_each(|number| t.world.write(W, number * E, &extents(number, 1)));
    t.world.tick(2000);
    // A unit holds about 14 of them: a copy out of each, where half of the units may be dirty.
    (0..12).for_each(|number| t.write(number * E, &extents(number * 15, 1)));
    t.flush();
    assert_eq!(
        (t.world.stat("dirty_shared"), t.world.stat("dirty_stored")),
        (9, 3),
        "not all are kept for that"
    );
    (0..80).for_each(|number| t.write((20 + number) * E, &extents(1000 + number, 1)));
    assert_eq!(t.world.stat("dirty_waits"), 0);
    t.flush();
    t.world = t.world.restart(false);
    t.check(0, 100 * E);
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn what_flushes_divide_is_destaged_once_if_the_volume_coalesces() {
    for (destage, origin_writes) in [(Destage::Epoch, 5), (Destage::Coalesce, 1)] {
        let mut t = Twin::new(Shape::default());
        let settings = WriteBackConfig { destage, ..write_back().write_back };
        t.world.configure(VolumeConfig { write_back: settings, ..write_back() });
        for round in 0..5 {
            t.write(3 * E, &extents(round, 1));
            t.flush();
        }
        t.world = t.world.restart(false);
        t.check(3 * E, E);
        t.clean();
        assert_eq!(t.world.stat("destage_writes"), origin_writes, "{destage:?}");
        assert!(t.world.origins[&V] == t.twin);
    }
}

/// Dirty data over an origin that is another one by now, which is still to be found out; and what that holds.
fn over_another_origin() -> (Twin, Vec<u8>) {
    let mut t = Twin::new(Shape::default());
    t.write(0, &extents(1, 64));
    t.clean();
    (0..50).for_each(|_| t.world.tick(100));
    t.write(70 * E, &extents(2, 4));
    t.flush_into_journal();
    let other = half(77, t.twin.len());
    t.world.origins.insert(V, other.clone());
    t.world = t.world.restart_killed_and(|world| world.origin_reads_hang = true);
    (t, other)
}

#[test]
fn a_write_that_waits_is_refused_when_the_origin_is_found_to_be_another_one() {
    let (mut t, _) = over_another_origin();
    t.world.configure(VolumeConfig { mode: Mode::WriteThrough, ..write_back() });
    let write = t.world.submit_write(V, 0, &extents(3, 1));
    (0..50).for_each(|_| t.world.tick(100));
    assert!(!t.world.replies.contains_key(&write), "it waits until the mode has changed");
    t.world.end_origin_reads();
    (0..50).for_each(|_| t.world.tick(100));
    assert!(t.world.manager.dirty(V).unwrap().fenced);
    assert_eq!(t.world.replies.remove(&write).expect("an answer").0, Err(ErrorKind::Io));
}

#[test]
fn dirty_data_is_not_written_to_an_origin_that_is_not_what_it_was() {
    let (mut t, other) = over_another_origin();
    t.world.event(Event::Destage { volume: V });
    (0..50).for_each(|_| t.world.tick(100));
    assert!(t.world.origins[&V] == other, "nothing is written there before it was looked at");
    t.world.end_origin_reads();
    (0..50).for_each(|_| t.world.tick(100));
    assert!(t.world.stat("probes_differed") > 0);
    assert!(t.world.manager.dirty(V).unwrap().fenced);
    t.world.event(Event::Destage { volume: V });
    (0..50).for_each(|_| t.world.tick(100));
    assert!(t.world.origins[&V] == other, "nothing is written there unasked");
    t.world.event(Event::AcceptLoss { volume: V });
    (0..50).for_each(|_| t.world.tick(100));
    let at = usize::try_from(70 * E).unwrap();
    assert!(t.world.origins[&V][at..at + 4 * 8192] == t.twin[at..at + 4 * 8192]);
}
