//! How large a cache should be: hits and bytes written over cache sizes, with and without data reduction, from a
//! sample.
//!
//! A sample at rate R runs through a cache that is smaller by R, in write-evict units that are smaller by R too, so
//! that there are as many. Reads that the sample has too few or too many of are taken for hits, as SHARDS-adj does:
//! they are those of the few extents that are read most.

use zc_config::{Compression, Config};
use zc_core::limits::WEU_BYTES_MIN;

use crate::cache::{self, CacheSize, Replay, Report, scaled};
use crate::error::ReplayError;
use crate::load::Trace;
use crate::sample::Sample;

/// Whether content is shared and compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// As the configuration says.
    Configured,
    /// Neither.
    None,
}

/// What a cache of one size would do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Hits over extents read.
    pub read_hit_ratio: f64,
    /// Bytes of units written to the cache device.
    pub written_bytes: f64,
}

/// The configuration without reduction, or as it is; without read-ahead, whose hits are not the cache's.
fn configured(config: &Config, reduction: Reduction) -> Config {
    let mut config = config.clone();
    config.cache.prefetch_max_bytes = 0;
    if reduction == Reduction::None {
        for volume in &mut config.volumes {
            volume.dedup = false;
            volume.compression = Compression::None;
            volume.compression_level = 0;
        }
    }
    config
}

/// Estimates a cache of so many bytes of units.
///
/// # Errors
/// As [`cache::run`].
pub fn estimate(
    sample: &Sample,
    config: &Config,
    unit_bytes: u64,
    reduction: Reduction,
) -> Result<Estimate, ReplayError> {
    let mut config = configured(config, reduction);
    let smaller = scaled(u64::from(config.cache.weu_bytes), sample.rate);
    let least = WEU_BYTES_MIN.max(config.cache.extent_bytes.saturating_mul(8)).min(config.cache.weu_bytes);
    let smaller = u32::try_from(smaller).unwrap_or(u32::MAX).max(1);
    config.cache.weu_bytes = least.max(1 << smaller.ilog2());
    let replay = Replay { size: CacheSize::Units(scaled(unit_bytes, sample.rate)), ..Replay::default() };
    let report = cache::run(&sample.trace, &config, replay, |_| {})?;
    let expected = sample.read_extents as f64 * sample.rate;
    let missing = expected - report.read_extents() as f64;
    let hits = (report.read_hits() as f64 + missing).clamp(0.0, expected);
    Ok(Estimate {
        read_hit_ratio: if expected > 0.0 { hits / expected } else { 0.0 },
        written_bytes: report.stats.weu_bytes_written as f64 / sample.rate,
    })
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
    let report = cache::run(trace, &configured(config, reduction), replay, |_| {})?;
    let found = Estimate {
        read_hit_ratio: report.read_hit_ratio(),
        written_bytes: report.stats.weu_bytes_written as f64,
    };
    Ok((found, report))
}
