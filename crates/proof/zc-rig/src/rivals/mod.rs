//! `cargo xtask bench rivals`: other caches and ours, each in the same machine, on the same disks, under the same
//! loads.
//!
//! Job: for every contender and workload a machine boots with an empty SSD and a slow disk full of data; a fixed
//! number of requests fills the cache while the slow disk is unthrottled, then QEMU throttles the slow disk and a load
//! is measured. Tables, a plot and JSON are made from all results so far.
//!
//! Invariants: every run begins with fresh disks. Measurements are kept in the target directory and only repeated on
//! request. Contenders get the whole SSD, including their metadata.
//!
//! It does not measure absolute speeds. The machine is emulated, and computation is five to ten times slower: a cache
//! that computes more is at a disadvantage here.

mod data;
mod figures;
mod plan;
mod report;

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use plan::{Contender, Workload};
use serde_json::{Value, json};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::run::{build_dir, workspace};
use crate::machine::{Bench, Content, Disk, Hardware};
use crate::report::{Line, judge};
use crate::setup::{self, Image, Kernel};
use report::Report;

const CACHE_MIB: u64 = 64;
/// The working set, followed by the scanned range.
const FILLED_MIB: u64 = 12 * CACHE_MIB;
const ORIGIN_MIB: u64 = 16 * CACHE_MIB;
const ORIGIN_IOPS: u32 = 300;
/// For contenders with a higher minimum.
const LARGE_MIB: u64 = 5120;
const MEMORY_MIB: u32 = 1536;
/// One for clients and one for the server, the minimum of a machine with a cache.
const PROCESSORS: u32 = 2;
/// A machine that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(1800);

/// Compare the caches.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench rivals", bin_name = "cargo xtask bench rivals")]
struct Args {
    /// Less filling and shorter measurements, to test that it works
    #[arg(long)]
    quick: bool,
    /// These contenders only, separated by commas
    #[arg(long, value_name = "CONTENDER", value_delimiter = ',')]
    only: Vec<Contender>,
    /// These workloads only, separated by commas
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Repeat earlier measurements
    #[arg(long)]
    again: bool,
    /// Measure nothing, make the report of existing results
    #[arg(long)]
    report: bool,
    /// Folder of the report
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

/// Effort of measurements.
#[derive(Debug, Clone, Copy)]
struct Effort {
    name: &'static str,
    seconds: u32,
    warm_percent: u32,
}

const FULL: Effort = Effort { name: "full", seconds: 15, warm_percent: 100 };
const QUICK: Effort = Effort { name: "quick", seconds: 10, warm_percent: 25 };

/// `cargo xtask bench rivals`.
///
/// # Errors
/// The machine cannot be made, a contender fails, or the report cannot be written.
pub fn bench(args: &[String]) -> anyhow::Result<()> {
    let args = Args::parse_from(std::iter::once("rivals".to_owned()).chain(args.iter().cloned()));
    let effort = if args.quick { QUICK } else { FULL };
    let folder = build_dir()?.join("rivals");
    let results = folder.join(effort.name);
    std::fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
    let mut failed = Vec::new();
    if !args.report {
        let image = setup::ensure(Kernel::default(), false, true)?;
        failed = measure_all(&image, &args, effort, &folder, &results)?;
    }
    write_report(&results, effort, &workspace().join(&args.out))?;
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// The name of a result.
fn file_name(workload: Workload, contender: Contender) -> String {
    format!("{}.{}.json", workload.name(), contender.name())
}

/// Tables, JSON and picture of all results in the folder.
fn write_report(results: &Path, effort: Effort, out: &Path) -> anyhow::Result<()> {
    let (values, figures): (Vec<Value>, Vec<_>) = figures::read_all(results)?.into_iter().unzip();
    ensure!(!figures.is_empty(), "nothing was measured yet");
    let report = Report { figures, machine: machine(&values, effort) };
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    println!("\n{}", report.goals());
    let json = json!({"machine": report.machine, "results": values}).to_string();
    for (name, text) in
        [("rivals.md", report.markdown()), ("rivals.json", json), ("rivals.svg", report.svg())]
    {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Describes the machine of the measurements in a few sentences.
fn machine(values: &[Value], effort: Effort) -> String {
    let mut loads: Vec<f64> = values.iter().filter_map(|value| value["load"].as_f64()).collect();
    loads.sort_by(f64::total_cmp);
    let (least, most) = (loads.first().copied().unwrap_or(0.0), loads.last().copied().unwrap_or(0.0));
    let cores = std::thread::available_parallelism().map_or(0, NonZero::get);
    format!(
        "Debian's kernel in QEMU without hardware acceleration, {PROCESSORS} processors, {MEMORY_MIB} MiB, on {cores} cores with load \
         averages of {least:.1} to {most:.1}. SSD of {CACHE_MIB} MiB, slow disk of {ORIGIN_MIB} MiB that does {ORIGIN_IOPS} \
         requests a second. 16 requests at once unless said; {} s a measurement, after {} % of the usual filling.",
        effort.seconds, effort.warm_percent
    )
}

/// Returns the load average of this host in the last minute.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// Runs all missing measurements; returns the failures.
fn measure_all(
    image: &Image,
    args: &Args,
    effort: Effort,
    folder: &Path,
    results: &Path,
) -> anyhow::Result<Vec<String>> {
    let mut failed = Vec::new();
    for workload in wanted(&args.workload) {
        let kind = workload.data();
        let origin = folder.join(format!("{}.img", kind.name()));
        data::ensure(&origin, kind, FILLED_MIB, ORIGIN_MIB)?;
        let bench = Bench::with(image, hardware(origin))?;
        for contender in wanted(&args.only).into_iter().filter(|contender| workload.tells_of(*contender)) {
            let result = results.join(file_name(workload, contender));
            if args.again || !result.is_file() {
                match measure(image, &bench, contender, workload, effort) {
                    Ok(measured) => {
                        std::fs::write(&result, measured.to_string())
                            .with_context(|| format!("cannot write {}", result.display()))?;
                    }
                    // The others can do better.
                    Err(error) => {
                        failed.push(format!("{} under {}: {error:#}", contender.name(), workload.name()));
                    }
                }
            }
        }
    }
    Ok(failed)
}

/// Returns the named ones, or all.
fn wanted<T: ValueEnum + Copy>(named: &[T]) -> Vec<T> {
    if named.is_empty() { T::value_variants().to_vec() } else { named.to_vec() }
}

fn hardware(origin: PathBuf) -> Hardware {
    let disk = |name, content, iops, is_direct| Disk { name, content, iops, is_direct, torn_at_bytes: 512 };
    let disks = vec![
        disk("ssd", Content::EmptyMib(CACHE_MIB), None, true),
        disk("hdd", Content::CopyOf(origin), Some(ORIGIN_IOPS), false),
        disk("large-ssd", Content::EmptyMib(LARGE_MIB), None, true),
    ];
    Hardware {
        processors: PROCESSORS,
        memory_mib: MEMORY_MIB,
        disks,
        is_release: true,
        has_monitor: true,
        ..Hardware::usual()
    }
}

/// Returns a bound of a measurement's duration; beyond it, the machine was stalled: occasionally QEMU, or this host,
/// serves no client for more than a minute.
fn longest_seconds(effort: Effort) -> f64 {
    f64::from(2 * effort.seconds + 10)
}

/// One machine from boot to end.
fn measure(
    image: &Image,
    bench: &Bench,
    contender: Contender,
    workload: Workload,
    effort: Effort,
) -> anyhow::Result<Value> {
    let (contender, workload) = (contender.name(), workload.name());
    println!("    {workload}: {contender}");
    bench.empty_disks()?;
    let numbers = [ORIGIN_IOPS, effort.seconds, effort.warm_percent].map(|number| number.to_string());
    let [iops, seconds, warm] = &numbers;
    let settings = [
        ("contender", contender.as_str()),
        ("workload", workload.as_str()),
        ("iops", iops),
        ("span", seconds),
        ("warm", warm),
    ];
    let mut machine = bench.boot(image, "rivals", &settings)?;
    let lines = machine.follow(LIMIT, |line| println!("    {line}"), |_| false)?;
    judge(&lines, &["work"]).inspect_err(|_| machine.show_console())?;
    let mut samples = Vec::new();
    for line in &lines {
        if let Line::Sample(sample) = Line::parse(line)? {
            let took = sample["seconds"].as_f64().unwrap_or(0.0);
            let stood_still = sample["sample"] == "run" && took > longest_seconds(effort);
            ensure!(!stood_still, "the machine stood still: {took:.0} s instead of {}", effort.seconds);
            samples.push(sample);
        }
    }
    ensure!(!samples.is_empty(), "nothing was measured");
    Ok(json!({"contender": contender, "workload": workload, "samples": samples, "load": load()}))
}
