//! Figure 7: response time over the size of the working set and the deduplication ratio.

use zc_replay::{Ratios, Trace};
use zc_trace::workload::{Kind, Workload};

use super::hits::weu_kib;
use super::runs::Variant;
use crate::context::each;
use crate::{Axis, Chart, Context, Figure, FigureError, Outcome};

/// Nitro's Figure 7.
pub(crate) const FIGURE_7: Figure = Figure {
    id: "nitro-7",
    title: "Read response time over working set and deduplication ratio",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.2, Figure 7",
    ours: "Random reads of 8 KiB over a working set of 1 to 10 caches whose contents repeat 1 to 10 times, through the \
           production cache manager with an origin that tells fingerprints; response time from the hits after warming: a \
           hit takes the time of the paper's SSD (18.7 thousand reads of 8 KiB a second), a miss that of a disk of 7200 \
           rpm (12.7 ms), normalised to hits only.",
    differences: "The paper measures a deduplicating disk system, whose misses cost more reads; ours is one disk without \
                  queues. Our units carry headers, so that a working set of exactly the effective size of the cache does \
                  not quite fit, and the transition lies a little below the paper's.",
    quick: false,
    run,
};

/// A read of 8 KiB from the paper's SSD (5.4), and from a disk of 7200 rpm: 8.5 ms of seek, half a turn.
const SSD_MS: f64 = 1.0 / 18.7;
const DISK_MS: f64 = 8.5 + 4.17;

/// Random reads of 8 KiB.
fn reads(extents: u64, dedup: u64, requests: u64) -> Result<Trace, FigureError> {
    let workload = Workload {
        kind: Kind::Sensitivity { dedup },
        blocks: extents * 2,
        requests,
        reads: 1.0,
        shared: 0.0,
        ratio: (2.0, 0.0),
        seed: extents << 8 | dedup,
    };
    Ok(Trace::load(workload.generate().map(Ok), Ratios::default())?)
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let units = context.scale.pick(24, 64);
    let cache_bytes = u64::from(weu_kib(context)) * 1024 * units;
    let steps: &[u64] = context.scale.pick(&[1, 2, 4, 6, 10], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let mut rows = Vec::new();
    for compressed in [false, true] {
        let variant = Variant::new(true, compressed, weu_kib(context));
        let points: Vec<(u64, u64)> =
            steps.iter().flat_map(|set| steps.iter().map(|dedup| (*set, *dedup))).collect();
        let times = each(&points, |(set, dedup)| {
            let extents = cache_bytes / 8192 * set;
            let trace = reads(extents, *dedup, extents * context.scale.pick(3, 5))?;
            let hits = variant.run(&trace, cache_bytes)?.read_hit_ratio();
            Ok((hits * SSD_MS + (1.0 - hits) * DISK_MS) / SSD_MS)
        })?;
        let name = variant.name();
        let axes = (Axis::linear("working set, caches"), Axis::log2("response time, hits only = 1"));
        let mut chart = Chart::lines(&format!("({name}): one line per deduplication ratio"), axes.0, axes.1);
        for (number, dedup) in steps.iter().enumerate() {
            let line = times.iter().skip(number).step_by(steps.len());
            chart.add(&format!("{dedup}x"), steps.iter().map(|set| *set as f64).zip(line.copied()).collect());
        }
        outcome.charts.push(chart);
        rows.extend(points.iter().zip(&times).map(|((set, dedup), time)| {
            vec![name.clone(), set.to_string(), dedup.to_string(), format!("{time:.2}")]
        }));
        let at =
            |set: u64, dedup: u64| points.iter().position(|point| *point == (set, dedup)).map(|at| times[at]);
        judge(&name, compressed, &at, &mut outcome);
    }
    outcome.table("Response time, hits only = 1", &["variant", "working set", "dedup", "response"], rows);
    Ok(outcome)
}

fn judge(name: &str, compressed: bool, at: &dyn Fn(u64, u64) -> Option<f64>, outcome: &mut Outcome) {
    if let (Some(high), Some(low)) = (at(4, 6), at(4, 1)) {
        outcome.shape(
            high < 2.0,
            format!("({name}): near the SSD at a working set of 4 caches deduplicated 6 times"),
            format!("{high:.2}"),
        );
        outcome.shape(
            low > 8.0,
            format!("({name}): beyond 8 at a working set of 4 caches without duplicates"),
            format!("{low:.1}"),
        );
        outcome.beside("nitro.f7", format!("({name}) {high:.1} at 4 caches, 6x; {low:.0} at 4 caches, 1x"));
    }
    if let (true, Some(set)) = (compressed, at(10, 6)) {
        outcome.shape(
            set < 2.0,
            "(D,C): near the SSD at 10 caches deduplicated 6 times",
            format!("{set:.2}"),
        );
    }
}
