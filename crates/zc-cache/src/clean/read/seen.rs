//! Bounded memory of addresses that were missed, in order to detect a second access.
//!
//! Two generations of 32-bit tags in buckets of 8. An address enters the young generation; when that reaches half of
//! the bound, it replaces the old one. So at least the last `entries_max / 2` distinct addresses are remembered,
//! except for about 1 % that full buckets lose. A false positive needs an equal tag in one of two buckets: a
//! probability below 16 / 2^32 per lookup.
//!
//! **Arithmetic.** At a load of 1/2 each generation has as many places as the bound, of 4 bytes each, and 4 bytes per
//! bucket: 9 bytes per entry of the bound, 576 KiB for 65,536. Pages of memory are allocated as it fills.
//!
//! Invariants: the time of a call is bounded: a bucket of a dropped generation is cleared at its next use.
//!
//! Out of scope: order, counts and contents.

use zc_core::{ExtentKey, u64_from_usize, usize_from_u64};

const WAYS: usize = 8;
/// Empty place; tags are never 0.
const EMPTY: u32 = 0;
/// Index entries per remembered first miss: about one miss per uncompressed extent that fits.
const INDEX_PART: u64 = 4;
/// Bounds of the remembered first misses: 576 KiB and 288 MiB.
const TOUCHED_MIN: usize = 1 << 16;
const TOUCHED_MAX: usize = 1 << 25;

/// Tags of one generation. A bucket stamped with another generation is empty.
#[derive(Debug)]
struct Table {
    tags: Vec<[u32; WAYS]>,
    stamps: Vec<u32>,
}

impl Table {
    fn new(buckets: usize) -> Self {
        Self { tags: vec![[EMPTY; WAYS]; buckets], stamps: vec![0; buckets] }
    }

    fn holds(&self, generation: u32, bucket: usize, tag: u32) -> bool {
        self.stamps[bucket] == generation && self.tags[bucket].contains(&tag)
    }

    fn bucket(&mut self, generation: u32, bucket: usize) -> &mut [u32; WAYS] {
        if self.stamps[bucket] != generation {
            (self.stamps[bucket], self.tags[bucket]) = (generation, [EMPTY; WAYS]);
        }
        &mut self.tags[bucket]
    }
}

#[derive(Debug)]
pub(crate) struct SeenFilter {
    young: Table,
    old: Table,
    /// Generation of the young table, from 1; the old table has the one before.
    generation: u32,
    taken: usize,
    generation_max: usize,
}

impl SeenFilter {
    /// Creates a memory of at least half and at most all of the last `entries_max` addresses.
    pub(crate) fn new(entries_max: usize) -> Self {
        let generation_max = entries_max.div_ceil(2).max(1);
        let buckets = generation_max.saturating_mul(2).div_ceil(WAYS);
        Self { young: Table::new(buckets), old: Table::new(buckets), generation: 1, taken: 0, generation_max }
    }

    /// Records the address. Returns `true` if it was recorded recently.
    pub(crate) fn seen_or_record(&mut self, key: ExtentKey) -> bool {
        let (bucket, tag) = self.locate(key);
        let places = self.young.bucket(self.generation, bucket);
        if let Some(place) = places.iter().position(|held| *held == tag) {
            places[..=place].rotate_right(1);
            return true;
        }
        let seen = self.old.holds(self.generation.wrapping_sub(1), bucket, tag);
        if self.taken == self.generation_max {
            core::mem::swap(&mut self.young, &mut self.old);
            self.generation = self.generation.wrapping_add(1);
            self.taken = 0;
        }
        self.taken += 1;
        let places = self.young.bucket(self.generation, bucket);
        places.rotate_right(1);
        places[0] = tag;
        seen
    }

    fn ram_bytes(&self) -> u64 {
        let bucket = size_of::<[u32; WAYS]>() + size_of::<u32>();
        u64_from_usize(bucket * (self.young.tags.len() + self.old.tags.len()))
    }

    fn locate(&self, key: ExtentKey) -> (usize, u32) {
        let mut x = key.extent.0 ^ (u64::from(key.volume.0) << 48);
        x = (x ^ (x >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
        x = (x ^ (x >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
        x ^= x >> 33;
        let (high, low) = (x >> 32, x & u64::from(u32::MAX));
        let bucket = usize_from_u64((high * u64_from_usize(self.young.tags.len())) >> 32);
        (bucket, u32::try_from(low).unwrap_or(EMPTY).max(EMPTY + 1))
    }
}

/// First misses of volumes with second-access admission: a memory proportional to the cache, allocated at its first
/// use.
#[derive(Debug)]
pub(crate) struct Touched {
    filter: Option<SeenFilter>,
    entries_max: usize,
}

impl Touched {
    /// Creates the memory of a cache with `index_entries` index entries.
    pub(crate) fn new(index_entries: u64) -> Self {
        let entries = usize::try_from(index_entries / INDEX_PART).unwrap_or(usize::MAX);
        Self { filter: None, entries_max: entries.clamp(TOUCHED_MIN, TOUCHED_MAX) }
    }

    /// Maximum number of first misses kept.
    pub(crate) const fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Records a miss. Returns `true` if the extent was missed recently.
    pub(crate) fn before(&mut self, key: ExtentKey) -> bool {
        self.filter.get_or_insert_with(|| SeenFilter::new(self.entries_max)).seen_or_record(key)
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        self.filter.as_ref().map_or(0, SeenFilter::ram_bytes)
    }
}

#[cfg(test)]
mod tests {
    use zc_core::{ExtentNo, VolumeId};

    use super::*;

    fn key(volume: u16, extent: u64) -> ExtentKey {
        ExtentKey { volume: VolumeId(volume), extent: ExtentNo(extent) }
    }

    fn knows(seen: &SeenFilter, bucket: usize, tag: u32) -> bool {
        seen.young.holds(seen.generation, bucket, tag)
            || seen.old.holds(seen.generation.wrapping_sub(1), bucket, tag)
    }

    #[test]
    fn first_misses_are_remembered_as_the_cache_is_large() {
        for (index_entries, remembered) in [(0, 1 << 15), (1 << 20, 1 << 19)] {
            let mut touched = Touched::new(index_entries * INDEX_PART);
            assert_eq!(touched.ram_bytes(), 0, "no read has asked");
            let known =
                |touched: &mut Touched| (0..remembered).filter(|n| touched.before(key(1, *n))).count();
            assert_eq!(known(&mut touched), 0);
            let again = u64_from_usize(known(&mut touched));
            assert!(again * 100 >= remembered * 96, "{again} of {remembered}");
            assert_eq!(touched.ram_bytes(), remembered * 2 * 9);
        }
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
                knows(&seen, bucket, tag)
            });
            let known = u64::try_from(known.count()).expect("fits");
            assert!(known * 100 >= generation * 96, "{known} of {generation}");
            let forgotten = (0..12 * generation).filter(|n| {
                let (bucket, tag) = seen.locate(key(3, *n));
                knows(&seen, bucket, tag)
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
