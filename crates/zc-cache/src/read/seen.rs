//! A bounded memory of addresses that were asked for and not found: has this one been seen before?
//!
//! Two generations of 32-bit tags in buckets of 8. What is seen goes into the young generation; when that has taken in
//! half of the bound, the old one is forgotten and the young one becomes the old one. So the last `entries_max / 2`
//! distinct addresses are remembered, and up to as many again, but for the few (about 1 %) that a full bucket loses. A
//! wrong "yes" needs an equal tag in one of two buckets: below 16 / 2^32 a question.
//!
//! **Arithmetic.** Half the bound at 1/2 load makes as many places per generation as the bound, 4 bytes each, twice:
//! 8 bytes per entry of the bound, 512 KiB for 65,536.
//!
//! What it does not do: remember order, counts or anything of the content.

use zc_core::{ExtentKey, u64_from_usize, usize_from_u64};

const WAYS: usize = 8;
/// An empty place. Tags are never 0.
const EMPTY: u32 = 0;

/// The memory. See the module documentation.
#[derive(Debug)]
pub(crate) struct SeenFilter {
    young: Vec<[u32; WAYS]>,
    old: Vec<[u32; WAYS]>,
    taken: usize,
    generation_max: usize,
}

impl SeenFilter {
    /// A memory of at least half and at most all of the last `entries_max` addresses.
    pub(crate) fn new(entries_max: usize) -> Self {
        let generation_max = entries_max.div_ceil(2).max(1);
        let buckets = generation_max.saturating_mul(2).div_ceil(WAYS);
        Self {
            young: vec![[EMPTY; WAYS]; buckets],
            old: vec![[EMPTY; WAYS]; buckets],
            taken: 0,
            generation_max,
        }
    }

    /// Whether the address was seen lately. It was from now on.
    pub(crate) fn seen_or_record(&mut self, key: ExtentKey) -> bool {
        let (bucket, tag) = self.locate(key);
        let places = &mut self.young[bucket];
        if let Some(place) = places.iter().position(|held| *held == tag) {
            places[..=place].rotate_right(1);
            return true;
        }
        let seen = self.old[bucket].contains(&tag);
        if self.taken == self.generation_max {
            core::mem::swap(&mut self.young, &mut self.old);
            self.young.fill([EMPTY; WAYS]);
            self.taken = 0;
        }
        self.taken += 1;
        let places = &mut self.young[bucket];
        places.rotate_right(1);
        places[0] = tag;
        seen
    }

    fn locate(&self, key: ExtentKey) -> (usize, u32) {
        let mut x = key.extent.0 ^ (u64::from(key.volume.0) << 48);
        x = (x ^ (x >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
        x = (x ^ (x >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
        x ^= x >> 33;
        let (high, low) = (x >> 32, x & u64::from(u32::MAX));
        let bucket = usize_from_u64((high * u64_from_usize(self.young.len())) >> 32);
        (bucket, u32::try_from(low).unwrap_or(EMPTY).max(EMPTY + 1))
    }
}

#[cfg(test)]
mod tests {
    use zc_core::{ExtentNo, VolumeId};

    use super::*;

    fn key(volume: u16, extent: u64) -> ExtentKey {
        ExtentKey { volume: VolumeId(volume), extent: ExtentNo(extent) }
    }

    #[test]
    fn the_second_time_is_noticed() {
        let mut seen = SeenFilter::new(100);
        assert!(!seen.seen_or_record(key(1, 7)));
        assert!(seen.seen_or_record(key(1, 7)));
        assert!(!seen.seen_or_record(key(2, 7)));
        assert!(!seen.seen_or_record(key(1, 8)));
    }

    #[test]
    fn the_last_half_is_remembered_and_nothing_beyond_the_bound() {
        for max in [0, 1, 2, 100, 10_000] {
            let mut seen = SeenFilter::new(max);
            let generation = u64::try_from(max.div_ceil(2).max(1)).expect("fits");
            for round in 0..5 {
                let first = round * 3 * generation;
                let fresh =
                    (first..first + 3 * generation).filter(|n| !seen.seen_or_record(key(3, *n))).count();
                assert_eq!(fresh, 3 * usize::try_from(generation).expect("fits"), "all of them are new");
            }
            let last = 15 * generation;
            let known = (last - generation..last).filter(|n| {
                let (bucket, tag) = seen.locate(key(3, *n));
                seen.young[bucket].contains(&tag) || seen.old[bucket].contains(&tag)
            });
            let known = u64::try_from(known.count()).expect("fits");
            assert!(known * 100 >= generation * 96, "{known} of {generation}");
            let forgotten = (0..12 * generation).filter(|n| {
                let (bucket, tag) = seen.locate(key(3, *n));
                seen.young[bucket].contains(&tag) || seen.old[bucket].contains(&tag)
            });
            assert_eq!(forgotten.count(), 0);
        }
    }

    #[test]
    fn what_is_asked_for_again_and_again_stays() {
        let mut seen = SeenFilter::new(64);
        seen.seen_or_record(key(0, 0));
        for n in 1..10_000 {
            seen.seen_or_record(key(1, n));
            if n % 16 == 0 {
                assert!(seen.seen_or_record(key(0, 0)), "forgotten at {n}");
            }
        }
    }
}
