//! `cargo xtask bench nbd`: the daemon beside other servers, the file itself and a bare socket, in one interleaved
//! run.
//!
//! `nbd.md`, `nbd.json` and `nbd.svg` beside this crate are a run with `--out benches`. `nbd-notes.md` has the
//! experiments on hits and writes, and their bottlenecks.
//!
//! It does not judge. The report lists goals and results.

use std::fmt::Write as _;

use zc_report::{Bar, Bars};

use crate::harness::field::{Case, Field, Place, Target};
use crate::harness::usage::dearest;
use crate::harness::volumes::{HITS_FROM_SSD, Volume};
use crate::load::{Content, Load, Op, Order};
use crate::measure::Measured;
use crate::options::{Folders, Runs};
use crate::report::{Cell, Column, Report, write};

/// Functions shown of a profile.
const PROFILE_LINES: usize = 14;
/// `poll_max` of the servers that have it, in microseconds.
const POLL_MAX_US: u32 = 100;
const POLLING: &str = "read_buffer = 0\nprefetch_max = 0\nweu_max_age = \"500 ms\"\npoll_max = \"100 us\"\n";

/// Compare the daemon with other servers, the file itself and a bare socket
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    folders: Folders,
    #[command(flatten)]
    runs: Runs,
    /// Also write complete profiles of the daemon, beside the lines of them in the report
    #[arg(long)]
    profile: bool,
}

const RAW: Target = Target::new("file itself (fio, io_uring, direct)", Place::File, "");
const PING_PONG: Target = Target::new("bare socket round trip", Place::PingPong, "");
const NOISE: Target = Target::new("zcached, incompressible", Place::Daemon(0), "noise");
const POLL: Target =
    Target::new("zcached, 2:1, poll_max = 100 us", Place::Daemon(1), "halving").of(Content::Halving);
/// All, in the order of tables.
const TARGETS: [Target; 12] = [
    RAW,
    PING_PONG,
    Target::new("null export (zc-nbd)", Place::Null(0), ""),
    Target::new("nbdkit null", Place::NbdkitNull, ""),
    Target::new("qemu-nbd (direct, io_uring)", Place::Qemu, ""),
    Target::new("nbdkit file (page cache)", Place::NbdkitFile, ""),
    Target::new("zcached, pass-through", Place::Daemon(0), "pass"),
    NOISE,
    Target::new("zcached, 2:1", Place::Daemon(0), "halving").of(Content::Halving),
    Target::new("zcached, 2:1 and half duplicate", Place::Daemon(0), "half-duplicate")
        .of(Content::HalfDuplicate),
    Target::new("null export (zc-nbd), poll_max = 100 us", Place::Null(POLL_MAX_US), ""),
    POLL,
];
const HALVING: Volume = Volume::new("halving", "write-through", Content::Halving);
const VOLUMES: [Volume; 4] = [
    Volume::new("noise", "write-through", Content::Noise),
    HALVING,
    Volume::new("half-duplicate", "write-through", Content::HalfDuplicate),
    Volume::new("pass", "pass-through", Content::Noise),
];

const COLUMNS: &[Column] = &[
    ("ratio to file", Cell::To(RAW.name, "per_second")),
    ("IOPS", Cell::Median("per_second")),
    ("mean us", Cell::Median("mean_us")),
    ("p50", Cell::Median("p50_us")),
    ("p90", Cell::Median("p90_us")),
    ("p99", Cell::Median("p99_us")),
    ("p99.9", Cell::Median("p999_us")),
    ("CPU us/IO", Cell::Median("cpu_us")),
    ("syscalls/IO", Cell::Median("syscalls")),
    ("hits", Cell::Percent("hits", "reads")),
    ("SSD reads per hit", Cell::Share("device_reads", "hits")),
    ("offered extents inserted", Cell::Percent("inserted", "offered")),
    ("skipped", Cell::Percent("skipped", "offered")),
    ("some skipped from, IOPS", Cell::Least("skipping_per_second")),
];

/// `8k random read, QD32, 2 connections`.
fn case(op: Op, order: Order, kib: u32, depth: u32, connections: u32) -> Case {
    let verb = if op == Op::Read { "read" } else { "write" };
    let order_name = if order == Order::Random { "random" } else { "sequential" };
    let mut name = format!("{kib}k {order_name} {verb}, QD{depth}");
    if connections > 1 {
        let _infallible = write!(name, ", {connections} connections");
    }
    Case::new(name, Load { connections, ..Load::new(op, order, kib, depth) })
}

/// All cases: reads first, because writes change the contents.
fn cases() -> Vec<Case> {
    let (write, mut cases) = (Op::Write(Content::Noise), Vec::new());
    for kib in [8, 4] {
        for connections in [1, 2] {
            cases.extend([1, 32].map(|depth| case(Op::Read, Order::Random, kib, depth, connections)));
        }
    }
    for op in [Op::Read, write] {
        cases.extend([1, 8].map(|depth| case(op, Order::Sequential, 128, depth, 1)));
    }
    for kib in [8, 4] {
        cases.extend([1, 32].map(|depth| case(write, Order::Random, kib, depth, 1)));
    }
    cases
}

/// Returns `true` if the target belongs into this case.
fn has(case: &Case, target: &Target) -> bool {
    let (load, reads) = (&case.load, !case.writes());
    match target.place {
        Place::PingPong => reads && load.depth == 1 && load.connections == 1,
        Place::Null(_) | Place::NbdkitNull | Place::Daemon(1) => reads && load.order == Order::Random,
        Place::Daemon(_) if target.export == "pass" => !reads || load.order == Order::Sequential,
        _ => true,
    }
}

/// A profile takes seconds: for the cases that differ most.
fn is_profiled(case: &Case, target: &Target) -> bool {
    target.name == NOISE.name && case.load.block_bytes != 4 << 10 && case.load.connections == 1
}

/// Per case, requests per second relative to the file itself.
fn chart(all: &Measured) -> String {
    let mut groups = Vec::new();
    for (case, series) in all.cases() {
        let bars = series.iter().filter(|one| one.target != PING_PONG.name).filter_map(|one| {
            let ratio = all.ratio(case, "per_second", &one.target, None, &[RAW.name])?.median;
            let note = format!(" ({:.0}/s)", one.median("per_second"));
            Some(Bar { label: one.target.clone(), ratio, note, is_ours: one.target.starts_with("zcached") })
        });
        groups.push((case.to_owned(), bars.collect()));
    }
    let title = "Requests per second, relative to the file itself".to_owned();
    Bars { title, ratio_max: 2.0, groups }.svg()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let work = args.runs.work(&args.folders, 150, 5)?;
    let mut field = Field::new(&work, false)?;
    let is_filled = |volume: &Volume| volume.mode != "pass-through";
    field.start_daemon(HITS_FROM_SSD, 4, &VOLUMES, is_filled, false)?;
    field.start_daemon(POLLING, 2, &[HALVING], is_filled, false)?;
    TARGETS
        .iter()
        .filter(|target| target.export.is_empty())
        .try_for_each(|target| field.start(target.place))?;
    let all = field.compare(&work, &cases(), &TARGETS, COLUMNS, has, is_profiled)?;
    let mut sections =
        "\n## Where the daemon's time goes\n\nFunctions by their own share of all its threads' time.\n"
            .to_owned();
    for one in &all.0 {
        let Some(profile) = &one.profile else { continue };
        let lines = dearest(profile, PROFILE_LINES).join("\n");
        let _infallible = write!(sections, "\n### {}, {}\n\n```\n{lines}\n```\n", one.target, one.case);
        if args.profile {
            write(&work.out, &format!("profile-{}.txt", one.case.replace([' ', ','], "_")), profile)?;
        }
    }
    let report = Report {
        name: "nbd",
        title: "zcached beside others",
        machine: work.machine.clone(),
        preface: String::new(),
        sections,
        columns: COLUMNS,
        measured: &all,
    };
    report.publish(&work.out)?;
    write(&work.out, "nbd.svg", &chart(&all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tests::series;
    use std::collections::BTreeSet;

    #[test]
    fn names_tell_cases_and_targets_apart() {
        let all = cases();
        let names: BTreeSet<&str> = all.iter().map(|case| case.name.as_str()).collect();
        assert_eq!((names.len(), all.len()), (16, 16));
        assert!(names.contains("8k random read, QD32, 2 connections"));
        let targets: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(targets.len(), TARGETS.len());
    }

    #[test]
    fn the_chart_has_no_bar_for_a_bare_round_trip() {
        let bar = |target: &str, rate| series("c", target, "per_second", &[rate]);
        let all = Measured(vec![bar(RAW.name, 10.0), bar(PING_PONG.name, 99.0), bar(NOISE.name, 9.0)]);
        let text = chart(&all);
        assert_eq!(text.matches("<rect").count(), 2);
        assert!(text.contains("0.90 (9/s)"), "{text}");
    }
}
