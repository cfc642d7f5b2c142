//! `zcsim fuzz --store`: seeds of the store over threads, what was covered, how to replay.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use zc_sim::store::{STORE_CANARIES, STORE_REQUIRED, StoreCanary, StoreOptions, StoreReport, run_store_seed};

use crate::fuzz::{Args, CANARY_SEEDS, COVERAGE_MISSING, jobs, now, progress};
use crate::say::say;

/// What all threads together have found.
#[derive(Default)]
struct Totals {
    coverage: BTreeMap<&'static str, u64>,
    seeds: u64,
    ops: u64,
    failures: Vec<(u64, String)>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let canary = match &args.canary {
        None => None,
        Some(name) => match STORE_CANARIES.iter().find(|(known, _)| known == name) {
            Some((_, canary)) => Some(*canary),
            None => {
                let known: Vec<_> = STORE_CANARIES.iter().map(|(name, _)| *name).collect();
                eprintln!(
                    "zcsim: no canary of the store is called \"{name}\"; there are {}",
                    known.join(", ")
                );
                return ExitCode::from(2);
            }
        },
    };
    if args.canaries {
        return run_canaries(args);
    }
    if let Some(seed) = args.seed {
        return run_one(seed, args, canary);
    }
    run_many(args, canary)
}

/// Runs a seed; a panic of the store is a finding like any other.
fn attempt(seed: u64, args: &Args, canary: Option<StoreCanary>) -> Result<StoreReport, String> {
    let trace = args.trace.then_some((|line: &str| eprintln!("{line}")) as fn(&str));
    let options = StoreOptions { ops: args.ops, canary, trace };
    match catch_unwind(AssertUnwindSafe(|| run_store_seed(seed, &options))) {
        Ok(outcome) => {
            outcome.map_err(|violation| format!("after {} requests: {}", violation.op, violation.text))
        }
        Err(_) => Err("the store panicked (see above)".to_owned()),
    }
}

fn run_one(seed: u64, args: &Args, canary: Option<StoreCanary>) -> ExitCode {
    match attempt(seed, args, canary) {
        Ok(report) => {
            say!("seed {seed}: clean, {} requests, digest {:016x}", report.ops, report.digest);
            ExitCode::SUCCESS
        }
        Err(text) => {
            say!("seed {seed}: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run_canaries(args: &Args) -> ExitCode {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut lost = 0;
    for (name, canary) in STORE_CANARIES {
        match (1..=CANARY_SEEDS).find(|seed| attempt(*seed, args, Some(*canary)).is_err()) {
            Some(seed) => say!("canary {name}: found by seed {seed}"),
            None => {
                say!("canary {name}: not found in {CANARY_SEEDS} seeds");
                lost += 1;
            }
        }
    }
    std::panic::set_hook(quiet);
    say!("{} passed, {lost} failed", STORE_CANARIES.len() - lost);
    if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_many(args: &Args, canary: Option<StoreCanary>) -> ExitCode {
    let began = now();
    let until = args.minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let last = if until.is_some() { u64::MAX } else { args.start.saturating_add(args.seeds) };
    let next = AtomicU64::new(args.start);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    let bar = progress(args);
    std::thread::scope(|scope| {
        for _ in 0..jobs(args) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| now() < until) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    let outcome = attempt(seed, args, canary);
                    let Ok(mut totals) = totals.lock() else { return };
                    bar.inc(1);
                    totals.add(seed, outcome);
                    stop.store(totals.failures.len() >= 10, Ordering::Relaxed);
                }
            });
        }
    });
    bar.finish_and_clear();
    match totals.into_inner() {
        Ok(totals) => report(args, &totals, began.elapsed()),
        Err(_) => ExitCode::FAILURE,
    }
}

impl Totals {
    fn add(&mut self, seed: u64, outcome: Result<StoreReport, String>) {
        self.seeds += 1;
        match outcome {
            Ok(report) => {
                self.ops += report.ops;
                for (what, count) in report.coverage {
                    *self.coverage.entry(what).or_default() += count;
                }
            }
            Err(text) => self.failures.push((seed, text)),
        }
    }
}

fn report(args: &Args, totals: &Totals, took: Duration) -> ExitCode {
    say!("Events and faults of the store");
    let counts: Vec<_> = totals.coverage.iter().collect();
    for row in counts.chunks(2) {
        let cells: Vec<_> = row.iter().map(|(name, count)| format!("{name:42} {count:>14}")).collect();
        say!("  {}", cells.join("   "));
    }
    let failed = totals.failures.len();
    say!("{} seeds in {} s; {} requests, {failed} violations", totals.seeds, took.as_secs(), totals.ops);
    for (seed, text) in &totals.failures {
        say!("seed {seed}: {text}");
        say!("  replay: zcsim fuzz --store --seed {seed} --ops {} --trace", args.ops);
    }
    let failed = u64::try_from(failed).unwrap_or(u64::MAX);
    say!("{} passed, {failed} failed", totals.seeds - failed);
    if failed > 0 {
        return ExitCode::FAILURE;
    }
    let missing: Vec<_> = STORE_REQUIRED.iter().filter(|what| !totals.coverage.contains_key(*what)).collect();
    if !missing.is_empty() && totals.seeds >= 300 {
        say!("never happened: {missing:?}");
        return ExitCode::from(COVERAGE_MISSING);
    }
    ExitCode::SUCCESS
}
