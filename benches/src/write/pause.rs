//! Pauses: how long single writes take while the cache is full and evicts for every unit it writes.
//!
//! Slices of write-back and of pass-through take turns, so that pauses of the disk or of the machine show in both.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::run::{Case, Options, configuration};
use crate::harness::daemon::{Daemon, fill_file, make_cache};
use crate::load::{self, Content, Durability, Load, Op, Order, histogram};

/// Length of a slice.
const SLICE_NS: u64 = 5_000_000_000;
/// The cache is so many times smaller than the volume.
const TIMES: u64 = 4;
/// Bounds of the histogram's steps in milliseconds.
pub const STEPS_MS: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, f64::INFINITY];

/// Latencies of both.
#[derive(Debug)]
pub struct Pauses {
    /// Seconds of each.
    pub seconds: u64,
    /// The full cache, in nanoseconds.
    pub write_back: Histogram<u64>,
    /// The daemon without a cache, in nanoseconds.
    pub pass_through: Histogram<u64>,
    /// Units that were evicted meanwhile.
    pub evictions: u64,
}

/// Requests that took more than `from_ms` and no more than `to_ms`.
#[must_use]
pub fn between(histogram: &Histogram<u64>, from_ms: f64, to_ms: f64) -> u64 {
    let inside = |value: u64| {
        let ms = value as f64 / 1e6;
        ms > from_ms && ms <= to_ms
    };
    histogram.iter_recorded().filter(|v| inside(v.value_iterated_to())).map(|v| v.count_at_value()).sum()
}

/// Writes for `seconds` to each, one request in flight.
///
/// # Errors
/// The daemon fails.
pub fn run(options: &Options, seconds: u64) -> anyhow::Result<Pauses> {
    let dir = options.dir.join("pause");
    std::fs::create_dir_all(&dir)?;
    let mut volumes = String::new();
    for mode in ["write-back", "pass-through"] {
        let origin = dir.join(format!("{mode}.img"));
        fill_file(&origin, options.size_bytes)?;
        writeln!(
            volumes,
            "[[volume]]\nname = {mode:?}\norigin = {origin:?}\ndirect = true\nmode = {mode:?}"
        )?;
    }
    make_cache(&dir, options.size_bytes / TIMES)?;
    let daemon = Daemon::serve(&dir, &configuration(&dir, options.size_bytes / TIMES, &volumes))?;
    let whole = Load {
        op: Op::Write(Content::Noise),
        order: Order::Sequential,
        block_bytes: 128 << 10,
        depth: 2,
        connections: 1,
        time_ns: u64::MAX,
        durability: Durability::None,
        once: true,
        seed: 5,
    };
    // Full before it is looked at.
    load::run(daemon.socket(), "write-back", whole)?;
    let evictions = || crate::harness::daemon::counter(&daemon.stats()?, "evictions");
    let before = evictions()?;
    let mut pauses = Pauses { seconds, write_back: histogram(), pass_through: histogram(), evictions: 0 };
    for slice in 0..(seconds * 1_000_000_000).div_ceil(SLICE_NS) {
        let load = Case { depth: 1, durability: Durability::None }.load(SLICE_NS, slice);
        pauses.write_back.add(load::run(daemon.socket(), "write-back", load)?.latency)?;
        pauses.pass_through.add(load::run(daemon.socket(), "pass-through", load)?.latency)?;
    }
    pauses.evictions = evictions()? - before;
    Ok(pauses)
}
