//! Scenarios of the machine.

use std::time::Duration;

use crate::machine::Bench;
use crate::mode::Mode;
use crate::report::{Line, judge};
use crate::setup::Image;

/// Time limit of a scenario with this number of rounds, far more than it takes.
pub(crate) fn limit(rounds: u32) -> Duration {
    Duration::from_secs(900 + 20 * u64::from(rounds))
}

pub(crate) fn show(line: &str) {
    if let Some(text) = Line::parse(line).ok().and_then(|line| line.show()) {
        println!("    {text}");
    }
}

/// Boots, runs a scenario to its end, and judges it.
fn complete(image: &Image, scenario: &str, mode: Mode, rounds: u32, only: &[&str]) -> anyhow::Result<()> {
    let bench = Bench::new(image)?;
    let settings = [("mode", mode.name()), ("rounds", rounds.to_string()), ("only", only.join(","))];
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut machine = bench.boot(image, scenario, &settings)?;
    let lines = machine.follow(limit(rounds), show, |_| false)?;
    judge(&lines, only).inspect_err(|_| machine.show_console())
}

/// Checks of the functional scenario without which the others cannot be: they make the cache and start and end the
/// daemon.
const ALWAYS: [&str; 3] = ["format", "attributes", "end"];

/// With some checks in `only` these and [`ALWAYS`], otherwise all.
pub(crate) fn functional(image: &Image, mode: Mode, cycles: u32, only: &[&str]) -> anyhow::Result<()> {
    println!("    functional, {}, {cycles} cycles of attach and detach {}", mode.name(), only.join(", "));
    let some: Vec<&str> = ALWAYS.iter().chain(only).copied().collect();
    complete(image, "functional", mode, cycles, if only.is_empty() { &[] } else { &some })
}

pub(crate) fn crash(image: &Image, mode: Mode, kills: u32) -> anyhow::Result<()> {
    println!("    crash, {}, {kills} kills", mode.name());
    complete(image, "crash", mode, kills, &[])
}

pub(crate) fn faults(image: &Image, mode: Mode, only: &[&str]) -> anyhow::Result<()> {
    println!("    faults of the disks, {} {}", mode.name(), only.join(", "));
    let some: Vec<&str> = ["prepare"].iter().chain(only).copied().collect();
    complete(image, "faults", mode, 0, if only.is_empty() { &[] } else { &some })
}

pub(crate) fn shell(image: &Image) -> anyhow::Result<()> {
    Bench::new(image)?.shell(image)
}
