//! Slots of the device: contents, classes, and kept or dirty extents.
//!
//! Owns the table of slots, the classes, the replacement policy, kept extents and dirty bodies, and names the unit to
//! evict.
//!
//! Invariant: class, count and replacement policy change together, only here.
//!
//! Out of scope: mappings, contents and I/O.

pub(crate) mod bounds;
pub(crate) mod class_id;
pub(crate) mod classes;
pub(crate) mod dirty_slots;
pub(crate) mod kept;
pub(crate) mod mapping_counts;
mod pinned;
pub(crate) mod policy;
#[cfg(test)]
mod slots_tests;
pub(crate) mod table;

use core::ops::Range;

use zc_core::{ExtentKey, Generation, SECTOR_BYTES, VolumeId, WeuSlot};
use zc_format::ExpectedExtent;

use crate::base::Base;
use crate::config::{ManagerConfig, ShareConfig};
use crate::device::slots::class_id::ClassId;
use crate::device::slots::classes::choice::{SlotPurpose, losers};
use crate::device::slots::classes::{Classes, majority};
use crate::device::slots::dirty_slots::{DirtyBounds, DirtySlots};
use crate::device::slots::kept::KeptExtents;
use crate::device::slots::policy::order::ReplacementPolicy;
use crate::device::slots::policy::policy;
use crate::device::slots::table::{SlotState, SlotTable};
use crate::index::file_index::{Mapping, Place};

#[derive(Debug)]
pub(crate) struct Slots {
    table: SlotTable,
    policy: Box<dyn ReplacementPolicy + Send>,
    classes: Classes,
    kept: KeptExtents,
    dirty: DirtySlots,
    /// A slot waits for a sweep of the index.
    is_sweep_urgent: bool,
    /// Time of the last search that found no evictable slot.
    no_victim_ms: Option<u64>,
}

impl Slots {
    /// Creates slots that have not been read yet.
    pub(crate) fn new(config: &ManagerConfig) -> Self {
        let geometry = &config.geometry;
        Self {
            table: SlotTable::new(geometry.slots, config.generation_bits),
            policy: policy(config.replacement, geometry.slots),
            classes: Classes::new(geometry.slots, geometry.weu_bytes),
            kept: KeptExtents::new(config),
            dirty: DirtySlots::default(),
            is_sweep_urgent: false,
            no_victim_ms: None,
        }
    }

    #[inline]
    pub(crate) const fn table(&self) -> &SlotTable {
        &self.table
    }

    #[inline]
    pub(crate) const fn table_mut(&mut self) -> &mut SlotTable {
        &mut self.table
    }

    pub(crate) const fn classes(&self) -> &Classes {
        &self.classes
    }

    pub(crate) const fn set_wanting(&mut self, class: Option<ClassId>) {
        self.classes.set_wanting(class);
    }

    #[inline]
    pub(crate) const fn kept(&self) -> &KeptExtents {
        &self.kept
    }

    pub(crate) const fn kept_mut(&mut self) -> &mut KeptExtents {
        &mut self.kept
    }

    pub(crate) const fn dirty(&self) -> &DirtySlots {
        &self.dirty
    }

    pub(crate) fn policy_ram_bytes(&self) -> u64 {
        self.policy.ram_bytes()
    }

    /// Capacity of the cache in extents, estimated from the mappings per used slot; `None` while no slot is used.
    pub(crate) fn fits_extents(&self) -> Option<u64> {
        let slots = u64::from(self.table.len());
        let idle = zc_core::u64_from_usize(self.table.free_len() + self.table.leaving());
        let used = slots.checked_sub(idle).filter(|used| *used > 0)?;
        Some(self.table.live_total().saturating_mul(slots) / used)
    }

    /// Returns `true` if the slot's contents have this generation and are valid.
    pub(crate) fn holds(&self, slot: WeuSlot, generation: Generation) -> bool {
        let entry = self.table.get(slot);
        entry.generation() == generation && !entry.is_retired()
    }

    /// Returns `true` if the place is in a unit of kept extents.
    pub(crate) fn is_among_kept(&self, place: &Place) -> bool {
        self.table.is_live(place) && self.table.get(place.slot).class() == Some(ClassId::KEPT)
    }

    pub(crate) fn slot_used(&mut self, slot: WeuSlot) {
        if let Some(class) = self.table.note_use(slot).class() {
            self.policy.touched(slot, class);
        }
    }

    /// Records that another extent shares content of the slot.
    pub(crate) fn slot_shared(&mut self, slot: WeuSlot) {
        if let Some(class) = self.table.note_use(slot).class() {
            self.policy.shared(slot, class);
        }
    }

    /// Bounds on slots with dirty data, after those of pinned extents.
    pub(crate) fn dirty_bounds(&self, base: &Base) -> DirtyBounds {
        let slots = self.table.len() - self.kept.units_max();
        DirtyBounds::new(slots, base.cfg().dirty.high_percent)
    }

    /// Adds a dirty body of a volume to the slot; `own`: it was stored as a dirty extent.
    pub(crate) fn add_dirty(&mut self, volume: VolumeId, slot: WeuSlot, own: bool) {
        self.table.pin(slot);
        self.dirty.add(volume, slot, own);
    }

    /// Removes a dirty body of a volume from the slot.
    pub(crate) fn remove_dirty(&mut self, volume: VolumeId, slot: WeuSlot, own: bool, base: &mut Base) {
        self.table.unpin(slot);
        self.dirty.remove(volume, slot, own);
        self.settle(slot, base);
    }
}

impl Slots {
    /// Adds the unit in the slot to the class as its newest one.
    pub(crate) fn join(&mut self, slot: WeuSlot, class: ClassId) {
        if let Some(before) = self.table.get(slot).class() {
            self.leave_class(slot, before);
        }
        self.table.set_class(slot, Some(class));
        self.classes.joined(class);
        self.policy.inserted(slot, class);
    }

    /// Removes the unit in the slot from its class.
    pub(crate) fn leave(&mut self, slot: WeuSlot) {
        if let Some(class) = self.table.get(slot).class() {
            self.leave_class(slot, class);
        }
    }

    fn leave_class(&mut self, slot: WeuSlot, class: ClassId) {
        self.policy.removed(slot, class);
        self.classes.left(class);
        if class == ClassId::KEPT {
            self.kept.left(slot);
        }
        self.table.set_class(slot, None);
    }

    /// Returns the class for the unit in the slot. One with dirty data remains in the default class, and one of kept
    /// extents remains in theirs until it has none.
    fn home(&self, slot: WeuSlot) -> ClassId {
        let entry = self.table.get(slot);
        if entry.class() == Some(ClassId::KEPT) {
            return ClassId::KEPT;
        }
        if entry.class() == Some(ClassId::DEFAULT) && self.dirty.contains(slot) {
            return ClassId::DEFAULT;
        }
        self.classes.of_owner(entry.owner())
    }

    /// Adds a unit found by a start to its class; `is_kept`: it is a unit of kept extents.
    pub(crate) fn join_found(&mut self, slot: WeuSlot, is_kept: impl FnOnce(&Self) -> bool) {
        let class = if self.dirty.contains(slot) {
            ClassId::DEFAULT
        } else if is_kept(self) {
            ClassId::KEPT
        } else {
            self.classes.of_owner(self.table.get(slot).owner())
        };
        self.join(slot, class);
    }

    /// Orders units by age: the order of earlier sessions is not on media.
    pub(crate) fn order_by_age(&mut self) {
        let sealed = self.table.iter().filter(|(_, slot)| slot.state() == SlotState::Sealed);
        let mut by_age: Vec<_> = sealed.map(|(id, slot)| (slot.weu_seq(), id)).collect();
        by_age.sort_unstable();
        for (_, slot) in by_age {
            if let Some(class) = self.table.get(slot).class() {
                self.policy.inserted(slot, class);
                self.table.note_use(slot);
                self.table.count_opened();
            }
        }
    }

    /// Determines the owner of the unit: the volume of most of its extents. It is in no class yet, or in the right
    /// one.
    pub(crate) fn set_owner(&mut self, slot: WeuSlot, keys: impl Iterator<Item = ExtentKey> + Clone) {
        let owner = majority(keys.map(|key| key.volume));
        self.table.set_owner(slot, owner);
    }

    /// Moves the unit to another class if its owner has been determined, or all of it has become clean.
    pub(crate) fn settle(&mut self, slot: WeuSlot, base: &mut Base) {
        if !self.classes.are_divided() {
            return;
        }
        let home = self.home(slot);
        if self.table.get(slot).class().is_some_and(|class| class != home) {
            base.stats.units_moved += 1;
            self.join(slot, home);
        }
    }

    /// Applies a volume's share of the cache. Returns its previous class if that changed: the caller seals its open
    /// unit, then calls [`Self::move_home`].
    pub(crate) fn configure_share(&mut self, volume: VolumeId, share: &ShareConfig) -> Option<ClassId> {
        self.classes.configure(volume, share).map(|(before, _)| before)
    }

    /// Moves units whose owner is in another class now.
    pub(crate) fn move_home(&mut self, base: &mut Base) {
        let moves =
            |(slot, class): (WeuSlot, Option<ClassId>)| class.is_some_and(|class| class != self.home(slot));
        let mut moving: Vec<_> = self
            .table
            .iter()
            .filter(|(slot, entry)| moves((*slot, entry.class())))
            .map(|(slot, entry)| (entry.used(), entry.weu_seq(), slot))
            .collect();
        moving.sort_unstable();
        for (_, _, slot) in moving {
            base.stats.units_moved += 1;
            let home = self.home(slot);
            self.join(slot, home);
        }
    }

    /// Classes in the order in which they lose a unit.
    pub(crate) fn losers(&self, is_for_clean: bool, is_for_dirty: bool, now_ms: u64) -> Vec<ClassId> {
        let class = self.classes.wanting().filter(|_| is_for_clean);
        let Self { policy, table, classes, .. } = self;
        let last_used = |class| policy.oldest(class).map_or(0, |slot| table.get(slot).used());
        losers(classes.standings(now_ms, last_used), SlotPurpose { class, is_for_dirty })
    }

    /// Returns the next unit of the class to evict, and `true` if others were, or may be, skipped because they are in
    /// use; `are_hits`: stored extents are being read. Returns `None` if no unit can be evicted.
    pub(crate) fn victim(
        &mut self,
        class: ClassId,
        are_hits: bool,
        base: &mut Base,
    ) -> Option<(WeuSlot, bool)> {
        let table = &mut self.table;
        let mut pinned = are_hits;
        let victim = self.policy.emptiest(class, &mut |slot| {
            let busy = table.is_pinned(slot);
            pinned |= busy;
            let may_go = !busy && table.get(slot).state() == SlotState::Sealed && table.may_reuse(slot);
            may_go.then(|| table.live(slot))
        });
        base.stats.evictions_spared = self.policy.spared();
        if victim.is_none() {
            self.classes.has_no_victim(class, base.now_ms());
        }
        victim.map(|slot| (slot, pinned))
    }

    /// Clears the records of slots and classes without a victim.
    pub(crate) fn look_for_victims(&mut self) {
        self.no_victim_ms = None;
        self.classes.look_for_victims();
    }

    /// Records that no slot can be evicted at this time.
    pub(crate) const fn has_no_victim(&mut self, now_ms: u64) {
        self.no_victim_ms = Some(now_ms);
    }

    /// Returns `true` if a search at this time found no slot that can be evicted.
    pub(crate) fn is_without_victim(&self, now_ms: u64) -> bool {
        self.no_victim_ms == Some(now_ms)
    }

    pub(crate) const fn want_sweep(&mut self, is_wanted: bool) {
        self.is_sweep_urgent |= is_wanted;
    }

    pub(crate) const fn is_sweep_urgent(&self) -> bool {
        self.is_sweep_urgent
    }

    pub(crate) const fn sweep_is_over(&mut self) {
        self.is_sweep_urgent = false;
    }
}

/// Expected contents of stored extents.
impl Slots {
    /// Expected contents of the pages of a location.
    pub(crate) fn expected(
        &self,
        mapping: &Mapping,
        place: &Place,
        key: ExtentKey,
        base: &Base,
    ) -> ExpectedExtent {
        let slot = self.table.get(place.slot);
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

    /// Records that the target of a mapping failed verification.
    pub(crate) fn note_damaged(&mut self, mapping: &Mapping) {
        if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping {
            self.table.damage(place);
        }
    }

    /// Counts a read of a duplicate whose base is invalid.
    pub(crate) fn count_outlived(&self, mapping: &Mapping, base: &mut Base) {
        if let Mapping::Duplicate(place) = *mapping
            && self.table.get(place.slot).void_bases().contains(&place.offset_units)
        {
            base.stats.duplicate_outlived_base += 1;
        }
    }

    /// Expected contents of the pages of a dirty body. If the slot has had another unit since, nothing verifies: that
    /// happens when a device reported dirty data that it no longer holds.
    pub(crate) fn expected_dirty(
        &self,
        place: &Place,
        key: Option<ExtentKey>,
        stored: &Range<u32>,
        base: &Base,
    ) -> ExpectedExtent {
        let slot = self.table.get(place.slot);
        let is_same = self.table.short(slot.generation()) == place.generation;
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
