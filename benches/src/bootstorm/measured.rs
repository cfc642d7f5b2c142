//! How a run is made, and what it comes to.

use std::path::PathBuf;

use super::setting::Setting;
use crate::harness::daemon::Counters;

/// A cache that holds next to nothing: room for a few units.
pub const TINY_CACHE_BYTES: u64 = 32 << 20;

/// How the run is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where files, sockets and logs go: on the SSD to be measured.
    pub dir: PathBuf,
    /// Where the cache that holds next to nothing lies, if not there: on a device of its own it does not hold up the
    /// origins' reads, as in the paper.
    pub tiny_cache: Option<PathBuf>,
    /// Into how many slices boots are cut.
    pub slices: usize,
    /// How long a boot's pauses take together, in nanoseconds; 0 for none.
    pub boot_ns: u64,
    /// Only settings of this name.
    pub only: Option<String>,
    /// Where profiles of the daemon go, if they are wanted.
    pub profiles: Option<PathBuf>,
}

/// Latencies of one slice on one daemon.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Mean and percentiles 50, 90, 99 of reads in microseconds.
    pub read_us: [f64; 4],
    /// Median of short and of long reads ([`crate::load::SHORT_BYTES`]) in microseconds.
    pub by_length_us: [f64; 2],
    /// Writes, and their mean in microseconds.
    pub writes: (u64, f64),
    /// Reads and writes answered.
    pub requests: u64,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// CPU nanoseconds of the daemon, in steps of ten milliseconds.
    pub cpu_ns: u64,
}

/// What was measured of a configuration.
#[derive(Debug)]
pub struct Series {
    /// Deduplication and compression.
    pub setting: Setting,
    /// Whether the cache holds everything, or next to nothing.
    pub full: bool,
    /// Slices: pass-through, and the configuration.
    pub slices: Vec<(Sample, Sample)>,
    /// Counted while slices were measured.
    pub measured: Counters,
    /// Counted while the cache was filled; at 0 % nothing.
    pub filled: Counters,
}
