//! Many seeds over threads: a sweep, and the search for the seed that finds a deliberate bug.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::args::Args;
use crate::clock::now;
use crate::say::say;

/// Seeds within which each canary must be found.
const CANARY_SEEDS: u64 = 1000;
/// Exit status of a run in which something that had to happen never did.
pub(super) const COVERAGE_MISSING: u8 = 3;

/// Reports the seed that found a bug, if any; returns `true` if one did.
pub(super) fn tell(name: &str, found: Option<u64>) -> bool {
    match found {
        Some(seed) => say!("canary {name}: found by seed {seed}"),
        None => say!("canary {name}: not found in {CANARY_SEEDS} seeds"),
    }
    found.is_some()
}

/// For each bug the first seed that finds it; several bugs at the same time.
pub(super) fn find_each<B: Sync>(
    args: &Args,
    bugs: &[(&'static str, B)],
    fails: impl Fn(u64, &B) -> bool + Sync,
) -> Vec<(&'static str, Option<u64>)> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; bugs.len()]);
    std::thread::scope(|scope| {
        for _ in 0..jobs(args) {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some((_, bug)) = bugs.get(index)
                {
                    let seed = (1..=CANARY_SEEDS).find(|seed| fails(*seed, bug));
                    if let Ok(mut found) = found.lock() {
                        found[index] = seed;
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_default();
    bugs.iter().map(|(name, _)| *name).zip(found).collect()
}

fn jobs(args: &Args) -> usize {
    args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Results of many seeds.
#[derive(Debug, Default)]
pub(super) struct Swept {
    pub(super) seeds: u64,
    pub(super) failures: Vec<(u64, String)>,
}

/// Runs all requested seeds over threads, until ten have failed. Reports of clean ones are summed.
pub(super) fn sweep<R>(
    args: &Args,
    attempt: impl Fn(u64) -> Result<R, String> + Sync,
    add: impl FnMut(R) + Send,
) -> Swept {
    let until = args.minutes.map(|minutes| now() + Duration::from_secs(60 * minutes));
    let last = if until.is_some() { u64::MAX } else { args.start.saturating_add(args.seeds) };
    let next = AtomicU64::new(args.start);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new((Swept::default(), add));
    let bar = progress(args);
    std::thread::scope(|scope| {
        for _ in 0..jobs(args) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| now() < until) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    let outcome = attempt(seed);
                    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
                    let (swept, add) = &mut *totals;
                    swept.seeds += 1;
                    bar.inc(1);
                    match outcome {
                        Ok(report) => add(report),
                        Err(text) => {
                            swept.failures.push((seed, text));
                            stop.store(swept.failures.len() >= 10, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    totals.into_inner().unwrap_or_else(PoisonError::into_inner).0
}

fn progress(args: &Args) -> ProgressBar {
    let bar = if args.minutes.is_some() { ProgressBar::no_length() } else { ProgressBar::new(args.seeds) };
    match ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {elapsed}, {per_sec}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
