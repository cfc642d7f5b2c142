//! `zcsim generate`: a made-up trace, in the format with fingerprints and compressed sizes.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use zc_trace::workload::{self, Kind, Workload};

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
    /// For zipf: share of requests that read
    #[arg(long, default_value_t = 0.7)]
    reads: f64,
    /// For snapshots: share of the volume that changes in a day
    #[arg(long, default_value_t = 0.023)]
    changed: f64,
    /// Share of contents that come from a pool, and come again; default: 0 for tpcc, 0.4 for the others
    #[arg(long)]
    shared: Option<f64>,
    /// For tpcc: share of all bytes that compression saves, in place of --ratio-mean; 0.82, 0.70 and 0.63 are the HighComp,
    /// MedComp and LowComp of "Compression and SSD: Where and How?"
    #[arg(long, default_value_t = 0.70)]
    saving: f64,
    /// Mean of the compression ratio, for all but tpcc
    #[arg(long, default_value_t = 2.0)]
    ratio_mean: f64,
    /// Standard deviation of the compression ratio
    #[arg(long, default_value_t = 0.5)]
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

fn generate(args: &Args) -> anyhow::Result<()> {
    let blocks = args.size.0 / 4096;
    let share = |name: &str, value: f64| {
        if (0.0..=1.0).contains(&value) { Ok(value) } else { bail!("--{name} is a share, from 0 to 1") }
    };
    if !(args.theta > 0.0 && args.theta <= 10.0) {
        bail!("--theta is above 0 and at most 10");
    }
    let kind = match args.kind {
        KindArg::Zipf => Kind::Zipf { theta: args.theta },
        KindArg::Mix => Kind::Mix(workload::Mix::default()),
        KindArg::Scan => Kind::Scan,
        KindArg::Snapshots => Kind::Snapshots { changed: share("changed", args.changed)? },
        KindArg::Tpcc => Kind::Tpcc,
    };
    let least = kind.blocks_min();
    if !(least..=1 << 40).contains(&blocks) {
        bail!("a volume of this kind has {} MiB to 4 PiB", (least * 4096).div_ceil(1 << 20));
    }
    if !(0.0..1.0).contains(&args.saving) {
        bail!("--saving is a share, from 0 to below 1");
    }
    let (shared, ratio) = match kind {
        Kind::Tpcc => (0.0, workload::ratio_of_saving(args.saving, args.ratio_deviation)),
        _ => (0.4, (args.ratio_mean, args.ratio_deviation)),
    };
    let made = Workload {
        kind,
        blocks,
        requests: args.requests,
        reads: share("reads", args.reads)?,
        shared: share("shared", args.shared.unwrap_or(shared))?,
        ratio,
        seed: args.seed,
    };
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
