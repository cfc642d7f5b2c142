//! Checks each slot against checkpoint and journal.
//!
//! Invariant: the newest mentioned generation is valid, as at a restart. Headers of sessions before the cache was
//! formatted belong to another cache and are ignored. It does not decode payloads; `--data` verifies as a hit does:
//! inline header, place, identity and checksum.

use std::collections::BTreeMap;

use zc_core::{Fingerprint, Generation, SectorSpan, WeuSeq, WeuSlot, usize_from_u32};
use zc_format::{
    BLOCK, EXTENT_HEADER_BYTES, ExpectedExtent, ExtentHeader, FormatError, Record, WeuEntry, WeuHeader,
};

use super::image::Image;
use super::report::{Class, Report};

/// Recorded state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    generation: Generation,
    /// The WEU's number, if it is in use.
    sealed: Option<WeuSeq>,
}

/// Slots according to the records.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    known: BTreeMap<WeuSlot, Known>,
    /// The number of the newest WEU that was begun or completed in a slot.
    numbers: BTreeMap<WeuSlot, (Generation, WeuSeq)>,
    /// Records that name a slot which the layout does not have.
    pub(crate) outside: u64,
    duplicates: u64,
    zeros: u64,
}

impl Slots {
    /// Replays records in order.
    pub(crate) fn replay<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>, slots: u32) {
        for record in records {
            self.number(record);
            let (slot, generation, sealed) = match *record {
                // A start distrusted the contents: this and older generations are invalid.
                Record::SlotSealed { slot, generation, header_bytes: 0, .. } => (slot, generation, None),
                Record::SlotSealed { slot, generation, weu_seq, .. } => (slot, generation, Some(weu_seq)),
                Record::SlotRetired { slot, generation } => (slot, generation, None),
                Record::Duplicate { slot, .. } => {
                    self.duplicates += 1;
                    self.outside += u64::from(slot.0 >= slots);
                    continue;
                }
                Record::SlotDirty { slot, generation, .. } => {
                    self.outside += u64::from(slot.0 >= slots);
                    let newer = self.known.get(&slot).is_none_or(|known| generation > known.generation);
                    if newer && slot.0 < slots {
                        self.known.remove(&slot);
                    }
                    continue;
                }
                Record::BaseInvalid { slot, .. } | Record::Dirty { slot, .. } => {
                    self.outside += u64::from(slot.0 >= slots);
                    continue;
                }
                Record::Zero { .. } => {
                    self.zeros += 1;
                    continue;
                }
                Record::Unmap { .. }
                | Record::DirtyZero { .. }
                | Record::Committed { .. }
                | Record::Clean { .. }
                | Record::DirtyReset { .. }
                | Record::Durable { .. } => continue,
            };
            if slot.0 >= slots {
                self.outside += 1;
                continue;
            }
            let newer = self.known.get(&slot).is_none_or(|known| generation >= known.generation);
            let retired = self
                .known
                .get(&slot)
                .is_some_and(|known| known.generation == generation && known.sealed.is_none());
            if newer && !retired {
                self.known.insert(slot, Known { generation, sealed });
            }
        }
    }

    fn number(&mut self, record: &Record) {
        if let Record::SlotSealed { slot, generation, weu_seq, .. }
        | Record::SlotDirty { slot, generation, weu_seq } = *record
            && self.numbers.get(&slot).is_none_or(|(newest, _)| generation >= *newest)
        {
            self.numbers.insert(slot, (generation, weu_seq));
        }
    }

    /// Returns the sequence of the unit of this generation, if recorded.
    pub(crate) fn weu_seq(&self, slot: WeuSlot, generation: Generation) -> Option<WeuSeq> {
        self.numbers.get(&slot).filter(|(newest, _)| *newest == generation).map(|(_, weu_seq)| *weu_seq)
    }

    pub(crate) fn check(&self, image: &Image, data: bool, report: &mut Report) {
        let mut totals = Totals::default();
        for slot in (0..image.geometry().slots).map(WeuSlot) {
            self.check_slot(image, slot, data, &mut totals, report);
        }
        report.count("WEUs in use", totals.used);
        report.count("stored extents", totals.extents);
        report.count("stored bytes", totals.stored_bytes);
        report.count("duplicate records", self.duplicates);
        report.count("zero-extent records", self.zeros);
        if data {
            report.count("extents verified", totals.verified);
        }
    }

    fn check_slot(&self, image: &Image, slot: WeuSlot, data: bool, totals: &mut Totals, report: &mut Report) {
        let known = self.known.get(&slot);
        let sealed = known.and_then(|known| known.sealed.map(|seq| (known.generation, seq)));
        let header = match (read_header(image, slot), sealed) {
            (Ok(header), _) => header,
            (Err(why), Some((generation, _))) => {
                let text = format!("slot {slot}: the header of generation {generation} is gone: {why}");
                return report.problem(Class::WeuHeader, text);
            }
            // Irrelevant: never written, torn by a crash before it was recorded, or released since.
            (Err(_), None) => return,
        };
        match (known, sealed) {
            (_, Some((generation, seq))) if header.generation != generation || header.weu_seq != seq => {
                let found = format!("generation {} (WEU {})", header.generation, header.weu_seq);
                let text =
                    format!("slot {slot} holds {found} instead of generation {generation} (WEU {seq})");
                // A generation newer than journal and checkpoint was being written at the power failure.
                if header.generation > generation && !image.superblock.clean {
                    return report.note(text);
                }
                return report.problem(Class::WeuHeader, text);
            }
            (Some(known), None) if header.generation <= known.generation => return,
            (_, None) if header.session <= image.superblock.created_unix_s => return,
            _ => {}
        }
        totals.used += 1;
        for entry in &header.entries {
            totals.extents += 1;
            totals.stored_bytes += u64::from(entry.stored_bytes);
            if !data {
                continue;
            }
            match verify(image, &header, entry) {
                Ok(()) => totals.verified += 1,
                Err(why) => {
                    let place = format!("slot {slot}, byte {}", entry.offset_bytes);
                    let key = format!("{} {}", entry.key.volume, entry.key.extent);
                    report.problem(Class::Extent, format!("{place} (volume, extent {key}): {why}"));
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Totals {
    used: u64,
    extents: u64,
    stored_bytes: u64,
    verified: u64,
}

pub(crate) fn read_header(image: &Image, slot: WeuSlot) -> Result<WeuHeader, String> {
    let geometry = image.geometry();
    let end = geometry.slot_offset(slot).saturating_add(u64::from(geometry.weu_bytes));
    let tail = |bytes: usize| {
        let offset = end.saturating_sub(zc_core::u64_from_usize(bytes));
        image.read(offset, bytes).map_err(|error| error.to_string())
    };
    let say = |fault: FormatError| fault.to_string();
    let len = WeuHeader::peek_len(&tail(BLOCK)?, geometry.weu_bytes).map_err(say)?;
    let bytes = tail(usize_from_u32(len))?;
    WeuHeader::decode(&bytes, slot, geometry.weu_bytes, geometry.extent_bytes, geometry.salt).map_err(say)
}

fn verify(image: &Image, header: &WeuHeader, entry: &WeuEntry) -> Result<(), String> {
    let offset = image.geometry().slot_offset(header.slot).saturating_add(u64::from(entry.offset_bytes));
    let len = EXTENT_HEADER_BYTES.saturating_add(entry.stored_bytes);
    let bytes = image.read(offset, usize_from_u32(len)).map_err(|error| error.to_string())?;
    let expected = ExpectedExtent {
        salt: image.geometry().salt,
        slot: header.slot,
        generation: header.generation,
        weu_seq: header.weu_seq,
        offset_bytes: entry.offset_bytes,
        raw_bytes: entry.dirty.map_or_else(|| image.geometry().extent_bytes, SectorSpan::len_bytes),
        first_sector: entry.dirty.map_or(0, SectorSpan::first),
        key: Some(entry.key),
        print: (entry.fingerprint != Fingerprint([0; 32])).then_some(entry.fingerprint),
    };
    ExtentHeader::verify(&bytes, &expected).map(drop).map_err(|error| error.to_string())
}
