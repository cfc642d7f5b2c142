//! `cargo xtask bench cores`: see `zc_bench::cores`. Writes `cores.md` and `cores.json`; with `--out benches` those that
//! are kept beside this crate.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::PathBuf;

use clap::Parser;
use zc_bench::cores::measured::Options;
use zc_bench::cores::report;
use zc_bench::cores::run::run;
use zc_bench::harness::out::write;
use zc_bench::machine::{load, machine};

/// What more I/O threads bring.
#[derive(Debug, Parser)]
struct Args {
    /// Folder on the SSD to be measured; files of several GiB are made in it and removed again
    #[arg(long, default_value = "target/bench/cores-files")]
    dir: PathBuf,
    /// Where the report goes
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Length of one run
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(50..))]
    time: u64,
    /// Rounds; every daemon gets one run of every case in each
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Size of each volume
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..))]
    size: u64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.out)?;
    std::fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?.join(format!("run-{}", std::process::id()));
    let options = Options {
        dir: dir.clone(),
        time_ns: args.time * 1_000_000,
        rounds: args.rounds,
        size_bytes: args.size << 20,
    };
    let machine =
        format!("{}, load averages {} before; {} rounds of {} ms", machine(), load(), args.rounds, args.time);
    let outcome = run(&options, &mut |text| println!("{text}"));
    let removed = std::fs::remove_dir_all(&dir);
    let all = outcome?;
    removed?;
    write(&args.out, "cores.md", &report::markdown(&all, &machine))?;
    write(&args.out, "cores.json", &serde_json::to_string(&report::to_json(&all, &machine))?)
}
