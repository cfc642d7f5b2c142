//! `cargo xtask bench store`: see `zc_bench::store`. Writes `store.md`; with `--out benches` the one that is kept beside
//! this crate.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::PathBuf;

use clap::Parser;
use zc_bench::machine::machine;
use zc_bench::store::overwrite::Rounds;
use zc_bench::store::report::markdown;
use zc_bench::store::{Size, run};

/// What a pool asks of its device, and how long clients wait for it
#[derive(Debug, Parser)]
struct Args {
    /// Size of the device in memory
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(256..=65_536))]
    device: u64,
    /// Overwrites before anything is counted, in per cent of the volume
    #[arg(long, value_name = "PERCENT", default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    before: u64,
    /// Overwrites that are counted, in per cent of the volume
    #[arg(long, value_name = "PERCENT", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    counted: u64,
    /// Only loads whose name contains this, such as "zipf"
    #[arg(long, default_value = "")]
    only: String,
    /// Where the report goes
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.out)?;
    let rounds = Rounds { before_percent: args.before, counted_percent: args.counted };
    let measured =
        run(Size { device_bytes: args.device << 20, rounds }, &args.only, &mut |text| println!("{text}"))?;
    let how = format!(
        "The daemon's pool on a device of {} MiB in memory, with the time of a model: an SSD with 20 us an operation and \
         1 GB/s, a disk with 12 ms a seek and 180 MB/s. Volumes are overwritten by {} % before anything is counted, then by \
         {} %. Only the times of processors depend on the machine: {}.",
        args.device,
        args.before,
        args.counted,
        machine()
    );
    let text = markdown(&measured, &how);
    let path = args.out.join("store.md");
    std::fs::write(&path, &text)?;
    println!("\n{text}\n{}", path.display());
    Ok(())
}
