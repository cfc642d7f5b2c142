//! `cargo xtask bench stores`: other stores with data reduction, and ours, each in the same machine, on the same disk,
//! with the same data.
//!
//! Job: for every contender a machine boots with an empty disk. Files and images are stored on it, loads run, and a
//! file changes over a hundred generations. A table reports space, rates and memory. Another part counts the reads and
//! writes of a disk for transactions, as Zuck et al. (Compression and SSD: Where and How?, INFLOW 2014) do in Figure
//! 3.
//!
//! Invariants: every run begins with a fresh disk. Measurements are kept in the target directory and only repeated on
//! request. Loads and reads run while QEMU throttles the disk; space is counted while it does not.
//!
//! It does not measure absolute speeds. The machine is emulated, and computation is five to ten times slower.

mod report;

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::run::{build_dir, workspace};
use crate::machine::{Bench, Content, Disk, Hardware};
use crate::report::{Line, judge};
use crate::setup::{self, Image, Kernel};

const DISK_MIB: u64 = 4096;
const SSD_MIB: u64 = 96;
const DISK_IOPS: u32 = 100;
const MEMORY_MIB: u32 = 1536;
/// Seconds of a load.
const SPAN: u32 = 20;
/// A machine that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(3600);

/// A store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Contender {
    /// A file system that reduces nothing.
    Ext4,
    Btrfs,
    BtrfsLzo,
    BtrfsZstd,
    /// ext4 on dm-vdo.
    Vdo,
    /// ext4 on a volume of our store.
    ZcachedLz4,
    ZcachedZstd,
    /// With `gather`.
    ZcachedGather,
}

impl Contender {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// For people.
    fn title(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Btrfs => "btrfs, not compressed",
            Self::BtrfsLzo => "btrfs, lzo",
            Self::BtrfsZstd => "btrfs, zstd:1",
            Self::Vdo => "ext4 on dm-vdo",
            Self::ZcachedLz4 => "ext4 on zcached, LZ4",
            Self::ZcachedZstd => "ext4 on zcached, zstd",
            Self::ZcachedGather => "ext4 on zcached, LZ4, gather",
        }
    }
}

/// Part of a measurement. Each has a machine of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Files, images, loads and generations.
    Store,
    /// Transactions of small reads and writes.
    Transactions,
}

impl Part {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Results of contenders.
type Found = Vec<(Contender, Value)>;

/// Compare the stores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench stores", bin_name = "cargo xtask bench stores")]
struct Args {
    /// These contenders only, separated by commas
    #[arg(long, value_name = "CONTENDER", value_delimiter = ',')]
    only: Vec<Contender>,
    /// These parts only, separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    part: Vec<Part>,
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

/// `cargo xtask bench stores`.
///
/// # Errors
/// The machine cannot be made, a contender fails, or the report cannot be written.
pub fn bench(args: &[String]) -> anyhow::Result<()> {
    let args = Args::parse_from(std::iter::once("stores".to_owned()).chain(args.iter().cloned()));
    let results = build_dir()?.join("stores");
    std::fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
    let failed = if args.report { Vec::new() } else { measure_all(&args, &results)? };
    let [stores, transactions] = [Part::Store, Part::Transactions].map(|part| read_all(&results, part));
    let (stores, transactions) = (stores?, transactions?);
    ensure!(!stores.is_empty() || !transactions.is_empty(), "nothing was measured yet");
    let out = workspace().join(&args.out);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let (text, path) = (report::markdown(&stores, &transactions)?, out.join("stores.md"));
    println!("\n{text}");
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn place(results: &Path, part: Part, contender: Contender) -> PathBuf {
    results.join(format!("{}.{}.json", contender.name(), part.name()))
}

/// Results of all that were measured.
fn read_all(results: &Path, part: Part) -> anyhow::Result<Found> {
    let mut found = Vec::new();
    for contender in Contender::value_variants() {
        let path = place(results, part, *contender);
        if path.is_file() {
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            found
                .push((*contender, serde_json::from_str(&text).with_context(|| path.display().to_string())?));
        }
    }
    Ok(found)
}

/// Runs all missing measurements; returns the failures.
fn measure_all(args: &Args, results: &Path) -> anyhow::Result<Vec<String>> {
    let image = setup::ensure(Kernel::default(), false, true)?;
    let bench = Bench::with(&image, hardware())?;
    let mut failed = Vec::new();
    for part in Part::value_variants() {
        if !args.part.is_empty() && !args.part.contains(part) {
            continue;
        }
        for contender in Contender::value_variants() {
            let path = place(results, *part, *contender);
            let is_wanted = args.only.is_empty() || args.only.contains(contender);
            if !is_wanted || (path.is_file() && !args.again) {
                continue;
            }
            match measure(&image, &bench, *part, *contender) {
                Ok(measured) => std::fs::write(&path, measured.to_string())
                    .with_context(|| format!("cannot write {}", path.display()))?,
                // The others can do better.
                Err(error) => failed.push(format!("{}: {error:#}", contender.name())),
            }
        }
    }
    Ok(failed)
}

fn hardware() -> Hardware {
    let disk = |name, mib, iops, is_direct| Disk {
        name,
        content: Content::EmptyMib(mib),
        iops,
        is_direct,
        torn_at_bytes: 512,
    };
    // QEMU can change a limit only where there is one from the beginning.
    let disks = vec![disk("hdd", DISK_MIB, Some(DISK_IOPS), false), disk("ssd", SSD_MIB, None, true)];
    Hardware {
        processors: 2,
        memory_mib: MEMORY_MIB,
        disks,
        is_release: true,
        has_monitor: true,
        ..Hardware::usual()
    }
}

/// One machine from boot to end.
fn measure(image: &Image, bench: &Bench, part: Part, contender: Contender) -> anyhow::Result<Value> {
    println!("    {}: {}", contender.name(), part.name());
    bench.empty_disks()?;
    let (name, iops, span) = (contender.name(), DISK_IOPS.to_string(), SPAN.to_string());
    let part = part.name();
    let settings = [("contender", name.as_str()), ("part", &part), ("iops", &iops), ("span", &span)];
    let mut machine = bench.boot(image, "stores", &settings)?;
    let lines = machine.follow(LIMIT, |line| println!("    {line}"), |_| false)?;
    judge(&lines, &["work"]).inspect_err(|_| machine.show_console())?;
    let mut samples = serde_json::Map::new();
    for line in &lines {
        if let Line::Sample(sample) = Line::parse(line)? {
            let name = sample["sample"].as_str().context("a sample has no name")?.to_owned();
            samples.insert(name, sample);
        }
    }
    Ok(json!(samples))
}
