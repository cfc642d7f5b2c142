//! `zcsim fuzz --store`: seeds of the store over threads, coverage, replay.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use zc_sim::store::{STORE_CANARIES, STORE_REQUIRED, StoreCanary, StoreOptions, StoreReport, run_store_seed};

use super::args::Args;
use super::seeds::{COVERAGE_MISSING, find_each, sweep, tell};
use crate::clock::now;
use crate::say::say;

/// Results of all threads.
struct Totals {
    coverage: BTreeMap<&'static str, u64>,
    seeds: u64,
    ops: u64,
    failures: Vec<(u64, String)>,
}

pub(super) fn run(args: &Args) -> ExitCode {
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
    let fails = |seed, bug: &StoreCanary| attempt(seed, args, Some(*bug)).is_err();
    let found = find_each(args, STORE_CANARIES, fails);
    let lost = found.into_iter().filter(|(name, found)| !tell(name, *found)).count();
    std::panic::set_hook(quiet);
    say!("{} passed, {lost} failed", STORE_CANARIES.len() - lost);
    if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_many(args: &Args, canary: Option<StoreCanary>) -> ExitCode {
    let began = now();
    let (mut coverage, mut ops) = (BTreeMap::new(), 0);
    let swept = sweep(
        args,
        |seed| attempt(seed, args, canary),
        |report: StoreReport| {
            ops += report.ops;
            for (what, count) in report.coverage {
                *coverage.entry(what).or_default() += count;
            }
        },
    );
    let totals = Totals { coverage, seeds: swept.seeds, ops, failures: swept.failures };
    report(args, &totals, began.elapsed())
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
