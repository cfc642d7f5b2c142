//! Figure 9: random reads of the first and the hundredth generation of a volume.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_replay::time::profile::Profile;
use zc_replay::time::{self, Arrival, HitReads, Store, Timing};
use zc_replay::{Ratios, Trace};
use zc_trace::workload::{Kind, Workload};
use zc_trace::{Op, Request};

use super::generations::{Generations, bytes_of};
use super::hits::weu_kib;
use super::runs::{Variant, percent_of};
use crate::context::each;
use crate::{Ablation, Axis, Chart, Context, Figure, FigureError, Outcome, Standing};

const AGE: &[Ablation] = &[Ablation::FreshLog];

/// Nitro's Figure 9.
pub(crate) const FIGURE_9: Figure = Figure {
    id: "nitro-9",
    title: "Random reads of an aged deduplicating store",
    source: "Li et al., Nitro, USENIX ATC 2014, section 6.3, Figure 9",
    ours: "A volume of which 2.3 % change a day, in runs of 64 KiB, for a hundred days, in a store of ours on the paper's array \
           (RAID-6 of 10 disks); snapshots of twelve days are kept. Two hundred reads anywhere, one at a time, of each size, in \
           the model of time: before the first change and after the last one. With the production cache manager before it, \
           (D,C), units take a quarter of the volume's bytes, filled by reads of 512 KiB anywhere.",
    differences: "The paper's system is not published; ours is the store of this repository, whose log keeps in order what was \
                  written at once. The paper keeps twelve weeks of a hundred, ours twelve generations. Our store does not gather here: \
                  with 64 MiB for pages, scaled down, that made reads of 1 MiB slower on these ten disks (87 for 75 ms).",
    standing: Standing::Asserted(AGE),
    numbers: &[("nitro.f9", Standing::Asserted(AGE))],
    quick: false,
    run,
};

const DAYS: u64 = 100;
const CHANGED: f64 = 0.023;
const KEPT: usize = 12;
/// Rest after a day, for the cleaner.
const REST_NS: u64 = 20_000_000_000;
/// The paper's volume.
const PAPER_BYTES: f64 = 38e9;
/// Reads of each size.
const READS: u64 = 200;
/// Bytes of the reads.
const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes of the reads that fill the cache.
const FILL_BYTES: u64 = 512 << 10;
/// Bytes read while the cache is filled, in volume sizes.
const FILL_TIMES: u64 = 3;
/// Units, as per cent of the volume: half of it when contents compress two to one.
const CACHE_PERCENT: f64 = 25.0;

/// The columns: name, last generation or first, with the cache or without.
const COLUMNS: [(&str, bool, bool); 4] = [
    ("COS, generation 1", false, false),
    ("COS, generation 100", true, false),
    ("cache, generation 1", false, true),
    ("cache, generation 100", true, true),
];

fn volume(context: &Context) -> Workload {
    let blocks = context.scale.pick(1_u64 << 16, 1 << 19);
    let shared = if context.are_unique() { 0.0 } else { 0.3 };
    let ratio = context.ratio((2.0, 0.5));
    Workload {
        kind: Kind::Snapshots { changed: CHANGED },
        blocks,
        requests: 0,
        reads: 1.0,
        shared,
        ratio,
        seed: 1,
    }
}

/// Returns a store with the volume after `days` days.
fn aged(volume: &Workload, timing: &Timing, days: u64) -> Result<Store, FigureError> {
    let mut store = Store::new(timing, bytes_of(volume, DAYS, CHANGED))?;
    let mut generations = Generations::new(&mut store, *volume)?;
    let mut kept = Vec::new();
    for day in 0..days {
        generations.live(&mut store, day)?;
        kept.push(store.snapshot(generations.root())?);
        if kept.len() > KEPT {
            store.delete(kept.remove(0))?;
        }
        store.rest(REST_NS)?;
    }
    store.show(&[generations.root()]);
    Ok(store)
}

/// Reads of one size, after those that fill a cache, if there is one. Also how many of these there are.
fn reads(volume: &Workload, len_bytes: u64, fills: bool) -> Result<(Trace, u64), FigureError> {
    let mut rng = Pcg64Mcg::seed_from_u64(len_bytes);
    let volume_bytes = volume.blocks * 4096;
    let warm = if fills { volume_bytes / FILL_BYTES * FILL_TIMES } else { 0 };
    let mut read = |number: u64, bytes: u64| {
        let offset_bytes = rng.random_range(0..volume_bytes / bytes) * bytes;
        let len_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Ok(Request::new(number, Op::Read, offset_bytes, len_bytes))
    };
    let all: Vec<_> = (0..warm)
        .map(|number| (number, FILL_BYTES))
        .chain((warm..warm + READS).map(|number| (number, len_bytes)))
        .map(|(number, bytes)| read(number, bytes))
        .collect();
    Ok((Trace::load(all.into_iter(), Ratios::default())?, warm))
}

/// Mean response times of one column in milliseconds, size by size.
fn column(context: &Context, timing: &Timing, which: (&str, bool, bool)) -> Result<Vec<f64>, FigureError> {
    let volume = volume(context);
    let (_, is_old, is_cached) = which;
    let days = if is_old && !context.ablates(Ablation::FreshLog) { DAYS } else { 1 };
    let mut store = aged(&volume, timing, days)?;
    let mut found = Vec::new();
    for len_bytes in SIZES {
        let (trace, warm) = reads(&volume, len_bytes, is_cached)?;
        let report = if is_cached {
            let room = percent_of(volume.blocks * 4096, CACHE_PERCENT);
            let variant = Variant { recipes: false, ..Variant::new(true, true, weu_kib(context) / 4) };
            variant.time_on(&mut store, &trace, room, timing, warm)?
        } else {
            time::bare_on(&mut store, &trace, timing, warm)?
        };
        found.push(report.reads.mean_us / 1000.0);
    }
    Ok(found)
}

fn run(context: &Context) -> Result<Outcome, FigureError> {
    let mut outcome = Outcome::default();
    let Some(profile) = Profile::named("nitro-cos") else { return Ok(outcome) };
    let memory_scale = (volume(context).blocks * 4096) as f64 / PAPER_BYTES;
    let arrival = Arrival::Closed { clients: 1 };
    let timing = Timing { profile, arrival, memory_scale, hits: HitReads::Pieces };
    let columns = each(&COLUMNS, |which| column(context, &timing, *which))?;
    let axes = (Axis::log2("bytes of a read, KiB"), Axis::log2("response time, ms"));
    let mut chart = Chart::lines("Random reads", axes.0, axes.1);
    for ((name, ..), times) in COLUMNS.iter().zip(&columns) {
        let points = SIZES.iter().map(|bytes| (*bytes >> 10) as f64).zip(times.iter().copied());
        chart.add(name, points.collect());
    }
    outcome.charts.push(chart);
    let rows = SIZES.iter().enumerate().map(|(row, bytes)| {
        let cells = columns.iter().map(|times| format!("{:.1}", times[row]));
        std::iter::once((bytes >> 10).to_string()).chain(cells).collect()
    });
    let head: Vec<&str> = std::iter::once("KiB").chain(COLUMNS.iter().map(|(name, ..)| *name)).collect();
    outcome.table("Mean response time, ms", &head, rows.collect());
    judge(&columns, &mut outcome);
    Ok(outcome)
}

fn judge(columns: &[Vec<f64>], outcome: &mut Outcome) {
    let [first, last, cached_first, cached_last] = columns else { return };
    let large = SIZES.len() - 1;
    outcome.asserted(
        AGE,
        last[large] > first[large] * 1.5 && last[0] < first[0] * 1.5,
        "COS: generation 100 takes longer than generation 1 in reads of 1 MiB, and not in reads of 4 KiB",
        format!(
            "{:.1} and {:.1} ms of 1 MiB, {:.1} and {:.1} ms of 4 KiB",
            last[large], first[large], last[0], first[0]
        ),
    );
    let (bare, cached) = (last[large] - first[large], cached_last[large] - cached_first[large]);
    outcome.asserted(
        AGE,
        cached > 0.5 && cached < bare,
        "a cache makes the difference between generations smaller, and leaves some of it",
        format!("{cached:.1} ms with a cache, {bare:.1} ms without"),
    );
    outcome.beside("nitro.f9", format!("{:.0}|{:.0}", cached_last[large], cached_first[large]));
}
