//! `cargo xtask bench trace FILE...`: what reading a trace costs, and what replaying it does. Writes `trace.md`; with
//! `--out benches` the one that is kept beside this crate.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use zc_bench::machine::machine;
use zc_config::Config;
use zc_policy::Kind;
use zc_replay::cache::{self, CacheSize, Replay};
use zc_replay::{Ratios, Trace, plain};
use zc_trace::{Options, Reader, alongside, thread_time};

/// The daemon's manager at the grain of Nitro's figures, with deduplication and compression.
const CONFIG: &str = "[cache]\npath = \"c\"\nstate_dir = \"s\"\nweu_size = \"1 MiB\"\nextent_size = \"4 KiB\"\nprefetch_max = 0\n\
                      [[volume]]\nname = \"v\"\norigin = \"o\"\n";
const EXTENT_BYTES: u32 = 4096;

/// Reading and replaying traces, apart and together
#[derive(Debug, Parser)]
struct Args {
    /// Traces, of any format that zcsim reads
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// Rounds; each trace is measured once in each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Size of the cache, in per cent of what the trace touches
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    share: u32,
    /// Where the report goes
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Lines a second of what was measured in one round.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Of processor time: decompressing and parsing alone.
    reading: f64,
    /// Replaying by least recent use, reading left out.
    lru: f64,
    /// Building the trace in memory for the daemon's manager.
    loading: f64,
    /// Replaying it through the manager.
    manager: f64,
    /// Of elapsed time: replaying by least recent use while a thread reads.
    lru_elapsed: f64,
    /// Loading while a thread reads, then replaying through the manager.
    manager_elapsed: f64,
}

#[expect(clippy::disallowed_methods, reason = "a benchmark has a clock")]
fn now() -> Instant {
    Instant::now()
}

/// The processor time that this thread takes for something.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_time();
    let done = work();
    (done, thread_time().saturating_sub(before))
}

fn open(path: &Path) -> anyhow::Result<Reader> {
    Reader::open(path, Options::default()).with_context(|| path.display().to_string())
}

fn measure(path: &Path, config: &Config, share: u32) -> anyhow::Result<(u64, Round)> {
    let mut reader = open(path)?;
    let (read, reading) = timed(|| reader.by_ref().try_for_each(|request| request.map(drop)));
    read?;
    let lines = reader.lines();
    let per_second = |time: Duration| lines as f64 / time.as_secs_f64().max(1e-9);

    let extents = zc_replay::footprint(open(path)?, EXTENT_BYTES)?;
    let capacity = zc_core::usize_from_u64(extents * u64::from(share) / 100).max(1);
    let began = now();
    let mut reader = open(path)?;
    let ((done, _), lru) =
        timed(|| alongside(&mut reader, |requests| plain::run(requests, Kind::Lru, capacity, EXTENT_BYTES)));
    done?;
    let lru_elapsed = per_second(began.elapsed());

    let began = now();
    let mut reader = open(path)?;
    let ((trace, _), loading) =
        timed(|| alongside(&mut reader, |requests| Trace::load(requests, Ratios::default())));
    let trace = trace?;
    let replay = Replay { size: CacheSize::OfFootprint(f64::from(share)), ..Replay::default() };
    let (done, manager) = timed(|| cache::run(&trace, config, replay, |_| {}));
    done?;
    let manager_elapsed = per_second(began.elapsed());
    let [reading, lru, loading, manager] = [reading, lru, loading, manager].map(per_second);
    Ok((lines, Round { reading, lru, loading, manager, lru_elapsed, manager_elapsed }))
}

/// The median, and from the least to the most, in thousands.
fn summary(rounds: &[Round], of: impl Fn(&Round) -> f64) -> String {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_unstable_by(f64::total_cmp);
    let thousands = |value: &f64| format!("{:.0}", value / 1000.0);
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(least), Some(median), Some(most)) => {
            format!("{} ({}..{})", thousands(median), thousands(least), thousands(most))
        }
        _ => "-".to_owned(),
    }
}

fn row(path: &Path, lines: u64, rounds: &[Round]) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let columns = [
        summary(rounds, |round| round.reading),
        summary(rounds, |round| round.lru),
        summary(rounds, |round| round.loading),
        summary(rounds, |round| round.manager),
        summary(rounds, |round| round.lru_elapsed),
        summary(rounds, |round| round.manager_elapsed),
    ];
    format!("| {name} | {lines} | {} |\n", columns.join(" | "))
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.out)?;
    let config = Config::parse(CONFIG, "bench").context("the configuration of the bench")?;
    let mut found: Vec<(u64, Vec<Round>)> = args.traces.iter().map(|_| (0, Vec::new())).collect();
    for round in 1..=args.rounds {
        for (path, (lines, rounds)) in args.traces.iter().zip(&mut found) {
            println!("round {round} of {}: {}", args.rounds, path.display());
            let (read, measured) = measure(path, &config, args.share)?;
            *lines = read;
            rounds.push(measured);
        }
    }
    let mut text = format!(
        "# Reading and replaying traces\n\n\
         Thousands of lines a second: the median of {} rounds, and from the least to the most. The cache has {} % of what the \
         trace touches, in extents of 4 KiB. *Reading* decompresses and parses. *LRU* is the plain policy. *Manager* is the \
         daemon's, with deduplication and compression; it replays a trace that was *loaded* into memory. A line counts once, \
         however many extents its request has. Machine: {}.\n\n\
         | trace | lines | reading, CPU | LRU, CPU | loading, CPU | manager, CPU | LRU while reading, elapsed | reading, loading, \
         manager, elapsed |\n|---|---|---|---|---|---|---|---|\n",
        args.rounds,
        args.share,
        machine()
    );
    for (path, (lines, rounds)) in args.traces.iter().zip(&found) {
        text.push_str(&row(path, *lines, rounds));
    }
    let path = args.out.join("trace.md");
    std::fs::write(&path, &text)?;
    println!("\n{text}\n{}", path.display());
    Ok(())
}
