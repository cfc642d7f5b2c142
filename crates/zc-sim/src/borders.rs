//! The borders of dedup domains: no stored extent is shared over one (G9).
//!
//! Job: remember in which domain each stored extent was placed, and judge the records by which a volume gets what
//! is stored already.
//!
//! What it does not do: know fingerprints. It would notice one that is the same in two domains, and a volume that keeps
//! content from the domain that it left.

use std::collections::BTreeMap;

use zc_core::{DedupDomain, ExtentKey, Generation, WeuSlot, limits::PLACE_ALIGN_BYTES};
use zc_format::{ExtentHeader, Record};

/// Where an extent is stored.
type Place = (WeuSlot, Generation, u16);

/// In which domain each stored extent was placed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Borders {
    placed: BTreeMap<Place, DedupDomain>,
    /// Extents that share over a border as far as the event under way has been handled.
    foreign: BTreeMap<ExtentKey, String>,
}

impl Borders {
    /// An extent is placed, for a volume of `domain`.
    pub(crate) fn place(&mut self, header: &ExtentHeader, offset_bytes: u32, domain: DedupDomain) {
        let units = (offset_bytes / PLACE_ALIGN_BYTES) as u16;
        self.placed.insert((header.slot, header.generation, units), domain);
    }

    /// The device has an older image: its slots may have had other contents under these generations.
    pub(crate) fn forget(&mut self) {
        self.placed.clear();
    }

    /// A volume of `domain` gets what is stored, or gives it up.
    pub(crate) fn record(&mut self, record: &Record, domain: DedupDomain) {
        let (key, place) = match record {
            Record::Unmap { key } | Record::Zero { key } => {
                self.foreign.remove(key);
                return;
            }
            Record::Duplicate { key, slot, generation, offset_units, .. }
            | Record::Dirty { key, slot, generation, offset_units, .. } => {
                (*key, (*slot, *generation, *offset_units))
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

    /// What is shared over a border when the manager has handled an event. A start of a volume in another domain repeats
    /// what the session before recorded, and makes it void at once.
    pub(crate) fn breach(&mut self) -> Option<String> {
        core::mem::take(&mut self.foreign).into_values().next()
    }
}

/// The volume that a record of an extent is about.
pub(crate) fn volume_of(record: &Record) -> Option<usize> {
    match record {
        Record::Duplicate { key, .. }
        | Record::Dirty { key, .. }
        | Record::Unmap { key }
        | Record::Zero { key } => Some(usize::from(key.volume.0)),
        _ => None,
    }
}
