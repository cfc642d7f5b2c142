//! Hit-ratio curve over cache sizes, anchored at the measured hit ratio of the cache.
//!
//! The ghost list holds single extents by address in order of use. The cache evicts whole units, shares contents,
//! prefetches, and may hold content of an earlier session, so its hits differ from the list's over the same reads. The
//! curve therefore takes the measured hit ratio for the current size. A smaller size keeps the share of hits that the
//! list found within that size; a larger one loses the share of misses that the list found within it.
//!
//! **Undecided reads.** After a start the list is empty. A read of an extent that the cache holds and the list lacks
//! is a hit at the current size, and was last used before everything in the list. So it is a miss at each smaller size
//! that the list has filled, and undecided for the others. After a warm start, a read that neither holds is undecided
//! for the larger sizes. A size has no figure while more than one read in [`OPEN_PART`] is undecided.
//!
//! Invariants: figures are 0 to 1 and do not decrease with the size; the figure of the current size is the measured
//! one.

use crate::clean::ghosts::answered::Answered;
use crate::clean::ghosts::choice::AGE_PART;

/// Lengths of the list's parts, in quarters of the cache; their ends are at a quarter, a half, one, two and four times
/// the cache.
pub(super) const CURVE_QUARTERS: &[u32] = &[1, 1, 2, 4, 8];
pub(super) const CACHE_PARTS: usize = 3;
const SIZES: usize = CURVE_QUARTERS.len();
/// Minimum sampled reads for figures of other sizes: their standard error is then 5 points.
const READS_MIN: u64 = 100;
/// Reads per undecided read at most.
const OPEN_PART: u64 = 20;
/// Cache hits per hit that the list may lack.
const LACKS_PART: f64 = 10.0;
/// Hits per hit on content stored for another address, at most.
const DUPLICATES_PART: f64 = 4.0;
/// Share of misses among all reads below which every figure of a larger size is accurate enough.
const MISSES_FEW: f64 = 0.05;

/// Sampled reads, by their position in the list.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) reads: u64,
    /// Reads of extents whose content was stored for another extent.
    pub(super) duplicates: u64,
    /// Hits by part of the list.
    pub(super) parts: [u64; SIZES],
    /// Reads of extents that the cache holds and the list lacks, by the sizes that the list had filled.
    pub(super) held: [u64; CACHE_PARTS],
    /// After a warm start, reads of extents that neither holds, by the sizes that the list had filled.
    pub(super) unseen: [u64; SIZES + 1],
    /// Hits at the current size if read misses entered at their second access.
    pub(super) second: u64,
    /// Extents read in the same period, sampled or not, and the cache hits among them.
    pub(super) answered: Answered,
    /// Extents among these that belong to volumes without admission to the cache.
    pub(super) outside: u64,
}

impl Tally {
    pub(super) fn own_hits(&self) -> u64 {
        self.hits(CACHE_PARTS) + self.held.iter().sum::<u64>()
    }

    pub(super) fn hits(&self, parts: usize) -> u64 {
        self.parts[..parts].iter().sum()
    }

    /// Adds a round, and ages the earlier ones.
    pub(super) fn add(&mut self, round: &Self) {
        let add = |count: &mut u64, more: u64| *count = *count - *count / AGE_PART + more;
        let add_all = |counts: &mut [u64], more: &[u64]| {
            counts.iter_mut().zip(more).for_each(|(count, more)| add(count, *more));
        };
        add(&mut self.reads, round.reads);
        add(&mut self.duplicates, round.duplicates);
        add_all(&mut self.parts, &round.parts);
        add_all(&mut self.held, &round.held);
        add_all(&mut self.unseen, &round.unseen);
        add(&mut self.second, round.second);
        add(&mut self.answered.read, round.answered.read);
        add(&mut self.answered.hits, round.answered.hits);
        add(&mut self.outside, round.outside);
    }
}

/// Reason for which a size has no figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFigure {
    /// The sample has too few reads.
    FewReads,
    /// Too many reads are of extents last used before the start.
    Started,
    /// Too many hits are of content that several addresses share.
    SharedContent,
}

impl NoFigure {
    /// Description for messages.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::FewReads => "too few reads yet",
            Self::Started => "too little was read since the start",
            Self::SharedContent => "too many hits are of content that several addresses share",
        }
    }
}

/// Hit-ratio curve of recent reads; older reads count less.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curve {
    /// Reads of extents in the sample.
    pub reads: u64,
    /// Hit ratios at each of [`Curve::SIZES_QUARTERS`], 0 to 1.
    pub hit_ratios: [Result<f64, NoFigure>; SIZES],
    /// Hit ratio at the current size if read misses entered at their second access.
    pub second_touch_hit_ratio: Result<f64, NoFigure>,
    /// Volumes with admission `auto` currently admit read misses at their second access.
    pub second_touch: bool,
}

impl Curve {
    /// Sizes of the curve's points, in quarters of the current size.
    pub const SIZES_QUARTERS: [u32; SIZES] = [1, 2, 4, 8, 16];

    pub(super) fn new(seen: &Tally, second_touch: bool) -> Self {
        let own = ratio(seen.answered.hits, seen.answered.read);
        let mut hit_ratios = [Err(NoFigure::FewReads); SIZES];
        let mut second_touch_hit_ratio = Err(NoFigure::FewReads);
        if seen.answered.read > 0 {
            let anchor =
                Anchor { own, outside: ratio(seen.outside, seen.answered.read).min(1.0 - own), seen };
            for (at, figure) in hit_ratios.iter_mut().enumerate() {
                *figure = anchor.at(at);
            }
            second_touch_hit_ratio = if second_touch { Ok(own) } else { anchor.second() };
        }
        Self { reads: seen.reads, hit_ratios, second_touch_hit_ratio, second_touch }
    }

    /// Hit ratio, 0 to 1, of each size as a multiple of the current one. Empty before the first read.
    pub fn points(&self) -> impl Iterator<Item = (f64, Result<f64, NoFigure>)> + use<> {
        let sizes = Self::SIZES_QUARTERS.into_iter().map(|quarters| f64::from(quarters) / 4.0);
        let has_reads = self.reads > 0 || self.hit_ratios.iter().any(Result::is_ok);
        sizes.zip(self.hit_ratios).filter(move |_| has_reads)
    }
}

/// The measured hit ratio, from which those of other sizes are computed.
struct Anchor<'a> {
    own: f64,
    /// Share of reads that hit at no size.
    outside: f64,
    seen: &'a Tally,
}

impl Anchor<'_> {
    fn at(&self, size: usize) -> Result<f64, NoFigure> {
        if size + 1 == CACHE_PARTS {
            return Ok(self.own);
        }
        if self.seen.reads < READS_MIN {
            return Err(NoFigure::FewReads);
        }
        let (hits, own_hits, open) = self.placed(size);
        if open * OPEN_PART > self.seen.reads {
            return Err(NoFigure::Started);
        }
        if !self.is_explained(size) {
            return Err(NoFigure::SharedContent);
        }
        Ok(self.scaled(own_hits, hits))
    }

    /// Returns `true` if the list accounts for most of the cache's hits and their recency, or a figure cannot be far
    /// off.
    ///
    /// The list holds addresses. It lacks hits on content stored for another address, as with clones in a store. Each
    /// address of shared content keeps all of it recent, so a smaller cache hits more often than the list predicts.
    fn is_explained(&self, size: usize) -> bool {
        let lacks = self.own - ratio(self.seen.own_hits(), self.seen.reads);
        let is_complete = lacks * LACKS_PART <= self.own;
        if size < CACHE_PARTS {
            return is_complete && ratio(self.seen.duplicates, self.seen.reads) * DUPLICATES_PART <= self.own;
        }
        is_complete || 1.0 - self.outside - self.own <= MISSES_FEW
    }

    /// Hits of the list at a size, hits at the current size among the same reads, and reads that are undecided for the
    /// size.
    fn placed(&self, size: usize) -> (u64, u64, u64) {
        let own_hits = self.seen.own_hits();
        if size < CACHE_PARTS {
            let open = self.seen.held[..=size].iter().sum();
            (self.seen.hits(size + 1), own_hits - open, open)
        } else {
            let more: u64 = self.seen.parts[CACHE_PARTS..=size].iter().sum();
            (own_hits + more, own_hits, self.seen.unseen[..=size].iter().sum())
        }
    }

    /// Hit ratio at the current size if read misses entered at their second access.
    fn second(&self) -> Result<f64, NoFigure> {
        if self.seen.reads < READS_MIN {
            return Err(NoFigure::FewReads);
        }
        if self.seen.held.iter().sum::<u64>() * OPEN_PART > self.seen.reads {
            return Err(NoFigure::Started);
        }
        Ok(self.scaled(self.seen.own_hits(), self.seen.second))
    }

    /// Scales the measured hit ratio by a ghost's hits. Fewer hits keep their share of the hits; more hits take their
    /// share from the misses.
    fn scaled(&self, own_hits: u64, hits: u64) -> f64 {
        if hits <= own_hits {
            return if own_hits == 0 { 0.0 } else { self.own * ratio(hits, own_hits) };
        }
        let misses = 1.0 - self.outside - self.own;
        let fewer = ratio(hits - own_hits, self.seen.reads.saturating_sub(own_hits));
        (self.own + misses * fewer).clamp(self.own, 1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of some thousand reads")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}
