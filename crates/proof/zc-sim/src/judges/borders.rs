//! Checks the boundaries of dedup domains: no stored extent is shared across one (G9).
//!
//! Job: record the domain in which each stored extent was placed, and check the records by which a volume shares
//! stored content. A unit lost in a crash leaves its slot's generation to be reused. Units are therefore identified
//! by sequence number, and the unit of a slot is the one last reported to the manager.
//!
//! It does not compute fingerprints. It detects one that is equal in two domains, and a volume that keeps content of
//! the domain that it left.

use std::collections::BTreeMap;

use zc_cache::seam::{Action, Event};
use zc_core::limits::PLACE_ALIGN_BYTES;
use zc_core::{DedupDomain, ExtentKey, Generation, WeuSeq, WeuSlot};
use zc_format::{ExtentHeader, Record};

use super::Judge;
use crate::volumes::Volumes;

/// Location of a stored extent: the unit, and the offset in it.
type Place = (WeuSlot, Generation, WeuSeq, u16);

/// Judge of domain boundaries: the domain in which each stored extent was placed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Borders {
    placed: BTreeMap<Place, DedupDomain>,
    /// Unit in each slot.
    units: BTreeMap<WeuSlot, WeuSeq>,
    /// Extents shared across a boundary by the actions of the current event so far.
    foreign: BTreeMap<ExtentKey, String>,
}

impl Borders {
    /// Records an extent placed for a volume of `domain`.
    fn place(&mut self, header: &ExtentHeader, offset_bytes: u32, domain: DedupDomain) {
        let units = (offset_bytes / PLACE_ALIGN_BYTES) as u16;
        self.unit(header.slot, header.weu_seq);
        self.placed.insert((header.slot, header.generation, header.weu_seq, units), domain);
    }

    /// Records the unit that the manager assigns to a slot.
    fn unit(&mut self, slot: WeuSlot, weu_seq: WeuSeq) {
        self.units.insert(slot, weu_seq);
    }

    /// Records the unit named by a header on the device. A dirty unit is written before its header, so the header may
    /// be that of an earlier unit, which the manager rejects.
    fn header(&mut self, slot: WeuSlot, weu_seq: WeuSeq) {
        let unit = self.units.entry(slot).or_insert(weu_seq);
        *unit = weu_seq.max(*unit);
    }

    /// Checks a record by which a volume of `domain` maps or unmaps stored content.
    fn record(&mut self, record: &Record, domain: DedupDomain) {
        let (key, place) = match record {
            Record::Unmap { key } | Record::Zero { key } => {
                self.foreign.remove(key);
                return;
            }
            Record::Duplicate { key, slot, generation, offset_units, .. }
            | Record::Dirty { key, slot, generation, offset_units, .. } => {
                let Some(unit) = self.units.get(slot) else { return };
                (*key, (*slot, *generation, *unit, *offset_units))
            }
            _ => return,
        };
        match self.placed.get(&place) {
            Some(of) if *of != domain => {
                self.foreign.insert(key, format!("{key:?} of {domain:?} shares {place:?} with {of:?} (G9)"));
            }
            _ => {
                self.foreign.remove(&key);
            }
        }
    }
}

impl Judge for Borders {
    fn fork(&self) -> Box<dyn Judge> {
        Box::new(self.clone())
    }

    /// Clears the placements: slots of an older image may have had other contents under these generations.
    fn medium_changed(&mut self) {
        self.placed.clear();
    }

    fn comes(&mut self, event: &Event) {
        if let Event::HeaderRead { result: Ok(Some(header)), .. } = event {
            self.header(header.slot, header.weu_seq);
        }
    }

    fn wants(&mut self, action: &Action, volumes: &Volumes) {
        match action {
            Action::Place { offset_bytes, header, .. } => {
                let domain = volumes[usize::from(header.key.volume.0)].domain;
                self.place(header, *offset_bytes, domain);
            }
            Action::Intent { record } => match record {
                Record::SlotDirty { slot, weu_seq, .. } | Record::SlotSealed { slot, weu_seq, .. } => {
                    self.unit(*slot, *weu_seq);
                }
                _ => {
                    if let Some(volume) = volume_of(record) {
                        self.record(record, volumes[volume].domain);
                    }
                }
            },
            _ => {}
        }
    }

    /// Returns an extent shared across a boundary after the event was handled. A start of a volume in another domain
    /// repeats the previous session's records, and invalidates them at once.
    fn took(&mut self) -> Option<String> {
        core::mem::take(&mut self.foreign).into_values().next()
    }
}

/// Returns the volume that an extent record concerns.
fn volume_of(record: &Record) -> Option<usize> {
    match record {
        Record::Duplicate { key, .. }
        | Record::Dirty { key, .. }
        | Record::Unmap { key }
        | Record::Zero { key } => Some(usize::from(key.volume.0)),
        _ => None,
    }
}
