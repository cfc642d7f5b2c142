//! Counts distinct members in bounded memory.
//!
//! Invariants: exact up to [`DISTINCT_MAX`] members; beyond, only members whose hash falls below a threshold are held,
//! the threshold is halved whenever they become too many, and counts are scaled (spatially hashed sampling, as in
//! SHARDS, Waldspurger et al., FAST 2015; the relative error is about one over the root of the held members). Every
//! member has a value: sums over the held values are those of a uniform sample of all members for any number of
//! halvings, so that ratios computed from them are unbiased.

use zc_core::{Map, u64_from_usize};

use crate::limits::DISTINCT_MAX;

/// A counter of distinct members, each with a value.
#[derive(Debug)]
pub struct Distinct<V = ()> {
    held: Map<u128, V>,
    held_max: usize,
    /// Hashes with this number of leading zeroes are held.
    halvings: u32,
}

impl<V: Default> Default for Distinct<V> {
    fn default() -> Self {
        Self::with_bound(DISTINCT_MAX)
    }
}

/// A mix of 128 bits to 64 of which every one depends on all (the finalizer of SplitMix64, Steele et al. 2014).
#[must_use]
pub(crate) const fn mix(key: u128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are wanted")]
    let (low, high) = (key as u64, (key >> 64) as u64);
    let mut state = low ^ high.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

impl<V: Default> Distinct<V> {
    /// Creates a counter that holds at most `held_max` members.
    #[must_use]
    pub fn with_bound(held_max: usize) -> Self {
        assert!(held_max > 0, "a counter holds something");
        Self { held: Map::default(), held_max, halvings: 0 }
    }

    /// Counts a member and changes its value, the default one if the member is new; nothing if it is not in the sample.
    pub fn add(&mut self, member: u128, change: impl FnOnce(&mut V)) {
        if mix(member).leading_zeros() < self.halvings {
            return;
        }
        change(self.held.entry(member).or_default());
        while self.held.len() > self.held_max {
            self.halvings += 1;
            let halvings = self.halvings;
            self.held.retain(|member, _| mix(*member).leading_zeros() >= halvings);
        }
    }

    /// The values of the members in the sample, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.held.values()
    }

    /// Returns `true` if the member was counted and is in the sample.
    #[must_use]
    pub fn holds(&self, member: u128) -> bool {
        self.held.contains_key(&member)
    }

    /// Returns the number of distinct members.
    #[must_use]
    pub fn count(&self) -> u64 {
        u64_from_usize(self.held.len()).checked_shl(self.halvings).unwrap_or(u64::MAX)
    }

    /// Returns `true` if counts are exact.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.halvings == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sets_are_counted_exactly() {
        let mut distinct = Distinct::<u32>::default();
        for member in [7, 8, 7, u128::MAX, 8] {
            distinct.add(member, |times| *times += 1);
        }
        assert_eq!((distinct.count(), distinct.is_exact()), (3, true));
        assert_eq!(distinct.values().sum::<u32>(), 5);
        assert!(distinct.holds(7) && !distinct.holds(9));
    }

    #[test]
    fn large_sets_are_estimated_in_bounded_memory() {
        let mut distinct = Distinct::<u8>::with_bound(4096);
        for member in 0..200_000_u128 {
            distinct.add(member, |late| *late = u8::from(member >= 150_000));
            assert!(distinct.held.len() <= 4096);
        }
        assert!(!distinct.is_exact());
        let count = distinct.count() as f64;
        assert!((count / 200_000.0 - 1.0).abs() < 0.06, "{count}");
        let late = distinct.values().filter(|late| **late == 1).count() as f64 / distinct.held.len() as f64;
        assert!(
            (late - 0.25).abs() < 0.03,
            "what comes late is in the sample as what comes early is: {late}"
        );
    }
}
