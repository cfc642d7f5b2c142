//! The hit ratios of Figures 3, 6, 7 and 10.

use zc_core::Codec;
use zc_replay::flaz::{self, Settings};

use super::workloads::{Loaded, postmark, specsfs, tpch};
use crate::context::{ZLIB, each};
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const PACKED: &[Ablation] = &[Ablation::Incompressible];
const SFS: &str = "Compression finds 30 % more in the smallest cache, in the paper 46 %: the benchmark's own files are not at hand, and \
                    what compresses by 1.7 in the mean cannot find 1.7 times as much of what is read once";
const ZLIB_GAIN: &str = "zlib gains 32 and 58 % of hits, in the paper 30 to 50 %: its sizes here are those of the paper's Tables 2 and 3";

/// FlaZ's Figure 3(b).
pub(crate) const FIGURE_3: Figure = Figure {
    id: "flaz-3",
    title: "PostMark: hit ratio of an SSD cache, compressed and not",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 4.2, Figure 3(b)",
    ours: "A trace with PostMark's proportions through a model of FlaZ, lz4 in the place of lzo, and through a direct-mapped \
           cache without compression; caches of 12.5 to 100 % of the space that files take.",
    differences: "The paper draws this panel and states throughput only (up to 20 % over the uncompressed cache). Our files \
                  lie first fit on a bare volume, the paper's in XFS behind 1 GB of DRAM.",
    standing: Standing::NotComparable(
        "The paper draws the hits and states throughput, which is in `flaz-time`",
    ),
    numbers: &[],
    quick: true,
    run: run_postmark,
};

/// FlaZ's Figure 6(b).
pub(crate) const FIGURE_6: Figure = Figure {
    id: "flaz-6",
    title: "SPECsfs: hit ratio of an SSD cache, compressed and not",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 4.3, Figure 6(b)",
    ours: "A load like SPECsfs2008's (a tenth of a file set is accessed, each file as often as the other) through the model of \
           FlaZ, lz4 in the place of lzo, and through a direct-mapped cache without compression; caches of 2 to 21 % of the \
           file set.",
    differences: "The benchmark's own files and its metadata are not at hand; `zc_trace::workload` says what of its load is \
                  published.",
    standing: Standing::Contradicted(SFS),
    numbers: &[],
    quick: true,
    run: run_specsfs,
};

/// FlaZ's Figure 7(d).
pub(crate) const FIGURE_7: Figure = Figure {
    id: "flaz-7",
    title: "TPC-H: hit ratio of an SSD cache, compressed and not",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 4.1, Figure 7(d)",
    ours: "What Q3, Q11 and Q14 read, twice, of tables and indices with the rows that TPC-H's generator makes, through the model \
           of FlaZ, lz4 in the place of lzo, and through a direct-mapped cache without compression. Sizes are those of the \
           rows' own bytes under lz4.",
    differences: "Plans (nested loops over indices) and the memory in front (blocks of 0.077 of the database) are ours, not MySQL's. \
                  The cache is empty at first, and the second pass draws other segments, dates and nations, so that a cache \
                  which holds everything does not find everything.",
    standing: Standing::NotComparable(
        "The paper draws the hits and states execution times, which are in `flaz-time`",
    ),
    numbers: &[],
    quick: true,
    run: run_tpch,
};

/// FlaZ's Figure 10, its hits.
pub(crate) const FIGURE_10: Figure = Figure {
    id: "flaz-10",
    title: "PostMark: zlib in the place of lzo",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 4.6, Figure 10",
    ours: "As flaz-3 with zlib's sizes, and as many more lines as it saves room; caches that hold 50 and 12.5 % of the \
           workload without compression.",
    differences: "The paper's sizes are relative to a cache that just holds the workload under zlib.",
    standing: Standing::Contradicted(ZLIB_GAIN),
    numbers: &[("flaz.f10.zlib", Standing::Contradicted(ZLIB_GAIN))],
    quick: true,
    run: run_zlib,
};

/// Returns the hit ratios in per cent of caches of these shares of the footprint.
fn hits(
    context: &Context,
    workload: &Loaded,
    shares: &[f64],
    (codec, overbooking): (Codec, f64),
) -> Result<Vec<f64>, FigureError> {
    let span = workload.span_bytes;
    each(shares, |share| {
        let device = context.room(crate::nitro::percent_of(span, *share), span * 2);
        Ok(flaz::run(&workload.trace, Settings::new(device, codec, overbooking)).read_hit_ratio() * 100.0)
    })
}

/// Compares hits without compression and with it: a multiple in caches below the largest. Even incompressible data
/// have slightly more hits, as FlaZ has more lines than blocks.
fn compare(
    context: &Context,
    workload: &Loaded,
    (shares, most, gain): (&[f64], f64, f64),
    outcome: &mut Outcome,
) -> Result<Vec<(f64, f64)>, FigureError> {
    let plain = hits(context, workload, shares, (Codec::Raw, 1.0))?;
    let packed = hits(context, workload, shares, (Codec::Lz4, workload.overbooking))?;
    let axes = (Axis::log2("cache, % of the address space"), Axis::linear("hits, %"));
    let mut chart = Chart::lines(&format!("{}: hits", workload.name), axes.0, axes.1);
    chart.add("uncompressed", shares.iter().copied().zip(plain.iter().copied()).collect());
    chart.add("FlaZ", shares.iter().copied().zip(packed.iter().copied()).collect());
    outcome.charts.push(chart);
    let row = |((share, plain), packed): ((&f64, &f64), &f64)| {
        let gain = (packed / plain - 1.0) * 100.0;
        vec![format!("{share:.1}"), format!("{plain:.2}"), format!("{packed:.2}"), format!("{gain:+.1}")]
    };
    let rows = shares.iter().zip(&plain).zip(&packed).map(row).collect();
    outcome.table("Hits, %", &["cache %", "uncompressed", "FlaZ", "gain %"], rows);
    for ((share, plain), packed) in
        shares.iter().zip(&plain).zip(&packed).filter(|((share, _), _)| **share < most)
    {
        outcome.asserted(
            PACKED,
            *packed > plain * gain,
            format!("at {share:.1} % compression finds at least {gain} times as much"),
            format!("{packed:.2} > {plain:.2} %"),
        );
    }
    Ok(plain.into_iter().zip(packed).collect())
}

fn run_postmark(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    compare(context, &postmark(context)?, (&[12.5, 25.0, 50.0, 100.0], 100.0, 1.05), &mut outcome)?;
    Ok(outcome)
}

fn run_specsfs(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let found = compare(context, &specsfs(context)?, (&[2.0, 5.0, 10.0, 21.0], 21.0, 1.05), &mut outcome)?;
    let gains: Vec<f64> = found.iter().map(|(plain, packed)| (packed / plain - 1.0) * 100.0).collect();
    outcome.asserted(
        PACKED,
        gains[0] > 10.0 && gains[3] < gains[0],
        "the gain is larger in the smallest cache than in the largest, as the uncompressed one approaches",
        gains.iter().map(|gain| format!("{gain:+.1} %")).collect::<Vec<_>>().join(" "),
    );
    Ok(outcome)
}

fn run_tpch(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let found = compare(context, &tpch(context)?, (&[25.0, 50.0, 100.0], 100.0, 1.25), &mut outcome)?;
    let (plain, packed) = found[2];
    outcome.asserted(
        &[Ablation::LittleRoom],
        (plain - packed).abs() < 1.0,
        "at 100 % there is nothing to gain",
        format!("{packed:.2} and {plain:.2} %"),
    );
    Ok(outcome)
}

fn run_zlib(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let workload = postmark(context)?;
    let shares = [12.5, 50.0];
    let lzo = hits(context, &workload, &shares, (Codec::Lz4, workload.overbooking))?;
    let zlib = hits(context, &workload, &shares, (ZLIB, workload.overbooking * 0.66 / 0.46))?;
    let mut rows = Vec::new();
    for ((share, lzo), zlib) in shares.iter().zip(&lzo).zip(&zlib) {
        let gain = (zlib / lzo - 1.0) * 100.0;
        outcome.asserted(
            PACKED,
            gain > 15.0,
            format!("at {share} % zlib has at least 15 % more hits"),
            format!("{zlib:.2} > {lzo:.2} %"),
        );
        outcome.beside("flaz.f10.zlib", format!("at {share} %: hits {gain:+.0}|-"));
        rows.push(vec![share.to_string(), format!("{lzo:.2}"), format!("{zlib:.2}"), format!("{gain:+.1}")]);
    }
    outcome.table("Hits, %", &["cache %", "lz4", "zlib", "gain %"], rows);
    Ok(outcome)
}
