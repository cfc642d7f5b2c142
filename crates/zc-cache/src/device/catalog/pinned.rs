//! Mappings of pinned extents: their location, and counts that change with pins (see `kept`).

use core::ops::Range;

use zc_core::{ExtentKey, ExtentNo, VolumeId};

use crate::base::Base;
use crate::device::catalog::Catalog;
use crate::index::file_index::{Mapping, Place};

/// Location of a kept extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Safe,
    Astray(Mapping, Place),
    Absent,
}

impl Catalog {
    /// Sets the pinned ranges of a volume of `extents` extents, completely if nothing is mapped yet.
    pub(crate) fn configure_pins(
        &mut self,
        volume: VolumeId,
        pins: &[Range<u64>],
        extents: u64,
        base: &Base,
    ) {
        self.slots.configure_pins(volume, pins, extents);
        if self.files.is_empty() && !base.is_reading_image() {
            let kept = self.slots.kept_mut();
            while let Some((volume, piece, is_kept)) = kept.next_change(u64::MAX) {
                kept.changed(volume, &piece, is_kept);
            }
        }
    }

    /// Applies changes of pins to the next `most` extents, unless an index image is being read. Returns `true` if more
    /// remain.
    pub(crate) fn change_kept(&mut self, most: u64, base: &mut Base) -> bool {
        if base.is_reading_image() {
            // The image is counted by the pins in force when its reading began.
            return false;
        }
        let Some((volume, piece, is_kept)) = self.slots.kept().next_change(most) else { return false };
        for extent in piece.clone() {
            let mapping = self.files.get(ExtentKey { volume, extent: ExtentNo(extent) });
            if let Some(Mapping::Base(place) | Mapping::Duplicate(place)) = mapping
                && self.table().is_live(&place)
            {
                self.slots.count_kept_in(place.slot, is_kept, base);
            }
        }
        self.slots.kept_mut().changed(volume, &piece, is_kept);
        true
    }

    pub(crate) fn keeping(&self, key: ExtentKey) -> Keeping {
        match self.files.get(key) {
            Some(Mapping::Zero) => Keeping::Safe,
            Some(mapping @ (Mapping::Base(place) | Mapping::Duplicate(place)))
                if self.table().is_live(&place) =>
            {
                if self.slots.may_keep_in(place.slot) {
                    Keeping::Safe
                } else {
                    Keeping::Astray(mapping, place)
                }
            }
            _ => Keeping::Absent,
        }
    }

    /// Returns `true` if the extent is kept and must be relocated.
    pub(crate) fn is_astray(&self, key: ExtentKey) -> bool {
        self.slots.kept().has(key) && matches!(self.keeping(key), Keeping::Astray(..))
    }

    /// Returns `true` if the extent is kept in a place that is not evicted.
    pub(crate) fn is_safe(&self, key: ExtentKey) -> bool {
        self.slots.kept().stays(key)
            && match self.files.get(key) {
                Some(Mapping::Zero) => true,
                Some(Mapping::Base(place) | Mapping::Duplicate(place)) => self.slots.is_among_kept(&place),
                None => false,
            }
    }
}
