//! Selection of the commits of dirty data that count after a session was cut off.
//!
//! The extents of an epoch, its records and its commit are written at once, and one flush follows or they are durable
//! writes (FUA); a client's flush is answered after that, and after `Durable` was recorded. So a commit that a later
//! journal block proves is complete, as is one that `Durable` covers: it counts, and unreadable parts of it were
//! damaged later. One that nothing proves is of the session's last moments, and may have been answered or not: its
//! extents are read here, and if all of them match the records, it counts. If one is not, neither this commit nor a
//! later one of the volume counts.
//!
//! An epoch that is clean counts without a check: the slots of its extents may have been used again. Its commit can
//! come late all the same: the intent log repeats the journal block that was in flight.
//!
//! Summaries continue where the journal ends. Each holds the one commit that it was written for, and was written when
//! all commits before had ended: all but the last one's are complete.
//!
//! A volume has one commit in progress at a time. So one that another of its commits follows has ended: it counts
//! without a check, and corruption of later rewritten data does not invalidate the later ones.
//!
//! Out of scope: distinguishing a commit that was cut off from one whose extents were corrupted before its proof was
//! durable. Both read alike, as at the end of any log. After a kill the intent log has the proof.

use std::collections::VecDeque;

use zc_core::{Generation, JournalSeq, Map, VolumeId, WeuSeq, WeuSlot, limits, usize_from_u32};
use zc_format::{ExpectedExtent, ExtentHeader, Geometry, JournalBlock, Record, Summary};

use crate::startup::media::Media;

/// Dirty records by volume since its last commit, its last clean epoch, and which unit was in each slot last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dangling {
    records: Map<VolumeId, Vec<Record>>,
    clean: Map<VolumeId, u64>,
    /// The last commit of a volume that was durable: it is recorded as such, or another one follows it.
    durable: Map<VolumeId, u64>,
    /// Volumes whose last commit counts because all of it is there.
    looked_at: Vec<VolumeId>,
    units: Map<WeuSlot, (Generation, WeuSeq)>,
}

/// Follows the journal and holds back the records that may not count.
pub(crate) struct Tail<'a> {
    sink: &'a mut dyn FnMut(&Record),
    unproved: VecDeque<JournalBlock>,
    pub(crate) proved: JournalSeq,
    pub(crate) dangling: Dangling,
}

impl<'a> Tail<'a> {
    pub(crate) fn new(sink: &'a mut dyn FnMut(&Record)) -> Self {
        Self { sink, unproved: VecDeque::new(), proved: JournalSeq(0), dangling: Dangling::default() }
    }

    pub(crate) fn checkpointed(&mut self, record: &Record) {
        self.dangling.note_unit(record);
        (self.sink)(record);
    }

    pub(crate) fn take(&mut self, block: JournalBlock) {
        self.prove(block.proved);
        let commits = block.records.iter().any(|record| matches!(record, Record::Committed { .. }));
        if self.unproved.is_empty() && !commits {
            self.deliver(&block.records);
        } else {
            self.unproved.push_back(block);
        }
    }

    /// Commits before this block are complete.
    fn prove(&mut self, proved: JournalSeq) {
        self.proved = self.proved.max(proved);
        while self.unproved.front().is_some_and(|first| first.sequence < self.proved) {
            if let Some(first) = self.unproved.pop_front() {
                self.deliver(&first.records);
            }
        }
    }

    fn deliver(&mut self, records: &[Record]) {
        for record in records {
            self.dangling.note(record);
            (self.sink)(record);
        }
    }

    /// Applies the records behind the end of the journal, which call epochs clean or durable, and have later commits.
    pub(crate) fn foresee_all(&mut self, summaries: &[Summary], intents: &[Record]) {
        let summarized = summaries.iter().flat_map(|summary| &summary.records);
        summarized.chain(intents).for_each(|record| self.dangling.foresee(record));
    }

    /// Ends the journal, except for `summaries`: reads the extents that decide about the rest.
    pub(crate) fn finish<M: Media>(
        mut self,
        media: &mut M,
        geometry: &Geometry,
        mut summaries: Vec<Summary>,
    ) -> TailEnd {
        let mut unjournaled = Vec::new();
        let mut dropped = Vec::new();
        self.foresee_all(&summaries, &[]);
        summaries.iter().for_each(|summary| self.prove(summary.proved));
        let unproved: Vec<Record> = self.unproved.drain(..).flat_map(|block| block.records).collect();
        for record in drop_incomplete(media, geometry, &mut self.dangling, &mut dropped, unproved) {
            (self.sink)(&record);
        }
        // One is written when the commit of the one before was complete.
        let last = summaries.pop().map_or_else(Vec::new, |summary| summary.records);
        for summary in summaries {
            self.deliver(&summary.records);
            unjournaled.extend(summary.records);
        }
        let last = drop_incomplete(media, geometry, &mut self.dangling, &mut dropped, last);
        last.iter().for_each(|record| (self.sink)(record));
        unjournaled.extend(last);
        let dangling = self.dangling;
        TailEnd { dangling, proved: self.proved, dropped, unjournaled }
    }
}

/// Result at the end of the journal.
pub(crate) struct TailEnd {
    pub(crate) dangling: Dangling,
    /// Commits in blocks before this one are durable.
    pub(crate) proved: JournalSeq,
    /// Volumes with commits that do not count.
    pub(crate) dropped: Vec<VolumeId>,
    pub(crate) unjournaled: Vec<Record>,
}

impl Dangling {
    fn note(&mut self, record: &Record) {
        match *record {
            Record::Dirty { key, .. } => self.records.entry(key.volume).or_default().push(*record),
            Record::Committed { volume, .. } | Record::DirtyReset { volume, .. } => {
                self.records.remove(&volume);
            }
            Record::Clean { volume, epoch } => self.note_clean(volume, epoch),
            _ => self.note_unit(record),
        }
    }

    /// A session that was cut off before the journal had its record leaves a slot's generation to be used again: only
    /// the sequence number distinguishes its bodies from those of the recorded unit.
    fn note_unit(&mut self, record: &Record) {
        if let Record::SlotDirty { slot, generation, weu_seq }
        | Record::SlotSealed { slot, generation, weu_seq, .. } = *record
        {
            self.units.insert(slot, (generation, weu_seq));
        }
    }

    /// Sequence number of a unit, as far as records name it.
    fn weu_seq(&self, slot: WeuSlot, generation: Generation) -> Option<WeuSeq> {
        let (known, weu_seq) = self.units.get(&slot)?;
        (*known == generation).then_some(*weu_seq)
    }

    /// Returns `true` if all targets of a volume's dirty records since its last commit are on the device.
    fn are_stored<M: Media>(&self, media: &mut M, geometry: &Geometry, volume: VolumeId) -> bool {
        let records = self.records.get(&volume).map_or(&[][..], Vec::as_slice);
        records.iter().all(|record| self.is_stored(media, geometry, record))
    }

    /// Returns `true` if the target of a dirty record is on the device.
    fn is_stored<M: Media>(&self, media: &mut M, geometry: &Geometry, record: &Record) -> bool {
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
            // A read error does not prove that data was never written: flushed data is not dropped because of it; its
            // reads fail.
            return true;
        }
        let Some(bytes) = bytes.get(usize_from_u32(offset_bytes - start)..) else { return false };
        let known = self.weu_seq(slot, generation);
        let expected = ExpectedExtent {
            salt: geometry.salt,
            slot,
            generation,
            weu_seq: known.or_else(|| ExtentHeader::peek_weu_seq(bytes)).unwrap_or(WeuSeq(0)),
            offset_bytes,
            raw_bytes: span.len_bytes(),
            first_sector: span.first(),
            key: None,
            print: None,
        };
        ExtentHeader::verify(bytes, &expected).is_ok()
    }

    /// Records facts of later records in advance: an epoch that is marked clean further on is clean throughout, and a
    /// commit that another follows had ended.
    fn foresee(&mut self, record: &Record) {
        match *record {
            Record::Clean { volume, epoch } => self.note_clean(volume, epoch),
            Record::Committed { volume, epoch } => self.note_durable(volume, epoch.saturating_sub(1)),
            Record::Durable { volume, epoch } => self.note_durable(volume, epoch),
            _ => {}
        }
    }

    fn note_durable(&mut self, volume: VolumeId, epoch: u64) {
        let durable = self.durable.entry(volume).or_default();
        *durable = epoch.max(*durable);
    }

    fn note_clean(&mut self, volume: VolumeId, epoch: u64) {
        let clean = self.clean.entry(volume).or_default();
        *clean = epoch.max(*clean);
    }

    /// Volumes whose last commit nothing proves, and all of it is there.
    pub(crate) fn looked_at(&self) -> &[VolumeId] {
        &self.looked_at
    }

    /// Returns `true` if a commit counts without a check.
    fn is_known(&self, volume: VolumeId, epoch: u64) -> bool {
        let until = |known: &Map<VolumeId, u64>| known.get(&volume).is_some_and(|known| epoch <= *known);
        until(&self.clean) || until(&self.durable)
    }
}

/// Leaves out the commits that do not count.
pub(crate) fn drop_incomplete<M: Media>(
    media: &mut M,
    geometry: &Geometry,
    dangling: &mut Dangling,
    dropped: &mut Vec<VolumeId>,
    records: Vec<Record>,
) -> Vec<Record> {
    let mut kept = Vec::with_capacity(records.len());
    records.iter().for_each(|record| dangling.foresee(record));
    for record in records {
        if let Record::Committed { volume, epoch } = record {
            let known = dangling.is_known(volume, epoch);
            let complete =
                known || (!dropped.contains(&volume) && dangling.are_stored(media, geometry, volume));
            if complete && !known && !dangling.looked_at.contains(&volume) {
                dangling.looked_at.push(volume);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use zc_core::{ErrorKind, ExtentKey, ExtentNo, Generation, SectorSpan, WeuSlot};
    use zc_format::PlanOptions;

    struct Memory(Vec<u8>);

    impl Media for Memory {
        fn len_bytes(&self) -> u64 {
            64 << 20
        }
        fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), ErrorKind> {
            let at = usize::try_from(offset_bytes).unwrap();
            buf.copy_from_slice(&self.0[at..at + buf.len()]);
            Ok(())
        }
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), ErrorKind> {
            Err(ErrorKind::Io)
        }
        fn flush(&mut self) -> Result<(), ErrorKind> {
            Err(ErrorKind::Io)
        }
    }

    fn geometry() -> Geometry {
        Geometry::plan(&PlanOptions {
            device_bytes: 64 << 20,
            weu_bytes: 256 << 10,
            extent_bytes: 8192,
            align_bytes: 0,
            journal_blocks: None,
        })
        .unwrap()
    }

    /// A record of content that is not on the device.
    fn dirty(volume: VolumeId) -> Record {
        Record::Dirty {
            key: ExtentKey { volume, extent: ExtentNo(7) },
            span: SectorSpan::from_ends(0, 15).unwrap(),
            slot: WeuSlot(3),
            generation: Generation(1),
            offset_units: 0,
            pages: 2,
        }
    }

    #[test]
    fn a_clean_epoch_counts_without_a_look_and_no_later_one_does() {
        let geometry = geometry();
        let volume = VolumeId(1);
        let dirty = dirty(volume);
        let commit = |epoch| Record::Committed { volume, epoch };
        let clean = |epoch| Record::Clean { volume, epoch };
        let kept_of = |dangling: &mut Dangling, records| {
            let mut dropped = Vec::new();
            let kept =
                drop_incomplete(&mut Memory(vec![0; 64 << 20]), &geometry, dangling, &mut dropped, records);
            (kept, dropped)
        };
        // Its slot was used again, which needs a clean epoch: it is known from before, or comes behind.
        let mut known = Dangling::default();
        known.note(&clean(5));
        let repeated = vec![dirty, commit(4), dirty, commit(5)];
        assert_eq!(kept_of(&mut known, repeated.clone()), (repeated, vec![]));
        let later = vec![dirty, commit(5), clean(5), dirty, commit(6)];
        let (kept, dropped) = kept_of(&mut Dangling::default(), later);
        assert_eq!((kept, dropped), (vec![dirty, commit(5), clean(5), dirty], vec![volume]));
        // A commit that another follows had ended, also where that one does not count.
        let followed = vec![dirty, commit(6), dirty, commit(7)];
        let (kept, dropped) = kept_of(&mut Dangling::default(), followed);
        assert_eq!((kept, dropped), (vec![dirty, commit(6), dirty], vec![volume]));
    }

    #[test]
    fn what_a_summary_calls_clean_counts_though_its_slot_was_used_again() {
        let (geometry, volume) = (geometry(), VolumeId(1));
        let dirty = dirty(volume);
        let block = |sequence, records| JournalBlock {
            sequence: JournalSeq(sequence),
            session: 1,
            region_map_sequence: 0,
            proved: JournalSeq(1),
            growing: None,
            records,
        };
        let summary = Summary {
            next: JournalSeq(2),
            session: 1,
            ordinal: 0,
            first_page: 0,
            region_map_sequence: 0,
            proved: JournalSeq(1),
            records: vec![Record::Clean { volume, epoch: 1 }],
        };
        // After a kill the intent log has it, too late for the commit: only the fact is taken from here.
        for (found, lost) in [(&[summary][..], vec![]), (&[], vec![volume])] {
            let mut sink = |_: &Record| ();
            let mut tail = Tail::new(&mut sink);
            tail.take(block(1, vec![dirty, Record::Committed { volume, epoch: 1 }]));
            tail.foresee_all(found, &[]);
            let end = tail.finish(&mut Memory(vec![0; 64 << 20]), &geometry, Vec::new());
            assert_eq!(end.dropped, lost);
        }
    }

    #[test]
    fn a_body_of_a_unit_that_had_the_slot_under_the_same_generation_does_not_count() {
        let geometry = geometry();
        let (volume, slot, generation) = (VolumeId(1), WeuSlot(3), Generation(1));
        let key = ExtentKey { volume, extent: ExtentNo(7) };
        let span = SectorSpan::from_ends(0, 7).unwrap();
        let header = ExtentHeader {
            slot,
            generation,
            weu_seq: WeuSeq(8),
            stored_bytes: 4096,
            raw_bytes: 4096,
            first_sector: 0,
            key,
            codec: zc_core::Codec::Raw,
            fingerprint: zc_core::Fingerprint([0; 32]),
        };
        let mut device = Memory(vec![0; 64 << 20]);
        let at = usize::try_from(geometry.slot_offset(slot)).unwrap();
        header.seal(0, &[7; 4096], &mut device.0[at..], geometry.salt);
        let unit = |weu_seq| Record::SlotDirty { slot, generation, weu_seq: WeuSeq(weu_seq) };
        let dirty = Record::Dirty { key, span, slot, generation, offset_units: 0, pages: 2 };
        let commit = Record::Committed { volume, epoch: 1 };
        for (weu_seq, lost) in [(8, vec![]), (9, vec![volume])] {
            let mut dropped = Vec::new();
            let records = vec![unit(weu_seq), dirty, commit];
            drop_incomplete(&mut device, &geometry, &mut Dangling::default(), &mut dropped, records);
            assert_eq!(dropped, lost, "the unit of the records is {weu_seq}, the body's 8");
        }
    }
}
