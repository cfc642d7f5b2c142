//! Figure 5: a fingerprint index for part of the cached extents.

use zc_replay::cache::Report;

use super::hits::weu_kib;
use super::runs::{Variant, percent_of};
use super::workloads::{Loaded, load_all};
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

/// Entries of the index over extents that are cached, in per cent: Nitro's index ratio.
const RATIOS: [u8; 5] = [100, 75, 50, 25, 0];
/// The paper's largest loss with half of the index.
const PAPER_LOSS: f64 = 11.0;

const LOSS: &str = "The paper loses 5 to 11 % with three quarters and half of the index, ours 0 to 3 %: what is read again soon is \
                    found by its address, and the index keeps the entries that were used last";
const SAVED: &str = "An entry of Nitro's is most of what its cache keeps in RAM: 29 bytes. Ours is a tag and a slot, and most of \
                     the RAM is mappings";
const ENTRY: &str = "Ours proves a fingerprint by the header of a unit on the SSD; Nitro's index has whole fingerprints in RAM";

/// Nitro's Figure 5.
pub(crate) const FIGURE_5: Figure = Figure {
    id: "nitro-5",
    title: "Read hits and deduplication over the fingerprint index ratio",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.1, Figure 5",
    ours: "The production cache manager (D,NC), caches of 2 % of the volume. A ratio of 100 % is one entry for every extent that \
           is cached, as in the paper: a run with a whole index counts them.",
    differences: "An entry takes 29 bytes in Nitro; ours is a tag of 16 bits and a slot, proved by the unit's header, so \
                  that less is saved by leaving entries out. The daemon's `fingerprint_index_ratio` is a share of as many \
                  extents as the units could hold well compressed, about four times as many as they hold without compression.",
    standing: Standing::Contradicted(LOSS),
    numbers: &[
        ("nitro.f5.hit", Standing::Contradicted(LOSS)),
        ("nitro.f5.ram", Standing::Contradicted(SAVED)),
        ("nitro.f5.entry", Standing::NotComparable(ENTRY)),
    ],
    quick: true,
    run,
};

/// The daemon's ratio for an index of this share of the extents that are cached.
fn planned_percent(whole: &Report, ratio: u8) -> u8 {
    let held = whole.stats.fingerprint_index_len as f64;
    let planned = whole.stats.fingerprint_index_capacity.max(1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 100")]
    let percent = (held / planned * f64::from(ratio)).round().min(100.0) as u8;
    percent
}

/// One run for each ratio.
fn runs(context: &Context, workload: &Loaded) -> Result<Vec<Report>, FigureError> {
    let bytes = percent_of(workload.volume_bytes, 2.0);
    let whole = Variant::new(true, false, weu_kib(context));
    let counted = whole.run(&workload.trace, bytes)?;
    each(&RATIOS, |ratio| {
        let ratio = if context.ablates(Ablation::WholeIndex) { 100 } else { *ratio };
        Variant { index_percent: planned_percent(&counted, ratio), ..whole }.run(&workload.trace, bytes)
    })
}

fn ram_of(report: &Report, wanted: Option<&str>) -> u64 {
    let wanted = report.manager_ram.iter().filter(|(name, _)| wanted.is_none_or(|wanted| *name == wanted));
    wanted.map(|(_, bytes)| bytes).sum()
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let axes = (Axis::linear("fingerprint index ratio, %"), Axis::linear("read hits, %"));
    let mut chart = Chart::lines("Read hits over the fingerprint index ratio", axes.0, axes.1);
    let mut rows = Vec::new();
    for workload in &loaded {
        let reports = runs(context, workload)?;
        let hits: Vec<f64> = reports.iter().map(|report| report.read_hit_ratio() * 100.0).collect();
        for (ratio, report) in RATIOS.iter().zip(&reports) {
            rows.push(vec![
                workload.name.to_owned(),
                ratio.to_string(),
                report.stats.fingerprint_index_capacity.to_string(),
                format!("{:.2}", report.read_hit_ratio() * 100.0),
                format!("{:.3}", report.dedup_ratio()),
                (ram_of(report, None) >> 10).to_string(),
            ]);
        }
        judge(workload.name, &reports, &hits, &mut outcome);
        let at = RATIOS.iter().map(|ratio| f64::from(*ratio));
        chart.add(workload.name, at.zip(hits.iter().copied()).collect());
    }
    let columns = ["trace", "index %", "entries", "read hits %", "dedup ratio", "manager RAM KiB"];
    outcome.table("Fingerprint index ratio", &columns, rows);
    outcome.charts.push(chart);
    Ok(outcome)
}

fn judge(name: &str, reports: &[Report], hits: &[f64], outcome: &mut Outcome) {
    let dedup: Vec<f64> = reports.iter().map(Report::dedup_ratio).collect();
    let falls = |values: &[f64], slack: f64| values.windows(2).all(|pair| pair[1] <= pair[0] + slack);
    outcome.asserted(
        &[Ablation::WholeIndex],
        falls(&dedup, 0.02) && falls(hits, 0.3) && hits[4] < hits[0] && dedup[2] < dedup[0],
        format!(
            "{name}: hits and deduplication fall as the index shrinks, deduplication with half of it already"
        ),
        format!(
            "hits {:.2}, {:.2}, {:.2} %, ratio {:.2}, {:.2}, {:.2} with all, half and none",
            hits[0], hits[2], hits[4], dedup[0], dedup[2], dedup[4]
        ),
    );
    let loss = |number: usize| (1.0 - hits[number] / hits[0]) * 100.0;
    outcome.contradicted(
        LOSS,
        loss(2) < PAPER_LOSS / 2.0,
        format!("{name}: half of the index loses less than 5.5 % of hits"),
        format!("{:.1} %", loss(2)),
    );
    outcome.beside(
        "nitro.f5.hit",
        format!("{name} {:.1}|{:.1}; at 25 %: {:.1}; without any: {:.1}", loss(1), loss(2), loss(3), loss(4)),
    );
    let ram: Vec<u64> = reports.iter().map(|report| ram_of(report, None)).collect();
    let saved = |number: usize| (1.0 - ram[number] as f64 / ram[0].max(1) as f64) * 100.0;
    outcome.beside("nitro.f5.ram", format!("{name} {:.0}|{:.0}", saved(1), saved(2)));
    let entries = reports[0].stats.fingerprint_index_capacity.max(1) as f64;
    let bytes = ram_of(&reports[0], Some("fingerprint_index")) as f64 / entries;
    outcome.beside("nitro.f5.entry", format!("{name} {bytes:.1}"));
}
