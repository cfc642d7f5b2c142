//! `zcsim fuzz`: seeds over threads, progress, what was covered, how to replay.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use zc_config::{Packer, Policy};
use zc_sim::{CANARIES, Canary, Coverage, Options, SeedReport, Turns, run_seed, run_turns, shrink};

use crate::say::say;

/// Seeds within which each canary must be found.
const CANARY_SEEDS: u64 = 300;
const COVERAGE_MISSING: u8 = 3;
/// Runs that may be spent on making a failing one short.
const SHRINK_RUNS_MAX: u32 = 2000;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// Client requests per seed.
    #[arg(long, default_value_t = 2000)]
    ops: u64,
    /// Threads; default: one per CPU.
    #[arg(long)]
    jobs: Option<usize>,
    /// Run for so long instead of a number of seeds.
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// Switch on a deliberate bug (g1-stale-fill, g2-no-region-mark, ...): the run must fail.
    #[arg(long)]
    canary: Option<String>,
    /// The replacement policy (lru, fifo-reinsert, s3-fifo, shared-lru); default: each seed draws one.
    #[arg(long)]
    policy: Option<Policy>,
    /// The packer (append, first-fit, best-fit); default: each seed draws one, most of them append.
    #[arg(long)]
    packer: Option<Packer>,
    /// Check that each deliberate bug is found.
    #[arg(long)]
    canaries: bool,
    /// Run this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Run these turns of the seed only, as printed by --shrink.
    #[arg(long, requires = "seed", value_name = "LIST")]
    turns: Option<Turns>,
    /// Find the turns of the seed that are enough for it to fail.
    #[arg(long, requires = "seed", conflicts_with_all = ["turns", "trace"])]
    shrink: bool,
    /// Print every event and action of the seed to standard error.
    #[arg(long, requires = "seed")]
    trace: bool,
}

/// What all threads together have found.
struct Totals {
    coverage: Coverage,
    seeds: u64,
    ops: u64,
    failures: Vec<(u64, String)>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let canary = match &args.canary {
        None => None,
        Some(name) => match CANARIES.iter().find(|(known, _)| known == name) {
            Some((_, canary)) => Some(*canary),
            None => {
                let known: Vec<_> = CANARIES.iter().map(|(name, _)| *name).collect();
                eprintln!("zcsim: no canary is called \"{name}\"; there are {}", known.join(", "));
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
    Options { ops: args.ops, canary, replacement, packer, trace: None }
}

/// Policy and packer as they were given.
fn flags(args: &Args) -> String {
    let policy = args.policy.map(|policy| format!(" --policy {}", policy.word()));
    let packer = args.packer.map(|packer| format!(" --packer {}", packer.word()));
    policy.into_iter().chain(packer).collect()
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
    let mut lost = 0;
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for (name, canary) in CANARIES {
        let found =
            (1..=CANARY_SEEDS).find(|seed| attempt(*seed, &options(args, Some(*canary)), None).is_err());
        match found {
            Some(seed) => say!("canary {name}: found by seed {seed}"),
            None => {
                say!("canary {name}: NOT found in {CANARY_SEEDS} seeds");
                lost += 1;
            }
        }
    }
    std::panic::set_hook(quiet);
    say!("{} passed, {lost} failed", CANARIES.len() - lost);
    if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_many(args: &Args, canary: Option<Canary>) -> ExitCode {
    let jobs =
        args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let began = now();
    let until = args.minutes.map(|minutes| began + Duration::from_secs(60 * minutes));
    let last = if until.is_some() { u64::MAX } else { args.start.saturating_add(args.seeds) };
    let next = AtomicU64::new(args.start);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals { coverage: Coverage::default(), seeds: 0, ops: 0, failures: Vec::new() });
    let bar = progress(args);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| now() < until) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    let outcome = attempt(seed, &options(args, canary), None);
                    let Ok(mut totals) = totals.lock() else { return };
                    totals.seeds += 1;
                    bar.inc(1);
                    match outcome {
                        Ok(report) => {
                            totals.ops += report.ops;
                            totals.coverage.merge(&report.coverage);
                        }
                        Err(text) => {
                            totals.failures.push((seed, text));
                            stop.store(totals.failures.len() >= 10, Ordering::Relaxed);
                        }
                    }
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
