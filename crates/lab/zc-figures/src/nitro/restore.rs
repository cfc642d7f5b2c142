//! Figure 10: restores of snapshots from a cache that holds part of the primary.

use zc_core::usize_from_u64;
use zc_replay::time::profile::Profile;
use zc_replay::time::{self, Arrival, HitReads, Root, Store, TimeReport, Timing};
use zc_replay::{Ratios, Trace};
use zc_trace::workload::{Kind, Workload};
use zc_trace::{Op, Request};

use super::generations::{Generations, bytes_of};
use super::hits::weu_kib;
use super::runs::{Variant, percent_of};
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const UNIQUE: &[Ablation] = &[Ablation::UniqueContents];
const POOL: &str = "The share of runs that come from a pool, 0.3, which the paper does not state: duplicates within a copy decide \
                    what (D,C) gains in small caches, and no sweep over that share keeps the number";

/// Nitro's Figure 10.
pub(crate) const FIGURE_10: Figure = Figure {
    id: "nitro-10",
    title: "Time to restore snapshots of a virtual machine",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.3, Figure 10",
    ours: "A volume of which 1.87 % change a day, in runs of 64 KiB, for a hundred days: the one rate that gives both overlaps \
           of the paper. Each day leaves a snapshot in a store of ours on the paper's array (COS), in the model of time. The \
           newest is written through the production cache manager, then one snapshot is read from front to back, 512 KiB at \
           a time, eight reads under way; what recipes tell takes no read. Means of groups of 25 snapshots, in seconds for \
           the paper's 38 GB.",
    differences: "How many duplicates the paper's machine has in itself is not told; ours has three in ten runs from a pool. \
                  Our store never gathers here; how much of its server's 36 GB of memory is for pages, 16 GB, is a guess, scaled \
                  down with the volume. Newer copies lie in more places and take longer without a cache. What a restore reads \
                  is cached, in the order in which the primary was written: caches of 2 and 5 % have lost what they had of the \
                  primary before the restore comes to it, and deduplication finds the duplicates within the copy. In a cache \
                  that holds the primary it finds the overlap as well.",
    standing: Standing::Fitted(POOL),
    numbers: &[
        ("nitro.f10", Standing::Fitted(POOL)),
        ("nitro.f10.overlap", Standing::Fitted("The share of runs that change a day, to both overlaps")),
    ],
    quick: false,
    run,
};

/// Number of daily copies.
const DAYS: u64 = 100;
/// Days that share a row.
const GROUP: u64 = 25;
/// Share of a volume that changes in a day: `(1 - CHANGED)^k` is 0.80 in the mean of k from 0 to 24, 0.20 from 75 to
/// 99.
const CHANGED: f64 = 0.0187;
/// Share of runs that come from a pool.
const SHARED: f64 = 0.3;
/// Caches, as per cent of the volume: the paper's, and one that holds the primary.
const CACHES: [f64; 3] = [2.0, 5.0, 100.0];
/// The paper's volume.
const PAPER_BYTES: f64 = 38e9;
/// Reads under way.
const CLIENTS: u32 = 8;

fn volume(context: &Context) -> Workload {
    let blocks = context.scale.pick(1_u64 << 16, 1 << 19);
    // Copies that share nothing: every run changes every day.
    let changed = if context.are_unique() { 1.0 } else { CHANGED };
    let kind = Kind::Snapshots { changed };
    let shared = if context.are_unique() { 0.0 } else { SHARED };
    Workload { kind, blocks, requests: 0, reads: 1.0, shared, ratio: context.ratio((2.0, 0.5)), seed: 1 }
}

/// The newest copy is written as the primary, then one is read. Also the requests of the first part.
fn restore(volume: &Workload, day: u64) -> Result<(Trace, u64), FigureError> {
    // Each copy is a volume of its own.
    let own = |line: Request| Request { offset_bytes: line.offset_bytes % (volume.blocks * 4096), ..line };
    let newest = volume.copy_of(DAYS - 1).map(own);
    let written = newest.map(|line| Request { op: Op::Write, ..line.on(1) });
    let last_ns = (DAYS + 1) * volume.blocks * 1_000_000;
    let read = volume.copy_of(day).map(own);
    let read = read.map(|line| Request { time_ns: line.time_ns + last_ns, ..line });
    let trace = Trace::load(written.chain(read).map(Ok), Ratios::default())?;
    let half = trace.requests() / 2;
    Ok((trace, half))
}

/// The share of a copy's blocks that the newest has in the same place.
fn overlap(volume: &Workload, day: u64) -> f64 {
    let contents = |day| volume.copy_of(day).map(|line| line.content);
    let same = contents(day).zip(contents(DAYS - 1)).filter(|(one, other)| one == other).count();
    same as f64 / volume.blocks as f64
}

/// Days of each group that are restored.
fn days(context: &Context) -> Vec<[u64; 2]> {
    let step: u64 = context.scale.pick(12, 5);
    (0..DAYS / GROUP)
        .flat_map(|group| (0..GROUP).step_by(usize::try_from(step).unwrap_or(1)).map(move |day| [group, day]))
        .map(|[group, day]| [group, group * GROUP + day])
        .collect()
}

/// Seconds for the paper's volume.
fn seconds(report: &TimeReport, volume: &Workload) -> f64 {
    report.seconds * PAPER_BYTES / (volume.blocks * 4096) as f64
}

/// A store with a snapshot of every day, oldest first, and a copy of the newest, which is the primary.
fn history(volume: &Workload, timing: &Timing) -> Result<(Store, Vec<Root>, Root), FigureError> {
    let mut store = Store::new(timing, bytes_of(volume, DAYS, CHANGED))?;
    let mut generations = Generations::new(&mut store, *volume)?;
    let mut days = Vec::new();
    for day in 0..DAYS {
        generations.live(&mut store, day)?;
        days.push(store.snapshot(generations.root())?);
    }
    let primary = store.clone_of(days[days.len() - 1])?;
    Ok((store, days, primary))
}

/// Returns the restore times of some days, one row a day: without a cache, then (ND,C) and (D,C) with each of the
/// caches.
fn restores(
    context: &Context,
    volume: &Workload,
    timing: &Timing,
    days: &[[u64; 2]],
) -> Result<Vec<Vec<f64>>, FigureError> {
    let (mut store, roots, primary) = history(volume, timing)?;
    let mut rows = Vec::new();
    for [_, day] in days {
        let (trace, warm) = restore(volume, *day)?;
        // The trace names the primary first.
        store.show(&[primary, roots[usize_from_u64(*day)]]);
        let mut found = vec![seconds(&time::bare_on(&mut store, &trace, timing, warm)?, volume)];
        for percent in CACHES {
            let bytes = percent_of(volume.blocks * 4096, percent);
            for dedup in [false, true] {
                let variant = Variant::new(dedup, true, weu_kib(context) / 4);
                found.push(seconds(&variant.time_on(&mut store, &trace, bytes, timing, warm)?, volume));
            }
        }
        rows.push(found);
    }
    Ok(rows)
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let Some(profile) = Profile::named("nitro-cos") else { return Ok(outcome) };
    let volume = volume(context);
    let memory_scale = (volume.blocks * 4096) as f64 / PAPER_BYTES;
    let timing = Timing {
        profile,
        arrival: Arrival::Closed { clients: CLIENTS },
        memory_scale,
        hits: HitReads::Pieces,
    };
    let days = days(context);
    // Two stores, so that two processors have work.
    let halves: Vec<&[[u64; 2]]> = days.chunks(days.len().div_ceil(2)).collect();
    let times = each(&halves, |half| restores(context, &volume, &timing, half))?.concat();
    let overlaps = each(&days, |[_, day]| Ok(overlap(&volume, *day)))?;
    let mean = |group: u64, value: &dyn Fn(usize) -> f64| {
        let of_group = || days.iter().enumerate().filter(|(_, [of, _])| *of == group);
        of_group().map(|(at, _)| value(at)).sum::<f64>() / of_group().count() as f64
    };
    let groups: Vec<u64> = (0..DAYS / GROUP).collect();
    let column = |which: usize| -> Vec<f64> {
        groups.iter().map(|group| mean(*group, &|at| times[at][which])).collect()
    };
    let columns: Vec<Vec<f64>> = (0..=CACHES.len() * 2).map(column).collect();
    let overlap: Vec<f64> = groups.iter().map(|group| mean(*group, &|at| overlaps[at]) * 100.0).collect();
    let names: Vec<String> =
        groups.iter().map(|group| format!("{}-{}", group * GROUP + 1, (group + 1) * GROUP)).collect();
    let mut chart = Chart::bars("Restore of 38 GB", names.clone(), Axis::linear("seconds"));
    let variants = ["no cache", "ND,C 2 %", "D,C 2 %", "ND,C 5 %", "D,C 5 %", "ND,C 100 %", "D,C 100 %"];
    variants.iter().zip(&columns).for_each(|(name, values)| chart.add_bars(name, values));
    outcome.charts.push(chart);
    let rows = names.iter().enumerate().map(|(group, name)| {
        let cells = columns.iter().map(|values| format!("{:.0}", values[group]));
        [name.clone(), format!("{:.0}", overlap[group])].into_iter().chain(cells).collect()
    });
    let head: Vec<&str> = ["copies", "overlap, %"].into_iter().chain(variants).collect();
    outcome.table("Restore of 38 GB, seconds", &head, rows.collect());
    judge(&columns, &overlap, &mut outcome);
    Ok(outcome)
}

fn judge(columns: &[Vec<f64>], overlap: &[f64], outcome: &mut Outcome) {
    let [_, compressed_2, both_2, compressed_5, both_5, compressed_all, both_all] = columns else { return };
    let pairs = [(2, compressed_2, both_2), (5, compressed_5, both_5), (100, compressed_all, both_all)];
    for (percent, compressed, both) in pairs {
        let faster = compressed.iter().zip(both).all(|(compressed, both)| both < compressed);
        outcome.asserted(
            UNIQUE,
            faster,
            format!("with {percent} % (D,C) restores every group faster than (ND,C)"),
            format!("{both:.0?} against {compressed:.0?} s"),
        );
    }
    let is_fastest = both_all
        .split_last()
        .is_some_and(|(newest, others)| others.iter().all(|other| *newest < other * 0.95));
    outcome.asserted(
        UNIQUE,
        is_fastest,
        "from a cache that holds the primary (D,C) restores the newest snapshots fastest",
        format!("{both_all:.0?} s"),
    );
    if let (Some(oldest), Some(newest)) = (overlap.first(), overlap.last()) {
        outcome.beside("nitro.f10.overlap", format!("{newest:.0}|{oldest:.0}"));
    }
    if let (Some(both), Some(compressed)) = (both_5.first(), compressed_5.first()) {
        outcome.beside("nitro.f10", format!("{both:.0}|{compressed:.0}"));
    }
}
