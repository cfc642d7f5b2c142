//! Which commits of dirty data count after a session was cut off.
//!
//! The extents of an epoch, its records and its commit are written at once and one flush follows; a flush is answered
//! after it. So a commit that a later journal block proves is complete. One that none proves may have been answered or
//! not: its extents are read here, and if all of them are what the records say, it counts. If one is not, the flush
//! cannot have ended, nobody was told that it had, and neither this commit nor a later one of the volume counts.
//!
//! What it does not do: tell a commit that was cut off from one whose extents rotted between its flush and the next
//! journal block. Both read alike, as at the end of any log.

use std::collections::VecDeque;

use zc_core::{JournalSeq, Map, VolumeId, WeuSeq, limits, usize_from_u32};
use zc_format::{ExpectedExtent, ExtentHeader, Geometry, JournalBlock, Record};

use crate::startup::Media;

/// Dirty records by volume since its last commit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dangling {
    records: Map<VolumeId, Vec<Record>>,
}

/// Follows the journal and keeps back what may not count.
pub(crate) struct Tail<'a> {
    sink: &'a mut dyn FnMut(&Record),
    held: VecDeque<JournalBlock>,
    pub(crate) proved: JournalSeq,
    pub(crate) dangling: Dangling,
}

impl<'a> Tail<'a> {
    pub(crate) fn new(sink: &'a mut dyn FnMut(&Record)) -> Self {
        Self { sink, held: VecDeque::new(), proved: JournalSeq(0), dangling: Dangling::default() }
    }

    /// Takes the next block of the journal.
    pub(crate) fn take(&mut self, block: JournalBlock) {
        self.proved = self.proved.max(block.proved);
        while self.held.front().is_some_and(|first| first.sequence < self.proved) {
            if let Some(first) = self.held.pop_front() {
                self.deliver(&first.records);
            }
        }
        let commits = block.records.iter().any(|record| matches!(record, Record::Committed { .. }));
        if self.held.is_empty() && !commits {
            self.deliver(&block.records);
        } else {
            self.held.push_back(block);
        }
    }

    fn deliver(&mut self, records: &[Record]) {
        for record in records {
            self.dangling.note(record);
            (self.sink)(record);
        }
    }

    /// The journal ends here: reads what decides about the rest. Returns the volumes with commits that do not count.
    pub(crate) fn settle<M: Media>(
        mut self,
        media: &mut M,
        geometry: &Geometry,
    ) -> (Dangling, JournalSeq, Vec<VolumeId>) {
        let records: Vec<Record> = self.held.drain(..).flat_map(|block| block.records).collect();
        let mut dropped = Vec::new();
        for record in settle(media, geometry, &mut self.dangling, &mut dropped, records) {
            (self.sink)(&record);
        }
        (self.dangling, self.proved, dropped)
    }
}

impl Dangling {
    fn note(&mut self, record: &Record) {
        match *record {
            Record::Dirty { key, .. } => self.records.entry(key.volume).or_default().push(*record),
            Record::Committed { volume, .. } | Record::DirtyReset { volume, .. } => {
                self.records.remove(&volume);
            }
            _ => {}
        }
    }
}

/// Leaves out the commits that do not count.
pub(crate) fn settle<M: Media>(
    media: &mut M,
    geometry: &Geometry,
    dangling: &mut Dangling,
    dropped: &mut Vec<VolumeId>,
    records: Vec<Record>,
) -> Vec<Record> {
    let mut kept = Vec::with_capacity(records.len());
    for record in records {
        if let Record::Committed { volume, .. } = record {
            let complete = !dropped.contains(&volume)
                && dangling
                    .records
                    .get(&volume)
                    .is_none_or(|records| records.iter().all(|record| is_stored(media, geometry, record)));
            if !complete {
                if !dropped.contains(&volume) {
                    dropped.push(volume);
                }
                continue;
            }
        }
        dangling.note(&record);
        kept.push(record);
    }
    kept
}

/// Whether what a dirty record speaks of is on the device.
fn is_stored<M: Media>(media: &mut M, geometry: &Geometry, record: &Record) -> bool {
    let Record::Dirty { span, slot, generation, offset_units, pages, .. } = *record else { return true };
    if slot.0 >= geometry.slots {
        return false;
    }
    let page = limits::BLOCK_BYTES;
    let offset_bytes = u32::from(offset_units) * limits::PLACE_ALIGN_BYTES;
    let start = offset_bytes / page * page;
    let mut bytes = vec![0; usize_from_u32(u32::from(pages) * page)];
    if start + u32::from(pages) * page > geometry.weu_bytes {
        return false;
    }
    if media.read(geometry.slot_offset(slot) + u64::from(start), &mut bytes).is_err() {
        // A device that says that it cannot read does not say that it was never written: what was flushed is not
        // dropped for that, its reads fail.
        return true;
    }
    let Some(bytes) = bytes.get(usize_from_u32(offset_bytes - start)..) else { return false };
    let expected = ExpectedExtent {
        slot,
        generation,
        weu_seq: ExtentHeader::peek_weu_seq(bytes).unwrap_or(WeuSeq(0)),
        offset_bytes,
        raw_bytes: span.len_bytes(),
        first_sector: span.first(),
        key: None,
    };
    ExtentHeader::verify(bytes, &expected).is_ok()
}
