//! Figure 4, the other half: eviction of single extents against write-evict units.

use zc_replay::extent_lru::{self, ExtentLru};

use super::hits::weu_kib;
use super::runs::{Variant, percent_of, warm_requests};
use super::workloads::{Loaded, SHAPES, load_all};
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const AHEAD: &str = "Extents are 9 to 10 points ahead of units, in the paper 1 to 4: what was overwritten lies dead in a unit \
                     until that is evicted, and four of five requests write";
const OF_EXTENTS: &str = "Extents gain less by deduplication than the paper's 6 to 17 %: they free what is overwritten, so that \
                          they hit nearly everything without it";

/// Nitro's Figure 4 with single extents and with write-evict units.
pub(crate) const FIGURE_4_GRAIN: Figure = Figure {
    id: "nitro-4-grain",
    title: "Read hits when single extents are evicted, and when whole write-evict units are",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.1, Figure 4",
    ours: "The production cache manager against an LRU of single extents of 8 KiB, both without compression, caches of 2 % \
           of the volume, an origin that tells fingerprints.",
    differences: "Contradicted: with deduplication the paper's extents are 1 to 4 points ahead of units, ours 9 to 10. \
                  Nothing overwrites a unit: what was written again lies dead in it until it is evicted, and four of five \
                  requests write here. An extent is freed when no address holds its content any more. Without \
                  deduplication extents are 10 to 16 points ahead. Without any writes (the ablation) the gap closes. \
                  The cache of extents has no metadata; units carry about 1 %.",
    standing: Standing::Contradicted(AHEAD),
    numbers: &[
        ("nitro.f4.ext", Standing::Contradicted(AHEAD)),
        ("nitro.f4.dext", Standing::Contradicted(OF_EXTENTS)),
    ],
    quick: true,
    run,
};

/// Hits of extents and of units, in per cent.
fn both(context: &Context, workload: &Loaded, dedup: bool) -> Result<(f64, f64), FigureError> {
    let variant = Variant::new(dedup, false, weu_kib(context));
    let bytes = percent_of(workload.volume_bytes, 2.0);
    let unit_bytes = u64::from(variant.weu_kib) << 10;
    let units = variant.run(&workload.trace, context.room(bytes, workload.volume_bytes))?;
    let settings = ExtentLru {
        extent_bytes: 8192,
        capacity_bytes: (bytes / unit_bytes).max(1) * unit_bytes,
        dedup,
        recipes: true,
        warm_requests: warm_requests(&workload.trace),
    };
    let extents = extent_lru::run(&workload.trace, settings);
    Ok((extents.read_hit_ratio() * 100.0, units.read_hit_ratio() * 100.0))
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let reads = each(&SHAPES, |shape| shape.reads_only(context))?;
    if context.fiu.is_some() {
        outcome.remark("The workloads without writes (\"reads only\") are generated ones.");
    }
    let names = loaded.iter().map(|workload| workload.name.to_owned()).collect();
    let mut chart = Chart::bars("Read hits at 2 %", names, Axis::linear("read hits, %"));
    let (mut rows, mut without) = (Vec::new(), Vec::new());
    let sets = [("ND,NC", false, &loaded), ("D,NC", true, &loaded), ("ND,NC, reads only", false, &reads)];
    for (name, dedup, workloads) in sets {
        let pairs = each(workloads, |workload| both(context, workload, dedup))?;
        for (workload, (extents, units)) in workloads.iter().zip(&pairs) {
            let ahead = extents - units;
            let cells = [*extents, *units, ahead].map(|value| format!("{value:.2}"));
            rows.push([vec![workload.name.to_owned(), name.to_owned()], cells.to_vec()].concat());
            if name == "ND,NC" {
                continue;
            }
            let what = |least: f64, most: f64| {
                format!("{} ({name}): extents are {least} to {most} points ahead of units", workload.name)
            };
            if dedup {
                outcome.contradicted(
                    AHEAD,
                    (5.0..=12.0).contains(&ahead),
                    what(5.0, 12.0),
                    format!("{ahead:+.2}"),
                );
                outcome.beside("nitro.f4.ext", format!("{} {ahead:+.1}", workload.name));
            } else {
                outcome.asserted(
                    &[Ablation::LittleRoom],
                    (-0.5..=3.0).contains(&ahead),
                    what(-0.5, 3.0),
                    format!("{ahead:+.2}"),
                );
            }
        }
        if name == "D,NC" {
            for ((workload, pair), plain) in workloads.iter().zip(&pairs).zip(&without) {
                let gain = (pair.0 / plain - 1.0) * 100.0;
                outcome.beside("nitro.f4.dext", format!("{} {gain:+.1}", workload.name));
            }
        }
        if name == "ND,NC" {
            without = pairs.iter().map(|pair| pair.0).collect();
        }
        chart.add_bars(&format!("extents ({name})"), &pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
        chart.add_bars(&format!("units ({name})"), &pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
    }
    outcome.table("Read hits, %", &["trace", "variant", "extents", "units", "points ahead"], rows);
    outcome.charts.push(chart);
    Ok(outcome)
}
