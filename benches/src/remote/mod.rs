//! `cargo xtask bench remote`: a remote origin behind links of 0, 1, 10 and 50 ms.
//!
//! Job: four measurements. CPU time of a hit, beside that over a local file; misses of sequential reads, with 32
//! requests in flight and with one; destaging in write-back. The link (`link`) has a rate, so that its use is a share,
//! and the bandwidth-delay product is printed beside it.
//!
//! Invariants: targets take turns. The volume of misses is four times as large as the cache, without deduplication. Only
//! bytes that cross the link count. Destaging begins when the volume is written. The origin's server is nbdkit, whose
//! file is in the page cache.
//!
//! `remote.md` and `remote.json` beside this crate are a run with `--out benches`.
//!
//! It does not measure losses of packets, or TLS.

mod link;

use std::fs::create_dir_all;
use std::path::Path;

use crate::clock::now_ns;
use crate::harness::daemon::{Daemon, fill_file, make_cache};
use crate::harness::servers::{Server, nbdkit_file};
use crate::harness::usage::cpu_ns;
use crate::harness::volumes::{self, HITS_FROM_SSD, Volume, table};
use crate::load::{self, Content, Load, Op, Order};
use crate::measure::{Measured, Sample, Series, rounds};
use crate::options::{Folders, Runs, Work};
use crate::report::{Cell, Column, Report};
use link::{Link, Speed};

/// Measure hits, misses and destaging over links of 0 to 50 ms
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    folders: Folders,
    #[command(flatten)]
    runs: Runs,
    /// Rate of the link, in MB a second
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
}

const LOCAL: &str = "local file";
/// Links: name and added round trip.
const LINKS: [(&str, u64); 4] = [("no delay", 0), ("1 ms", 1), ("10 ms", 10), ("50 ms", 50)];

const HITS: &str = "8k hit, QD8";
const MISSES: &str = "misses, 128k sequential read, QD32";
const AHEAD: &str = "misses, 128k sequential read, QD1";
const DESTAGING: &str = "destaging of 128k sequential writes";
/// Ratio of the volume to the cache where every read is a miss.
const MISSES_TIMES: u64 = 4;
const HIT: Volume = Volume::new("disk", "write-through", Content::Halving);

const COLUMNS: &[Column] = &[
    ("a second", Cell::Spread("per_second")),
    ("CPU us", Cell::Spread("cpu_us")),
    ("ratio to local file", Cell::To(LOCAL, "cpu_us")),
    ("hits", Cell::Percent("hits", "reads")),
    ("MB/s", Cell::Spread("mb_per_second")),
    ("share of the link", Cell::Spread("link_share")),
    ("bandwidth-delay product, KiB", Cell::Median("product_kib")),
];

/// A daemon, with the server behind its link, if there is one.
struct Target {
    daemon: Daemon,
    link: Option<Link>,
    /// Ends after the daemon.
    _server: Option<Server>,
}

impl Target {
    /// Starts a daemon in `dir` with one volume of `size_bytes` and fresh files.
    fn start(
        dir: &Path,
        speed: Option<Speed>,
        (size_bytes, cache_bytes): (u64, u64),
        (cache, lines): (&str, &str),
    ) -> anyhow::Result<Self> {
        create_dir_all(dir)?;
        let (file, near) = (dir.join("origin.img"), dir.join("link.sock"));
        // Written, not sparse: holes cross no link.
        fill_file(&file, size_bytes)?;
        make_cache(dir, cache_bytes)?;
        let (mut origin, mut server, mut link) = (file.clone(), None, None);
        if let Some(speed) = speed {
            let started = nbdkit_file(dir, &file)?;
            link = Some(link::start(&near, started.socket(), speed)?);
            origin = format!("nbd+unix:///?socket={}", near.display()).into();
            server = Some(started);
        }
        let cache = format!("path = {:?}\nsize = {cache_bytes}\n{cache}", dir.join("cache.img"));
        let daemon = Daemon::serve(dir, &cache, &table(HIT.name, &origin, lines), "listen = []")?;
        Ok(Self { daemon, link, _server: server })
    }

    /// Runs a load, and returns its figures with the CPU time of the daemon for each request.
    fn run(&self, load: Load) -> anyhow::Result<Sample> {
        let (pid, before) = (self.daemon.pid(), self.daemon.counters()?);
        let before_ns = cpu_ns(pid)?;
        let outcome = load::run(self.daemon.socket(), HIT.name, load)?;
        let cpu_us = cpu_ns(pid)?.saturating_sub(before_ns) as f64 / 1000.0;
        let counted = self.daemon.counters()?.since(&before);
        Ok(Sample::from(&outcome).and(counted).with("cpu_us", cpu_us / outcome.requests.max(1) as f64))
    }

    /// Runs a work, and returns its figures with those of the bytes that crossed the link in the busier direction.
    fn crossing(&self, work: impl FnOnce() -> anyhow::Result<Sample>) -> anyhow::Result<Sample> {
        let Some(link) = &self.link else { return work() };
        let (up, down) = link.crossed_bytes();
        let begun_ns = now_ns();
        let sample = work()?;
        let elapsed_ns = (now_ns() - begun_ns).max(1);
        let (up, down) = (link.crossed_bytes().0 - up, link.crossed_bytes().1 - down);
        let per_second = up.max(down) as f64 * 1e9 / elapsed_ns as f64;
        Ok(sample
            .with("mb_per_second", per_second / 1e6)
            .with("link_share", per_second / link.speed.bytes_per_second as f64)
            .with("product_kib", link.speed.product_bytes() as f64 / 1024.0))
    }

    /// Writes the volume once, and then destages everything.
    fn destage(&self, seed: u64) -> anyhow::Result<Sample> {
        let load = Load {
            time_ns: u64::MAX,
            once: true,
            seed,
            ..Load::new(Op::Write(Content::Halving), Order::Sequential, 128, 8)
        };
        load::run(self.daemon.socket(), HIT.name, load)?;
        self.crossing(|| {
            self.daemon.flush(HIT.name)?;
            Ok(Sample::default())
        })
    }
}

/// One daemon for each link, and one on a local file.
fn targets(
    dir: &Path,
    rate: u64,
    with_local: bool,
    bytes: (u64, u64),
    lines: (&str, &str),
) -> anyhow::Result<Vec<(&'static str, Target)>> {
    let mut all = Vec::new();
    if with_local {
        all.push((LOCAL, Target::start(&dir.join("local"), None, bytes, lines)?));
    }
    for (name, round_trip_ms) in LINKS {
        let speed = Speed { round_trip_ms, bytes_per_second: rate * 1_000_000 };
        let dir = dir.join(format!("link-{round_trip_ms}"));
        all.push((name, Target::start(&dir, Some(speed), bytes, lines)?));
    }
    Ok(all)
}

fn hits(work: &Work, rate: u64) -> anyhow::Result<Vec<Series>> {
    let bytes = (work.size_bytes, 2 * work.size_bytes);
    let targets =
        targets(&work.dir.join("hits"), rate, true, bytes, (HITS_FROM_SSD, "mode = \"write-through\""))?;
    for (name, target) in &targets {
        println!("{name}: filling the cache");
        volumes::fill(&target.daemon, &HIT)?;
    }
    rounds(HITS, &targets, work.rounds, |target, round| {
        let load = Load { time_ns: work.time_ns, seed: round, ..Load::new(Op::Read, Order::Random, 8, 8) };
        target.run(load)
    })
}

fn misses(work: &Work, rate: u64) -> anyhow::Result<Vec<Series>> {
    let bytes = (work.size_bytes, work.size_bytes / MISSES_TIMES);
    let targets = targets(
        &work.dir.join("misses"),
        rate,
        false,
        bytes,
        ("", "mode = \"write-through\"\ndedup = false"),
    )?;
    let mut all = Vec::new();
    for (case, depth) in [(MISSES, 32), (AHEAD, 1)].into_iter().filter(|(case, _)| work.wants(case)) {
        println!("{case}");
        all.extend(rounds(case, &targets, work.rounds, |target, round| {
            let load = Load::new(Op::Read, Order::Sequential, 128, depth);
            target.crossing(|| target.run(Load { time_ns: work.time_ns, seed: round, ..load }))
        })?);
    }
    Ok(all)
}

fn destaging(work: &Work, rate: u64) -> anyhow::Result<Vec<Series>> {
    let bytes = (work.size_bytes, 4 * work.size_bytes);
    let targets = targets(
        &work.dir.join("destaging"),
        rate,
        false,
        bytes,
        ("", "mode = \"write-back\"\nmax_dirty_age = \"1 h\""),
    )?;
    println!("{DESTAGING}");
    rounds(DESTAGING, &targets, work.rounds, |target, round| target.destage(round + 1))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let work = args.runs.work(&args.folders, 1000, 3)?;
    println!("{}", work.machine);
    let mut all = Measured::default();
    if work.wants(HITS) {
        all.0.extend(hits(&work, args.rate)?);
    }
    if work.wants(MISSES) || work.wants(AHEAD) {
        all.0.extend(misses(&work, args.rate)?);
    }
    if work.wants(DESTAGING) {
        all.0.extend(destaging(&work, args.rate)?);
    }
    let preface = format!(
        "`cargo xtask bench remote --rate {} --size {}`. nbdkit serves a file behind a link of {} MB/s in each \
         direction with the given delay added to each round trip. CPU time is that of the daemon's process, in \
         steps of 10 ms. The product is rate times added round trip: less in flight cannot fill the link.",
        args.rate,
        work.size_bytes >> 20,
        args.rate
    );
    let report = Report {
        name: "remote",
        title: "Remote origins",
        machine: work.machine.clone(),
        preface,
        sections: String::new(),
        columns: COLUMNS,
        measured: &all,
    };
    report.publish(&work.out)
}
