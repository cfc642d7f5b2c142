//! Region marks: regions of volumes that may differ from the cache device's records (G2).
//!
//! A region's mark becomes durable before its first write; after an unclean stop the mappings of marked regions are
//! distrusted. A mark is removed when, at one moment, no write to the region is in flight, every mapping change of the
//! region is durable in the journal, and the origin was flushed after the last write. Adding a mark costs a durable
//! map write, which all waiting writes share; removing one costs nothing: the next map omits it.
//!
//! *Inherited* regions were marked when the last session ended uncleanly. They remain on the map until the index is
//! loaded and the removal of distrusted mappings is durable.

use zc_core::{HashKey, KeyedMap, KeyedSet, RegionKey, VolumeId};

const MAP_MAX: usize = zc_core::limits::ACTIVE_REGIONS_MAX as usize;

#[derive(Debug, Clone, Copy)]
struct Region {
    /// The mark is on media.
    durable: bool,
    writers: u32,
    /// Number of the last completed write to it, in the order of the volume's writes.
    last_write: u64,
    /// Number of the last use, and its time, for the choice of regions to retire.
    used: u64,
    used_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Regions {
    active: KeyedMap<RegionKey, Region>,
    inherited: KeyedSet<RegionKey>,
    /// Active regions whose mark is not durable.
    unmarked: usize,
    max: usize,
    clock: u64,
}

/// A retirement in progress: the regions at its beginning.
#[derive(Debug, Clone)]
pub(crate) struct Retirement {
    candidates: Vec<(RegionKey, u64)>,
}

impl Regions {
    pub(crate) fn new(max: u32, inherited: impl IntoIterator<Item = RegionKey>, key: &HashKey) -> Self {
        let max = usize::try_from(max).unwrap_or(usize::MAX).max(2);
        let mut marked = key.set();
        marked.extend(inherited);
        Self { active: key.map(), inherited: marked, unmarked: 0, max, clock: 0 }
    }

    /// Maximum regions of one piece of a write, so that pieces of several writes fit at once.
    pub(crate) fn piece_max(&self) -> u64 {
        zc_core::u64_from_usize((self.max / 4).max(1))
    }

    /// Marks the regions for a write; fails without capacity. After success the write may start once
    /// [`Regions::are_durable`] returns `true`, and must be completed with [`Regions::write_ends`].
    pub(crate) fn write_begins(
        &mut self,
        volume: VolumeId,
        regions: core::ops::RangeInclusive<u64>,
        now_ms: u64,
    ) -> bool {
        let key = |region| RegionKey { volume, region };
        let fresh = regions.clone().filter(|r| !self.active.contains_key(&key(*r))).count();
        if self.active.len() + fresh > self.max || self.map_len() + fresh > MAP_MAX {
            return false;
        }
        self.clock += 1;
        for region in regions {
            let durable = self.inherited.contains(&key(region));
            let unmarked = &mut self.unmarked;
            let entry = self.active.entry(key(region)).or_insert_with(|| {
                *unmarked += usize::from(!durable);
                Region { durable, writers: 0, last_write: 0, used: 0, used_ms: 0 }
            });
            entry.writers += 1;
            entry.used = self.clock;
            entry.used_ms = now_ms;
        }
        true
    }

    /// Returns `true` if the marks of these regions are durable.
    pub(crate) fn are_durable(&self, volume: VolumeId, regions: core::ops::RangeInclusive<u64>) -> bool {
        regions
            .into_iter()
            .all(|region| self.active.get(&RegionKey { volume, region }).is_some_and(|r| r.durable))
    }

    /// Returns `true` if the marks of these regions are durable and no capacity limit forces their removal.
    pub(crate) fn are_marked(&self, volume: VolumeId, regions: core::ops::RangeInclusive<u64>) -> bool {
        let key = |region| RegionKey { volume, region };
        let fresh = regions.clone().filter(|r| !self.active.contains_key(&key(*r))).count();
        let has_room = self.active.len() + fresh <= self.max && self.map_len() + fresh <= MAP_MAX;
        let is_marked = |key: &RegionKey| {
            self.active.get(key).map_or_else(|| self.inherited.contains(key), |region| region.durable)
        };
        has_room && regions.into_iter().all(|region| is_marked(&key(region)))
    }

    /// Returns `true` if a mark is not durable yet.
    pub(crate) const fn has_new_marks(&self) -> bool {
        self.unmarked > 0
    }

    /// Regions of the next map.
    pub(crate) fn snapshot(&self) -> Vec<RegionKey> {
        let mut keys: Vec<_> = self.active.keys().chain(self.inherited.iter()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(crate) fn map_is_durable(&mut self, written: &[RegionKey]) {
        for key in written {
            if let Some(region) = self.active.get_mut(key) {
                self.unmarked -= usize::from(!region.durable);
                region.durable = true;
            }
        }
    }

    /// Completes a write that began with [`Regions::write_begins`] as write number `write`.
    pub(crate) fn write_ends(
        &mut self,
        volume: VolumeId,
        regions: core::ops::RangeInclusive<u64>,
        write: u64,
    ) {
        for region in regions {
            if let Some(entry) = self.active.get_mut(&RegionKey { volume, region }) {
                assert!(entry.writers > 0, "region {region} of {volume:?} lost a writer");
                entry.writers -= 1;
                entry.last_write = entry.last_write.max(write);
            }
        }
    }

    /// Chooses at most `count` idle regions last used by `until_ms`, least recently used first. Regions of volumes
    /// whose origin `fails` to flush are chosen only if there are no others.
    pub(crate) fn retirement(
        &self,
        count: usize,
        until_ms: u64,
        fails: impl Fn(VolumeId) -> bool,
    ) -> Option<Retirement> {
        let is_idle = |region: &Region| region.writers == 0 && region.durable && region.used_ms <= until_ms;
        let mut idle: Vec<_> = self.active.iter().filter(|(_, region)| is_idle(region)).collect();
        if idle.iter().any(|(key, _)| !fails(key.volume)) {
            idle.retain(|(key, _)| !fails(key.volume));
        }
        idle.sort_unstable_by_key(|(key, region)| (region.used, **key));
        let candidates: Vec<_> =
            idle.into_iter().take(count).map(|(key, region)| (*key, region.used)).collect();
        (!candidates.is_empty()).then_some(Retirement { candidates })
    }

    /// Completes a retirement after the journal was made durable: removes the candidates without a later write whose
    /// last write the origin has flushed. Returns the number of marks removed.
    pub(crate) fn retire(&mut self, retirement: &Retirement, flushed: impl Fn(VolumeId) -> u64) -> usize {
        let mut gone = 0;
        for (key, used) in &retirement.candidates {
            let idle = self
                .active
                .get(key)
                .is_some_and(|r| r.writers == 0 && r.used == *used && r.last_write <= flushed(key.volume));
            if idle {
                self.active.remove(key);
                gone += 1;
            }
        }
        gone
    }

    /// Removes the marks of a removed volume, which has no writes in flight.
    pub(crate) fn remove(&mut self, volume: VolumeId) {
        self.inherited.retain(|key| key.volume != volume);
        let unmarked = &mut self.unmarked;
        self.active.retain(|key, region| {
            let stays = key.volume != volume;
            debug_assert!(stays || region.writers == 0, "a region of a volume that goes has a writer");
            *unmarked -= usize::from(!stays && !region.durable);
            stays
        });
    }

    /// Drops the inherited regions, except those of volumes for which `keep` returns `true`.
    pub(crate) fn drop_inherited(&mut self, keep: impl Fn(VolumeId) -> bool) {
        self.inherited.retain(|key| keep(key.volume));
    }

    pub(crate) fn inherited_volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.inherited.iter().map(|key| key.volume)
    }

    pub(crate) fn is_inherited(&self, key: &RegionKey) -> bool {
        self.inherited.contains(key)
    }

    pub(crate) fn is_active(&self, key: &RegionKey) -> bool {
        self.active.contains_key(key)
    }

    /// Maximum regions that the next map may name.
    fn map_len(&self) -> usize {
        self.active.len() + self.inherited.len()
    }

    pub(crate) fn inherited_len(&self) -> usize {
        self.inherited.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn volumes(&self, retirement: &Retirement) -> Vec<VolumeId> {
        let mut volumes: Vec<_> = retirement.candidates.iter().map(|(key, _)| key.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        volumes
    }
}

impl Retirement {
    pub(crate) fn len(&self) -> usize {
        self.candidates.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: VolumeId = VolumeId(0);

    #[test]
    fn a_region_retires_only_when_idle_flushed_and_untouched_since() {
        let mut regions = Regions::new(4, [], &HashKey::fixed());
        assert!(regions.write_begins(V, 3..=4, 1));
        assert!(!regions.are_durable(V, 3..=4));
        regions.map_is_durable(&regions.snapshot());
        assert!(regions.are_durable(V, 3..=4));
        assert!(regions.retirement(9, u64::MAX, |_| false).is_none());
        regions.write_ends(V, 3..=4, 1);
        assert!(regions.retirement(9, 0, |_| false).is_none(), "used later");
        let retirement = regions.retirement(9, 1, |_| false).unwrap();
        assert_eq!(regions.clone_for_test().retire(&retirement, |_| 0), 0);
        assert!(regions.write_begins(V, 4..=4, 2));
        regions.write_ends(V, 4..=4, 2);
        assert_eq!(regions.retire(&retirement, |_| 2), 1);
        assert_eq!(regions.snapshot(), vec![RegionKey { volume: V, region: 4 }]);
    }

    #[test]
    fn marks_that_were_found_leave_room_for_fewer_new_ones_in_the_map() {
        let inherited = 0..u64::from(zc_core::limits::ACTIVE_REGIONS_MAX) - 1;
        let mut regions =
            Regions::new(9, inherited.map(|region| RegionKey { volume: V, region }), &HashKey::fixed());
        assert!(regions.write_begins(V, 5000..=5000, 0));
        assert!(!regions.write_begins(V, 5001..=5001, 0));
        assert_eq!(regions.snapshot().len(), MAP_MAX);
        regions.drop_inherited(|_| false);
        assert!(regions.write_begins(V, 5001..=5001, 0));
    }

    #[test]
    fn the_set_is_bounded() {
        let mut regions = Regions::new(2, [], &HashKey::fixed());
        assert!(regions.write_begins(V, 0..=1, 0));
        assert!(!regions.write_begins(V, 2..=2, 0));
        assert!(regions.write_begins(V, 1..=1, 0));
        assert_eq!(regions.len(), 2);
    }

    impl Regions {
        fn clone_for_test(&self) -> Self {
            Self {
                active: self.active.clone(),
                inherited: self.inherited.clone(),
                unmarked: self.unmarked,
                max: self.max,
                clock: self.clock,
            }
        }
    }
}
