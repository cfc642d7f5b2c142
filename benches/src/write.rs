//! `cargo xtask bench write`: write-back beside write-through, the file itself and an origin of 300 requests a second.
//!
//! Job: three measurements. The cost of a durable write (4 KiB, one in flight, FUA or FLUSH with each); the rate of
//! writes without flushes (32 in flight), on a fast origin and on a slow one; pauses of the engine when the cache is
//! full and evicts for each written unit.
//!
//! Invariants: before the next target, dirty data are destaged, so that no run's destaging affects another's
//! measurement. Cache, origins and the bare file are on one file system and are opened with direct I/O. Slices of a
//! full cache and of pass-through alternate, so that pauses of the disk or of the machine appear in both.
//!
//! It does not verify written data (the tests do).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use zc_report::Table;

use crate::harness::daemon::{Daemon, fill_file, make_cache};
use crate::harness::field::{Case, Field, Place, Target};
use crate::harness::servers::Server;
use crate::harness::volumes::{self, Setting, Volume};
use crate::load::{self, Content, Durability, Load, Op, Order, histogram};
use crate::measure::{Measured, Sample, Series};
use crate::options::{Folders, Runs, Work};
use crate::report::{Cell, Column, Report};

/// Measure durable writes, write-back beside write-through, a slow origin, and pauses of a full cache
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    folders: Folders,
    #[command(flatten)]
    runs: Runs,
    /// Seconds to observe pauses of the full cache, and of pass-through; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pauses: u64,
}

/// Lines of every cache here.
const CACHE: &str = "discard = false\n";
const RAW: Target = Target::new("file itself (fio, io_uring, direct)", Place::File, "").of(Content::Halving);
const QEMU: Target = Target::new("qemu-nbd (direct, io_uring)", Place::Qemu, "").of(Content::Halving);
const TARGETS: [Target; 6] = [
    RAW,
    QEMU,
    daemon("zcached, pass-through", "pass-through"),
    daemon("zcached, write-through", "write-through"),
    daemon("zcached, write-back", "write-back"),
    daemon("zcached, write-back-durable", "write-back-durable"),
];
const VOLUMES: [Volume; 4] = [
    Volume::new("pass-through", "pass-through", Content::Halving),
    Volume::new("write-through", "write-through", Content::Halving),
    Volume::new("write-back", "write-back", Content::Halving),
    Volume::new("write-back-durable", "write-back", Content::Halving),
];
/// Size of the cache in volumes.
const CACHE_VOLUMES: u64 = 4;

/// Time of each request of the slow origin, and its name in tables.
const SLOW_DELAY: &str = "3ms";
const SLOW: &str = "slow origin, 4k random write, QD32";
/// Duration of write measurements: the cache stays below its watermark.
const SLOW_NS: u64 = 2_000_000_000;

const PAUSES: &str = "pauses, 4k random write, QD1";
const FULL: &str = "write-back, full cache";
const PASS: &str = "pass-through";
/// Length of a slice in the measurement of pauses.
const SLICE_NS: u64 = 5_000_000_000;
/// Ratio of the volume to the cache.
const PAUSES_TIMES: u64 = 4;
/// Steps of the histogram of pauses, and their ends in milliseconds.
const STEPS: [(&str, f64); 8] = [
    ("to_0.5_ms", 0.5),
    ("to_1_ms", 1.0),
    ("to_2_ms", 2.0),
    ("to_5_ms", 5.0),
    ("to_10_ms", 10.0),
    ("to_20_ms", 20.0),
    ("to_50_ms", 50.0),
    ("longer", f64::INFINITY),
];
/// Pauses that the engine must not cause, in milliseconds.
const PAUSE_MS: f64 = 10.0;

const COLUMNS: &[Column] = &[
    ("ratio to file", Cell::To(RAW.name, "per_second")),
    ("writes/s", Cell::Median("per_second")),
    ("p50 us", Cell::Median("p50_us")),
    ("p99", Cell::Median("p99_us")),
    ("p99.9", Cell::Median("p999_us")),
];

const fn daemon(name: &'static str, volume: &'static str) -> Target {
    Target::new(name, Place::Daemon(0), volume).of(Content::Halving)
}

/// `4k random write, QD1, FUA`.
fn case(depth: u32, durability: Durability) -> Case {
    let durable = match durability {
        Durability::None => "no flushes",
        Durability::Fua => "FUA",
        Durability::Flush => "a FLUSH after each",
    };
    let load = Load { durability, ..Load::new(Op::Write(Content::Halving), Order::Random, 4, depth) };
    Case::new(format!("4k random write, QD{depth}, {durable}"), load)
}

/// `nbdkit` mounted as a file; unmounted when dropped.
struct Mounted {
    fuse: Child,
    mount: PathBuf,
}

impl Mounted {
    fn new(dir: &Path, socket: &Path) -> anyhow::Result<Self> {
        let mount = dir.join("slow-origin.img");
        File::create(&mount)?;
        let pid = dir.join("fuse.pid");
        let made = Command::new("mkfifo").arg(&pid).status().context("cannot start mkfifo")?;
        anyhow::ensure!(made.success(), "mkfifo failed");
        let mut command = Command::new("nbdfuse");
        command.arg("--pidfile").arg(&pid).arg(&mount).arg("--unix").arg(socket);
        let fuse = command.stdin(Stdio::null()).spawn().context("cannot start nbdfuse")?;
        // It writes its process id when the file is there.
        std::fs::read_to_string(&pid)?;
        Ok(Self { fuse, mount })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _unmounted = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.mount).status();
        let _ended = self.fuse.kill();
        let _reaped = self.fuse.wait();
    }
}

/// Write-back on an origin that serves about 300 requests a second, one at a time, as one disk does.
fn slow(work: &Work) -> anyhow::Result<[Series; 2]> {
    let dir = work.dir.join("slow");
    std::fs::create_dir_all(&dir)?;
    let (image, socket) = (dir.join("image.img"), dir.join("origin.sock"));
    fill_file(&image, work.size_bytes)?;
    let mut command = Command::new("nbdkit");
    command.arg("--foreground").arg("--unix").arg(&socket);
    command.args(["--filter=noparallel", "--filter=delay", "file"]).arg(&image);
    command.arg(format!("rdelay={SLOW_DELAY}")).arg(format!("wdelay={SLOW_DELAY}"));
    let server = Server::start(&mut command, &socket)?;
    let mounted = Mounted::new(&dir, server.socket())?;
    let volume = volumes::table("slow", &mounted.mount, "direct = false\nmode = \"write-back\"");
    let cache_bytes = 8 * work.size_bytes;
    make_cache(&dir, cache_bytes)?;
    let cache = format!("path = {:?}\nsize = {cache_bytes}\n{CACHE}", dir.join("cache.img"));
    let daemon = Daemon::serve(&dir, &cache, &volume, "listen = []")?;
    let load = Load { time_ns: SLOW_NS, seed: 1, ..case(32, Durability::None).load };
    let origin = Sample::from(&load::run(server.socket(), "", load)?);
    let cached = Sample::from(&load::run(daemon.socket(), "slow", load)?);
    Ok([Series::new(SLOW, "the origin itself", vec![origin]), Series::new(SLOW, "write-back", vec![cached])])
}

/// Requests that took more than `from_ms` and no more than `to_ms`.
fn between(histogram: &Histogram<u64>, from_ms: f64, to_ms: f64) -> f64 {
    let inside = |value: u64| {
        let ms = value as f64 / 1e6;
        ms > from_ms && ms <= to_ms
    };
    let steps = histogram.iter_recorded().filter(|step| inside(step.value_iterated_to()));
    steps.map(|step| step.count_at_value()).sum::<u64>() as f64
}

fn steps(histogram: &Histogram<u64>) -> Sample {
    let (mut sample, mut from_ms) = (Sample::default(), 0.0);
    for (name, to_ms) in STEPS {
        sample = sample.with(name, between(histogram, from_ms, to_ms));
        from_ms = to_ms;
    }
    let over = between(histogram, PAUSE_MS, f64::INFINITY);
    sample.with("over_10_ms", over).with("longest_ms", histogram.max() as f64 / 1e6)
}

/// Measures single writes for `seconds` seconds while the cache is full and evicts for each written unit, and of
/// pass-through.
fn pauses(work: &Work, seconds: u64) -> anyhow::Result<[Series; 2]> {
    let dir = work.dir.join("pause");
    let modes = ["write-back", "pass-through"].map(|mode| Volume::new(mode, mode, Content::Noise));
    let (size_bytes, cache_bytes) = (work.size_bytes, work.size_bytes / PAUSES_TIMES);
    let setting = Setting { cache_bytes, size_bytes, cache: CACHE, tcp: None };
    let daemon = volumes::start(&dir, setting, &modes)?;
    let whole = Load {
        time_ns: u64::MAX,
        once: true,
        seed: 5,
        ..Load::new(Op::Write(Content::Noise), Order::Sequential, 128, 2)
    };
    // Fills the cache first.
    load::run(daemon.socket(), "write-back", whole)?;
    let before = daemon.counters()?;
    let mut latencies = [histogram(), histogram()];
    for slice in 0..(seconds * 1_000_000_000).div_ceil(SLICE_NS) {
        let load = Load { time_ns: SLICE_NS, seed: slice, ..case(1, Durability::None).load };
        for (volume, latency) in modes.iter().zip(&mut latencies) {
            latency.add(load::run(daemon.socket(), volume.name, load)?.latency)?;
        }
    }
    let evictions = daemon.counters()?.since(&before).get("evictions");
    let [own, pass] = latencies.map(|latency| steps(&latency));
    let own = own.with("evictions", evictions).with("seconds", seconds as f64);
    Ok([Series::new(PAUSES, FULL, vec![own]), Series::new(PAUSES, PASS, vec![pass])])
}

fn pauses_table(all: &Measured) -> String {
    let (Some(own), Some(pass)) = (all.of(PAUSES, FULL), all.of(PAUSES, PASS)) else { return String::new() };
    let mut table = Table::new(&["up to", FULL, PASS]);
    for (name, _) in STEPS {
        let shown = name.trim_start_matches("to_").replace('_', " ");
        table.row([shown, own.median(name).to_string(), pass.median(name).to_string()]);
    }
    let longest = |one: &Series| format!("{:.1} ms", one.median("longest_ms"));
    table.row(["longest".to_owned(), longest(own), longest(pass)]);
    format!(
        "\n## Pauses\n\n4 KiB random writes, QD1, {} s each in slices that take turns; {} units were evicted at the same \
         time.\n\n{table}",
        own.median("seconds"),
        own.median("evictions")
    )
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let work = args.runs.work(&args.folders, 300, 7)?;
    let mut field = Field::new(&work, false)?;
    field.start_daemon(CACHE, CACHE_VOLUMES, &VOLUMES, |_| false, false)?;
    field.start(Place::Qemu)?;
    let cases = [(1, Durability::Fua), (1, Durability::Flush), (32, Durability::None)]
        .map(|(depth, durability)| case(depth, durability));
    let mut all = field.compare(&work, &cases, &TARGETS, COLUMNS, |_, _| true, |_, _| false)?;
    drop(field);
    if work.wants(SLOW) {
        println!("{SLOW}");
        all.0.extend(slow(&work)?);
    }
    if args.pauses > 0 && work.wants(PAUSES) {
        println!("{PAUSES}");
        all.0.extend(pauses(&work, args.pauses)?);
    }
    let report = Report {
        name: "write",
        title: "Writes",
        machine: work.machine.clone(),
        preface: String::new(),
        sections: pauses_table(&all),
        columns: COLUMNS,
        measured: &all,
    };
    report.publish(&work.out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aims;

    #[test]
    fn every_write_is_in_one_step_of_the_histogram() {
        let mut all = histogram();
        for us in [1_u64, 499, 501, 4_000, 11_000, 70_000_000] {
            all.record(us * 1000).unwrap();
        }
        let sample = steps(&all);
        let counts = STEPS.map(|(name, _)| sample.get(name).unwrap());
        assert_eq!(counts, [2.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
        assert_eq!(sample.get("over_10_ms"), Some(2.0));
    }

    #[test]
    fn the_engine_may_pause_as_often_as_pass_through() {
        for (own, met) in [(3.0, true), (4.0, false)] {
            let one = |target, over| Series::new(PAUSES, target, vec![Sample::new([("over_10_ms", over)])]);
            let all = Measured(vec![one(FULL, own), one(PASS, 3.0)]);
            assert_eq!(aims::seen("write", &all)[0].met, met);
            assert!(pauses_table(&all).contains("| 0.5 ms | 0 | 0 |"));
        }
    }
}
