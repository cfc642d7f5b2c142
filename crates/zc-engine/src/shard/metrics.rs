//! The driver's own measurements: latencies per path, traffic of volumes, connections, errors.
//!
//! Latencies are counted twice: for all volumes together in fine steps, for quantiles, and for each volume in the few
//! steps of [`BOUNDS_NS`], which can be summed over time, volumes and machines.

use hdrhistogram::Histogram;
use serde::Serialize;
use zc_nbd::server::Command;

/// Longest latency of its own step: 100 s.
const LATENCY_NS_MAX: u64 = 100_000_000_000;

/// Upper bounds of the steps in which a volume's latencies are counted, in nanoseconds: 10 us to 10 s, three in a decade.
pub const BOUNDS_NS: [u64; 19] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// The ways of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// A read without the origin.
    Hit,
    /// Read from the origin only.
    Miss,
    /// A read from both.
    Mixed,
    /// Write, trim, zeroing.
    Write,
    /// Flush.
    Flush,
}

impl Path {
    /// All of them, by their words.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("hit", Self::Hit),
        ("miss", Self::Miss),
        ("mixed", Self::Mixed),
        ("write", Self::Write),
        ("flush", Self::Flush),
    ];
}

/// Acquisitions of the shard lock by I/O threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turns {
    pub(crate) count: u64,
    /// Nanoseconds that they took.
    pub(crate) had_ns: u64,
    /// Nanoseconds that threads waited for the shard lock.
    pub(crate) waited_ns: u64,
}

impl Turns {
    pub(crate) const fn count(&mut self, waited_ns: u64, had_ns: u64) {
        self.count += 1;
        self.had_ns = self.had_ns.saturating_add(had_ns);
        self.waited_ns = self.waited_ns.saturating_add(waited_ns);
    }
}

/// Histogram of the durations on one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// Requests that took no longer than the bound of the same number, and longer than the bound before. The last number
    /// counts those that took longer than all bounds.
    pub counts: [u64; BOUNDS_NS.len() + 1],
    /// Nanoseconds that all of them took together.
    pub sum_ns: u64,
    /// Bytes that they carried.
    pub bytes: u64,
}

/// Histograms of a volume's requests, by path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations([DurationHistogram; Path::WORDS.len()]);

impl Durations {
    /// Counts a completed request with `bytes` of data.
    pub fn count(&mut self, path: Path, nanoseconds: u64, bytes: u64) {
        let steps = &mut self.0[path as usize];
        steps.bytes = steps.bytes.saturating_add(bytes);
        steps.counts[BOUNDS_NS.partition_point(|bound| *bound < nanoseconds)] += 1;
        steps.sum_ns = steps.sum_ns.saturating_add(nanoseconds);
    }

    /// Counts and times of one path.
    pub const fn of(&self, path: Path) -> &DurationHistogram {
        &self.0[path as usize]
    }
}

/// Requests of clients to a volume since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Reads without the origin.
    pub hits: u64,
    /// Reads from the origin only, including prefetched data.
    pub misses: u64,
    /// Reads from both.
    pub mixed: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of writes.
    pub write_bytes: u64,
    /// Trims and zeroings.
    pub trims: u64,
    /// Bytes of trims and zeroings.
    pub trim_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Requests of any kind that failed.
    pub failed: u64,
    /// Requests that failed because of a device.
    pub failed_by_device: u64,
    /// Errors of the origin, those of destaging and read-ahead included.
    pub origin_errors: u64,
}

impl Traffic {
    /// Counts a completed request.
    pub(crate) fn count(&mut self, command: Command, path: Path, length: u64, failed: bool) {
        self.failed += u64::from(failed);
        match path {
            Path::Hit => self.hits += 1,
            Path::Miss => self.misses += 1,
            Path::Mixed => self.mixed += 1,
            Path::Flush => self.flushes += 1,
            Path::Write if command == Command::Write => {
                (self.writes, self.write_bytes) = (self.writes + 1, self.write_bytes + length);
            }
            Path::Write => (self.trims, self.trim_bytes) = (self.trims + 1, self.trim_bytes + length),
        }
        if matches!(path, Path::Hit | Path::Miss | Path::Mixed) {
            (self.reads, self.read_bytes) = (self.reads + 1, self.read_bytes + length);
        }
    }
}

/// Latencies and counters of the data plane.
#[derive(Debug)]
pub(crate) struct Metrics {
    histograms: [Histogram<u64>; 5],
    pub(crate) accepted: u64,
    /// Connections refused because there were too many.
    pub(crate) refused: u64,
    /// Connections closed because the client broke a rule.
    pub(crate) broken: u64,
    /// Connections closed before they chose an export, in favour of others.
    pub(crate) displaced: u64,
    /// Failed attempts to accept.
    pub(crate) accept_errors: u64,
    pub(crate) origin_errors: u64,
    pub(crate) device_errors: u64,
    /// Operations of the cache device that took too long.
    pub(crate) abandoned: u64,
    /// Times that the cache's contents were distrusted outside the device.
    pub(crate) distrusts: u64,
    /// Stored extents that failed verification.
    pub(crate) extents_dropped: u64,
    /// Reads put off because too many payload bytes were in flight.
    pub(crate) stalls: u64,
    /// Turns of I/O threads.
    pub(crate) turns: Turns,
}

/// Latencies of one path, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Requests.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90 % are not slower.
    pub p90_us: f64,
    /// 99 % are not slower.
    pub p99_us: f64,
    /// 99.9 % are not slower.
    pub p999_us: f64,
    /// Slowest.
    pub max_us: f64,
}

/// Latencies by path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Reads without the origin.
    pub hit: Latency,
    /// Reads from the origin only.
    pub miss: Latency,
    /// Reads from both.
    pub mixed: Latency,
    /// Writes, trims, zeroings.
    pub write: Latency,
    /// Flushes.
    pub flush: Latency,
}

fn histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are constant and legal: {error}"),
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            histograms: std::array::from_fn(|_| histogram()),
            accepted: 0,
            displaced: 0,
            accept_errors: 0,
            refused: 0,
            broken: 0,
            origin_errors: 0,
            device_errors: 0,
            abandoned: 0,
            distrusts: 0,
            extents_dropped: 0,
            stalls: 0,
            turns: Turns::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn record(&mut self, path: Path, nanoseconds: u64) {
        self.histograms[path as usize].saturating_record(nanoseconds.max(1));
    }

    pub(crate) fn latencies(&self) -> Latencies {
        let of = |path: Path| latency(&self.histograms[path as usize]);
        Latencies {
            hit: of(Path::Hit),
            miss: of(Path::Miss),
            mixed: of(Path::Mixed),
            write: of(Path::Write),
            flush: of(Path::Flush),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds for people; 2^52 ns are 52 days")]
fn latency(histogram: &Histogram<u64>) -> Latency {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    if histogram.is_empty() {
        return Latency::default();
    }
    Latency {
        count: histogram.len(),
        mean_us: histogram.mean() / 1000.0,
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: histogram.max() as f64 / 1000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_what_they_asked_and_how_they_were_served() {
        let mut traffic = Traffic::default();
        traffic.count(Command::Read, Path::Hit, 10, false);
        traffic.count(Command::Read, Path::Mixed, 20, true);
        traffic.count(Command::Write, Path::Write, 4, false);
        traffic.count(Command::WriteZeroes, Path::Write, 5, false);
        traffic.count(Command::Trim, Path::Write, 6, true);
        traffic.count(Command::Flush, Path::Flush, 0, false);
        let expected = Traffic {
            reads: 2,
            read_bytes: 30,
            hits: 1,
            mixed: 1,
            writes: 1,
            write_bytes: 4,
            trims: 2,
            trim_bytes: 11,
            flushes: 1,
            failed: 2,
            ..Traffic::default()
        };
        assert_eq!(traffic, expected);
    }

    #[test]
    fn a_bound_counts_what_took_as_long() {
        let mut durations = Durations::default();
        for nanoseconds in [1, 10_000, 10_001, u64::MAX] {
            durations.count(Path::Miss, nanoseconds, 3);
        }
        let steps = durations.of(Path::Miss);
        assert_eq!((steps.counts[0], steps.counts[1], steps.counts[BOUNDS_NS.len()]), (2, 1, 1));
        assert_eq!((steps.counts.iter().sum::<u64>(), steps.sum_ns), (4, u64::MAX));
        assert_eq!(steps.bytes, 12);
        assert_eq!(*durations.of(Path::Hit), DurationHistogram::default());
        assert!(Path::WORDS.iter().enumerate().all(|(number, (_, path))| *path as usize == number));
    }

    #[test]
    fn paths_are_kept_apart_and_given_in_microseconds() {
        let mut metrics = Metrics::default();
        for _ in 0..99 {
            metrics.record(Path::Hit, 2_000);
        }
        metrics.record(Path::Hit, 5_000_000);
        metrics.record(Path::Flush, u64::MAX);
        let latencies = metrics.latencies();
        assert_eq!((latencies.hit.count, latencies.flush.count, latencies.miss.count), (100, 1, 0));
        assert!((latencies.hit.p50_us - 2.0).abs() < 0.1, "{latencies:?}");
        assert!(latencies.hit.max_us > 4_900.0);
    }
}
