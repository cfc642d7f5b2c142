//! What is done with the machine.

use anyhow::bail;
use std::time::Duration;

use super::machine::{Bench, Machine};
use super::report::{Line, judge};
use super::setup::Image;

/// Time for a scenario of so many rounds, far more than it takes.
fn limit(rounds: u32) -> Duration {
    Duration::from_secs(900 + 20 * u64::from(rounds))
}

fn show(line: &str) {
    if let Some(text) = Line::parse(line).ok().and_then(|line| line.show()) {
        println!("    {text}");
    }
}

/// Boots, runs a scenario to its end, and judges it.
fn complete(bench: &Bench, image: &Image, scenario: &str, rounds: u32) -> anyhow::Result<()> {
    let mut machine = bench.boot(image, scenario, rounds)?;
    let lines = machine.follow(limit(rounds), show, |_| false)?;
    judge(&lines).inspect_err(|_| machine.show_console())
}

pub(crate) fn functional(image: &Image, cycles: u32) -> anyhow::Result<()> {
    println!("    functional, {cycles} cycles of attach and detach");
    complete(&Bench::new(image)?, image, "functional", cycles)
}

pub(crate) fn crash(image: &Image, kills: u32) -> anyhow::Result<()> {
    println!("    crash, {kills} kills");
    complete(&Bench::new(image)?, image, "crash", kills)
}

/// Files that are durable before the power is cut: between one and this many since the last cut.
const FILES_PER_CUT: u32 = 12;

/// Cuts the power again and again on the same disks.
pub(crate) fn power_cut(image: &Image, cuts: u32) -> anyhow::Result<()> {
    println!("    power cut, {cuts} times");
    let bench = Bench::new(image)?;
    let mut durable = 0;
    for cut in 1..=cuts {
        // A different number each time, the same in every run; the moment itself is as random as the machine.
        let wanted = durable + 1 + cut * 7 % FILES_PER_CUT;
        let mut machine = bench.boot(image, "write", 0)?;
        let lines = machine.follow(limit(0), show, |lines| newest(lines) >= wanted || has_failed(lines))?;
        cut_off(&machine, &lines)?;
        drop(machine);
        // What was reported until the very end counts.
        durable = newest(&lines).max(durable);
        complete(&bench, image, "verify", durable)?;
        println!("    cut {cut}: {durable} files are whole");
    }
    Ok(())
}

fn newest(lines: &[String]) -> u32 {
    let number = |line: &String| match Line::parse(line) {
        Ok(Line::Durable(number)) => Some(number),
        _ => None,
    };
    lines.iter().filter_map(number).max().unwrap_or(0)
}

fn has_failed(lines: &[String]) -> bool {
    lines.iter().any(|line| matches!(Line::parse(line), Ok(Line::Check { ok: false, .. })))
}

/// The machine must have been writing when its power went.
fn cut_off(machine: &Machine, lines: &[String]) -> anyhow::Result<()> {
    if newest(lines) == 0 || has_failed(lines) {
        machine.show_console();
        bail!("the machine went away, or failed, before it wrote anything");
    }
    Ok(())
}

pub(crate) fn shell(image: &Image) -> anyhow::Result<()> {
    Bench::new(image)?.shell(image)
}
