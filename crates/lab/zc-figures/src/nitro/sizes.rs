//! Table 1's sizes: extents of 4 to 128 KiB, write-evict units of 0.5 to 4 MiB; and the codec.

use zc_core::Codec;
use zc_replay::Trace;
use zc_replay::cache::Report;
use zc_replay::time::profile::CpuProfile;

use super::hits::weu_kib;
use super::runs::{Variant, percent_of};
use super::workloads::{SHAPES, load_all};
use crate::context::{ZLIB, each};
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const NO_RESULTS: &str = "The paper lists the sizes, and shows no results over them";
const SIZES: &str = "Sizes after zlib are taken to be 21 % below those after LZ4, as measured on root file systems; both times \
                     are measured";

/// Nitro's extent sizes.
pub(crate) const EXTENTS: Figure = Figure {
    id: "nitro-extents",
    title: "Read hits and deduplication over the extent size",
    source: "Li et al., Nitro, USENIX ATC 2014, sections 3.1 and 5.3, Table 1",
    ours: "The production cache manager (D,C) with extents of 4 to 128 KiB, caches of 2 % of the volume; with --traces also \
           a virtual machine at work, caches of 40 % of what it touches; hits and ratios are those after warming.",
    differences: "The paper states the trade-off in words only. Generated contents are shared 8 KiB at a time, so that larger \
                  extents find next to no duplicates; a file server's longer runs would lose less.",
    standing: Standing::NotComparable(NO_RESULTS),
    numbers: &[],
    quick: false,
    run: run_extents,
};

fn extents(trace: &Trace, bytes: u64, weu: u32) -> Result<Vec<(u32, Report)>, FigureError> {
    // A unit holds at least eight extents.
    let sizes: Vec<u32> = [4, 8, 16, 32, 64, 128].into_iter().filter(|size| size * 8 <= weu).collect();
    let reports = each(&sizes, |size| {
        Variant { extent_kib: *size, ..Variant::new(true, true, weu) }.run(trace, bytes)
    })?;
    Ok(sizes.into_iter().zip(reports).collect())
}

fn run_extents(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let axes = (Axis::log2("extent, KiB"), Axis::linear("read hits, %"));
    let mut chart = Chart::lines("Read hits over the extent size", axes.0, axes.1);
    let mut rows = Vec::new();
    let mut show = |name: &str, found: &[(u32, Report)], outcome: &mut Outcome| {
        for (size, report) in found {
            let cells = [
                format!("{:.2}", report.read_hit_ratio() * 100.0),
                format!("{:.3}", report.dedup_ratio()),
                format!("{:.3}", report.compression_ratio()),
            ];
            rows.push([vec![name.to_owned(), size.to_string()], cells.to_vec()].concat());
        }
        let ratios: Vec<f64> = found.iter().map(|(_, report)| report.dedup_ratio()).collect();
        outcome.asserted(
            &[Ablation::UniqueContents],
            ratios.windows(2).all(|pair| pair[1] <= pair[0] + 0.05)
                && ratios.first().zip(ratios.last()).is_some_and(|(small, large)| *small > large + 0.1),
            format!("{name}: smaller extents find more duplicates"),
            ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" "),
        );
        let line = found.iter().map(|(size, report)| (f64::from(*size), report.read_hit_ratio() * 100.0));
        chart.add(name, line.collect());
    };
    for workload in &loaded {
        let bytes = percent_of(workload.volume_bytes, 2.0);
        show(workload.name, &extents(&workload.trace, bytes, weu_kib(context))?, &mut outcome);
    }
    match context.trace("zc_deb12-desktop-job")? {
        Some(trace) => {
            let bytes = percent_of(trace.footprint_bytes(), 40.0);
            show("desktop job", &extents(&trace, bytes, 2048)?, &mut outcome);
        }
        None => outcome.remark("With --traces DIR there is a line of a real trace, zc_deb12-desktop-job."),
    }
    let columns = ["trace", "extent KiB", "read hits %", "dedup ratio", "compression ratio"];
    outcome.table("Extent size", &columns, rows);
    outcome.charts.push(chart);
    Ok(outcome)
}

/// Nitro's unit sizes.
pub(crate) const UNITS: Figure = Figure {
    id: "nitro-units",
    title: "Read hits over the size of write-evict units",
    source: "Li et al., Nitro, USENIX ATC 2014, section 5.3, Table 1",
    ours: "The production cache manager (D,C), caches of 2 % of the volume, units of 0.5 to 4 MiB; an eighth of that at small \
           scale.",
    differences: "The paper lists the sizes and shows no results over them.",
    standing: Standing::NotComparable(NO_RESULTS),
    numbers: &[],
    quick: false,
    run: run_units,
};

fn run_units(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let base = weu_kib(context);
    let sizes = [base / 4, base / 2, base, base * 2];
    let axes = (Axis::log2("write-evict unit, KiB"), Axis::linear("read hits, %"));
    let mut chart = Chart::lines("Read hits over the unit size", axes.0, axes.1);
    let mut rows = Vec::new();
    for workload in &loaded {
        let bytes = percent_of(workload.volume_bytes, 2.0);
        let hits = each(&sizes, |size| {
            let report = Variant::new(true, true, *size).run(&workload.trace, bytes)?;
            Ok(report.read_hit_ratio() * 100.0)
        })?;
        rows.extend(
            sizes
                .iter()
                .zip(&hits)
                .map(|(size, hit)| vec![workload.name.to_owned(), size.to_string(), format!("{hit:.2}")]),
        );
        let (low, high) =
            hits.iter().fold((f64::MAX, f64::MIN), |(low, high), hit| (low.min(*hit), high.max(*hit)));
        outcome.shape(
            Standing::NotComparable(NO_RESULTS),
            high - low <= 3.0,
            format!("{}: all sizes within 3 points", workload.name),
            format!("{low:.2} to {high:.2} %"),
        );
        chart.add(workload.name, sizes.iter().map(|size| f64::from(*size)).zip(hits).collect());
    }
    outcome.table("Unit size", &["trace", "unit KiB", "read hits %"], rows);
    outcome.charts.push(chart);
    Ok(outcome)
}

/// gzip in the place of LZ4.
pub(crate) const GZIP: Figure = Figure {
    id: "nitro-gzip",
    title: "Read hits with gzip in the place of LZ4",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.2",
    ours: "The production cache manager (D, with LZ4 and with zlib), caches of 1 % of the volume, on Homes; with --traces also a virtual machine at work with measured sizes.",
    differences: "zlib's sizes are taken to be those of Zstandard at level 1: in the generated mix, and for FIU's contents, of \
                  which no sizes are told, 21 % below LZ4's, as on root file systems of Debian 12 and 13; in the real \
                  trace measured.",
    standing: Standing::Fitted(SIZES),
    numbers: &[("nitro.gzip", Standing::Fitted(SIZES))],
    quick: false,
    run: run_gzip,
};

fn run_gzip(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    let mut compare = |name: &str, trace: &Trace, bytes: u64, weu: u32, outcome: &mut Outcome| {
        let base = Variant::new(true, true, weu);
        let both = each(&["lz4", "zlib"], |codec| Variant { codec, ..base }.run(trace, bytes))?;
        let hits: Vec<f64> = both.iter().map(|report| report.read_hit_ratio() * 100.0).collect();
        let ratios: Vec<f64> = both.iter().map(Report::compression_ratio).collect();
        let gain = (ratios[1] / ratios[0] - 1.0) * 100.0;
        rows.push(
            [
                vec![name.to_owned()],
                [hits[0], hits[1], ratios[0], ratios[1], gain].map(|v| format!("{v:.2}")).to_vec(),
            ]
            .concat(),
        );
        outcome.asserted(
            &[Ablation::Incompressible],
            hits[1] > hits[0],
            format!("{name}: the better compression has more hits"),
            format!("{:.2} > {:.2} %", hits[1], hits[0]),
        );
        let cpu = CpuProfile::measured(1);
        let [lz4, zlib] = [Codec::Lz4, ZLIB].map(|codec| cpu.decompress_ns(codec, 8192) as f64);
        outcome.beside("nitro.gzip", format!("{name} {gain:.0}|{:.0}", (zlib / lz4 - 1.0) * 100.0));
        Ok::<(), FigureError>(())
    };
    let homes = SHAPES[1].load_one(context, &mut outcome)?;
    compare("homes", &homes.trace, percent_of(homes.volume_bytes, 1.0), weu_kib(context), &mut outcome)?;
    match context.trace("zc_deb12-desktop-job")? {
        Some(trace) => {
            let bytes = percent_of(trace.footprint_bytes(), 40.0);
            compare("desktop job", &trace, bytes, 2048, &mut outcome)?;
        }
        None => outcome.remark("With --traces DIR there is a row of a real trace, zc_deb12-desktop-job."),
    }
    let columns = ["trace", "LZ4 hits %", "gzip hits %", "LZ4 ratio", "gzip ratio", "more compression %"];
    outcome.table("gzip and LZ4", &columns, rows);
    Ok(outcome)
}
