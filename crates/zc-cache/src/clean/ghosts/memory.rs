//! Memories of addresses outside the ghosts: addresses missed once, and extents written in part.
//!
//! Invariants: both memories are bounded, and forget the oldest first. Out of scope: deciding which extents enter.

use core::ops::Range;
use std::collections::VecDeque;

use zc_core::{SectorMap, Set, u64_from_usize};

/// Maximum number of partly written extents.
const PARTIAL_MAX: usize = 32;

/// Addresses missed once, in two generations as in [`crate::clean::read::seen`].
#[derive(Debug, Default)]
pub(super) struct Missed {
    young: Set<u64>,
    old: Set<u64>,
}

impl Missed {
    /// Records the address. Returns `true` if it was among the last `entries_max`, or half of them.
    pub(super) fn before(&mut self, hash: u64, entries_max: u32) -> bool {
        let seen = self.young.contains(&hash) || self.old.contains(&hash);
        if u64_from_usize(self.young.len()) * 2 >= u64::from(entries_max) {
            self.old = core::mem::take(&mut self.young);
        }
        self.young.insert(hash);
        seen
    }

    /// Retains the addresses for which `keep` returns `true`.
    pub(super) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.young.retain(|hash| keep(*hash));
        self.old.retain(|hash| keep(*hash));
    }
}

/// Partly written extents, oldest first.
#[derive(Debug, Default)]
pub(super) struct Partial(VecDeque<(u64, SectorMap)>);

impl Partial {
    /// Records a write of these sectors of an extent with `all` sectors. Returns `true` if all of them were written
    /// recently.
    pub(super) fn complete(&mut self, hash: u64, sectors: Range<u32>, all: u32) -> bool {
        if sectors == (0..all) {
            return true;
        }
        let known = self.0.iter().position(|(held, _)| *held == hash);
        let mut map = known.and_then(|at| self.0.remove(at)).map_or(SectorMap::EMPTY, |(_, map)| map);
        map.insert(sectors);
        let is_complete = map.contains(0..all);
        if !is_complete {
            if self.0.len() == PARTIAL_MAX {
                self.0.pop_front();
            }
            self.0.push_back((hash, map));
        }
        is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_addresses_are_known_and_no_others() {
        let mut missed = Missed::default();
        assert!((0..50).all(|hash| !missed.before(hash, 40)));
        assert!((30..50).all(|hash| missed.before(hash, 40)), "half of the bound is known");
        assert!(!missed.before(0, 40), "more than the bound is not");
        missed.retain(|hash| hash % 2 == 0);
        assert!(missed.before(48, 40) && !missed.before(49, 40));
    }

    #[test]
    fn parts_make_an_extent_unless_too_many_others_come_between() {
        let mut partial = Partial::default();
        assert!(partial.complete(1, 0..16, 16));
        assert!(!partial.complete(1, 0..8, 16), "a whole write left nothing behind");
        assert!(!partial.complete(2, 8..16, 16) && partial.complete(1, 8..16, 16));
        (100..132).for_each(|hash| assert!(!partial.complete(hash, 0..8, 16)));
        assert!(!partial.complete(2, 0..8, 16), "forgotten");
        assert!(partial.complete(131, 8..16, 16));
    }
}
