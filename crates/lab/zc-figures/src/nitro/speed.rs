//! Table 2: requests a second and read response times.

use zc_replay::extent_lru::{self, ExtentLru};
use zc_replay::time::profile::Profile;
use zc_replay::time::{Arrival, HitReads, Latencies, TimeReport, Timing};

use super::hits::weu_kib;
use super::runs::{Variant, percent_of, warm_requests};
use super::workloads::{Loaded, load_all};
use crate::context::each;
use crate::{Axis, Chart, Context, Figure, FigureError, Outcome};

/// Requests under way.
const CLIENTS: u32 = 32;

/// Nitro's Table 2.
pub(crate) const TABLE_2: Figure = Figure {
    id: "nitro-t2",
    title: "Requests a second and read response time over a system without a cache",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.2, Table 2",
    ours: "The production cache manager in the model of time: 32 clients on the paper's two arrays (TPS: RAID-5 of 11 disks of \
           7200 rpm, data in place, no recipes; COS: RAID-6 of 10 with a log, two disk reads for a miss, recipes), both \
           with memory that takes writes, and an SSD of 18.7 thousand reads of 8 KiB a second; caches of 2 % of the volume. \
           Read hits of the cache of extents stand beside.",
    differences: "Write memory is scaled down with the volume. The paper's COS also saves the disk writes of duplicates, \
                  and its load is set to 95 % of what the system bears, where ours is 32 clients that wait; how much of the \
                  disks' time goes to writes decides how far the improvement in requests follows that of reads. Hit ratios \
                  are those of generated workloads, higher than in the paper, so that reads gain more. A cache of extents \
                  is not simulated in time.",
    quick: false,
    run,
};

/// What every variant gained, in per cent: requests a second, and read response time saved.
struct Gains {
    iops: Vec<f64>,
    response: Vec<f64>,
}

fn gains(context: &Context, workload: &Loaded, profile: Profile) -> Result<Gains, FigureError> {
    let bytes = percent_of(workload.volume_bytes, 2.0);
    // The paper's volumes are hundreds of gigabytes.
    let memory_scale = workload.volume_bytes as f64 / 400e9;
    let timing = Timing {
        profile,
        arrival: Arrival::Closed { clients: CLIENTS },
        memory_scale,
        hits: HitReads::Pieces,
    };
    let bare = zc_replay::time::bare(&workload.trace, &timing, warm_requests(&workload.trace))?;
    let variants = Variant::four(weu_kib(context));
    let recipes = profile.disk.log_reads > 0;
    let times: Vec<TimeReport> =
        each(&variants, |variant| Variant { recipes, ..*variant }.time(&workload.trace, bytes, &timing))?;
    let mean = |reads: &Latencies| reads.mean_us;
    Ok(Gains {
        iops: times.iter().map(|time| (time.iops() / bare.iops() - 1.0) * 100.0).collect(),
        response: times.iter().map(|time| (1.0 - mean(&time.reads) / mean(&bare.reads)) * 100.0).collect(),
    })
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let mut rows = Vec::new();
    for (system, name) in [("COS", "nitro-cos"), ("TPS", "nitro-tps")] {
        let Some(profile) = Profile::named(name) else { continue };
        let names = loaded.iter().map(|workload| workload.name.to_owned()).collect();
        let mut chart =
            Chart::bars(&format!("{system}: requests a second"), names, Axis::linear("improvement, %"));
        let all = each(&loaded, |workload| gains(context, workload, profile))?;
        for (workload, gains) in loaded.iter().zip(&all) {
            let cells = |values: &[f64]| values.iter().map(|v| format!("{v:.0}")).collect::<Vec<_>>();
            for (metric, values) in [("IOPS", &gains.iops), ("RRT", &gains.response)] {
                let head = [system, workload.name, metric].map(str::to_owned).to_vec();
                rows.push([head, cells(values)].concat());
                if let Some(number) = number(system, metric, workload.name) {
                    outcome.beside(number, format!("-|{}", cells(values).join("|")));
                }
            }
            let &[none, compressed, deduped, both] = &gains.response[..] else { continue };
            outcome.shape(
                both > none && both >= compressed.max(deduped) - 1.0,
                format!("{system}, {}: both reductions together shorten reads most", workload.name),
                format!("{both:.0} over {none:.0}, {compressed:.0} (C) and {deduped:.0} % (D)"),
            );
            let least = gains.iops.iter().copied().fold(f64::MAX, f64::min);
            outcome.shape(
                gains.iops[3] > gains.iops[0] && least > 0.0,
                format!(
                    "{system}, {}: every variant answers more requests, (D,C) more than (ND,NC)",
                    workload.name
                ),
                format!("{:.0} and {:.0} %", gains.iops[3], gains.iops[0]),
            );
        }
        for (number, variant) in Variant::four(weu_kib(context)).iter().enumerate() {
            chart.add_bars(&variant.name(), &all.iter().map(|gains| gains.iops[number]).collect::<Vec<_>>());
        }
        outcome.charts.push(chart);
    }
    let columns = ["system", "trace", "metric", "ND,NC", "ND,C", "D,NC", "D,C"];
    outcome.table("Improvement over no cache, %", &columns, rows);
    extents(&loaded, &mut outcome);
    Ok(outcome)
}

/// Hits of the paper's column of extents.
fn extents(loaded: &[Loaded], outcome: &mut Outcome) {
    let hits = |workload: &Loaded| {
        let settings = ExtentLru {
            extent_bytes: 8192,
            capacity_bytes: percent_of(workload.volume_bytes, 2.0),
            dedup: false,
            recipes: false,
            warm_requests: warm_requests(&workload.trace),
        };
        extent_lru::run(&workload.trace, settings).read_hit_ratio() * 100.0
    };
    let rows = loaded.iter().map(|workload| vec![workload.name.to_owned(), format!("{:.2}", hits(workload))]);
    outcome.table("Read hits of extents (ND,NC), %", &["trace", "hits"], rows.collect());
}

fn number(system: &str, metric: &str, trace: &str) -> Option<&'static str> {
    const ROWS: [(&str, &str, &str, &str); 12] = [
        ("COS", "IOPS", "webvm", "nitro.t2.cos.iops.webvm"),
        ("COS", "IOPS", "homes", "nitro.t2.cos.iops.homes"),
        ("COS", "IOPS", "mail", "nitro.t2.cos.iops.mail"),
        ("COS", "RRT", "webvm", "nitro.t2.cos.rrt.webvm"),
        ("COS", "RRT", "homes", "nitro.t2.cos.rrt.homes"),
        ("COS", "RRT", "mail", "nitro.t2.cos.rrt.mail"),
        ("TPS", "IOPS", "webvm", "nitro.t2.tps.iops.webvm"),
        ("TPS", "IOPS", "homes", "nitro.t2.tps.iops.homes"),
        ("TPS", "IOPS", "mail", "nitro.t2.tps.iops.mail"),
        ("TPS", "RRT", "webvm", "nitro.t2.tps.rrt.webvm"),
        ("TPS", "RRT", "homes", "nitro.t2.tps.rrt.homes"),
        ("TPS", "RRT", "mail", "nitro.t2.tps.rrt.mail"),
    ];
    ROWS.iter().find(|row| (row.0, row.1, row.2) == (system, metric, trace)).map(|row| row.3)
}
