//! `cargo xtask bench trace FILE...`: cost of reading a trace, and of replaying it.
//!
//! `trace.md` beside this crate is a run with `--out benches`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use zc_config::Config;
use zc_policy::Kind;
use zc_replay::cache::{self, CacheSize, Replay};
use zc_replay::{Ratios, Trace, plain};
use zc_trace::{Options, Reader, alongside, thread_time};

use crate::clock::now_ns;
use crate::machine::machine;
use crate::measure::{Measured, Sample, rounds};
use crate::report::{Cell, Column, Report, target_table};

/// The daemon's manager at the grain of Nitro's figures, with deduplication and compression.
const CONFIG: &str = "[cache]\npath = \"c\"\nstate_dir = \"s\"\nweu_size = \"1 MiB\"\nextent_size = \"4 KiB\"\nprefetch_max = 0\n\
                      [[volume]]\nname = \"v\"\norigin = \"o\"\n";
const EXTENT_BYTES: u32 = 4096;

/// Measure reading and replaying traces, apart and together
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces, of any format that zcsim reads
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// Rounds; each trace is measured once in each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Size of the cache, in per cent of the trace's footprint
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    share: u32,
    /// Folder for the report
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Thousands of lines a second: of processor time, then of elapsed time.
const COLUMNS: &[Column] = &[
    ("lines", Cell::Median("lines")),
    ("reading, CPU", Cell::Spread("reading")),
    ("LRU, CPU", Cell::Spread("lru")),
    ("loading, CPU", Cell::Spread("loading")),
    ("manager, CPU", Cell::Spread("manager")),
    ("LRU while reading, elapsed", Cell::Spread("lru_elapsed")),
    ("reading, loading, manager, elapsed", Cell::Spread("manager_elapsed")),
];

/// The processor time that this thread takes for something.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_time();
    let done = work();
    (done, thread_time().saturating_sub(before))
}

fn open(path: &Path) -> anyhow::Result<Reader> {
    Reader::open(path, Options::default()).with_context(|| path.display().to_string())
}

fn measure(path: &Path, config: &Config, share: u32) -> anyhow::Result<Sample> {
    let mut reader = open(path)?;
    let (read, reading) = timed(|| reader.by_ref().try_for_each(|request| request.map(drop)));
    read?;
    let lines = reader.lines() as f64;
    let per_second = |time: Duration| lines / 1000.0 / time.as_secs_f64().max(1e-9);
    let since = |began_ns| per_second(Duration::from_nanos(now_ns() - began_ns));

    let extents = zc_replay::footprint(open(path)?, EXTENT_BYTES)?;
    let capacity = zc_core::usize_from_u64(extents * u64::from(share) / 100).max(1);
    let began_ns = now_ns();
    let mut reader = open(path)?;
    let ((done, _), lru) =
        timed(|| alongside(&mut reader, |requests| plain::run(requests, Kind::Lru, capacity, EXTENT_BYTES)));
    done?;
    let lru_elapsed = since(began_ns);

    let began_ns = now_ns();
    let mut reader = open(path)?;
    let ((trace, _), loading) =
        timed(|| alongside(&mut reader, |requests| Trace::load(requests, Ratios::default())));
    let trace = trace?;
    let replay = Replay { size: CacheSize::OfFootprint(f64::from(share)), ..Replay::default() };
    let (done, manager) = timed(|| cache::run(&trace, config, replay, |_| {}));
    done?;
    Ok(Sample::new([
        ("lines", lines),
        ("reading", per_second(reading)),
        ("lru", per_second(lru)),
        ("loading", per_second(loading)),
        ("manager", per_second(manager)),
        ("lru_elapsed", lru_elapsed),
        ("manager_elapsed", since(began_ns)),
    ]))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.out)?;
    let config = Config::parse(CONFIG, "bench").context("the configuration of the bench")?;
    let mut all = Measured::default();
    for path in &args.traces {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        all.0.extend(rounds(&name, &[("trace", path)], args.rounds, |path, round| {
            println!("round {} of {}: {}", round + 1, args.rounds, path.display());
            measure(path, &config, args.share)
        })?);
    }
    let table = target_table(&all, "trace", COLUMNS);
    println!("\n{table}");
    let preface = format!(
        "Thousands of lines a second: the median of {} rounds, and from the least to the most. The cache has {} % of what the \
         trace touches, in extents of 4 KiB. *Reading* decompresses and parses. *LRU* is the plain policy. *Manager* is the \
         daemon's, with deduplication and compression; it replays a trace that was *loaded* into memory. A line counts once, \
         however many extents its request has.\n\n{table}",
        args.rounds, args.share
    );
    let report = Report {
        name: "trace",
        title: "Reading and replaying traces",
        machine: machine(),
        preface,
        sections: String::new(),
        columns: &[],
        measured: &all,
    };
    report.publish(&args.out)
}
