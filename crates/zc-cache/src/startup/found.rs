//! Findings of a start on the device, and the extent to which one structure vouches for another.
//!
//! Job: read volume table, region maps, checkpoint, journal and the summaries behind it; determine if they are
//! complete.
//!
//! Invariants: damage is absence, and never an error; nothing is written. The trust in mappings and the completeness
//! of dirty data are two questions: the second depends on checkpoint and journal alone.

use core::ops::ControlFlow;

use zc_core::{JournalSeq, limits, u64_from_usize, usize_from_u64};
use zc_format::{
    BLOCK, CheckpointHeader, FormatError, Geometry, GrowingUnit, JournalBlock, REGION_MAP_BYTES, Record,
    RegionMap, Salt, Summary, SummaryChain, Superblock, VOLUME_TABLE_BYTES, VolumeTable,
    decode_checkpoint_block,
};

use crate::startup::media::{BLOCK_BYTES, DistrustReason, Media, StartError};
use crate::startup::tail::Tail;

const READ_BLOCKS: u64 = 64;
/// Attempts of a read: a failed one may succeed a moment later, and unread data is overwritten.
const READ_ATTEMPTS: u32 = 3;
/// Blocks inspected behind the end of the journal, and the distance of those farther on.
const GAP_BLOCKS: u64 = 64;

pub(super) struct Maps {
    pub(super) newest: Option<(RegionMap, usize)>,
    /// A copy is neither valid nor blank.
    pub(super) damaged: bool,
}

impl Maps {
    /// The newest sequence there may be: a damaged copy may have been one newer.
    pub(super) fn mentioned(&self) -> u64 {
        self.newest.as_ref().map_or(0, |(map, _)| map.sequence) + u64::from(self.damaged)
    }
}

pub(super) struct Checkpoints {
    pub(super) newest: Option<(CheckpointHeader, usize)>,
    /// The newest checkpoint is not the one that the last session began from or wrote. Records that only that one
    /// held are lost.
    pub(super) replaced: bool,
    pub(super) sequence_seen: u64,
    pub(super) map_sequence: u64,
    /// The journal has to be complete to here: a newer checkpoint, now damaged, began there.
    journal_needed: JournalSeq,
}

impl Checkpoints {
    /// The session of the one that counts: blocks from its `journal_start` on are of that session or a later one. A
    /// number that an older session had used before it was cut off may hold that session's block still.
    fn session(&self) -> Option<u64> {
        self.newest.as_ref().map(|(header, _)| header.session)
    }

    pub(super) fn journal_start(&self) -> JournalSeq {
        self.newest.as_ref().map_or(JournalSeq(1), |(header, _)| header.journal_start)
    }
}

pub(super) struct Journal {
    pub(super) next: JournalSeq,
    /// Session of the last block, and the unit that grew then.
    pub(super) session: u64,
    pub(super) growing: Option<GrowingUnit>,
    pub(super) map_sequence: u64,
    /// A block of a later round of the ring lies where the replay expected one.
    overran: bool,
    /// A block behind the end shows that those before this one were durable.
    vouched: JournalSeq,
}

impl Journal {
    /// Returns a journal without blocks behind the newest checkpoint.
    pub(super) fn after(checkpoints: &Checkpoints, first_session: u64) -> Self {
        Self {
            next: checkpoints.journal_start(),
            session: checkpoints.session().unwrap_or(first_session),
            growing: None,
            map_sequence: 0,
            overran: false,
            vouched: JournalSeq(0),
        }
    }

    /// Summaries continue the journal, and may name a newer region map.
    pub(super) fn note_maps(&mut self, summaries: &[Summary]) {
        let newest = summaries.iter().map(|summary| summary.region_map_sequence).max();
        self.map_sequence = self.map_sequence.max(newest.unwrap_or(0));
    }

    /// The unit that grew when the last block was written, if the layout has it.
    pub(super) fn growing_in(&self, geometry: &Geometry) -> Option<GrowingUnit> {
        let pages = geometry.weu_bytes / limits::BLOCK_BYTES;
        self.growing.filter(|unit| unit.slot.0 < geometry.slots && unit.page < pages)
    }
}

pub(super) struct MediaState {
    pub(super) maps: Maps,
    pub(super) checkpoints: Checkpoints,
    pub(super) journal: Journal,
}

impl MediaState {
    /// Reason that mappings are not trusted. `by_others`: a block that was durable, as superblock or intent log have
    /// it.
    pub(super) fn distrust_reason(&self, cold: bool, by_others: JournalSeq) -> Option<DistrustReason> {
        let lacks = self.lacks(by_others);
        if cold {
            return Some(DistrustReason::Cold);
        }
        if lacks == Some(DistrustReason::Checkpoint) {
            return lacks;
        }
        let Some((map, _)) = &self.maps.newest else { return Some(DistrustReason::RegionMap) };
        if self.maps.damaged {
            return Some(DistrustReason::DamagedRegionMap);
        }
        let mentioned = self.checkpoints.map_sequence.max(self.journal.map_sequence);
        if mentioned > map.sequence {
            return Some(DistrustReason::OldRegionMap { mentioned, found: map.sequence });
        }
        lacks
    }

    /// Reason that checkpoint and journal are incomplete: dirty data may be unknown then, regardless of the region
    /// maps.
    pub(super) fn lacks(&self, by_others: JournalSeq) -> Option<DistrustReason> {
        let Self { maps, checkpoints, journal } = self;
        if checkpoints.newest.is_none() {
            return Some(DistrustReason::Checkpoint);
        }
        if journal.overran || checkpoints.replaced {
            return Some(DistrustReason::OldCheckpoint);
        }
        let by_map = maps.newest.as_ref().map_or(JournalSeq(0), |(map, _)| map.journal_required);
        let before_needed = JournalSeq(checkpoints.journal_needed.0.saturating_sub(1));
        let vouched = JournalSeq(journal.vouched.0.saturating_sub(1));
        let required = by_map.max(by_others).max(before_needed).max(vouched);
        (required >= journal.next).then_some(DistrustReason::Journal { next: journal.next, required })
    }
}

/// Reads the structures that a start needs; damage is absence.
pub(super) struct Reader<'a, M: Media> {
    pub(super) media: &'a mut M,
    pub(super) geometry: &'a Geometry,
    pub(super) first_session: u64,
    pub(super) bytes_read: u64,
}

impl<M: Media> Reader<'_, M> {
    fn bytes(&mut self, offset_bytes: u64, len_bytes: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize_from_u64(len_bytes)];
        self.bytes_read += len_bytes;
        let mut attempt = || self.media.read(offset_bytes, &mut bytes);
        (0..READ_ATTEMPTS).any(|_| attempt().is_ok()).then_some(bytes)
    }

    /// Returns the newest volume table, the copy that holds it, and `true` if both do.
    pub(super) fn volume_table(&mut self) -> Result<(VolumeTable, usize, bool), StartError> {
        let mut newest: Option<(VolumeTable, usize, bool)> = None;
        let mut fault = FormatError::Truncated;
        for (copy, offset) in self.geometry.volume_table.into_iter().enumerate() {
            let Some(bytes) = self.bytes(offset, VOLUME_TABLE_BYTES) else { continue };
            match (VolumeTable::decode(&bytes, copy, self.geometry.salt), &mut newest) {
                (Ok(table), Some((best, _, whole))) if table.sequence == best.sequence => *whole = true,
                (Ok(table), Some((best, _, _))) if table.sequence < best.sequence => {}
                (Ok(table), _) => newest = Some((table, copy, false)),
                (Err(error), _) => fault = error,
            }
        }
        newest.ok_or(StartError::VolumeTable(fault))
    }

    pub(super) fn region_maps(&mut self) -> Maps {
        let mut maps = Maps { newest: None, damaged: false };
        let mut blank = false;
        for (copy, offset) in self.geometry.region_map.into_iter().enumerate() {
            let Some(bytes) = self.bytes(offset, REGION_MAP_BYTES) else {
                maps.damaged = true;
                continue;
            };
            match RegionMap::decode(&bytes, copy, self.geometry.salt) {
                Ok(map) if map.session < self.first_session => {}
                Ok(map) if maps.newest.as_ref().is_none_or(|(best, _)| map.sequence > best.sequence) => {
                    maps.newest = Some((map, copy));
                }
                Ok(_) => {}
                Err(_) if bytes.iter().all(|byte| *byte == 0) => blank = true,
                Err(_) => maps.damaged = true,
            }
        }
        // Updates alternate: from the second map on no copy is blank.
        maps.damaged |= blank && maps.newest.as_ref().is_some_and(|(map, _)| map.sequence > 1);
        maps
    }

    /// Delivers the newest whole checkpoint.
    pub(super) fn checkpoint(&mut self, previous: &Superblock, sink: &mut dyn FnMut(&Record)) -> Checkpoints {
        let mut headers = Vec::new();
        let mut unreadable = false;
        for (area, offset) in self.geometry.checkpoint.into_iter().enumerate() {
            let header = self.bytes(offset, BLOCK_BYTES).and_then(|bytes| {
                CheckpointHeader::decode(&bytes, area, self.geometry.checkpoint_blocks, self.geometry.salt)
                    .ok()
            });
            match header {
                Some(header) if header.session >= self.first_session => headers.push((header, area)),
                Some(_) => {}
                None => unreadable = true,
            }
        }
        let newest = headers.iter().map(|(header, _)| header.sequence).max().unwrap_or(0);
        // One that could not be read when the last session began was left behind, though it is the newer one.
        headers
            .sort_by_key(|(header, _)| core::cmp::Reverse((previous.goes_on_from(header), header.sequence)));
        let first = headers.first().map(|(header, _)| *header);
        let mut found = Checkpoints {
            newest: None,
            replaced: false,
            sequence_seen: newest + u64::from(unreadable),
            map_sequence: first.map_or(0, |header| header.region_map_sequence),
            journal_needed: first.map_or(JournalSeq(0), |header| header.journal_start),
        };
        for (header, area) in headers {
            if let Some(records) = self.checkpoint_records(&header, area) {
                records.iter().for_each(sink);
                found.replaced = !previous.goes_on_from(&header);
                found.newest = Some((header, area));
                break;
            }
        }
        found
    }

    fn checkpoint_records(&mut self, header: &CheckpointHeader, area: usize) -> Option<Vec<Record>> {
        let mut records = Vec::new();
        let mut block = 0;
        while block < header.blocks {
            let count = READ_BLOCKS.min(header.blocks - block);
            let offset = self.geometry.checkpoint_block_offset(area, block);
            let bytes = self.bytes(offset, count * BLOCK_BYTES)?;
            for bytes in bytes.chunks_exact(BLOCK) {
                records
                    .extend(decode_checkpoint_block(bytes, header.sequence, block, self.geometry.salt).ok()?);
                block += 1;
            }
        }
        (u64_from_usize(records.len()) == header.records).then_some(records)
    }

    /// Delivers the journal from where the checkpoint leaves off to its end.
    pub(super) fn replay_journal(&mut self, journal: &mut Journal, tail: &mut Tail<'_>) {
        let ring = self.geometry.journal_blocks;
        let mut left = ring;
        while left > 0 {
            let count = READ_BLOCKS.min(left).min(ring - journal.next.0 % ring);
            let offset = self.geometry.journal_block_offset(journal.next);
            let bytes = self.bytes(offset, count * BLOCK_BYTES).or_else(|| self.bytes(offset, BLOCK_BYTES));
            let Some(bytes) = bytes else {
                // It may be one that was durable, or one that was never written: the block does not show which.
                journal.vouched = JournalSeq(journal.next.0 + 1);
                return self.look_behind(journal);
            };
            for bytes in bytes.chunks_exact(BLOCK) {
                left -= 1;
                if replay_block(bytes, self.geometry.salt, journal, tail).is_break() {
                    return self.look_behind(journal);
                }
            }
        }
    }

    /// Returns the summaries that continue the journal in the unit that its last block names.
    pub(super) fn summaries(&mut self, uuid: [u8; 16], journal: &Journal) -> SummaryChain {
        let Some(unit) = journal.growing_in(self.geometry) else { return SummaryChain::default() };
        let skip = u64::from(unit.page) * BLOCK_BYTES;
        let offset = self.geometry.slot_offset(unit.slot) + skip;
        let len = u64::from(self.geometry.weu_bytes) - skip;
        match self.bytes(offset, len) {
            Some(tail) => SummaryChain::follow(uuid, &unit, journal.next, journal.session, &tail),
            None => self.readable_summaries(uuid, journal, &unit, offset),
        }
    }

    /// Returns the summaries that continue the journal, read page by page: a page that cannot be read may have held a
    /// summary.
    fn readable_summaries(
        &mut self,
        uuid: [u8; 16],
        journal: &Journal,
        unit: &GrowingUnit,
        offset: u64,
    ) -> SummaryChain {
        let pages = u64::from(self.geometry.weu_bytes / limits::BLOCK_BYTES - unit.page);
        let mut tail = Vec::new();
        let mut whole = true;
        for page in 0..pages {
            let bytes = self.bytes(offset + page * BLOCK_BYTES, BLOCK_BYTES);
            whole &= bytes.is_some();
            tail.extend(bytes.unwrap_or_else(|| vec![0; BLOCK]));
        }
        let chain = SummaryChain::follow(uuid, unit, journal.next, journal.session, &tail);
        SummaryChain { broken: chain.broken || !whole, ..chain }
    }

    /// Checks blocks behind a gap, which may show that the missing ones were durable once: the next few, and samples
    /// of the rest of the ring.
    fn look_behind(&mut self, journal: &mut Journal) {
        let ring = self.geometry.journal_blocks;
        let near = 1..=GAP_BLOCKS.min(ring - 1);
        let far = (2 * GAP_BLOCKS..ring).step_by(usize_from_u64(GAP_BLOCKS));
        for sequence in near.chain(far).map(|n| JournalSeq(journal.next.0 + n)) {
            let Some(bytes) = self.bytes(self.geometry.journal_block_offset(sequence), BLOCK_BYTES) else {
                continue;
            };
            if let Ok(block) = JournalBlock::decode(&bytes, sequence, self.geometry.salt)
                && block.session >= journal.session
            {
                journal.vouched = journal.vouched.max(block.proved);
            }
        }
    }
}

fn replay_block(bytes: &[u8], salt: Salt, journal: &mut Journal, tail: &mut Tail<'_>) -> ControlFlow<()> {
    match JournalBlock::decode(bytes, journal.next, salt) {
        Ok(block) if block.session >= journal.session => {
            journal.session = block.session;
            journal.growing = block.growing;
            journal.map_sequence = journal.map_sequence.max(block.region_map_sequence);
            journal.next = JournalSeq(journal.next.0 + 1);
            tail.take(block);
            ControlFlow::Continue(())
        }
        Ok(_) => ControlFlow::Break(()),
        Err(_) => {
            let later = JournalBlock::peek_sequence(bytes).filter(|sequence| *sequence > journal.next);
            journal.overran = later
                .and_then(|sequence| JournalBlock::decode(bytes, sequence, salt).ok())
                .is_some_and(|block| block.session >= journal.session);
            ControlFlow::Break(())
        }
    }
}
