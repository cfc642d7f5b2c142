//! `cargo xtask bench store`: operations of a pool on its device, and waiting times of clients.
//!
//! Job: drive the daemon's own pool ([`zc_pool::Pool`]) on a device in memory with the costs of an SSD or a disk,
//! count its operations, and report them per byte of a client.
//!
//! Invariants: counts and times are the same in every run and on every machine; processor times are not. `store.md`
//! beside this crate is a run with `--out benches`.
//!
//! Missed goals of the kept run, and reasons. The log contains the client's byte, pages, headers and moved data. A
//! victim frees its unmoved share. With a share `m` of each victim moved, the device writes
//! `(1 + pages + headers) / (1 - m)` bytes: a byte of pages costs as much as a byte of a client. One write at a time
//! has a header of a block for itself, half of its data. A checkpoint writes its pages at once: writes of clients
//! meanwhile wait behind up to 8 MiB. In pools of some GiB and more, tables have more pages than may be changed between
//! two checkpoints, so that random writes over a volume change pages for one of them each.
//!
//! It does not measure a real device or the daemon (`bench rivals` does that for the cache).

mod flushes;
mod overwrite;
mod programs;
mod series;

use std::path::PathBuf;

use crate::machine::machine;
use crate::measure::{Measured, Sample, Series};
use crate::pool::{CHUNK_BYTES, DISK, Place, SSD};
use crate::report::{Cell, Column, Report, case_table, target_table};
use overwrite::{Case, Pattern, Rounds};
use programs::Program;

/// Count the operations of a pool on its device, and measure the waiting times of clients
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    /// Folder for the report
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Bytes of a segment: the default of a new pool.
const SEGMENT_BYTES: u32 = zc_store::limits::SEGMENT_BYTES_DEFAULT;
/// Segment size that gives a pool as many segments as one of eight times the size has of the default ones.
const SMALL_SEGMENT_BYTES: u32 = SEGMENT_BYTES / 8;

/// In the segments that a new pool has.
const fn case(full_percent: u64, pattern: Pattern, depth: usize) -> Case {
    Case { full_percent, pattern, depth, segment_bytes: None }
}

/// In small segments.
const fn in_small(case: Case) -> Case {
    Case { segment_bytes: Some(SMALL_SEGMENT_BYTES), ..case }
}

/// The loads of the SSD.
const CASES: [Case; 14] = {
    let zipf = Pattern::Zipf(0.99);
    [
        case(50, Pattern::Uniform, 32),
        case(70, Pattern::Uniform, 32),
        case(80, Pattern::Uniform, 1),
        case(80, Pattern::Uniform, 32),
        case(80, Pattern::Uniform, 1000),
        case(90, Pattern::Uniform, 32),
        case(50, zipf, 32),
        case(70, zipf, 32),
        case(80, zipf, 1),
        case(80, zipf, 32),
        case(90, zipf, 32),
        in_small(case(80, Pattern::Uniform, 1)),
        in_small(case(80, Pattern::Uniform, 32)),
        in_small(case(80, zipf, 32)),
    ]
};
/// The load of the disk.
const DISK_CASE: Case = case(80, Pattern::Uniform, 32);
/// Generations of the series.
const GENERATIONS: u64 = 100;

/// The only target.
const POOL: &str = "pool";

const OVERWRITES: &[Column] = &[
    ("segments, KiB", Cell::Median("segments_kib")),
    ("in use, %", Cell::Median("in_use_percent")),
    ("filled, %", Cell::Median("filled_percent")),
    ("device", Cell::Median("device")),
    ("moved", Cell::Median("moved")),
    ("maps", Cell::Median("maps")),
    ("chunk table", Cell::Median("chunk_table")),
    ("other tables", Cell::Median("other_tables")),
    ("headers", Cell::Median("headers")),
    ("bound", Cell::Median("bound")),
    ("over it", Cell::Median("over_bound")),
    ("bound, filled", Cell::Median("bound_of_filled")),
    ("over it", Cell::Median("over_bound_of_filled")),
    ("checkpoints", Cell::Median("checkpoints")),
    ("operations a request", Cell::Median("operations")),
    ("median ms", Cell::Median("median_ms")),
    ("p99", Cell::Median("p99_ms")),
    ("p99.9", Cell::Median("p999_ms")),
    ("longest", Cell::Median("longest_ms")),
    ("no space", Cell::Median("no_space")),
    ("CPU us: pool", Cell::Median("pool_us")),
    ("jobs", Cell::Median("jobs_us")),
];
const OVERWRITES_TEXT: &str = "
## Random overwrites of 8 KiB

The volume is filled with noise, overwritten as often as the header says, then counted. *Full*: the volume's bytes per 100 that
contents may use. *In use*: what tables refer to, pages included, of what contents may use. *Filled*: the same of all segments
that were not free, on the average; the cleaner looks for victims there. *Device*: bytes written per byte of a client, the sum
of the client's own 1 and the five columns behind: contents that the cleaner *moved*, pages of *maps*, of the *chunk table* and
of *other tables*, *headers* of batches. *Bound*: see `overwrite::bound`, for what is in use and for what is filled; it knows no
pages and no headers. Small segments stand for a larger pool: what is kept free is a number of segments.

";
const FLUSHES: &[Column] = &[
    ("device writes", Cell::Median("device_writes")),
    ("device bytes a byte", Cell::Median("device_bytes_a_byte")),
    ("device reads", Cell::Median("device_reads")),
    ("ms", Cell::Median("took_ms")),
    ("bare, ms", Cell::Median("bare_ms")),
];
const GENERATIONS_COLUMNS: &[Column] = &[
    ("generation 1", Cell::Median("first")),
    ("last generation", Cell::Median("last")),
    ("ratio", Cell::Median("last_over_first")),
    ("bare", Cell::Median("bare")),
];
const PROGRAMS: &[Column] = &[
    ("requests", Cell::Median("requests")),
    ("device, s", Cell::Median("device_s")),
    ("processors, s", Cell::Median("processors_s")),
    ("stored, MiB", Cell::Median("stored_mib")),
    ("requests a second", Cell::Median("per_second")),
    ("to raw", Cell::To("raw", "per_second")),
];
const PROGRAMS_TEXT: &str = "
## Programs with and without compression

ZBD's experiment. The longer of the device's time and of what two processors take counts. Processors are those of this machine,
with whatever else it did; the device's time is the model's. Sixteen requests at once, no deduplication. What is stored includes
what is to be cleaned. ZBD's paper has 0.66 to 1.80 times as many requests a second with compression.
";

/// Measurements, and the sections of the report.
#[derive(Debug, Default)]
struct Progress {
    only: String,
    all: Measured,
    sections: String,
}

impl Progress {
    fn wants(&self, name: &str) -> bool {
        let is_wanted = name.contains(&self.only);
        if is_wanted {
            println!("{name}");
        }
        is_wanted
    }

    /// Ends a section, which has a row for each new case.
    fn section(&mut self, text: &str, found: Vec<Series>, columns: &[Column]) {
        if !found.is_empty() {
            let found = Measured(found);
            self.sections.push_str(text);
            self.sections.push_str(&target_table(&found, POOL, columns));
            self.all.0.extend(found.0);
        }
    }
}

fn generations(progress: &mut Progress, place: Place, volume_bytes: u64) -> anyhow::Result<()> {
    let (reads, space) = series::run(place, volume_bytes, GENERATIONS)?;
    let text = format!(
        "\n## {GENERATIONS} generations of a volume\n\nOn the disk; 2.3 % change from one to the next, in runs of 64 KiB, and twelve \
         snapshots are kept. MiB/s of the data, which compresses two to one; *bare*: uncompressed, side by side.\n\n"
    );
    progress.section(&text, reads, GENERATIONS_COLUMNS);
    let figure = |name| space.get(name).unwrap_or(0.0);
    progress.sections.push_str(&format!(
        "\nVolume and snapshots show {:.0} MiB and use {:.0} MiB, pages and what is to be cleaned included. For each changed byte \
         the device wrote {:.2}, the cleaner's {:.2} among them.\n",
        figure("shown_mib"),
        figure("used_mib"),
        figure("written_a_changed_byte"),
        figure("moved_a_changed_byte")
    ));
    Ok(())
}

/// Runs all measurements whose names contain the wanted text.
fn measured(args: &Args) -> anyhow::Result<Progress> {
    let device_bytes = args.device << 20;
    let rounds = Rounds { before_percent: args.before, counted_percent: args.counted };
    let place = |model| Place { model, device_bytes, segment_bytes: SEGMENT_BYTES };
    let mut progress = Progress { only: args.only.clone(), ..Progress::default() };
    let mut found = Vec::new();
    let mut add = |name: &str, sample: Sample| found.push(Series::new(name, POOL, vec![sample]));
    for case in CASES {
        let name = case.to_string();
        if progress.wants(&name) {
            let place = Place { segment_bytes: case.segment_bytes.unwrap_or(SEGMENT_BYTES), ..place(SSD) };
            add(&name, overwrite::run(place, case, rounds)?);
        }
    }
    let name = format!("overwrites, {DISK_CASE}, on the disk");
    if progress.wants(&name) {
        add(&name, overwrite::run(place(DISK), DISK_CASE, rounds)?);
    }
    progress.section(OVERWRITES_TEXT, found, OVERWRITES);
    let mut found = Vec::new();
    for len_bytes in [4 << 10, CHUNK_BYTES] {
        let name = format!("flushes of {} KiB", len_bytes >> 10);
        if progress.wants(&name) {
            let sample = flushes::run(place(DISK), device_bytes / 2, len_bytes)?;
            found.push(Series::new(&name, POOL, vec![sample]));
        }
    }
    let text = format!(
        "\n## A flush behind {} random writes\n\nOn the disk. *Bare*: each write where it belongs, then a flush.\n\n",
        flushes::WRITES
    );
    progress.section(&text, found, FLUSHES);
    if progress.wants("generations") {
        generations(&mut progress, place(DISK), device_bytes / 4)?;
    }
    let mut found = Measured::default();
    for (program, model) in Program::ALL.into_iter().flat_map(|program| [(program, SSD), (program, DISK)]) {
        if progress.wants(&format!("program {} on the {}", program.name(), model.name)) {
            found.0.extend(programs::run(place(model), program)?);
        }
    }
    if !found.0.is_empty() {
        progress.sections.push_str(PROGRAMS_TEXT);
        let tables: Vec<String> =
            found.cases().iter().map(|(case, _)| case_table(&found, case, PROGRAMS)).collect();
        progress.sections.push_str(&tables.concat());
    }
    progress.all.0.extend(found.0);
    Ok(progress)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.out)?;
    let Progress { all, sections, .. } = measured(args)?;
    println!("{sections}");
    let machine = format!(
        "The daemon's pool on a device of {} MiB in memory, with the time of a model: an SSD with 20 us an operation and \
         1 GB/s, a disk with 12 ms a seek and 180 MB/s. Volumes are overwritten by {} % before anything is counted, then by \
         {} %. Only the times of processors depend on the machine: {}.",
        args.device,
        args.before,
        args.counted,
        machine()
    );
    let report = Report {
        name: "store",
        title: "What a pool asks of its device",
        machine,
        preface: String::new(),
        sections,
        columns: &[],
        measured: &all,
    };
    report.publish(&args.out)
}
