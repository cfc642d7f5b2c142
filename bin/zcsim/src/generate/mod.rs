//! `zcsim generate`: a made-up trace, in the format with fingerprints and compressed sizes, and the bytes that its volume
//! begins with.

mod output;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use zc_core::units::ByteSize;
use zc_trace::compose::{Composed, Ends, Order};
use zc_trace::storm::{Shape, Storm, Template};
use zc_trace::tpch::{Database, Run};
use zc_trace::workload::{self, Kind, Postmark, Workload};
use zc_trace::{Boot, DeviceChoice, Format, Op, Options, Reader, Request, TraceError, boot};

use crate::settings::ratio;
use output::{Made, Output};

/// Machines of a storm.
const MACHINES_MAX: u32 = 10_000;

/// Kind of trace.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: KindArgs,
}

#[derive(Debug, Subcommand)]
enum KindArgs {
    /// Draw addresses by Zipf's law, scrambled, 4 KiB at a time (YCSB)
    Zipf(ZipfArgs),
    /// Mix four writes per read in a twelfth of the volume, 8 KiB each
    ///
    /// Parameters follow the published facts of the FIU traces
    Mix(Drawn),
    /// Read 8 KiB at random; contents repeat
    ///
    /// This is a point of Nitro's grid of working sets and deduplication ratios
    Sensitivity(SensitivityArgs),
    /// Read the volume from front to back, 128 KiB at a time, repeatedly
    Scan(Drawn),
    /// Read daily copies of the volume in order, 512 KiB at a time
    Snapshots(SnapshotsArgs),
    /// Use pages of a database as TPC-C does
    ///
    /// The volume holds as many warehouses of 69 MiB as fit
    Tpcc(TpccArgs),
    /// Create, grow, read and delete a mail server's files (PostMark)
    Postmark(PostmarkArgs),
    /// Read and write a tenth of a file server's files (SPECsfs2008)
    Specsfs(Drawn),
    /// Query a database of real bytes as queries 3, 11 and 14 of TPC-H
    Tpch(TpchArgs),
    /// Boot many machines from clones of one image (Nitro's boot storm)
    Storm(StormArgs),
    /// Join several traces as one volume's
    ///
    /// The traces lie side by side or on the same addresses, and run at once or in turn
    Compose(ComposeArgs),
}

/// Options of workloads with random contents.
#[derive(Debug, clap::Args)]
struct Volume {
    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: ByteSize,
    /// Number of requests
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: u64,
    /// Standard deviation of the compression ratio
    #[arg(long, default_value_t = 0.5, value_parser = ratio)]
    ratio_deviation: f64,
    #[command(flatten)]
    made: Made,
}

/// Repetition of contents.
#[derive(Debug, clap::Args)]
struct Shared {
    /// Share of contents that repeat
    ///
    /// The default is 0 for tpcc, postmark and specsfs, and 0.4 for the others
    #[arg(long, value_parser = share)]
    shared: Option<f64>,
}

/// Compressibility of contents.
#[derive(Debug, clap::Args)]
struct RatioMean {
    /// Mean of the compression ratio
    #[arg(long, default_value_t = 2.0, value_parser = ratio)]
    ratio_mean: f64,
}

/// A workload that takes all of that.
#[derive(Debug, clap::Args)]
struct Drawn {
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    shared: Shared,
    #[command(flatten)]
    mean: RatioMean,
}

#[derive(Debug, clap::Args)]
struct ZipfArgs {
    /// The exponent, above 0 and at most 10
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// Share of requests that read
    #[arg(long, default_value_t = 0.7, value_parser = share)]
    reads: f64,
    #[command(flatten)]
    drawn: Drawn,
}

#[derive(Debug, clap::Args)]
struct SensitivityArgs {
    /// Copies of each content; --size is the working set
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    dedup: u64,
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    mean: RatioMean,
}

#[derive(Debug, clap::Args)]
struct SnapshotsArgs {
    /// Share of the volume that changes in a day
    #[arg(long, default_value_t = 0.023, value_parser = share)]
    changed: f64,
    #[command(flatten)]
    drawn: Drawn,
}

#[derive(Debug, clap::Args)]
struct TpccArgs {
    /// Share of all bytes that compression saves
    ///
    /// Below a half, slightly more is saved than requested. 0.82, 0.70 and 0.63 are the HighComp, MedComp and LowComp
    /// of "Compression and SSD: Where and How?"
    #[arg(long, default_value_t = 0.70)]
    saving: f64,
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    shared: Shared,
}

#[derive(Debug, clap::Args)]
struct PostmarkArgs {
    /// Share of reads among reads and appends
    #[arg(long, default_value_t = 0.5, value_parser = share)]
    reads: f64,
    /// Number of files at the start
    #[arg(long, default_value_t = 20_000)]
    files: u64,
    /// Size of the smallest file
    ///
    /// FlaZ has 10M, with 150 files, --access 64K, --reads 0.35, --size 16G
    #[arg(long, value_name = "SIZE", default_value = "500")]
    file_min: ByteSize,
    /// Size of the largest file (FlaZ: 100M)
    #[arg(long, value_name = "SIZE", default_value = "10000")]
    file_max: ByteSize,
    /// Size of a read or write
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    access: ByteSize,
    #[command(flatten)]
    drawn: Drawn,
}

#[derive(Debug, clap::Args)]
struct TpchArgs {
    /// Size of the database: tables, and indices of 0.62 of their size
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: ByteSize,
    /// Runs of the three queries, each with other parameters
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
    /// Memory for the database's blocks, as a share of its size
    #[arg(long, value_name = "SHARE", default_value_t = Run::default().pool, value_parser = share)]
    pool: f64,
    #[command(flatten)]
    made: Made,
}

#[derive(Debug, clap::Args)]
struct StormArgs {
    /// Trace of one boot, with fingerprints
    ///
    /// Default: a synthetic boot of 18 MB, 99 % reads, 14 % of them random
    #[arg(value_name = "TRACE")]
    template: Option<PathBuf>,
    /// Format of that trace, if zcsim does not recognise it
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Take the requests of one device of that trace alone
    #[arg(long, value_name = "DEVICE", requires = "template")]
    device: Option<DeviceChoice>,
    /// Stop at the first bad line of that trace
    #[arg(long, requires = "template")]
    strict: bool,
    /// Number of machines; the first is the template itself
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=i64::from(MACHINES_MAX)))]
    machines: u32,
    /// Boots of each machine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    boots: u32,
    /// Share of contents that a clone shares with the template
    #[arg(long, default_value_t = 0.9, value_parser = share)]
    overlap: f64,
    /// Largest shift of a clone's addresses, as a share of the image
    #[arg(long, default_value_t = 0.15, value_parser = share)]
    shift: f64,
    #[command(flatten)]
    made: Made,
}

#[derive(Debug, clap::Args)]
struct ComposeArgs {
    /// Traces with fingerprints; each is read twice
    #[arg(value_name = "TRACE", required = true, num_args = 1..)]
    traces: Vec<PathBuf>,
    /// Use the same addresses for all, not side by side
    #[arg(long)]
    same_volume: bool,
    /// Run the traces in turn, not all at once
    #[arg(long)]
    in_turn: bool,
    /// Stop at the first bad line
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    output: Output,
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "a share is a number from 0 to 1".to_owned())
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match generate(&args.kind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zcsim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn generate(kind: &KindArgs) -> anyhow::Result<()> {
    match kind {
        KindArgs::Zipf(args) => {
            if !(args.theta > 0.0 && args.theta <= 10.0) {
                bail!("--theta must be above 0 and at most 10, not {}", args.theta);
            }
            let made = args.drawn.workload(Kind::Zipf { theta: args.theta })?;
            args.drawn.volume.write(&Workload { reads: args.reads, ..made })
        }
        KindArgs::Mix(drawn) => drawn.generate(Kind::Mix(workload::Mix::default())),
        KindArgs::Sensitivity(args) => {
            let kind = Kind::Sensitivity { dedup: args.dedup };
            let ratio = (args.mean.ratio_mean, args.volume.ratio_deviation);
            args.volume.write(&args.volume.workload(kind, Some(0.0), ratio)?)
        }
        KindArgs::Scan(drawn) => drawn.generate(Kind::Scan),
        KindArgs::Snapshots(args) => args.drawn.generate(Kind::Snapshots { changed: args.changed }),
        KindArgs::Tpcc(args) => {
            if !(0.0..1.0).contains(&args.saving) {
                bail!("--saving must be from 0 to below 1, not {}", args.saving);
            }
            let ratio = workload::ratio_of_saving(args.saving, args.volume.ratio_deviation);
            args.volume.write(&args.volume.workload(Kind::Tpcc, args.shared.shared, ratio)?)
        }
        KindArgs::Postmark(args) => args.drawn.generate(Kind::Postmark(args.pool()?)),
        KindArgs::Specsfs(drawn) => drawn.generate(Kind::Specsfs),
        KindArgs::Tpch(args) => tpch(args),
        KindArgs::Storm(args) => storm(args),
        KindArgs::Compose(args) => compose(args),
    }
}

impl Volume {
    fn workload(&self, kind: Kind, shared: Option<f64>, ratio: (f64, f64)) -> anyhow::Result<Workload> {
        let (blocks, sizes) = (self.size.0 / 4096, kind.blocks_min()..=kind.blocks_max());
        if !sizes.contains(&blocks) {
            let mib = |blocks: u64| blocks.div_ceil(256);
            bail!("a volume of this kind must have {} to {} MiB", mib(*sizes.start()), mib(*sizes.end()));
        }
        let usual = match kind {
            Kind::Tpcc | Kind::Postmark(_) | Kind::Specsfs => 0.0,
            _ => 0.4,
        };
        let (requests, seed) = (self.requests, self.made.seed);
        Ok(Workload { kind, blocks, requests, reads: 1.0, shared: shared.unwrap_or(usual), ratio, seed })
    }

    fn write(&self, made: &Workload) -> anyhow::Result<()> {
        self.made.image.write(made.image_blocks(), made.image())?;
        self.made.output.write(made.generate().map(Ok))
    }
}

impl Drawn {
    fn workload(&self, kind: Kind) -> anyhow::Result<Workload> {
        let ratio = (self.mean.ratio_mean, self.volume.ratio_deviation);
        self.volume.workload(kind, self.shared.shared, ratio)
    }

    fn generate(&self, kind: Kind) -> anyhow::Result<()> {
        self.volume.write(&self.workload(kind)?)
    }
}

impl PostmarkArgs {
    fn pool(&self) -> anyhow::Result<Postmark> {
        let bytes = (self.file_min.0, self.file_max.0);
        if bytes.0 == 0 || bytes.0 > bytes.1 {
            bail!("--file-min must be above 0 and at most --file-max");
        }
        if self.files == 0 || self.access.0 == 0 {
            bail!("--files and --access must be above 0");
        }
        let (files, access_bytes, reads) = (self.files, self.access.0, self.reads);
        Ok(Postmark { files, bytes, access_bytes, reads, ..Postmark::default() })
    }
}

fn tpch(args: &TpchArgs) -> anyhow::Result<()> {
    let database = Database::new(args.size.0)?;
    args.made.image.write_with(database.blocks(), |mut out| Ok(database.image(&mut out)?))?;
    let run = Run { passes: args.passes, pool: args.pool, seed: args.made.seed, ..Run::default() };
    args.made.output.write(database.requests(&run).map(Ok))
}

fn storm(args: &StormArgs) -> anyhow::Result<()> {
    let template = if let Some(path) = &args.template {
        let shown = || path.display().to_string();
        let options = Options { format: args.format, strict: args.strict, device: args.device };
        let mut reader = Reader::open(path, options).with_context(shown)?;
        let template = Template::new(&mut reader).with_context(shown)?;
        tell_bad_lines(path, &reader);
        template
    } else {
        Template::new(boot(Boot { seed: args.made.seed, ..Boot::default() }).into_iter().map(Ok))?
    };
    let shape = Shape { overlap: args.overlap, shift_max: args.shift, seed: args.made.seed };
    let storm = Storm::new(&template, args.machines, args.boots, shape);
    let blocks = u64::from(args.machines) * u64::from(template.blocks());
    args.made.image.write(blocks, storm.image())?;
    args.made.output.write(storm.map(Ok))
}

/// Prints unreadable lines to the standard error; the trace goes to the standard output.
fn tell_bad_lines(path: &Path, reader: &Reader) {
    if let Some(first) = reader.bad_lines().first() {
        let (count, shown) = (reader.bad_count(), path.display());
        eprintln!(
            "zcsim: {shown}: {count} bad lines were passed over; first: {} ({})",
            first.line, first.why
        );
    }
}

/// Filters requests that the format can represent: reads and writes with a fingerprint, and flushes.
fn in_format(request: Result<Request, TraceError>) -> Option<Result<Request, TraceError>> {
    match request {
        Ok(request) if request.op == Op::Flush => Some(Ok(request)),
        Ok(request) if !matches!(request.op, Op::Read | Op::Write) => None,
        Ok(request) if request.content.is_none() => Some(Err(TraceError::NoContents)),
        other => Some(other),
    }
}

fn compose(args: &ComposeArgs) -> anyhow::Result<()> {
    let open = |path: &PathBuf| {
        let shown = || path.display().to_string();
        Reader::open(path, Options { strict: args.strict, ..Options::default() }).with_context(shown)
    };
    let (mut parts, mut at) = (Vec::new(), 0_u64);
    for path in &args.traces {
        let mut ends = Ends::default();
        let mut left_out = 0_u64;
        let mut reader = open(path)?;
        for request in &mut reader {
            let request = request.with_context(|| path.display().to_string())?;
            match in_format(Ok(request)) {
                Some(kept) => ends.add(&kept.with_context(|| path.display().to_string())?),
                None => left_out += 1,
            }
        }
        tell_bad_lines(path, &reader);
        if ends.bytes() == 0 {
            bail!("{}: no request says whether it reads or writes", path.display());
        }
        if left_out > 0 {
            eprintln!(
                "zcsim: {}: {left_out} requests that neither read, write nor flush are left out",
                path.display()
            );
        }
        let base = if args.same_volume { 0 } else { at };
        at = at.saturating_add(ends.bytes());
        parts.push((open(path)?.filter_map(in_format as fn(_) -> _), ends, base));
    }
    let order = if args.in_turn { Order::InTurn } else { Order::AtOnce };
    args.output.write(Composed::new(parts, order).map(|request| request.map_err(anyhow::Error::from)))
}
