//! Kept extents: those of pinned ranges, which stay in the cache once they are cached.
//!
//! # Location
//! Kept extents are placed in units of a class of their own, `ClassId::KEPT`. A slot counts the mappings of kept
//! extents to it. A unit of that class is not evicted while it has any. So a kept extent in such a unit is *safe*: it
//! is only lost when it is overwritten, corrupt or unpinned, or with the device. Zeros take no space and are safe as
//! well.
//!
//! A kept extent elsewhere is *astray*: it was cached before it was pinned, shares content with an ordinary unit, or
//! was dirty. It is not safe yet. The keeper (`clean::keeper`) walks over all kept extents, reads absent ones from the
//! origin, and relocates those astray. New content of kept extents shares only with units of the class.
//!
//! # Capacity
//! The class has capacity for all kept extents without reduction, a quarter more, and a few units ([`Room`]).
//! Overwritten extents are dead and take space. Units without a kept extent are evicted first, whichever class needs a
//! slot. When the class is short of capacity its emptiest units are *emptied*: kept extents in them are astray until
//! the keeper has placed them in another unit, for which capacity is reserved. Kept extents fill at most four fifths
//! of the class, so that the emptiest units always contain dead space.
//!
//! Invariants: pins are at most [`PINS_PERCENT_MAX`] of the slots before reduction, and at most that share of the file
//! index; extents beyond are not kept. A small cache keeps fewer. The class is at most three quarters of the slots, so
//! that other classes always make progress. A full file index does not displace a kept extent for one that is not
//! kept.
//!
//! A change of pins is applied in pieces, since each extent must be looked up. After a restart the ranges come from
//! the settings. A unit whose header lists only kept extents joins the class again. The index image contains less
//! about a unit than its header: the mappings to it. By those it joins if some are of kept extents and none is the
//! base of another one. Mappings are counted as the image is read, so changes of pins wait until that is complete.
//!
//! Out of scope: reading and placing extents.

mod ranges;

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use zc_core::limits::{KEPT_SLOTS_MIN, PINS_PERCENT_MAX};
use zc_core::{ExtentKey, VolumeId, WeuSlot};
use zc_format::WeuHeader;

use crate::config::ManagerConfig;
use crate::device::slots::kept::ranges::RangeSet;
use crate::device::slots::table::SlotTable;
use crate::device::stored::placed_bytes;
use crate::shares::VolumePins;

/// Bound on the units of the class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Maximum units, including those for relocations.
    units: u32,
    /// Units reserved for relocations.
    spare: u32,
}

impl Room {
    /// Maximum number of kept extents in a cache of `slots` slots, regardless of its share: overwritten extents need
    /// capacity too.
    fn extents_max(a_unit: u32, slots: u32) -> u64 {
        let Self { units, spare } = Self::new(u64::MAX, a_unit, slots);
        u64::from(units - spare).saturating_sub(1) * u64::from(a_unit) * 4 / 5
    }

    /// Capacity for `extents` extents, with at least `a_unit` per unit.
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

#[derive(Debug, Default)]
struct OfVolume {
    asked: RangeSet,
    /// Pinned ranges within the capacity.
    wanted: RangeSet,
    /// Ranges that are counted in slots.
    active: RangeSet,
    /// Safe extents at the last walk, corrected by changes since.
    safe: u64,
}

#[derive(Debug)]
pub(crate) struct KeptExtents {
    volumes: BTreeMap<VolumeId, OfVolume>,
    extent_bytes: u32,
    slots: u32,
    /// Minimum extents per unit.
    a_unit: u32,
    extents_max: u64,
    room: Room,
    /// Units of the class without any mapping to them.
    dead: BTreeSet<WeuSlot>,
    /// Units of the class whose kept extents are to be relocated.
    emptying: BTreeSet<WeuSlot>,
    /// Increases when a kept extent may have become unsafe, or an extent becomes kept.
    changes: u64,
}

fn extents_a_unit(weu_bytes: u32, extent_bytes: u32) -> u32 {
    let mut count = weu_bytes / extent_bytes;
    while count > 1 && count * placed_bytes(extent_bytes) + WeuHeader::encoded_bytes(count) > weu_bytes {
        count -= 1;
    }
    count
}

impl KeptExtents {
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

    pub(crate) fn has(&self, key: ExtentKey) -> bool {
        self.volumes.get(&key.volume).is_some_and(|volume| volume.active.contains(key.extent.0))
    }

    pub(crate) const fn units_max(&self) -> u32 {
        self.room.units
    }

    /// Returns `true` if extents are kept, or are to become kept or released.
    pub(crate) fn is_used(&self) -> bool {
        !self.volumes.is_empty()
    }

    /// Sets the volume's pinned ranges, in bytes, and the number of its whole extents.
    pub(super) fn configure(&mut self, volume: VolumeId, pins: &[Range<u64>], extents: u64) {
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

    /// Returns the next piece of a change to apply; `true`: it becomes kept.
    pub(crate) fn next_change(&self, most: u64) -> Option<(VolumeId, Range<u64>, bool)> {
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

    pub(super) fn count_safe(&mut self, volume: VolumeId, more: i64) {
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.safe = volume.safe.saturating_add_signed(more);
        }
    }

    /// Records the number of kept extents of a volume in an index image. `astray`: those of all volumes that are not
    /// safe, subtracted for each volume until a walk determines them.
    pub(crate) fn found(&mut self, volume: VolumeId, extents: u64, astray: u64) {
        self.count_safe(volume, i64::try_from(extents.saturating_sub(astray)).unwrap_or(i64::MAX));
    }

    /// Change count; increases when a kept extent may have become unsafe, or an extent becomes kept.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Records that a kept extent may have become unsafe, or that an extent becomes kept.
    pub(super) fn note_change(&mut self, is_one: bool) {
        self.changes += u64::from(is_one);
    }

    /// Returns the next run of kept extents of one volume, from an extent on.
    pub(crate) fn next(&self, from: ExtentKey) -> Option<(VolumeId, Range<u64>)> {
        self.volumes.range(from.volume..).find_map(|(id, volume)| {
            let start = if *id == from.volume { from.extent.0 } else { 0 };
            Some((*id, volume.active.from(start)?))
        })
    }

    /// Returns `true` if the extent is kept, and no change will release it.
    pub(crate) fn stays(&self, key: ExtentKey) -> bool {
        let volume = self.volumes.get(&key.volume);
        volume.is_some_and(|volume| volume.wanted.contains(key.extent.0)) && self.has(key)
    }

    /// Records the safe extents of each volume at the end of a walk.
    pub(crate) fn set_safe(&mut self, safe: &BTreeMap<VolumeId, u64>) {
        for (id, volume) in &mut self.volumes {
            volume.safe = safe.get(id).copied().unwrap_or(0);
        }
    }

    /// Pinned ranges, by volume.
    pub(crate) fn pins(&self) -> Vec<VolumePins> {
        let extent = u64::from(self.extent_bytes);
        let pins = |(id, volume): (&VolumeId, &OfVolume)| VolumePins {
            volume: *id,
            asked_bytes: volume.asked.count() * extent,
            kept_bytes: volume.wanted.count() * extent,
            safe_bytes: volume.safe.min(volume.active.count()) * extent,
        };
        self.volumes.iter().map(pins).collect()
    }

    /// Returns `true` if a unit of the class accepts kept extents: it is not being emptied.
    pub(super) fn takes_in(&self, slot: WeuSlot) -> bool {
        !self.emptying.contains(&slot)
    }

    /// Records that no mapping leads to the unit of the class any more.
    pub(super) fn add_dead(&mut self, slot: WeuSlot) {
        self.dead.insert(slot);
    }

    /// Returns a unit without mappings that can be evicted now.
    pub(super) fn dead_unit(&mut self, table: &mut SlotTable) -> Option<WeuSlot> {
        self.dead.retain(|slot| table.get(*slot).kept() == 0);
        let may_go = |slot: &WeuSlot| !table.is_pinned(*slot) && table.may_reuse(*slot);
        self.dead.iter().copied().find(may_go)
    }

    /// Returns `true` if the class, at `units_now` units, may have one more; `anew`: for relocations.
    pub(super) fn has_room(&self, units_now: u32, anew: bool) -> bool {
        let Room { units, spare } = self.room;
        let most = if anew { units.max(self.slots / 4 * 3) } else { units.saturating_sub(spare) };
        units_now < most
    }

    /// Chooses the emptiest of these units to be emptied, as many as fit elsewhere; each is given with its number of
    /// kept extents. Returns the number chosen.
    pub(super) fn empty_some(&mut self, mut units: Vec<(u32, WeuSlot)>) -> usize {
        units.sort_unstable();
        let mut left = u64::from(self.room.spare) * u64::from(self.a_unit) / 8 * 7;
        let chosen = units.into_iter().enumerate().take_while(|(at, (extents, _))| {
            let fits = *at == 0 || u64::from(*extents) <= left;
            left = left.saturating_sub(u64::from(*extents));
            fits
        });
        self.emptying = chosen.map(|(_, (_, slot))| slot).collect();
        self.changes += 1;
        self.emptying.len()
    }

    /// Returns `true` if the class has no unit that is about to be evicted.
    pub(super) fn is_full_of_kept(&self) -> bool {
        self.is_used() && self.dead.is_empty() && self.emptying.is_empty()
    }

    pub(crate) fn changed(&mut self, id: VolumeId, piece: &Range<u64>, is_kept: bool) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        if is_kept {
            volume.active.insert(piece.clone());
        } else {
            volume.active.remove(piece);
        }
        self.changes += 1;
        self.volumes.retain(|_, volume| !volume.active.is_empty() || !volume.asked.is_empty());
    }

    pub(crate) fn left(&mut self, slot: WeuSlot) {
        self.dead.remove(&slot);
        self.emptying.remove(&slot);
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
