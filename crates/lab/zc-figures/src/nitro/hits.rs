//! Figure 4: read hits with and without deduplication and compression.

use super::runs::{Variant, percent_of};
use super::workloads::load_all;
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const LESS: &str = "Ours gains 13 to 14 %, the paper 14 to 25 %: the generated workloads have one skew and one share of \
                    duplicates for all three. `nitro-sweep` shows that both decide the size of the gain";
const REDUCED: &[Ablation] = &[Ablation::Incompressible, Ablation::Irreducible];
const SKEW: &str = "Zipf's exponent, 1.15, which the paper does not state: `nitro-sweep` shows that it decides the size of \
                    the gain";

/// Nitro's Figure 4.
pub(crate) const FIGURE_4: Figure = Figure {
    id: "nitro-4",
    title: "Read-hit ratio with and without deduplication and compression",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.1, Figure 4",
    ours: "The production cache manager, write-through, extents of 8 KiB, an origin that tells fingerprints, caches of 0.5 \
           to 5 % of the volume; hits of the last 5 of 21 parts, after 16 that warm the cache.",
    differences: "Generated workloads. A stored extent carries a header and padding that Nitro does not describe, some \
                  per cent of a unit. At small scale volumes and units are an eighth of those at full scale.",
    standing: Standing::Contradicted(LESS),
    numbers: &[
        ("nitro.f4.dc.a", Standing::Contradicted(LESS)),
        ("nitro.f4.dc.b", Standing::Contradicted(LESS)),
        ("nitro.f4.dc.c", Standing::Contradicted(LESS)),
        ("nitro.f4.c", Standing::Fitted(SKEW)),
        (
            "nitro.f4.d",
            Standing::Contradicted("Half a point to a point below the paper's least, 8 %; see `nitro-sweep`"),
        ),
    ],
    quick: true,
    run,
};

/// Write-evict units of the figures, in KiB.
pub(crate) const fn weu_kib(context: &Context) -> u32 {
    match context.scale {
        crate::Scale::Small => 256,
        crate::Scale::Full => 2048,
    }
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let shares: &[f64] = context.scale.pick(&[2.0, 5.0], &[0.5, 1.0, 2.0, 5.0]);
    let variants = Variant::four(weu_kib(context));
    let mut rows = Vec::new();
    for workload in &loaded {
        let points: Vec<(f64, Variant)> =
            shares.iter().flat_map(|share| variants.iter().map(|variant| (*share, *variant))).collect();
        let reports = each(&points, |(share, variant)| {
            variant.run(&workload.trace, percent_of(workload.volume_bytes, *share))
        })?;
        let hits: Vec<f64> = reports.iter().map(|report| report.read_hit_ratio() * 100.0).collect();
        let title = format!("{}: read hits", workload.name);
        let axes = (Axis::log2("cache, % of the volume"), Axis::linear("read hits, %"));
        let mut chart = Chart::lines(&title, axes.0, axes.1);
        for (number, variant) in variants.iter().enumerate() {
            let line = hits.iter().skip(number).step_by(variants.len());
            chart.add(&variant.name(), shares.iter().copied().zip(line.copied()).collect());
        }
        for ((share, hits), _) in shares.iter().zip(hits.chunks(variants.len())).zip(0..) {
            let mut row = vec![workload.name.to_owned(), format!("{share}")];
            row.extend(hits.iter().map(|hit| format!("{hit:.2}")));
            rows.push(row);
            if *share == 2.0 {
                judge(workload.name, hits, &mut outcome);
            }
        }
        outcome.charts.push(chart);
    }
    let columns = ["trace", "cache %", "ND,NC", "ND,C", "D,NC", "D,C"];
    outcome.table("Read hits, %", &columns, rows);
    Ok(outcome)
}

/// Hits of the four variants at 2 %.
fn judge(name: &str, hits: &[f64], outcome: &mut Outcome) {
    let &[none, compressed, deduped, both] = hits else { return };
    outcome.asserted(
        REDUCED,
        both > deduped && compressed > none,
        format!("{name}, 2 %: compression adds hits, with deduplication and without"),
        format!("{both:.2} > {deduped:.2}, {compressed:.2} > {none:.2}"),
    );
    outcome.asserted(
        &[Ablation::UniqueContents, Ablation::Irreducible],
        both > compressed && deduped > none,
        format!("{name}, 2 %: deduplication adds hits, with compression and without"),
        format!("{both:.2} > {compressed:.2}, {deduped:.2} > {none:.2}"),
    );
    outcome.fitted(
        "`shared` of the generated workloads and their ratio of 2: which of the two gains more",
        deduped > compressed,
        format!("{name}, 2 %: deduplication alone has more hits than compression alone"),
        format!("{deduped:.2} > {compressed:.2}"),
    );
    let gain = |better: f64| format!("{name} {:+.1}", (better / none - 1.0) * 100.0);
    let number = match name {
        "webvm" => "nitro.f4.dc.a",
        "homes" => "nitro.f4.dc.b",
        _ => "nitro.f4.dc.c",
    };
    outcome.beside(number, gain(both));
    outcome.beside("nitro.f4.c", gain(compressed));
    outcome.beside("nitro.f4.d", gain(deduped));
}
