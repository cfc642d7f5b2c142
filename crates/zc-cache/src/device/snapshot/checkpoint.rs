//! Checkpoints: condense the contents of the journal, so that its blocks may be overwritten.

use zc_core::{JournalSeq, VolumeId, WeuSlot};
use zc_format::{CheckpointHeader, RECORDS_PER_BLOCK, Record};

use crate::base::Base;
use crate::device::catalog::Catalog;
use crate::device::meta::flush_cache;
use crate::device::slots::table::SlotState;
use crate::index::file_index::{Keep, Mapping, SweepCursor};
use crate::ops::meta::Op;
use crate::seam::Action;

/// Checkpoint blocks per write.
const CHECKPOINT_BLOCKS: usize = 64;
/// Index buckets visited per step of a checkpoint.
const CHECKPOINT_BUCKETS: usize = 2048;
/// Slots visited per step of a checkpoint.
const CHECKPOINT_SLOTS: u32 = 512;

/// Newest checkpoint, and the one in progress.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    running: Option<CheckpointWrite>,
    sequence: u64,
    /// Its area, of two.
    area: usize,
    missing: bool,
    /// Sequence of the checkpoint that a start would find.
    found: u64,
}

impl Checkpoints {
    /// Creates the state from the checkpoint that a start found in this area, if any. `sequence`: number of the next
    /// one.
    pub(crate) const fn new(sequence: u64, area: usize, found: Option<u64>) -> Self {
        let (missing, found) = match found {
            Some(found) => (false, found),
            None => (true, 0),
        };
        Self { running: None, sequence, area, missing, found }
    }

    /// Sequence of the checkpoint that a start would find.
    pub(crate) const fn found(&self) -> u64 {
        self.found
    }

    pub(crate) const fn area(&self) -> usize {
        self.area
    }

    /// Abandons the checkpoint in progress.
    pub(crate) fn give_up(&mut self) {
        self.running = None;
    }
}

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

impl CheckpointWrite {
    /// Executes one step. Returns `false` if it must wait for the device.
    fn step(&mut self, catalog: &mut Catalog, base: &mut Base) -> bool {
        match &mut self.step {
            CheckpointStep::Slots(next) => {
                let end = next.saturating_add(CHECKPOINT_SLOTS).min(catalog.table().len());
                for slot in *next..end {
                    let used = self.records + zc_core::u64_from_usize(self.carry.len());
                    let rest = 2 * u64::from(catalog.table().len() - slot);
                    let room = base.cfg().geometry.checkpoint_records_max().saturating_sub(used + rest);
                    slot_records(WeuSlot(slot), room, catalog, &mut self.carry);
                }
                self.step = if end == catalog.table().len() {
                    CheckpointStep::Index(SweepCursor::default())
                } else {
                    CheckpointStep::Slots(end)
                };
                self.write_chunk(false, base)
            }
            CheckpointStep::Index(cursor) => {
                let carry = &mut self.carry;
                let wrapped = catalog.visit_mappings(cursor, CHECKPOINT_BUCKETS, |slots, key, mapping| {
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
                    self.step = CheckpointStep::Flush;
                }
                self.write_chunk(wrapped, base)
            }
            CheckpointStep::Flush => {
                self.in_flight = true;
                flush_cache(Op::CheckpointFlush, base);
                false
            }
            CheckpointStep::Commit => {
                self.in_flight = true;
                let header = CheckpointHeader {
                    sequence: self.sequence,
                    session: base.session.number(),
                    journal_start: self.journal_start,
                    blocks: self.blocks,
                    records: self.records,
                    weu_seq_next: base.session.next(),
                    region_map_sequence: catalog.meta().durable_map(),
                };
                let op = base.port.op(Op::CheckpointCommit);
                base.port.emit(Action::CommitCheckpoint { op, area: self.area, header: Box::new(header) });
                false
            }
            CheckpointStep::CommitFlush => {
                self.in_flight = true;
                flush_cache(Op::CheckpointCommitFlush, base);
                false
            }
        }
    }

    /// Writes the full blocks collected so far, or all if `last`. Returns `false` if it must wait for the device.
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

/// Adds the records of a slot that a restart needs. If `room` is too small for its invalid bases (besides two records
/// for each following slot) the slot is dropped at the next restart: an omitted base would be trusted then.
fn slot_records(id: WeuSlot, room: u64, catalog: &Catalog, into: &mut Vec<Record>) {
    let slot = catalog.table().get(id);
    let generation = slot.generation();
    if zc_core::u64_from_usize(slot.void_bases().len()) > room {
        // The slot may still receive dirty data, as another write of content that is in the unit.
        retired_records(id, catalog, into);
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
        // A unit of this generation may be found when its header is read; earlier ones are invalid.
        SlotState::Unread { known: false } if !slot.is_retired() && before.0 > 0 => {
            into.push(Record::SlotRetired { slot: id, generation: before });
        }
        SlotState::Unread { known: false } if !slot.is_retired() => {}
        _ if generation.0 == 0 => {}
        _ if catalog.slots().dirty().contains(id) => retired_records(id, catalog, into),
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

/// Adds the records of a slot whose bases are invalid. Targets of dirty records in it are verified by the unit's
/// number.
fn retired_records(id: WeuSlot, catalog: &Catalog, into: &mut Vec<Record>) {
    let slot = catalog.table().get(id);
    let (generation, weu_seq, header_bytes) = (slot.generation(), slot.weu_seq(), slot.header_bytes());
    into.push(Record::SlotSealed { slot: id, generation, weu_seq, header_bytes });
    into.push(Record::SlotRetired { slot: id, generation });
}

impl Checkpoints {
    /// Returns `true` if a checkpoint is due and none is in progress.
    pub(crate) fn is_due(&self, catalog: &Catalog, base: &Base) -> bool {
        let full = catalog.meta().journal().used_blocks() * 2 > catalog.meta().journal().ring_blocks();
        let missing = self.missing && base.is_loaded();
        // The next checkpoint would overwrite the area of the image that is being read.
        self.running.is_none() && !base.is_reading_image() && (full || missing)
    }

    /// Begins a checkpoint that makes journal blocks before `journal_start` obsolete; it begins with these records.
    pub(crate) fn begin(&mut self, journal_start: JournalSeq, records: Vec<Record>, catalog: &mut Catalog) {
        catalog.meta_mut().set_checkpointing(true);
        self.running = Some(CheckpointWrite {
            sequence: self.sequence + 1,
            area: 1 - self.area,
            journal_start,
            step: CheckpointStep::Slots(0),
            carry: records,
            blocks: 0,
            records: 0,
            in_flight: false,
        });
    }

    /// Continues the checkpoint in progress until it must wait for the device.
    pub(crate) fn pump(&mut self, catalog: &mut Catalog, base: &mut Base) {
        while let Some(mut writing) = self.running.take() {
            let busy = writing.in_flight || !writing.step(catalog, base);
            self.running = Some(writing);
            if busy {
                return;
            }
        }
    }

    /// Handles the completion of an operation of the checkpoint in progress. After the last one, returns the first
    /// journal block that is still needed.
    pub(crate) fn step_done(
        &mut self,
        kind: Op,
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> Option<JournalSeq> {
        let writing = self.running.as_mut()?;
        writing.in_flight = false;
        match kind {
            Op::CheckpointFlush => writing.step = CheckpointStep::Commit,
            Op::CheckpointCommit => writing.step = CheckpointStep::CommitFlush,
            Op::CheckpointCommitFlush => {
                let start = writing.journal_start;
                self.sequence = writing.sequence;
                self.area = writing.area;
                self.missing = false;
                self.found = writing.sequence;
                self.running = None;
                catalog.meta_mut().set_checkpointing(false);
                catalog.meta_mut().journal_mut().truncate(start);
                base.stats.checkpoints += 1;
                return Some(start);
            }
            _ => {}
        }
        None
    }
}
