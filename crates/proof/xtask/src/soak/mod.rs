//! `cargo xtask soak`: the simulator over ranges of seeds, for hours, in the background.
//!
//! Job: build the simulator with assertions and release optimisation, run batches of seeds of the cache and of the
//! store, record each batch, and report the first violation with the command that reproduces it.
//!
//! Invariants: a batch is recorded when it has ended, never before, so an interrupted soak loses at most one. All
//! batches of a run use one program, which is copied so that later builds do not replace it. A seed that failed is
//! tried again first, until it passes. Processor time and memory of a batch are bounded.
//!
//! It does not judge runs. The simulator does.

mod summary;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::num::NonZero;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use summary::{Failure, Stretch, Summary};
use zc_rig::host::run::{build_dir, cargo, now, run, show, workspace};

/// The profile in the workspace's manifest.
const PROFILE: &str = "soak";
/// Processor time of a batch, over all threads: a seed that never ends is a failure and not a silence.
const BATCH_CPU_SECONDS: u32 = 2 * 3600;
/// Address space of a batch, so that a seed with unbounded memory cannot exhaust the machine.
const BATCH_ADDRESS_BYTES: u64 = 8 << 30;
/// Most seeds in a batch, which an interruption may lose.
const BATCH_SEEDS_MAX: u64 = 100_000;
/// Exit statuses of `zcsim`: all clean, a violation, and missing coverage.
const GOOD: [i32; 3] = [0, 1, 3];

/// Simulated core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    /// The cache manager.
    Cache,
    /// The store.
    Store,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Store => "store",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Cache => &["fuzz"],
            Self::Store => &["fuzz", "--store"],
        }
    }
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First seed of each side; by default the one after the last that was tried.
    #[arg(long, value_name = "SEED")]
    from: Option<u64>,
    /// Number of seeds of each side.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Start no batch after this time; 10 if neither this nor --seeds is given.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..))]
    minutes: Option<u32>,
    /// Only this side (repeatable); by default both, a batch of each in turn.
    #[arg(long, value_name = "SIDE")]
    side: Vec<Side>,
    /// Seeds of one batch.
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u64).range(1..=BATCH_SEEDS_MAX))]
    batch: u64,
    /// Seeds tried at the same time; one per core by default.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Continue after a violation; the exit code still reports it.
    #[arg(long)]
    keep_going: bool,
    /// Discard the records of earlier runs.
    #[arg(long)]
    afresh: bool,
    /// Only report the seeds tried so far.
    #[arg(long, conflicts_with_all = ["from", "seeds", "minutes", "afresh"])]
    report: bool,
}

/// `cargo xtask soak`.
///
/// # Errors
/// The simulator cannot be built or run, or a seed failed.
pub(crate) fn soak(args: &Args) -> anyhow::Result<()> {
    let folder = build_dir()?.join("soak-runs");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join("summary.json");
    if args.report {
        let summary = Summary::load(&path)?;
        println!("{}", summary.table());
        return verdict(&summary);
    }
    let _lock = lock(&folder)?;
    if args.afresh && path.exists() {
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    let mut soak = Soak { summary: Summary::load(&path)?, path, place: Place::prepare(folder)? };
    let ran = soak.run(args);
    println!("{}", soak.summary.table());
    ran?;
    verdict(&soak.summary)
}

/// Another soak would write the same summary.
fn lock(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if file.try_lock().is_err() {
        bail!("another soak is running: {} is locked", path.display());
    }
    Ok(file)
}

fn verdict(summary: &Summary) -> anyhow::Result<()> {
    let failures = summary.failures();
    let Some(first) = failures.first() else { return Ok(()) };
    println!("first violation: {}", tell(first));
    bail!("{} seeds violate a guarantee", failures.len());
}

/// Formats a violation, with the command that reproduces it.
fn tell(failure: &Failure) -> String {
    let again = format!(
        "cargo run --locked --profile {PROFILE} --package zcsim -- {} --seed {}",
        failure.side.arguments().join(" "),
        failure.seed
    );
    let shorter = match failure.side {
        Side::Cache => format!("\n  shorter:  {again} --shrink"),
        Side::Store => String::new(),
    };
    format!(
        "{} seed {} at revision {}: {}\n  again:    {again} --trace{shorter}",
        failure.side.name(),
        failure.seed,
        failure.revision,
        failure.text
    )
}

/// The program under test, and the folder of its output.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    program: PathBuf,
    revision: String,
}

impl Place {
    fn prepare(folder: PathBuf) -> anyhow::Result<Self> {
        let revision = revision()?;
        run(cargo().args(["build", "--locked", "--quiet", "--profile", PROFILE, "--package", "zcsim"]))?;
        let built = build_dir()?.join(PROFILE).join("zcsim");
        let program = folder.join("zcsim");
        // A program that is being run cannot be written to, but it can be replaced.
        let new = folder.join("zcsim.new");
        std::fs::copy(&built, &new).with_context(|| format!("cannot copy {}", built.display()))?;
        std::fs::rename(&new, &program).with_context(|| format!("cannot replace {}", program.display()))?;
        Ok(Self { folder, program, revision })
    }

    /// Command of the simulator with bounded resources.
    fn simulator(&self, side: Side) -> Command {
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={BATCH_ADDRESS_BYTES}")).arg(format!("--cpu={BATCH_CPU_SECONDS}"));
        command.args(["--core=0", "--"]).arg(&self.program).args(side.arguments());
        command
    }

    /// Runs `command` with its output in a file of that name.
    fn logged(&self, mut command: Command, log: &str) -> anyhow::Result<(i32, String, PathBuf)> {
        let path = self.folder.join(log);
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let errors = file.try_clone().context("cannot share the log")?;
        let status = command.current_dir(workspace()).stdout(file).stderr(errors).status();
        let status = status.context("cannot start the simulator under prlimit")?;
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match status.code() {
            Some(code) if GOOD.contains(&code) => Ok((code, text, path)),
            _ => {
                let ended = status.signal().map_or_else(|| status.to_string(), |s| format!("signal {s}"));
                bail!(
                    "`{}` ended with {ended}: a seed that never ends, or takes too much memory; output in {}",
                    show(&command),
                    path.display()
                )
            }
        }
    }
}

/// Returns the commit that is built, and `true` if the tree differs from it.
fn revision() -> anyhow::Result<String> {
    let git = |args: &[&str]| -> anyhow::Result<String> {
        let output = Command::new("git").args(args).current_dir(workspace()).output();
        let output = output.context("cannot start git")?;
        if !output.status.success() {
            bail!("`git {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = !git(&["status", "--porcelain"])?.is_empty();
    Ok(if changed { format!("{commit}+changes") } else { commit })
}

/// A run of this task.
#[derive(Debug)]
struct Soak {
    summary: Summary,
    path: PathBuf,
    place: Place,
}

impl Soak {
    fn run(&mut self, args: &Args) -> anyhow::Result<()> {
        self.again()?;
        let minutes = args.minutes.or_else(|| args.seeds.is_none().then_some(10));
        let until = minutes.map(|minutes| now() + Duration::from_secs(60 * u64::from(minutes)));
        let sides = if args.side.is_empty() { Side::value_variants() } else { &args.side };
        let first = |side: &Side| args.from.unwrap_or_else(|| self.summary.next(*side));
        let mut plans: Vec<Plan> =
            sides.iter().map(|side| Plan::new(*side, first(side), args.seeds, args.batch)).collect();
        loop {
            let mut ran = false;
            for plan in &mut plans {
                if !args.keep_going && !self.summary.failures().is_empty() {
                    return Ok(());
                }
                if until.is_some_and(|until| now() >= until) {
                    return Ok(());
                }
                if let Some((from, seeds)) = plan.batch() {
                    self.batch(plan.side, from, seeds, args.jobs)?;
                    ran = true;
                }
            }
            if !ran {
                return Ok(());
            }
        }
    }

    /// Retries earlier failures.
    fn again(&mut self) -> anyhow::Result<()> {
        for failure in self.summary.failures().to_vec() {
            let (side, seed) = (failure.side, failure.seed);
            let mut command = self.place.simulator(side);
            command.args(["--seed", &seed.to_string()]);
            let (code, _, _) = self.place.logged(command, &format!("again-{}-{seed}.log", side.name()))?;
            if code == 0 {
                println!("    {} seed {seed} failed before and passes now", side.name());
                self.summary.mended(side, seed);
                self.summary.save(&self.path)?;
            } else {
                println!("    {} seed {seed} fails still", side.name());
            }
        }
        Ok(())
    }

    fn batch(
        &mut self,
        side: Side,
        from: u64,
        seeds: u64,
        jobs: Option<NonZero<usize>>,
    ) -> anyhow::Result<()> {
        let mut command = self.place.simulator(side);
        command.args(["--start", &from.to_string(), "--seeds", &seeds.to_string()]);
        if let Some(jobs) = jobs {
            command.args(["--jobs", &jobs.to_string()]);
        }
        let began = now();
        let (_, text, log) = self.place.logged(command, &format!("{}.log", side.name()))?;
        let batch = Batch::read(&text).with_context(|| format!("cannot read {}", log.display()))?;
        for (seed, text) in &batch.failures {
            let kept = self.place.folder.join(format!("failed-{}-{seed}.log", side.name()));
            std::fs::copy(&log, &kept).with_context(|| format!("cannot keep {}", kept.display()))?;
            let revision = self.place.revision.clone();
            let failure = Failure { side, seed: *seed, revision, text: text.clone() };
            println!("    VIOLATION: {}\n  output:   {}", tell(&failure), kept.display());
            self.summary.failed(failure);
        }
        self.summary.tried(Stretch {
            side,
            revision: self.place.revision.clone(),
            first: from,
            // Ten violations end a batch early; seeds are taken in order.
            end: from.saturating_add(batch.seeds),
            requests: batch.requests,
        });
        self.summary.save(&self.path)?;
        self.progress(side, from, &batch, began);
        Ok(())
    }

    fn progress(&self, side: Side, from: u64, batch: &Batch, began: Instant) {
        let took = began.elapsed().as_secs_f64().max(0.001);
        let seeds = f64::from(u32::try_from(batch.seeds).unwrap_or(u32::MAX));
        println!(
            "    {} {from}..{}: {} violations, {took:.0} s, {:.1} seeds/s; {} seeds of the {} in all",
            side.name(),
            from.saturating_add(batch.seeds),
            batch.failures.len(),
            seeds / took,
            self.summary.seeds(side),
            side.name()
        );
    }
}

/// Remaining work of a side.
#[derive(Debug)]
struct Plan {
    side: Side,
    next: u64,
    end: u64,
    batch: u64,
}

impl Plan {
    fn new(side: Side, first: u64, seeds: Option<u64>, batch: u64) -> Self {
        let end = seeds.map_or(u64::MAX, |seeds| first.saturating_add(seeds));
        Self { side, next: first, end, batch }
    }

    /// First seed and number of seeds of the next batch.
    fn batch(&mut self) -> Option<(u64, u64)> {
        let (from, seeds) = (self.next, self.batch.min(self.end - self.next));
        self.next += seeds;
        (seeds > 0).then_some((from, seeds))
    }
}

/// Result of a batch.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    seeds: u64,
    requests: u64,
    failures: Vec<(u64, String)>,
}

impl Batch {
    /// Reads the output of `zcsim fuzz`.
    fn read(text: &str) -> anyhow::Result<Self> {
        let before = |line: &str, what: &str| -> Option<u64> {
            line.split_once(what)?.0.split_whitespace().next_back()?.parse().ok()
        };
        let total = |line: &&str| line.contains(" seeds in ") && line.ends_with(" violations");
        let line = text.lines().find(total).context("the simulator did not say what it did")?;
        let seeds = before(line, " seeds in ").context("no number of seeds")?;
        let requests = before(line, " requests, ").context("no number of requests")?;
        let violations = before(line, " violations").context("no number of violations")?;
        let failure_of = |line: &str| {
            let (seed, text) = line.strip_prefix("seed ")?.split_once(": ")?;
            Some((seed.parse().ok()?, text.to_owned()))
        };
        let failures: Vec<(u64, String)> = text.lines().filter_map(failure_of).collect();
        if u64::try_from(failures.len()) != Ok(violations) {
            bail!("{violations} violations are counted, {} are listed", failures.len());
        }
        Ok(Self { seeds, requests, failures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_ends_with_the_last_seed() {
        let mut plan = Plan::new(Side::Cache, 11, Some(600), 250);
        assert_eq!(plan.batch(), Some((11, 250)));
        assert_eq!(plan.batch(), Some((261, 250)));
        assert_eq!(plan.batch(), Some((511, 100)));
        assert_eq!(plan.batch(), None);
        let mut endless = Plan::new(Side::Store, u64::MAX - 5, None, 250);
        assert_eq!(endless.batch(), Some((u64::MAX - 5, 5)));
        assert_eq!(endless.batch(), None);
    }

    #[test]
    fn output_of_both_sides_is_read() {
        let cache = "  kills  12\n250 seeds in 60 s: 4 seeds/s, 8333 requests/s; 500000 requests, 9000 crash points, \
            1 violations\nseed 77: after 12 requests: G1: volume 0\n  replay: zcsim fuzz --seed 77 --ops 2000\n\
            249 passed, 1 failed\n";
        let read = Batch::read(cache).unwrap();
        assert_eq!((read.seeds, read.requests), (250, 500_000));
        assert_eq!(read.failures, [(77, "after 12 requests: G1: volume 0".to_owned())]);
        let store = "250 seeds in 9 s; 480000 requests, 0 violations\n250 passed, 0 failed\n";
        assert_eq!(
            Batch::read(store).unwrap(),
            Batch { seeds: 250, requests: 480_000, failures: Vec::new() }
        );
    }

    #[test]
    fn output_that_is_cut_off_or_contradicts_itself_is_an_error() {
        let error = Batch::read("Events\n").unwrap_err();
        assert!(error.to_string().contains("did not say"), "{error}");
        let error = Batch::read("250 seeds in 9 s; 480000 requests, 2 violations\nseed 3: G5\n").unwrap_err();
        assert!(error.to_string().contains("2 violations are counted, 1 are listed"), "{error}");
    }

    #[test]
    fn a_violation_is_told_with_the_command_that_shows_it_again() {
        let text = "after 3 requests: G5".to_owned();
        let failure = |side| Failure { side, seed: 9, revision: "abc".to_owned(), text: text.clone() };
        let text = tell(&failure(Side::Cache));
        assert!(text.starts_with("cache seed 9 at revision abc: after 3 requests: G5\n"), "{text}");
        assert!(
            text.contains("cargo run --locked --profile soak --package zcsim -- fuzz --seed 9 --trace\n")
        );
        assert!(text.ends_with("-- fuzz --seed 9 --shrink"), "{text}");
        assert!(tell(&failure(Side::Store)).ends_with("-- fuzz --store --seed 9 --trace"));
    }

    #[test]
    fn the_profile_has_assertions() {
        let manifest = std::fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
        let (_, profile) = manifest.split_once(&format!("\n[profile.{PROFILE}]\n")).unwrap();
        let profile = profile.split("\n[").next().unwrap();
        for line in ["debug-assertions = true", "overflow-checks = true"] {
            assert!(profile.contains(line), "{line}");
        }
    }

    #[test]
    fn only_one_soak_writes_a_summary() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap();
        let error = lock(folder.path()).unwrap_err();
        assert!(error.to_string().contains("another soak"), "{error}");
        drop(held);
        lock(folder.path()).unwrap();
    }
}
