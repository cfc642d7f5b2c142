//! Commits: make dirty data durable on the cache device (G5).
//!
//! A flush, FUA, age or size ends a volume's open epoch. Its commit then waits until every version is placed in a
//! unit, writes the unwritten pages of the unit, and writes the epoch's records and `Committed` to the journal, all in
//! parallel. If a client waits, these writes use FUA and no flush is needed; often they are one write (see `summary`).
//! If any write of the epoch did not use FUA, one flush follows when all of them have completed, shared by every
//! commit that is ready (group commit). Only then are the waiting requests answered. While a commit of a volume is in
//! progress, further requests for a commit share the next one.
//!
//! Invariant: a commit completes when each of its writes, and each journal block before its own, used FUA or is
//! covered by a flush that was issued after its completion; or when its single write was durable. Then it is recorded
//! as durable, before the waiting requests are answered (see `proof`). [`crate::startup`] describes how a restart
//! handles an interrupted commit.

use zc_core::{ErrorKind, JournalSeq, ReqId, SectorSpan, VolumeId};
use zc_format::{JournalBlock, Record};

use crate::clean::Clean;
use crate::device::Core;
use crate::device::meta::flush_cache;
use crate::device::units::dirty_unit::DirtyUnit;
use crate::dirty::commit_state::{Commit, CommitPhase, EPOCH_AGE_SHARE, epoch_writes_max};
use crate::dirty::proof::Unproved;
use crate::dirty::summary::Summaries;
use crate::dirty::versions::{Body, Ended, EpochState};
use crate::dirty::volumes::DirtyVolumes;
use crate::expect_held::ExpectHeld;
use crate::ops::meta::Op;
use crate::seam::Action;

/// Maximum client bytes of an epoch, at which it closes.
const EPOCH_BYTES_MAX: u64 = 64 << 20;

/// Commits of all volumes, and the records that go with them.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    summaries: Summaries,
    /// Time of the last write of a commit that a client waited for.
    awaited_commit_ms: Option<u64>,
    /// The last commit, until a durable record proves that it completed.
    unproved: Option<Unproved>,
    /// Number of records that must be in blocks before commits later than `proved_before` are vouched for.
    resets_until: u64,
    proved_before: JournalSeq,
}

impl Commits {
    /// Creates the state without commits; at first only commits before this block are vouched for.
    pub(crate) fn new(proved_before: JournalSeq) -> Self {
        Self { proved_before, ..Self::default() }
    }

    /// Sets the position of the last decision of a start: until the journal reaches it, only commits before
    /// `proved_before` are vouched for.
    pub(crate) const fn reset_until(&mut self, position: u64) {
        self.resets_until = position;
    }

    pub(crate) const fn awaited_ms(&self) -> Option<u64> {
        self.awaited_commit_ms
    }

    /// Returns `true` if no durable record proves yet that the volume's last commit completed.
    pub(crate) fn is_unproved(&self, volume: VolumeId) -> bool {
        self.unproved.is_some_and(|unproved| unproved.is_of(volume))
    }

    pub(crate) const fn summaries_mut(&mut self) -> &mut Summaries {
        &mut self.summaries
    }

    /// Returns `true` if a restart would find all records up to this position, in the journal or in a summary.
    pub(crate) fn is_recorded(&self, position: u64, core: &Core) -> bool {
        self.summaries.is_recorded(position, core)
    }

    /// Makes all acknowledged writes of the volume durable, then replies.
    pub(crate) fn request_commit(
        &mut self,
        volume: VolumeId,
        req: Option<ReqId>,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) {
        let dirty = volumes.get_mut(&volume).expect_held();
        if let Some(commit) = &mut dirty.commit {
            // Without later writes, the commit in progress contains all acknowledged ones.
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
            step: CommitPhase::Placing,
            waiters,
            elsewhere: false,
            writes_before: 0,
            first: 0,
            last: 0,
            first_block: None,
            block: None,
        });
        core.base.stats.epochs_closed += 1;
        self.pump_commit(volume, volumes, core);
    }

    fn answer_commit(
        volume: VolumeId,
        result: Result<(), ErrorKind>,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) {
        let commit = volumes.get_mut(&volume).and_then(|dirty| dirty.commit.as_mut());
        let waiters = commit.map(|commit| core::mem::take(&mut commit.waiters)).unwrap_or_default();
        waiters.into_iter().for_each(|req| core.base.port.emit(Action::Reply { req, result }));
    }

    /// Continues all commits, and begins those that are due.
    pub(crate) fn pump_commits(&mut self, volumes: &mut DirtyVolumes, core: &mut Core) {
        if !core.base.is_good() || volumes.is_empty() {
            return;
        }
        for volume in volumes.awake_ids() {
            self.close_due_epoch(volume, volumes.is_pressed(volume), volumes, core);
            self.pump_commit(volume, volumes, core);
        }
    }

    fn close_due_epoch(
        &mut self,
        volume: VolumeId,
        waiting: bool,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) {
        let writes_max = epoch_writes_max(core.device.catalog.meta().journal().ring_blocks());
        let now_ms = core.base.now_ms();
        let stopping = core.base.is_stopping();
        let Some(age_ms) = core.base.volume(volume).map(|volume| volume.cfg().write_back.max_dirty_age_ms)
        else {
            return;
        };
        let dirty = volumes.get_mut(&volume).expect_held();
        let newest = dirty.data.open().number;
        let draining = dirty.drains(newest);
        let open = dirty.data.open();
        let due = !open.extents.is_empty()
            && (stopping
                || draining
                || open.bytes >= EPOCH_BYTES_MAX
                || open.writes >= writes_max / 2
                || now_ms.saturating_sub(open.began_ms) >= age_ms / EPOCH_AGE_SHARE);
        // Writes wait for capacity, possibly shared with another volume, and only a commit makes data ready for
        // destaging.
        let has_open = !open.extents.is_empty();
        let starved = has_open && waiting && (!dirty.has_committed() || dirty.destaging.is_stuck());
        if dirty.commit.is_none() && (due || starved) {
            self.request_commit(volume, None, volumes, core);
        }
    }

    fn pump_commit(&mut self, volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core) {
        let dirty = volumes.get_mut(&volume).expect_held();
        let Some(commit) = &dirty.commit else { return };
        let epoch = commit.epoch;
        match commit.step {
            CommitPhase::Placing => {
                if dirty.data.epoch_mut(epoch).is_some_and(|epoch| epoch.unplaced == 0) {
                    self.write_commit(volume, epoch, volumes, core);
                }
            }
            CommitPhase::Writing => {
                let written = core.device.catalog.meta().journal().written() >= commit.last
                    && core.device.units.dirty().writes().are_written(commit.writes_before);
                if written && let Some(commit) = &mut dirty.commit {
                    commit.step = CommitPhase::Ready;
                    self.end_durable_commit(volume, volumes, core);
                }
            }
            CommitPhase::Ready => self.end_durable_commit(volume, volumes, core),
            CommitPhase::Summarized | CommitPhase::Flushing => {}
        }
    }

    /// Completes a commit if all of its writes are durable.
    fn end_durable_commit(&mut self, volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core) {
        let Some(commit) = volumes.get(&volume).and_then(|dirty| dirty.commit.as_ref()) else {
            return;
        };
        let unflushed = !core.device.units.dirty().writes().are_flushed(commit.writes_before);
        if core.device.catalog.meta().journal().is_durable(commit.last) && !unflushed && !commit.elsewhere {
            core.base.stats.epochs_committed_by_fua += 1;
            self.end_commit(volume, volumes, core);
        }
    }

    /// Writes unit, records and commit of an epoch whose versions are placed.
    fn write_commit(&mut self, volume: VolumeId, epoch: u64, volumes: &mut DirtyVolumes, core: &mut Core) {
        let commit = volumes.get(&volume).and_then(|dirty| dirty.commit.as_ref());
        let awaited = commit.is_some_and(|commit| !commit.waiters.is_empty());
        if awaited {
            self.awaited_commit_ms = Some(core.base.now_ms());
        }
        let records = Self::epoch_records(volume, epoch, volumes, core);
        let open = core.device.units.dirty().open().map(DirtyUnit::slot);
        let elsewhere =
            records.iter().any(|record| matches!(record, Record::Dirty { slot, .. } if Some(*slot) != open));
        let durably = awaited && !elsewhere;
        if durably && self.commit_in_summary(volume, epoch, &records, volumes, core) {
            return;
        }
        core.device.units.dirty_mut().write_pages(durably, &mut core.base);
        let first = core.device.catalog.meta().journal().appended() + 1;
        records.into_iter().for_each(|record| core.device.catalog.record(record, &mut core.base));
        core.device.catalog.record(Record::Committed { volume, epoch }, &mut core.base);
        let last = core.device.catalog.meta_mut().journal_mut().hurry_all(durably);
        let writes_before = core.device.units.dirty().writes().mark();
        let commit = volumes.get_mut(&volume).and_then(|dirty| dirty.commit.as_mut()).expect_held();
        commit.step = CommitPhase::Writing;
        commit.elsewhere = elsewhere;
        commit.writes_before = writes_before;
        commit.first = first;
        commit.last = last;
    }

    /// Records of an epoch whose versions are placed, in the order of its writes.
    pub(crate) fn epoch_records(
        volume: VolumeId,
        epoch: u64,
        volumes: &DirtyVolumes,
        core: &Core,
    ) -> Vec<Record> {
        let Some(dirty) = volumes.get(&volume) else { return Vec::new() };
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

    /// Returns `true` if a commit requests a flush.
    pub(crate) fn commits_want_flush(volumes: &DirtyVolumes) -> bool {
        volumes.commits().any(|commit| commit.step == CommitPhase::Ready)
    }

    /// Returns `true` if a commit in progress has queued records for the next journal block: a summary would carry
    /// them, and the following one would vouch for records that may not be durable.
    pub(crate) fn commits_in_line(volumes: &DirtyVolumes, core: &Core) -> bool {
        let taken = core.device.catalog.meta().journal().taken();
        volumes.commits().any(|commit| commit.step == CommitPhase::Writing && commit.last > taken)
    }

    /// Marks every ready commit as covered by the flush being issued.
    pub(crate) fn commits_flushing(volumes: &mut DirtyVolumes, core: &mut Core) {
        core.device.units.dirty_mut().writes_mut().flush_begins();
        volumes.each_commit(|commit| {
            if commit.step == CommitPhase::Ready {
                commit.step = CommitPhase::Flushing;
            }
        });
    }

    /// Handles the completion of the shared flush.
    pub(crate) fn commits_flushed(&mut self, volumes: &mut DirtyVolumes, core: &mut Core) {
        core.device.units.dirty_mut().writes_mut().flush_ended();
        for volume in volumes.awake_ids() {
            let dirty = volumes.get(&volume).expect_held();
            if let Some(commit) = dirty.commit.as_ref().filter(|commit| commit.step == CommitPhase::Flushing)
            {
                debug_assert!(
                    core.device.units.dirty().writes().are_flushed(commit.writes_before),
                    "the flush does not cover a piece of {volume:?}"
                );
                self.end_commit(volume, volumes, core);
            }
        }
    }

    /// Completes a commit that is durable.
    pub(crate) fn end_commit(&mut self, volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core) {
        debug_assert!(
            self.is_complete(volume, volumes, core),
            "{volume:?}: a commit ends that a restart would not find"
        );
        self.record_durable(volume, volumes, core);
        Self::answer_commit(volume, Ok(()), volumes, core);
        let dirty = volumes.get_mut(&volume).expect_held();
        let commit = dirty.commit.take().expect_held();
        if let Some(epoch) = dirty.data.epoch_mut(commit.epoch) {
            epoch.state = EpochState::Committed;
        }
        dirty.look_at_gap();
        let all = dirty.data.open().extents.is_empty();
        dirty.destaging.committed(all);
        core.base.stats.epochs_committed += 1;
        if dirty.commit_again || !dirty.next_waiters.is_empty() {
            self.request_commit(volume, None, volumes, core);
        }
    }

    /// Returns `true` if a commit may complete: all of its versions are placed, a restart finds its records, and no
    /// piece of it is in flight.
    fn is_complete(&self, volume: VolumeId, volumes: &DirtyVolumes, core: &Core) -> bool {
        let Some(dirty) = volumes.get(&volume) else { return false };
        let Some(commit) = &dirty.commit else { return false };
        let placed = dirty.data.epoch(commit.epoch).is_none_or(|epoch| epoch.unplaced == 0);
        let written = core.device.units.dirty().writes().are_written(commit.writes_before);
        placed && written && self.is_recorded(commit.last, core)
    }

    /// Records the commits in the journal block about to be written.
    pub(crate) fn commits_in_block(block: JournalSeq, volumes: &mut DirtyVolumes, core: &mut Core) {
        let taken = core.device.catalog.meta().journal().taken();
        volumes.each_commit(|commit| {
            // A commit with a summary completes before a block is taken.
            if matches!(commit.step, CommitPhase::Placing | CommitPhase::Summarized) {
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

    /// Returns the block before which all commits are durable with all their records.
    pub(crate) fn commits_proved(&self, volumes: &DirtyVolumes, core: &Core) -> JournalSeq {
        let durable = core.device.catalog.meta().journal().durable_next();
        let oldest = volumes.commits().filter_map(|commit| commit.block).min();
        if core.device.catalog.meta().journal().taken() < self.resets_until {
            return self.proved_before;
        }
        oldest.map_or(durable, |block| block.min(durable))
    }

    /// Returns the first journal block that incomplete commits still need.
    pub(crate) fn commits_keep_from(volumes: &DirtyVolumes, core: &Core) -> JournalSeq {
        let next = core.device.catalog.meta().journal().next();
        volumes.commits().filter_map(|commit| commit.first_block).min().map_or(next, |block| block.min(next))
    }

    /// Fails all commits because the cache device is lost: no client receives a confirmation of durability.
    pub(crate) fn fail_commits(error: ErrorKind, volumes: &mut DirtyVolumes, core: &mut Core) {
        for volume in volumes.ids() {
            Self::answer_commit(volume, Err(error), volumes, core);
            let dirty = volumes.get_mut(&volume).expect_held();
            dirty.commit_again = false;
            for req in core::mem::take(&mut dirty.next_waiters) {
                core.base.port.emit(Action::Reply { req, result: Err(error) });
            }
        }
    }
}

impl Commits {
    /// Writes the piece of a commit with a summary, if possible, in place of all other writes.
    fn commit_in_summary(
        &mut self,
        volume: VolumeId,
        epoch: u64,
        records: &[Record],
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) -> bool {
        let is_alone = !Self::commits_in_line(volumes, core);
        let proved = self.commits_proved(volumes, core);
        let is_written = self.summaries.write((volume, epoch), records, is_alone, proved, core);
        if is_written {
            let commit = volumes.get_mut(&volume).and_then(|dirty| dirty.commit.as_mut()).expect_held();
            commit.summarized();
        }
        is_written
    }

    /// Handles the completion of a write of a piece of a unit, durable if it has a summary.
    pub(crate) fn summary_written(&mut self, part: u64, volumes: &mut DirtyVolumes, core: &mut Core) {
        let Some(volume) = self.summaries.written(part, core) else { return };
        let commit = volumes.get(&volume).and_then(|dirty| dirty.commit.as_ref());
        if commit.is_some_and(|commit| commit.step() == CommitPhase::Summarized) {
            core.base.stats.epochs_committed_by_summary += 1;
            self.end_commit(volume, volumes, core);
        }
    }
}

impl Commits {
    /// Records the completion of the volume's commit, before a client is answered.
    fn record_durable(&mut self, volume: VolumeId, volumes: &DirtyVolumes, core: &mut Core) {
        let commit = volumes.get(&volume).and_then(|dirty| dirty.commit.as_ref());
        let epoch = commit.expect_held().epoch;
        core.device.catalog.record(Record::Durable { volume, epoch }, &mut core.base);
        let position = core.device.catalog.meta().journal().appended();
        self.unproved = Some(Unproved::new(volume, position, core.base.now_ms()));
    }

    /// Writes the proof of the last commit if no other commit has followed it for some time.
    fn pump_proof(&mut self, volumes: &DirtyVolumes, core: &mut Core) {
        let Some(unproved) = self.unproved else { return };
        if self.is_recorded(unproved.position(), core) {
            self.unproved = None;
            return;
        }
        if unproved.is_due(core.base.now_ms(), volumes.commits().next().is_some()) {
            core.device.catalog.meta_mut().journal_mut().want(unproved.position());
        }
    }
}

/// Journal blocks and checkpoints: their records of dirty data, and the times at which they are written.
impl Commits {
    /// Issues the writes that are due: journal block, region map, retirements, checkpoint.
    pub(crate) fn pump_persist(&mut self, volumes: &mut DirtyVolumes, core: &mut Core, clean: &mut Clean) {
        if !core.base.is_good() {
            return;
        }
        self.pump_proof(volumes, core);
        self.pump_journal(volumes, core);
        core.device.catalog.meta_mut().pump_map(&mut core.base);
        if clean.pump_retiring(core) {
            self.pump_journal(volumes, core);
        }
        self.pump_checkpoint(volumes, core);
    }

    fn pump_journal(&mut self, volumes: &mut DirtyVolumes, core: &mut Core) {
        if !self.summaries.is_writing()
            && let Some((sequence, records, durable)) =
                core.device.catalog.meta_mut().journal_mut().take_block(
                    core.base.now_ms(),
                    core.base.cfg().journal_delay_ms,
                    self.summaries.has_carried(),
                )
        {
            Self::commits_in_block(sequence, volumes, core);
            let growing = self.summaries.begin_chain(core);
            core.base.stats.journal_bytes_written += u64::from(zc_core::limits::BLOCK_BYTES);
            let block = JournalBlock {
                sequence,
                session: core.base.session.number(),
                region_map_sequence: core.device.catalog.meta().durable_map(),
                proved: self.commits_proved(volumes, core),
                growing,
                records,
            };
            debug_assert!(
                block.proved <= core.device.catalog.meta().journal().durable_next(),
                "a block proves what may be lost"
            );
            let op = core.base.port.op(Op::JournalWrite);
            core.base.port.emit(Action::WriteJournal { op, block: Box::new(block), durable });
        }
        let asked = Self::commits_want_flush(volumes);
        if core.device.catalog.meta_mut().journal_mut().take_flush(asked) {
            Self::commits_flushing(volumes, core);
            flush_cache(Op::JournalFlush, &mut core.base);
        }
    }

    fn pump_checkpoint(&mut self, volumes: &DirtyVolumes, core: &mut Core) {
        if !self.summaries.is_writing() && core.device.checkpoints.is_due(&core.device.catalog, &core.base) {
            self.summaries.end_chain();
            let (keep_from, records) =
                (Self::commits_keep_from(volumes, core), Self::dirty_records(volumes, core));
            core.device.checkpoints.begin(keep_from, records, &mut core.device.catalog);
        }
        core.device.checkpoints.pump(&mut core.device.catalog, &mut core.base);
    }

    /// Records of the epochs that are complete and not clean.
    fn dirty_records(volumes: &DirtyVolumes, core: &Core) -> Vec<Record> {
        let mut records = Vec::new();
        for (volume, dirty) in volumes.iter() {
            let volume = *volume;
            // Records that are clean according to the journal may precede the part of it that is replayed.
            let clean =
                dirty.destaging.recorded().map_or(dirty.data.clean, |epoch| epoch.max(dirty.data.clean));
            records.push(Record::Clean { volume, epoch: clean });
            let committed = dirty
                .data
                .epochs
                .iter()
                .filter(|epoch| epoch.state == EpochState::Committed && epoch.number > clean);
            for epoch in committed.map(|epoch| epoch.number) {
                records.extend(Self::epoch_records(volume, epoch, volumes, core));
                records.push(Record::Committed { volume, epoch });
            }
        }
        records
    }

    /// Handles the completion of an operation of durable metadata.
    pub(crate) fn persist_done(
        &mut self,
        kind: Op,
        result: Result<(), ErrorKind>,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        if let Err(error) = result {
            core.base.fail_device(kind.purpose(), error);
        }
        if !core.base.is_good() {
            return;
        }
        match kind {
            Op::JournalWrite => {
                core.device.catalog.meta_mut().journal_mut().block_written();
                self.summaries.let_go(core);
                core.device.catalog.meta_mut().trim_intent(&mut core.base);
            }
            Op::JournalFlush => {
                core.device.catalog.meta_mut().journal_mut().flushed();
                self.summaries.let_go(core);
                self.commits_flushed(volumes, core);
            }
            Op::MapWrite => flush_cache(Op::MapFlush, &mut core.base),
            Op::MapFlush => {
                core.device.catalog.meta_mut().map_durable();
                clean.start_marked_pieces(core);
            }
            other => {
                let needed =
                    core.device.checkpoints.step_done(other, &mut core.device.catalog, &mut core.base);
                let keeps = needed.is_none_or(|start| start <= Self::commits_keep_from(volumes, core));
                debug_assert!(keeps, "records of a commit are let go");
            }
        }
    }
}
