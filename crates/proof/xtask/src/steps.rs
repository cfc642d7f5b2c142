//! Commands of the steps of `cargo xtask test`, their choice, and the table at the end.
//!
//! Invariants: a run in which any step failed ends with an error, after a table of all steps.

use crate::TestArgs;
use crate::groups;
use crate::products::{self, program};
use crate::schedule::{self, NOT_CHECKED, Options, Outcome, REASON};
use crate::step::Step;
use anyhow::bail;
use clap::ValueEnum;
use std::process::{Command, ExitCode};
use std::time::Duration;
use zc_rig::host::Done;
use zc_rig::host::packages::{Set, ensure, ensure_cargo_deny};
use zc_rig::host::run::{cargo, run, timed};

/// Seeds of the cache, of the cache with few requests, and of the store that the base simulates.
const SEEDS: [&str; 3] = ["200", "250", "150"];
/// Seeds of the group `long-seeds`, which begins where the base ends: together 1,000, 1,000 and 400.
const LONG_SEEDS: [&str; 3] = ["800", "750", "250"];
const LONG_STARTS: [&str; 3] = ["201", "251", "151"];
/// Requests of short seeds, which found a fault that a thousand long ones had missed.
const SHORT_OPS: &str = "500";

/// Runs a step. `beside` has all steps of the run.
fn check(step: Step, install: bool, beside: &[Step]) -> anyhow::Result<Done> {
    let checked = match step {
        Step::Packages => ensure(&packages_of(beside), install),
        Step::Fmt => run(cargo().args(["fmt", "--all", "--check"])),
        Step::Licences => crate::licences::check(),
        Step::Build => products::build(),
        Step::Unit => crate::runner::unit(),
        Step::Tidy => crate::runner::tidy(),
        Step::Shipped => crate::canaries::check_shipped(&products::programs_built()?),
        Step::Simulation => simulate(SEEDS, ["1"; 3]),
        Step::EndToEnd => crate::runner::end_to_end(),
        Step::Clippy => run(cargo()
            .args(["clippy", "--workspace", "--all-targets", "--locked", "--quiet"])
            .args(["--", "-D", "warnings"])),
        Step::Doc => document(),
        Step::NbdConformance => conformance(&["--check", "--timeout", "30"]),
        Step::Lab => crate::runner::lab(),
        Step::Canaries => {
            run(Command::new(program("zcsim")?).arg("exhaustive"))?;
            crate::canaries::canaries(&[])
        }
        Step::LongSeeds => simulate(LONG_SEEDS, LONG_STARTS),
        Step::Fuzz => crate::fuzz::check(),
        Step::Package => crate::tarball::step(install),
        Step::NewerClients => return crate::newer::check(install),
        Step::Browser => crate::runner::browser(),
        Step::RemoteKills => crate::runner::remote_kills(),
        Step::Vm => return zc_rig::check(install),
        Step::Book => crate::book::build(install),
        Step::Advisories => return advisories_of_tree(install),
    };
    checked.map(|()| Done::Whole)
}

/// Returns the Debian packages of a run's steps: all except the virtual machine if `packages` is the only step.
fn packages_of(beside: &[Step]) -> Vec<Set> {
    let all = [Step::EndToEnd, Step::Fuzz, Step::Browser];
    let steps = if beside.len() > 1 { beside } else { &all };
    steps.iter().flat_map(|step| step.packages()).copied().collect()
}

/// Long and short seeds of the cache and seeds of the store, in the profile of the tests: optimised, with overflow checks
/// and assertions.
fn simulate(seeds: [&str; 3], starts: [&str; 3]) -> anyhow::Result<()> {
    let zcsim = program("zcsim")?;
    let kinds: [&[&str]; 3] = [&[], &["--ops", SHORT_OPS], &["--store"]];
    for ((kind, count), start) in kinds.iter().zip(seeds).zip(starts) {
        run(Command::new(&zcsim).arg("fuzz").args(*kind).args(["--seeds", count, "--start", start]))?;
    }
    Ok(())
}

/// The documentation of every crate, and the examples in that of the base.
fn document() -> anyhow::Result<()> {
    run(cargo()
        .args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings"))?;
    run(cargo().args(["test", "--doc", "--locked", "--quiet"]))
}

/// Runs `cargo xtask nbd-conformance`, built with the default members, so that shared code is compiled once.
///
/// # Errors
/// When the suite cannot be built, or fails.
pub(crate) fn conformance(args: &[&str]) -> anyhow::Result<()> {
    const SUITE: &str = "zc-conformance";
    products::programs_built()?;
    let mut build = cargo();
    build.args(["build", "--locked", "--quiet", "--bin", SUITE, "--package", SUITE]);
    for member in products::default_members()? {
        build.args(["--package", &member]);
    }
    run(&mut build)?;
    run(Command::new(products::built_folder()?.join(SUITE)).args(args))
}

/// Licences and bans again, by the tool, and weaknesses.
fn advisories_of_tree(install: bool) -> anyhow::Result<Done> {
    let deny = ensure_cargo_deny(install)?;
    run(Command::new(&deny).args(["--locked", "check", "licenses", "bans", "sources"]))?;
    run(cargo().args(["fetch", "--locked"]))?;
    advisories(|args| run(Command::new(&deny).arg("--locked").args(args)))
}

/// Checks the dependencies against a fresh copy of the database; `deny` runs cargo-deny with arguments. Without a
/// download they stay unchecked: an older copy would miss recent vulnerabilities.
fn advisories(deny: impl Fn(&[&str]) -> anyhow::Result<()>) -> anyhow::Result<Done> {
    if let Err(error) = deny(&["fetch", "db", "index"]) {
        return Ok(Done::Without(format!("the advisory database cannot be fetched: {error:#}")));
    }
    // Offline: this failure can only mean a weakness.
    deny(&["--offline", "check", "advisories"])?;
    Ok(Done::Whole)
}

/// `cargo xtask test`.
///
/// # Errors
/// A step failed, or none was selected.
pub(crate) fn test(args: &TestArgs) -> anyhow::Result<()> {
    let steps = select(args)?;
    if steps.is_empty() {
        bail!("no step is left to run");
    }
    let options = Options { install: !args.no_install, keep_going: args.keep_going };
    let (outcomes, wall) = timed(|| schedule::run(&steps, options));
    let outcomes = outcomes?;
    println!("\n{}", summary(&steps, &outcomes, wall));
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.result.is_err()).collect();
    for outcome in &failed {
        println!("\n{} FAILED:\n{}", outcome.step.name(), outcome.tail);
        println!("alone: cargo xtask test --only {}", outcome.step.name());
    }
    if !failed.is_empty() {
        let names: Vec<String> = failed.iter().map(|outcome| outcome.step.name()).collect();
        bail!("failed: {}", names.join(", "));
    }
    Ok(())
}

/// One step of a run, in a process of its own.
pub(crate) fn step(step: Step, install: bool, beside: &[Step]) -> ExitCode {
    match check(step, install, beside) {
        Ok(Done::Whole) => ExitCode::SUCCESS,
        Ok(Done::Without(reason)) => {
            println!("{REASON}{reason}");
            NOT_CHECKED.into()
        }
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The steps to run, in their fixed order: those that are named, all, or the base and some groups.
fn select(args: &TestArgs) -> anyhow::Result<Vec<Step>> {
    let all = Step::value_variants().iter().copied();
    let steps: Vec<Step> = if !args.only.is_empty() {
        all.filter(|step| args.only.contains(step)).collect()
    } else if args.full {
        all.collect()
    } else {
        let choice = groups::choose()?;
        println!("{}", choice.describe());
        all.filter(|step| groups::is_base(*step) || choice.takes(*step)).collect()
    };
    Ok(steps.into_iter().filter(|step| !args.skip.contains(step)).collect())
}

/// Table of steps with wall time, CPU time and outcome, including steps that were not reached.
fn summary(steps: &[Step], outcomes: &[Outcome], wall: Duration) -> String {
    let mut table = format!("{:<16} {:>8} {:>8}  result\n", "step", "wall s", "CPU s");
    let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
    for step in steps {
        let outcome = outcomes.iter().find(|outcome| outcome.step == *step);
        let (wall, cpu, result) = match outcome {
            Some(outcome) => {
                let result = match &outcome.result {
                    Ok(Done::Whole) => "ok",
                    Ok(Done::Without(_)) => "not checked",
                    Err(_) => "FAILED",
                };
                (seconds(outcome.wall), seconds(outcome.cpu), result)
            }
            None => ("-".to_owned(), "-".to_owned(), "not run"),
        };
        table.push_str(&format!("{:<16} {wall:>8} {cpu:>8}  {result}\n", step.name()));
    }
    let cpu: Duration = outcomes.iter().map(|outcome| outcome.cpu).sum();
    table.push_str(&format!("{:<16} {:>8} {:>8}", "total", seconds(wall), seconds(cpu)));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(only: &[Step], skip: &[Step], full: bool) -> Vec<Step> {
        let (only, skip) = (only.to_vec(), skip.to_vec());
        select(&TestArgs { only, skip, full, no_install: false, keep_going: false }).unwrap()
    }

    #[test]
    fn selection_keeps_the_order_and_skip_wins() {
        assert_eq!(selected(&[], &[], true), Step::value_variants());
        assert_eq!(selected(&[Step::Unit, Step::Fmt], &[], false), [Step::Fmt, Step::Unit]);
        assert_eq!(selected(&[Step::Unit, Step::Fmt], &[Step::Fmt], false), [Step::Unit]);
        let usual = selected(&[], &[], false);
        let base = || Step::value_variants().iter().filter(|step| groups::is_base(**step));
        assert!(base().all(|step| usual.contains(step)));
        assert!(usual.len() > base().count(), "a run has a group: {usual:?}");
    }

    #[test]
    fn packages_are_those_of_the_steps_of_the_run() {
        assert_eq!(packages_of(&[Step::Packages, Step::Vm]), [Set::Vm]);
        assert!(packages_of(&[Step::Packages]).contains(&Set::Browser));
    }

    #[test]
    fn advisories_fail_the_step_and_a_missing_database_leaves_it_unchecked() {
        let refuses = |verb: &'static str| {
            move |args: &[&str]| {
                if args.contains(&verb) { Err(anyhow::anyhow!("no {verb}")) } else { Ok(()) }
            }
        };
        assert_eq!(advisories(|_| Ok(())).unwrap(), Done::Whole);
        let unchecked = "the advisory database cannot be fetched: no fetch".to_owned();
        assert_eq!(advisories(refuses("fetch")).unwrap(), Done::Without(unchecked));
        assert_eq!(advisories(refuses("check")).unwrap_err().to_string(), "no check");
    }

    #[test]
    fn the_summary_tells_ok_failed_not_checked_and_not_run() {
        let steps = [Step::Fmt, Step::Clippy, Step::NewerClients, Step::Doc];
        let (wall, cpu) = (Duration::from_millis(1_500), Duration::from_secs(3));
        let outcome = |step, result| Outcome { step, wall, cpu, result, tail: String::new() };
        // In the order in which they ended.
        let outcomes = [
            outcome(Step::Clippy, Err(anyhow::anyhow!("broken"))),
            outcome(Step::Fmt, Ok(Done::Whole)),
            outcome(Step::NewerClients, Ok(Done::Without("offline".to_owned()))),
        ];
        let table = summary(&steps, &outcomes, Duration::from_secs(4));
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["fmt", "1.5", "3.0", "ok"]);
        assert_eq!(lines[2], ["clippy", "1.5", "3.0", "FAILED"]);
        assert_eq!(lines[3], ["newer-clients", "1.5", "3.0", "not", "checked"]);
        assert_eq!(lines[4], ["doc", "-", "-", "not", "run"]);
        assert_eq!(lines[5], ["total", "4.0", "9.0"]);
    }
}
