//! `cargo xtask bench bootstorm`: overhead of the cache while many machines boot from clones of one image.
//!
//! Job: Figure 8 of the Nitro paper (Li et al., USENIX ATC 2014) on the daemon. Volumes are clones of a boot trace
//! ([`zc_trace::storm`]) with real bytes ([`zc_trace::contents`]); each machine has a connection and one request in
//! flight, with pauses between (a booting machine processes its data). The same boots are sent to a daemon in
//! pass-through over a copy of the same volumes on the same SSD. Ratios of read latencies: a nearly empty cache (0 %)
//! shows the overhead of a miss, a full one (100 %) that of a hit over the same data uncompressed on the SSD.
//!
//! Invariants: the boots are cut into slices, and each slice is sent to both daemons in turn, in alternating order, so
//! that other load on the machine affects both alike; a figure is the median over slices, a ratio the median of ratios
//! within slices. Cache file and origins are opened with direct I/O, read buffer and read-ahead are off: each hit is
//! read from the SSD, each miss from the origin. At 100 % boots are read before the measurement until no read misses.
//!
//! Results of a run (`benches/bootstorm.md`; 60 clones of a Debian 12 boot, two cores, no other load). Ratios of the
//! median read latency to pass-through, all reads, reads up to 32 KiB, longer ones:
//!
//! | cache | ND,NC | ND,C | D,NC | D,C | goal |
//! |---|---|---|---|---|---|
//! | 0 % | 1.41; 1.32; 1.64 | 1.89; 1.59; 2.71 | 1.41; 1.33; 1.63 | 1.35; 1.30; 1.68 | 1.02 |
//! | 100 % | 1.25; 1.24; 1.33 | 1.31; 1.28; 1.48 | 1.42; 1.37; 1.66 | 1.42; 1.32; 1.63 | 1.05 |
//!
//! All goals are missed, and by more than the paper's figures. All reads hit at 100 %, with 1.2 SSD reads a hit
//! without and 1.6 to 1.8 with deduplication (units of a clone are scattered); contents shrink by 8.7 times by
//! deduplication and 1.9 times by LZ4, the SSD is written 2877 MB, 1535 MB, 329 MB and 176 MB.
//!
//! Bottleneck (`benches/bootstorm-profile.txt`): the daemon takes 79 to 92 us of CPU for a request in pass-through,
//! 113 to 126 us for a hit, 158 us with LZ4, 153 to 271 us for an inserted miss, on two cores that the clients need,
//! too. Hits: LZ4 is a fifth of the samples, two thirds of it on the workers, for which long reads wait; uncompressed
//! extents of long reads are copied and checked there, too. Misses: hashing and LZ4 on the workers take a sixth. The
//! calls of disk and scheduler are most of the rest.
//!
//! Rejected variants: 12 slices instead of 60 (quartiles of ratios as wide, medians less stable); the cache at 0 % on
//! the SSD of the origins (median ratios 0.6 to 3.3: its writes and the origins' reads queue behind each other) and on
//! tmpfs (the figures above; 1.3 to 1.9, though the shard copies the bytes that a disk would fetch itself).
//!
//! It does not judge, or verify read contents (tests do). The paper's origin was a RAID of hard disks, this one is on
//! the SSD: at 0 % an overhead of a few microseconds is a far larger share here.

mod plan;
mod report;
mod run;
mod setting;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use zc_trace::storm::{Shape, Template};
use zc_trace::{Boot, Reader, boot};

use crate::options::Folders;
use crate::report::{Report, write};
use plan::Plan;
use run::disk_bytes;

/// The trace expected in the folder of `--traces`.
const TRACE: &str = "zc_deb12clone-boot.fp.xz";
/// Disk that a storm may take.
const DISK_BYTES_MAX: u64 = 12_000_000_000;
/// A nearly empty cache: space for a few units.
const TINY_CACHE_BYTES: u64 = 32 << 20;

/// Measure the overhead of the cache while many machines boot from clones
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    folders: Folders,
    /// Folder that holds zc_deb12clone-boot.fp.xz; without it and --template a boot is made from the seed
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Trace of a boot, with fingerprints
    #[arg(long, conflicts_with = "traces")]
    template: Option<PathBuf>,
    /// Machines; fewer if the disk they may take (12 GB) does not hold them
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=200))]
    machines: u32,
    /// Sum of a boot's pauses; 0: no pauses
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    boot: u64,
    /// Slices that boots are cut into
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=500))]
    slices: u64,
    /// Only this setting: ND,NC, ND,C, D,NC or D,C
    #[arg(long)]
    only: Option<String>,
    /// Seed of the storm
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the cache at 0 %, on another device than --dir; /dev/shm if there is none
    #[arg(long, value_name = "DIR")]
    tiny_cache: Option<PathBuf>,
    /// Write a profile of the daemon for each configuration (needs perf)
    #[arg(long)]
    profile: bool,
}

/// Settings of a storm's replay.
#[derive(Debug)]
struct Options {
    dir: PathBuf,
    /// On a device of its own this cache does not hold up the origins' reads, as in the paper.
    tiny_cache: Option<PathBuf>,
    slices: u64,
    boot_ns: u64,
    only: Option<String>,
    profiles: Option<PathBuf>,
}

/// Returns the template and its name.
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

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (template, source) = template(args)?;
    let volume_bytes = template.bytes().next_multiple_of(4 << 20);
    let fits = |machines: &u32| disk_bytes(u64::from(*machines), volume_bytes) <= DISK_BYTES_MAX;
    let machines = (1..=args.machines).rev().find(fits).unwrap_or(0);
    ensure!(machines > 0, "one volume of {volume_bytes} bytes is too large");
    let work = args.folders.work()?;
    let options = Options {
        dir: work.dir.clone(),
        tiny_cache: args.tiny_cache.clone(),
        slices: args.slices,
        boot_ns: args.boot * 1_000_000_000,
        only: args.only.clone(),
        profiles: args.profile.then(|| work.out.clone()),
    };
    let plan = Plan::new(template, machines, Shape { seed: args.seed, ..Shape::default() });
    let storm = report::storm(&plan, &source, &options);
    println!("{storm}");
    let all = run::storm(&plan, &options)?;
    let report = Report {
        name: "bootstorm",
        title: "Boot storm (Nitro, Figure 8)",
        machine: format!("{}, {} after", work.machine, crate::machine::load()),
        preface: storm,
        sections: report::sections(&all),
        columns: &[],
        measured: &all,
    };
    report.publish(&work.out)?;
    write(&work.out, "bootstorm.svg", &report::chart(&all))
}
