//! Checkpoints: what the journal told, in one piece, so that its blocks may be written over.

use zc_core::{JournalSeq, VolumeId, WeuSlot};
use zc_format::{CheckpointHeader, RECORDS_PER_BLOCK, Record};

use crate::base::Base;
use crate::device::Device;
use crate::device::meta::{Op, flush_cache};
use crate::device::units::slots::SlotState;
use crate::index::file_index::{Keep, Mapping, SweepCursor};
use crate::seam::Action;

/// Checkpoint blocks written at once.
const CHECKPOINT_BLOCKS: usize = 64;
/// Index buckets visited per step of a checkpoint.
const CHECKPOINT_BUCKETS: usize = 2048;
/// Slots visited per step of a checkpoint.
const CHECKPOINT_SLOTS: u32 = 512;

/// The newest checkpoint and the one that is on its way.
#[derive(Debug)]
pub(super) struct Checkpoints {
    running: Option<CheckpointWrite>,
    /// Sequence of the newest one.
    sequence: u64,
    /// Which of the two areas it is in.
    area: usize,
    /// There is none on the device.
    missing: bool,
    /// Sequence of the one that a start would find.
    found: u64,
}

impl Checkpoints {
    /// After a start that found a checkpoint in this area, or none. The next ones number from `sequence` on.
    pub(super) const fn new(sequence: u64, area: usize, found: Option<u64>) -> Self {
        let (missing, found) = match found {
            Some(found) => (false, found),
            None => (true, 0),
        };
        Self { running: None, sequence, area, missing, found }
    }

    /// Sequence of the one that a start would find.
    pub(super) const fn found(&self) -> u64 {
        self.found
    }

    /// The area that it is in.
    pub(super) const fn area(&self) -> usize {
        self.area
    }

    /// Whether one is under way.
    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The one under way will not end.
    pub(super) fn give_up(&mut self) {
        self.running = None;
    }
}

/// A checkpoint on its way.
#[derive(Debug)]
struct CheckpointWrite {
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

impl Device {
    /// A slot whose bases are void. What dirty records name there is verified by the unit's number.
    fn retired_records(&self, id: WeuSlot, into: &mut Vec<Record>) {
        let slot = self.units.slots.get(id);
        let (generation, weu_seq, header_bytes) = (slot.generation(), slot.weu_seq(), slot.header_bytes());
        into.push(Record::SlotSealed { slot: id, generation, weu_seq, header_bytes });
        into.push(Record::SlotRetired { slot: id, generation });
    }
}

impl CheckpointWrite {
    /// Writes the full blocks that have come together, or all when `last`. False when it waits for the device.
    fn write_chunk(&mut self, last: bool, base: &mut Base) -> bool {
        let full = self.carry.len() / RECORDS_PER_BLOCK * RECORDS_PER_BLOCK;
        if !last && full < CHECKPOINT_BLOCKS * RECORDS_PER_BLOCK {
            return true;
        }
        let rest = if last { Vec::new() } else { self.carry.split_off(full) };
        let records = core::mem::replace(&mut self.carry, rest);
        let first_block = self.blocks;
        let room = base.cfg().geometry.checkpoint_blocks.saturating_sub(1 + first_block);
        let fitting = usize::try_from(room).unwrap_or(usize::MAX).saturating_mul(RECORDS_PER_BLOCK);
        let mut records = records;
        base.stats.checkpoint_left_out += zc_core::u64_from_usize(records.len().saturating_sub(fitting));
        records.truncate(fitting);
        if records.is_empty() {
            return true;
        }
        let blocks = zc_core::u64_from_usize(records.len().div_ceil(RECORDS_PER_BLOCK));
        self.blocks += blocks;
        self.records += zc_core::u64_from_usize(records.len());
        self.in_flight = true;
        base.stats.checkpoint_bytes_written += blocks * u64::from(zc_core::limits::BLOCK_BYTES);
        let (area, sequence) = (self.area, self.sequence);
        let op = base.port.op(Op::CheckpointChunk);
        base.port.emit(Action::WriteCheckpoint { op, area, first_block, sequence, records });
        false
    }
}

impl Device {
    /// Takes one step. False when it now waits for the device.
    fn step_checkpoint(&mut self, writing: &mut CheckpointWrite, base: &mut Base) -> bool {
        match &mut writing.step {
            CheckpointStep::Slots(next) => {
                let end = next.saturating_add(CHECKPOINT_SLOTS).min(self.units.slots.len());
                for slot in *next..end {
                    let used = writing.records + zc_core::u64_from_usize(writing.carry.len());
                    let rest = 2 * u64::from(self.units.slots.len() - slot);
                    let room = base.cfg().geometry.checkpoint_records_max().saturating_sub(used + rest);
                    self.slot_records(WeuSlot(slot), room, &mut writing.carry);
                }
                writing.step = if end == self.units.slots.len() {
                    CheckpointStep::Index(SweepCursor::default())
                } else {
                    CheckpointStep::Slots(end)
                };
                writing.write_chunk(false, base)
            }
            CheckpointStep::Index(cursor) => {
                let slots = &self.units.slots;
                let carry = &mut writing.carry;
                let wrapped = self.index.files.sweep(cursor, CHECKPOINT_BUCKETS, |key, mapping| {
                    match mapping {
                        Mapping::Zero => carry.push(Record::Zero { key }),
                        Mapping::Duplicate(place) if slots.is_live(&place) => carry.push(Record::Duplicate {
                            key,
                            slot: place.slot,
                            generation: slots.get(place.slot).generation(),
                            offset_units: place.offset_units,
                            pages: place.pages,
                        }),
                        _ => {}
                    }
                    Keep::Yes
                });
                if wrapped {
                    writing.step = CheckpointStep::Flush;
                }
                writing.write_chunk(wrapped, base)
            }
            CheckpointStep::Flush => {
                writing.in_flight = true;
                flush_cache(Op::CheckpointFlush, base);
                false
            }
            CheckpointStep::Commit => {
                writing.in_flight = true;
                let header = CheckpointHeader {
                    sequence: writing.sequence,
                    session: base.session.number(),
                    journal_start: writing.journal_start,
                    blocks: writing.blocks,
                    records: writing.records,
                    weu_seq_next: base.session.next(),
                    region_map_sequence: self.meta.durable_map(),
                };
                let op = base.port.op(Op::CheckpointCommit);
                base.port.emit(Action::CommitCheckpoint { op, area: writing.area, header: Box::new(header) });
                false
            }
            CheckpointStep::CommitFlush => {
                writing.in_flight = true;
                flush_cache(Op::CheckpointCommitFlush, base);
                false
            }
        }
    }

    /// What a restart has to know about a slot. If there is no `room` for its void bases (besides two records for each
    /// slot that follows) it is given up at the next restart: a void base left out would be believed then.
    fn slot_records(&self, id: WeuSlot, room: u64, into: &mut Vec<Record>) {
        let slot = self.units.slots.get(id);
        let generation = slot.generation();
        if zc_core::u64_from_usize(slot.void_bases().len()) > room {
            // Dirty data may come to lie here yet, as another write of content that the unit has.
            self.retired_records(id, into);
            return;
        }
        let before = zc_core::Generation(generation.0.saturating_sub(1));
        match slot.state() {
            SlotState::Open | SlotState::Writing | SlotState::Sealed | SlotState::Unread { known: true }
                if slot.is_filling() =>
            {
                into.push(Record::SlotDirty { slot: id, generation, weu_seq: slot.weu_seq() });
            }
            state
                if slot.is_tombstone()
                    || matches!(state, SlotState::Sealed | SlotState::Unread { known: true }) =>
            {
                into.push(Record::SlotSealed {
                    slot: id,
                    generation,
                    weu_seq: slot.weu_seq(),
                    header_bytes: slot.header_bytes(),
                });
            }
            SlotState::Open | SlotState::Writing => {
                into.push(Record::SlotRetired { slot: id, generation: before });
            }
            // A unit of this generation may turn up when its header is read; what came before it is void.
            SlotState::Unread { known: false } if !slot.is_retired() && before.0 > 0 => {
                into.push(Record::SlotRetired { slot: id, generation: before });
            }
            SlotState::Unread { known: false } if !slot.is_retired() => {}
            _ if generation.0 == 0 => {}
            _ if self.units.dirty_slots.contains(id) => self.retired_records(id, into),
            _ => into.push(Record::SlotRetired { slot: id, generation }),
        }
        if !slot.is_retired() {
            let key = zc_core::ExtentKey { volume: VolumeId(0), extent: zc_core::ExtentNo(0) };
            into.extend(slot.void_bases().iter().map(|offset_units| Record::BaseInvalid {
                key,
                slot: id,
                generation,
                offset_units: *offset_units,
            }));
        }
    }
}

impl Device {
    /// Whether a checkpoint is due and none is under way.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let full = self.meta.journal.used_blocks() * 2 > self.meta.journal.ring_blocks();
        let missing = self.meta.checkpoints.missing && self.recovery.load.is_none();
        // The area of the next one holds the image that is being read.
        self.meta.checkpoints.running.is_none() && !self.is_reading_image() && (full || missing)
    }

    /// Begins a checkpoint that makes journal blocks before `journal_start` needless; it begins with these records.
    pub(crate) fn begin_checkpoint(&mut self, journal_start: JournalSeq, records: Vec<Record>) {
        self.meta.checkpoints.running = Some(CheckpointWrite {
            sequence: self.meta.checkpoints.sequence + 1,
            area: 1 - self.meta.checkpoints.area,
            journal_start,
            step: CheckpointStep::Slots(0),
            carry: records,
            blocks: 0,
            records: 0,
            in_flight: false,
        });
    }

    /// Goes on with the checkpoint under way until it waits for the device.
    pub(crate) fn pump_checkpoint(&mut self, base: &mut Base) {
        while let Some(mut writing) = self.meta.checkpoints.running.take() {
            let busy = writing.in_flight || !self.step_checkpoint(&mut writing, base);
            self.meta.checkpoints.running = Some(writing);
            if busy {
                return;
            }
        }
    }

    /// An operation of the checkpoint under way ended. The first journal block that is still needed when it was the
    /// last one.
    pub(crate) fn checkpoint_step_done(&mut self, kind: Op, base: &mut Base) -> Option<JournalSeq> {
        let checkpoints = &mut self.meta.checkpoints;
        let writing = checkpoints.running.as_mut()?;
        writing.in_flight = false;
        match kind {
            Op::CheckpointFlush => writing.step = CheckpointStep::Commit,
            Op::CheckpointCommit => writing.step = CheckpointStep::CommitFlush,
            Op::CheckpointCommitFlush => {
                let start = writing.journal_start;
                checkpoints.sequence = writing.sequence;
                checkpoints.area = writing.area;
                checkpoints.missing = false;
                checkpoints.found = writing.sequence;
                checkpoints.running = None;
                self.meta.journal.truncate(start);
                base.stats.checkpoints += 1;
                return Some(start);
            }
            _ => {}
        }
        None
    }
}
