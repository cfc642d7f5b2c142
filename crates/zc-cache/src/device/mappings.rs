//! Mappings of extents: made, taken away, and what of that has to survive a restart.
//!
//! Invariant: a mapping that could be served is recorded as void before the index forgets it.

use core::ops::Range;

use zc_core::{ExtentKey, VolumeId};
use zc_format::Record;

use crate::base::Base;
use crate::device::Device;
use crate::index::file_index::{Keep, Mapping, SweepCursor};
use crate::residency::Residency;

/// Index buckets looked through at once, ...
const BUCKETS: usize = 1024;
/// ... how often in an event, ...
const SWEEPS_MAX: usize = 8;
/// ... unless so many mappings were found.
const VOIDS_ENOUGH: usize = 4096;

impl Device {
    /// Gives an extent a mapping and records what has to survive; the extent has none that can be served.
    pub(crate) fn map_extent(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        debug_assert!(!self.is_mapped(key), "{key:?} has a mapping that was not made void");
        match mapping {
            Mapping::Base(_) => {}
            Mapping::Zero => self.record(Record::Zero { key }, base),
            Mapping::Duplicate(place) => {
                let generation = self.units.slots.get(place.slot).generation();
                self.record(
                    Record::Duplicate {
                        key,
                        slot: place.slot,
                        generation,
                        offset_units: place.offset_units,
                        pages: place.pages,
                    },
                    base,
                );
            }
        }
        self.put(key, mapping, base);
    }

    /// Puts a mapping into the index. What it has no place for is void.
    pub(in crate::device) fn put(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        self.count_mapped(key, mapping);
        self.put_counted(key, mapping, base);
    }

    /// As [`Self::put`], for a mapping that is counted already.
    pub(in crate::device) fn put_counted(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        let Self { index, units, .. } = self;
        let mut evicted = index.files.insert_sparing(key, mapping, |other| units.kept.has(other));
        if let Some((other, theirs)) = evicted
            && other != key
            && self.is_kept(other)
            && !self.is_kept(key)
        {
            // All that might go is kept. It has its place back, which this one has for now.
            self.index.files.remove(key);
            evicted = self.index.files.insert(other, theirs).or(Some((key, mapping)));
        }
        if let Some((other, mapping)) = evicted {
            base.stats.file_index_evictions += 1;
            self.count_unmapped(other, mapping, base);
            self.void(other, mapping, base);
        }
    }

    /// A mapping came into the index.
    fn count_mapped(&mut self, key: ExtentKey, mapping: Mapping) {
        if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping {
            self.units.slots.mapped(&place);
        }
        if self.is_kept(key) {
            self.kept_mapped(key, mapping);
        }
    }

    /// A mapping left the index.
    pub(in crate::device) fn count_unmapped(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping {
            self.units.slots.unmapped(&place);
        }
        if self.is_kept(key) {
            self.kept_unmapped(key, mapping, base);
        }
    }

    /// As [`Self::map_extent`], for an extent that may have a mapping until now, since it is placed anew.
    pub(crate) fn remap_extent(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        if self.is_astray(key) {
            self.forget(key, base);
        }
        self.map_extent(key, mapping, base);
    }

    /// Takes an extent's mapping away, for good: also a restart must not find it. Returns it if it could be served.
    pub(crate) fn forget(&mut self, key: ExtentKey, base: &mut Base) -> Option<Mapping> {
        let mapping = self.index.files.remove(key)?;
        self.count_unmapped(key, mapping, base);
        self.void(key, mapping, base).then_some(mapping)
    }

    /// Returns `true` if ranges can be forgotten at once: what a header still to be read says of an extent is void
    /// extent by extent.
    pub(crate) fn forgets_ranges(&self) -> bool {
        self.is_loaded() && !self.is_reading_image()
    }

    /// As [`Self::forget`], for all extents of a range.
    pub(crate) fn forget_range(&mut self, volume: VolumeId, extents: Range<u64>, base: &mut Base) {
        for key in self.index.files.mapped_in(volume, extents) {
            self.forget(key, base);
        }
    }

    /// Returns the number of extents from the start of a range that can be forgotten at once with so many lookups, and
    /// the lookups.
    pub(crate) fn forget_reach(&self, volume: VolumeId, extents: Range<u64>, lookups_max: u64) -> (u64, u64) {
        self.index.files.reach(volume, extents, lookups_max)
    }

    /// Records that a mapping taken out of the index is void. Whether it was live.
    pub(crate) fn void(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) -> bool {
        match mapping {
            Mapping::Zero => self.record(Record::Unmap { key }, base),
            Mapping::Base(place) | Mapping::Duplicate(place) if !self.units.slots.is_live(&place) => {
                return false;
            }
            Mapping::Duplicate(_) => self.record(Record::Unmap { key }, base),
            Mapping::Base(place) => {
                let generation = self.units.slots.void_base(&place);
                base.stats.bases_voided += 1;
                self.record(
                    Record::BaseInvalid {
                        key,
                        slot: place.slot,
                        generation,
                        offset_units: place.offset_units,
                    },
                    base,
                );
            }
        }
        true
    }

    /// Voids the next mappings of the volume. Whether these were the last.
    pub(crate) fn void_some(&mut self, volume: VolumeId, cursor: &mut SweepCursor, base: &mut Base) -> bool {
        let mut voided = 0;
        for _ in 0..SWEEPS_MAX {
            if voided >= VOIDS_ENOUGH || self.journal_is_pressed() {
                return false;
            }
            let mut found = Vec::new();
            let is_last = self.index.files.sweep(cursor, BUCKETS, |key, _| {
                if key.volume == volume {
                    found.push(key);
                }
                Keep::Yes
            });
            voided += found.len();
            for key in found {
                self.forget(key, base);
            }
            if is_last {
                return true;
            }
        }
        false
    }

    /// Whether a key has a mapping that can be served.
    pub(crate) fn is_mapped(&self, key: ExtentKey) -> bool {
        match self.index.files.get(key) {
            Some(Mapping::Zero) => true,
            Some(Mapping::Base(place) | Mapping::Duplicate(place)) => self.units.slots.is_live(&place),
            None => false,
        }
    }

    /// Returns `true` if the extent is mapped to content that was stored for another one.
    pub(crate) fn is_duplicate(&self, key: ExtentKey) -> bool {
        matches!(self.index.files.get(key), Some(Mapping::Duplicate(_))) && self.is_mapped(key)
    }

    pub(crate) fn residency_of_mapping(&self, mapping: Mapping) -> Residency {
        match mapping {
            Mapping::Zero => Residency::Zero,
            Mapping::Base(place) | Mapping::Duplicate(place) if self.units.slots.is_live(&place) => {
                Residency::Cached
            }
            Mapping::Base(_) | Mapping::Duplicate(_) => Residency::OriginOnly,
        }
    }
}
