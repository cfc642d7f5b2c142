//! Section 6.2: loss of hits with an origin that supplies no fingerprints.

use super::hits::weu_kib;
use super::runs::{Variant, percent_of};
use super::workloads::load_all;
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const LESS: &str = "1 to 3 % of hits are lost without recipes, in the paper 5 to 14 %: next to nothing is read here that was not \
                    read or written at the same address before";

/// Nitro's loss without recipes.
pub(crate) const RECIPES: Figure = Figure {
    id: "nitro-recipes",
    title: "Read hits with an origin that tells fingerprints, with learned ones, and without any",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.2",
    ours: "The production cache manager (D,C), write-through, caches of 2 % of the volume: an origin that tells fingerprints (the \
           paper's COS), one that does not (TPS), and one that does not while the cache learns them from what it reads and \
           writes.",
    differences: "Learned recipes are not in the paper. They have 64 MiB, more than these volumes need.",
    standing: Standing::Contradicted(LESS),
    numbers: &[("nitro.f4.recipes", Standing::Contradicted(LESS))],
    quick: true,
    run,
};

/// Names, and the behaviour of origin and cache.
const KINDS: [(&str, bool, bool); 3] =
    [("told", true, false), ("learned", false, true), ("none", false, false)];

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let names = loaded.iter().map(|workload| workload.name.to_owned()).collect();
    let mut chart = Chart::bars("Read hits at 2 %", names, Axis::linear("read hits, %"));
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for workload in &loaded {
        let bytes = percent_of(workload.volume_bytes, 2.0);
        let hits = each(&KINDS, |(_, recipes, learned)| {
            let base = Variant::new(true, true, weu_kib(context));
            let variant = Variant { recipes: *recipes, learned: *learned, ..base };
            Ok(variant.run(&workload.trace, bytes)?.read_hit_ratio() * 100.0)
        })?;
        let (sent, none) = (hits[0], hits[2]);
        let loss = (1.0 - none / sent) * 100.0;
        outcome.asserted(
            &[Ablation::UniqueContents],
            loss > 0.5 && hits[1] > none,
            format!("{}: without recipes hits are lost, and learned ones win some back", workload.name),
            format!("{loss:.1} %; {sent:.2}, {:.2} and {none:.2} %", hits[1]),
        );
        outcome.beside("nitro.f4.recipes", format!("{} {loss:.1}", workload.name));
        let mut row = vec![workload.name.to_owned()];
        row.extend(hits.iter().map(|hit| format!("{hit:.2}")));
        rows.push(row);
        all.push(hits);
    }
    for (number, (name, ..)) in KINDS.iter().enumerate() {
        chart.add_bars(name, &all.iter().map(|hits| hits[number]).collect::<Vec<_>>());
    }
    outcome.table("Read hits, %", &["trace", "told", "learned", "none"], rows);
    outcome.charts.push(chart);
    Ok(outcome)
}
