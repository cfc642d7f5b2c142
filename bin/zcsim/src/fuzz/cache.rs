//! `zcsim fuzz` without `--store`: seeds of the cache manager, coverage, replay.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use zc_sim::{
    CANARIES, Canary, Coverage, Options, Profile, SeedReport, Turns, manager_bugs, run_seed, run_turns,
    shrink,
};

use super::args::Args;
use super::seeds::{COVERAGE_MISSING, find_each, sweep, tell};
use crate::clock::now;
use crate::say::say;

/// Minimum share of writes in a full run whose contents are unique.
const UNIQUE_PERCENT_MIN: u64 = 50;
/// Runs that may be spent on making a failing one short.
const SHRINK_RUNS_MAX: u32 = 2000;

/// Results of all threads.
struct Totals {
    coverage: Coverage,
    digests: Digests,
    seeds: u64,
    ops: u64,
    failures: Vec<(u64, String)>,
}

/// Sums over all clean seeds, so that their order is irrelevant.
#[derive(Debug, Default)]
struct Digests {
    values: u64,
    actions: u64,
}

impl Digests {
    const fn add(&mut self, report: &SeedReport) {
        self.values = self.values.wrapping_add(report.digest);
        self.actions = self.actions.wrapping_add(report.actions);
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    let canary = match &args.canary {
        None => None,
        Some(name) => match CANARIES.iter().find(|(known, _)| known == name) {
            Some((_, canary)) => Some(*canary),
            None => {
                let known: Vec<_> = CANARIES.iter().map(|(name, _)| *name).collect();
                eprintln!(
                    "zcsim: no canary of this build is called \"{name}\"; there are {}",
                    known.join(", ")
                );
                if manager_bugs().is_none() {
                    eprintln!(
                        "the cache manager's canaries need another build: `cargo xtask canaries --help`"
                    );
                }
                return ExitCode::from(2);
            }
        },
    };
    if args.canaries {
        return run_canaries(args);
    }
    if let Some(seed) = args.seed {
        if args.shrink {
            return run_shrink(seed, args, canary);
        }
        return run_one(seed, args, canary);
    }
    run_many(args, canary)
}

fn options(args: &Args, canary: Option<Canary>) -> Options {
    let replacement = args.policy.map(zc_config::manager::replacement);
    let packer = args.packer.map(zc_config::manager::packer);
    Options { ops: args.ops, canary, replacement, packer, profile: args.profile, trace: None }
}

/// Policy, packer and profile as they were given.
fn flags(args: &Args) -> String {
    let policy = args.policy.map(|policy| format!(" --policy {}", policy.word()));
    let packer = args.packer.map(|packer| format!(" --packer {}", packer.word()));
    let named = |profile| Profile::ALL.iter().find(|(_, known)| *known == profile).map(|(name, _)| *name);
    let profile = args.profile.and_then(named).map(|name| format!(" --profile {name}"));
    policy.into_iter().chain(packer).chain(profile).collect()
}

/// Runs a seed; a panic of the manager is a finding like any other.
fn attempt(seed: u64, options: &Options, turns: Option<&Turns>) -> Result<SeedReport, String> {
    let run = || match turns {
        Some(turns) => run_turns(seed, options, turns),
        None => run_seed(seed, options),
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => {
            outcome.map_err(|violation| format!("after {} requests: {}", violation.op, violation.text))
        }
        Err(_) => Err("the manager panicked (see above)".to_owned()),
    }
}

fn run_shrink(seed: u64, args: &Args, canary: Option<Canary>) -> ExitCode {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let shrunk = shrink(seed, &options(args, canary), SHRINK_RUNS_MAX);
    std::panic::set_hook(quiet);
    let Some(shrunk) = shrunk else {
        say!("seed {seed}: clean, there is nothing to shrink");
        return ExitCode::SUCCESS;
    };
    say!(
        "seed {seed}: {} of {} turns are enough (found in {} runs)",
        shrunk.turns.len(),
        shrunk.whole,
        shrunk.runs
    );
    let canary = args.canary.as_ref().map_or_else(String::new, |name| format!(" --canary {name}"));
    let flags = flags(args);
    say!("  replay: zcsim fuzz --seed {seed}{canary}{flags} --trace --turns {}", shrunk.turns);
    ExitCode::FAILURE
}

fn run_one(seed: u64, args: &Args, canary: Option<Canary>) -> ExitCode {
    let trace = args.trace.then_some((|line: &str| eprintln!("{line}")) as fn(&str));
    match attempt(seed, &Options { trace, ..options(args, canary) }, args.turns.as_ref()) {
        Ok(report) => {
            say!(
                "seed {seed}: clean, {} requests, digest {:016x}, of actions {:016x}",
                report.ops,
                report.digest,
                report.actions
            );
            ExitCode::SUCCESS
        }
        Err(text) => {
            say!("seed {seed}: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run_canaries(args: &Args) -> ExitCode {
    match manager_bugs() {
        Some(mark) => say!("{mark}"),
        None => {
            say!("this build has the driver's bugs alone; `cargo xtask canaries` has the manager's as well");
        }
    }
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let fails = |seed, bug: &Canary| {
        let options = options(args, Some(*bug));
        let profile = options.profile.or_else(|| bug.profile());
        attempt(seed, &Options { profile, ..options }, None).is_err()
    };
    let lost =
        find_each(args, CANARIES, fails).into_iter().filter(|(name, found)| !tell(name, *found)).count();
    std::panic::set_hook(quiet);
    say!("{} passed, {lost} failed", CANARIES.len() - lost);
    if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_many(args: &Args, canary: Option<Canary>) -> ExitCode {
    let began = now();
    let (mut coverage, mut digests, mut ops) = (Coverage::default(), Digests::default(), 0);
    let swept = sweep(
        args,
        |seed| attempt(seed, &options(args, canary), None),
        |report: SeedReport| {
            ops += report.ops;
            coverage.merge(&report.coverage);
            digests.add(&report);
        },
    );
    let totals = Totals { coverage, digests, seeds: swept.seeds, ops, failures: swept.failures };
    report(args, &totals, began.elapsed())
}

fn report(args: &Args, totals: &Totals, took: Duration) -> ExitCode {
    let seconds = took.as_secs().max(1);
    print_coverage(&totals.coverage);
    say!(
        "{} seeds in {seconds} s: {} seeds/s, {} requests/s; {} requests, {} crash points, {} violations",
        totals.seeds,
        totals.seeds / seconds,
        totals.ops / seconds,
        totals.ops,
        totals.coverage.crashes(),
        totals.failures.len()
    );
    for (seed, text) in &totals.failures {
        say!("seed {seed}: {text}");
        say!("  replay: zcsim fuzz --seed {seed} --ops {}{} --trace (or --shrink)", args.ops, flags(args));
    }
    let clean = totals.seeds - count(&totals.failures);
    say!("{clean} passed, {} failed", totals.failures.len());
    if !totals.failures.is_empty() {
        return ExitCode::FAILURE;
    }
    let unique = totals.coverage.unique_percent();
    say!("digest {:016x}, of actions {:016x}", totals.digests.values, totals.digests.actions);
    say!("{unique} % of the writes had contents of their own");
    if unique <= UNIQUE_PERCENT_MIN && totals.seeds >= 300 {
        say!("that is too few: wrong contents may look right");
        return ExitCode::from(COVERAGE_MISSING);
    }
    let missing = totals.coverage.missing();
    if !missing.is_empty() && totals.seeds >= 300 {
        say!("never happened: {}", missing.join(", "));
        return ExitCode::from(COVERAGE_MISSING);
    }
    ExitCode::SUCCESS
}

/// Prints three parts: actions of clients and devices, faults, counters of the manager.
fn print_coverage(coverage: &Coverage) {
    let part = |name: &str| match name {
        name if name.starts_with("event ") => 0,
        "kills" | "starts" => 1,
        name if name.contains('_') || !name.contains(' ') => 2,
        _ => 1,
    };
    for (number, title) in ["Events", "Crashes and faults", "Counters of the manager"].into_iter().enumerate()
    {
        say!("{title}");
        let counts: Vec<_> = coverage.iter().filter(|(name, _)| part(name) == number).collect();
        for row in counts.chunks(2) {
            let cells: Vec<_> = row.iter().map(|(name, count)| format!("{name:42} {count:>14}")).collect();
            say!("  {}", cells.join("   "));
        }
    }
}

fn count<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}
