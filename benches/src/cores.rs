//! `cargo xtask bench cores`: gain of more I/O threads.
//!
//! Job: daemons with one thread and with two answer the same hits, in rotating order. A thread's time per hit is its
//! process's run time and its waiting time for another's turn; part of that is serialised in turns. Both determine the
//! rate of two threads relative to one, independent of the load generator's share of the cores. A queueing model
//! extrapolates the times of one thread to more ([`crate::model`]).
//!
//! Invariants: daemons may use all cores; the client is bound to one.
//!
//! Out of scope: more threads than this machine has cores, and the bandwidth of memory and devices.

use zc_report::{Table, figure};

use crate::harness::cores::{Cores, run_on};
use crate::harness::field::{Case, Field, Place, Target};
use crate::harness::volumes::{HITS_FROM_SSD, Volume};
use crate::load::{Content, Load, Op, Order};
use crate::measure::Measured;
use crate::model::Times;
use crate::options::{Folders, Runs};
use crate::report::{Cell, Column, Report};

/// Compare one I/O thread with two
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    folders: Folders,
    #[command(flatten)]
    runs: Runs,
}

const TWO_THREADS: &str = "read_buffer = 0\nprefetch_max = 0\nweu_max_age = \"500 ms\"\nio_threads = 2\n";
const NAMES: [&str; 2] = ["1 thread", "2 threads"];
/// Connections of every case: more than threads, as few clients have.
const CONNECTIONS: u32 = 4;
/// Size of the cache, in sizes of one volume.
const CACHE_VOLUMES: u64 = 3;
/// Numbers of threads of the model.
const MODELLED: [u32; 5] = [1, 2, 4, 8, 16];
const VOLUMES: [Volume; 2] = [
    Volume::new("noise", "write-through", Content::Noise),
    Volume::new("halving", "write-through", Content::Halving),
];
/// Name, volume, KiB and depth.
const CASES: [(&str, &str, u32, u32); 4] = [
    ("4k hits, noise, QD32", "noise", 4, 32),
    ("8k hits, noise, QD32", "noise", 8, 32),
    ("8k hits, LZ4, QD32", "halving", 8, 32),
    ("128k hits, noise, QD8", "noise", 128, 8),
];

const COLUMNS: &[Column] = &[
    ("CPU us", Cell::Spread("cpu_us")),
    ("turns us", Cell::Spread("turn_us")),
    ("waited us", Cell::Spread("waited_us")),
    ("hits/s", Cell::Median("per_second")),
    ("hits/s of threads with a core each", Cell::Spread("capacity_per_second")),
    ("hits", Cell::Percent("hits", "reads")),
];

const PREFACE: &str = "\
`cargo xtask bench cores` makes this page. Two daemons answer the same hits over four connections: one with `io_threads = 1`,
one with 2. Microseconds for each hit: medians over rounds, with the least and the most. *CPU*: what the daemon's process ran.
*Turns*: time that passed while a thread had the shard; threads have it one after the other. *Waited*: time that threads
waited for it. Hits of threads with a core each are those of a hit that takes CPU and waiting of one; the load generator's
time is not in it.";

/// Adds the rates of several threads with a core each, derived from one thread's time per hit, and the model's rates.
fn derived(all: &mut Measured) {
    for one in &mut all.0 {
        let threads = if one.target == NAMES[0] { 1.0 } else { 2.0 };
        for sample in &mut one.samples {
            let [cpu_us, waited_us] = ["cpu_us", "waited_us"].map(|name| sample.get(name).unwrap_or(0.0));
            let capacity = threads * 1e6 / (cpu_us + waited_us);
            *sample = std::mem::take(sample).with("capacity_per_second", capacity);
        }
        if one.target == NAMES[0] {
            let rate = times(one.median("cpu_us"), one.median("turn_us")).rate(16);
            one.once = std::mem::take(&mut one.once).with("modelled_16_threads_per_second", rate);
        }
    }
}

fn times(cpu_us: f64, turn_us: f64) -> Times {
    Times { alone_us: (cpu_us - turn_us).max(0.0), turn_us }
}

fn modelled(all: &Measured) -> String {
    let mut heads = vec![String::new()];
    heads.extend(MODELLED.map(|threads| threads.to_string()));
    heads.push("bound".to_owned());
    let mut table = Table::new(&heads);
    for one in all.0.iter().filter(|one| one.target == NAMES[0]) {
        let times = times(one.median("cpu_us"), one.median("turn_us"));
        let mut cells = vec![one.case.clone()];
        cells.extend(MODELLED.map(|threads| figure(times.rate(threads) / 1000.0)));
        cells.push(figure(times.bound() / 1000.0));
        table.row(cells);
    }
    format!(
        "\n## More threads, by a model\n\nThousands of hits a second of threads with a core each, from the times of one \
         thread: the exact mean value analysis of a\nstation with a queue (turns) and one without (the rest). Wanted: a \
         million a second of 16 threads, with four NVMe drives\nthat serve a million reads together. The bound is that of \
         turns alone.\n\n{table}"
    )
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let work = args.runs.work(&args.folders, 500, 9)?;
    let cores = Cores::pick()?;
    let mut field = Field::new(&work, false)?;
    for cache in [HITS_FROM_SSD, TWO_THREADS] {
        field.start_daemon(cache, CACHE_VOLUMES, &VOLUMES, |_| true, false)?;
    }
    // From here on the client alone: threads inherit, and the daemons are there.
    run_on(cores.client)?;
    let mut all = Measured::default();
    for (name, volume, kib, depth) in CASES {
        let load = Load { connections: CONNECTIONS, ..Load::new(Op::Read, Order::Random, kib, depth) };
        let targets = [0, 1].map(|number| Target::new(NAMES[number], Place::Daemon(number), volume));
        let case = Case::new(name.to_owned(), load);
        all.0.extend(field.compare(&work, &[case], &targets, COLUMNS, |_, _| true, |_, _| false)?.0);
    }
    derived(&mut all);
    let report = Report {
        name: "cores",
        title: "More I/O threads",
        machine: work.machine.clone(),
        preface: PREFACE.to_owned(),
        sections: modelled(&all),
        columns: COLUMNS,
        measured: &all,
    };
    report.publish(&work.out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aims;
    use crate::measure::{Sample, Series};

    #[test]
    fn a_thread_that_waits_serves_less() {
        let sample = |waited_us| Sample::new([("cpu_us", 10.0), ("turn_us", 4.0), ("waited_us", waited_us)]);
        let series = |target, waited_us| Series::new("c", target, vec![sample(waited_us)]);
        for (waited_us, speed_up, met) in [(0.0, 2.0, true), (2.5, 1.6, false)] {
            let mut all = Measured(vec![series(NAMES[0], 0.0), series(NAMES[1], waited_us)]);
            derived(&mut all);
            let seen = aims::seen("cores", &all);
            assert!((seen[0].spread.median - speed_up).abs() < 1e-9 && seen[0].met == met);
            assert!(!seen[1].met, "turns of 4 us bound the rate");
            let page = modelled(&all);
            assert!(page.contains("| c | 100 |") && page.ends_with("| 250 |\n"), "{page}");
        }
    }
}
