//! `cargo xtask bench record`: overhead of recording a volume.
//!
//! Job: the same loads on one daemon, without a recording, with one of everything and with a sample of one in sixteen,
//! run by run in turns. CPU time is that of the daemon, including the recorder's thread and the closing of its file.
//! run by run in turns. CPU time is that of the daemon, the recorder's thread and the end of its file included.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::harness::daemon::{Daemon, ask};
use crate::harness::usage::cpu_ns;
use crate::harness::volumes::{self, HITS_FROM_SSD, Setting, Volume};
use crate::load::{self, Content, Load, Op, Order};
use crate::measure::{Measured, Sample, rounds};
use crate::options::{Folders, Runs};
use crate::report::{Cell, Column, case_table};

/// Measure the overhead of recording a volume
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    folders: Folders,
    #[command(flatten)]
    runs: Runs,
}

/// Recordings: name, share.
const SHARES: [(&str, Option<&str>); 3] =
    [("not recorded", None), ("all recorded", Some("1/1")), ("1/16 recorded", Some("1/16"))];
const WRITE: Op = Op::Write(Content::Halving);
/// The loads: name, operation, requests in flight.
const CASES: [(&str, Op, u32); 4] = [
    ("4 KiB random reads, all hits, one at a time", Op::Read, 1),
    ("4 KiB random reads, all hits, 32 at a time", Op::Read, 32),
    ("4 KiB random writes of 2:1 content, 8 at a time", WRITE, 8),
    ("4 KiB random writes of 2:1 content, 32 at a time", WRITE, 32),
];
const VOLUME: Volume = Volume::new("disk", "write-through", Content::Halving);

const COLUMNS: &[Column] = &[
    ("a second", Cell::Median("per_second")),
    ("ratio", Cell::To(SHARES[0].0, "per_second")),
    ("CPU us", Cell::Share("cpu_total_us", "requests")),
    ("ratio of CPU", Cell::ShareTo(SHARES[0].0, "cpu_total_us", "requests")),
    ("bytes for each that is recorded", Cell::Share("bytes", "recorded")),
    ("lost", Cell::Percent("lost", "noted")),
];

/// Runs a load.
fn measure(daemon: &Daemon, dir: &Path, load: Load, share: Option<&str>) -> anyhow::Result<Sample> {
    let path = dir.join("trace");
    let before_ns = cpu_ns(daemon.pid())?;
    if share.is_some() {
        let start = json!({"cmd": "record-start", "volume": VOLUME.name, "path": path, "share": share});
        let answer = ask(daemon.control(), &start)?;
        ensure!(answer["ok"] == json!(true), "nothing is recorded: {answer}");
    }
    let outcome = load::run(daemon.socket(), VOLUME.name, load)?;
    let mut answer = Value::Null;
    if share.is_some() {
        answer = ask(daemon.control(), &json!({"cmd": "record-stop", "volume": VOLUME.name}))?;
        std::fs::remove_file(&path)?;
        ensure!(answer["ok"] == json!(true), "the recording failed: {answer}");
    }
    let cpu_us = cpu_ns(daemon.pid())?.saturating_sub(before_ns) as f64 / 1000.0;
    let number = |name: &str| answer[name].as_f64();
    let noted = number("requests").zip(number("lost")).map(|(recorded, lost)| recorded + lost);
    Ok(Sample::from(&outcome)
        .with("cpu_total_us", cpu_us)
        .with("bytes", number("bytes"))
        .with("recorded", number("requests"))
        .with("lost", number("lost"))
        .with("noted", noted))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let work = args.runs.work(&args.folders, 500, 15)?;
    println!("{}", work.machine);
    let (cache_bytes, size_bytes) = (2 * work.size_bytes, work.size_bytes);
    let setting = Setting { cache_bytes, size_bytes, cache: HITS_FROM_SSD, tcp: None };
    // The daemon writes recordings to its own folders alone.
    let dir = work.dir.join("zcached");
    let daemon = volumes::start(&dir, setting, &[VOLUME])?;
    volumes::fill(&daemon, &VOLUME)?;
    for (name, op, depth) in CASES.into_iter().filter(|(name, ..)| work.wants(name)) {
        let all = rounds(name, &SHARES, work.rounds, |share, round| {
            let load =
                Load { time_ns: work.time_ns, seed: round + 1, ..Load::new(op, Order::Random, 4, depth) };
            measure(&daemon, &dir, load, *share)
        });
        println!("{}", case_table(&Measured(all.context("recording")?), name, COLUMNS));
    }
    Ok(())
}
