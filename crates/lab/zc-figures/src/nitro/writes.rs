//! Section 6.3: how much less is written to the SSD.

use super::hits::weu_kib;
use super::runs::{Variant, percent_of};
use super::workloads::load_all;
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const MORE: &str = "On Homes 52 % are saved by deduplication and 78 % by both, in the paper 39 and 53 %: half of the generated \
                    writes repeat a content, and contents halve";

/// Nitro's SSD writes.
pub(crate) const WRITES: Figure = Figure {
    id: "nitro-writes",
    title: "Bytes written to the SSD with deduplication, compression and both",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.3",
    ours: "The production cache manager, caches of 2 % of the volume: everything written to the device, units, journal, \
           checkpoints and region maps, after warming.",
    differences: "Generated contents compress two to one and half of the writes are duplicates, so that both save more than \
                  in the paper, where compression adds 14 points to the 39 that deduplication saves on Homes. Ours counts \
                  metadata too.",
    standing: Standing::Contradicted(MORE),
    numbers: &[("nitro.writes", Standing::Contradicted(MORE))],
    quick: true,
    run,
};

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let variants = Variant::four(weu_kib(context));
    let names = loaded.iter().map(|workload| workload.name.to_owned()).collect();
    let mut chart = Chart::bars("Bytes written, (ND,NC) = 100", names, Axis::linear("% of (ND,NC)"));
    let (mut rows, mut left) = (Vec::new(), Vec::new());
    for workload in &loaded {
        let bytes = percent_of(workload.volume_bytes, 2.0);
        let reports = each(&variants, |variant| variant.run(&workload.trace, bytes))?;
        let written: Vec<f64> = reports.iter().map(|report| report.ssd_bytes_written() as f64).collect();
        let share: Vec<f64> = written.iter().map(|bytes| bytes / written[0] * 100.0).collect();
        let saved: Vec<f64> = share.iter().map(|share| 100.0 - share).collect();
        outcome.asserted(
            &[Ablation::UniqueContents, Ablation::Incompressible, Ablation::Irreducible],
            saved[1] >= 22.0 && saved[2] >= 22.0,
            format!("{}: deduplication and compression alone save at least 22 %", workload.name),
            format!("{:.0} and {:.0} %", saved[2], saved[1]),
        );
        outcome.asserted(
            &[Ablation::Irreducible],
            saved[3] > saved[1] + 5.0 && saved[3] > saved[2] + 5.0,
            format!("{}: both save at least 5 points more than either", workload.name),
            format!("{:.0} %", saved[3]),
        );
        outcome.beside(
            "nitro.writes",
            format!("{} D {:.0}; C {:.0}; D,C {:.0}", workload.name, saved[2], saved[1], saved[3]),
        );
        let mut row = vec![workload.name.to_owned()];
        row.extend(written.iter().map(|bytes| format!("{:.1}", bytes / 1e6)));
        rows.push(row);
        left.push(share);
    }
    for (number, variant) in variants.iter().enumerate() {
        let column: Vec<f64> = left.iter().map(|share| share[number]).collect();
        chart.add_bars(&variant.name(), &column);
    }
    outcome.table("MB written to the SSD", &["trace", "ND,NC", "ND,C", "D,NC", "D,C"], rows);
    outcome.charts.push(chart);
    Ok(outcome)
}
