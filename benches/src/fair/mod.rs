//! `cargo xtask bench fair`: a quiet client beside malicious or heavy clients.
//!
//! Job: the quiet client writes 128 KiB and reads 4 KiB in turn, one request at a time, alone and beside each load. A
//! load may multiply its median by four and its 99th percentile by ten, plus the time of one request of the largest
//! size (a read of 32 MiB), and may delay a new client of another source by at most a second.
//!
//! Invariants: the quiet client has a volume of its own; loads share another one. Cache and origins are on one disk.
//! `fair.md` beside this crate is a run with `--out benches`. The part that can be counted in turns instead of
//! measured is a test: `beside_any_load_a_quiet_client_begins_within_a_few_turns` in `zc-engine`.
//!
//! The kept run met all bounds. The last row is the closest: 50 clients with 128 zeroings of a whole volume each in
//! flight made the 99th percentile 24 ms, and 63 ms before a piece of a zeroing was charged its cost.
//!
//! It does not measure throughput.

mod loads;
mod raw;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use zc_report::{Table, figure, verdict};

use self::loads::{LOADS, Load, Place};
use self::raw::{PATIENCE, READ, WRITE, attached, attached_by_tcp, header, take};
use crate::aims;
use crate::clock::{now_ns, pause};
use crate::harness::daemon::{Daemon, fill_file};
use crate::harness::servers::free_address;
use crate::harness::volumes::{listen, table};
use crate::measure::{Measured, Sample, Series};
use crate::options::Folders;
use crate::report::Report;

/// Measure a quiet client beside malicious or heavy clients
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    folders: Folders,
    /// Length of one run
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(50..))]
    time: u64,
    /// Only loads whose name contains this, such as "flushes"
    #[arg(long, default_value = "")]
    only: String,
}

/// Bytes of a volume.
const VOLUME_BYTES: u64 = 512 << 20;
/// Bytes of a quiet write, and of a quiet read.
const WRITE_BYTES: u32 = 128 << 10;
const READ_BYTES: u32 = 4 << 10;
/// Idle clients that fill the house.
const IDLE: usize = 256;
/// Attempts of a newcomer, in nanoseconds of patience.
const NEWCOMER_MAX_NS: u64 = 10_000_000_000;

const ALONE: &str = "alone";
const BESIDE: &str = "beside it";
const LARGEST: &str = "one read of 32 MiB";

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn quiet(socket: &Path, for_ns: u64) -> anyhow::Result<Sample> {
    let mut stream = attached(socket, "quiet")?;
    let payload = vec![7; zc_core::usize_from_u32(WRITE_BYTES)];
    let (began, mut times, mut number) = (now_ns(), Vec::new(), 0_u64);
    while now_ns() - began < for_ns {
        let at = (number % (VOLUME_BYTES / u64::from(WRITE_BYTES))) * u64::from(WRITE_BYTES);
        for is_write in [true, false] {
            let (command, bytes) = if is_write { (WRITE, WRITE_BYTES) } else { (READ, READ_BYTES) };
            let start = now_ns();
            let mut asked = || {
                stream.write_all(&header(command, number, at, bytes))?;
                if is_write {
                    stream.write_all(&payload)?;
                }
                take(&mut stream, if is_write { 16 } else { 16 + zc_core::usize_from_u32(READ_BYTES) })
            };
            if asked().is_err() {
                times.push(u64::try_from(PATIENCE.as_nanos())?);
                stream = attached(socket, "quiet").context("the quiet client cannot come back")?;
            } else {
                times.push(now_ns() - start);
            }
        }
        number += 1;
        pause(Duration::from_millis(1));
    }
    ensure!(!times.is_empty(), "the quiet client asked for nothing");
    times.sort_unstable();
    let at = |share: usize| ms(times[(times.len() * share / 100).min(times.len() - 1)]);
    let longest = ms(*times.last().context("no time")?);
    Ok(Sample::new([("median_ms", at(50)), ("p99_ms", at(99)), ("longest_ms", longest)]))
}

/// Returns the time of a new client to choose an export, with retries after refusals.
fn newcomer_ns(tcp: &str) -> u64 {
    let began = now_ns();
    while attached_by_tcp(tcp, "quiet").is_err() && now_ns() - began < NEWCOMER_MAX_NS {
        pause(Duration::from_millis(20));
    }
    now_ns() - began
}

fn beside(load: &Load, place: Place<'_>, for_ns: u64) -> anyhow::Result<Sample> {
    std::thread::scope(|scope| {
        for _ in 0..load.threads {
            scope.spawn(|| (load.run)(place));
        }
        pause(Duration::from_millis(300));
        let seen = quiet(place.socket, for_ns);
        let newcomer = (0..3).map(|_| newcomer_ns(place.tcp)).max().unwrap_or(0);
        place.stop.store(true, Ordering::Relaxed);
        seen.map(|seen| seen.with("newcomer_ms", ms(newcomer)))
    })
}

/// A daemon with fresh volumes.
fn start(dir: &Path, tcp: SocketAddr, write_back: bool) -> anyhow::Result<Daemon> {
    std::fs::create_dir_all(dir)?;
    let mode = if write_back { "write-back" } else { "write-through" };
    let mut volumes = String::new();
    for name in ["quiet", "loud"] {
        let origin = dir.join(format!("{name}.img"));
        fill_file(&origin, VOLUME_BYTES)?;
        volumes.push_str(&table(name, &origin, &format!("mode = {mode:?}")));
    }
    let cache = format!("path = {:?}\nsize = \"1 GiB\"", dir.join("cache.img"));
    Daemon::serve(dir, &cache, &volumes, &listen(dir, Some(tcp), "rsa:4096")?)
}

/// Runs a load beside the quiet client, with a daemon of its own.
fn measure(load: &Load, dir: &Path, for_ns: u64) -> anyhow::Result<Measured> {
    let tcp = free_address()?;
    let daemon = start(dir, tcp, load.write_back)?;
    let stop = AtomicBool::new(false);
    let place = Place {
        socket: daemon.socket(),
        control: daemon.control(),
        tcp: &tcp.to_string(),
        volume: "loud",
        volume_bytes: VOLUME_BYTES,
        stop: &stop,
    };
    let largest = ms(loads::largest_ns(daemon.socket(), "loud")?);
    let largest = Sample::new([("median_ms", largest), ("p99_ms", largest)]);
    let alone = quiet(daemon.socket(), for_ns)?;
    let found = [(ALONE, alone), (BESIDE, beside(load, place, for_ns)?), (LARGEST, largest)];
    drop(daemon);
    std::fs::remove_dir_all(dir)?;
    Ok(Measured(found.map(|(target, sample)| Series::new(load.name, target, vec![sample])).to_vec()))
}

/// Measures the time of a new client while all connections are used by idle clients of one source.
pub(crate) fn full_house(dir: &Path) -> anyhow::Result<Series> {
    let (dir, tcp) = (dir.join("idle"), free_address()?);
    let daemon = start(&dir, tcp, false)?;
    let idle: Vec<_> = (0..IDLE).map_while(|_| attached(daemon.socket(), "loud").ok()).collect();
    ensure!(idle.len() == IDLE, "only {} idle clients got in", idle.len());
    let newcomer = Sample::new([("newcomer_ms", ms(newcomer_ns(&tcp.to_string())))]);
    drop(daemon);
    std::fs::remove_dir_all(&dir)?;
    Ok(Series::new("256 idle clients of one source", "a newcomer", vec![newcomer]))
}

/// The bounds of a case: those of its median and of its 99th percentile, in milliseconds.
fn bounds(all: &Measured, case: &str) -> [f64; 2] {
    let median_of = |target, name| all.of(case, target).map_or(0.0, |one| one.median(name));
    [("median_ms", 4.0), ("p99_ms", 10.0)]
        .map(|(name, times)| times * median_of(ALONE, name) + median_of(LARGEST, name))
}

/// A row for each case, with a verdict on all of its aims.
fn rows(all: &Measured) -> String {
    let heads =
        ["beside it", "alone: median / p99", "beside: median / p99", "bounds", "longest", "newcomer", ""];
    let (mut table, seen) = (Table::new(&heads), aims::seen("fair", all));
    for (case, _) in all.cases() {
        let median_of = |target, name| all.of(case, target).map_or(0.0, |one| one.median(name));
        let pair = |[median, p99]: [f64; 2]| format!("{} / {}", figure(median), figure(p99));
        let quiet = |target| pair(["median_ms", "p99_ms"].map(|name| median_of(target, name)));
        let newcomer = median_of(BESIDE, "newcomer_ms").max(median_of("a newcomer", "newcomer_ms"));
        let met = seen.iter().filter(|aim| aim.case == case).all(|aim| aim.met);
        table.row([
            case.to_owned(),
            quiet(ALONE),
            quiet(BESIDE),
            pair(bounds(all, case)),
            figure(median_of(BESIDE, "longest_ms")),
            figure(newcomer),
            verdict(met).to_owned(),
        ]);
    }
    table.to_string()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut work = args.folders.work()?;
    work.machine.push_str(&format!("; {} ms each", args.time));
    let mut all = Measured::default();
    for (number, load) in LOADS.iter().enumerate().filter(|(_, load)| load.name.contains(&args.only)) {
        let found = measure(load, &work.dir.join(number.to_string()), args.time * 1_000_000)?;
        println!("{}", rows(&found));
        all.0.extend(found.0);
    }
    if args.only.is_empty() {
        all.0.push(full_house(&work.dir)?);
    }
    let preface = format!(
        "Times in ms. The quiet client writes 128 KiB and reads 4 KiB in turn, one request at a time, with a volume of its own. \
         Bounds: median at most 4 times and 99th percentile at most 10 times of alone, plus one read of 32 MiB; a newcomer by \
         TCP within 1 s. In the last row idle clients have all 256 places.\n\n{}",
        rows(&all)
    );
    let report = Report {
        name: "fair",
        title: "A quiet client beside others",
        machine: work.machine.clone(),
        preface,
        sections: String::new(),
        columns: &[],
        measured: &all,
    };
    report.publish(&work.out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_judged_by_its_bounds() {
        let quiet = |target, median, p99| {
            Series::new("c", target, vec![Sample::new([("median_ms", median), ("p99_ms", p99)])])
        };
        let met = |median, p99, newcomer| {
            let mut beside = quiet(BESIDE, median, p99);
            beside.samples[0] = beside.samples[0].clone().with("newcomer_ms", newcomer);
            let all = Measured(vec![quiet(ALONE, 1.0, 2.0), beside, quiet(LARGEST, 0.5, 0.5)]);
            let text = rows(&all);
            assert!(text.contains("| 1.00 / 2.00 |") && text.contains("| 4.50 / 20.5 |"), "{text}");
            !text.contains("missed")
        };
        assert!(met(4.5, 20.5, 1000.0));
        assert!(!met(4.51, 20.5, 1000.0) && !met(4.5, 20.51, 1000.0) && !met(4.5, 20.5, 1001.0));
    }
}
