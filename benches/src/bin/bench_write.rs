//! `cargo xtask bench write`: see `zc_bench::write`. Writes `write.md` and `write.json`.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::PathBuf;

use clap::Parser;
use zc_bench::harness::out::write;
use zc_bench::machine::{load, machine};
use zc_bench::write::report::Report;
use zc_bench::write::run::{Options, run};
use zc_bench::write::{pause, slow};

/// Durable writes, write-back beside write-through, a slow origin, and pauses of a full cache.
#[derive(Debug, Parser)]
struct Args {
    /// Folder on the SSD to be measured; files of several GiB are made in it and removed again
    #[arg(long, default_value = "target/bench/write-files")]
    dir: PathBuf,
    /// Where the report goes
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Length of one run
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(50..))]
    time: u64,
    /// Rounds; every target gets one run of every case in each
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Size of the file and of each volume
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..))]
    size: u64,
    /// How long the full cache is looked at for pauses, and pass-through beside it; 0: not
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pauses: u64,
}

fn measure(options: &Options, args: &Args, machine: String) -> anyhow::Result<Report> {
    let series = run(options, &mut |text| println!("{text}"))?;
    println!("slow origin");
    let slow = slow::run(options)?;
    println!("pauses");
    let pauses = (args.pauses > 0).then(|| pause::run(options, args.pauses)).transpose()?;
    Ok(Report { series, slow, pauses, machine })
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.out)?;
    std::fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?.join(format!("run-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let options = Options {
        dir: dir.clone(),
        time_ns: args.time * 1_000_000,
        rounds: args.rounds,
        size_bytes: args.size << 20,
    };
    let (rounds, ms) = (args.rounds, args.time);
    let machine = format!("{}, load averages {} before; {rounds} rounds of {ms} ms", machine(), load());
    let outcome = measure(&options, &args, machine);
    let removed = std::fs::remove_dir_all(&dir);
    let report = outcome?;
    removed?;
    println!("\n{}", report.goals());
    write(&args.out, "write.md", &report.markdown())?;
    write(&args.out, "write.json", &serde_json::to_string(&report.to_json())?)
}
