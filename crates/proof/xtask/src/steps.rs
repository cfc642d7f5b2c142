//! The steps of `cargo xtask test`, in order, with headings, times and a summary.
//!
//! Invariants: the order is that of [`Step`]; the first failure ends the run unless asked otherwise; a run in which any
//! step failed ends with an error.

use crate::TestArgs;
use anyhow::bail;
use clap::ValueEnum;
use std::process::Command;
use std::time::Duration;
use zc_host::Done;
use zc_host::packages::{ensure_cargo_deny, ensure_debian};
use zc_host::run::{cargo, run, timed};

/// Seeds that every run of the checks simulates.
const SIMULATION_SEEDS: &str = "1000";
/// Requests of the short ones: they found a fault that a thousand long ones had missed.
const SHORT_OPS: &str = "500";
/// Seeds of the store that every run of the checks simulates.
const STORE_SEEDS: &str = "400";

/// One check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// Install the Debian packages that the end-to-end tests use.
    Packages,
    /// Formatting.
    Fmt,
    /// Rules about the tree itself: layers, sizes, forbidden words.
    Tidy,
    /// Lints of every target, warnings are errors.
    Clippy,
    /// Documentation builds, warnings are errors.
    Doc,
    /// The book is built from its pages.
    Book,
    /// Licences and sources of every dependency.
    Licences,
    /// Known weaknesses and yanked versions of dependencies (RustSec), if the database can be had.
    Advisories,
    /// Unit, property and documentation tests of every crate.
    Unit,
    /// The programs as they ship, built alone: they contain no deliberate bug and depend on nothing of the lab.
    Shipped,
    /// The simulator over a thousand long and short seeds of the cache and hundreds of the store, then every crash of
    /// small workloads, then its canaries.
    Simulation,
    /// Every fuzzer for a minute.
    Fuzz,
    /// Our NBD server judged by the protocol document, and the table of that.
    NbdConformance,
    /// The programs with real clients.
    EndToEnd,
    /// The daemon with clients of a newer Debian, if they can be had.
    NewerClients,
    /// The Debian package: installed, used, upgraded and removed in a clean root; the archive, in an empty one.
    Package,
    /// Block devices and file systems, kills and power cuts in a virtual machine, if it can be made.
    Vm,
}

impl Step {
    /// The name on the command line and in headings.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn run(self, install: bool) -> anyhow::Result<Done> {
        let checked = match self {
            Self::Packages => ensure_debian(install),
            Self::Fmt => run(cargo().args(["fmt", "--all", "--check"])),
            Self::Clippy => run(cargo()
                .args(["clippy", "--workspace", "--all-targets", "--locked"])
                .args(["--", "-D", "warnings"])),
            Self::Doc => run(cargo()
                .args(["doc", "--workspace", "--no-deps", "--locked"])
                .env("RUSTDOCFLAGS", "-D warnings")),
            Self::Book => crate::book::build(install),
            Self::Licences => {
                let deny = ensure_cargo_deny(install)?;
                run(Command::new(deny).args(["--locked", "check", "licenses", "bans", "sources"]))
            }
            Self::Advisories => {
                let deny = ensure_cargo_deny(install)?;
                run(cargo().args(["fetch", "--locked"]))?;
                return advisories(|args| run(Command::new(&deny).arg("--locked").args(args)));
            }
            Self::Unit => run(cargo().args(["test", "--workspace", "--exclude", "zc-tests", "--locked"])),
            Self::Tidy => {
                run(cargo().args(["test", "--package", "zc-tests", "--locked", "--lib", "--test", "tidy"]))
            }
            Self::Shipped => crate::canaries::check_shipped(),
            Self::Simulation => {
                run(&mut zcsim(&["fuzz", "--seeds", SIMULATION_SEEDS, "--start", "1"]))?;
                run(&mut zcsim(&["fuzz", "--seeds", SIMULATION_SEEDS, "--ops", SHORT_OPS, "--start", "1"]))?;
                run(&mut zcsim(&["fuzz", "--store", "--seeds", STORE_SEEDS, "--start", "1"]))?;
                run(&mut zcsim(&["exhaustive"]))?;
                crate::canaries::canaries(&[])
            }
            Self::Fuzz => crate::fuzz::check(),
            Self::NbdConformance => crate::conformance::check(),
            Self::EndToEnd => {
                run(cargo().args(["test", "--package", "zc-tests", "--locked", "--test", "e2e_*"]))
            }
            Self::NewerClients => return crate::newer::check(install),
            Self::Package => crate::tarball::step(install),
            Self::Vm => return zc_rig::check(install),
        };
        checked.map(|()| Done::Whole)
    }
}

/// Looks the dependencies up in a fresh copy of the database; `deny` runs cargo-deny with arguments. A database that
/// cannot be fetched leaves them unchecked: an older copy would tell of no weakness found since.
fn advisories(deny: impl Fn(&[&str]) -> anyhow::Result<()>) -> anyhow::Result<Done> {
    if let Err(error) = deny(&["fetch", "db", "index"]) {
        return Ok(Done::Without(format!("the advisory database cannot be fetched: {error:#}")));
    }
    // Offline: this failure can only mean a weakness.
    deny(&["--offline", "check", "advisories"])?;
    Ok(Done::Whole)
}

/// The simulator in the profile of the tests: optimised, with overflow checks and assertions.
fn zcsim(args: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["run", "--locked", "--quiet", "--package", "zcsim", "--"]).args(args);
    command
}

/// How a step ended.
#[derive(Debug)]
struct Outcome {
    step: Step,
    took: Duration,
    result: anyhow::Result<Done>,
}

/// `cargo xtask test`.
///
/// # Errors
/// A step failed, or none was selected.
pub(crate) fn test(args: &TestArgs) -> anyhow::Result<()> {
    let steps = select(&args.only, &args.skip);
    if steps.is_empty() {
        bail!("no step is left to run");
    }
    let mut outcomes = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n==> [{}/{}] {}", index + 1, steps.len(), step.name());
        let (result, took) = timed(|| step.run(!args.no_install));
        match &result {
            Ok(Done::Whole) => {}
            Ok(Done::Without(reason)) => println!("    {} NOT CHECKED: {reason}", step.name()),
            Err(error) => println!("    {} FAILED: {error:#}", step.name()),
        }
        let failed = result.is_err();
        outcomes.push(Outcome { step: *step, took, result });
        if failed && !args.keep_going {
            break;
        }
    }
    println!("\n{}", summary(&steps, &outcomes));
    let failed: Vec<String> = outcomes.iter().filter(|o| o.result.is_err()).map(|o| o.step.name()).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The steps to run, in their fixed order. An empty `only` means all.
fn select(only: &[Step], skip: &[Step]) -> Vec<Step> {
    let wanted = |step: &Step| (only.is_empty() || only.contains(step)) && !skip.contains(step);
    Step::value_variants().iter().copied().filter(wanted).collect()
}

/// A table: step, seconds, how it ended. Steps that were not reached are in it too.
fn summary(steps: &[Step], outcomes: &[Outcome]) -> String {
    let mut table = format!("{:<15} {:>8}  result\n", "step", "seconds");
    for (index, step) in steps.iter().enumerate() {
        let (seconds, result) = match outcomes.get(index) {
            Some(outcome) => (
                format!("{:.1}", outcome.took.as_secs_f64()),
                match &outcome.result {
                    Ok(Done::Whole) => "ok",
                    Ok(Done::Without(_)) => "not checked",
                    Err(_) => "FAILED",
                },
            ),
            None => ("-".to_owned(), "not run"),
        };
        table.push_str(&format!("{:<15} {seconds:>8}  {result}\n", step.name()));
    }
    let total: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    table.push_str(&format!("{:<15} {:>8.1}", "total", total.as_secs_f64()));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_keeps_the_order_and_skip_wins() {
        assert_eq!(select(&[], &[]), Step::value_variants());
        assert_eq!(select(&[Step::Unit, Step::Fmt], &[]), [Step::Fmt, Step::Unit]);
        assert_eq!(select(&[Step::Unit, Step::Fmt], &[Step::Fmt]), [Step::Unit]);
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        assert_eq!(Step::EndToEnd.name(), "end-to-end");
        assert_eq!(Step::from_str("licences", false), Ok(Step::Licences));
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
        let took = Duration::from_millis(1_500);
        let outcomes = [
            Outcome { step: Step::Fmt, took, result: Ok(Done::Whole) },
            Outcome { step: Step::Clippy, took, result: Err(anyhow::anyhow!("broken")) },
            Outcome { step: Step::NewerClients, took, result: Ok(Done::Without("offline".to_owned())) },
        ];
        let table = summary(&steps, &outcomes);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["fmt", "1.5", "ok"]);
        assert_eq!(lines[2], ["clippy", "1.5", "FAILED"]);
        assert_eq!(lines[3], ["newer-clients", "1.5", "not", "checked"]);
        assert_eq!(lines[4], ["doc", "-", "not", "run"]);
        assert_eq!(lines[5], ["total", "4.5"]);
    }
}
