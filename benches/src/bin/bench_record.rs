//! What recording a volume costs: the same loads on one daemon, without a recording, with one of everything
//! and with a sample of one in sixteen, run by run in turns.
//!
//! `cargo run --release -p zc-bench --bin bench_record`, with `zcached` built beside it.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Parser;
use serde_json::{Value, json};
use zc_bench::harness::daemon::{Daemon, ask};
use zc_bench::harness::usage::cpu_ns;
use zc_bench::load::{self, Content, Durability, Load, Op, Order};
use zc_bench::machine::{self, machine};
use zc_bench::nbd::volumes::{self, Setting, Volume};

/// Recordings: name, share.
const SHARES: [(&str, Option<&str>); 3] = [("none", None), ("all", Some("1/1")), ("1/16", Some("1/16"))];
/// The loads: name, what, requests in flight.
const CASES: [(&str, Op, u32); 4] = [
    ("4 KiB random reads, all hits, one at a time", Op::Read, 1),
    ("4 KiB random reads, all hits, 32 at a time", Op::Read, 32),
    ("4 KiB random writes of 2:1 content, 8 at a time", Op::Write(Content::Halving), 8),
    ("4 KiB random writes of 2:1 content, 32 at a time", Op::Write(Content::Halving), 32),
];
const VOLUME: Volume = Volume {
    name: "disk",
    mode: "write-through",
    compression: "lz4",
    dedup: true,
    content: Content::Halving,
};

/// Recording on and off.
#[derive(Debug, Parser)]
struct Args {
    /// Folder on the SSD to be measured
    #[arg(long, default_value = "target/bench/record-files")]
    dir: PathBuf,
    /// Length of one run
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 500)]
    time: u64,
    /// Rounds; each case runs once with each recording in each, in another order every time
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Size of the volume
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    size: u64,
}

/// A run.
#[derive(Debug)]
struct Run {
    per_second: f64,
    requests: u64,
    /// CPU time of the daemon, the recorder's thread and the end of its file included.
    cpu_ns: u64,
    /// What the recording said at its end.
    answer: Value,
}

/// Runs a load.
fn measure(daemon: &Daemon, dir: &Path, load: Load, share: Option<&'static str>) -> anyhow::Result<Run> {
    let path = dir.join("trace");
    let before_ns = cpu_ns(daemon.pid())?;
    if share.is_some() {
        let start = json!({"cmd": "record-start", "volume": VOLUME.name, "path": path, "share": share});
        let answer = ask(daemon.control(), &start)?;
        ensure!(answer["ok"] == json!(true), "nothing is recorded: {answer}");
    }
    let outcome = load::run(daemon.socket(), VOLUME.name, load)?;
    let mut answer = Value::Null;
    if share.is_some() {
        answer = ask(daemon.control(), &json!({"cmd": "record-stop", "volume": VOLUME.name}))?;
        std::fs::remove_file(&path)?;
        ensure!(answer["ok"] == json!(true), "the recording failed: {answer}");
    }
    let cpu_ns = cpu_ns(daemon.pid())?.saturating_sub(before_ns);
    Ok(Run { per_second: outcome.per_second(), requests: outcome.requests, cpu_ns, answer })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// What came of one kind of recording in one case.
#[derive(Debug, Default)]
struct Tally {
    per_second: Vec<f64>,
    ratios: Vec<f64>,
    requests: u64,
    cpu_ns: u64,
    lost: u64,
    bytes: u64,
    recorded: u64,
}

impl Tally {
    fn add(&mut self, run: &Run) {
        let number = |name: &str| run.answer[name].as_u64().unwrap_or(0);
        self.lost += number("lost");
        self.bytes += number("bytes");
        self.recorded += number("requests");
        self.requests += run.requests;
        self.cpu_ns += run.cpu_ns;
    }

    /// CPU time of the daemon for each request, in microseconds.
    fn cpu_us(&self) -> f64 {
        self.cpu_ns as f64 / 1000.0 / self.requests.max(1) as f64
    }
}

fn case(daemon: &Daemon, dir: &Path, number: usize, args: &Args) -> anyhow::Result<()> {
    let (name, op, depth) = CASES[number];
    let mut tallies = SHARES.map(|_| Tally::default());
    for round in 0..args.rounds {
        let load = Load {
            op,
            order: Order::Random,
            block_bytes: 4096,
            depth,
            connections: 1,
            time_ns: args.time * 1_000_000,
            durability: Durability::None,
            once: false,
            seed: round + 1,
        };
        let mut found = SHARES.map(|_| 0.0);
        for turn in 0..SHARES.len() {
            let which = (turn + usize::try_from(round)?) % SHARES.len();
            let run = measure(daemon, dir, load, SHARES[which].1)?;
            found[which] = run.per_second;
            tallies[which].add(&run);
        }
        for (tally, per_second) in tallies.iter_mut().zip(found) {
            tally.per_second.push(per_second);
            tally.ratios.push(per_second / found[0]);
        }
    }
    let [without, recorded @ ..] = &mut tallies;
    let cpu_us = without.cpu_us();
    println!(
        "{name}: {:.0} a second without, {cpu_us:.2} us of CPU time each",
        median(&mut without.per_second)
    );
    for ((share, _), tally) in SHARES.iter().skip(1).zip(recorded) {
        let ratio = median(&mut tally.ratios);
        println!(
            "  {share} recorded: {ratio:.3} as many (median; {:.3} to {:.3}), {:.3} times the CPU time; {:.1} bytes for each \
             that is recorded, {} of {} lost",
            tally.ratios.first().copied().unwrap_or(0.0),
            tally.ratios.last().copied().unwrap_or(0.0),
            tally.cpu_us() / cpu_us,
            tally.bytes as f64 / tally.recorded.max(1) as f64,
            tally.lost,
            tally.recorded + tally.lost,
        );
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?.join(format!("run-{}", std::process::id()));
    println!("{}, load averages {}; {} rounds of {} ms", machine(), machine::load(), args.rounds, args.time);
    let run = || {
        let (cache_bytes, size_bytes) = (args.size << 21, args.size << 20);
        let setting = Setting { cache_bytes, size_bytes, poll_max_us: 0, tcp: None, io_threads: 1 };
        let daemon = volumes::start(&dir, setting, &[VOLUME])?;
        volumes::fill(&daemon, &VOLUME)?;
        (0..CASES.len()).try_for_each(|number| case(&daemon, &dir, number, &args))
    };
    let outcome = run();
    std::fs::remove_dir_all(&dir)?;
    outcome
}
