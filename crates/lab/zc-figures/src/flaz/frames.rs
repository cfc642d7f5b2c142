//! Frames (the paper's extents), the cleaner and the metadata cache: Figures 8, 9 and 11.

use zc_core::Codec;
use zc_replay::flaz::{self, Cleaner, Packing, Settings};

use super::workloads::{Loaded, postmark, tpch};
use crate::context::each;
use crate::nitro::percent_of;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const READS: &str = "Frames of 256 KiB read 7.8 times as much as frames of 32 KiB on TPC-H, in the paper up to 4 times: look-ups by key \
                     are scattered here, and next to every hit reads a frame for one block";
const LEAST: &str = "PostMark's traffic is least with frames of 32 KiB here, in the paper its time with 128 to 512: the model of traffic \
                     has no cost for an operation";
const METADATA: &str = "1.4 % of traffic at small scale, in the paper below 1 %: a file is smaller here than what a page of metadata \
                        describes. At full scale it is below 1 %";

/// FlaZ's Figure 8, its I/O.
pub(crate) const FIGURE_8: Figure = Figure {
    id: "flaz-8",
    title: "Traffic to the SSD over the size of frames",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 4.4, Figure 8",
    ours: "TPC-H and PostMark traces through the model of FlaZ, frames of 8 to 512 KiB, caches that hold everything: bytes read \
           and written per byte asked for.",
    differences: "The paper shows times; the text tells of traffic what is asserted here. Of TPC-H it runs Q14 alone in a cache that \
                  has everything; here it is all three queries, twice, whose look-ups are so scattered that next to every hit \
                  reads a frame for one block. Frames of 4 KiB cannot hold a block \
                  that does not compress. The buffer has 2 MiB, but at least four frames.",
    standing: Standing::Contradicted(READS),
    numbers: &[
        ("flaz.f8.tpch", Standing::Contradicted(READS)),
        ("flaz.f8.postmark", Standing::Contradicted(LEAST)),
    ],
    quick: true,
    run: run_sizes,
};

/// FlaZ's Figure 9.
pub(crate) const FIGURE_9: Figure = Figure {
    id: "flaz-9",
    title: "PostMark with the cleaner at work",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 4.5, Figure 9",
    ours: "PostMark through the model of FlaZ in a cache that the compressed workload fills to four fifths, marks at 10 and 20 % of free \
           frames, 2 MiB a scan: share of SSD traffic that is the cleaner's.",
    differences: "The paper measures throughput over time; without time, the share of the device's traffic stands for the \
                  slowdown, as the SSD's peak throughput limits the cleaner there.",
    standing: Standing::NotComparable(
        "The paper measures throughput, which is in `flaz-time`; here it is a share of traffic",
    ),
    numbers: &[],
    quick: true,
    run: run_cleaner,
};

/// FlaZ's Figure 11(a).
pub(crate) const FIGURE_11: Figure = Figure {
    id: "flaz-11",
    title: "Metadata I/O over the size of the metadata cache",
    source: "Makatos et al., FlaZ, EuroSys 2010, section 4.7, Figure 11(a)",
    ours: "PostMark through the model of FlaZ, metadata pages of 4 KiB in an LRU cache of 1/64 to all of the metadata.",
    differences: "Sizes are scaled with the workload: the paper's 64 KB to 16 MB for a file set of 16 GB are 1/512 to half of \
                  all metadata. Files are read and written front to back, so that every file brings in its pages once; \
                  at small scale a file is smaller than what a page describes, and the share larger for that.",
    standing: Standing::Contradicted(METADATA),
    numbers: &[
        ("flaz.f11.meta", Standing::Contradicted(METADATA)),
        (
            "flaz.meta",
            Standing::Fitted("Bytes of metadata per line, to the paper's 880 KB and 1.25 MB per GB"),
        ),
    ],
    quick: true,
    run: run_metadata,
};

fn run_sizes(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let sizes = [8_u32, 16, 32, 64, 128, 256, 512];
    let mut rows = Vec::new();
    for workload in [tpch(context)?, postmark(context)?] {
        let device = workload.span_bytes;
        let found = each(&sizes, |kib| {
            let kib = if context.ablates(Ablation::SameFrames) { &32 } else { kib };
            let packing = Packing {
                frame_bytes: kib << 10,
                buffer_frames: zc_core::usize_from_u32((2048 / kib).max(4)),
                ..Packing::default()
            };
            Ok(flaz::run(
                &workload.trace,
                Settings { packing, ..Settings::new(device, Codec::Lz4, workload.overbooking) },
            ))
        })?;
        let read = |o: &flaz::Outcome| o.ssd_read_bytes as f64 / (o.read_hits.max(1) * 4096) as f64;
        let written = |o: &flaz::Outcome| {
            let cleaner = o.frames.cleaner_written as f64 / o.frames.written.max(1) as f64;
            o.ssd_written_bytes as f64 * (1.0 + cleaner) / o.put_bytes.max(1) as f64
        };
        let axes = (Axis::log2("frame, KiB"), Axis::linear("bytes of SSD traffic per byte"));
        let mut chart =
            Chart::lines(&format!("{}: traffic over the frame size", workload.name), axes.0, axes.1);
        chart.add(
            "read per byte hit",
            sizes.iter().map(|s| f64::from(*s)).zip(found.iter().map(read)).collect(),
        );
        chart.add(
            "written per byte put",
            sizes.iter().map(|s| f64::from(*s)).zip(found.iter().map(written)).collect(),
        );
        outcome.charts.push(chart);
        rows.extend(sizes.iter().zip(&found).map(|(size, found)| {
            vec![
                workload.name.to_owned(),
                size.to_string(),
                format!("{:.3}", read(found)),
                format!("{:.3}", written(found)),
            ]
        }));
        let (middle, large) = (&found[2], &found[5]);
        if workload.name == "TPC-H" {
            let factor = read(large) / read(middle);
            outcome.contradicted(
                READS,
                (5.0..=8.0).contains(&factor),
                "TPC-H: frames of 256 KiB read 5 to 8 times what those of 32 KiB do, the paper's up to 4 times",
                format!("{factor:.1} times"),
            );
            outcome.beside("flaz.f8.tpch", format!("-|-|{factor:.1}"));
        } else {
            let written: Vec<f64> = found.iter().map(written).collect();
            written_per_byte(&sizes, &written, &mut outcome);
        }
    }
    outcome.table(
        "SSD traffic",
        &["workload", "frame KiB", "read per byte hit", "written per byte put"],
        rows,
    );
    Ok(outcome)
}

/// Compares the write amplification of PostMark over frame sizes.
fn written_per_byte(sizes: &[u32], written: &[f64], outcome: &mut Outcome) {
    let (small, large) = (written[0], written[5]);
    outcome.asserted(
        &[Ablation::SameFrames],
        large < small,
        "PostMark: larger frames leave less room unused",
        format!("{large:.3} < {small:.3}"),
    );
    let least = written.iter().copied().fold(f64::MAX, f64::min);
    let at = sizes.iter().zip(written).find(|(_, written)| **written <= least);
    let at = at.map_or(0, |(kib, _)| *kib);
    let loss = (written[3] / least - 1.0) * 100.0;
    outcome.beside("flaz.f8.postmark", format!("least written at {at}|{loss:.0} more written at 64 KiB"));
}

/// A device that the compressed workload all but fills.
pub(super) fn tight(workload: &Loaded) -> u64 {
    percent_of(workload.span_bytes, 115.0 / workload.overbooking)
}

fn run_cleaner(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let workload = postmark(context)?;
    let device = tight(&workload);
    let marks = [None, Some((0.05, 0.1)), Some((0.1, 0.2)), Some((0.2, 0.3))];
    let found = each(&marks, |marks| {
        let marks = marks.filter(|_| !context.ablates(Ablation::NoCleaner));
        let cleaner = marks.map(|(low, high)| Cleaner { low, high, scan_bytes: 2 << 20 });
        let packing = Packing { cleaner, ..Packing::default() };
        Ok(flaz::run(
            &workload.trace,
            Settings { packing, ..Settings::new(device, Codec::Lz4, workload.overbooking) },
        ))
    })?;
    let share = |found: &flaz::Outcome| {
        let frames = &found.frames;
        let own = (frames.cleaner_read + frames.cleaner_written) as f64;
        own / (own + (frames.read + frames.written) as f64) * 100.0
    };
    let rows = marks.iter().zip(&found).map(|(marks, found)| {
        let marks = marks
            .map_or("none".to_owned(), |(low, high)| format!("{:.0} to {:.0} %", low * 100.0, high * 100.0));
        let frames = &found.frames;
        let counts = [found.no_room, frames.cleanings, frames.cleaner_read, frames.cleaner_written];
        let mut row = vec![marks];
        row.extend(counts.map(|count| count.to_string()));
        row.extend([format!("{:.1}", share(found)), format!("{:.2}", found.read_hit_ratio() * 100.0)]);
        row
    });
    let columns =
        ["marks", "no room", "cleanings", "frames read", "frames written", "share of traffic %", "hits %"];
    outcome.table("The cleaner", &columns, rows.collect());
    outcome.asserted(
        &[Ablation::NoCleaner],
        found[0].no_room > 0 && found[2].no_room * 10 < found[0].no_room,
        "without the cleaner blocks find no room, with it next to all do",
        format!("{} and {} blocks", found[0].no_room, found[2].no_room),
    );
    outcome.asserted(
        &[Ablation::NoCleaner],
        found[2].frames.cleaner_read > found[2].frames.cleaner_written,
        "it reads more than it writes",
        format!("{} > {} frames", found[2].frames.cleaner_read, found[2].frames.cleaner_written),
    );
    Ok(outcome)
}

fn run_metadata(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let workload = postmark(context)?;
    let device = percent_of(workload.span_bytes, 50.0);
    let all = device / 4096 * 8;
    let shares = [512_u64, 128, 64, 16, 4, 1];
    let found = each(&shares, |share| {
        let metadata_cache_bytes = Some(context.room(all / share * 2, all * 2));
        let settings = Settings::new(device, Codec::Lz4, workload.overbooking);
        Ok(flaz::run(&workload.trace, Settings { metadata_cache_bytes, ..settings }))
    })?;
    let per_cent = |found: &flaz::Outcome| {
        let bytes = found.metadata_operations as f64 * 4096.0;
        bytes / (found.put_bytes + found.read_hits * 4096).max(1) as f64 * 100.0
    };
    let values: Vec<f64> = found.iter().map(per_cent).collect();
    let axes = (Axis::log2("metadata cache, KiB"), Axis::linear("metadata bytes, % of traffic"));
    let mut chart = Chart::lines("Metadata traffic", axes.0, axes.1);
    let kib: Vec<f64> = shares.iter().map(|share| (all / share * 2) as f64 / 1024.0).collect();
    chart.add("PostMark", kib.iter().copied().zip(values.iter().copied()).collect());
    outcome.charts.push(chart);
    let rows = kib
        .iter()
        .zip(&values)
        .map(|(kib, value)| vec![format!("{kib:.0}"), format!("{value:.3}")])
        .collect();
    outcome.table("Metadata traffic", &["cache KiB", "% of traffic"], rows);
    outcome.asserted(
        &[Ablation::EndlessRoom],
        values[0] > values[5] * 2.0,
        "a cache of a 256th of the metadata makes at least twice the traffic of one of all",
        format!("{:.2} to {:.2} %", values[0], values[5]),
    );
    let most = context.scale.pick(2.0, 1.0);
    outcome.contradicted(
        METADATA,
        values[2] < most,
        format!("a thirty-second of the metadata is adequate: below {most} %, in the paper below 1 %"),
        format!("{:.2} %", values[2]),
    );
    let lines = flaz::METADATA_PER_LINE as f64 * workload.overbooking;
    outcome.beside("flaz.meta", format!("{:.2}", lines / 4096.0 * 1e3));
    outcome.beside("flaz.f11.meta", format!("{:.2}", values[2]));
    Ok(outcome)
}
