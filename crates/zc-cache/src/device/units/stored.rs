//! Reads of stored extents: what is expected there, and whether it is in memory still.

use core::ops::Range;

use zc_core::{
    DedupDomain, ExtentKey, Fingerprint, FingerprintKind, Generation, SECTOR_BYTES, VolumeId, WeuSlot,
};
use zc_format::ExpectedExtent;

use crate::base::Base;
use crate::device::Device;
use crate::device::units::headers::Stored;
use crate::index::file_index::{Mapping, Place};
use crate::ops::OpKind;
use crate::seam::{Action, ExtentRead, Proof, Source};

impl Device {
    /// What the pages of a location must hold.
    pub(crate) fn expected(
        &self,
        mapping: &Mapping,
        place: &Place,
        key: ExtentKey,
        base: &Base,
    ) -> ExpectedExtent {
        let slot = self.units.slots.get(place.slot);
        ExpectedExtent {
            salt: base.cfg().geometry.salt,
            slot: place.slot,
            generation: slot.generation(),
            weu_seq: slot.weu_seq(),
            offset_bytes: u32::from(place.offset_units) * zc_core::limits::PLACE_ALIGN_BYTES,
            raw_bytes: base.extent_bytes(),
            first_sector: 0,
            key: matches!(mapping, Mapping::Base(_)).then_some(key),
            print: None,
        }
    }

    pub(crate) fn note_damaged(&mut self, mapping: &Mapping) {
        if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping {
            self.units.slots.damage(place);
        }
    }

    pub(crate) fn count_outlived(&self, mapping: &Mapping, base: &mut Base) {
        if let Mapping::Duplicate(place) = *mapping
            && self.units.slots.get(place.slot).void_bases().contains(&place.offset_units)
        {
            base.stats.duplicate_outlived_base += 1;
        }
    }

    /// How the content of a volume's stored sectors is proved. There is a fingerprint of whole extents alone, and what
    /// is in memory is decoded where nothing is hashed.
    pub(crate) fn proof(
        &self,
        volume: VolumeId,
        place: &Place,
        stored: &Range<u32>,
        base: &Base,
    ) -> Option<Proof> {
        if *stored == base.whole_sectors() && self.source(place.slot) == Source::Device {
            Self::proof_of_content(volume, base)
        } else {
            None
        }
    }

    /// Proof of a whole extent of the volume that is read from the device.
    pub(crate) fn proof_of_content(volume: VolumeId, base: &Base) -> Option<Proof> {
        let domain = base.volume(volume)?.cfg().domain;
        Some(Proof { kind: base.cfg().fingerprint, domain })
    }

    /// The fingerprint of a whole extent that is still in memory, where no proof computes it, if it has no key.
    pub(crate) fn print_in_memory(
        &self,
        volume: VolumeId,
        place: &Place,
        base: &Base,
    ) -> Option<Fingerprint> {
        let domain = base.volume(volume)?.cfg().domain;
        let is_plain = base.cfg().fingerprint == FingerprintKind::Blake3 && domain == DedupDomain::COMMON;
        let stored = Stored { offset_units: place.offset_units, pages: place.pages };
        let in_memory = matches!(self.source(place.slot), Source::Memory(_));
        (is_plain && in_memory).then(|| self.units.headers.content_at(place.slot, stored)).flatten()
    }

    /// Reads one stored extent in the background, from where it is now.
    pub(crate) fn read_stored_extent(
        &mut self,
        kind: impl Into<OpKind>,
        place: &Place,
        part: ExtentRead,
        base: &mut Base,
    ) {
        self.read_stored_from(self.source(place.slot), kind, place, part, base);
    }

    /// Reads one stored extent in the background, from there.
    pub(crate) fn read_stored_from(
        &self,
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

    /// Where a slot's extents are read from now.
    pub(crate) fn source(&self, slot: WeuSlot) -> Source {
        if let Some(buf) = self.units.open.memory_of(slot) {
            return Source::Memory(buf);
        }
        if let Some(open) = self.units.dirty.open().filter(|open| open.slot() == slot) {
            return Source::Memory(open.buf());
        }
        self.units.writing.get(&slot).map_or(Source::Device, |weu| Source::Memory(weu.buf))
    }

    /// What the pages of a dirty body must hold. Nothing verifies in a slot that has had another unit since: that
    /// happens where a device told of dirty data that it has no more.
    pub(crate) fn expected_dirty(
        &self,
        place: &Place,
        key: Option<ExtentKey>,
        stored: &Range<u32>,
        base: &Base,
    ) -> ExpectedExtent {
        let slot = self.units.slots.get(place.slot);
        let is_same = self.units.slots.short(slot.generation()) == place.generation;
        ExpectedExtent {
            salt: base.cfg().geometry.salt,
            slot: place.slot,
            generation: if is_same { slot.generation() } else { Generation(0) },
            weu_seq: slot.weu_seq(),
            offset_bytes: u32::from(place.offset_units) * zc_core::limits::PLACE_ALIGN_BYTES,
            raw_bytes: (stored.end - stored.start) * SECTOR_BYTES,
            first_sector: u8::try_from(stored.start).unwrap_or(u8::MAX),
            key,
            print: None,
        }
    }
}
