//! `zcsim generate`: a made-up trace, in the format with fingerprints and compressed sizes.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use zc_trace::workload::{self, Kind, Postmark, Workload};

use crate::settings::ratio;
use crate::size::Size;

/// What to make.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What is accessed
    #[arg(value_enum)]
    kind: KindArg,
    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: Size,
    /// Requests
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: u64,
    /// For zipf: the exponent
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// For zipf: share of requests that read, 0.7 unless given; for postmark: of reads among reads and appends, 0.5
    #[arg(long)]
    reads: Option<f64>,
    /// For snapshots: share of the volume that changes in a day
    #[arg(long, default_value_t = 0.023)]
    changed: f64,
    /// Share of contents that come from a pool, and come again; 0 for tpcc, postmark and specsfs, 0.4 for the others
    /// unless given
    #[arg(long)]
    shared: Option<f64>,
    /// For tpcc: share of all bytes that compression saves, in place of --ratio-mean (below a half, a little more is
    /// saved than asked for); 0.82, 0.70 and 0.63 are the HighComp, MedComp and LowComp of "Compression and SSD: Where
    /// and How?"
    #[arg(long, default_value_t = 0.70)]
    saving: f64,
    /// For postmark: files at first
    #[arg(long, default_value_t = 20_000)]
    files: u64,
    /// For postmark: bytes of the smallest file (FlaZ: 10M, with 150 files, --access 64K, --reads 0.35, --size 16G)
    #[arg(long, value_name = "SIZE", default_value = "500")]
    file_min: Size,
    /// For postmark: bytes of the largest file (FlaZ: 100M)
    #[arg(long, value_name = "SIZE", default_value = "10000")]
    file_max: Size,
    /// For postmark: bytes that are read or written at once
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    access: Size,
    /// Mean of the compression ratio, for all but tpcc
    #[arg(long, default_value_t = 2.0, value_parser = ratio)]
    ratio_mean: f64,
    /// Standard deviation of the compression ratio
    #[arg(long, default_value_t = 0.5, value_parser = ratio)]
    ratio_deviation: f64,
    /// Tells one trace from another
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where it goes; default: standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum KindArg {
    /// Addresses by Zipf's law, scrambled, 4 KiB at a time (the form of YCSB)
    Zipf,
    /// Four writes per read in a twelfth of the volume, 8 KiB at a time (as far as the FIU traces are known)
    Mix,
    /// The volume from front to back, over and over, 128 KiB at a time
    Scan,
    /// Copies of the volume day by day, read from front to back, 512 KiB at a time
    Snapshots,
    /// Pages of a database under TPC-C, of as many warehouses as fit the volume (69 MiB each)
    Tpcc,
    /// A mail server's files that come, grow, are read and go (PostMark)
    Postmark,
    /// A file server's files, a tenth of which are read and written (like SPECsfs2008)
    Specsfs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match generate(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zcsim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn share(name: &str, value: f64) -> anyhow::Result<f64> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { bail!("--{name} is a share, from 0 to 1") }
}

fn postmark(args: &Args) -> anyhow::Result<Postmark> {
    let bytes = (args.file_min.0, args.file_max.0);
    if bytes.0 == 0 || bytes.0 > bytes.1 {
        bail!("--file-min is above 0 and at most --file-max");
    }
    if args.files == 0 || args.access.0 == 0 {
        bail!("--files and --access are above 0");
    }
    let reads = share("reads", args.reads.unwrap_or(0.5))?;
    Ok(Postmark { files: args.files, bytes, access_bytes: args.access.0, reads, ..Postmark::default() })
}

fn workload(args: &Args) -> anyhow::Result<Workload> {
    if !(args.theta > 0.0 && args.theta <= 10.0) {
        bail!("--theta is above 0 and at most 10");
    }
    if !(0.0..1.0).contains(&args.saving) {
        bail!("--saving is a share, from 0 to below 1");
    }
    let kind = match args.kind {
        KindArg::Zipf => Kind::Zipf { theta: args.theta },
        KindArg::Mix => Kind::Mix(workload::Mix::default()),
        KindArg::Scan => Kind::Scan,
        KindArg::Snapshots => Kind::Snapshots { changed: share("changed", args.changed)? },
        KindArg::Tpcc => Kind::Tpcc,
        KindArg::Postmark => Kind::Postmark(postmark(args)?),
        KindArg::Specsfs => Kind::Specsfs,
    };
    let (blocks, sizes) = (args.size.0 / 4096, kind.blocks_min()..=kind.blocks_max());
    if !sizes.contains(&blocks) {
        let mib = |blocks: u64| blocks.div_ceil(256);
        bail!("a volume of this kind has {} to {} MiB", mib(*sizes.start()), mib(*sizes.end()));
    }
    let drawn = (args.ratio_mean, args.ratio_deviation);
    let (shared, ratio) = match kind {
        Kind::Tpcc => (0.0, workload::ratio_of_saving(args.saving, args.ratio_deviation)),
        Kind::Postmark(_) | Kind::Specsfs => (0.0, drawn),
        _ => (0.4, drawn),
    };
    Ok(Workload {
        kind,
        blocks,
        requests: args.requests,
        reads: share("reads", args.reads.unwrap_or(0.7))?,
        shared: share("shared", args.shared.unwrap_or(shared))?,
        ratio,
        seed: args.seed,
    })
}

fn generate(args: &Args) -> anyhow::Result<()> {
    let made = workload(args)?;
    let write = |out: &mut dyn std::io::Write| {
        let mut out = std::io::BufWriter::new(out);
        workload::lines(made.generate(), &mut out)?;
        out.flush()
    };
    match &args.out {
        Some(path) => {
            let shown = || path.display().to_string();
            let mut file = std::fs::File::create(path).with_context(shown)?;
            write(&mut file).with_context(shown)
        }
        None => match write(&mut std::io::stdout().lock()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        },
    }
}
