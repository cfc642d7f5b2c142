//! Figure 5: a fingerprint index for part of what is cached.

use super::hits::weu_kib;
use super::runs::{Variant, percent_of};
use super::workloads::load_all;
use crate::context::each;
use crate::{Axis, Chart, Context, Figure, FigureError, Outcome};

const RATIOS: [u8; 5] = [100, 75, 50, 25, 0];

/// Nitro's Figure 5.
pub(crate) const FIGURE_5: Figure = Figure {
    id: "nitro-5",
    title: "Read hits and deduplication over the fingerprint index ratio",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.1, Figure 5",
    ours: "The production cache manager (D,NC), caches of 2 % of the volume; the index is for 100 to 0 % of the extents that \
           the cache has room for.",
    differences: "An entry takes 29 bytes in Nitro; ours is a tag of 16 bits and a slot, proved by the unit's header, so \
                  that less is saved by leaving entries out. The index is planned for as many extents as the units could \
                  hold well compressed: without compression half of it already has room for all of them, and only \
                  smaller ones lose hits.",
    quick: true,
    run,
};

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let axes = (Axis::linear("fingerprint index ratio, %"), Axis::linear("read hits, %"));
    let mut chart = Chart::lines("Read hits over the fingerprint index ratio", axes.0, axes.1);
    let mut rows = Vec::new();
    for workload in &loaded {
        let reports = each(&RATIOS, |ratio| {
            let variant = Variant { index_percent: *ratio, ..Variant::new(true, false, weu_kib(context)) };
            variant.run(&workload.trace, percent_of(workload.volume_bytes, 2.0))
        })?;
        let hits: Vec<f64> = reports.iter().map(|report| report.read_hit_ratio() * 100.0).collect();
        let dedup: Vec<f64> = reports.iter().map(zc_replay::cache::Report::dedup_ratio).collect();
        let ram: Vec<u64> =
            reports.iter().map(|report| report.manager_ram.iter().map(|(_, bytes)| bytes).sum()).collect();
        for (number, ratio) in RATIOS.iter().enumerate() {
            let cells = [
                format!("{:.2}", hits[number]),
                format!("{:.3}", dedup[number]),
                (ram[number] >> 10).to_string(),
            ];
            rows.push([vec![workload.name.to_owned(), ratio.to_string()], cells.to_vec()].concat());
        }
        let falls = |values: &[f64], slack: f64| values.windows(2).all(|pair| pair[1] <= pair[0] + slack);
        outcome.shape(
            falls(&dedup, 0.02) && falls(&hits, 0.3) && hits[4] < hits[0],
            format!("{}: hits and deduplication fall as the index shrinks", workload.name),
            format!("hits {:.2} to {:.2} %, ratio {:.2} to {:.2}", hits[0], hits[4], dedup[0], dedup[4]),
        );
        let loss = |number: usize| (1.0 - hits[number] / hits[0]) * 100.0;
        outcome.beside(
            "nitro.f5.hit",
            format!("{} {:.1}|{:.1}; at 25 %: {:.1}", workload.name, loss(1), loss(2), loss(3)),
        );
        let saved = |number: usize| (1.0 - ram[number] as f64 / ram[0].max(1) as f64) * 100.0;
        outcome.beside("nitro.f5.ram", format!("{} {:.0}|{:.0}", workload.name, saved(1), saved(2)));
        let at = RATIOS.iter().map(|ratio| f64::from(*ratio));
        chart.add(workload.name, at.zip(hits.iter().copied()).collect());
    }
    let columns = ["trace", "index %", "read hits %", "dedup ratio", "manager RAM KiB"];
    outcome.table("Fingerprint index ratio", &columns, rows);
    outcome.charts.push(chart);
    Ok(outcome)
}
