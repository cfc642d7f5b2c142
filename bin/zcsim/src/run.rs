//! `zcsim run`: a trace through a reference policy, or through the cache manager under the daemon's configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use zc_core::units::ByteSize;
use zc_policy::{CAPACITY_MAX, Kind};
use zc_replay::plain::{self, Outcome};
use zc_trace::{Format, Options, Reader};

use crate::say::{self, say};
use crate::settings::{RatioArgs, Setting};
use crate::size::{Share, extent_bytes};
use crate::spent::{self, Spent};
use crate::{run_cache, run_flaz};

/// How the model of the SSD maps pages.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Mapping {
    /// Each for itself
    Page,
    /// Blocks as a whole, and log blocks
    Log,
}

impl Mapping {
    /// The model that it stands for.
    pub(crate) fn model(self) -> zc_replay::Ssd {
        match self {
            Self::Page => zc_replay::Ssd::default(),
            Self::Log => zc_replay::Ssd::LogBlocks,
        }
    }
}

/// What to run.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("driven").required(true).args(["policy", "config", "flaz"])))]
pub(crate) struct Args {
    /// Trace file, also gz, xz or zst; ARCHIVE:MEMBER for one in a tar
    #[arg(long)]
    pub(crate) trace: PathBuf,
    /// Format, if zcsim does not recognise it; see zcsim info --help
    #[arg(long)]
    format: Option<Format>,
    /// Stop at the first bad line
    #[arg(long)]
    strict: bool,
    /// Replacement policy, such as lru, s3-fifo or belady
    ///
    /// Policies: lru, fifo, clock, 2q, arc, lirs, s3-fifo, sieve, w-tinylfu, belady
    #[arg(long, conflicts_with = "config")]
    policy: Option<Kind>,
    /// Use a model of FlaZ: a direct-mapped cache of compressed blocks
    #[arg(long, conflicts_with_all = ["config", "policy"], requires = "cache_share")]
    pub(crate) flaz: bool,
    /// Codec of --flaz; none is a cache without compression
    #[arg(long, value_enum, default_value = "lz4", requires = "flaz")]
    pub(crate) codec: run_flaz::CodecArg,
    /// Lines per block of the device, for --flaz
    ///
    /// Choose it a little below the compression ratio of the cached data
    #[arg(long, value_name = "X", default_value_t = 1.5, requires = "flaz")]
    pub(crate) overbooking: f64,
    /// Size of a frame of --flaz, a power of two from 8 KiB
    #[arg(long, value_name = "SIZE", default_value = "32K", requires = "flaz")]
    pub(crate) frame_size: ByteSize,
    /// Capacity in extents, for --policy
    #[arg(long, value_name = "N", conflicts_with = "config")]
    cache_extents: Option<usize>,
    /// Capacity as a share of the trace's footprint, such as 10%
    ///
    /// With a configuration the write-evict units have this size, and its cache.size does not count
    #[arg(long, value_name = "SHARE", conflicts_with = "cache_extents")]
    pub(crate) cache_share: Option<Share>,
    /// Size of an extent for --policy, a power of two from 4 KiB
    #[arg(long, value_name = "SIZE", default_value = "4K", conflicts_with_all = ["config", "flaz"])]
    extent_size: ByteSize,
    /// Use the cache manager itself with this daemon configuration
    ///
    /// Files that it names are not opened
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Another value for a key of --config, such as cache.dedup=false
    #[arg(long, value_name = "KEY=VALUE", requires = "config")]
    pub(crate) set: Vec<Setting>,
    /// Compare every read with what was written last
    #[arg(long, requires = "config")]
    pub(crate) check: bool,
    /// Send recipes of the origin's contents to the cache (Nitro)
    #[arg(long, requires = "config")]
    pub(crate) recipes: bool,
    /// Model of an SSD for --config, mapped by page or with log blocks
    ///
    /// The page-mapped SSD keeps 7 % back
    #[arg(long, value_name = "MAPPING", requires = "config")]
    pub(crate) ssd: Option<Mapping>,
    /// Device profile on which --config is simulated over time
    ///
    /// Profiles: hdd, flaz-1d1s, flaz-8d2s, nitro-tps, nitro-cos
    #[arg(long, value_name = "PROFILE", requires = "config", conflicts_with = "check")]
    pub(crate) time: Option<String>,
    /// Clients of --time, each with one request at a time
    #[arg(long, value_name = "N", default_value_t = 16, requires = "time")]
    pub(crate) clients: u32,
    /// Speed of the trace's own times for --time, in place of clients
    #[arg(long, value_name = "TIMES", requires = "time", conflicts_with = "clients")]
    pub(crate) open: Option<f64>,
    #[command(flatten)]
    pub(crate) ratios: RatioArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the parser cannot refuse with a reason.
fn usage(args: &Args) -> Result<(), clap::Error> {
    if args.policy.is_some() && args.ratios.are_given() {
        let why = "--ratio-mean and --ratio-deviation change nothing with --policy: it counts extents, which take one place \
                   each however well they compress\n";
        return Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, why));
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Err(error) = usage(args) {
        error.exit();
    }
    let outcome = match (&args.config, args.policy) {
        (Some(config), _) => run_cache::print(args, config),
        (None, None) if args.flaz => run_flaz::print(args),
        (None, Some(policy)) => print(args, policy),
        (None, None) => unreachable!("one of the group is required"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zcsim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Settings as they turned out.
struct Run {
    capacity: usize,
    extent_bytes: u32,
    outcome: Outcome,
    bad_lines: u64,
    seconds: f64,
    spent: Spent,
}

pub(crate) fn open(args: &Args) -> anyhow::Result<Reader> {
    Ok(Reader::open(&args.trace, Options { format: args.format, strict: args.strict })?)
}

fn capacity(args: &Args, extent_bytes: u32) -> anyhow::Result<usize> {
    let capacity = match (args.cache_extents, args.cache_share) {
        (Some(extents), _) => {
            // Of a sample, a cache smaller by its share has about the same hit ratio.
            let rate = open(args)?.sample_rate();
            let share = Share(rate * 100.0).of(zc_core::u64_from_usize(extents));
            if rate < 1.0 { zc_core::usize_from_u64(share).max(1) } else { extents }
        }
        (None, Some(share)) => {
            let footprint = zc_replay::footprint(open(args)?, extent_bytes)?;
            zc_core::usize_from_u64(share.of(footprint)).max(1)
        }
        (None, None) => bail!("--cache-extents or --cache-share is missing"),
    };
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        bail!("a cache of {capacity} extents cannot be simulated: it is 1 to {CAPACITY_MAX}");
    }
    Ok(capacity)
}

fn print(args: &Args, policy: Kind) -> anyhow::Result<()> {
    let extent_bytes = extent_bytes(args.extent_size)?;
    let shown = || args.trace.display().to_string();
    let capacity = capacity(args, extent_bytes).with_context(shown)?;
    let mut reader = open(args).with_context(shown)?;
    let began = crate::fuzz::now();
    let ((outcome, reading), replaying) = spent::timed(|| {
        zc_trace::alongside(&mut reader, |requests| plain::run(requests, policy, capacity, extent_bytes))
    });
    let outcome = outcome.with_context(shown)?;
    let seconds = began.elapsed().as_secs_f64();
    let spent = Spent { reading, replaying, ..Spent::default() };
    let run = Run { capacity, extent_bytes, outcome, bad_lines: reader.bad_count(), seconds, spent };
    if args.json {
        say!("{:#}", to_json(args, policy, &run));
    } else {
        say::text(to_text(policy, &run));
    }
    Ok(())
}

fn per_second(run: &Run) -> f64 {
    run.outcome.requests as f64 / run.seconds.max(1e-9)
}

fn to_text(policy: Kind, run: &Run) -> String {
    let Outcome { read_accesses, read_hits, write_accesses, write_hits, .. } = run.outcome;
    let capacity = format!("{} extents of {} KiB", run.capacity, run.extent_bytes / 1024);
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let mut lines = vec![
        ("policy", policy.name().to_owned()),
        ("cache", capacity),
        ("requests", run.outcome.requests.to_string()),
        ("reads", format!("{read_accesses} extents, {read_hits} hits")),
        ("hit ratio", percent(run.outcome.read_hit_ratio())),
    ];
    if write_accesses > 0 {
        lines.push(("writes", format!("{write_accesses} extents, {write_hits} hits")));
        lines.push(("reads and writes", percent(run.outcome.hit_ratio())));
    }
    lines.push(("evictions", run.outcome.evictions.to_string()));
    lines.push(("memory", format!("{:.1} MB", run.outcome.ram_bytes as f64 / 1e6)));
    lines.push(("speed", format!("{:.0} requests/s, reading the trace included", per_second(run))));
    lines.extend(run.spent.lines(run.outcome.requests));
    if run.bad_lines > 0 {
        lines.push(("bad lines", format!("{}, passed over", run.bad_lines)));
    }
    lines.iter().map(|(name, value)| format!("{name:<18}{value}\n")).collect()
}

fn to_json(args: &Args, policy: Kind, run: &Run) -> Value {
    json!({
        "trace": args.trace.display().to_string(),
        "policy": policy.name(),
        "cache_extents": run.capacity,
        "extent_bytes": run.extent_bytes,
        "requests": run.outcome.requests,
        "read_accesses": run.outcome.read_accesses,
        "read_hits": run.outcome.read_hits,
        "read_hit_ratio": run.outcome.read_hit_ratio(),
        "write_accesses": run.outcome.write_accesses,
        "write_hits": run.outcome.write_hits,
        "hit_ratio": run.outcome.hit_ratio(),
        "evictions": run.outcome.evictions,
        "ram_bytes": run.outcome.ram_bytes,
        "requests_per_second": per_second(run),
        "spent": run.spent.to_json(run.outcome.requests),
        "bad_lines": run.bad_lines,
    })
}
