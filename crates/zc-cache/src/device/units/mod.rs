//! Units in memory, being filled or written; and reads of stored extents, from memory or the device.
//!
//! Out of scope: choosing slots, and the mappings to a unit (see `catalog`).

pub(crate) mod clean_unit;
pub(crate) mod dirty_unit;
pub(crate) mod packer;
pub(crate) mod unit;
pub(crate) mod unit_writes;

use core::ops::Range;

use zc_core::{DedupDomain, Fingerprint, FingerprintKind, VolumeId, WeuSlot};

use crate::base::Base;
use crate::device::contents::Contents;
use crate::device::stored::Stored;
use crate::device::units::clean_unit::CleanUnits;
use crate::device::units::dirty_unit::DirtyUnits;
use crate::index::file_index::Place;
use crate::ops::OpKind;
use crate::seam::{Action, ExtentRead, Proof, Source};

#[derive(Debug, Default)]
pub(crate) struct Units {
    clean: CleanUnits,
    dirty: DirtyUnits,
}

impl Units {
    pub(crate) const fn clean(&self) -> &CleanUnits {
        &self.clean
    }

    pub(crate) const fn clean_mut(&mut self) -> &mut CleanUnits {
        &mut self.clean
    }

    pub(crate) const fn dirty(&self) -> &DirtyUnits {
        &self.dirty
    }

    pub(crate) const fn dirty_mut(&mut self) -> &mut DirtyUnits {
        &mut self.dirty
    }

    /// Returns `true` if a unit write is in flight.
    pub(crate) fn are_in_flight(&self) -> bool {
        self.clean.has_units_in_flight() || self.dirty.is_any_sealed()
    }

    /// Current source for reads of a slot's extents.
    pub(crate) fn source(&self, slot: WeuSlot) -> Source {
        let memory = self.clean.memory_of(slot).or_else(|| self.dirty.memory_of(slot));
        memory.map_or(Source::Device, Source::Memory)
    }

    /// Proof for the content of a volume's stored sectors. Only whole extents have a fingerprint, and content in
    /// memory is decoded without hashing.
    pub(crate) fn proof(
        &self,
        volume: VolumeId,
        place: &Place,
        stored: &Range<u32>,
        base: &Base,
    ) -> Option<Proof> {
        if *stored == base.whole_sectors() && self.source(place.slot) == Source::Device {
            proof_of_content(volume, base)
        } else {
            None
        }
    }

    /// Fingerprint of a whole extent in memory, which no proof computes, unless fingerprints are keyed.
    pub(crate) fn print_in_memory(
        &self,
        volume: VolumeId,
        place: &Place,
        contents: &Contents,
        base: &Base,
    ) -> Option<Fingerprint> {
        let domain = base.volume(volume)?.cfg().domain;
        let is_plain = base.cfg().fingerprint == FingerprintKind::Blake3 && domain == DedupDomain::COMMON;
        let stored = Stored { offset_units: place.offset_units, pages: place.pages };
        let in_memory = matches!(self.source(place.slot), Source::Memory(_));
        (is_plain && in_memory).then(|| contents.headers().content_at(place.slot, stored)).flatten()
    }

    /// Reads one stored extent in the background from its current source.
    pub(crate) fn read_stored_extent(
        &self,
        kind: impl Into<OpKind>,
        place: &Place,
        part: ExtentRead,
        base: &mut Base,
    ) {
        read_stored_from(self.source(place.slot), kind, place, part, base);
    }
}

/// Proof for a whole extent of the volume that is read from the device.
pub(crate) fn proof_of_content(volume: VolumeId, base: &Base) -> Option<Proof> {
    let domain = base.volume(volume)?.cfg().domain;
    Some(Proof { kind: base.cfg().fingerprint, domain })
}

/// Reads one stored extent in the background from `source`.
pub(crate) fn read_stored_from(
    source: Source,
    kind: impl Into<OpKind>,
    place: &Place,
    part: ExtentRead,
    base: &mut Base,
) {
    let page = zc_core::limits::BLOCK_BYTES;
    let op = base.port.op(kind);
    base.port.keep_source(op, source);
    base.port.emit(Action::ReadExtents {
        op,
        source,
        slot: place.slot,
        start_bytes: part.expected.offset_bytes / page * page,
        len_bytes: u32::from(place.pages) * page,
        parts: vec![part],
        urgent: false,
    });
}
