//! `cargo xtask bench nbd`: see `zc_bench::nbd`. Writes `nbd.md`, `nbd.json` and `nbd.svg`; with `--out benches` those
//! that are kept beside this crate.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::PathBuf;

use clap::Parser;
use zc_bench::harness::out::write;
use zc_bench::machine::{load, machine};
use zc_bench::nbd::bench::run;
use zc_bench::nbd::measured::Options;
use zc_bench::nbd::{chart, report};

/// The daemon beside other servers, the file itself and a bare socket.
#[derive(Debug, Parser)]
struct Args {
    /// Folder on the SSD to be measured; files of several GiB are made in it and removed again
    #[arg(long, default_value = "target/bench/nbd-files")]
    dir: PathBuf,
    /// Where the report goes
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Length of one run
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 150, value_parser = clap::value_parser!(u64).range(50..))]
    time: u64,
    /// Rounds; every target gets one run of every case in each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Size of the file and of each volume
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..))]
    size: u64,
    /// Only cases whose name contains this, such as "8k random read"
    #[arg(long)]
    only: Option<String>,
    /// Write whole profiles of the daemon too, beside the lines of them in the report
    #[arg(long)]
    profile: bool,
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
        only: args.only,
        profiles: args.profile.then(|| args.out.clone()),
    };
    let (rounds, ms) = (args.rounds, args.time);
    let machine = format!("{}, load averages {} before; {rounds} rounds of {ms} ms", machine(), load());
    let outcome = run(&options, &mut |text| println!("{text}"));
    let removed = std::fs::remove_dir_all(&dir);
    let all = outcome?;
    removed?;
    println!("\n{}", report::goals_table(&all));
    write(&args.out, "nbd.md", &report::markdown(&all, &machine))?;
    write(&args.out, "nbd.json", &serde_json::to_string(&report::to_json(&all, &machine))?)?;
    write(&args.out, "nbd.svg", &chart::svg(&all))
}
