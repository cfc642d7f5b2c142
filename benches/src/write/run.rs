//! The cases on a fast origin.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::harness::daemon::{self, Daemon, fill_file, make_cache};
use crate::harness::servers::{Server, qemu};
use crate::load::{self, Content, Durability, Load, Op, Order};
use crate::nbd::floor;

/// Bytes of each write.
const BLOCK_BYTES: u32 = 4 << 10;

/// What is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The bare file, by `fio`.
    File,
    /// `qemu-nbd` on the bare file.
    Qemu,
    /// The daemon's volume of this name.
    Volume(&'static str),
}

/// The volumes: name, mode, and when a write is acknowledged.
pub const VOLUMES: [(&str, &str, &str); 4] = [
    ("pass-through", "pass-through", "volatile"),
    ("write-through", "write-through", "volatile"),
    ("write-back", "write-back", "volatile"),
    ("write-back-durable", "write-back", "durable"),
];

impl Target {
    /// Every target.
    pub const ALL: [Self; 6] = [
        Self::File,
        Self::Qemu,
        Self::Volume("pass-through"),
        Self::Volume("write-through"),
        Self::Volume("write-back"),
        Self::Volume("write-back-durable"),
    ];

    /// For tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::File => "file itself (fio, io_uring, direct)".to_owned(),
            Self::Qemu => "qemu-nbd (direct, io_uring)".to_owned(),
            Self::Volume(name) => format!("zcached, {name}"),
        }
    }
}

/// A case: how many writes are in flight, and what makes them durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Writes in flight.
    pub depth: u32,
    /// What makes them durable.
    pub durability: Durability,
}

/// Every case.
pub const CASES: [Case; 3] = [
    Case { depth: 1, durability: Durability::Fua },
    Case { depth: 1, durability: Durability::Flush },
    Case { depth: 32, durability: Durability::None },
];

impl Case {
    /// `4k random write, QD1, FUA`.
    #[must_use]
    pub fn name(self) -> String {
        let durability = match self.durability {
            Durability::None => "no flushes",
            Durability::Fua => "FUA",
            Durability::Flush => "a FLUSH after each",
        };
        format!("4k random write, QD{}, {durability}", self.depth)
    }

    /// The load of one run.
    #[must_use]
    pub const fn load(self, time_ns: u64, seed: u64) -> Load {
        Load {
            op: Op::Write(Content::Halving),
            order: Order::Random,
            block_bytes: BLOCK_BYTES,
            depth: self.depth,
            connections: 1,
            time_ns,
            durability: self.durability,
            once: false,
            seed,
        }
    }
}

/// One run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Writes per second; with its FLUSH where there is one.
    pub per_second: f64,
    /// Percentiles 50, 99 and 99.9 of the latency in microseconds. `fio` counts without the flush.
    pub latency_us: [f64; 3],
}

/// All runs of a target in a case, one for each round.
#[derive(Debug)]
pub struct Series {
    /// The case.
    pub case: Case,
    /// The target.
    pub target: Target,
    /// Its runs.
    pub samples: Vec<Sample>,
}

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Files are made here.
    pub dir: PathBuf,
    /// Length of one run.
    pub time_ns: u64,
    /// Rounds.
    pub rounds: u64,
    /// Size of the file and of each volume.
    pub size_bytes: u64,
}

impl Sample {
    /// Figures of a run of our own client.
    #[must_use]
    pub fn of(outcome: &load::Outcome) -> Self {
        let us = |percent: f64| outcome.latency.value_at_percentile(percent) as f64 / 1000.0;
        Self { per_second: outcome.per_second(), latency_us: [us(50.0), us(99.0), us(99.9)] }
    }
}

/// Configuration of a daemon in `dir`: a cache, and volumes with `name`, `origin` and everything else in `volumes`.
pub(super) fn configuration(dir: &Path, cache_bytes: u64, volumes: &str) -> String {
    let path = dir.join("cache.img").display().to_string();
    let cache = format!("path = {path:?}\nsize = {cache_bytes}\ndiscard = false");
    daemon::configuration(dir, &cache, volumes, "listen = []")
}

struct Rig {
    daemon: Daemon,
    qemu: Server,
    file: PathBuf,
}

impl Rig {
    fn new(options: &Options) -> anyhow::Result<Self> {
        let file = options.dir.join("file.img");
        fill_file(&file, options.size_bytes)?;
        let dir = options.dir.join("zcached");
        std::fs::create_dir_all(&dir)?;
        let mut volumes = String::new();
        for (name, mode, ack) in VOLUMES {
            let origin = dir.join(format!("{name}.img"));
            fill_file(&origin, options.size_bytes)?;
            writeln!(
                volumes,
                "[[volume]]\nname = {name:?}\norigin = {origin:?}\ndirect = true\nmode = {mode:?}"
            )?;
            if mode == "write-back" {
                writeln!(volumes, "ack = {ack:?}")?;
            }
        }
        make_cache(&dir, 4 * options.size_bytes)?;
        let daemon = Daemon::serve(&dir, &configuration(&dir, 4 * options.size_bytes, &volumes))?;
        let qemu = qemu(&options.dir, &file)?;
        Ok(Self { daemon, qemu, file })
    }

    fn measure(&self, case: Case, target: Target, load: Load) -> anyhow::Result<Sample> {
        match target {
            Target::File => {
                let raw = floor::fio(&self.file, &load)?;
                let [_, p50, _, p99, p999] = raw.latency_us;
                Ok(Sample { per_second: raw.per_second, latency_us: [p50, p99, p999] })
            }
            Target::Qemu => Ok(Sample::of(&load::run(self.qemu.socket(), "", load)?)),
            Target::Volume(name) => {
                let outcome = load::run(self.daemon.socket(), name, load)
                    .with_context(|| format!("{name}, {}", case.name()))?;
                if name.starts_with("write-back") {
                    self.daemon.flush(name)?;
                }
                Ok(Sample::of(&outcome))
            }
        }
    }
}

/// Measures.
///
/// # Errors
/// A program is missing, or a server fails.
pub fn run(options: &Options, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Series>> {
    tell("making files");
    let rig = Rig::new(options)?;
    let mut all: Vec<Series> = CASES
        .iter()
        .flat_map(|&case| Target::ALL.map(|target| Series { case, target, samples: Vec::new() }))
        .collect();
    for round in 0..options.rounds {
        tell(&format!("round {} of {}", round + 1, options.rounds));
        for series in &mut all {
            let load = series.case.load(options.time_ns, round + 1);
            series.samples.push(rig.measure(series.case, series.target, load)?);
        }
    }
    Ok(all)
}
