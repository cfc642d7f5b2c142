//! Figure 1: how large a cache has to be to find duplicates.

use zc_replay::sharing::duplicates;

use super::workloads::load_all;
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const FITTED: &str = "`shared` and `repeated` of the generated workloads, to the paper's 1.5 to 2";

/// Nitro's Figure 1.
pub(crate) const FIGURE_1: Figure = Figure {
    id: "nitro-1",
    title: "Deduplication ratio of 4 KiB blocks over the size of the cache",
    source: "Li et al., Nitro, USENIX ATC 2014, section 2, Figure 1",
    ours: "An LRU cache of distinct 4 KiB contents; blocks that enter it, by a write or a read that misses, over those whose content \
           it did not hold.",
    differences: "Generated contents repeat uniformly over a pool; those of a file server repeat soon after each other. So \
                  our curve rises later and more evenly. What a block held before its first read is not counted.",
    standing: Standing::Fitted(FITTED),
    numbers: &[("nitro.f1", Standing::Fitted(FITTED))],
    quick: true,
    run,
};

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let sizes: Vec<u32> = (10..context.scale.pick(18, 21)).map(|power| 1 << power).collect();
    let axes = (Axis::log2("blocks of 4 KiB in the cache"), Axis::linear("deduplication ratio"));
    let mut chart = Chart::lines("Deduplication ratio over the size of the cache", axes.0, axes.1);
    let mut rows = Vec::new();
    let mut last = Vec::new();
    for workload in &loaded {
        let ratios = each(&sizes, |size| Ok(duplicates(&workload.trace, zc_core::usize_from_u32(*size))))?;
        for (size, ratio) in sizes.iter().zip(&ratios) {
            rows.push(vec![workload.name.to_owned(), size.to_string(), format!("{ratio:.3}")]);
        }
        let (first, last_ratio) = (ratios[0], ratios[ratios.len() - 1]);
        outcome.asserted(
            &[Ablation::UniqueContents],
            last_ratio > first + 0.2,
            format!(
                "{}: a cache that holds everything finds more duplicates than one of 4 MiB",
                workload.name
            ),
            format!("{first:.2} to {last_ratio:.2}"),
        );
        chart.add(
            workload.name,
            sizes.iter().zip(&ratios).map(|(size, ratio)| (f64::from(*size), *ratio)).collect(),
        );
        last.push(last_ratio);
    }
    let seen = last.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join("|");
    outcome.fitted(
        FITTED,
        last.iter().all(|ratio| *ratio >= 1.5),
        "once the cache holds the working set, at least 1.5",
        &seen,
    );
    outcome.beside("nitro.f1", seen);
    outcome.table("Deduplication ratio", &["trace", "blocks", "ratio"], rows);
    outcome.charts.push(chart);
    Ok(outcome)
}
