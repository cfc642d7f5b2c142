//! `zcsim sweep`: a trace under every combination of some settings, on all CPUs.
//!
//! With `--out` every result is written to the file at once, and an interrupted sweep resumes: rows of the same trace,
//! configuration and settings are not computed again. At the end the rows are in the order of the settings.

mod plan;
mod table;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use zc_replay::cache::{self, Replay};
use zc_trace::{DeviceChoice, Format, Options, Reader};

use crate::notes::trace_notes;
use crate::say;
use crate::settings::{self, Mapping, RatioArgs};
use crate::spent;
use plan::{Axis, Point};
use table::{Row, Table};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Trace file, also gz, xz or zst; ARCHIVE:MEMBER for one in a tar
    #[arg(long)]
    trace: PathBuf,
    /// Format, if zcsim does not recognise it; see zcsim info --help
    #[arg(long)]
    format: Option<Format>,
    /// Take the requests of one device alone, as zcsim info lists it
    ///
    /// MAJOR,MINOR, or a number in formats without both
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Configuration of the daemon that the settings change
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Values of a key, such as cache.size=1%,2%,5%
    ///
    /// The key cache.share is the size of the write-evict units as a share of the trace's footprint
    #[arg(long, value_name = "KEY=VALUES", required = true)]
    set: Vec<Axis>,
    /// CSV file for the results; a partial sweep in it is resumed
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Model an SSD; add columns for its writes and erasures
    ///
    /// Columns are pages written and copied, write amplification and erasures
    #[arg(long, value_name = "MAPPING")]
    ssd: Option<Mapping>,
    /// Number of threads; default is one per CPU
    #[arg(long)]
    jobs: Option<usize>,
    #[command(flatten)]
    ratios: RatioArgs,
    /// Print JSON instead of CSV
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match sweep(args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("zcsim: {failed} combinations could not be run");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("zcsim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs missing combinations; returns the number of failures.
fn sweep(args: &Args) -> anyhow::Result<usize> {
    let points = plan::points(&args.set)?;
    let text = settings::read(&args.config)?;
    let file = args.config.display().to_string();
    // Mistakes are found before anything is computed.
    let configs = points.iter().map(|point| settings::with_settings(&text, &file, &point.settings));
    let configs = configs.collect::<Result<Vec<_>, _>>()?;
    let shown = || args.trace.display().to_string();
    let mut reader =
        Reader::open(&args.trace, Options { format: args.format, strict: false, device: args.device })?;
    let (trace, _) = spent::load(&mut reader, args.ratios.ratios()).with_context(shown)?;
    let trace = trace.is_sample_of(reader.sample_rate());
    let notes: BTreeSet<String> =
        configs.iter().flat_map(|config| trace_notes(&trace, config, &reader)).collect();
    notes.iter().for_each(|note| eprintln!("zcsim: note: {note}"));
    let identity = plan::identity(&text, &trace, args.ratios.ratios(), args.ssd);
    let keys = args.set.iter().map(|axis| axis.key.clone()).collect();
    let table = Mutex::new(Table::open(args.out.as_deref(), keys, identity, args.ssd.is_some())?);
    let bar = ProgressBar::new(zc_core::u64_from_usize(points.len()) * trace.requests());
    bar.set_style(ProgressStyle::with_template("{bar:40} {percent} % [{elapsed} < {eta}] {msg}")?);
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    let work = || {
        while let Some((point, config)) = take(&next, &points, &configs) {
            if lock(&table).has(point) {
                bar.inc(trace.requests());
                continue;
            }
            let mut seen = 0;
            let progress = |done: u64| {
                bar.inc(done - seen);
                seen = done;
            };
            let ssd = args.ssd.map(Mapping::model);
            let replay = Replay { size: point.size, ssd, ..Replay::default() };
            let outcome = cache::run(&trace, config, replay, progress).map_err(anyhow::Error::from);
            bar.inc(trace.requests().saturating_sub(seen));
            let kept = outcome.and_then(|report| lock(&table).add(Row::new(point, &report)));
            if let Err(error) = kept {
                failed.fetch_add(1, Ordering::Relaxed);
                bar.println(format!("zcsim: {}: {error:#}", point.label()));
            }
        }
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cpus).clamp(1, points.len());
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let table = table.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rows = table.finish(&points)?;
    say::text(if args.json { rows.to_json() } else { rows.to_csv() });
    Ok(failed.into_inner())
}

fn take<'a, T>(next: &AtomicUsize, points: &'a [Point], configs: &'a [T]) -> Option<(&'a Point, &'a T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    points.get(at).zip(configs.get(at))
}

fn lock(table: &Mutex<Table>) -> std::sync::MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
