//! Pinned extents in slots: the units of their class, the next of these to evict, and units that join it.
//!
//! Invariant: a slot counts the mappings of kept extents to its current unit (see `kept`).
//!
//! Out of scope: mappings (see `catalog`).

use core::ops::Range;

use zc_core::{ExtentKey, VolumeId, WeuSlot};

use crate::base::Base;
use crate::device::slots::Slots;
use crate::device::slots::class_id::ClassId;
use crate::device::slots::mapping_counts::MappingCounts;
use crate::device::slots::table::SlotState;
use crate::index::file_index::Mapping;

impl Slots {
    pub(crate) fn configure_pins(&mut self, volume: VolumeId, pins: &[Range<u64>], extents: u64) {
        self.kept.configure(volume, pins, extents);
        self.classes.set_kept(self.kept.units_max());
    }

    pub(crate) fn kept_units(&self) -> u32 {
        self.classes.units(ClassId::KEPT)
    }

    /// Records the removal of the unit in the slot, which may have had kept extents.
    pub(crate) fn kept_may_be_gone(&mut self, slot: WeuSlot) {
        self.kept.note_change(self.table.get(slot).kept() > 0);
    }

    pub(crate) fn kept_not_placed(&mut self, key: ExtentKey) {
        self.kept.note_change(self.kept.has(key));
    }

    /// Returns `true` if kept extents may share content in the slot.
    pub(crate) fn may_keep_in(&self, slot: WeuSlot) -> bool {
        self.table.get(slot).class() == Some(ClassId::KEPT) && self.kept.takes_in(slot)
    }

    pub(crate) fn kept_mapped(&mut self, key: ExtentKey, mapping: Mapping) {
        let is_safe = match mapping {
            Mapping::Zero => true,
            Mapping::Base(place) | Mapping::Duplicate(place) => {
                self.table.keep(place.slot);
                self.may_keep_in(place.slot)
            }
        };
        self.kept.count_safe(key.volume, i64::from(is_safe));
        self.kept.note_change(!is_safe);
    }

    /// Counts the end of a kept extent's mapping.
    pub(crate) fn kept_unmapped(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        self.kept.note_change(true);
        let was_safe = match mapping {
            Mapping::Zero => true,
            Mapping::Base(place) | Mapping::Duplicate(place) if self.table.is_live(&place) => {
                let was_safe = self.may_keep_in(place.slot);
                self.let_go_in(place.slot, base);
                was_safe
            }
            _ => false,
        };
        self.kept.count_safe(key.volume, -i64::from(was_safe));
    }

    /// Counts a mapping to the slot as one of a kept extent, or, if `is_kept` is `false`, as released.
    pub(crate) fn count_kept_in(&mut self, slot: WeuSlot, is_kept: bool, base: &mut Base) {
        if is_kept {
            self.table.keep(slot);
        } else {
            self.let_go_in(slot, base);
        }
    }

    /// Decrements the slot's count of kept extents.
    fn let_go_in(&mut self, slot: WeuSlot, base: &mut Base) {
        if self.table.let_go(slot) == 0 {
            self.nothing_kept_in(slot, base);
        }
    }

    /// Returns a unit of the class without kept extents to normal ageing, or makes it the next to be evicted if no
    /// mapping leads to it.
    pub(crate) fn nothing_kept_in(&mut self, slot: WeuSlot, base: &mut Base) {
        let entry = self.table.get(slot);
        let is_free_of_kept = entry.class() == Some(ClassId::KEPT) && entry.kept() == 0;
        if !is_free_of_kept || entry.state() != SlotState::Sealed {
            return;
        }
        if self.table.live(slot) == 0 {
            self.kept.add_dead(slot);
        } else {
            base.stats.units_moved += 1;
            let home = self.classes.of_owner(self.table.get(slot).owner());
            self.join(slot, home);
        }
        self.look_for_victims();
    }

    /// Returns a unit without mappings that can be evicted now.
    pub(crate) fn dead_unit(&mut self) -> Option<WeuSlot> {
        self.kept.dead_unit(&mut self.table)
    }

    /// Returns `true` if the class may have one more unit; `anew`: for relocations.
    pub(crate) fn has_room_to_keep(&self, anew: bool) -> bool {
        self.kept.has_room(self.kept_units(), anew)
    }

    /// Returns `true` if a unit found with these extents belongs to the class.
    pub(crate) fn joins_kept(&self, mut keys: impl Iterator<Item = ExtentKey>) -> bool {
        self.kept.is_used() && keys.all(|key| self.kept.has(key)) && self.has_room_to_keep(false)
    }

    /// Returns `true` if a unit with these mappings in an index image belongs to the class. Overwritten extents are
    /// not visible there, so its header may lead to another result.
    pub(crate) fn joins_kept_with(&self, mappings: &MappingCounts) -> bool {
        mappings.are_of_kept() && self.has_room_to_keep(false)
    }

    /// Chooses units to be emptied if the class is short of capacity: the emptiest ones, as many as fit elsewhere.
    pub(crate) fn empty_units(&mut self, base: &mut Base) {
        if !self.kept.is_full_of_kept() || self.has_room_to_keep(false) {
            return;
        }
        let of_class = |slot: &WeuSlot| self.table.get(*slot).class() == Some(ClassId::KEPT);
        let units = self
            .table
            .iter()
            .filter(|(slot, entry)| of_class(slot) && entry.state() == SlotState::Sealed)
            .map(|(slot, entry)| (entry.kept(), slot))
            .collect();
        base.stats.pinned_units_emptied += zc_core::u64_from_usize(self.kept.empty_some(units));
    }
}
