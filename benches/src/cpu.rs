//! `cargo xtask bench cpu`: CPU microseconds of a server's process for each request, beside a floor.
//!
//! Job: on a shared machine, rates of two runs differ by half; the run time of a server's process per request differs
//! by a few per cent. So each server is bound to one core and the load generator to another, or to the same one.
//!
//! The floor is [`crate::floor_server`]: one thread that receives, does direct I/O, and sends; "+" with one CRC-32C
//! and one copy of the bytes; "null" without the file. The aims bound the daemon's cost beside it.
//!
//! Invariants: the allowance of a run of writes over pass-through is measured in the same round: one fingerprint, one
//! attempt to compress, one CRC-32C and one copy of the bytes.
//!
//! `cpu.md` and `cpu.json` beside this crate are a run with `--out benches`.
//!
//! It does not compare rates or latencies (`nbd` does), count allocations, or include the kernel's work in other
//! processes' time.

use crate::harness::field::{Case, Field, Link, Place, Target};
use crate::harness::servers::is_installed;
use crate::harness::volumes::{HITS_FROM_SSD, Volume};
use crate::load::{Content, Load, Op, Order};
use crate::options::{Folders, Runs};
use crate::report::{Cell, Column, Report, overview};

/// Measure the CPU time of a request: the daemon beside a floor and other servers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    folders: Folders,
    #[command(flatten)]
    runs: Runs,
    /// Only targets whose name contains this, such as "zcached, noise"
    #[arg(long)]
    target: Option<String>,
    /// Connections of every case, which share its requests in flight
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    connections: Option<u32>,
    /// Take every case over TCP
    #[arg(long)]
    tcp: bool,
    /// Two rounds of 100 ms on small files: a smoke test, not a result
    #[arg(long, conflicts_with_all = ["time", "rounds", "size"])]
    quick: bool,
}

const DAEMON: Place = Place::Daemon(0);
const QEMU: Target = Target::new("qemu-nbd", Place::Qemu, "");
const NBDKIT: Target = Target::new("nbdkit file (page cache)", Place::NbdkitFile, "");
/// All, in the order of tables.
const TARGETS: [Target; 13] = [
    Target::new("floor", Place::Floor, "raw"),
    Target::new("floor +", Place::Floor, "plus"),
    Target::new("zcached, noise", DAEMON, "noise"),
    Target::new("zcached, LZ4", DAEMON, "halving").of(Content::Halving),
    Target::new("zcached, write-back, noise", DAEMON, "back-noise"),
    Target::new("zcached, write-back, LZ4", DAEMON, "back-halving").of(Content::Halving),
    Target::new("zcached, pass-through", DAEMON, "pass"),
    QEMU,
    NBDKIT,
    Target::new("floor, null", Place::Floor, "null"),
    Target::new("null export (zc-nbd)", Place::Null(0), ""),
    Target::new("bytes alone, noise", Place::Bytes, ""),
    Target::new("bytes alone, LZ4", Place::Bytes, "").of(Content::Halving),
];
const VOLUMES: [Volume; 5] = [
    Volume::new("noise", "write-through", Content::Noise),
    Volume::new("halving", "write-through", Content::Halving),
    Volume::new("pass", "pass-through", Content::Noise),
    Volume::new("back-noise", "write-back", Content::Noise),
    Volume::new("back-halving", "write-back", Content::Halving),
];
/// Size of the cache, in sizes of one volume: four of them are cached, and writes need space.
const CACHE_VOLUMES: u64 = 6;

const COLUMNS: &[Column] = &[
    ("CPU us/IO", Cell::Median("cpu_us")),
    ("least to most", Cell::Range("cpu_us")),
    ("later", Cell::Median("later_us")),
    ("switches/IO", Cell::Median("switches")),
    ("syscalls/IO", Cell::Median("syscalls")),
    ("p50 us", Cell::Median("p50_us")),
    ("IOPS", Cell::Median("per_second")),
    ("hits", Cell::Percent("hits", "reads")),
    ("taken in", Cell::Percent("inserted", "offered")),
];

/// Introduction of the page.
const PREFACE: &str = "\
Microseconds of the server's process for each request, user and system: medians over rounds. The server has one core. The
load generator has another one, or the same one where a row says so. `cargo xtask bench cpu` makes this page. The floor
is a server of one thread that receives, does the raw I/O past the page cache, and sends; with \"+\" it takes one CRC-32C
and makes one copy of the bytes, too; \"null\" is without the file. \"Bytes alone\" are one fingerprint, one attempt to
compress, one CRC-32C and one copy of what a write brings. In tables of cases the column \"later\" has what write-back
takes afterwards, until the origin has the bytes.";

/// All cases: hits first, because writes change the contents.
const CASES: [(&str, u32, u32, u32, Link, bool); 12] = [
    ("hit", 8, 1, 1, Link::Unix, false),
    ("hit", 8, 1, 1, Link::Unix, true),
    ("hit", 8, 32, 1, Link::Unix, false),
    ("hit", 8, 32, 4, Link::Unix, false),
    ("hit", 8, 32, 1, Link::Tcp, false),
    ("hit", 8, 32, 1, Link::Tls, false),
    ("hit", 4, 32, 1, Link::Unix, false),
    ("hit", 128, 8, 1, Link::Unix, false),
    ("hit", 128, 8, 1, Link::Tls, false),
    ("write", 8, 32, 1, Link::Unix, false),
    ("write", 4, 32, 1, Link::Unix, false),
    ("write", 128, 8, 1, Link::Unix, false),
];

/// All cases, as the options change them.
fn cases(connections: Option<u32>, tcp: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (verb, kib, depth, own_connections, link, one_core) in CASES {
        let connections = connections.unwrap_or(own_connections);
        // TLS is on one connection (`Address::Tls`).
        let link = match link {
            Link::Tls if connections > 1 => Link::Tcp,
            Link::Unix if tcp => Link::Tcp,
            link => link,
        };
        let mut name = format!("{kib}k {verb}, QD{depth}");
        if connections > 1 {
            name.push_str(&format!(", {connections} connections"));
        }
        name.push_str(match link {
            Link::Unix => "",
            Link::Tcp => ", TCP",
            Link::Tls => ", TLS",
        });
        if one_core {
            name.push_str(", one core");
        }
        let op = if verb == "hit" { Op::Read } else { Op::Write(Content::Noise) };
        let order = if kib > 8 { Order::Sequential } else { Order::Random };
        // Connections share the requests in flight.
        let load = Load { connections, ..Load::new(op, order, kib, (depth / connections).max(1)) };
        if cases.iter().all(|case| case.name != name) {
            cases.push(Case { link, one_core, ..Case::new(name, load) });
        }
    }
    cases
}

/// Returns `true` if the target belongs into this case.
fn has(case: &Case, target: &Target) -> bool {
    let is_null = matches!(target.place, Place::Null(_)) || target.export == "null";
    let only_writes = target.export.starts_with("back") || target.place == Place::Bytes;
    let is_secured = case.link == Link::Tls && target.place != DAEMON;
    !is_secured && if case.writes() { !is_null } else { !only_writes }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut work = args.runs.work(&args.folders, 200, 7)?;
    if args.quick {
        (work.rounds, work.time_ns, work.size_bytes) = (2, 100_000_000, 64 << 20);
        work.machine.push_str(" (quick: 2 rounds of 100 ms)");
    }
    let mut field = Field::new(&work, true)?;
    let is_filled = |volume: &Volume| volume.mode == "write-through";
    field.start_daemon(HITS_FROM_SSD, CACHE_VOLUMES, &VOLUMES, is_filled, true)?;
    field.start(Place::Floor)?;
    field.start(Place::Null(0))?;
    for (target, program) in [(QEMU, "qemu-nbd"), (NBDKIT, "nbdkit")] {
        if is_installed(program) {
            field.start(target.place)?;
        }
    }
    let wanted = |target: &Target| args.target.as_ref().is_none_or(|part| target.name.contains(part));
    let cases = cases(args.connections, args.tcp);
    let has = |case: &Case, target: &Target| wanted(target) && has(case, target);
    let all = field.compare(&work, &cases, &TARGETS, COLUMNS, has, |_, _| false)?;
    let report = Report {
        name: "cpu",
        title: "CPU time of a request",
        machine: work.machine.clone(),
        preface: format!("{PREFACE}\n\n{}", overview(&all, "cpu_us").trim_end()),
        sections: String::new(),
        columns: COLUMNS,
        measured: &all,
    };
    report.publish(&work.out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_tell_cases_and_targets_apart() {
        let all = cases(None, false);
        assert_eq!(all.len(), CASES.len());
        assert_eq!((all[1].name.as_str(), all[1].one_core), ("8k hit, QD1, one core", true));
        assert_eq!(all[3].name, "8k hit, QD32, 4 connections");
        assert_eq!((all[3].load.connections, all[3].load.depth), (4, 8));
        let targets: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(targets.len(), TARGETS.len());
    }

    #[test]
    fn options_change_cases_and_make_none_twice() {
        let changed = cases(Some(4), true);
        assert_eq!(changed.len(), CASES.len() - 4);
        assert!(changed.iter().all(|case| case.link == Link::Tcp && case.load.connections == 4));
        assert_eq!(changed[0].load.depth, 1);
    }

    #[test]
    fn every_volume_holds_what_its_target_is_filled_with() {
        for volume in VOLUMES {
            let target = TARGETS.iter().find(|target| target.export == volume.name).unwrap();
            assert_eq!((target.place, target.content), (DAEMON, volume.content));
        }
    }
}
