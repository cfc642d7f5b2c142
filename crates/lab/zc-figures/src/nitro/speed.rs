//! Table 2: requests a second and read response times.

use zc_replay::extent_lru::ExtentLru;
use zc_replay::time::profile::Profile;
use zc_replay::time::{self, Arrival, HitReads, TimeReport, Timing};

use super::hits::weu_kib;
use super::runs::{Variant, percent_of, warm_requests};
use super::workloads::{Loaded, load_all};
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

/// Requests under way.
const CLIENTS: u32 = 32;

/// Nitro's Table 2.
pub(crate) const TABLE_2: Figure = Figure {
    id: "nitro-t2",
    title: "Requests a second and read response time over a system without a cache",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.2, Table 2",
    ours: "The production cache manager in the model of time: 32 clients on the paper's two arrays (TPS: RAID-5 of 11 disks of \
           7200 rpm, data in place, no recipes; COS: a store of ours on a RAID-6 of 10, recipes), both with memory that takes \
           writes, and an SSD of 18.7 thousand reads of 8 KiB a second; caches of 2 % of the volume. \
           The column of extents is an LRU of single extents, not compressed, in the same model.",
    differences: "Write memory is scaled down with the volume, and so is the store's memory for pages, 16 GB of the paper's 36: a \
                  guess. The paper's load is set to 95 % of what the system bears, where ours is 32 clients that wait; how much of the \
                  disks' time goes to writes decides how far the improvement in requests follows that of reads. Hit ratios \
                  are those of generated workloads, higher than in the paper, so that reads gain more. A cache of extents \
                  has no metadata, and its SSD writes them as fast as units.",
    standing: Standing::Contradicted(COS),
    numbers: &NUMBERS,
    quick: false,
    run,
};

const COS: &str = "COS: a quarter to two fifths of what the paper gains, in the paper's order. A write of our store waits for pages of \
                   maps and tables that are not in memory, which no cache takes away";
const TPS: &str = "TPS: a fifth to a half of what the paper gains, and (ND,C) before (D,NC), where the paper has them the \
                   other way round: an array in place spends its time on writes, which no cache takes away, and without recipes \
                   deduplication finds only what was read before";
const COS_READS: &str = "COS: reads gain 14 to 49 points more than the paper's, as hits are higher";
const TPS_READS: &str =
    "TPS: reads gain 26 to 54 points more than the paper's, as hits are higher; and (ND,C) before (D,NC)";
const EXTENTS: &str = "In the paper extents lose 13 to 22 % of requests to units, and (D,C) gains 120 % over them. Ours win, by 4 % (TPS) to \
                       48 % (COS): they have 10 to 14 points more hits (`nitro-4-grain`), and in the model an SSD writes them \
                       as fast as whole units";

/// The paper's numbers beside the results.
const NUMBERS: [(&str, Standing); 17] = [
    ("nitro.t2.cos.iops.webvm", Standing::Contradicted(COS)),
    ("nitro.t2.cos.iops.homes", Standing::Contradicted(COS)),
    ("nitro.t2.cos.iops.mail", Standing::Contradicted(COS)),
    ("nitro.t2.cos.rrt.webvm", Standing::Contradicted(COS_READS)),
    ("nitro.t2.cos.rrt.homes", Standing::Contradicted(COS_READS)),
    ("nitro.t2.cos.rrt.mail", Standing::Contradicted(COS_READS)),
    ("nitro.t2.tps.iops.webvm", Standing::Contradicted(TPS)),
    ("nitro.t2.tps.iops.homes", Standing::Contradicted(TPS)),
    ("nitro.t2.tps.iops.mail", Standing::Contradicted(TPS)),
    ("nitro.t2.tps.rrt.webvm", Standing::Contradicted(TPS_READS)),
    ("nitro.t2.tps.rrt.homes", Standing::Contradicted(TPS_READS)),
    ("nitro.t2.tps.rrt.mail", Standing::Contradicted(TPS_READS)),
    ("nitro.text.dcext.iops", Standing::Contradicted(EXTENTS)),
    ("nitro.text.dcext.rrt", Standing::Contradicted(EXTENTS)),
    ("nitro.62.extent.iops", Standing::Contradicted(EXTENTS)),
    ("nitro.62.extent.rrt", Standing::Contradicted(EXTENTS)),
    ("nitro.62.cold", Standing::Contradicted(COS)),
];

/// Columns of the table: the paper's, in its order.
const COLUMNS: [&str; 5] = ["extents", "ND,NC", "ND,C", "D,NC", "D,C"];

/// Gains of each column, in per cent: requests per second, and read response time saved.
struct Gains {
    iops: Vec<f64>,
    response: Vec<f64>,
    /// Gains of (D,C) in an initially empty cache, with all requests counted.
    cold: [f64; 2],
}

fn better(with: &TimeReport, without: &TimeReport) -> [f64; 2] {
    [(with.iops() / without.iops() - 1.0) * 100.0, (1.0 - with.reads.mean_us / without.reads.mean_us) * 100.0]
}

fn gains(context: &Context, workload: &Loaded, profile: Profile) -> Result<Gains, FigureError> {
    let bytes = percent_of(workload.volume_bytes, 2.0);
    // The paper's volumes are hundreds of gigabytes.
    let memory_scale = workload.volume_bytes as f64 / 400e9;
    let arrival = Arrival::Closed { clients: CLIENTS };
    let timing = Timing { profile, arrival, memory_scale, hits: HitReads::Pieces };
    let (trace, warm) = (&workload.trace, warm_requests(&workload.trace));
    let recipes = profile.disk.is_store();
    let bare = time::bare(trace, &timing, warm)?;
    let extents = ExtentLru {
        extent_bytes: 8192,
        capacity_bytes: bytes,
        dedup: false,
        recipes: false,
        warm_requests: warm,
    };
    let variants = Variant::four(weu_kib(context)).map(|variant| Variant { recipes, ..variant });
    let mut times = vec![time::extents(trace, extents, &timing)?];
    times.extend(each(&variants, |variant| variant.time(trace, bytes, &timing))?);
    let found: Vec<[f64; 2]> = times.iter().map(|time| better(time, &bare)).collect();
    let (_, cold) = variants[3].time_from(trace, bytes, &timing, 0)?;
    Ok(Gains {
        iops: found.iter().map(|gain| gain[0]).collect(),
        response: found.iter().map(|gain| gain[1]).collect(),
        cold: better(&cold, &time::bare(trace, &timing, 0)?),
    })
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let loaded = load_all(context, &mut outcome)?;
    let (mut rows, mut cold) = (Vec::new(), Vec::new());
    for (system, name) in [("COS", "nitro-cos"), ("TPS", "nitro-tps")] {
        let Some(profile) = Profile::named(name) else { continue };
        let names = loaded.iter().map(|workload| workload.name.to_owned()).collect();
        let mut chart =
            Chart::bars(&format!("{system}: requests a second"), names, Axis::linear("improvement, %"));
        let all = each(&loaded, |workload| gains(context, workload, profile))?;
        for (workload, gains) in loaded.iter().zip(&all) {
            rows.extend(rows_of(system, workload.name, gains, &mut outcome));
            let cells = gains.cold.map(|gain| format!("{gain:.0}"));
            outcome.beside("nitro.62.cold", format!("{system} {} {}", workload.name, cells.join("|")));
            cold.push([vec![system.to_owned(), workload.name.to_owned()], cells.to_vec()].concat());
            judge(system, workload.name, gains, &mut outcome);
        }
        for (number, column) in COLUMNS.iter().enumerate() {
            chart.add_bars(column, &all.iter().map(|gains| gains.iops[number]).collect::<Vec<_>>());
        }
        outcome.charts.push(chart);
    }
    let columns: Vec<&str> = ["system", "trace", "metric"].into_iter().chain(COLUMNS).collect();
    outcome.table("Improvement over no cache, %", &columns, rows);
    outcome.table("(D,C) from an empty cache, %", &["system", "trace", "IOPS", "RRT"], cold);
    Ok(outcome)
}

/// Returns the rows of one workload's table; the paper's numbers are added beside them.
fn rows_of(system: &str, trace: &str, gains: &Gains, outcome: &mut Outcome) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (metric, values) in [("IOPS", &gains.iops), ("RRT", &gains.response)] {
        let cells: Vec<String> = values.iter().map(|value| format!("{value:.0}")).collect();
        if let Some(number) = number(system, metric, trace) {
            outcome.beside(number, cells.join("|"));
        }
        rows.push([[system, trace, metric].map(str::to_owned).to_vec(), cells].concat());
    }
    let (&[extent_iops, unit_iops, .., both_iops], &[extent_saved, unit_saved, .., both_saved]) =
        (&gains.iops[..], &gains.response[..])
    else {
        return rows;
    };
    // Ratio of two remaining times, in per cent.
    let over = |one: f64, other: f64| ((100.0 + one) / (100.0 + other) - 1.0) * 100.0;
    let name = |value: f64| format!("{system} {trace} {value:.0}");
    outcome.beside("nitro.62.extent.iops", name(-over(extent_iops, unit_iops)));
    outcome.beside("nitro.62.extent.rrt", name(over(-extent_saved, -unit_saved)));
    outcome.beside("nitro.text.dcext.iops", name(over(both_iops, extent_iops)));
    outcome.beside("nitro.text.dcext.rrt", name(-over(-both_saved, -extent_saved)));
    rows
}

fn judge(system: &str, trace: &str, gains: &Gains, outcome: &mut Outcome) {
    let &[_, none, compressed, deduped, both] = &gains.response[..] else { return };
    outcome.asserted(
        &[Ablation::Irreducible],
        both > none + 0.5 && both >= compressed.max(deduped) - 1.0,
        format!("{system}, {trace}: both reductions together shorten reads most"),
        format!("{both:.0} over {none:.0}, {compressed:.0} (C) and {deduped:.0} % (D)"),
    );
    let least = gains.iops.iter().copied().fold(f64::MAX, f64::min);
    outcome.asserted(
        &[Ablation::Irreducible],
        gains.iops[4] > gains.iops[1] + 2.0 && least > 0.0,
        format!("{system}, {trace}: every column answers more requests, (D,C) more than (ND,NC)"),
        format!("{:.0} and {:.0} %", gains.iops[4], gains.iops[1]),
    );
    if system == "TPS" {
        outcome.contradicted(
            TPS,
            compressed >= deduped - 1.0,
            format!("TPS, {trace}: (ND,C) shortens reads at least as much as (D,NC)"),
            format!("{compressed:.1} and {deduped:.1} %"),
        );
    }
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
