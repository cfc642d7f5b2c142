//! Where a content is stored: candidates from the fingerprint index, proved by the headers of their units.

use smallvec::SmallVec;
use zc_core::{Fingerprint, Generation, WeuSlot};
use zc_format::WeuHeader;

use crate::base::Base;
use crate::device::Device;
use crate::device::units::headers::Stored;
use crate::index::file_index::Place;

/// Candidate slots looked at per fingerprint.
const CANDIDATES_MAX: usize = 4;

impl Device {
    pub(crate) fn candidates(&mut self, print: &Fingerprint) -> SmallVec<[WeuSlot; 4]> {
        let mut slots: SmallVec<[WeuSlot; 4]> = self.index.prints.candidates(print).into_iter().collect();
        slots.retain(|slot| self.units.slots.contains(*slot));
        slots.truncate(CANDIDATES_MAX);
        slots
    }

    /// The content's place in a slot whose header is at hand.
    pub(crate) fn find_print(&mut self, slot: WeuSlot, print: &Fingerprint) -> Option<(Generation, Stored)> {
        let (generation, stored) = self.units.headers.find(slot, print)??;
        self.units.slots.may_share(&self.place(slot, generation, stored)).then_some((generation, stored))
    }

    pub(crate) fn place(&self, slot: WeuSlot, generation: Generation, stored: Stored) -> Place {
        Place {
            slot,
            generation: self.units.slots.short(generation),
            offset_units: stored.offset_units,
            pages: stored.pages,
        }
    }

    /// Puts a header's fingerprints into the header cache.
    pub(crate) fn load_prints(&mut self, header: &WeuHeader) {
        let prints = header
            .entries
            .iter()
            .map(|entry| (entry.fingerprint, stored_of(entry.offset_bytes, entry.stored_bytes)));
        self.units.headers.load(header.slot, header.generation, prints);
    }

    /// Where content is stored, as far as headers at hand tell and fingerprints are proof.
    pub(crate) fn find_content(
        &mut self,
        print: &Fingerprint,
        base: &mut Base,
    ) -> Option<(WeuSlot, Generation, Stored)> {
        if !base.cfg().fingerprint.is_collision_resistant() {
            return None;
        }
        let candidates = self.candidates(print);
        candidates.into_iter().find_map(|slot| {
            let (generation, stored) = self.find_print(slot, print)?;
            Some((slot, generation, stored))
        })
    }
}

/// The index form of an extent's place in its WEU.
pub(crate) fn stored_of(offset_bytes: u32, stored_bytes: u32) -> Stored {
    let page = zc_core::limits::BLOCK_BYTES;
    let end = offset_bytes + zc_format::EXTENT_HEADER_BYTES + stored_bytes;
    let pages = end.div_ceil(page) - offset_bytes / page;
    Stored {
        offset_units: u16::try_from(offset_bytes / zc_core::limits::PLACE_ALIGN_BYTES).unwrap_or(u16::MAX),
        pages: u8::try_from(pages).unwrap_or(u8::MAX),
    }
}
