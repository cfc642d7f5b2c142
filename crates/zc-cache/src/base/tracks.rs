//! Versions of extents that work in progress depends on.
//!
//! A *guard* records the version of an extent when work on its bytes began (a miss fill, an insertion). A write that
//! starts later changes the version, so the result of the work is dropped (correctness: "a miss fill overtaken by a
//! write"). Entries exist only while guards or writes refer to them. Two writes of one sector are never in flight
//! together (`clean::order`). If they were, the order of their bytes would be unknown: both are then *unordered* and
//! their contents count as unknown.

use core::ops::Range;
use std::collections::BTreeMap;

use smallvec::SmallVec;
use zc_core::{ExtentKey, ExtentNo, HashKey, KeyedMap, VolumeId};

use crate::expect_held::ExpectHeld;

/// Guard of an extent: it holds until the extent is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) key: ExtentKey,
    version: u32,
}

#[derive(Debug)]
struct Writer {
    id: u64,
    sectors: Range<u32>,
    unordered: bool,
}

#[derive(Debug, Default)]
struct Track {
    version: u32,
    holders: u32,
    writers: SmallVec<[Writer; 1]>,
}

impl Track {
    fn changes(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.writers.iter_mut().for_each(|writer| writer.unordered = true);
    }
}

#[derive(Debug)]
pub(crate) struct Tracks {
    tracks: KeyedMap<ExtentKey, Track>,
    /// Ranges of whole extents that writes in flight clear: volume and first extent, mapped to the end. They are
    /// disjoint.
    ranges: BTreeMap<(VolumeId, u64), u64>,
}

impl Tracks {
    pub(crate) fn new(key: &HashKey) -> Self {
        Self { tracks: key.map(), ranges: BTreeMap::new() }
    }

    /// Returns a guard of the extent's current bytes, or `None` while a write is in flight.
    pub(crate) fn guard(&mut self, key: ExtentKey) -> Option<Guard> {
        if self.is_in_range(&key) {
            return None;
        }
        let track = self.tracks.entry(key).or_default();
        if !track.writers.is_empty() {
            return None;
        }
        track.holders += 1;
        Some(Guard { key, version: track.version })
    }

    /// Returns `true` if the extent has not been written since the guard was taken.
    pub(crate) fn holds(&self, guard: &Guard) -> bool {
        self.tracks.get(&guard.key).is_some_and(|t| t.version == guard.version && t.writers.is_empty())
    }

    pub(crate) fn release(&mut self, guard: &Guard) {
        let track = self.tracks.get_mut(&guard.key).expect_held();
        assert!(track.holders > 0, "guard of {:?} released twice", guard.key);
        track.holders -= 1;
        self.forget_if_idle(guard.key);
    }

    pub(crate) fn write_begins(&mut self, key: ExtentKey, id: u64, sectors: Range<u32>) {
        let track = self.tracks.entry(key).or_default();
        track.version = track.version.wrapping_add(1);
        let mut unordered = false;
        for other in &mut track.writers {
            if other.sectors.start < sectors.end && sectors.start < other.sectors.end {
                other.unordered = true;
                unordered = true;
            }
        }
        track.writers.push(Writer { id, sectors, unordered });
    }

    /// Begins a write of whole extents. No other write of them is in flight.
    pub(crate) fn range_begins(&mut self, volume: VolumeId, extents: Range<u64>) {
        let is_in = |key: &ExtentKey| key.volume == volume && extents.contains(&key.extent.0);
        self.tracks.iter_mut().filter(|(key, _)| is_in(key)).for_each(|(_, track)| track.changes());
        self.ranges.insert((volume, extents.start), extents.end);
    }

    pub(crate) fn range_ends(&mut self, volume: VolumeId, first: u64) {
        self.ranges.remove(&(volume, first)).expect_held();
    }

    fn is_in_range(&self, key: &ExtentKey) -> bool {
        let before = self.ranges.range(..=(key.volume, key.extent.0)).next_back();
        before.is_some_and(|((volume, _), end)| *volume == key.volume && key.extent.0 < *end)
    }

    /// Completes a write. Returns `true` if the written sectors certainly hold its bytes.
    pub(crate) fn write_ends(&mut self, key: ExtentKey, id: u64) -> bool {
        let track = self.tracks.get_mut(&key).expect_held();
        let at = track.writers.iter().position(|writer| writer.id == id).expect_held();
        let writer = track.writers.remove(at);
        self.forget_if_idle(key);
        !writer.unordered
    }

    /// Invalidates guards of an extent without a write; the contents of writes in flight count as unknown.
    pub(crate) fn changes(&mut self, key: ExtentKey) {
        if let Some(track) = self.tracks.get_mut(&key) {
            track.changes();
        }
    }

    /// Invalidates guards of the selected extents without a write.
    pub(crate) fn change_all(&mut self, which: impl Fn(&ExtentKey) -> bool) {
        self.tracks.iter_mut().filter(|(key, _)| which(key)).for_each(|(_, track)| track.changes());
    }

    /// Returns `true` if a selected extent has a guard or a write in flight.
    pub(crate) fn has(&self, which: impl Fn(&ExtentKey) -> bool) -> bool {
        let firsts =
            self.ranges.keys().map(|(volume, first)| ExtentKey { volume: *volume, extent: ExtentNo(*first) });
        self.tracks.keys().any(&which) || firsts.into_iter().any(|key| which(&key))
    }

    pub(crate) fn is_written(&self, key: &ExtentKey) -> bool {
        self.tracks.get(key).is_some_and(|track| !track.writers.is_empty()) || self.is_in_range(key)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tracks.len()
    }

    fn forget_if_idle(&mut self, key: ExtentKey) {
        if self.tracks.get(&key).is_some_and(|t| t.holders == 0 && t.writers.is_empty()) {
            self.tracks.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ExtentKey = ExtentKey { volume: VolumeId(1), extent: ExtentNo(7) };

    #[test]
    fn a_write_breaks_guards_taken_before_it_and_refuses_new_ones() {
        let mut tracks = Tracks::new(&HashKey::fixed());
        let guard = tracks.guard(KEY).unwrap();
        assert!(tracks.holds(&guard));
        tracks.write_begins(KEY, 1, 0..8);
        assert!(!tracks.holds(&guard));
        assert!(tracks.guard(KEY).is_none());
        assert!(tracks.write_ends(KEY, 1));
        assert!(!tracks.holds(&guard));
        tracks.release(&guard);
        assert_eq!(tracks.len(), 0);
    }

    #[test]
    fn a_change_without_a_write_leaves_nothing_certain_that_was_under_way() {
        let mut tracks = Tracks::new(&HashKey::fixed());
        tracks.changes(KEY);
        assert_eq!(tracks.len(), 0);
        let guard = tracks.guard(KEY).unwrap();
        tracks.changes(KEY);
        assert!(!tracks.holds(&guard));
        tracks.release(&guard);
        tracks.write_begins(KEY, 1, 0..8);
        tracks.changes(KEY);
        assert!(!tracks.write_ends(KEY, 1));
        tracks.write_begins(KEY, 2, 0..8);
        assert!(tracks.write_ends(KEY, 2));
    }

    #[test]
    fn a_range_breaks_guards_and_refuses_new_ones() {
        let mut tracks = Tracks::new(&HashKey::fixed());
        let at = |volume, extent| ExtentKey { volume: VolumeId(volume), extent: ExtentNo(extent) };
        let (inside, outside) = (tracks.guard(at(1, 7)).unwrap(), tracks.guard(at(1, 9)).unwrap());
        tracks.range_begins(VolumeId(1), 5..9);
        tracks.range_begins(VolumeId(1), 20..30);
        assert!(!tracks.holds(&inside) && tracks.holds(&outside));
        for (key, expected) in [
            (at(1, 4), false),
            (at(1, 5), true),
            (at(1, 8), true),
            (at(1, 9), false),
            (at(1, 29), true),
            (at(2, 6), false),
        ] {
            assert_eq!(tracks.is_written(&key), expected, "{key:?}");
            let guard = tracks.guard(key);
            assert_eq!(guard.is_none(), expected, "{key:?}");
            guard.iter().for_each(|guard| tracks.release(guard));
        }
        tracks.range_ends(VolumeId(1), 5);
        tracks.range_ends(VolumeId(1), 20);
        assert!(!tracks.holds(&inside) && !tracks.is_written(&at(1, 7)));
        tracks.release(&inside);
        tracks.release(&outside);
        assert_eq!(tracks.len(), 0);
    }

    #[test]
    fn overlapping_writers_are_unordered_disjoint_ones_are_not() {
        let mut tracks = Tracks::new(&HashKey::fixed());
        tracks.write_begins(KEY, 1, 0..8);
        tracks.write_begins(KEY, 2, 8..16);
        tracks.write_begins(KEY, 3, 4..6);
        assert!(!tracks.write_ends(KEY, 1));
        assert!(tracks.write_ends(KEY, 2));
        assert!(!tracks.write_ends(KEY, 3));
        assert_eq!(tracks.len(), 0);
    }
}
