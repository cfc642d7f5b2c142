//! Classes of units: volumes that share units, with bounds on their number and a reserve protected from other classes.
//!
//! A volume with a quota, a reserve or a priority has a class of its own. Its clean content is placed in separate
//! units. All other volumes share the default class. So quotas and reserves count whole units, and are exact.
//!
//! - A class at its quota evicts a unit of its own before it opens the next one. If none can be evicted, the extent is
//!   not inserted.
//! - No unit is evicted for other volumes from a class that has no more units than its reserve (see `choice`). Dirty
//!   data is the exception: it must be placed, so it takes units from reserves if no others can be evicted.
//! - A unit of dirty extents counts for the default class until all of them are clean. Then it joins the class of its
//!   owner.
//! - The *owner* of a unit is the volume of most of its extents. It is determined when the unit is full, and after a
//!   restart from its header, so the media format contains no classes.
//! - Settings may change at any time. Units whose owner is now in another class move there. A class above its quota
//!   evicts units until it is within (see `Catalog::keep_quotas`).
//!
//! Duplicates take no space. Shared content is charged to the class of its unit, whichever volume stored it first.
//!
//! Kept extents of all volumes have units of a common class (see `kept`).
//!
//! Invariants: a slot in the replacement policy is in exactly one class, and counted there once. The default class
//! always exists; a class without a volume has no units. The effective reserves take at most [`RESERVES_PERCENT_MAX`]
//! of the slots together: if volumes request more, each is reduced in proportion.
//!
//! Out of scope: choosing units within a class (see `policy`), and the dirty state.

pub(crate) mod choice;

use std::collections::BTreeMap;

use zc_core::VolumeId;
use zc_core::limits::{CACHE_SHARES_MAX, RESERVES_PERCENT_MAX};

use crate::config::ShareConfig;
use crate::device::slots::bounds::Bounds;
use crate::device::slots::class_id::ClassId;
use crate::device::slots::classes::choice::Standing;
use crate::shares::VolumeShare;

/// Minimum units per class, which bounds the number of classes of a small cache: each fills a unit, which cannot be
/// evicted.
const UNITS_PER_CLASS_MIN: u32 = 4;

#[derive(Debug, Clone)]
struct Class {
    /// Its volume; `None`: the default class, or an unused one.
    volume: Option<VolumeId>,
    /// Bounds by the volume's settings.
    wanted: Bounds,
    /// Effective reserve, after the reduction to what all reserves may take together.
    reserve: u32,
    units: u32,
    /// Time of the last search that found no evictable unit.
    no_victim_ms: Option<u64>,
}

impl Class {
    const fn new(volume: Option<VolumeId>) -> Self {
        Self { volume, wanted: Bounds::DEFAULT, reserve: 0, units: 0, no_victim_ms: None }
    }

    fn is_at_quota(&self) -> bool {
        self.wanted.quota.is_some_and(|quota| self.units >= quota)
    }

    fn is_over_quota(&self) -> bool {
        self.wanted.quota.is_some_and(|quota| self.units > quota)
    }
}

#[derive(Debug)]
pub(crate) struct Classes {
    /// By number; unused ones are reused.
    classes: Vec<Class>,
    kept: Class,
    of: BTreeMap<VolumeId, ClassId>,
    slots: u32,
    weu_bytes: u32,
    /// Maximum units of kept extents.
    kept_units: u32,
    /// Class of an extent that waits for a slot.
    wanting: Option<ClassId>,
}

impl Classes {
    /// Creates the default class in a cache of `slots` slots.
    pub(crate) fn new(slots: u32, weu_bytes: u32) -> Self {
        Self {
            classes: vec![Class::new(None)],
            kept: Class::new(None),
            of: BTreeMap::new(),
            slots,
            weu_bytes,
            kept_units: 0,
            wanting: None,
        }
    }

    pub(crate) fn of(&self, volume: VolumeId) -> ClassId {
        self.of.get(&volume).copied().unwrap_or(ClassId::DEFAULT)
    }

    pub(crate) fn of_owner(&self, owner: Option<VolumeId>) -> ClassId {
        owner.map_or(ClassId::DEFAULT, |volume| self.of(volume))
    }

    pub(crate) fn volume(&self, class: ClassId) -> Option<VolumeId> {
        self.get(class).volume
    }

    /// Returns `true` if there are classes besides the default one.
    pub(crate) fn are_divided(&self) -> bool {
        !self.of.is_empty()
    }

    pub(crate) fn units(&self, class: ClassId) -> u32 {
        self.get(class).units
    }

    /// Bounds of a class, with its effective reserve.
    pub(crate) fn bounds(&self, class: ClassId) -> Bounds {
        let class = self.get(class);
        Bounds { reserve: class.reserve, ..class.wanted }
    }

    /// Returns `true` if the class has as many units as its quota.
    pub(crate) fn is_at_quota(&self, class: ClassId) -> bool {
        self.get(class).is_at_quota()
    }

    /// Returns `true` if the class has no more units than its effective reserve.
    pub(crate) fn is_within_reserve(&self, class: ClassId) -> bool {
        let class = self.get(class);
        class.units <= class.reserve
    }

    /// Returns a class above its quota, except those without a victim at this time.
    pub(crate) fn over_quota(&self, now_ms: u64) -> Option<ClassId> {
        self.ids().find(|id| {
            let class = self.get(*id);
            class.is_over_quota() && class.no_victim_ms != Some(now_ms)
        })
    }

    /// Volumes with a class of their own, and their usage.
    pub(crate) fn shares(&self) -> impl Iterator<Item = VolumeShare> {
        self.of.iter().map(|(volume, class)| {
            let Bounds { quota, reserve, priority } = self.bounds(*class);
            let (units, unit_bytes) = (self.units(*class), self.weu_bytes);
            VolumeShare { volume: *volume, unit_bytes, units, quota, reserve, priority }
        })
    }

    pub(crate) fn joined(&mut self, class: ClassId) {
        self.get_mut(class).units += 1;
    }

    pub(crate) fn left(&mut self, class: ClassId) {
        let class = self.get_mut(class);
        assert!(class.units > 0, "a unit left {class:?}, which has none");
        class.units -= 1;
    }

    /// Records the class of an extent that waits for a slot.
    pub(crate) const fn set_wanting(&mut self, class: Option<ClassId>) {
        self.wanting = class;
    }

    pub(crate) const fn wanting(&self) -> Option<ClassId> {
        self.wanting
    }

    /// Records that no unit of the class can be evicted at this time.
    pub(crate) fn has_no_victim(&mut self, class: ClassId, now_ms: u64) {
        self.get_mut(class).no_victim_ms = Some(now_ms);
    }

    /// Returns `true` if the class is recorded as having no victim at this time.
    pub(crate) fn is_without_victim(&self, class: ClassId, now_ms: u64) -> bool {
        self.get(class).no_victim_ms == Some(now_ms)
    }

    /// Clears the records of classes without a victim.
    pub(crate) fn look_for_victims(&mut self) {
        self.classes.iter_mut().for_each(|class| class.no_victim_ms = None);
    }

    /// State of the classes that may lose a unit; `last_used` returns the last use of a class's first unit in the
    /// order of eviction.
    pub(crate) fn standings(&self, now_ms: u64, last_used: impl Fn(ClassId) -> u32) -> Vec<Standing> {
        let has_units = |id: &ClassId| self.units(*id) > 0 && !self.is_without_victim(*id, now_ms);
        let standing = |id: ClassId| Standing {
            class: id,
            units: self.units(id),
            bounds: self.bounds(id),
            last_used: last_used(id),
        };
        self.ids().filter(has_units).map(standing).collect()
    }

    /// Applies a volume's settings. Returns the previous and the new class of the volume, if they differ.
    pub(crate) fn configure(&mut self, volume: VolumeId, share: &ShareConfig) -> Option<(ClassId, ClassId)> {
        let bounds = Bounds::new(share, self.slots, self.weu_bytes);
        let before = self.of(volume);
        let is_plain = bounds == Bounds::DEFAULT;
        if is_plain && before != ClassId::DEFAULT {
            self.of.remove(&volume);
            self.get_mut(before).volume = None;
            self.get_mut(before).wanted = Bounds::DEFAULT;
        } else if !is_plain && before == ClassId::DEFAULT {
            let class = self.unused()?;
            self.of.insert(volume, class);
            *self.get_mut(class) = Class { wanted: bounds, ..Class::new(Some(volume)) };
        } else if !is_plain {
            self.get_mut(before).wanted = bounds;
        }
        self.cut_reserves();
        let now = self.of(volume);
        (before != now).then_some((before, now))
    }

    /// Returns an unused number, unless there are too many classes.
    fn unused(&mut self) -> Option<ClassId> {
        let in_slots = zc_core::usize_from_u32((self.slots / UNITS_PER_CLASS_MIN).saturating_sub(1));
        if self.of.len() >= in_slots.min(usize::from(CACHE_SHARES_MAX)) {
            return None;
        }
        let free = self.ids().skip(1).find(|id| self.get(*id).volume.is_none());
        if free.is_none() {
            self.classes.push(Class::new(None));
        }
        free.or_else(|| self.ids().last())
    }

    /// Sets the bound on units of kept extents; reserves are reduced if both do not fit.
    pub(crate) fn set_kept(&mut self, units: u32) {
        self.kept_units = units;
        self.cut_reserves();
    }

    fn cut_reserves(&mut self) {
        let most = u64::from(self.slots) * u64::from(RESERVES_PERCENT_MAX) / 100;
        let bound = most.saturating_sub(self.kept_units.into());
        let sum: u64 = self.classes.iter().map(|class| u64::from(class.wanted.reserve)).sum();
        for class in &mut self.classes {
            let wanted = u64::from(class.wanted.reserve);
            let cut = if sum > bound { wanted * bound / sum } else { wanted };
            class.reserve = u32::try_from(cut).unwrap_or(u32::MAX);
        }
    }

    fn ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        let count = u8::try_from(self.classes.len()).unwrap_or(u8::MAX);
        (0..count).map(ClassId::new)
    }

    fn get(&self, class: ClassId) -> &Class {
        if class == ClassId::KEPT { &self.kept } else { &self.classes[class.index()] }
    }

    fn get_mut(&mut self, class: ClassId) -> &mut Class {
        if class == ClassId::KEPT { &mut self.kept } else { &mut self.classes[class.index()] }
    }
}

/// Returns the volume of more than half of the extents.
pub(crate) fn majority(volumes: impl Iterator<Item = VolumeId> + Clone) -> Option<VolumeId> {
    let (mut leader, mut lead) = (None, 0_u32);
    for volume in volumes.clone() {
        if lead == 0 {
            leader = Some(volume);
        }
        if leader == Some(volume) { lead += 1 } else { lead -= 1 }
    }
    let leader = leader?;
    let (of_leader, all) =
        volumes.fold((0_u32, 0_u32), |(of, all), volume| (of + u32::from(volume == leader), all + 1));
    (of_leader > all / 2).then_some(leader)
}

#[cfg(test)]
mod tests {
    use zc_core::units::SizeOrShare;

    use zc_core::Priority;

    use super::*;

    const UNIT: u32 = 1 << 20;
    const V: VolumeId = VolumeId(1);
    const W: VolumeId = VolumeId(2);

    fn reserve(permyriad: u64) -> ShareConfig {
        ShareConfig { reserve: Some(SizeOrShare::Permyriad(permyriad)), ..ShareConfig::default() }
    }

    #[test]
    fn sizes_become_whole_units() {
        let share = |quota, reserve| ShareConfig { quota, reserve, priority: Priority::Low };
        let bounds = |quota, reserve| Bounds::new(&share(quota, reserve), 200, UNIT);
        let bytes = |bytes| Some(SizeOrShare::Bytes(bytes));
        let made = bounds(bytes(5 << 20), bytes((3 << 20) - 1));
        assert_eq!(made, Bounds { quota: Some(5), reserve: 2, priority: Priority::Low });
        let made = bounds(Some(SizeOrShare::Permyriad(1)), Some(SizeOrShare::Permyriad(5000)));
        assert_eq!((made.quota, made.reserve), (Some(2), 2), "a quota has room, and a reserve is within it");
    }

    #[test]
    fn a_class_comes_with_the_settings_and_goes_with_them() {
        let mut classes = Classes::new(200, UNIT);
        assert!(classes.configure(V, &ShareConfig::default()).is_none() && !classes.are_divided());
        let first = ClassId::new(1);
        assert_eq!(classes.configure(V, &reserve(1000)), Some((ClassId::DEFAULT, first)));
        assert_eq!(classes.configure(W, &reserve(500)), Some((ClassId::DEFAULT, ClassId::new(2))));
        assert_eq!(classes.configure(V, &reserve(2000)), None, "the class stays");
        assert_eq!(
            (classes.bounds(first).reserve, classes.of(V), classes.volume(first)),
            (40, first, Some(V))
        );
        assert_eq!(classes.configure(V, &ShareConfig::default()), Some((first, ClassId::DEFAULT)));
        let other = VolumeId(7);
        assert_eq!(
            classes.configure(other, &reserve(100)),
            Some((ClassId::DEFAULT, first)),
            "the number is free"
        );
        assert_eq!(classes.bounds(first).reserve, 2);
    }

    #[test]
    fn reserves_that_are_too_much_are_cut_in_proportion() {
        let mut classes = Classes::new(200, UNIT);
        classes.configure(V, &reserve(6000));
        assert_eq!(classes.bounds(ClassId::new(1)).reserve, 120);
        classes.configure(W, &reserve(3000));
        assert_eq!([1, 2].map(|id| classes.bounds(ClassId::new(id)).reserve), [106, 53]);
        classes.configure(W, &ShareConfig::default());
        assert_eq!(classes.bounds(ClassId::new(1)).reserve, 120);
    }

    #[test]
    fn there_are_so_many_classes_and_fewer_in_a_small_cache() {
        let count = |slots: u32| {
            let mut classes = Classes::new(slots, UNIT);
            let low = ShareConfig { priority: Priority::Low, ..ShareConfig::default() };
            for id in 1..500 {
                classes.configure(VolumeId(id), &low);
            }
            classes.shares().count()
        };
        assert_eq!([1, 7, 8, 12, 1 << 20].map(count), [0, 0, 1, 2, usize::from(CACHE_SHARES_MAX)]);
    }

    #[test]
    fn most_of_the_extents_make_the_owner() {
        let owner = |volumes: &[u16]| majority(volumes.iter().map(|id| VolumeId(*id)));
        assert_eq!(owner(&[]), None);
        assert_eq!(owner(&[2]), Some(W));
        assert_eq!(owner(&[1, 2, 2, 1, 2]), Some(W));
        assert_eq!(owner(&[2, 2, 1, 1]), None, "half is not most");
        assert_eq!(owner(&[1, 2, 3]), None);
    }
}
