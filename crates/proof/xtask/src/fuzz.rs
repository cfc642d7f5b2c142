//! `cargo xtask fuzz`: the fuzzers of every crate, built by the pinned stable compiler.
//!
//! Job: build each fuzz package with the coverage that libFuzzer needs, which a stable compiler can add, run the
//! fuzzers for a time, several at once, and report their results. The growing corpus is kept beside the build and
//! added to the committed seeds.
//!
//! Invariants: input length, memory and time per input are bounded; a crash, a hang or excessive memory is a failure,
//! and the input that caused it is kept and named. Versions of dependencies are those of the workspace's lock file.
//!
//! It does not find out-of-bounds reads. That needs a sanitizer, which only nightly compilers have, and matters for C
//! alone: the fuzzed crates forbid unsafe code.

use anyhow::{Context, bail};
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::fs::File;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use zc_rig::host::run::{build_dir, cargo, run, workspace};

/// Duration of each fuzzer in `cargo xtask test`, in seconds.
pub(crate) const CHECK_SECONDS: u32 = 60;
/// Address space of a fuzzer: they need 50 MB. An allocation that is not bounded fails with it.
const ADDRESS_SPACE_BYTES: u64 = 256 << 20;
/// Maximum time of one input; most take microseconds.
const INPUT_SECONDS: u32 = 10;
/// Lines of a failed fuzzer's log that are shown.
const SHOWN_LINES: usize = 40;

/// Coverage counters, traced comparisons, and assertions, as fuzzers need them.
const RUSTFLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];

/// A fuzzer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// An NBD client's bytes into a server session.
    Server,
    /// An NBD server's bytes into a client session.
    Client,
    /// Every decoder of the NBD protocol.
    Wire,
    /// Metadata blocks of the cache device.
    Blocks,
    /// WEU headers and stored extents.
    Slot,
    /// Stored bytes into the decompressors.
    Decode,
    /// Configuration files.
    Config,
    /// Lines of the control socket.
    Control,
    /// Block traces.
    Trace,
    /// Recordings of the daemon, behind their checksums.
    Recording,
    /// Batches and frames of the store's second format.
    StoreLog,
    /// Nodes of the index of the store's second format.
    StoreIndex,
}

impl Target {
    /// Name of the fuzzer, of its program and of its folder of seeds.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Folder in `crates/` of the crate whose `fuzz` folder contains it.
    const fn package(self) -> &'static str {
        match self {
            Self::Server | Self::Client | Self::Wire => "zc-nbd",
            Self::Blocks | Self::Slot => "zc-format",
            Self::Decode => "zc-reduce",
            Self::Config => "zc-config",
            Self::Control => "zc-daemon",
            Self::Trace | Self::Recording => "lab/zc-trace",
            Self::StoreLog | Self::StoreIndex => "zc-store",
        }
    }

    /// Longest input that is tried: beyond the largest structure there is nothing new.
    const fn input_bytes_max(self) -> u32 {
        match self {
            Self::Server | Self::Client | Self::Wire | Self::Trace | Self::Recording => 4 << 10,
            Self::Config | Self::Control | Self::StoreLog | Self::StoreIndex => 8 << 10,
            Self::Decode => 33 << 10,
            Self::Blocks | Self::Slot => 65 << 10,
        }
    }

    fn seeds(self) -> PathBuf {
        fuzz_folder(self.package()).join("seeds").join(self.name())
    }
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only this fuzzer (repeatable).
    #[arg(long, value_name = "TARGET")]
    target: Vec<Target>,
    /// Seconds per fuzzer.
    #[arg(long, value_name = "SECONDS", default_value_t = CHECK_SECONDS, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Concurrent fuzzers; one per core by default.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Run the one target that is named on this input only.
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with_all = ["seconds", "jobs"])]
    reproduce: Option<PathBuf>,
}

/// `cargo xtask fuzz`.
///
/// # Errors
/// A fuzzer cannot be built or started, or found something.
pub(crate) fn fuzz(args: &Args) -> anyhow::Result<()> {
    let targets = if args.target.is_empty() { Target::value_variants() } else { args.target.as_slice() };
    let place = Place::prepare(targets)?;
    if let Some(input) = &args.reproduce {
        let [target] = targets else { bail!("--reproduce takes one --target") };
        let input = std::path::absolute(input).context("cannot tell the input's place")?;
        return run(place.bounded(*target).arg(input));
    }
    let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let mut found = Vec::new();
    for batch in targets.chunks(jobs) {
        let started: Vec<Running> =
            batch.iter().map(|target| place.start(*target, args.seconds)).collect::<anyhow::Result<_>>()?;
        for running in started {
            if let Err(error) = running.finish() {
                println!("    {error:#}");
                found.push(error);
            }
        }
    }
    if !found.is_empty() {
        bail!("{} of {} fuzzers failed", found.len(), targets.len());
    }
    Ok(())
}

/// Every fuzzer, as long as `cargo xtask test` takes for each.
///
/// # Errors
/// As [`fuzz`].
pub(crate) fn check() -> anyhow::Result<()> {
    fuzz(&Args { target: Vec::new(), seconds: CHECK_SECONDS, jobs: None, reproduce: None })
}

fn fuzz_folder(package: &str) -> PathBuf {
    workspace().join("crates").join(package).join("fuzz")
}

/// Folders of programs, corpora, logs and findings.
#[derive(Debug)]
struct Place {
    root: PathBuf,
    programs: PathBuf,
}

impl Place {
    /// Builds the fuzzers.
    fn prepare(targets: &[Target]) -> anyhow::Result<Self> {
        let root = build_dir()?.join("fuzz");
        let host = host()?;
        let programs = root.join(&host).join("release");
        let packages: BTreeSet<&str> = targets.iter().map(|target| target.package()).collect();
        for package in packages {
            let folder = fuzz_folder(package);
            // Cargo drops packages that the fuzzers do not use and adds libFuzzer.
            std::fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock"))
                .with_context(|| format!("cannot give {} the workspace's versions", folder.display()))?;
            let mut build = cargo();
            build.args(["build", "--quiet", "--release", "--target", &host]);
            build.arg("--target-dir").arg(&root).arg("--manifest-path").arg(folder.join("Cargo.toml"));
            build.env("RUSTFLAGS", RUSTFLAGS.join(" ")).env_remove("CARGO_ENCODED_RUSTFLAGS");
            run(&mut build)?;
        }
        Ok(Self { root, programs })
    }

    /// Command of a fuzzer with a bounded memory.
    fn bounded(&self, target: Target) -> Command {
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={ADDRESS_SPACE_BYTES}")).args(["--core=0", "--"]);
        command.arg(self.programs.join(target.name()));
        command.arg(format!("-timeout={INPUT_SECONDS}"));
        command
    }

    fn folder(&self, name: &str, target: Target) -> anyhow::Result<PathBuf> {
        let folder = self.root.join(name).join(target.name());
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(folder)
    }

    fn start(&self, target: Target, seconds: u32) -> anyhow::Result<Running> {
        let name = target.name();
        let log = self.folder("logs", target)?.join("log");
        let found = self.folder("found", target)?;
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = self.bounded(target);
        command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
        command.arg(format!("-max_len={}", target.input_bytes_max()));
        command.arg(format!("-artifact_prefix={}/", found.display()));
        command.arg(self.folder("corpus", target)?).arg(target.seeds());
        println!("    {name}: {seconds} s, output in {}", log.display());
        let errors = output.try_clone().context("cannot share the log")?;
        let child = command.current_dir(&self.root).stdout(output).stderr(errors).spawn();
        let child = child.with_context(|| format!("cannot start the fuzzer {name} under prlimit"))?;
        Ok(Running { target, child, log })
    }
}

/// A fuzzer at work.
#[derive(Debug)]
struct Running {
    target: Target,
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Waits for the end and reports the result.
    fn finish(mut self) -> anyhow::Result<()> {
        let name = self.target.name();
        let status = self.child.wait().with_context(|| format!("cannot wait for {name}"))?;
        let log = read(&self.log)?;
        if status.success() {
            println!("    {name}: {}", done(&log)?);
            return Ok(());
        }
        let lines: Vec<&str> = log.lines().collect();
        for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
            println!("    | {line}");
        }
        let again = kept(&log).map_or_else(
            || "no input was kept".to_owned(),
            |input| format!("`cargo xtask fuzz --target {name} --reproduce {input}` shows it again"),
        );
        bail!("{name} failed ({status}); {again}");
    }
}

fn read(log: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The file that libFuzzer wrote the offending input to.
fn kept(log: &str) -> Option<&str> {
    log.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path.trim())
}

/// Returns a fuzzer's statistics. One without coverage was built wrongly and would find nothing.
fn done(log: &str) -> anyhow::Result<String> {
    let last = log.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: "));
    let number = |text: &str, key: &str| -> Option<u64> {
        let (_, rest) = text.split_once(key)?;
        rest.split_whitespace().next()?.split('/').next()?.parse().ok()
    };
    let inputs = number(log, "stat::number_of_executed_units:").context("the fuzzer did not finish")?;
    let covered = last.and_then(|last| number(last, " cov: ")).context("the fuzzer saw no coverage")?;
    let corpus = last.and_then(|last| number(last, " corp: ")).unwrap_or(0);
    Ok(format!("{inputs} inputs, {covered} places covered, corpus of {corpus}"))
}

/// The machine's target, without which the flags would be for build scripts too.
fn host() -> anyhow::Result<String> {
    let output = cargo().arg("-vV").output().context("cannot ask cargo for its version")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("cargo does not tell its host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzzer_is_built_and_has_seeds() {
        for target in Target::value_variants() {
            let manifest = std::fs::read_to_string(fuzz_folder(target.package()).join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("[[bin]]\nname = \"{}\"\n", target.name())), "{target:?}");
            let seeds = std::fs::read_dir(target.seeds()).unwrap();
            assert!(seeds.count() >= 4, "{target:?}");
        }
    }

    #[test]
    fn what_was_done_is_read_from_the_log() {
        let log = "INFO: A corpus is not provided\n\
            #8192\tpulse  cov: 514 ft: 852 corp: 149/11463b lim: 3332 exec/s: 78739 rss: 28Mb\n\
            #9000\tDONE   cov: 520 ft: 860 corp: 150/12Kb lim: 3332 exec/s: 78000 rss: 28Mb\n\
            stat::number_of_executed_units: 9000\n";
        assert_eq!(done(log).unwrap(), "9000 inputs, 520 places covered, corpus of 150");
        assert!(done(&log.replace(" cov: ", " ")).unwrap_err().to_string().contains("coverage"));
        assert!(done("#1\tINITED cov: 1 ft: 1\n").unwrap_err().to_string().contains("finish"));
    }

    #[test]
    fn the_kept_input_is_named() {
        let log = "panicked\nartifact_prefix='/f/'; Test unit written to /f/crash-00ff\nBase64: aGk=\n";
        assert_eq!(kept(log), Some("/f/crash-00ff"));
        assert_eq!(kept("nothing"), None);
    }

    #[test]
    fn the_host_is_a_target() {
        assert!(host().unwrap().contains("linux"));
    }
}
