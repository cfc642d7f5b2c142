//! `zcsim size`: recommends a cache size for a trace, with and without data reduction.

mod advice;
mod bounded;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use zc_config::Config;
use zc_replay::cache::device_bytes;
use zc_replay::sizing::{Estimate, Reduction, estimate, simulate};
use zc_replay::{Sample, Trace};
use zc_trace::{DeviceChoice, Format, Options};

use crate::notes::{BY_OTHERS, sized_by_others};
use crate::say::{self, say};
use crate::settings::{self, RatioArgs, Setting};
use crate::size::Share;
use advice::{Curve, Point};
use bounded::Held;

/// The configuration if none is given: every key that has a default at its default.
const DEFAULTS: &str = "[cache]\npath = \"cache\"\nstate_dir = \"state\"\nsize = \"10 %\"\n\
                        [[volume]]\nname = \"trace\"\norigin = \"trace\"\n";

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Trace file, also gz, xz or zst; ARCHIVE:MEMBER for one in a tar
    trace: PathBuf,
    /// Format, if zcsim does not recognise it; see zcsim info --help
    #[arg(long)]
    format: Option<Format>,
    /// Take the requests of one device alone, as zcsim info lists it
    ///
    /// MAJOR,MINOR, or a number in formats without both
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Configuration of the daemon; its cache.size does not count
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Another value for a key, such as cache.compression=zstd
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Setting>,
    /// Sizes to judge, as shares of the trace's footprint
    #[arg(
        long,
        value_name = "SHARES",
        value_delimiter = ',',
        default_value = "1%,2%,5%,10%,20%,40%,60%,80%,100%"
    )]
    shares: Vec<Share>,
    /// Extents to simulate; a trace with no more is simulated whole
    #[arg(long, value_name = "N", default_value_t = 32_768)]
    sample: u64,
    /// Most 4 KiB blocks whose requests are held in memory
    ///
    /// Each takes some 100 bytes. Of a longer trace, zcsim keeps those of an even part of the addresses
    #[arg(long, value_name = "N", default_value_t = 1 << 24)]
    hold: u64,
    /// Skip the whole simulation that shows the estimate's error
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    ratios: RatioArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match size(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zcsim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn size(args: &Args) -> anyhow::Result<()> {
    let (text, file) = match &args.config {
        Some(path) => (settings::read(path)?, path.display().to_string()),
        None => (DEFAULTS.to_owned(), "the defaults".to_owned()),
    };
    let config = settings::with_settings(&text, &file, &args.set)?;
    let shown = || args.trace.display().to_string();
    let options = Options { format: args.format, strict: false, device: args.device };
    let Held { trace, share, recorded, bad_lines } =
        bounded::load(&args.trace, options, args.ratios.ratios(), args.hold).with_context(shown)?;
    let sample = trace.sample(config.cache.extent_bytes, args.sample.max(1));
    let mut shares: Vec<f64> = args.shares.iter().map(|share| share.0).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let points = curve(&sample, &config, trace.footprint_bytes(), &shares)?;
    let curve = Curve {
        points,
        rate: sample.rate,
        extents: sample.extents,
        extent_bytes: config.cache.extent_bytes,
        footprint_bytes: trace.footprint_bytes(),
        duration_ms: trace.duration_ms(),
        bad_lines,
        held: share.rate(),
        ram_bytes: trace.ram_bytes(),
    };
    let sized_by_others = sized_by_others(&trace, &config);
    let chosen = curve.recommended();
    let verified = match chosen {
        Some(point) if !args.no_verify && sample.rate < 1.0 => {
            Some(verify(&trace, &config, point.unit_bytes)?)
        }
        _ => None,
    };
    let (curve, verified) = curve.of_whole(recorded * share.rate(), verified);
    let device = curve.recommended().map(|point| device_bytes(&config, point.unit_bytes)).transpose()?;
    if args.json {
        let mut found = to_json(&curve, device, verified);
        found["sized_by_other_codecs"] = json!(sized_by_others);
        say!("{found:#}");
    } else {
        say::text(curve.table());
        if sized_by_others > 0 {
            say!("Note: {sized_by_others} {BY_OTHERS}.\n");
        }
        say::text(curve.advice(device, verified));
    }
    Ok(())
}

/// The whole trace at one size, with and without reduction.
fn verify(trace: &Trace, config: &Config, unit_bytes: u64) -> anyhow::Result<[Estimate; 2]> {
    let simulated = |reduction| simulate(trace, config, unit_bytes, reduction).map(|(found, _)| found);
    Ok([simulated(Reduction::Configured)?, simulated(Reduction::None)?])
}

/// Every size with and without reduction, on all CPUs.
fn curve(sample: &Sample, config: &Config, footprint: u64, shares: &[f64]) -> anyhow::Result<Vec<Point>> {
    let runs: Vec<(f64, Reduction)> = shares
        .iter()
        .flat_map(|share| [(*share, Reduction::Configured), (*share, Reduction::None)])
        .collect();
    let found = Mutex::new((0..runs.len()).map(|_| None).collect::<Vec<_>>());
    let next = AtomicUsize::new(0);
    let bar = ProgressBar::new(zc_core::u64_from_usize(runs.len()));
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos} of {len} sizes [{elapsed} < {eta}]")?);
    let unit_bytes = |share: f64| Share(share).of(footprint);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((share, reduction)) = runs.get(at).copied() else { return };
            let outcome = estimate(sample, config, unit_bytes(share), reduction);
            found.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[at] = Some(outcome);
            bar.inc(1);
        }
    };
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).min(runs.len());
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let found: Vec<Estimate> = found.into_iter().flatten().collect::<Result<_, _>>()?;
    let (pairs, _) = found.as_chunks::<2>();
    let point = |(share, [reduced, plain]): (&f64, &[Estimate; 2])| Point {
        share: *share,
        unit_bytes: unit_bytes(*share),
        reduced: *reduced,
        plain: *plain,
    };
    let mut points: Vec<Point> = shares.iter().zip(pairs).map(point).collect();
    // Sizes that round to the minimum number of units are one size: the largest of them.
    let ran = |point: &Point| [point.reduced.simulated_bytes, point.plain.simulated_bytes];
    points.reverse();
    points.dedup_by_key(|point| ran(point));
    points.reverse();
    Ok(points)
}

fn to_json(curve: &Curve, device_bytes: Option<u64>, verified: Option<[Estimate; 2]>) -> serde_json::Value {
    let found = |estimate: Estimate| {
        json!({
            "read_hit_ratio": estimate.read_hit_ratio,
            "written_bytes": estimate.written_bytes,
            "metadata_bytes": estimate.metadata_bytes,
        })
    };
    let points: Vec<_> = curve
        .points
        .iter()
        .map(|point| {
            json!({
                "percent_of_footprint": point.share,
                "unit_bytes": point.unit_bytes,
                "reduced": found(point.reduced),
                "plain": found(point.plain),
            })
        })
        .collect();
    json!({
        "footprint_bytes": curve.footprint_bytes,
        "extents": curve.extents,
        "extent_bytes": curve.extent_bytes,
        "sample_rate": curve.rate,
        "duration_ms": curve.duration_ms,
        "bad_lines": curve.bad_lines,
        "held_rate": curve.held,
        "trace_ram_bytes": curve.ram_bytes,
        "curve": points,
        "recommended_unit_bytes": curve.recommended().map(|point| point.unit_bytes),
        "recommended_device_bytes": device_bytes,
        "advice": curve.advice(device_bytes, verified),
        "whole_trace": verified.map(|[reduced, plain]| json!({ "reduced": found(reduced), "plain": found(plain) })),
    })
}
