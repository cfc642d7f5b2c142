//! Summaries: commits in a single write. The records that the journal lacks are written at the end of the piece that
//! they describe (`FORMAT.md`, section 8.3).
//!
//! A commit with a waiting client takes two durable writes, unit and journal block. If all earlier writes are durable,
//! and the journal's last block names the growing unit, the next piece carries a summary instead, with all records
//! since. The records remain queued for the next block, which repeats them. With that block a new chain begins.
//!
//! Invariants: a summary and a journal block are never in flight together; the summaries of a chain contain, together,
//! the first queued records, at most as many as fit in one block; none of these belongs to an incomplete commit,
//! except the one that the summary in flight is written for; their slot is pinned until that block is durable. Commits
//! and destaging rely on summaries; operations that need a durable *journal* (retirements, drops) wait for the block.

use std::collections::VecDeque;

use zc_core::{JournalSeq, VolumeId, WeuSlot, limits};
use zc_format::{GrowingUnit, Record, Summary, SummaryPlace, WeuHeader};

use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::seam::Action;

/// Summaries after the journal's last block.
#[derive(Debug)]
struct Chain {
    unit: GrowingUnit,
    /// First page of the next piece.
    next_page: u32,
    ordinal: u32,
    /// Queued records for the next block that they contain.
    carried: usize,
    /// Journal position of the last of those records.
    carried_to: u64,
}

/// A piece being written with a summary.
#[derive(Debug)]
struct SummaryWrite {
    part: u64,
    volume: VolumeId,
    /// Records in the chain once the summary is written.
    carried: usize,
    carried_to: u64,
    next_page: u32,
}

/// Position of the next summary: its records, its bytes, and the end of its page in the slot.
struct Room {
    skip: usize,
    bytes: u32,
    end: u32,
}

/// Summaries, and the slots that they pin.
#[derive(Debug, Default)]
pub(crate) struct Summaries {
    /// The summaries that continue the journal.
    chain: Option<Chain>,
    /// Slots with summaries, and the journal blocks that will repeat them.
    chain_pins: VecDeque<(JournalSeq, WeuSlot)>,
    summary: Option<SummaryWrite>,
}

impl Summaries {
    /// Returns `true` if a summary is in flight.
    pub(super) const fn is_writing(&self) -> bool {
        self.summary.is_some()
    }

    /// Records that a journal block is taken, after which a chain may begin in the growing unit.
    pub(crate) fn begin_chain(&mut self, core: &mut Core) -> Option<GrowingUnit> {
        let unit = core.device.units.dirty().open().filter(|_| core.base.session.uuid().is_some());
        let growing = unit.map(|unit| unit.growing());
        self.chain =
            growing.map(|unit| Chain { unit, next_page: unit.page, ordinal: 0, carried: 0, carried_to: 0 });
        growing
    }

    /// Returns `true` if the next journal block repeats records of summaries.
    pub(crate) fn has_carried(&self) -> bool {
        self.chain.as_ref().is_some_and(|chain| chain.carried > 0)
    }

    /// Returns `true` if a restart would find all records up to this position, in the journal or in a summary.
    pub(crate) fn is_recorded(&self, position: u64, core: &Core) -> bool {
        let carried = |chain: &Chain| position <= chain.carried_to;
        core.device.catalog.meta().journal().is_durable(position) || self.chain.as_ref().is_some_and(carried)
    }

    /// Writes the piece of an epoch's commit with a summary, if possible, in place of all other writes. `is_alone`: no
    /// other commit has queued records. Commits before `proved` are durable.
    pub(super) fn write(
        &mut self,
        (volume, epoch): (VolumeId, u64),
        records: &[Record],
        is_alone: bool,
        proved: JournalSeq,
        core: &mut Core,
    ) -> bool {
        let Some(room) = self.room(records.len() + 1, is_alone, core) else { return false };
        records.iter().for_each(|record| core.device.catalog.record(*record, &mut core.base));
        core.device.catalog.record(Record::Committed { volume, epoch }, &mut core.base);
        let last = core.device.catalog.meta().journal().appended();
        let next_page = room.end / limits::BLOCK_BYTES;
        self.place(&room, proved, core);
        let part = core.device.units.dirty_mut().write_part(room.end, true, &mut core.base);
        let carried = core.device.catalog.meta().journal().pending_len();
        self.summary = Some(SummaryWrite { part, volume, carried, carried_to: last, next_page });
        true
    }

    /// Returns space for a summary with this number of records beyond the queued ones; `None` without space, or
    /// without a chain to continue.
    fn room(&self, records: usize, is_alone: bool, core: &Core) -> Option<Room> {
        let chain = self.chain.as_ref().filter(|_| self.summary.is_none())?;
        let units = core.device.units.dirty();
        let unit = units.open()?;
        let continues = unit.growing() == GrowingUnit { page: chain.next_page, ..chain.unit };
        // All that the commit needs besides its piece must be durable.
        let flushed = units.writes().is_flushed();
        let written =
            units.writes().is_idle() && flushed && core.device.catalog.meta().journal().is_all_durable();
        // The next summary would vouch for every other commit that this one carries.
        let alone = written && is_alone;
        let in_line = core.device.catalog.meta().journal().pending_len() + records;
        if !continues
            || !alone
            || !unit.has_unwritten()
            || in_line > core.device.catalog.meta().journal().block_records()
        {
            return None;
        }
        let page = limits::BLOCK_BYTES;
        let bytes = u32::try_from(Summary::encoded_bytes(in_line - chain.carried)).ok()?;
        let fill_bytes = unit.fill_bytes();
        let free = fill_bytes.next_multiple_of(page) - fill_bytes;
        let end = fill_bytes.next_multiple_of(page) + if free < bytes { page } else { 0 };
        let fits = end + WeuHeader::encoded_bytes(unit.entry_count()) <= core.base.cfg().geometry.weu_bytes;
        fits.then_some(Room { skip: chain.carried, bytes, end })
    }

    fn place(&self, room: &Room, proved: JournalSeq, core: &mut Core) {
        let chain = self.chain.as_ref().expect_held();
        let summary = Summary {
            next: core.device.catalog.meta().journal().next(),
            session: core.base.session.number(),
            ordinal: chain.ordinal,
            first_page: chain.next_page,
            region_map_sequence: core.device.catalog.meta().durable_map(),
            proved,
            records: core.device.catalog.meta().journal().pending_from(room.skip),
        };
        let place = SummaryPlace {
            uuid: core.base.session.uuid().expect_held(),
            slot: chain.unit.slot,
            generation: chain.unit.generation,
            page: room.end / limits::BLOCK_BYTES - 1,
        };
        let unit = core.device.units.dirty().open().expect_held();
        unit.zero_until(room.end - room.bytes, &mut core.base);
        let weu = unit.buf();
        core.base.port.emit(Action::Summarize { weu, place, summary: Box::new(summary) });
    }

    /// Completes the write of a piece, durable if it has a summary; in that case returns the volume that commits.
    pub(super) fn written(&mut self, part: u64, core: &mut Core) -> Option<VolumeId> {
        let write = self.summary.take_if(|write| write.part == part)?;
        debug_assert!(
            core.device.catalog.meta().journal().is_all_durable(),
            "a journal block was begun while a summary was in flight"
        );
        debug_assert!(
            write.carried <= core.device.catalog.meta().journal().block_records(),
            "more is told than the next block repeats"
        );
        let first = self.chain.as_ref().filter(|chain| chain.carried == 0).map(|chain| chain.unit.slot);
        if let Some(slot) = first {
            self.keep(core.device.catalog.meta().journal().next(), slot, core);
        }
        if let Some(chain) = &mut self.chain {
            chain.carried = write.carried;
            chain.carried_to = write.carried_to;
            chain.next_page = write.next_page;
            chain.ordinal += 1;
        }
        Some(write.volume)
    }

    /// Keeps summaries in this slot until that block is durable.
    pub(crate) fn keep(&mut self, repeated: JournalSeq, slot: WeuSlot, core: &mut Core) {
        core.device.catalog.table_mut().pin(slot);
        self.chain_pins.push_back((repeated, slot));
    }

    /// At a start: requests that records which summaries may contain are journaled soon.
    pub(crate) fn repeat(&mut self, core: &mut Core) {
        if !self.chain_pins.is_empty() {
            core.device.catalog.meta_mut().journal_mut().want_all();
        }
    }

    /// Releases the summaries that durable journal blocks repeat.
    pub(crate) fn let_go(&mut self, core: &mut Core) {
        let durable_next = core.device.catalog.meta().journal().durable_next();
        while let Some((_, slot)) = self.chain_pins.pop_front_if(|(repeated, _)| *repeated < durable_next) {
            core.device.catalog.table_mut().unpin(slot);
        }
    }

    /// Ends the chain, because a checkpoint begins whose replay starts with the next journal block: the chain after
    /// the last one would not be found.
    pub(crate) fn end_chain(&mut self) {
        self.chain = None;
    }
}
