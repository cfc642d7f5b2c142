//! The manager's side: its state, the possible steps, and their effects.

use crate::device::{Block, Checkpoint, Crash, Device, Record, Set, Summary, Written, bit, of, small};
use crate::loss::Loss;
use crate::restart::{held, present, restart};
use crate::{Bounds, SHARER, VOLUMES, WriteBack};

/// Progress of a commit; as in `zc-cache/src/dirty/commit.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CommitStep {
    Writing,
    Summarized,
    Ready,
    Flushing,
}

/// A commit in progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Commit {
    version: u8,
    step: CommitStep,
    /// A client waits for it.
    awaited: bool,
    /// Its content is in the clean unit.
    elsewhere: bool,
    /// Bodies whose pieces were issued before it or with it.
    parts: Set,
    /// The block with its records.
    block: Option<u8>,
}

/// Progress of the oldest epoch's destaging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Destaging {
    Idle,
    Written,
    /// `Clean` is recorded and not durable.
    Cleaning(u8),
}

/// State of a volume in the manager and its clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Volume {
    /// The newest version that was ever made.
    made: u8,
    /// The newest version that was acknowledged and not lost.
    newest: u8,
    /// Version of the last answered flush, or of a restart.
    flushed: u8,
    /// The version of the open epoch.
    open: Option<u8>,
    pub(crate) commit: Option<Commit>,
    /// `Some` if another commit follows; `true` if a client waits for it.
    again: Option<bool>,
    /// Committed epochs that the origin lacks.
    committed: Vec<u8>,
    clean: u8,
    destaging: Destaging,
}

/// A summary in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SummaryWrite {
    volume: u8,
    /// Records in line that the chain holds then.
    in_summary: u8,
    bodies: Set,
}

/// Coverage of a flush in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Flush {
    bodies: Set,
    /// Blocks before this one.
    blocks_before: u8,
    clean_unit: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) volumes: [Volume; VOLUMES],
    pub(crate) device: Device,
    /// Bodies that are placed in the open unit and not sent off.
    placed: Set,
    /// Bodies that are in the clean unit.
    shared: Set,
    /// Records for the next block; the flag is set for a durable write.
    pub(crate) line: Vec<Record>,
    sealing: bool,
    /// Number of leading records that are in summaries.
    pub(crate) in_summary: u8,
    /// `true` if a chain may continue after the last block.
    chain: bool,
    pub(crate) summary: Option<SummaryWrite>,
    pub(crate) flush: Option<Flush>,
    checkpoints: u8,
    pub(crate) crashes: u8,
}

/// Next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A client writes, and is answered; `shared`: the clean unit has that content.
    Write {
        /// Volume.
        volume: u8,
        /// `true` if the clean unit has it.
        shared: bool,
    },
    /// A client flushes.
    Flush {
        /// Volume.
        volume: u8,
    },
    /// An epoch ends by age.
    Age {
        /// Volume.
        volume: u8,
    },
    /// A piece with this body has been written.
    BodyEnds {
        /// Volume.
        volume: u8,
        /// Version.
        version: u8,
    },
    /// The write of the clean unit begins.
    UnitBegins,
    /// The write of the clean unit completes.
    UnitEnds,
    /// The queued records are written as a journal block.
    BlockBegins,
    /// The journal block has been written.
    BlockEnds,
    /// A piece with a summary has been written.
    SummaryEnds,
    /// The device receives a flush.
    FlushBegins,
    /// The device has flushed.
    FlushEnds,
    /// The oldest epoch has been written to the origin.
    Destaged {
        /// Volume.
        volume: u8,
    },
    /// The origin has flushed it.
    OriginFlushed {
        /// Volume.
        volume: u8,
    },
    /// A checkpoint begins.
    CheckpointBegins,
    /// The checkpoint is durable.
    CheckpointEnds,
    /// The power fails, and the next session begins.
    Crash(Crash),
}

impl Volume {
    fn new(held: u8, made: u8, committed: Vec<u8>, clean: u8) -> Self {
        let destaging = Destaging::Idle;
        Self {
            made,
            newest: held,
            flushed: held,
            open: None,
            commit: None,
            again: None,
            committed,
            clean,
            destaging,
        }
    }
}

impl State {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self {
            volumes: std::array::from_fn(|_| Volume::new(0, 0, Vec::new(), 0)),
            device: Device::default(),
            placed: 0,
            shared: 0,
            line: Vec::new(),
            sealing: false,
            in_summary: 0,
            chain: false,
            summary: None,
            flush: None,
            checkpoints: bounds.checkpoints,
            crashes: bounds.crashes,
        }
    }

    fn volume(&mut self, volume: u8) -> &mut Volume {
        &mut self.volumes[usize::from(volume)]
    }

    /// Every step that is possible now.
    pub(crate) fn steps(&self, model: &WriteBack, steps: &mut Vec<Step>) {
        let (rules, bounds) = (&model.rules, &model.bounds);
        for volume in 0..=SHARER {
            let at = usize::from(volume);
            let it = &self.volumes[at];
            if it.made < bounds.writes[at] {
                steps.push(Step::Write { volume, shared: false });
                let readable = match self.device.clean_unit {
                    None => false,
                    Some(Written::Flying { .. }) => !rules.shared_content_is_written,
                    Some(Written::Ended | Written::Durable) => true,
                };
                if readable && volume == SHARER {
                    steps.push(Step::Write { volume, shared: true });
                }
            }
            if it.flushed < it.newest {
                steps.push(Step::Flush { volume });
            }
            if bounds.ageing && it.open.is_some() && it.commit.is_none() {
                steps.push(Step::Age { volume });
            }
            match it.destaging {
                Destaging::Idle if bounds.destaging && !it.committed.is_empty() => {
                    steps.push(Step::Destaged { volume });
                }
                Destaging::Written => steps.push(Step::OriginFlushed { volume }),
                _ => {}
            }
            let alone = !self.summary.map_or(0, |summary| summary.bodies);
            let flying = (self.device.flying[0] | self.device.flying[1]) & alone;
            let versions = (1..=4).filter(|version| flying & bit(volume, *version) != 0);
            steps.extend(versions.map(|version| Step::BodyEnds { volume, version }));
        }
        match self.device.clean_unit {
            None if bounds.sharing => steps.push(Step::UnitBegins),
            Some(Written::Flying { .. }) => steps.push(Step::UnitEnds),
            _ => {}
        }
        if self.device.is_block_flying() {
            steps.push(Step::BlockEnds);
        } else if !self.line.is_empty() && self.summary.is_none() {
            steps.push(Step::BlockBegins);
        }
        if self.summary.is_some() {
            steps.push(Step::SummaryEnds);
        }
        if self.flush.is_some() {
            steps.push(Step::FlushEnds);
        } else if self.commits().any(|commit| commit.step == CommitStep::Ready) {
            steps.push(Step::FlushBegins);
        }
        if self.device.checkpoint_in_flight.is_some() {
            steps.push(Step::CheckpointEnds);
        } else if self.checkpoints > 0 && (self.summary.is_none() || !rules.checkpoint_waits_for_summary) {
            steps.push(Step::CheckpointBegins);
        }
        if self.crashes > 0 {
            steps.extend(self.device.crashes().map(Step::Crash));
        }
    }

    /// Executes a step with all of its immediate consequences.
    pub(crate) fn take(&mut self, model: &WriteBack, step: Step) {
        match step {
            Step::Write { volume, shared } => self.write(volume, shared),
            Step::Flush { volume } => self.request_commit(model, volume, true),
            Step::Age { volume } => self.request_commit(model, volume, false),
            Step::BodyEnds { volume, version } => self.body_ends(bit(volume, version)),
            Step::UnitBegins => self.device.clean_unit = Some(Written::Flying { durably: false }),
            Step::UnitEnds => self.device.clean_unit = Some(Written::Ended),
            Step::BlockBegins => self.block_begins(model),
            Step::BlockEnds => {
                if let Some(block) = self.device.blocks.last_mut() {
                    let durable = block.written == Written::Flying { durably: true };
                    block.written = if durable { Written::Durable } else { Written::Ended };
                }
            }
            Step::SummaryEnds => self.summary_ends(model),
            Step::FlushBegins => self.flush_begins(),
            Step::FlushEnds => self.flush_ends(model),
            Step::Destaged { volume } => {
                let at = usize::from(volume);
                self.device.origin_unflushed[at] = self.volumes[at].committed.first().copied();
                self.volume(volume).destaging = Destaging::Written;
                if !model.rules.clean_needs_a_flush {
                    self.record_clean(model, volume);
                }
            }
            Step::OriginFlushed { volume } => {
                let at = usize::from(volume);
                if let Some(version) = self.device.origin_unflushed[at].take() {
                    self.device.origin[at] = version;
                }
                self.record_clean(model, volume);
            }
            Step::CheckpointBegins => self.checkpoint_begins(model),
            Step::CheckpointEnds => self.checkpoint_ends(),
            Step::Crash(crash) => self.crash(model, crash),
        }
        self.pump(model);
    }

    fn write(&mut self, volume: u8, shared: bool) {
        let it = self.volume(volume);
        it.made += 1;
        it.newest = it.made;
        let (body, before) = (bit(volume, it.made), it.open.replace(it.made));
        // The open epoch has one version of the sector: the one before it is in no record.
        if let Some(before) = before {
            self.forget(bit(volume, before));
        }
        if shared {
            self.shared |= body;
        } else {
            self.placed |= body;
        }
    }

    /// Reuses the place of a body to which no record refers.
    fn forget(&mut self, body: Set) {
        let device = &mut self.device;
        for set in device.flying.iter_mut().chain([&mut device.ended, &mut device.durable]) {
            *set &= !body;
        }
        self.placed &= !body;
        self.shared &= !body;
    }

    fn body_ends(&mut self, body: Set) {
        if self.device.flying[1] & body == 0 {
            self.device.ended |= body;
        } else {
            self.device.durable |= body;
        }
        self.device.flying.iter_mut().for_each(|set| *set &= !body);
    }

    /// As `CacheManager::request_commit`.
    fn request_commit(&mut self, model: &WriteBack, volume: u8, awaited: bool) {
        let it = self.volume(volume);
        if let Some(commit) = &mut it.commit {
            if it.open.is_none() {
                commit.awaited |= awaited;
            } else {
                it.again = Some(awaited || it.again == Some(true));
            }
            return;
        }
        let awaited = it.again.take() == Some(true) || awaited;
        let Some(version) = it.open.take() else {
            if awaited {
                it.flushed = it.newest;
            }
            return;
        };
        self.write_commit(model, volume, version, awaited);
    }

    /// As `CacheManager::write_commit`: sends pieces and records off.
    fn write_commit(&mut self, model: &WriteBack, volume: u8, version: u8, awaited: bool) {
        let elsewhere = self.shared & bit(volume, version) != 0;
        let durably = awaited && !(elsewhere && model.rules.shared_content_needs_a_flush);
        let in_summary = durably && !elsewhere && self.is_summary_possible(model);
        let bodies = std::mem::take(&mut self.placed);
        self.device.flying[usize::from(durably)] |= bodies;
        let mut step = CommitStep::Writing;
        self.line.push(Record::Committed { volume, version });
        if in_summary {
            step = CommitStep::Summarized;
            let records = self.line[usize::from(self.in_summary)..].to_vec();
            let (next, proved) = (self.device.next(), self.proved(model));
            self.device.summaries.push(Summary { next, records, proved, durable: false });
            self.summary = Some(SummaryWrite { volume, in_summary: small(self.line.len()), bodies });
        } else {
            self.sealing |= durably;
        }
        let parts = self.device.in_doubt();
        let elsewhere = elsewhere && model.rules.shared_content_needs_a_flush;
        self.volume(volume).commit = Some(Commit { version, step, awaited, elsewhere, parts, block: None });
    }

    fn is_summary_possible(&self, model: &WriteBack) -> bool {
        let flying = self.device.flying[0] | self.device.flying[1];
        let unflushed = model.rules.summary_needs_durable_pieces && self.device.ended != 0;
        let settled = self.device.durable_next() == self.device.next();
        let in_line = |commit: &Commit| commit.step == CommitStep::Writing && commit.block.is_none();
        let alone = !model.rules.summary_is_alone || !self.commits().any(in_line);
        self.chain
            && self.summary.is_none()
            && flying == 0
            && !unflushed
            && settled
            && alone
            && self.placed != 0
    }

    /// Commits in blocks before this one are complete.
    fn proved(&self, model: &WriteBack) -> u8 {
        let durable = self.device.durable_next();
        let oldest = self.commits().filter_map(|commit| commit.block).min();
        oldest.filter(|_| model.rules.proof_waits_for_commits).map_or(durable, |block| block.min(durable))
    }

    fn block_begins(&mut self, model: &WriteBack) {
        let block = self.device.next();
        for volume in &mut self.volumes {
            if let Some(commit) =
                volume.commit.as_mut().filter(|commit| commit.step != CommitStep::Summarized)
            {
                commit.block.get_or_insert(block);
            }
        }
        let proved = self.proved(model);
        let written = Written::Flying { durably: std::mem::take(&mut self.sealing) };
        self.device.blocks.push(Block { records: std::mem::take(&mut self.line), proved, written });
        self.in_summary = 0;
        self.chain = true;
    }

    fn summary_ends(&mut self, model: &WriteBack) {
        let Some(write) = self.summary.take() else { return };
        if let Some(summary) = self.device.summaries.last_mut() {
            summary.durable = true;
        }
        self.body_ends(write.bodies);
        if self.chain {
            self.in_summary = write.in_summary;
        }
        self.end_commit(model, write.volume);
    }

    fn flush_begins(&mut self) {
        let flying = u8::from(self.device.is_block_flying());
        self.flush = Some(Flush {
            bodies: self.device.ended,
            blocks_before: self.device.next() - flying,
            clean_unit: self.device.clean_unit == Some(Written::Ended),
        });
        for volume in &mut self.volumes {
            if let Some(commit) = volume.commit.as_mut().filter(|commit| commit.step == CommitStep::Ready) {
                commit.step = CommitStep::Flushing;
            }
        }
    }

    fn flush_ends(&mut self, model: &WriteBack) {
        let Some(flush) = self.flush.take() else { return };
        let covered = flush.bodies & self.device.ended;
        self.device.ended &= !covered;
        self.device.durable |= covered;
        for (block, sequence) in self.device.blocks.iter_mut().zip(self.device.first..) {
            if sequence < flush.blocks_before {
                block.written = Written::Durable;
            }
        }
        if flush.clean_unit {
            self.device.clean_unit = Some(Written::Durable);
        }
        for volume in 0..=SHARER {
            let step = self.volume(volume).commit.as_ref().map(|commit| commit.step);
            let ready = step == Some(CommitStep::Ready) && !model.rules.flush_covers_what_had_ended;
            if step == Some(CommitStep::Flushing) || ready {
                self.end_commit(model, volume);
            }
        }
    }

    /// Completes a commit that the manager considers durable.
    fn end_commit(&mut self, model: &WriteBack, volume: u8) {
        let it = self.volume(volume);
        let Some(commit) = it.commit.take() else { return };
        it.committed.push(commit.version);
        if commit.awaited {
            it.flushed = commit.version;
        }
        if it.again.is_some() {
            self.request_commit(model, volume, false);
        }
    }

    fn record_clean(&mut self, model: &WriteBack, volume: u8) {
        let Some(version) = self.volume(volume).committed.first().copied() else { return };
        self.volume(volume).destaging = Destaging::Cleaning(version);
        self.line.push(Record::Clean { volume, version });
        if !model.rules.body_is_kept {
            self.forget(bit(volume, version));
        }
    }

    fn checkpoint_begins(&mut self, model: &WriteBack) {
        self.checkpoints -= 1;
        let mut checkpoint = Checkpoint { journal_start: self.device.next(), ..Checkpoint::default() };
        for (at, volume) in self.volumes.iter().enumerate() {
            checkpoint.clean[at] = match volume.destaging {
                Destaging::Cleaning(version) => version,
                _ => volume.clean,
            };
            let clean = checkpoint.clean[at];
            checkpoint.committed[at] = volume.committed.iter().copied().filter(|it| *it > clean).collect();
            let block = volume.commit.as_ref().and_then(|commit| commit.block);
            if let Some(block) = block.filter(|_| model.rules.checkpoint_keeps_commits) {
                checkpoint.journal_start = checkpoint.journal_start.min(block);
            }
        }
        if model.rules.checkpoint_ends_chain {
            self.chain = false;
            self.in_summary = 0;
        }
        self.device.checkpoint_in_flight = Some(checkpoint);
    }

    fn checkpoint_ends(&mut self) {
        let Some(checkpoint) = self.device.checkpoint_in_flight.take() else { return };
        // Earlier blocks are overwritten.
        while self.device.first < checkpoint.journal_start {
            self.device.blocks.remove(0);
            self.device.first += 1;
        }
        self.device.checkpoint = checkpoint;
    }

    /// Turns the state after a power failure into the first state of the next session.
    fn crash(&mut self, model: &WriteBack, crash: Crash) {
        let recovered = self.device.after(crash).and_then(|device| {
            let present = present(&device, self.shared);
            let found = restart(&device, present)?;
            let held = held(&device, &found, present)?;
            Ok((device, found, held))
        });
        // A loss is reported when the step begins: there is no state to continue from.
        let Ok((device, found, held)) = recovered else { return };
        let mut next = Self::new(&model.bounds);
        let mut kept = 0;
        for volume in 0..=SHARER {
            let at = usize::from(volume);
            let committed = found.committed[at].clone();
            kept |= committed.iter().fold(0, |set, version| set | bit(volume, *version)) & of(volume);
            let made = self.volumes[at].made;
            next.volumes[at] = Volume::new(held[at], made, committed, found.clean[at]);
        }
        next.shared = self.shared & kept;
        next.device.durable = device.durable & kept;
        next.device.clean_unit = device.clean_unit;
        next.device.origin = device.origin;
        next.device.checkpoint =
            Checkpoint { journal_start: 0, committed: found.committed, clean: found.clean };
        next.crashes = self.crashes - 1;
        *self = next;
    }

    /// Executes automatic follow-ups.
    fn pump(&mut self, model: &WriteBack) {
        for volume in 0..=SHARER {
            let at = usize::from(volume);
            let flying = self.device.flying[0] | self.device.flying[1];
            let Some(commit) = &self.volumes[at].commit else { continue };
            let (Some(block), parts) = (commit.block, commit.parts) else { continue };
            let ended = parts & flying == 0 && self.device.has_ended(block);
            let durable =
                parts & self.device.ended == 0 && self.device.is_durable(block) && !commit.elsewhere;
            if commit.step == CommitStep::Writing
                && ended
                && let Some(commit) = &mut self.volume(volume).commit
            {
                commit.step = CommitStep::Ready;
            }
            let ready = self.volumes[at].commit.as_ref().is_some_and(|it| it.step == CommitStep::Ready);
            if ready && durable {
                self.end_commit(model, volume);
            }
        }
        for volume in 0..=SHARER {
            if let Destaging::Cleaning(version) = self.volumes[usize::from(volume)].destaging
                && self.is_recorded(Record::Clean { volume, version })
            {
                let it = self.volume(volume);
                it.committed.retain(|committed| *committed > version);
                it.clean = version;
                it.destaging = Destaging::Idle;
                self.forget(bit(volume, version));
            }
        }
        let durable = self.device.durable_next();
        // The block that repeats them is durable: their unit is released.
        self.device.summaries.retain(|summary| summary.next >= durable);
    }

    /// Returns `true` if a restart would find this record.
    fn is_recorded(&self, record: Record) -> bool {
        let durable = self.device.durable_next();
        let mut in_doubt =
            self.device.blocks.iter().zip(self.device.first..).filter(|(_, at)| *at >= durable);
        let in_line = self.line.iter().skip(usize::from(self.in_summary)).any(|it| *it == record);
        !in_line && !in_doubt.any(|(block, _)| block.records.contains(&record))
    }

    /// Returns the crashes of this state that violate a guarantee, with the violation.
    pub fn losses(&self) -> impl Iterator<Item = (Crash, Loss)> {
        self.device.crashes().filter_map(|crash| Some((crash, self.judge(crash).err()?)))
    }

    fn judge(&self, crash: Crash) -> Result<(), Loss> {
        let device = self.device.after(crash)?;
        let present = present(&device, self.shared);
        let found = restart(&device, present)?;
        let held = held(&device, &found, present)?;
        for (volume, found) in (0..).zip(held) {
            let flushed = self.volumes[usize::from(volume)].flushed;
            if found < flushed {
                return Err(Loss::Flushed { volume, version: flushed, found });
            }
        }
        Ok(())
    }

    pub(crate) fn shares_what_is_not_durable(&self) -> bool {
        self.device.clean_unit == Some(Written::Ended) && self.commits().any(|commit| commit.elsewhere)
    }

    fn commits(&self) -> impl Iterator<Item = &Commit> {
        self.volumes.iter().filter_map(|volume| volume.commit.as_ref())
    }
}
