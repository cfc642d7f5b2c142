//! `zcsim fuzz`: seeds over threads, progress, what was covered, how to replay.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use zc_config::{Packer, Policy};
use zc_sim::{
    CANARIES, Canary, Coverage, Options, Profile, SeedReport, Turns, manager_bugs, run_seed, run_turns,
    shrink,
};

use crate::say::say;

/// Seeds within which each canary must be found.
pub(crate) const CANARY_SEEDS: u64 = 1000;
pub(crate) const COVERAGE_MISSING: u8 = 3;
/// Of the writes of a full run more than this share has contents that no other write has.
const UNIQUE_PERCENT_MIN: u64 = 50;
/// Runs that may be spent on making a failing one short.
const SHRINK_RUNS_MAX: u32 = 2000;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the capacity-optimized store instead of the cache manager.
    #[arg(long, conflicts_with_all = ["policy", "packer", "profile", "turns", "shrink"])]
    store: bool,
    /// Number of seeds.
    #[arg(long, default_value_t = 300)]
    pub(crate) seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    pub(crate) start: u64,
    /// Client requests per seed.
    #[arg(long, default_value_t = 2000)]
    pub(crate) ops: u64,
    /// Number of threads; default is one per CPU.
    #[arg(long)]
    jobs: Option<usize>,
    /// Minutes to run, in place of a number of seeds.
    #[arg(long, value_name = "M")]
    pub(crate) minutes: Option<u64>,
    /// Deliberate bug to switch on: the run must fail.
    #[arg(long)]
    pub(crate) canary: Option<String>,
    /// Replacement policy; by default each seed draws one.
    ///
    /// Policies are lru, fifo-reinsert, s3-fifo and shared-lru.
    #[arg(long)]
    policy: Option<Policy>,
    /// Packer: append, first-fit or best-fit; default: drawn by seed.
    #[arg(long)]
    packer: Option<Packer>,
    /// Kind of machine; by default each seed draws one.
    ///
    /// Kinds are plain, shared, tiny, restarts, rotting and aimed.
    #[arg(long, value_parser = profile)]
    profile: Option<Profile>,
    /// Check that each deliberate bug is found.
    #[arg(long)]
    pub(crate) canaries: bool,
    /// Run this seed only.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Turns of the seed to run, as printed by --shrink.
    #[arg(long, requires = "seed", value_name = "LIST")]
    turns: Option<Turns>,
    /// Find the turns of the seed that are enough for it to fail.
    #[arg(long, requires = "seed", conflicts_with_all = ["turns", "trace"])]
    shrink: bool,
    /// Print every event and action of the seed to standard error.
    #[arg(long, requires = "seed")]
    pub(crate) trace: bool,
}

/// What all threads together have found.
struct Totals {
    coverage: Coverage,
    digests: Digests,
    seeds: u64,
    ops: u64,
    failures: Vec<(u64, String)>,
}

/// Of all clean seeds, added up, so that their order does not matter.
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

pub(crate) fn run(args: &Args) -> ExitCode {
    if args.store {
        return crate::fuzz_store::run(args);
    }
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
    let replacement = args.policy.map(zc_setup::replacement);
    let packer = args.packer.map(zc_setup::packer);
    Options { ops: args.ops, canary, replacement, packer, profile: args.profile, trace: None }
}

fn profile(name: &str) -> Result<Profile, String> {
    let known = Profile::ALL.iter().find(|(known, _)| *known == name);
    known
        .map(|(_, profile)| *profile)
        .ok_or_else(|| "there are plain, shared, tiny, restarts, rotting and aimed".to_owned())
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

/// Says which seed found a bug, and whether one did.
pub(crate) fn tell(name: &str, found: Option<u64>) -> bool {
    match found {
        Some(seed) => say!("canary {name}: found by seed {seed}"),
        None => say!("canary {name}: not found in {CANARY_SEEDS} seeds"),
    }
    found.is_some()
}

/// For each bug the first seed that finds it; several bugs at the same time.
pub(crate) fn find_each<B: Sync>(
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

/// What came of many seeds.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) seeds: u64,
    pub(crate) failures: Vec<(u64, String)>,
}

/// Runs all seeds that were asked for over threads, until ten have failed. What each clean one reports is added up.
pub(crate) fn sweep<R>(
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

/// In three parts: what clients and devices did, what went wrong, what the manager counted.
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

fn progress(args: &Args) -> ProgressBar {
    let bar = if args.minutes.is_some() { ProgressBar::no_length() } else { ProgressBar::new(args.seeds) };
    match ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {elapsed}, {per_sec}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[expect(clippy::disallowed_methods, reason = "the program's one clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
