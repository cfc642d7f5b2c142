//! The borders of dedup domains: no stored extent is shared over one (G9).
//!
//! Job: remember in which domain each stored extent was placed, and judge the records by which a volume gets what
//! is stored already. A unit that was lost in a crash leaves its slot's generation to be used again, so a unit is known
//! by its sequence number, and which one is in a slot by what the manager was told last.
//!
//! What it does not do: know fingerprints. It would notice one that is the same in two domains, and a volume that keeps
//! content from the domain that it left.

use std::collections::BTreeMap;

use zc_cache::seam::{Action, Event};
use zc_core::limits::PLACE_ALIGN_BYTES;
use zc_core::{DedupDomain, ExtentKey, Generation, WeuSeq, WeuSlot};
use zc_format::{ExtentHeader, Record};

use super::Judge;
use crate::volumes::Volumes;

/// Where an extent is stored: the unit, and the place in it.
type Place = (WeuSlot, Generation, WeuSeq, u16);

/// The judge of borders: in which domain each stored extent was placed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Borders {
    placed: BTreeMap<Place, DedupDomain>,
    /// Which unit is in each slot.
    units: BTreeMap<WeuSlot, WeuSeq>,
    /// Extents that share over a border as far as the event under way has been handled.
    foreign: BTreeMap<ExtentKey, String>,
}

impl Borders {
    /// An extent is placed, for a volume of `domain`.
    fn place(&mut self, header: &ExtentHeader, offset_bytes: u32, domain: DedupDomain) {
        let units = (offset_bytes / PLACE_ALIGN_BYTES) as u16;
        self.unit(header.slot, header.weu_seq);
        self.placed.insert((header.slot, header.generation, header.weu_seq, units), domain);
    }

    /// The manager decides which unit is in a slot.
    fn unit(&mut self, slot: WeuSlot, weu_seq: WeuSeq) {
        self.units.insert(slot, weu_seq);
    }

    /// The manager reads which unit a header on the device names. A dirty unit is written before its header, which is
    /// then that of an earlier unit; the manager does not believe it.
    fn header(&mut self, slot: WeuSlot, weu_seq: WeuSeq) {
        let unit = self.units.entry(slot).or_insert(weu_seq);
        *unit = weu_seq.max(*unit);
    }

    /// A volume of `domain` gets what is stored, or gives it up.
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

    /// The slots of an older image may have had other contents under these generations.
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

    /// What is shared over a border when the manager has handled an event. A start of a volume in another domain repeats
    /// what the session before recorded, and makes it void at once.
    fn took(&mut self) -> Option<String> {
        core::mem::take(&mut self.foreign).into_values().next()
    }
}

/// The volume that a record of an extent is about.
fn volume_of(record: &Record) -> Option<usize> {
    match record {
        Record::Duplicate { key, .. }
        | Record::Dirty { key, .. }
        | Record::Unmap { key }
        | Record::Zero { key } => Some(usize::from(key.volume.0)),
        _ => None,
    }
}
