//! Durable metadata: journal blocks, the region map, retirements, checkpoints; and what happens when the cache
//! device fails.
//!
//! # Why a restart never finds a stale mapping (G2)
//! - A mapping made void is recorded in the journal (`BaseInvalid`, `Unmap`). Until that is durable the region of the
//!   write that caused it is marked on media, and marked regions are distrusted after an unclean stop.
//! - A region's mark goes only after a *retirement*: no writer in it, the journal durable to its end as of the
//!   retirement's begin, the origin flushed after the region's last write. The next map that is written names the
//!   last durable journal block; a restart that cannot replay to it distrusts everything. So it is with what a start
//!   voids because it does not believe it: a clean stop waits for a map that names the journal block that says so.
//! - A checkpoint is the state as of some time after its `journal_start`; replaying the journal from there on top of
//!   it leads to the state at the end, because each record states a fact about one key or one slot generation.
//!
//! # Failure (G4)
//! An error of a metadata write or of a flush, or several errors in a row of WEU writes or extent reads, put the
//! cache out of order: from then on requests go to the origin. Before a write may go there unmarked, the distrust of
//! what the device holds is recorded outside it ([`Action::Distrust`]).

use zc_core::{ErrorKind, JournalSeq, RegionKey, VolumeId, WeuSlot};
use zc_format::{CheckpointHeader, JournalBlock, RECORDS_PER_BLOCK, Record, RegionMap};

use crate::dirty::EpochState;
use crate::file_index::{Keep, Mapping, SweepCursor};
use crate::manager::{CacheManager, OpKind};
use crate::origin_flush::FlushWaiter;
use crate::regions::Retirement;
use crate::seam::{Action, Note, Purpose};
use crate::slots::SlotState;
use crate::tracks::ExpectHeld;

/// Errors in a row that put the cache out of order.
const ERRORS_IN_ROW_MAX: u32 = 8;
/// Journal records waiting at which insertion pauses: 64 blocks.
const PENDING_RECORDS_PRESSED: usize = 64 * RECORDS_PER_BLOCK;
/// Checkpoint blocks written at once.
const CHECKPOINT_BLOCKS: usize = 64;
/// Index buckets visited per step of a checkpoint.
const CHECKPOINT_BUCKETS: usize = 2048;
/// Slots visited per step of a checkpoint.
const CHECKPOINT_SLOTS: u32 = 512;
/// Without writes for so long, all marks are retired, so that a power cut finds everything warm.
const IDLE_RETIRE_MS: u64 = 2000;

/// A mark whose region was not written for so long is retired, ...
const RETIRE_AGE_MS: u64 = 30_000;
/// ... together with others: a retirement for age alone costs the origin a flush and comes so often at most.
const RETIRE_AGED_EVERY_MS: u64 = 5000;
/// After an origin flush failed, the next retirement waits for so long.
const RETIRE_BACKOFF_MS: u64 = 500;

/// State of the cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    /// It failed; the distrust of its contents is being recorded.
    Failing,
    /// Out of order; everything goes to the origin.
    Failed,
}

/// A region map on its way to the device.
#[derive(Debug)]
pub(crate) struct MapWrite {
    keys: Vec<RegionKey>,
}

/// A retirement on its way.
#[derive(Debug)]
pub(crate) struct Retiring {
    /// None: the inherited regions.
    candidates: Option<Retirement>,
    flushes: u32,
    journal: u64,
    /// Volumes whose origins did not flush.
    failed: Vec<(VolumeId, ErrorKind)>,
}

/// A checkpoint on its way.
#[derive(Debug)]
pub(crate) struct CheckpointRun {
    sequence: u64,
    area: usize,
    journal_start: JournalSeq,
    step: CheckpointStep,
    carry: Vec<Record>,
    blocks: u64,
    records: u64,
    in_flight: bool,
}

#[derive(Debug)]
enum CheckpointStep {
    Slots(u32),
    Index(SweepCursor),
    Flush,
    Commit,
    CommitFlush,
}

/// Errors in a row.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorRuns {
    reads: u32,
    writes: u32,
}

impl CacheManager {
    /// The first journal block that is not durable; after a clean stop the journal's end.
    #[must_use]
    pub fn journal_next(&self) -> JournalSeq {
        self.journal.durable_next()
    }

    pub(crate) fn pump_persist(&mut self) {
        if self.health != Health::Good {
            return;
        }
        self.pump_journal();
        self.pump_map();
        self.pump_retiring();
        self.pump_checkpoint();
    }

    /// Whether the journal is so far behind that cache work must wait.
    pub(crate) fn journal_is_pressed(&self) -> bool {
        let nearly_full = self.journal.used_blocks() + 2 >= self.journal.ring_blocks();
        self.journal.pending_len() > PENDING_RECORDS_PRESSED || (nearly_full && self.checkpoint.is_some())
    }

    fn pump_journal(&mut self) {
        if self.wb.summary.is_none()
            && let Some((sequence, records, durable)) =
                self.journal.take_block(self.now_ms, self.cfg.journal_delay_ms, self.is_told())
        {
            self.commits_in_block(sequence);
            let growing = self.begin_chain();
            self.stats.journal_bytes_written += u64::from(zc_core::limits::BLOCK_BYTES);
            let block = JournalBlock {
                sequence,
                session: self.session,
                region_map_sequence: self.map_durable,
                proved: self.commits_proved(),
                growing,
                records,
            };
            let op = self.op(OpKind::JournalWrite);
            self.out.push(Action::WriteJournal { op, block: Box::new(block), durable });
        }
        let asked = self.commits_want_flush();
        if self.journal.take_flush(asked) {
            self.commits_flushing();
            self.flush_cache(OpKind::JournalFlush);
        }
    }

    fn flush_cache(&mut self, kind: OpKind) {
        self.stats.device_flushes += 1;
        let op = self.op(kind);
        self.out.push(Action::FlushCache { op });
    }

    fn pump_map(&mut self) {
        let idle = self.map_stale && self.now_ms.saturating_sub(self.last_write_ms) >= IDLE_RETIRE_MS;
        let wanted = self.regions.has_new_marks() || (self.map_stale && (idle || self.stopping));
        if self.map_write.is_some() || !wanted {
            return;
        }
        let keys = self.regions.snapshot();
        self.map_stale = false;
        self.map_sequence += 1;
        self.map_copy = 1 - self.map_copy;
        self.stats.region_map_bytes_written += zc_format::REGION_MAP_BYTES;
        let map = RegionMap {
            sequence: self.map_sequence,
            session: self.session,
            journal_required: self.journal.durable_last(),
            regions: keys.clone(),
        };
        self.map_write = Some(MapWrite { keys });
        let op = self.op(OpKind::MapWrite);
        self.out.push(Action::WriteRegionMap { op, copy: self.map_copy, map: Box::new(map) });
    }

    fn map_durable(&mut self) {
        if let Some(write) = self.map_write.take() {
            self.regions.map_is_durable(&write.keys);
            self.map_durable = self.map_sequence;
        }
        self.start_marked_pieces();
    }

    fn start_marked_pieces(&mut self) {
        for id in core::mem::take(&mut self.waiting_mark) {
            if self.health == Health::Failed || (self.health == Health::Good && self.piece_is_marked(id)) {
                self.start_piece(id);
            } else {
                self.waiting_mark.push(id);
            }
        }
    }

    fn pump_retiring(&mut self) {
        if self.retiring.is_none() {
            self.begin_retiring();
        }
        let Some(retiring) = &self.retiring else { return };
        if retiring.flushes > 0 || !self.journal.is_durable(retiring.journal) {
            return;
        }
        let Some(Retiring { candidates, failed, .. }) = self.retiring.take() else { return };
        let mut gone = 0;
        match candidates {
            Some(candidates) => {
                let volumes = &self.volumes;
                gone =
                    self.regions.retire(&candidates, |id| volumes.get(&id).map_or(0, |v| v.writes_flushed));
                self.stats.regions_retired += zc_core::u64_from_usize(gone);
                self.map_stale |= gone > 0;
            }
            None => {
                self.regions.drop_inherited(|id| failed.iter().any(|(volume, _)| *volume == id));
                self.inherited_failed = !failed.is_empty();
                self.voids_owed |= self.inherited_failed;
                self.map_stale = true;
            }
        }
        if !failed.is_empty() {
            self.retire_not_before_ms = self.now_ms + RETIRE_BACKOFF_MS;
            // An origin that does not flush must not keep the daemon from stopping: the marks stay.
            self.stop_unsettled |= self.stopping;
            self.fail_waiting_writes(&failed, gone > 0);
        }
        self.admit_waiting();
    }

    fn begin_retiring(&mut self) {
        if self.load.is_some()
            || self.stop_flush.is_some()
            || (self.stop_unsettled && self.waiting_room.is_empty())
            || self.now_ms < self.retire_not_before_ms
        {
            return;
        }
        // Where an origin does not flush, other marks have their turn, too.
        let others_first = core::mem::take(&mut self.inherited_failed) && self.regions.len() > 0;
        if !others_first && (self.regions.inherited_len() > 0 || core::mem::take(&mut self.voids_owed)) {
            self.voids_owed = false;
            let volumes: Vec<_> = self.volumes.keys().copied().collect();
            self.start_retiring(None, volumes);
            return;
        }
        let idle = self.stopping || self.now_ms.saturating_sub(self.last_write_ms) >= IDLE_RETIRE_MS;
        let crowded = self.regions.len() * 4 >= self.regions.max() * 3 || !self.waiting_room.is_empty();
        let aged = self.now_ms >= self.retire_aged_at_ms;
        if self.regions.len() == 0 || !(idle || crowded || aged) {
            return;
        }
        let (count, until_ms) = if idle {
            (self.regions.len(), u64::MAX)
        } else if crowded {
            (self.regions.max() / 2, u64::MAX)
        } else {
            self.retire_aged_at_ms = self.now_ms + RETIRE_AGED_EVERY_MS;
            (self.regions.len(), self.now_ms.saturating_sub(RETIRE_AGE_MS))
        };
        let volumes = &self.volumes;
        let fails = |id| volumes.get(&id).is_some_and(|volume| volume.flush_failed);
        if let Some(candidates) = self.regions.retirement(count.max(1), until_ms, fails) {
            debug_assert!(candidates.len() <= self.regions.len());
            let volumes = self.regions.volumes(&candidates);
            self.start_retiring(Some(candidates), volumes);
        }
    }

    fn start_retiring(&mut self, candidates: Option<Retirement>, mut volumes: Vec<VolumeId>) {
        volumes.retain(|id| self.volumes.contains_key(id));
        volumes.sort_unstable();
        let journal = self.journal.want_all();
        let flushes = u32::try_from(volumes.len()).unwrap_or(u32::MAX);
        self.retiring = Some(Retiring { candidates, flushes, journal, failed: Vec::new() });
        for volume in volumes {
            self.flush_origin(volume, FlushWaiter::Retire);
        }
        self.pump_journal();
    }

    pub(crate) fn retire_flush_done(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        if let Some(retiring) = &mut self.retiring {
            retiring.flushes -= 1;
            retiring.failed.extend(result.err().map(|error| (volume, error)));
        }
    }

    /// Origins do not flush: writes that need room for their marks fail rather than hang. Those of other volumes wait if
    /// some room was made.
    fn fail_waiting_writes(&mut self, failed: &[(VolumeId, ErrorKind)], others_wait: bool) {
        for id in core::mem::take(&mut self.waiting_room) {
            let volume = self.writes.get(&id).expect_held().volume;
            let own = failed.iter().find(|(failed, _)| *failed == volume);
            match own.or_else(|| failed.first().filter(|_| !others_wait)) {
                Some((_, error)) => self.end_write(id, Err(*error)),
                None => self.waiting_room.push_back(id),
            }
        }
    }

    fn admit_waiting(&mut self) {
        while let Some(id) = self.waiting_room.front().copied() {
            if !self.mark_piece(id) {
                return;
            }
            self.waiting_room.pop_front();
        }
        self.pump_map();
    }

    fn pump_checkpoint(&mut self) {
        let full = self.journal.used_blocks() * 2 > self.journal.ring_blocks();
        let due = full || (self.checkpoint_missing && self.load.is_none());
        if self.checkpoint.is_none() && due && self.wb.summary.is_none() {
            self.end_chain();
            self.checkpoint = Some(CheckpointRun {
                sequence: self.checkpoint_sequence + 1,
                area: 1 - self.checkpoint_area,
                journal_start: self.commits_keep_from(),
                step: CheckpointStep::Slots(0),
                carry: self.dirty_records(),
                blocks: 0,
                records: 0,
                in_flight: false,
            });
        }
        while let Some(mut run) = self.checkpoint.take() {
            let busy = run.in_flight || !self.step_checkpoint(&mut run);
            self.checkpoint = Some(run);
            if busy {
                return;
            }
        }
    }

    /// Takes one step. False when it now waits for the device.
    fn step_checkpoint(&mut self, run: &mut CheckpointRun) -> bool {
        match &mut run.step {
            CheckpointStep::Slots(next) => {
                let end = next.saturating_add(CHECKPOINT_SLOTS).min(self.slots.len());
                for slot in *next..end {
                    let used = run.records + zc_core::u64_from_usize(run.carry.len());
                    let rest = u64::from(self.slots.len() - slot);
                    let room = self.cfg.geometry.checkpoint_records_max().saturating_sub(used + rest);
                    self.slot_records(WeuSlot(slot), room, &mut run.carry);
                }
                run.step = if end == self.slots.len() {
                    CheckpointStep::Index(SweepCursor::default())
                } else {
                    CheckpointStep::Slots(end)
                };
                self.write_chunk(run, false)
            }
            CheckpointStep::Index(cursor) => {
                let slots = &self.slots;
                let carry = &mut run.carry;
                let wrapped = self.files.sweep(cursor, CHECKPOINT_BUCKETS, |key, mapping| {
                    match mapping {
                        Mapping::Zero => carry.push(Record::Zero { key }),
                        Mapping::Duplicate(place) if slots.is_live(&place) => carry.push(Record::Duplicate {
                            key,
                            slot: place.slot,
                            generation: slots.get(place.slot).generation,
                            offset_units: place.offset_units,
                            pages: place.pages,
                        }),
                        _ => {}
                    }
                    Keep::Yes
                });
                if wrapped {
                    run.step = CheckpointStep::Flush;
                }
                self.write_chunk(run, wrapped)
            }
            CheckpointStep::Flush => {
                run.in_flight = true;
                self.flush_cache(OpKind::CheckpointFlush);
                false
            }
            CheckpointStep::Commit => {
                run.in_flight = true;
                let header = CheckpointHeader {
                    sequence: run.sequence,
                    session: self.session,
                    journal_start: run.journal_start,
                    blocks: run.blocks,
                    records: run.records,
                    weu_seq_next: zc_core::WeuSeq(self.weu_seq_next),
                    region_map_sequence: self.map_durable,
                };
                let op = self.op(OpKind::CheckpointCommit);
                self.out.push(Action::CommitCheckpoint { op, area: run.area, header: Box::new(header) });
                false
            }
            CheckpointStep::CommitFlush => {
                run.in_flight = true;
                self.flush_cache(OpKind::CheckpointCommitFlush);
                false
            }
        }
    }

    /// The epochs that are complete and not clean.
    fn dirty_records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for (volume, dirty) in &self.wb.volumes {
            let volume = *volume;
            // What the journal calls clean already may lie before the part of it that is replayed.
            let clean =
                dirty.destaging.recorded().map_or(dirty.data.clean, |epoch| epoch.max(dirty.data.clean));
            records.push(Record::Clean { volume, epoch: clean });
            let committed = dirty
                .data
                .epochs
                .iter()
                .filter(|epoch| epoch.state == EpochState::Committed && epoch.number > clean);
            for epoch in committed.map(|epoch| epoch.number) {
                records.extend(self.epoch_records(volume, epoch));
                records.push(Record::Committed { volume, epoch });
            }
        }
        records
    }

    /// What a restart has to know about a slot. If there is no `room` for its void bases (besides one record for each
    /// slot that follows) it is given up at the next restart: a void base left out would be believed then.
    fn slot_records(&self, id: WeuSlot, room: u64, into: &mut Vec<Record>) {
        let slot = self.slots.get(id);
        let generation = slot.generation;
        if zc_core::u64_from_usize(slot.void_bases.len()) > room {
            into.push(Record::SlotRetired { slot: id, generation });
            return;
        }
        let before = zc_core::Generation(generation.0.saturating_sub(1));
        match slot.state {
            SlotState::Open | SlotState::Writing | SlotState::Sealed | SlotState::Unread { known: true }
                if slot.filling =>
            {
                into.push(Record::SlotDirty { slot: id, generation, weu_seq: slot.weu_seq });
            }
            state
                if slot.tombstone
                    || matches!(state, SlotState::Sealed | SlotState::Unread { known: true }) =>
            {
                into.push(Record::SlotSealed {
                    slot: id,
                    generation,
                    weu_seq: slot.weu_seq,
                    header_bytes: slot.header_bytes,
                });
            }
            SlotState::Open | SlotState::Writing => {
                into.push(Record::SlotRetired { slot: id, generation: before });
            }
            // A unit of this generation may turn up when its header is read; what came before it is void.
            SlotState::Unread { known: false } if !slot.retired && before.0 > 0 => {
                into.push(Record::SlotRetired { slot: id, generation: before });
            }
            SlotState::Unread { known: false } if !slot.retired => {}
            _ if generation.0 == 0 => {}
            _ => into.push(Record::SlotRetired { slot: id, generation }),
        }
        if !slot.retired {
            let key = zc_core::ExtentKey { volume: VolumeId(0), extent: zc_core::ExtentNo(0) };
            into.extend(slot.void_bases.iter().map(|offset_units| Record::BaseInvalid {
                key,
                slot: id,
                generation,
                offset_units: *offset_units,
            }));
        }
    }

    /// Writes the full blocks that have come together, or all when `last`. False when it waits for the device.
    fn write_chunk(&mut self, run: &mut CheckpointRun, last: bool) -> bool {
        let full = run.carry.len() / RECORDS_PER_BLOCK * RECORDS_PER_BLOCK;
        if !last && full < CHECKPOINT_BLOCKS * RECORDS_PER_BLOCK {
            return true;
        }
        let rest = if last { Vec::new() } else { run.carry.split_off(full) };
        let records = core::mem::replace(&mut run.carry, rest);
        let first_block = run.blocks;
        let room = self.cfg.geometry.checkpoint_blocks.saturating_sub(1 + first_block);
        let fitting = usize::try_from(room).unwrap_or(usize::MAX).saturating_mul(RECORDS_PER_BLOCK);
        let mut records = records;
        self.stats.checkpoint_left_out += zc_core::u64_from_usize(records.len().saturating_sub(fitting));
        records.truncate(fitting);
        if records.is_empty() {
            return true;
        }
        let blocks = zc_core::u64_from_usize(records.len().div_ceil(RECORDS_PER_BLOCK));
        run.blocks += blocks;
        run.records += zc_core::u64_from_usize(records.len());
        run.in_flight = true;
        self.stats.checkpoint_bytes_written += blocks * u64::from(zc_core::limits::BLOCK_BYTES);
        let (area, sequence) = (run.area, run.sequence);
        let op = self.op(OpKind::CheckpointChunk);
        self.out.push(Action::WriteCheckpoint { op, area, first_block, sequence, records });
        false
    }

    fn checkpoint_step_done(&mut self, kind: OpKind) {
        let Some(run) = &mut self.checkpoint else { return };
        run.in_flight = false;
        match kind {
            OpKind::CheckpointFlush => run.step = CheckpointStep::Commit,
            OpKind::CheckpointCommit => run.step = CheckpointStep::CommitFlush,
            OpKind::CheckpointCommitFlush => {
                self.journal.truncate(run.journal_start);
                self.checkpoint_sequence = run.sequence;
                self.checkpoint_area = run.area;
                self.checkpoint_missing = false;
                self.checkpoint = None;
                self.stats.checkpoints += 1;
            }
            _ => {}
        }
    }

    /// A metadata operation ended.
    pub(crate) fn persist_done(&mut self, kind: OpKind, result: Result<(), ErrorKind>) {
        if kind == OpKind::Distrust {
            self.health = Health::Failed;
            self.start_marked_pieces();
            self.admit_waiting();
            return;
        }
        if let Err(error) = result {
            self.fail_cache(purpose(kind), error);
        }
        if self.health != Health::Good {
            self.stop_flush = self.stop_flush.map(|_| true);
            return;
        }
        match kind {
            OpKind::JournalWrite => {
                self.journal.block_written();
                self.let_chains_go();
                let written = self.journal.written();
                if written > self.intent_trimmed {
                    self.intent_trimmed = written;
                    self.out.push(Action::IntentTrim { records: written });
                }
            }
            OpKind::JournalFlush => {
                self.journal.flushed();
                self.let_chains_go();
                self.commits_flushed();
            }
            OpKind::MapWrite => self.flush_cache(OpKind::MapFlush),
            OpKind::MapFlush => self.map_durable(),
            OpKind::StopFlush => self.stop_flush = Some(true),
            other => self.checkpoint_step_done(other),
        }
    }

    /// Puts the cache out of order.
    pub(crate) fn fail_cache(&mut self, during: Purpose, error: ErrorKind) {
        if self.health != Health::Good {
            return;
        }
        self.health = Health::Failing;
        self.out.push(Action::Note(Note::CacheFailed { during, error }));
        self.retiring = None;
        self.map_write = None;
        self.checkpoint = None;
        self.load = None;
        if let Some(open) = self.open.take() {
            self.release(open.buf);
        }
        self.fail_write_back(error);
        let op = self.op(OpKind::Distrust);
        self.out.push(Action::Distrust { op, volume: None });
    }

    /// Counts extent reads that failed one after the other; true when there were too many.
    pub(crate) fn read_errors_in_row(&mut self, failed: bool) -> bool {
        self.errors.reads = if failed { self.errors.reads + 1 } else { 0 };
        self.errors.reads >= ERRORS_IN_ROW_MAX
    }

    /// Counts WEU writes that failed one after the other; true when there were too many.
    pub(crate) fn write_errors_in_row(&mut self, failed: bool) -> bool {
        self.errors.writes = if failed { self.errors.writes + 1 } else { 0 };
        self.errors.writes >= ERRORS_IN_ROW_MAX / 2
    }

    /// Goes on with stopping: drain, seal, persist, report.
    pub(crate) fn pump_stop(&mut self) {
        if !self.stopping || self.stopped {
            return;
        }
        if !(self.reads.is_empty() && self.writes.is_empty() && self.fills.is_empty()) {
            return;
        }
        let ahead: Vec<_> = self.prefetched.keys().copied().collect();
        ahead.into_iter().for_each(|key| self.drop_prefetched(key));
        self.drop_all_staged();
        self.age_runs();
        self.pump_placement();
        self.drop_unplaceable();
        if self.health != Health::Good {
            self.abandon_dirty_jobs();
        }
        let dirty_busy =
            if self.health == Health::Good { self.wb.is_busy() } else { !self.wb.jobs.is_empty() };
        if !self.inserts.is_idle() || self.staging.len() > 0 || dirty_busy || !self.gathers.is_empty() {
            return;
        }
        for buf in self.read_buffer.drain() {
            self.release(buf);
        }
        if self.health == Health::Good {
            self.seal();
            self.seal_dirty_unit();
            if !self.is_settled() {
                return;
            }
            match self.stop_flush {
                None => {
                    self.stop_flush = Some(false);
                    self.flush_cache(OpKind::StopFlush);
                    return;
                }
                Some(false) => return,
                Some(true) => {}
            }
        }
        if self.ops.is_empty() {
            self.stopped = true;
            let clean = self.health == Health::Good && !self.stop_unsettled;
            self.out.push(Action::Stopped { clean });
        }
    }

    /// While stopping nothing is evicted any more: what needs a slot is dropped.
    fn drop_unplaceable(&mut self) {
        if self.health == Health::Good && (self.slots.free_len() > 0 || self.slots.leaving() > 0) {
            return;
        }
        while let Some(run) = self.inserts.ready.pop_front() {
            let jobs = self.inserts.runs.remove(&run).map(|run| run.jobs).unwrap_or_default();
            for job in jobs {
                self.stats.insert_dropped += 1;
                self.end_job(job);
            }
        }
    }

    /// Whether everything is on the device and durable, with no region marked.
    fn is_settled(&mut self) -> bool {
        let position = self.journal.want_all();
        self.pump_persist();
        self.writing.is_empty()
            && self.load.is_none()
            && self.journal.is_durable(position)
            && self.checkpoint.is_none()
            && self.map_write.is_none()
            && self.retiring.is_none()
            && (self.stop_unsettled || self.is_unmarked())
    }
}

impl CacheManager {
    /// Whether a clean stop may say that no region is marked.
    fn is_unmarked(&self) -> bool {
        self.regions.len() == 0 && self.regions.inherited_len() == 0 && !self.map_stale && !self.voids_owed
    }
}

fn purpose(kind: OpKind) -> Purpose {
    match kind {
        OpKind::JournalWrite => Purpose::Journal,
        OpKind::MapWrite => Purpose::RegionMap,
        OpKind::CheckpointChunk | OpKind::CheckpointCommit => Purpose::Checkpoint,
        _ => Purpose::Flush,
    }
}
