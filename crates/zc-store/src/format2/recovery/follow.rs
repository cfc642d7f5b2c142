//! Walk along the log to its end, a segment at a time.
//!
//! Invariants: every batch that is followed has the expected number and place, the nonce of the session and its
//! checksum; one that may not have been durable has contents that verify. It does not apply records.

use crate::format2::batch::{BatchHeader, Record};
use crate::format2::frame::FrameHeader;
use crate::format2::log::Slots;
use crate::format2::superblock::{LogPlace, Superblock};
use crate::format2::{BLOCK_BYTES, Name, UNIT_BYTES};
use zc_core::usize_from_u32;

const BLOCK_UNITS: u32 = BLOCK_BYTES / UNIT_BYTES;

/// Batch of the log: header and directory, as they were read.
#[derive(Debug)]
pub(in crate::format2) struct FoundBatch {
    head: Vec<u8>,
    seq: u64,
    is_sound: bool,
}

impl FoundBatch {
    /// Returns header and directory.
    pub(in crate::format2) fn head(&self) -> &[u8] {
        &self.head
    }
}

/// Outcome of a step.
#[derive(Debug)]
pub(super) enum Followed {
    /// Another part of the log is needed.
    More,
    /// The batches up to the end, and the place behind it. `lost`: a batch behind the end was durable. `torn`: a batch
    /// behind the end is there.
    Ended { batches: Vec<FoundBatch>, end: LogPlace, lost: bool, torn: bool },
}

/// Walk along the log.
#[derive(Debug)]
pub(super) struct Follow {
    uuid: [u8; 16],
    slots: u32,
    slot_bytes: u32,
    at: LogPlace,
    /// The slot that is read is that of the next segment.
    is_next: bool,
    batches: Vec<FoundBatch>,
    durable: u64,
    /// A batch was seen behind the end; the greatest number that one of those calls durable.
    is_torn: bool,
    durable_behind: u64,
}

impl Follow {
    pub(super) fn new(superblock: &Superblock) -> Self {
        let at = superblock.log;
        let is_full = at.offset_units + BLOCK_UNITS > superblock.slot_bytes / UNIT_BYTES;
        Self {
            uuid: superblock.uuid,
            slots: superblock.slots,
            slot_bytes: superblock.slot_bytes,
            at,
            is_next: is_full,
            batches: Vec::new(),
            durable: at.seq - 1,
            is_torn: false,
            durable_behind: 0,
        }
    }

    /// Slot and offset from which on the log is needed, to the end of the slot.
    pub(super) const fn wants(&self) -> (u32, u32) {
        if self.is_next { (self.at.next_slot, 0) } else { (self.at.slot, self.at.offset_units) }
    }

    /// Takes the bytes of the slot.
    pub(super) fn read(&mut self, bytes: &[u8], slots: &mut Slots) -> Followed {
        let (_, base_units) = self.wants();
        let was_next = self.is_next;
        let mut units = 0;
        while let Some(taken) = self.step(bytes, base_units, units, slots) {
            units += taken;
        }
        let is_found = !(was_next && self.is_next);
        self.look_behind(bytes, base_units, units);
        if is_found && !self.is_next {
            // The next batch may be the first of the next slot.
            self.is_next = true;
            return Followed::More;
        }
        self.ended(slots)
    }

    /// Follows one batch. Returns its units, or `None` if the next batch is not there.
    fn step(&mut self, bytes: &[u8], base_units: u32, units: u32, slots: &mut Slots) -> Option<u32> {
        let rest = bytes.get(usize_from_u32(units * UNIT_BYTES)..)?;
        let (header, records) = BatchHeader::decode(&self.uuid, rest).ok()?;
        let expected_segment = self.at.segment + u64::from(self.is_next);
        let ordinal = if self.is_next { 0 } else { self.at.ordinal };
        let is_expected = header.seq == self.at.seq
            && header.nonce == self.at.nonce
            && header.segment == expected_segment
            && header.offset_units == base_units + units
            && u32::from(header.first_ordinal) == ordinal.min(u32::from(u16::MAX))
            && header.next_slot < self.slots
            && (self.is_next || header.next_slot == self.at.next_slot);
        if !is_expected {
            return None;
        }
        let directory = u32::from_le_bytes(*rest.get(52..)?.first_chunk()?);
        let head_blocks = BatchHeader::directory_blocks(directory);
        let taken = (head_blocks + header.payload_bytes / BLOCK_BYTES) * BLOCK_UNITS;
        if base_units + units + taken > self.slot_bytes / UNIT_BYTES {
            return None;
        }
        if self.is_next {
            slots.seal(self.at.segment, self.at.ordinal, self.at.offset_units);
            slots.open(header.segment, self.at.next_slot, header.seq);
            self.at.slot = self.at.next_slot;
            self.is_next = false;
        }
        let blocks = records.iter().map(|record| match record {
            Record::Frame(frame) => u32::try_from(frame.prints.len()).unwrap_or(0),
            _ => 0,
        });
        let head_bytes = usize_from_u32(head_blocks * BLOCK_BYTES);
        let head = rest.get(..head_bytes)?.to_vec();
        let is_sound = self.is_sound(&header, &records, rest, head_bytes);
        self.batches.push(FoundBatch { head, seq: header.seq, is_sound });
        self.durable = self.durable.max(header.durable);
        self.at = LogPlace {
            seq: self.at.seq + 1,
            segment: header.segment,
            offset_units: header.offset_units + taken,
            ordinal: ordinal + blocks.sum::<u32>(),
            next_slot: header.next_slot,
            ..self.at
        };
        Some(taken)
    }

    /// Returns `true` if all frames of a batch verify.
    fn is_sound(&self, header: &BatchHeader, records: &[Record], batch: &[u8], head_bytes: usize) -> bool {
        let (mut at, mut ordinal) = (head_bytes, header.first_ordinal);
        for record in records {
            if let Record::Node(node) = record {
                at += usize_from_u32(node.bytes.next_multiple_of(UNIT_BYTES));
            }
            let Record::Frame(frame) = record else { continue };
            let name = Name { pool: 0, segment: header.segment, ordinal };
            let len = usize_from_u32(frame.units() * UNIT_BYTES);
            let Some(bytes) = batch.get(at..at + len) else { return false };
            if FrameHeader::open(&self.uuid, name, bytes).is_err() {
                return false;
            }
            at += len;
            ordinal = ordinal.wrapping_add(u16::try_from(frame.prints.len()).unwrap_or(u16::MAX));
        }
        true
    }

    /// Searches the rest of a slot for later batches of the session.
    fn look_behind(&mut self, bytes: &[u8], base_units: u32, units: u32) {
        let mut at = units;
        while let Some(rest) = bytes.get(usize_from_u32(at * UNIT_BYTES)..).filter(|rest| !rest.is_empty()) {
            if let Ok((header, _)) = BatchHeader::decode(&self.uuid, rest)
                && header.nonce == self.at.nonce
                && header.seq > self.at.seq
                && header.offset_units == base_units + at
            {
                self.is_torn = true;
                self.durable_behind = self.durable_behind.max(header.durable);
            }
            at += BLOCK_UNITS;
        }
    }

    fn ended(&mut self, slots: &mut Slots) -> Followed {
        let durable = self.durable.max(self.durable_behind);
        let mut batches = core::mem::take(&mut self.batches);
        let bad = batches.iter().position(|batch| !batch.is_sound && batch.seq > durable);
        let found = self.at.seq - 1;
        if let Some(bad) = bad {
            self.is_torn = true;
            batches.truncate(bad);
        }
        slots.seal(self.at.segment, self.at.ordinal, self.at.offset_units);
        Followed::Ended { batches, end: self.at, lost: self.durable_behind > found, torn: self.is_torn }
    }
}
