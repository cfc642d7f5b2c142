//! Which units are in which class: they join, leave and move.
//!
//! Invariant: class, count and replacement policy change together, here alone.

use zc_core::{ExtentKey, VolumeId, WeuSlot};

use crate::base::Base;
use crate::config::ShareConfig;
use crate::device::units::classes::{ClassId, majority};
use crate::device::{Device, Units};

impl Units {
    /// The unit in the slot counts for the class, as its newest one.
    pub(in crate::device) fn join(&mut self, slot: WeuSlot, class: ClassId) {
        if let Some(before) = self.slots.get(slot).class() {
            self.leave_class(slot, before);
        }
        self.slots.set_class(slot, Some(class));
        self.classes.joined(class);
        self.policy.inserted(slot, class);
    }

    /// The unit in the slot is gone, or about to go.
    pub(in crate::device) fn leave(&mut self, slot: WeuSlot) {
        if let Some(class) = self.slots.get(slot).class() {
            self.leave_class(slot, class);
        }
    }

    fn leave_class(&mut self, slot: WeuSlot, class: ClassId) {
        self.policy.removed(slot, class);
        self.classes.left(class);
        if class == ClassId::KEPT {
            self.kept.left(slot);
        }
        self.slots.set_class(slot, None);
    }

    /// The class that the unit in the slot is to be in. One with dirty data in the default class stays there, and one of
    /// kept extents stays until nothing in it is kept.
    fn home(&self, slot: WeuSlot) -> ClassId {
        let entry = self.slots.get(slot);
        if entry.class() == Some(ClassId::KEPT) {
            return ClassId::KEPT;
        }
        if entry.class() == Some(ClassId::DEFAULT) && self.dirty_slots.contains(slot) {
            return ClassId::DEFAULT;
        }
        self.classes.of_owner(entry.owner())
    }

    /// The order of sessions before is not on media; age is the best guess.
    pub(in crate::device) fn order_by_age(&mut self, oldest_first: impl IntoIterator<Item = WeuSlot>) {
        for slot in oldest_first {
            if let Some(class) = self.slots.get(slot).class() {
                self.policy.inserted(slot, class);
                self.slots.note_use(slot);
                self.slots.count_opened();
            }
        }
    }
}

impl Device {
    /// Most of the unit's extents are of this volume. It is in no class yet, or in the right one.
    pub(in crate::device) fn set_owner(
        &mut self,
        slot: WeuSlot,
        keys: impl Iterator<Item = ExtentKey> + Clone,
    ) {
        let owner = majority(keys.map(|key| key.volume));
        self.units.slots.set_owner(slot, owner);
    }

    /// The unit may have to move to another class: its owner is known now, or all in it has become clean.
    pub(in crate::device) fn settle(&mut self, slot: WeuSlot, base: &mut Base) {
        if !self.units.classes.are_divided() {
            return;
        }
        let home = self.units.home(slot);
        if self.units.slots.get(slot).class().is_some_and(|class| class != home) {
            base.stats.units_moved += 1;
            self.units.join(slot, home);
        }
    }

    /// Takes on what share of the cache a volume is to have.
    pub(crate) fn configure_share(&mut self, volume: VolumeId, share: &ShareConfig, base: &mut Base) {
        let Some((before, _)) = self.units.classes.configure(volume, share) else { return };
        if before != ClassId::DEFAULT {
            self.seal(before, base);
        }
        let units = &self.units;
        let mut moving: Vec<_> = units
            .slots
            .iter()
            .filter(|(slot, entry)| entry.class().is_some_and(|class| class != units.home(*slot)))
            .map(|(slot, entry)| (entry.used(), entry.weu_seq(), slot))
            .collect();
        moving.sort_unstable();
        for (_, _, slot) in moving {
            base.stats.units_moved += 1;
            let home = self.units.home(slot);
            self.units.join(slot, home);
        }
    }
}
