//! How a run is made, and what it comes to.

use std::path::PathBuf;

use super::cases::{Case, Target};
use crate::nbd::report::median;

/// How the run is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where files, sockets and logs go: on the SSD to be measured.
    pub dir: PathBuf,
    /// Length of one run in nanoseconds.
    pub time_ns: u64,
    /// Rounds.
    pub rounds: u64,
    /// Size of each file and volume in bytes.
    pub size_bytes: u64,
    /// Only cases whose name contains this.
    pub only: Option<String>,
    /// Only targets whose name contains this.
    pub target: Option<String>,
    /// Connections of every case, instead of its own.
    pub connections: Option<u32>,
    /// Every case over TCP.
    pub tcp: bool,
}

/// What one short run came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Requests.
    pub requests: u64,
    /// CPU microseconds of the server for each request.
    pub cpu_us: f64,
    /// CPU microseconds of the server for each request afterwards, until the origin has all of a write-back volume.
    pub later_us: Option<f64>,
    /// Context switches of the server for each request.
    pub switches: f64,
    /// Requests per second.
    pub per_second: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// Share of hits among the daemon's reads; share of what it took in among the extents that writes offered.
    pub share: Option<f64>,
}

/// All runs of a target in a case, one for each round.
#[derive(Debug)]
pub struct Series {
    /// What was asked.
    pub case: Case,
    /// The server that was asked.
    pub target: Target,
    /// Its runs.
    pub samples: Vec<Sample>,
    /// System calls for each request, from a run of its own.
    pub syscalls: Option<f64>,
}

/// What the bytes of one write cost by themselves, in microseconds, one number for each round.
#[derive(Debug, Default)]
pub struct Work {
    /// The case and the target whose contents it were.
    pub of: Vec<(Case, Target, Vec<f64>)>,
}

/// Everything that was measured.
#[derive(Debug)]
pub struct Measured {
    /// The servers.
    pub series: Vec<Series>,
    /// The bytes of writes.
    pub work: Work,
}

/// A median with the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of some numbers; `None` without any.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        let most = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { median: median(values), least, most })
    }
}

impl Series {
    /// The spread of a figure over rounds.
    #[must_use]
    pub fn spread(&self, of: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().map(of).collect())
    }
}

impl Measured {
    /// The series of a target in a case.
    #[must_use]
    pub fn of(&self, case: &Case, target: Target) -> Option<&Series> {
        self.series.iter().find(|series| series.case == *case && series.target == target)
    }

    /// What the bytes cost by themselves, round by round.
    #[must_use]
    pub fn work_us(&self, case: &Case, target: Target) -> Option<&[f64]> {
        let found = self.work.of.iter().find(|(of, to, _)| of == case && *to == target)?;
        Some(&found.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_ends() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
