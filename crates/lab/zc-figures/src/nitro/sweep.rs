//! Effect of the parameters that no paper states on Figure 4: skew and shared contents.

use zc_replay::extent_lru::{self, ExtentLru};

use super::hits::weu_kib;
use super::runs::{Variant, percent_of, warm_requests};
use super::workloads::{Loaded, SHAPES};
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

/// Exponents of Zipf's law.
const THETAS: [f64; 4] = [0.8, 0.99, 1.15, 1.3];
/// Shares of writes from the pool of contents.
const SHARED: [f64; 3] = [0.3, 0.45, 0.6];

/// Skew and shared contents, swept.
pub(crate) const SWEEP: Figure = Figure {
    id: "nitro-sweep",
    title: "What skew and shared contents of the generated workloads make of Figure 4",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.1, Figure 4; the parameters are ours",
    ours: "Homes as in nitro-4, with Zipf's law of an exponent from 0.8 to 1.3, and 30 to 60 % of new contents from the pool. \
           Gains are in hits over (ND,NC); the last column is how far extents are ahead of units, (D,NC), in points.",
    differences: "No paper tells these parameters. A cell in brackets lies in the paper's range: 14 to 25 % for (D,C), 5 to 9 for \
                  (ND,C), 8 to 19 for (D,NC), 1 to 4 points for extents.",
    standing: Standing::NotComparable("It shows what our choice of parameters decides"),
    numbers: &[],
    quick: false,
    run,
};

/// Hits of (ND,NC) in per cent, and the gains of (D,C), (ND,C), (D,NC) and extents.
type Cells = [f64; 5];
/// The paper's ranges of the gains.
const RANGES: [(f64, f64); 4] = [(14.0, 25.0), (5.0, 9.0), (8.0, 19.0), (1.0, 4.0)];

fn cells(context: &Context, workload: &Loaded) -> Result<Cells, FigureError> {
    let bytes = percent_of(workload.volume_bytes, 2.0);
    let hits = each(&Variant::four(weu_kib(context)), |variant| {
        Ok(variant.run(&workload.trace, bytes)?.read_hit_ratio() * 100.0)
    })?;
    let settings = ExtentLru {
        extent_bytes: 8192,
        capacity_bytes: bytes,
        dedup: true,
        recipes: true,
        warm_requests: warm_requests(&workload.trace),
    };
    let extents = extent_lru::run(&workload.trace, settings).read_hit_ratio() * 100.0;
    let gain = |number: usize| (hits[number] / hits[0] - 1.0) * 100.0;
    Ok([hits[0], gain(3), gain(1), gain(2), extents - hits[2]])
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let axes = (Axis::linear("Zipf's exponent"), Axis::linear("(D,C) over (ND,NC), % of hits"));
    let mut chart = Chart::lines("Gain of (D,C), one line per share of shared contents", axes.0, axes.1);
    let mut rows = Vec::new();
    for shared in SHARED {
        let found = each(&THETAS, |theta| cells(context, &SHAPES[1].with(*theta, shared, context)?))?;
        for (theta, cells) in THETAS.iter().zip(&found) {
            let gains = cells[1..].iter().zip(RANGES).map(|(gain, (least, most))| {
                if (least..=most).contains(gain) { format!("[{gain:.1}]") } else { format!("{gain:.1}") }
            });
            let head = [format!("{shared:.2}"), format!("{theta:.2}"), format!("{:.2}", cells[0])];
            rows.push(head.into_iter().chain(gains).collect());
        }
        chart.add(
            &format!("{:.0} %", shared * 100.0),
            THETAS.iter().copied().zip(found.iter().map(|cells| cells[1])).collect(),
        );
        let gains: Vec<f64> = found.iter().map(|cells| cells[3]).collect();
        outcome.asserted(
            &[Ablation::UniqueContents],
            gains.iter().all(|gain| *gain > 1.0),
            format!("with {shared} shared, deduplication gains more than 1 % at every skew"),
            format!("{gains:.1?} %"),
        );
    }
    let columns =
        ["shared", "theta", "ND,NC hits %", "D,C gain %", "ND,C gain %", "D,NC gain %", "extents ahead"];
    outcome.table("Homes at 2 %", &columns, rows);
    outcome.charts.push(chart);
    Ok(outcome)
}
