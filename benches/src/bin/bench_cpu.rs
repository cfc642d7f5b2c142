//! `cargo xtask bench cpu`: see `zc_bench::cpu`. Writes `cpu.md` and `cpu.json`; with `--out benches` those that are kept
//! beside this crate.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::PathBuf;

use clap::Parser;
use zc_bench::cpu::field::run;
use zc_bench::cpu::measured::Options;
use zc_bench::cpu::report;
use zc_bench::harness::out::write;
use zc_bench::machine::{load, machine};

/// CPU time of a request: the daemon beside a floor and other servers.
#[derive(Debug, Parser)]
struct Args {
    /// Folder on the SSD to be measured; files of several GiB are made in it and removed again
    #[arg(long, default_value = "target/bench/cpu-files")]
    dir: PathBuf,
    /// Where the report goes
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Length of one run
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(50..))]
    time: u64,
    /// Rounds; every target gets one run of every case in each
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Size of each file and volume
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..))]
    size: u64,
    /// Only cases whose name contains this, such as "8k hit"
    #[arg(long)]
    only: Option<String>,
    /// Only targets whose name contains this, such as "zcached, noise"
    #[arg(long)]
    target: Option<String>,
    /// Connections of every case, which share its requests in flight
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    connections: Option<u32>,
    /// Take every case over TCP
    #[arg(long)]
    tcp: bool,
    /// Two rounds of 100 ms on small files: a look, not a result
    #[arg(long)]
    quick: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.out)?;
    std::fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?.join(format!("run-{}", std::process::id()));
    let (rounds, ms, size) = if args.quick { (2, 100, 64) } else { (args.rounds, args.time, args.size) };
    let options = Options {
        dir: dir.clone(),
        time_ns: ms * 1_000_000,
        rounds,
        size_bytes: size << 20,
        only: args.only,
        target: args.target,
        connections: args.connections,
        tcp: args.tcp,
    };
    let machine = format!("{}, load averages {} before; {rounds} rounds of {ms} ms", machine(), load());
    let outcome = run(&options, &mut |text| println!("{text}"));
    let removed = std::fs::remove_dir_all(&dir);
    let all = outcome?;
    removed?;
    println!("\n{}", all.aims_table());
    write(&args.out, "cpu.md", &report::markdown(&all, &machine))?;
    write(&args.out, "cpu.json", &serde_json::to_string(&report::to_json(&all, &machine))?)
}
