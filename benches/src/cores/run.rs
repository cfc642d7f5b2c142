//! The run: one daemon for each number of threads, asked in rotating order.

use anyhow::{Context as _, ensure};

use super::measured::{CASES, Case, Options, Sample, Series, THREADS, VOLUMES};
use crate::harness::cores::{Cores, run_on};
use crate::harness::daemon::{Daemon, make_cache};
use crate::harness::tasks::Tasks;
use crate::load;
use crate::nbd::volumes::{self, Setting};

/// Connections that were never used are slow at first: so long every run goes before it counts.
const WARM_NS: u64 = 30_000_000;
/// Size of the cache, in sizes of one volume.
const CACHE_VOLUMES: u64 = 3;

struct Field {
    daemons: Vec<Daemon>,
}

impl Field {
    fn set_up(options: &Options) -> anyhow::Result<Self> {
        let (size_bytes, cache_bytes) = (options.size_bytes, CACHE_VOLUMES * options.size_bytes);
        let mut daemons = Vec::new();
        for io_threads in THREADS {
            let dir = options.dir.join(format!("threads-{io_threads}"));
            std::fs::create_dir_all(&dir)?;
            make_cache(&dir, cache_bytes)?;
            let setting = Setting { cache_bytes, size_bytes, poll_max_us: 0, tcp: None, io_threads };
            let daemon = volumes::start(&dir, setting, &VOLUMES)?;
            for volume in &VOLUMES {
                volumes::fill(&daemon, volume)?;
            }
            daemons.push(daemon);
        }
        Ok(Self { daemons })
    }

    fn measure(&self, case: &Case, place: usize, time_ns: u64, seed: u64) -> anyhow::Result<Sample> {
        let daemon = &self.daemons[place];
        let ask = |time_ns, seed| load::run(daemon.socket(), case.volume, case.load(time_ns, seed));
        ask(WARM_NS, seed * 2)?;
        let (turns, seen) = (daemon.turns()?, daemon.counters()?);
        let tasks = Tasks::of(daemon.pid())?;
        let outcome = ask(time_ns, seed * 2 + 1)?;
        let used = Tasks::of(daemon.pid())?.since(&tasks);
        let (turns, seen) = (daemon.turns()?.since(turns), daemon.counters()?.since(seen));
        ensure!(seen.reads > 0, "no read was counted");
        let each = |us: f64| us / outcome.requests.max(1) as f64;
        Ok(Sample {
            cpu_us: each(used.cpu_ns as f64 / 1000.0),
            turn_us: each(turns.took_us as f64),
            waited_us: each(turns.waited_us as f64),
            per_second: outcome.per_second(),
            share: seen.hits as f64 / seen.reads as f64,
        })
    }
}

/// Makes the run; `tell` hears how far it is.
///
/// # Errors
/// A daemon fails, or the machine has one core.
pub fn run(options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Series>> {
    let cores = Cores::pick()?;
    tell("making files and filling caches");
    let field = Field::set_up(options)?;
    // From here on the client alone: threads inherit, and the daemons are there.
    run_on(cores.client)?;
    let mut all = Vec::new();
    for case in CASES {
        let mut series = Series { case, samples: [Vec::new(), Vec::new()] };
        for round in 0..options.rounds {
            for turn in 0..THREADS.len() {
                let place = (turn + zc_core::usize_from_u64(round)) % THREADS.len();
                let sample = field.measure(&case, place, options.time_ns, round);
                series.samples[place].push(sample.with_context(|| case.name)?);
            }
        }
        tell(&super::report::row(&series));
        all.push(series);
    }
    Ok(all)
}
