//! Kept extents: those of ranges that an operator pinned. Once they are cached they stay.
//!
//! # Where they are
//! Kept extents are placed in units of a class of their own, [`ClassId::KEPT`]. A slot counts the mappings of kept
//! extents that lead to it. A unit of that class is never evicted while it has any. So a kept extent that lies in such a
//! unit is *safe*: it goes when it is overwritten, damaged or unpinned, or with the device, and for no other reason.
//! Zeros take no room and are safe as well.
//!
//! A kept extent elsewhere is *astray*: it was cached before it was pinned, shares content with an ordinary unit, or
//! was dirty. It is not safe yet. The keeper (`clean::keeper`) walks over all kept extents, reads what is absent from
//! the origin, and places anew what is astray. New content of kept extents shares only with units of the class.
//!
//! # Room
//! The class has room for all kept extents without reduction, a quarter more, and a few units ([`Room`]). What is
//! overwritten is dead and takes room. Units without a kept extent leave first, for whoever needs a slot. When the class
//! is short of room its emptiest units are *emptied*: what is kept in them is astray, until the keeper has placed it in
//! another unit. Room for that is set aside. Kept extents fill at most four fifths of the class, so that the emptiest
//! units always have something to give.
//!
//! Invariants: pins are at most [`PINS_PERCENT_MAX`] of the slots before reduction, and at most that share of the file
//! index; what is beyond is not kept. In a small cache it is less. The class is at most three quarters of the slots, so
//! that the others always get on. When the file index is full a kept extent does not go for one that is not.
//!
//! A change of pins is taken on in pieces, since each extent has to be looked up. After a restart the ranges come with
//! the settings. A unit whose header names kept extents alone joins the class again. The index image tells less of a
//! unit than its header: mappings that lead there. By those it joins if some are of kept extents and none is the base of
//! another one. Mappings are counted as the image is read, so changes of pins wait until that is over.
//!
//! What it does not do: read or place anything.

mod ranges;

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use zc_core::limits::{KEPT_SLOTS_MIN, PINS_PERCENT_MAX};
use zc_core::{ExtentKey, ExtentNo, VolumeId, WeuSlot};
use zc_format::WeuHeader;

use crate::base::Base;
use crate::config::ManagerConfig;
use crate::device::Device;
use crate::device::units::classes::ClassId;
use crate::device::units::kept::ranges::RangeSet;
use crate::device::units::placed_bytes;
use crate::device::units::slots::{Leads, SlotState};
use crate::index::file_index::{Mapping, Place};
use crate::shares::VolumePins;

/// How many units the class may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// With what is being placed anew.
    units: u32,
    /// Of those, set aside for what is placed anew.
    spare: u32,
}

impl Room {
    /// Extents that a cache of so many slots keeps at most, whatever share of it they are: what is overwritten has room
    /// beside them.
    fn extents_max(a_unit: u32, slots: u32) -> u64 {
        let Self { units, spare } = Self::new(u64::MAX, a_unit, slots);
        u64::from(units - spare).saturating_sub(1) * u64::from(a_unit) * 4 / 5
    }

    /// For so many extents, of which a unit holds at least so many.
    fn new(extents: u64, a_unit: u32, slots: u32) -> Self {
        if extents == 0 {
            return Self::default();
        }
        let full = extents.div_ceil(u64::from(a_unit));
        let units = full.saturating_add(full / 4 + 4).min(u64::from(slots / 4 * 3));
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        Self { units, spare: (units / 16).max(2) }
    }
}

/// What of a volume is kept.
#[derive(Debug, Default)]
struct OfVolume {
    /// As the settings have it.
    asked: RangeSet,
    /// Of that, what there is room for.
    wanted: RangeSet,
    /// What is counted in slots.
    active: RangeSet,
    /// Extents that the last walk found safe, and what became of them since.
    safe: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Kept {
    volumes: BTreeMap<VolumeId, OfVolume>,
    extent_bytes: u32,
    slots: u32,
    /// Extents that a unit holds at least.
    a_unit: u32,
    extents_max: u64,
    room: Room,
    /// Units of the class in which no mapping leads to anything.
    dead: BTreeSet<WeuSlot>,
    /// Units of the class whose kept extents are to be placed elsewhere.
    emptying: BTreeSet<WeuSlot>,
    /// Grows when a kept extent may not be safe any more, or another one is to be.
    changes: u64,
}

/// Where a kept extent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Safe,
    Astray(Mapping, Place),
    Absent,
}

fn extents_a_unit(weu_bytes: u32, extent_bytes: u32) -> u32 {
    let mut count = weu_bytes / extent_bytes;
    while count > 1 && count * placed_bytes(extent_bytes) + WeuHeader::encoded_bytes(count) > weu_bytes {
        count -= 1;
    }
    count
}

impl Kept {
    pub(crate) fn new(config: &ManagerConfig) -> Self {
        let (slots, extent_bytes) = (config.geometry.slots, config.geometry.extent_bytes);
        let raw = u64::from(slots) * u64::from(config.geometry.weu_bytes / extent_bytes);
        let share = |whole: u64| {
            whole / 100 * u64::from(PINS_PERCENT_MAX) + whole % 100 * u64::from(PINS_PERCENT_MAX) / 100
        };
        let a_unit = extents_a_unit(config.geometry.weu_bytes, extent_bytes);
        let most = share(raw).min(share(config.file_index_entries));
        let most = if slots < KEPT_SLOTS_MIN { 0 } else { most.min(Room::extents_max(a_unit, slots)) };
        Self {
            volumes: BTreeMap::new(),
            extent_bytes,
            slots,
            a_unit,
            extents_max: most,
            room: Room::default(),
            dead: BTreeSet::new(),
            emptying: BTreeSet::new(),
            changes: 0,
        }
    }

    /// Whether the extent is kept.
    pub(crate) fn has(&self, key: ExtentKey) -> bool {
        self.volumes.get(&key.volume).is_some_and(|volume| volume.active.contains(key.extent.0))
    }

    /// Slots that the class may have.
    pub(crate) const fn units_max(&self) -> u32 {
        self.room.units
    }

    /// Whether any extent is kept, or is to be, or was until now.
    pub(crate) fn is_used(&self) -> bool {
        !self.volumes.is_empty()
    }

    /// The volume's ranges, in bytes, as its settings have them now, and how many whole extents it has.
    fn configure(&mut self, volume: VolumeId, pins: &[Range<u64>], extents: u64) {
        let extent = u64::from(self.extent_bytes);
        let rounded = |pin: &Range<u64>| pin.start / extent..pin.end.div_ceil(extent).min(extents);
        let asked = RangeSet::of(pins.iter().map(rounded));
        if !asked.is_empty() || self.volumes.contains_key(&volume) {
            self.volumes.entry(volume).or_default().asked = asked;
        }
        let mut left = self.extents_max;
        for volume in self.volumes.values_mut() {
            volume.wanted = volume.asked.first(left);
            left -= volume.wanted.count();
        }
        self.room = Room::new(self.extents_max - left, self.a_unit, self.slots);
        self.changes += 1;
    }

    /// The next piece that is to be taken on; true: it is kept from now on.
    fn next_change(&self, most: u64) -> Option<(VolumeId, Range<u64>, bool)> {
        let gone = self
            .volumes
            .iter()
            .find_map(|(id, volume)| Some((*id, volume.active.first_beyond(&volume.wanted, most)?, false)));
        gone.or_else(|| {
            self.volumes
                .iter()
                .find_map(|(id, volume)| Some((*id, volume.wanted.first_beyond(&volume.active, most)?, true)))
        })
    }

    /// So many extents more of the volume are safe.
    fn count_safe(&mut self, volume: VolumeId, more: i64) {
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.safe = volume.safe.saturating_add_signed(more);
        }
    }

    /// An index image has so many kept extents of the volume. So many of all volumes are not safe: each counts for all of
    /// them, until a walk tells.
    pub(in crate::device) fn found(&mut self, volume: VolumeId, extents: u64, astray: u64) {
        self.count_safe(volume, i64::try_from(extents.saturating_sub(astray)).unwrap_or(i64::MAX));
    }

    fn changed(&mut self, id: VolumeId, piece: &Range<u64>, is_kept: bool) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        if is_kept {
            volume.active.insert(piece.clone());
        } else {
            volume.active.remove(piece);
        }
        self.changes += 1;
        self.volumes.retain(|_, volume| !volume.active.is_empty() || !volume.asked.is_empty());
    }

    /// The unit is not in the class any more.
    pub(in crate::device::units) fn left(&mut self, slot: WeuSlot) {
        self.dead.remove(&slot);
        self.emptying.remove(&slot);
    }
}

impl Device {
    /// Takes on which ranges of a volume of so many extents are pinned. Where nothing is mapped yet, all of it at once.
    pub(crate) fn configure_pins(&mut self, volume: VolumeId, pins: &[Range<u64>], extents: u64) {
        self.units.kept.configure(volume, pins, extents);
        self.units.classes.set_kept(self.units.kept.units_max());
        if self.index.files.is_empty() && !self.is_reading_image() {
            while let Some((volume, piece, is_kept)) = self.units.kept.next_change(u64::MAX) {
                self.units.kept.changed(volume, &piece, is_kept);
            }
        }
    }

    /// Takes on the next so many extents of what is pinned or unpinned, unless an index image is being read. Whether
    /// there are more.
    pub(crate) fn change_kept(&mut self, most: u64, base: &mut Base) -> bool {
        if self.is_reading_image() {
            // It is counted by what was kept when that began.
            return false;
        }
        let Some((volume, piece, is_kept)) = self.units.kept.next_change(most) else { return false };
        for extent in piece.clone() {
            let mapping = self.index.files.get(ExtentKey { volume, extent: ExtentNo(extent) });
            if let Some(Mapping::Base(place) | Mapping::Duplicate(place)) = mapping
                && self.units.slots.is_live(&place)
            {
                if is_kept {
                    self.units.slots.keep(place.slot);
                } else {
                    self.let_go_in(place.slot, base);
                }
            }
        }
        self.units.kept.changed(volume, &piece, is_kept);
        true
    }

    /// Whether the extent is kept.
    pub(crate) fn is_kept(&self, key: ExtentKey) -> bool {
        self.units.kept.has(key)
    }

    /// Units of the class.
    pub(crate) fn kept_units(&self) -> u32 {
        self.units.classes.units(ClassId::KEPT)
    }

    /// Whether any extent is kept, or is to be, or was until now.
    pub(crate) fn has_kept(&self) -> bool {
        self.units.kept.is_used()
    }

    /// Grows when a kept extent may not be safe any more, or another one is to be.
    pub(crate) const fn kept_changes(&self) -> u64 {
        self.units.kept.changes
    }

    /// The unit in the slot goes.
    pub(in crate::device::units) fn kept_may_be_gone(&mut self, slot: WeuSlot) {
        self.units.kept.changes += u64::from(self.units.slots.get(slot).kept() > 0);
    }

    /// A kept extent could not be placed.
    pub(crate) fn kept_not_placed(&mut self, key: ExtentKey) {
        self.units.kept.changes += u64::from(self.is_kept(key));
    }

    /// Whether content in the slot is where kept extents are to be.
    pub(crate) fn may_keep_in(&self, slot: WeuSlot) -> bool {
        self.units.slots.get(slot).class() == Some(ClassId::KEPT) && !self.units.kept.emptying.contains(&slot)
    }

    /// Where a kept extent is.
    pub(crate) fn keeping(&self, key: ExtentKey) -> Keeping {
        match self.index.files.get(key) {
            Some(Mapping::Zero) => Keeping::Safe,
            Some(mapping @ (Mapping::Base(place) | Mapping::Duplicate(place)))
                if self.units.slots.is_live(&place) =>
            {
                if self.may_keep_in(place.slot) {
                    Keeping::Safe
                } else {
                    Keeping::Astray(mapping, place)
                }
            }
            _ => Keeping::Absent,
        }
    }

    /// Whether the extent is kept and is to be placed anew.
    pub(crate) fn is_astray(&self, key: ExtentKey) -> bool {
        self.is_kept(key) && matches!(self.keeping(key), Keeping::Astray(..))
    }

    /// Whether the extent is kept, and will stay.
    pub(crate) fn is_safe(&self, key: ExtentKey) -> bool {
        let volume = self.units.kept.volumes.get(&key.volume);
        let stays = volume.is_some_and(|volume| volume.wanted.contains(key.extent.0));
        stays
            && self.is_kept(key)
            && match self.index.files.get(key) {
                Some(Mapping::Zero) => true,
                Some(Mapping::Base(place) | Mapping::Duplicate(place)) => {
                    self.units.slots.is_live(&place)
                        && self.units.slots.get(place.slot).class() == Some(ClassId::KEPT)
                }
                None => false,
            }
    }

    /// Kept extents of one volume from an extent on, as far as they are neighbours.
    pub(crate) fn next_kept(&self, from: ExtentKey) -> Option<(VolumeId, Range<u64>)> {
        self.units.kept.volumes.range(from.volume..).find_map(|(id, volume)| {
            let start = if *id == from.volume { from.extent.0 } else { 0 };
            Some((*id, volume.active.from(start)?))
        })
    }

    /// A walk ended: so many extents of each volume are safe.
    pub(crate) fn set_safe(&mut self, safe: &BTreeMap<VolumeId, u64>) {
        for (id, volume) in &mut self.units.kept.volumes {
            volume.safe = safe.get(id).copied().unwrap_or(0);
        }
    }

    /// What is pinned, by volume.
    pub(crate) fn pins(&self) -> Vec<VolumePins> {
        let extent = u64::from(self.units.kept.extent_bytes);
        let of = |(id, volume): (&VolumeId, &OfVolume)| VolumePins {
            volume: *id,
            asked_bytes: volume.asked.count() * extent,
            kept_bytes: volume.wanted.count() * extent,
            safe_bytes: volume.safe.min(volume.active.count()) * extent,
        };
        self.units.kept.volumes.iter().map(of).collect()
    }
}

/// What is counted in slots.
impl Device {
    /// A kept extent has a mapping.
    pub(in crate::device) fn kept_mapped(&mut self, key: ExtentKey, mapping: Mapping) {
        let is_safe = match mapping {
            Mapping::Zero => true,
            Mapping::Base(place) | Mapping::Duplicate(place) => {
                self.units.slots.keep(place.slot);
                self.may_keep_in(place.slot)
            }
        };
        self.units.kept.count_safe(key.volume, i64::from(is_safe));
        self.units.kept.changes += u64::from(!is_safe);
    }

    /// A mapping of a kept extent is gone.
    pub(in crate::device) fn kept_unmapped(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        self.units.kept.changes += 1;
        let was_safe = match mapping {
            Mapping::Zero => true,
            Mapping::Base(place) | Mapping::Duplicate(place) if self.units.slots.is_live(&place) => {
                let was_safe = self.may_keep_in(place.slot);
                self.let_go_in(place.slot, base);
                was_safe
            }
            _ => false,
        };
        self.units.kept.count_safe(key.volume, -i64::from(was_safe));
    }

    /// One mapping of a kept extent less leads to the slot.
    fn let_go_in(&mut self, slot: WeuSlot, base: &mut Base) {
        if self.units.slots.let_go(slot) == 0 {
            self.nothing_kept_in(slot, base);
        }
    }

    /// If nothing is kept in a unit of the class it ages as any other one, or is the next to go if nothing leads to it.
    pub(in crate::device) fn nothing_kept_in(&mut self, slot: WeuSlot, base: &mut Base) {
        let entry = self.units.slots.get(slot);
        let is_free_of_kept = entry.class() == Some(ClassId::KEPT) && entry.kept() == 0;
        if !is_free_of_kept || entry.state() != SlotState::Sealed {
            return;
        }
        if self.units.slots.live(slot) == 0 {
            self.units.kept.dead.insert(slot);
        } else {
            base.stats.units_moved += 1;
            let home = self.units.classes.of_owner(self.units.slots.get(slot).owner());
            self.units.join(slot, home);
        }
        self.look_for_victims();
    }

    /// A unit to which nothing leads, and which may go now.
    pub(in crate::device::units) fn dead_unit(&mut self) -> Option<WeuSlot> {
        let slots = &mut self.units.slots;
        self.units.kept.dead.retain(|slot| slots.get(*slot).kept() == 0);
        let may_go = |slot: &WeuSlot| !slots.is_pinned(*slot) && slots.may_reuse(*slot);
        self.units.kept.dead.iter().copied().find(may_go)
    }

    /// Whether the class may have one unit more; `anew`: for what is placed anew.
    pub(in crate::device::units) fn has_room_to_keep(&self, anew: bool) -> bool {
        let Room { units, spare } = self.units.kept.room;
        let most = if anew { units.max(self.units.kept.slots / 4 * 3) } else { units.saturating_sub(spare) };
        self.units.classes.units(ClassId::KEPT) < most
    }

    /// Whether a unit that was found with these extents is one of the class.
    pub(in crate::device) fn joins_kept(&self, mut keys: impl Iterator<Item = ExtentKey>) -> bool {
        self.has_kept() && keys.all(|key| self.is_kept(key)) && self.has_room_to_keep(false)
    }

    /// Whether a unit that an index image has these mappings of is one of the class. What was overwritten of it does not
    /// count, so that a header may say no where this says yes.
    pub(in crate::device) fn joins_kept_with(&self, leads: &Leads) -> bool {
        leads.are_of_kept() && self.has_room_to_keep(false)
    }

    /// Has units emptied if the class is short of room: the emptiest ones, as many as there is room for elsewhere.
    pub(crate) fn empty_units(&mut self, base: &mut Base) {
        let kept = &self.units.kept;
        if !kept.is_used()
            || !kept.dead.is_empty()
            || !kept.emptying.is_empty()
            || self.has_room_to_keep(false)
        {
            return;
        }
        let of_class = |slot: &WeuSlot| self.units.slots.get(*slot).class() == Some(ClassId::KEPT);
        let mut fullest_last: Vec<_> = self
            .units
            .slots
            .iter()
            .filter(|(slot, entry)| of_class(slot) && entry.state() == SlotState::Sealed)
            .map(|(slot, entry)| (entry.kept(), slot))
            .collect();
        fullest_last.sort_unstable();
        let mut left = u64::from(kept.room.spare) * u64::from(kept.a_unit) / 8 * 7;
        let chosen = fullest_last.into_iter().enumerate().take_while(|(at, (extents, _))| {
            let fits = *at == 0 || u64::from(*extents) <= left;
            left = left.saturating_sub(u64::from(*extents));
            fits
        });
        self.units.kept.emptying = chosen.map(|(_, (_, slot))| slot).collect();
        base.stats.pinned_units_emptied += zc_core::u64_from_usize(self.units.kept.emptying.len());
        self.units.kept.changes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_more_room_than_kept_extents_can_fill() {
        for slots in [16, 17, 24, 100, 5000] {
            for extent_bytes in [4096, 8192, 65536] {
                let a_unit = extents_a_unit(2 << 20, extent_bytes);
                let half = u64::from(slots) * u64::from((2 << 20) / extent_bytes) / 2;
                let most = half.min(Room::extents_max(a_unit, slots));
                assert!(slots < 100 || most == half, "{slots} slots");
                let room = Room::new(most, a_unit, slots);
                let ordinary = u64::from(room.units - room.spare) * u64::from(a_unit);
                assert!(ordinary * 7 / 8 > most, "{room:?} of {slots}");
                assert!(room.units <= slots / 4 * 3 && room.units + 3 < slots);
            }
        }
        assert_eq!(Room::new(0, 255, 100), Room::default());
    }
}
