//! Sizing of a cache: hits and written bytes over cache sizes, with and without data reduction, from a sample.
//!
//! A sample at rate R runs through a cache smaller by R, in write-evict units smaller by R too, so that their number
//! is unchanged. A surplus or lack of reads in the sample counts as hits, as in SHARDS-adj: it belongs to the few most
//! read extents.
//!
//! Units are written as extents arrive, so that a sample writes its share of them. Journal, checkpoints and region
//! maps are written by time and by the number of busy regions, of which a sample has nearly all, so these are not
//! scaled. Of two traces, samples of 6 to 30 % wrote 0.45 to 0.95 times the bytes of the whole; scaled like units, it
//! would be 3 to 10 times.

use zc_config::{Compression, Config};
use zc_core::limits::WEU_BYTES_MIN;

use crate::cache::{self, CacheSize, Replay, Report, scaled};
use crate::error::ReplayError;
use crate::load::Trace;
use crate::sample::Sample;

/// Sharing and compression of contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The configured ones.
    Configured,
    /// Neither.
    None,
}

/// Estimate for a cache of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Hits over extents read.
    pub read_hit_ratio: f64,
    /// Bytes written to the cache device, as [`Report::ssd_bytes_written`] counts them.
    pub written_bytes: f64,
    /// Bytes of journal, checkpoints and region maps among them.
    pub metadata_bytes: f64,
    /// Bytes of units that were simulated: a cache has at least a few units, however small it is to be.
    pub simulated_bytes: u64,
}

impl Estimate {
    /// Estimate for the whole trace, from the report of a sample.
    fn of(report: &Report, read_hit_ratio: f64, rate: f64) -> Self {
        let units = report.stats.weu_bytes_written;
        let metadata_bytes = (report.ssd_bytes_written() - units) as f64;
        let sampled = Self {
            read_hit_ratio,
            written_bytes: units as f64 + metadata_bytes,
            metadata_bytes,
            simulated_bytes: report.unit_bytes(),
        };
        sampled.of_whole(rate)
    }

    /// Scales an estimate for this share of the addresses to all of them.
    #[must_use]
    pub fn of_whole(self, rate: f64) -> Self {
        let units = (self.written_bytes - self.metadata_bytes) / rate;
        Self { written_bytes: units + self.metadata_bytes, ..self }
    }
}

/// The configuration without reduction, or as it is. A sample has no streams of requests, and so no read-ahead.
fn configured(config: &Config, reduction: Reduction, rate: f64) -> Config {
    let mut config = config.clone();
    if rate < 1.0 {
        config.cache.prefetch_max_bytes = 0;
    }
    if reduction == Reduction::None {
        for volume in &mut config.volumes {
            volume.dedup = false;
            volume.compression = Compression::None;
            volume.compression_level = 0;
        }
    }
    config
}

/// Estimates a cache of `unit_bytes` of units.
///
/// # Errors
/// Errors of [`cache::run`].
pub fn estimate(
    sample: &Sample,
    config: &Config,
    unit_bytes: u64,
    reduction: Reduction,
) -> Result<Estimate, ReplayError> {
    let mut config = configured(config, reduction, sample.rate);
    let smaller = scaled(u64::from(config.cache.weu_bytes), sample.rate);
    let least = WEU_BYTES_MIN.max(config.cache.extent_bytes.saturating_mul(8)).min(config.cache.weu_bytes);
    let smaller = u32::try_from(smaller).unwrap_or(u32::MAX).max(1);
    config.cache.weu_bytes = least.max(1 << smaller.ilog2());
    let replay = Replay { size: CacheSize::Units(scaled(unit_bytes, sample.rate)), ..Replay::default() };
    let report = cache::run(&sample.trace, &config, replay, |_| {})?;
    let expected = sample.read_extents as f64 * sample.rate;
    let missing = expected - report.read_extents() as f64;
    let hits = (report.read_hits() as f64 + missing).clamp(0.0, expected);
    let read_hit_ratio = if expected > 0.0 { hits / expected } else { 0.0 };
    Ok(Estimate::of(&report, read_hit_ratio, sample.rate))
}

/// Simulates the whole trace, for comparison.
///
/// # Errors
/// As [`cache::run`].
pub fn simulate(
    trace: &Trace,
    config: &Config,
    unit_bytes: u64,
    reduction: Reduction,
) -> Result<(Estimate, Report), ReplayError> {
    let replay = Replay { size: CacheSize::Units(unit_bytes), ..Replay::default() };
    let report = cache::run(trace, &configured(config, reduction, 1.0), replay, |_| {})?;
    Ok((Estimate::of(&report, report.read_hit_ratio(), 1.0), report))
}
