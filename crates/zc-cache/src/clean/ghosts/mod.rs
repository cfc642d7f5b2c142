//! Ghost caches: estimate client hits at other cache sizes, and under the other admission.
//!
//! A ghost cache holds addresses and no data. A sample of the extents, chosen by a hash of the address, goes through
//! ghosts scaled down by the same rate, so that their hit ratios estimate those of the whole (Waldspurger and others,
//! FAST 2015 and ATC 2017). One ghost list in order of use yields the curve of hit ratios over sizes. A second one
//! admits a read miss at its second access. With `admission = "auto"` the better of the two decides.
//!
//! **Size.** The ghost of the current cache size holds at most [`SIZE_MAX`] addresses. When the cache holds more
//! extents, every second address is removed from the sample. Its memories of first misses and of streams are samples
//! of the cache's. This bounds the RAM to about 1.2 MiB for any cache size.
//!
//! Invariants: the same requests lead to the same choice; a request changes the ghosts once for each of its extents.
//! Out of scope: contents, units, and prefetched extents.

mod answered;
mod choice;
mod curve;
mod memory;
mod stack;

use core::ops::Range;

use zc_core::ExtentKey;

pub(crate) use crate::clean::ghosts::answered::Answered;
pub(crate) use crate::clean::ghosts::choice::Choice;
use crate::clean::ghosts::choice::{Chooser, ROUND_READS, Round};
use crate::clean::ghosts::curve::{CACHE_PARTS, CURVE_QUARTERS, Tally};
pub use crate::clean::ghosts::curve::{Curve, NoFigure};
use crate::clean::ghosts::memory::{Missed, Partial};
use crate::clean::ghosts::stack::Stack;

/// Maximum addresses in the ghost of the current cache size.
const SIZE_MAX: u32 = 4096;
/// Maximum ratio of overwritten to current entries.
const DEAD_MAX: u64 = 4;
/// The second-access ghost has one size.
const SECOND_QUARTERS: &[u32] = &[4];
/// Minimum extents of a cache that chooses its admission.
const CHOICE_MIN: u32 = 64;
/// Maximum addresses in each memory of addresses that the ghosts do not hold. The cache remembers at least 65,536; so
/// do these for a cache of more than 8,192 extents, and fewer for a smaller one.
const REMEMBERED_MAX: u32 = 4 * SIZE_MAX;

/// Capacities of the cache's memories of uncached addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remembered {
    /// Addresses missed once, with second-access admission.
    pub(crate) missed: usize,
    /// Addresses of streams, which always enter at their second access.
    pub(crate) streamed: usize,
}

/// A client's read of an extent, with the state of the cache before it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Access {
    pub(crate) in_stream: bool,
    pub(crate) is_held: bool,
    /// The cached content was stored for another extent.
    pub(crate) is_duplicate: bool,
    /// Capacity of the cache in extents.
    pub(crate) fits: u64,
    /// The cache found content of an earlier session at its start.
    pub(crate) is_warm_start: bool,
    /// Counts of the cache up to this read.
    pub(crate) answered: Answered,
}

#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Logarithm of the sampling rate: 1 in `2^rate_bits` addresses is sampled.
    rate_bits: u32,
    remembered: Remembered,
    curve: Stack,
    second: Stack,
    missed: Missed,
    /// Addresses of streams, which always enter at their second access.
    streamed: Missed,
    partial: Partial,
    round: Tally,
    tally: Tally,
    /// Counts at the beginning of the round.
    answered: Answered,
    chooser: Chooser,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampled(u64);

impl Ghosts {
    /// Creates empty ghosts of a cache with these memories.
    pub(crate) fn new(remembered: Remembered) -> Self {
        Self {
            rate_bits: 0,
            remembered,
            curve: Stack::new(CURVE_QUARTERS, SIZE_MAX),
            second: Stack::new(SECOND_QUARTERS, SIZE_MAX),
            missed: Missed::default(),
            streamed: Missed::default(),
            partial: Partial::default(),
            round: Tally::default(),
            tally: Tally::default(),
            answered: Answered::default(),
            chooser: Chooser::new(),
        }
    }

    pub(crate) fn sampled(&self, key: ExtentKey) -> Option<Sampled> {
        let hash = hash_of(key);
        is_in(hash, self.rate_bits).then_some(Sampled(hash))
    }

    /// Records a client's read of a sampled extent.
    ///
    /// An extent that the cache holds and the list lacks is content of an earlier session, a warm-up or another
    /// address, unless the list is longer than the cache, in which case its last use is older than such a cache would
    /// keep. It enters as if it had been read before.
    pub(crate) fn read(&mut self, extent: Sampled, access: &Access) {
        let size = self.size(access.fits);
        let Sampled(hash) = extent;
        self.round.reads += 1;
        self.round.duplicates += u64::from(access.is_duplicate);
        let filled = self.curve.filled(size);
        let is_inherited = access.is_held && filled < CACHE_PARTS && !self.curve.holds(hash);
        let streamed_max = self.in_sample(self.remembered.streamed);
        let passes = access.in_stream
            && !is_inherited
            && !self.curve.holds(hash)
            && !self.streamed.before(hash, streamed_max);
        let part = if passes { None } else { self.curve.renew(hash, size) };
        match part {
            Some(part) => self.round.parts[part] += 1,
            None if is_inherited => self.round.held[filled] += 1,
            None if access.is_warm_start => self.round.unseen[filled] += 1,
            None => {}
        }
        let hit = is_inherited || self.second.holds(hash);
        self.round.second += u64::from(hit);
        if hit || self.missed.before(hash, self.in_sample(self.remembered.missed)) {
            self.second.renew(hash, size);
        }
        if self.round.reads == ROUND_READS {
            self.end_round(size, access.answered);
        }
    }

    /// Counts a client's read of extents of a volume without admission to the cache.
    pub(crate) const fn read_outside(&mut self, extents: u64) {
        self.round.outside += extents;
    }

    /// Records a client's write of these sectors of a sampled extent with `all` sectors, at a capacity of `fits`
    /// extents. A partly written extent enters when all of it is known.
    pub(crate) fn wrote(&mut self, extent: Sampled, sectors: Range<u32>, all: u32, fits: u64) {
        let size = self.size(fits);
        let Sampled(hash) = extent;
        let is_complete = self.partial.complete(hash, sectors, all);
        for ghost in [&mut self.curve, &mut self.second] {
            if is_complete || ghost.holds(hash) {
                ghost.overwrite(hash, size);
            }
        }
    }

    /// Current admission of read misses.
    pub(crate) const fn choice(&self) -> Choice {
        self.chooser.choice()
    }

    /// Hit-ratio curve. `answered`: counts of the cache up to now.
    pub(crate) fn curve(&self, answered: Answered) -> Curve {
        Curve::new(&self.seen(answered), self.choice() == Choice::SecondTouch)
    }

    /// Counts of all rounds, including the current one.
    fn seen(&self, answered: Answered) -> Tally {
        let mut round = self.round;
        round.answered = answered.since(&self.answered);
        let mut all = self.tally;
        all.add(&round);
        all
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        /// RAM of an address in a set: with its control byte, and the eighth of the set that stays empty.
        const MISSED_BYTES: u64 = 11;
        self.curve.ram_bytes() + self.second.ram_bytes() + 2 * u64::from(REMEMBERED_MAX) * MISSED_BYTES
    }

    /// Capacity of a sampled memory that corresponds to `addresses` addresses of the cache.
    fn in_sample(&self, addresses: usize) -> u32 {
        u32::try_from(addresses >> self.rate_bits).unwrap_or(u32::MAX).min(REMEMBERED_MAX)
    }

    /// Ghost entries for a cache with capacity for `fits` extents, including overwritten ones, in the proportion of
    /// the list. Lowers the sampling rate if they are too many.
    fn size(&mut self, fits: u64) -> u32 {
        let (held, live) = (self.curve.held(CACHE_PARTS), self.curve.live(CACHE_PARTS));
        let fits = (fits * u64::from(held)).checked_div(live.into()).unwrap_or(fits).min(fits * DEAD_MAX);
        while fits >> self.rate_bits > u64::from(SIZE_MAX) {
            self.rate_bits += 1;
            let bits = self.rate_bits;
            self.curve.retain(|hash| is_in(hash, bits));
            self.second.retain(|hash| is_in(hash, bits));
            self.missed.retain(|hash| is_in(hash, bits));
            self.streamed.retain(|hash| is_in(hash, bits));
        }
        u32::try_from(fits >> self.rate_bits).unwrap_or(SIZE_MAX)
    }

    fn end_round(&mut self, size: u32, answered: Answered) {
        let mut tally = core::mem::take(&mut self.round);
        let began = core::mem::replace(&mut self.answered, answered);
        tally.answered = answered.since(&began);
        let Answered { read, hits } = tally.answered;
        let round = Round {
            reads: tally.reads,
            always: tally.own_hits(),
            second: tally.second,
            // Hits of all reads, scaled to the sample.
            actual: (hits * tally.reads).checked_div(read).unwrap_or(0),
        };
        let is_full = u64::from(self.curve.held(CACHE_PARTS)) * 100 >= u64::from(size) * 95;
        self.chooser.round(&round, is_full && size >= CHOICE_MIN);
        self.tally.add(&tally);
    }
}

const fn is_in(hash: u64, rate_bits: u32) -> bool {
    hash.trailing_zeros() >= rate_bits
}

/// Hash of the address. Clients that choose addresses by it can distort an estimate and nothing else.
fn hash_of(key: ExtentKey) -> u64 {
    let mut x = key.extent.0 ^ (u64::from(key.volume.0) << 48);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use zc_core::{ExtentNo, VolumeId};

    use super::*;

    const FITS: u64 = 1000;

    fn ghosts() -> Ghosts {
        Ghosts::new(Remembered { missed: 1 << 16, streamed: 1 << 16 })
    }

    fn read(ghosts: &mut Ghosts, extent: u64, fits: u64) {
        let key = ExtentKey { volume: VolumeId(0), extent: ExtentNo(extent) };
        if let Some(sampled) = ghosts.sampled(key) {
            ghosts.read(sampled, &Access { fits, ..Access::default() });
        }
    }

    /// Hits of the list at each size, in per cent of the reads.
    fn percent(ghosts: &Ghosts) -> Vec<u64> {
        let seen = ghosts.seen(Answered::default());
        (1..=seen.parts.len()).map(|parts| (seen.hits(parts) * 100 + seen.reads / 2) / seen.reads).collect()
    }

    /// Deterministic random numbers (Knuth's constants).
    fn draw(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    #[test]
    fn a_curve_rises_where_the_extents_fit() {
        let mut ghosts = ghosts();
        // A loop over 1,500 extents fits twice the cache, and no smaller one.
        for at in 0..100_000 {
            read(&mut ghosts, at % 1500, FITS);
        }
        assert_eq!(percent(&ghosts), [0, 0, 0, 100, 100]);
    }

    #[test]
    fn a_sample_of_a_large_cache_tells_what_the_whole_would() {
        for (fits, within) in [(4000, 1), (4000 * 16, 3)] {
            let (mut ghosts, mut state) = (ghosts(), 7);
            // Uniform over twice the cache: a quarter of the cache size has an eighth of the hits, and so on.
            for _ in 0..4_000_000 {
                read(&mut ghosts, draw(&mut state, fits * 2), fits);
            }
            for (seen, wanted) in percent(&ghosts).into_iter().zip([12, 25, 50, 100, 100]) {
                assert!(seen.abs_diff(wanted) <= within, "{fits}: {seen} for {wanted}");
            }
        }
    }

    #[test]
    fn a_scan_beside_what_is_used_again_is_kept_out_and_its_end_is_noticed() {
        let (mut ghosts, mut state) = (ghosts(), 1);
        // Every other read is of 900 extents that fit the cache; the others are read once.
        for at in 0..60_000 {
            read(&mut ghosts, draw(&mut state, 900), FITS);
            read(&mut ghosts, 10_000 + at, FITS);
        }
        let seen = ghosts.seen(Answered::default());
        assert_eq!(ghosts.choice(), Choice::SecondTouch);
        assert!(ghosts.curve(Answered::default()).second_touch);
        assert!(seen.second > seen.own_hits() + seen.reads / 10, "{seen:?}");
        // These addresses are read twice: only extents that enter at the first access are hit.
        for at in 0..100_000 {
            let extent = 1_000_000 + at;
            read(&mut ghosts, extent, FITS);
            read(&mut ghosts, extent, FITS);
        }
        assert_eq!(ghosts.choice(), Choice::Always);
    }

    #[test]
    fn a_cache_that_is_not_full_admits_all() {
        let (mut ghosts, mut state) = (ghosts(), 1);
        for _ in 0..50_000 {
            read(&mut ghosts, draw(&mut state, 500), FITS);
        }
        assert_eq!(ghosts.choice(), Choice::Always);
        assert!(ghosts.seen(Answered::default()).own_hits() > 0);
    }

    #[test]
    fn a_scan_that_comes_again_is_a_hit_where_it_fits_however_small_the_cache() {
        // Scans longer than the cache and shorter than its memory of streams.
        for (fits, scan) in [(4000, 14_000), (10_000, 36_000)] {
            let mut ghosts = ghosts();
            for _ in 0..10 {
                for extent in 0..scan {
                    let key = ExtentKey { volume: VolumeId(0), extent: ExtentNo(extent) };
                    if let Some(sampled) = ghosts.sampled(key) {
                        ghosts.read(sampled, &Access { in_stream: true, fits, ..Access::default() });
                    }
                }
            }
            let percent = percent(&ghosts);
            assert!(percent[..4].iter().all(|hits| *hits == 0) && percent[4] >= 60, "{fits}: {percent:?}");
        }
    }

    #[test]
    fn streams_and_parts_of_extents_do_not_enter_at_once() {
        let mut ghosts = ghosts();
        let key = |extent| ExtentKey { volume: VolumeId(0), extent: ExtentNo(extent) };
        let hits = |ghosts: &Ghosts| ghosts.seen(Answered::default()).own_hits();
        let sampled = |ghosts: &Ghosts, extent| ghosts.sampled(key(extent)).unwrap();
        for (time, hits_then) in [(1, 0), (2, 0), (3, 1)] {
            let extent = sampled(&ghosts, 1);
            ghosts.read(extent, &Access { in_stream: true, fits: FITS, ..Access::default() });
            assert_eq!(hits(&ghosts), hits_then, "time {time} in a stream");
        }
        let extent = sampled(&ghosts, 2);
        ghosts.wrote(extent, 0..8, 16, FITS);
        read(&mut ghosts, 3, FITS);
        assert!(!ghosts.curve.holds(extent.0));
        ghosts.wrote(extent, 8..16, 16, FITS);
        assert!(ghosts.curve.holds(extent.0) && ghosts.second.holds(extent.0));
    }
}
