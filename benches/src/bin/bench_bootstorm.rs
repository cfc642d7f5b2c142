//! `cargo xtask bench bootstorm`: see `zc_bench::bootstorm`. Writes `bootstorm.md`, `bootstorm.json` and
//! `bootstorm.svg`.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Parser;
use zc_bench::bootstorm::measured::Options;
use zc_bench::bootstorm::plan::Plan;
use zc_bench::bootstorm::run::{disk_bytes, run};
use zc_bench::bootstorm::{chart, report};
use zc_bench::harness::out::write;
use zc_bench::machine::{load, machine};
use zc_trace::storm::{Shape, Template};
use zc_trace::{Boot, Reader, boot};

/// The trace that `--traces` looks for.
const TRACE: &str = "zc_deb12clone-boot.fp.xz";
/// Disk that a storm may take.
const DISK_BYTES_MAX: u64 = 12_000_000_000;

/// Many machines boot from clones of one image: what does the cache cost?
#[derive(Debug, Parser)]
struct Args {
    /// Folder that holds zc_deb12clone-boot.fp.xz; without it and --template a boot is made from the seed
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Trace of a boot, with fingerprints
    #[arg(long, conflicts_with = "traces")]
    template: Option<PathBuf>,
    /// Machines; fewer if the disk they may take (12 GB) does not hold them
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=200))]
    machines: u32,
    /// What a boot's pauses come to; 0: as fast as it goes
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    boot: u64,
    /// Slices that boots are cut into
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=500))]
    slices: u32,
    /// Only this setting: ND,NC, ND,C, D,NC or D,C
    #[arg(long)]
    only: Option<String>,
    /// Tells one storm from another
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder on the SSD to be measured; files of up to 12 GB are made in it and removed again
    #[arg(long, default_value = "target/bench/bootstorm-files")]
    dir: PathBuf,
    /// Folder for the cache at 0 %, on another device than --dir; /dev/shm if there is none
    #[arg(long, value_name = "DIR")]
    tiny_cache: Option<PathBuf>,
    /// Where the report goes
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// Write a profile of the daemon for each configuration (needs perf)
    #[arg(long)]
    profile: bool,
}

/// The template, and what it is called.
fn template(args: &Args) -> anyhow::Result<(Template, String)> {
    let trace = args.template.clone().or_else(|| args.traces.as_ref().map(|folder| folder.join(TRACE)));
    let Some(trace) = trace else {
        let lines = boot(Boot { seed: args.seed, ..Boot::default() });
        let name = format!("a synthetic boot (seed {})", args.seed);
        return Ok((Template::new(lines.into_iter().map(Ok))?, name));
    };
    let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let reader = Reader::open(&trace, zc_trace::Options::default())?;
    let template = Template::new(reader).with_context(|| format!("cannot use {}", trace.display()))?;
    Ok((template, format!("the boot {name}")))
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let (template, source) = template(&args)?;
    let volume_bytes = template.bytes().next_multiple_of(4 << 20);
    let fits = |machines: &u32| disk_bytes(u64::from(*machines), volume_bytes) <= DISK_BYTES_MAX;
    let machines = (1..=args.machines).rev().find(fits).unwrap_or(0);
    ensure!(machines > 0, "one volume of {volume_bytes} bytes is too large");
    std::fs::create_dir_all(&args.out)?;
    std::fs::create_dir_all(&args.dir)?;
    let dir = args.dir.canonicalize()?.join(format!("run-{}", std::process::id()));
    let options = Options {
        dir: dir.clone(),
        tiny_cache: args.tiny_cache,
        slices: zc_core::usize_from_u32(args.slices),
        boot_ns: args.boot * 1_000_000_000,
        only: args.only,
        profiles: args.profile.then(|| args.out.clone()),
    };
    let before = load();
    let plan = Plan::new(template, machines, Shape { seed: args.seed, ..Shape::default() });
    let storm = report::storm(&plan, &source, &options);
    println!("{storm}");
    std::fs::create_dir_all(&dir)?;
    let outcome = run(&plan, &options, &mut |text| println!("{text}"));
    let removed = std::fs::remove_dir_all(&dir);
    let all = outcome?;
    removed?;
    let machine = format!("{}; load averages {before} before, {} after", machine(), load());
    write(&args.out, "bootstorm.md", &report::markdown(&all, &machine, &storm))?;
    let json = report::to_json(&all, &machine, &storm);
    write(&args.out, "bootstorm.json", &serde_json::to_string(&json)?)?;
    write(&args.out, "bootstorm.svg", &chart::svg(&all))
}
