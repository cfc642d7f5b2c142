//! What recording a volume costs: the same loads on one daemon, with and without a recording, run by run in turns.
//!
//! `cargo run --release -p zc-bench --bin bench_record`, with `zcached` built beside it.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Parser;
use serde_json::{Value, json};
use zc_bench::load::{self, Content, Durability, Load, Op, Order};
use zc_bench::machine::{self, machine};
use zc_bench::nbd::daemon::{Daemon, Volume, ask};

/// The loads: name, what, requests in flight.
const CASES: [(&str, Op, u32); 3] = [
    ("4 KiB random reads, all hits, one at a time", Op::Read, 1),
    ("4 KiB random reads, all hits, 32 at a time", Op::Read, 32),
    ("4 KiB random writes of 2:1 content, 8 at a time", Op::Write(Content::Halving), 8),
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
    /// Rounds; each case runs once with and once without in each
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Size of the volume
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    size: u64,
}

/// Runs a load; requests per second, and what the recording said at its end.
fn measure(daemon: &Daemon, dir: &Path, load: Load, record: bool) -> anyhow::Result<(f64, Value)> {
    let path = dir.join("trace");
    if record {
        ask(daemon.control(), &json!({"cmd": "record-start", "volume": VOLUME.name, "path": path}))?;
    }
    let outcome = load::run(daemon.socket(), VOLUME.name, load)?;
    if !record {
        return Ok((outcome.per_second(), Value::Null));
    }
    let told = ask(daemon.control(), &json!({"cmd": "record-stop", "volume": VOLUME.name}))?;
    std::fs::remove_file(&path)?;
    ensure!(told["ok"] == json!(true), "the recording failed: {told}");
    Ok((outcome.per_second(), told))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn case(daemon: &Daemon, dir: &Path, number: usize, args: &Args) -> anyhow::Result<()> {
    let (name, op, depth) = CASES[number];
    let (mut off, mut ratios, mut lost, mut bytes, mut requests) = (Vec::new(), Vec::new(), 0, 0, 0);
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
        let first = measure(daemon, dir, load, round % 2 == 1)?;
        let second = measure(daemon, dir, load, round % 2 == 0)?;
        let (without, with) = if round % 2 == 0 { (first, second) } else { (second, first) };
        off.push(without.0);
        ratios.push(with.0 / without.0);
        let number = |name: &str| with.1[name].as_u64().unwrap_or(0);
        (lost, bytes, requests) =
            (lost + number("lost"), bytes + number("bytes"), requests + number("requests"));
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "{name}: {:.0} a second without; with over without {:.3} (median; {least:.3} to {most:.3}); {:.1} bytes a request, \
         {lost} of {} lost",
        median(&mut off),
        median(&mut ratios),
        bytes as f64 / requests.max(1) as f64,
        requests + lost,
    );
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?.join(format!("run-{}", std::process::id()));
    println!("{}, load averages {}; {} rounds of {} ms", machine(), machine::load(), args.rounds, args.time);
    let run = || {
        let daemon = Daemon::start(&dir, args.size << 21, &[VOLUME], args.size << 20, 0)?;
        daemon.fill(&VOLUME)?;
        (0..CASES.len()).try_for_each(|number| case(&daemon, &dir, number, &args))
    };
    let outcome = run();
    std::fs::remove_dir_all(&dir)?;
    outcome
}
