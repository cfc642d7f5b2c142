//! `cargo xtask bench fair`: see `zc_bench::fair`. Writes `fair.md`; with `--out benches` the one that is kept beside
//! this crate.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::PathBuf;

use clap::Parser;
use zc_bench::fair::{full_house_ns, markdown, run};
use zc_bench::machine::{load, machine};

/// A quiet client beside clients that mean harm, or only much.
#[derive(Debug, Parser)]
struct Args {
    /// Folder on the SSD; files of 3 GiB are made in it and removed again
    #[arg(long, default_value = "target/bench/fair-files")]
    dir: PathBuf,
    /// Where the report goes
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Length of one run
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(50..))]
    time: u64,
    /// Only loads whose name contains this, such as "flushes"
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.out)?;
    std::fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?.join(format!("run-{}", std::process::id()));
    let machine = format!("{}, load averages {} before; {} ms each", machine(), load(), args.time);
    let outcome = run(&dir, args.time * 1_000_000, &args.only, &mut |text| println!("{text}"));
    let newcomer = args.only.is_empty().then(|| full_house_ns(&dir)).transpose();
    let removed = std::fs::remove_dir_all(&dir);
    let text = markdown(&outcome?, newcomer?, &machine);
    removed?;
    let path = args.out.join("fair.md");
    std::fs::write(&path, &text)?;
    println!("\n{text}\n{}", path.display());
    Ok(())
}
