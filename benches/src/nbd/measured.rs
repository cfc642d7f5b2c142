//! How a run is made, and what it comes to.

use std::path::PathBuf;

use super::cases::{Case, Target};
use crate::harness::daemon::Counters;

/// How the run is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where files, sockets and logs go: on the SSD to be measured.
    pub dir: PathBuf,
    /// Length of one run in nanoseconds.
    pub time_ns: u64,
    /// Rounds.
    pub rounds: u64,
    /// Size of the file and of each volume in bytes.
    pub size_bytes: u64,
    /// Only cases whose name contains this.
    pub only: Option<String>,
    /// Where whole profiles go, if they are wanted.
    pub profiles: Option<PathBuf>,
}

/// What one short run came to.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Round it belongs to.
    pub round: u64,
    /// Requests per second.
    pub per_second: f64,
    /// Mean and percentiles 50, 90, 99, 99.9 in microseconds.
    pub latency_us: [f64; 5],
    /// CPU microseconds of the server for each request; `None` for what has no server.
    pub cpu_us: Option<f64>,
    /// Of the daemon.
    pub counters: Option<Counters>,
    /// Requests.
    pub requests: u64,
}

/// Everything measured for one target in one case.
#[derive(Debug)]
pub struct Series {
    /// What was asked.
    pub case: Case,
    /// The server that was asked.
    pub target: Target,
    /// Timed runs.
    pub samples: Vec<Sample>,
    /// System calls per request, from a run of its own.
    pub syscalls: Option<f64>,
    /// Where the daemon's time goes, from a run of its own.
    pub profile: Option<String>,
}
