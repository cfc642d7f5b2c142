//! Ghost caches: hits of the clients' reads in caches of other sizes, and under the other admission.
//!
//! A ghost cache holds addresses and no data. A sample of the extents, chosen by a hash of the address, goes through
//! ghosts that are smaller by the same rate, so that their hit ratios are those of the whole (Waldspurger and others,
//! FAST 2015 and ATC 2017). One ghost list in order of use yields the curve of hit ratios over sizes. A second one
//! admits a read miss at its second time. Where `admission = "auto"` the better of the two decides.
//!
//! **Size.** The ghost of the cache as it is holds at most [`SIZE_MAX`] addresses. When the cache holds more extents,
//! every second address is removed from the sample. Its memories of first misses and of streams are those of the
//! cache, sampled likewise. About 1.2 MiB of RAM then, however large the cache is.
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

/// Most addresses in the ghost of the cache as it is.
const SIZE_MAX: u32 = 4096;
/// Entries for each extent that is not overwritten, at most.
const DEAD_MAX: u64 = 4;
/// The ghost with the other admission has one size.
const SECOND_QUARTERS: &[u32] = &[4];
/// Caches with fewer extents than this choose nothing.
const CHOICE_MIN: u32 = 64;
/// Maximum addresses in each memory of addresses that the ghosts do not hold. The cache keeps at least 65,536, and so
/// do these, for a cache of more than 8,192 extents. Of a smaller one they forget sooner.
const REMEMBERED_MAX: u32 = 4 * SIZE_MAX;

/// Number of unheld addresses that the cache records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remembered {
    /// Missed once, where read misses enter at their second time.
    pub(crate) missed: usize,
    /// Addresses of streams, which enter at their second time in any case.
    pub(crate) streamed: usize,
}

/// A client's read of an extent, as the cache saw it when it came.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Access {
    /// Part of a sequential stream.
    pub(crate) in_stream: bool,
    /// The cache holds the extent.
    pub(crate) is_held: bool,
    /// The cache holds it as content that was stored for another extent.
    pub(crate) is_duplicate: bool,
    /// Extents that the cache has capacity for.
    pub(crate) fits: u64,
    /// The cache found content of an earlier session when it started.
    pub(crate) is_warm_start: bool,
    /// Counts of the cache up to this read.
    pub(crate) answered: Answered,
}

/// The ghosts. See the module documentation.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// One of 2 to the power of this many addresses is in the sample.
    rate_bits: u32,
    remembered: Remembered,
    curve: Stack,
    second: Stack,
    missed: Missed,
    /// Addresses of streams, which enter at their second time in any case.
    streamed: Missed,
    partial: Partial,
    round: Tally,
    tally: Tally,
    /// Counts at the begin of the round.
    answered: Answered,
    chooser: Chooser,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampled(u64);

impl Ghosts {
    /// Ghosts that have seen nothing, of a cache that remembers so much.
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

    /// The extent, if it is in the sample.
    pub(crate) fn sampled(&self, key: ExtentKey) -> Option<Sampled> {
        let hash = hash_of(key);
        is_in(hash, self.rate_bits).then_some(Sampled(hash))
    }

    /// Records a client's read of an extent of the sample.
    ///
    /// An extent that the cache holds and the list lacks is content of an earlier session, of a warm-up or of another
    /// address, unless the list is longer than the cache: then it was used longer ago than a cache of that size keeps
    /// it. It enters as if it had been read before.
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

    /// Counts a client's read of extents of a volume that the cache does not admit.
    pub(crate) const fn read_outside(&mut self, extents: u64) {
        self.round.outside += extents;
    }

    /// Records a client's write of these sectors of a sampled extent that has `all`, while the cache had capacity for
    /// `fits` extents. An extent that is written in part enters when all of it is known.
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

    /// Extents that enter the cache where the manager chooses.
    pub(crate) const fn choice(&self) -> Choice {
        self.chooser.choice()
    }

    /// Hit ratios of caches of other sizes. `answered` are the counts of the cache up to now.
    pub(crate) fn curve(&self, answered: Answered) -> Curve {
        Curve::new(&self.seen(answered), self.choice() == Choice::SecondTouch)
    }

    /// Rounds, the current one included.
    fn seen(&self, answered: Answered) -> Tally {
        let mut round = self.round;
        round.answered = answered.since(&self.answered);
        let mut all = self.tally;
        all.add(&round);
        all
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        /// An address in a set, its control byte, and the eighth of the set that stays empty.
        const MISSED_BYTES: u64 = 11;
        self.curve.ram_bytes() + self.second.ram_bytes() + 2 * u64::from(REMEMBERED_MAX) * MISSED_BYTES
    }

    /// Returns the capacity of a sampled memory for `addresses` addresses of the cache.
    fn in_sample(&self, addresses: usize) -> u32 {
        u32::try_from(addresses >> self.rate_bits).unwrap_or(u32::MAX).min(REMEMBERED_MAX)
    }

    /// Entries in the ghost of a cache with capacity for this many extents, those included that are overwritten: their
    /// share is that of the list. Takes fewer addresses in when they are too many.
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
            // The hits of all reads, scaled to the sample.
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

/// A hash of the address. Clients that choose addresses by it spoil an estimate, and nothing else.
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

    /// Reads an extent of volume 0.
    fn read(ghosts: &mut Ghosts, extent: u64, fits: u64) {
        let key = ExtentKey { volume: VolumeId(0), extent: ExtentNo(extent) };
        if let Some(sampled) = ghosts.sampled(key) {
            ghosts.read(sampled, &Access { fits, ..Access::default() });
        }
    }

    /// Hits of the list, in per cent of the reads, at each size.
    fn percent(ghosts: &Ghosts) -> Vec<u64> {
        let seen = ghosts.seen(Answered::default());
        (1..=seen.parts.len()).map(|parts| (seen.hits(parts) * 100 + seen.reads / 2) / seen.reads).collect()
    }

    /// A generator of numbers (Knuth's constants), for draws that repeat.
    fn draw(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    #[test]
    fn a_curve_rises_where_the_extents_fit() {
        let mut ghosts = ghosts();
        // Around and around: 1,500 extents in turn fit twice the cache, and no smaller one.
        for at in 0..100_000 {
            read(&mut ghosts, at % 1500, FITS);
        }
        assert_eq!(percent(&ghosts), [0, 0, 0, 100, 100]);
    }

    #[test]
    fn a_sample_of_a_large_cache_tells_what_the_whole_would() {
        for (fits, within) in [(4000, 1), (4000 * 16, 3)] {
            let (mut ghosts, mut state) = (ghosts(), 7);
            // Uniform over twice the cache: a cache of a quarter has an eighth of the hits, and so on.
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
        // Every other read is of 900 extents that fit the cache; the others come once.
        for at in 0..60_000 {
            read(&mut ghosts, draw(&mut state, 900), FITS);
            read(&mut ghosts, 10_000 + at, FITS);
        }
        let seen = ghosts.seen(Answered::default());
        assert_eq!(ghosts.choice(), Choice::SecondTouch);
        assert!(ghosts.curve(Answered::default()).second_touch);
        assert!(seen.second > seen.own_hits() + seen.reads / 10, "{seen:?}");
        // These addresses are read twice, and not again: only an extent that enters at once is hit.
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
        // Longer than the cache, and shorter than its memory of streams.
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
