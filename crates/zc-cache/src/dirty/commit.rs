//! Commits: how dirty data becomes durable on the cache device (G5).
//!
//! A flush, FUA, age or size ends a volume's open epoch. Its commit then: waits until every version is placed in a unit,
//! writes the pages of the unit that are not written yet, appends the epoch's records and `Committed` to the journal and
//! has them written, all at once. If a client waits, these writes are durable by themselves (FUA), and that is all; often
//! they are one write (see `summary`). If anything of the epoch was written otherwise, one flush follows when the device
//! has all of it, shared by every commit that is ready (group commit). Only then are those who wait answered. While a
//! commit of a volume is under way, those who ask for another share the next one.
//!
//! Invariant: a commit ends when each of its writes, and each journal block before its own, was durable by itself or is
//! covered by a flush that was issued after it had ended; or when its one write was durable. Then it is recorded as
//! durable, before those who wait are answered (see `proof`). What a restart does with a commit that was cut off is in
//! [`crate::startup`].

use zc_core::{ErrorKind, JournalSeq, ReqId, SectorSpan, VolumeId};
use zc_format::Record;

use crate::device::Core;
use crate::device::units::dirty_unit::DirtyUnit;
use crate::dirty::DirtyLayer;
use crate::dirty::versions::{Body, Ended, EpochState};
use crate::expect_held::ExpectHeld;
use crate::seam::Action;

/// Writes of one epoch, at most.
const EPOCH_WRITES_MAX: u64 = 8192;
/// Client bytes of one epoch; it closes by itself with so many.
const EPOCH_BYTES_MAX: u64 = 64 << 20;
/// An epoch closes by itself after this share of the age that dirty data may have.
pub(crate) const EPOCH_AGE_SHARE: u64 = 4;

/// Writes that an epoch may take, so that its records (two a write at most) fill a quarter of the journal at most.
pub(crate) fn epoch_writes_max(ring_blocks: u64) -> u64 {
    let records = zc_core::u64_from_usize(zc_format::RECORDS_PER_BLOCK);
    (ring_blocks * records / 8).min(EPOCH_WRITES_MAX)
}

/// How far a commit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Versions of the epoch are in memory alone.
    Placing,
    /// Unit and journal are being written.
    Writing,
    /// The unit is being written, with a summary.
    Summarized,
    /// Everything is written.
    Ready,
    /// A flush that was issued since is in flight.
    Flushing,
}

/// A commit under way.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(in crate::dirty) epoch: u64,
    step: Step,
    waiters: Vec<ReqId>,
    /// Some of it is stored outside the open unit: only a flush tells that it is durable.
    elsewhere: bool,
    /// Unit writes with a smaller number are part of it.
    writes_before: u64,
    /// Journal positions of its first record and of its last.
    first: u64,
    last: u64,
    /// The blocks that hold them.
    pub(in crate::dirty) first_block: Option<JournalSeq>,
    block: Option<JournalSeq>,
}

impl Commit {
    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// Its piece is on the way, with its records in a summary.
    pub(crate) fn summarized(&mut self) {
        self.step = Step::Summarized;
    }
}

impl DirtyLayer {
    /// Makes what the volume has acknowledged durable, then answers.
    pub(crate) fn request_commit(&mut self, volume: VolumeId, req: Option<ReqId>, core: &mut Core) {
        let dirty = self.volumes.get_mut(&volume).expect_held();
        if let Some(commit) = &mut dirty.commit {
            // With nothing written since, all that was acknowledged is in it.
            if dirty.data.open().extents.is_empty() {
                if req.is_some() {
                    dirty.data.flushed();
                }
                commit.waiters.extend(req);
            } else {
                dirty.commit_again = true;
                dirty.next_waiters.extend(req);
            }
            return;
        }
        let waiters: Vec<_> = dirty.next_waiters.drain(..).chain(req).collect();
        dirty.commit_again = false;
        if dirty.data.open().extents.is_empty() {
            if !waiters.is_empty() {
                dirty.data.flushed();
            }
            waiters.into_iter().for_each(|req| core.base.port.emit(Action::Reply { req, result: Ok(()) }));
            return;
        }
        let ended = if waiters.is_empty() { Ended::ByItself } else { Ended::ByFlush };
        let epoch = dirty.data.close(ended);
        dirty.commit = Some(Commit {
            epoch,
            step: Step::Placing,
            waiters,
            elsewhere: false,
            writes_before: 0,
            first: 0,
            last: 0,
            first_block: None,
            block: None,
        });
        core.base.stats.epochs_closed += 1;
        self.pump_commit(volume, core);
    }

    fn answer_commit(&mut self, volume: VolumeId, result: Result<(), ErrorKind>, core: &mut Core) {
        let commit = self.volumes.get_mut(&volume).and_then(|dirty| dirty.commit.as_mut());
        let waiters = commit.map(|commit| core::mem::take(&mut commit.waiters)).unwrap_or_default();
        waiters.into_iter().for_each(|req| core.base.port.emit(Action::Reply { req, result }));
    }

    /// Goes on with all commits, and begins those that are due.
    pub(crate) fn pump_commits(&mut self, core: &mut Core) {
        if !core.base.is_good() || self.volumes.is_empty() {
            return;
        }
        for volume in self.volumes.awake_ids() {
            self.close_due_epoch(volume, self.is_pressed(volume), core);
            self.pump_commit(volume, core);
        }
    }

    fn close_due_epoch(&mut self, volume: VolumeId, waiting: bool, core: &mut Core) {
        let writes_max = epoch_writes_max(core.device.catalog.meta().journal().ring_blocks());
        let now_ms = core.base.now_ms();
        let stopping = core.base.is_stopping();
        let Some(age_ms) = core.base.volume(volume).map(|volume| volume.cfg().write_back.max_dirty_age_ms)
        else {
            return;
        };
        let dirty = self.volumes.get_mut(&volume).expect_held();
        let newest = dirty.data.open().number;
        let draining = dirty.drains(newest);
        let open = dirty.data.open();
        let due = !open.extents.is_empty()
            && (stopping
                || draining
                || open.bytes >= EPOCH_BYTES_MAX
                || open.writes >= writes_max / 2
                || now_ms.saturating_sub(open.began_ms) >= age_ms / EPOCH_AGE_SHARE);
        // Writes wait for room, be it shared with another volume, and there is nothing to destage that would make some.
        let has_open = !open.extents.is_empty();
        let starved = has_open && waiting && (!dirty.has_committed() || dirty.destaging.is_stuck());
        if dirty.commit.is_none() && (due || starved) {
            self.request_commit(volume, None, core);
        }
    }

    fn pump_commit(&mut self, volume: VolumeId, core: &mut Core) {
        let dirty = self.volumes.get_mut(&volume).expect_held();
        let Some(commit) = &dirty.commit else { return };
        let epoch = commit.epoch;
        match commit.step {
            Step::Placing => {
                if dirty.data.epoch_mut(epoch).is_some_and(|epoch| epoch.unplaced == 0) {
                    self.write_commit(volume, epoch, core);
                }
            }
            Step::Writing => {
                let written = core.device.catalog.meta().journal().written() >= commit.last
                    && core.device.units.dirty().writes().are_written(commit.writes_before);
                if written && let Some(commit) = &mut dirty.commit {
                    commit.step = Step::Ready;
                    self.end_durable_commit(volume, core);
                }
            }
            Step::Ready => self.end_durable_commit(volume, core),
            Step::Summarized | Step::Flushing => {}
        }
    }

    /// Ends a commit whose writes have ended, if all of them are durable.
    fn end_durable_commit(&mut self, volume: VolumeId, core: &mut Core) {
        let Some(commit) = self.volumes.get(&volume).and_then(|dirty| dirty.commit.as_ref()) else {
            return;
        };
        let unflushed = !core.device.units.dirty().writes().are_flushed(commit.writes_before);
        if core.device.catalog.meta().journal().is_durable(commit.last) && !unflushed && !commit.elsewhere {
            core.base.stats.epochs_committed_by_fua += 1;
            self.end_commit(volume, core);
        }
    }

    /// Everything is placed: sends unit, records and commit off.
    fn write_commit(&mut self, volume: VolumeId, epoch: u64, core: &mut Core) {
        let commit = self.volumes.get(&volume).and_then(|dirty| dirty.commit.as_ref());
        let awaited = commit.is_some_and(|commit| !commit.waiters.is_empty());
        if awaited {
            self.awaited_commit_ms = Some(core.base.now_ms());
        }
        let records = self.epoch_records(volume, epoch, core);
        let open = core.device.units.dirty().open().map(DirtyUnit::slot);
        let elsewhere =
            records.iter().any(|record| matches!(record, Record::Dirty { slot, .. } if Some(*slot) != open));
        let durably = awaited && !elsewhere;
        if durably && self.commit_in_summary(volume, epoch, &records, core) {
            return;
        }
        core.device.units.dirty_mut().write_pages(durably, &mut core.base);
        let first = core.device.catalog.meta().journal().appended() + 1;
        records.into_iter().for_each(|record| core.device.catalog.record(record, &mut core.base));
        core.device.catalog.record(Record::Committed { volume, epoch }, &mut core.base);
        let last = core.device.catalog.meta_mut().journal_mut().hurry_all(durably);
        let writes_before = core.device.units.dirty().writes().mark();
        let commit = self.volumes.get_mut(&volume).and_then(|dirty| dirty.commit.as_mut()).expect_held();
        commit.step = Step::Writing;
        commit.elsewhere = elsewhere;
        commit.writes_before = writes_before;
        commit.first = first;
        commit.last = last;
    }

    /// The records of an epoch that is placed, in the order of its writes.
    pub(crate) fn epoch_records(&self, volume: VolumeId, epoch: u64, core: &Core) -> Vec<Record> {
        let Some(dirty) = self.volumes.get(&volume) else { return Vec::new() };
        let Some(extents) = dirty.data.epoch(epoch).map(|e| &e.extents) else {
            return Vec::new();
        };
        let mut records = Vec::new();
        for extent in extents {
            let key = zc_core::ExtentKey { volume, extent: *extent };
            for version in dirty.data.in_write_order(*extent, epoch) {
                let span = SectorSpan::new(&version.span).expect_held();
                match version.body {
                    Body::Zero { no_hole } => records.push(Record::DirtyZero { key, span, no_hole }),
                    Body::Stored { place, .. } => records.push(Record::Dirty {
                        key,
                        span: SectorSpan::new(&version.stored).expect_held(),
                        slot: place.slot,
                        generation: core.device.catalog.table().get(place.slot).generation(),
                        offset_units: place.offset_units,
                        pages: place.pages,
                    }),
                    Body::Memory { .. } => panic!("{key:?} is recorded before it is placed"),
                }
            }
        }
        records
    }

    /// Some commit wants a flush.
    pub(crate) fn commits_want_flush(&self) -> bool {
        self.commits().any(|commit| commit.step == Step::Ready)
    }

    /// Some commit that has not ended has records in line for the next journal block: a summary would carry them, and
    /// the one after it would vouch for what may not be durable.
    pub(crate) fn commits_in_line(&self, core: &Core) -> bool {
        let taken = core.device.catalog.meta().journal().taken();
        self.commits().any(|commit| commit.step == Step::Writing && commit.last > taken)
    }

    /// A flush is issued: it serves every commit that is ready.
    pub(crate) fn commits_flushing(&mut self, core: &mut Core) {
        core.device.units.dirty_mut().writes_mut().flush_begins();
        self.each_commit(|commit| {
            if commit.step == Step::Ready {
                commit.step = Step::Flushing;
            }
        });
    }

    /// That flush has ended.
    pub(crate) fn commits_flushed(&mut self, core: &mut Core) {
        core.device.units.dirty_mut().writes_mut().flush_ended();
        for volume in self.volumes.awake_ids() {
            let dirty = self.volumes.get(&volume).expect_held();
            if let Some(commit) = dirty.commit.as_ref().filter(|commit| commit.step == Step::Flushing) {
                debug_assert!(
                    core.device.units.dirty().writes().are_flushed(commit.writes_before),
                    "the flush does not cover a piece of {volume:?}"
                );
                self.end_commit(volume, core);
            }
        }
    }

    /// All of a commit is durable.
    pub(crate) fn end_commit(&mut self, volume: VolumeId, core: &mut Core) {
        debug_assert!(
            self.is_complete(volume, core),
            "{volume:?}: a commit ends that a restart would not find"
        );
        self.record_durable(volume, core);
        self.answer_commit(volume, Ok(()), core);
        let dirty = self.volumes.get_mut(&volume).expect_held();
        let commit = dirty.commit.take().expect_held();
        if let Some(epoch) = dirty.data.epoch_mut(commit.epoch) {
            epoch.state = EpochState::Committed;
        }
        dirty.look_at_gap();
        let all = dirty.data.open().extents.is_empty();
        dirty.destaging.committed(all);
        core.base.stats.epochs_committed += 1;
        if dirty.commit_again || !dirty.next_waiters.is_empty() {
            self.request_commit(volume, None, core);
        }
    }

    /// Whether a commit may end: all of its versions are placed, a restart finds its records, and no piece that is part
    /// of it is in flight.
    fn is_complete(&self, volume: VolumeId, core: &Core) -> bool {
        let Some(dirty) = self.volumes.get(&volume) else { return false };
        let Some(commit) = &dirty.commit else { return false };
        let placed = dirty.data.epoch(commit.epoch).is_none_or(|epoch| epoch.unplaced == 0);
        let written = core.device.units.dirty().writes().are_written(commit.writes_before);
        placed && written && self.is_recorded(commit.last, core)
    }

    /// A journal block is about to be written: notes which commits it holds.
    pub(crate) fn commits_in_block(&mut self, block: JournalSeq, core: &mut Core) {
        let taken = core.device.catalog.meta().journal().taken();
        self.each_commit(|commit| {
            // With a summary it ends before a block is taken.
            if matches!(commit.step, Step::Placing | Step::Summarized) {
                return;
            }
            if commit.first_block.is_none() && commit.first <= taken {
                commit.first_block = Some(block);
            }
            if commit.block.is_none() && commit.last <= taken {
                commit.block = Some(block);
            }
        });
    }

    /// Commits in blocks before this one are durable, with all they speak of.
    pub(crate) fn commits_proved(&self, core: &Core) -> JournalSeq {
        let durable = core.device.catalog.meta().journal().durable_next();
        let oldest = self.commits().filter_map(|commit| commit.block).min();
        if core.device.catalog.meta().journal().taken() < self.resets_until {
            return self.proved_before;
        }
        oldest.map_or(durable, |block| block.min(durable))
    }

    /// The journal must be kept from here on for commits that are not complete.
    pub(crate) fn commits_keep_from(&self, core: &Core) -> JournalSeq {
        let next = core.device.catalog.meta().journal().next();
        self.commits().filter_map(|commit| commit.first_block).min().map_or(next, |block| block.min(next))
    }

    /// The cache device is lost: no client will be told that anything is durable.
    pub(crate) fn fail_commits(&mut self, error: ErrorKind, core: &mut Core) {
        for volume in self.ids() {
            self.answer_commit(volume, Err(error), core);
            let dirty = self.volumes.get_mut(&volume).expect_held();
            dirty.commit_again = false;
            for req in core::mem::take(&mut dirty.next_waiters) {
                core.base.port.emit(Action::Reply { req, result: Err(error) });
            }
        }
    }
}
