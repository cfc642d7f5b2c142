//! Figure 7: response time over the size of the working set and the deduplication ratio.

use zc_replay::time::profile::Profile;
use zc_replay::time::{self, Arrival, HitReads, Timing};
use zc_replay::{Ratios, Trace};
use zc_trace::workload::{Kind, Workload};

use super::hits::weu_kib;
use super::runs::Variant;
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const JUMP: &[Ablation] = &[Ablation::UniqueContents, Ablation::EndlessRoom];

/// Nitro's Figure 7.
pub(crate) const FIGURE_7: Figure = Figure {
    id: "nitro-7",
    title: "Read response time over working set and deduplication ratio",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.2, Figure 7",
    ours: "Random reads of 8 KiB over a working set of 1 to 10 caches whose contents repeat 1 to 10 times, one at a time, through \
           the production cache manager with an origin that tells fingerprints, in the model of time over the array with a \
           log (COS); mean response times after 9 of 12 reads for every extent warmed the cache, normalised to the same \
           reads from the SSD.",
    differences: "Our units carry headers, so that a working set of exactly the effective size of the cache does not quite fit, and \
                  the transition lies a little below the paper's. How steep the rise is depends on how much longer a miss \
                  takes than a hit.",
    standing: Standing::Asserted(JUMP),
    numbers: &[("nitro.f7", Standing::Asserted(JUMP))],
    quick: false,
    run,
};

/// Reads of every extent: with 9 of 12 before time is taken, one extent in eight thousand is new then.
const READS_PER_EXTENT: u64 = 12;

/// Random reads of 8 KiB.
fn reads(context: &Context, extents: u64, dedup: u64) -> Result<Trace, FigureError> {
    let dedup = if context.are_unique() { 1 } else { dedup };
    let workload = Workload {
        kind: Kind::Sensitivity { dedup },
        blocks: extents * 2,
        requests: extents * READS_PER_EXTENT,
        reads: 1.0,
        shared: 0.0,
        ratio: context.ratio((2.0, 0.0)),
        seed: extents << 8 | dedup,
    };
    Ok(Trace::load(workload.generate().map(Ok), Ratios::default())?)
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let Some(profile) = Profile::named("nitro-cos") else { return Ok(outcome) };
    let arrival = Arrival::Closed { clients: 1 };
    let timing = Timing { profile, arrival, memory_scale: 1.0, hits: HitReads::Pieces };
    let units = context.scale.pick(24, 64);
    let cache_bytes = u64::from(weu_kib(context)) * 1024 * units;
    let steps: &[u64] = context.scale.pick(&[1, 2, 4, 6, 10], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let mut rows = Vec::new();
    for compressed in [false, true] {
        let variant = Variant::new(true, compressed, weu_kib(context));
        let points: Vec<(u64, u64)> =
            steps.iter().flat_map(|set| steps.iter().map(|dedup| (*set, *dedup))).collect();
        let times = each(&points, |(set, dedup)| {
            let trace = reads(context, cache_bytes / 8192 * set, *dedup)?;
            let warm = trace.requests() / READS_PER_EXTENT * 9;
            let hits_only = time::on_ssd(&trace, &timing, warm)?;
            let room = context.room(cache_bytes, cache_bytes * 16);
            let (_, found) = variant.time_from(&trace, room, &timing, warm)?;
            Ok(found.reads.mean_us / hits_only.reads.mean_us)
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
        outcome.asserted(
            &[Ablation::UniqueContents],
            high < 2.0,
            format!("({name}): near the SSD at a working set of 4 caches deduplicated 6 times"),
            format!("{high:.2}"),
        );
        outcome.asserted(
            &[Ablation::EndlessRoom],
            low > 8.0,
            format!("({name}): beyond 8 at a working set of 4 caches without duplicates"),
            format!("{low:.1}"),
        );
    }
    if let (false, Some(near), Some(beyond), Some(twice)) = (compressed, at(4, 6), at(6, 6), at(2, 2)) {
        outcome.asserted(
            JUMP,
            near < 1.5 && beyond > 2.0,
            "(D,NC): from about 1 to more than 2 as the working set outgrows what is deduplicated 6 times",
            format!("{near:.2} at 4 caches, {beyond:.1} at 6"),
        );
        outcome.beside(
            "nitro.f7",
            format!("6x: {near:.1} at 4 caches and {beyond:.1} at 6|2x: {twice:.1} at 2 caches|{near:.1} to {beyond:.1}"),
        );
    }
    if let (true, Some(set)) = (compressed, at(10, 6)) {
        outcome.asserted(
            &[Ablation::Incompressible],
            set < 2.0,
            "(D,C): near the SSD at 10 caches deduplicated 6 times",
            format!("{set:.2}"),
        );
    }
}
