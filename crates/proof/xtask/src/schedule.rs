//! Concurrent steps: each is a process with a log, in one of three lanes.
//!
//! Job: start a step when its requirements are done and its lane is free, measure wall and CPU time, print its log
//! when it ends. Steps that run cargo take turns, because cargo would serialise them anyway; tests run beside them,
//! and beside both the steps that wait for others: package servers and a virtual machine.
//!
//! Invariant: after a failure no further step starts unless requested; running steps are waited for.

use crate::products::BUILT;
use crate::step::{Lane, Step};
use anyhow::Context as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use zc_rig::host::Done;
use zc_rig::host::run::{build_dir, now, wait_with_cpu, workspace};

/// The exit status of a step that could not be checked here.
pub(crate) const NOT_CHECKED: u8 = 4;
/// Prefix of the line in the log that has the reason.
pub(crate) const REASON: &str = "    NOT CHECKED: ";

/// Lines of a failed step's log that the end of the run repeats.
const SHOWN_LINES: usize = 12;

/// Result of a step.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) step: Step,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    pub(crate) result: anyhow::Result<Done>,
    /// The end of its log, if it failed.
    pub(crate) tail: String,
}

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) install: bool,
    pub(crate) keep_going: bool,
}

/// Runs the steps, and returns those that ended, in that order.
///
/// # Errors
/// A process of ours cannot be started.
pub(crate) fn run(steps: &[Step], options: Options) -> anyhow::Result<Vec<Outcome>> {
    if let [step] = steps {
        let own = std::env::current_exe().context("cannot find the file of xtask itself")?;
        return Ok(vec![one(&own, *step, steps, options, None)?]);
    }
    let mut pending = steps.to_vec();
    let mut running: Vec<Step> = Vec::new();
    let mut outcomes: Vec<Outcome> = Vec::new();
    let own = &kept_program()?;
    let (ended, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        loop {
            let failed = outcomes.iter().any(|outcome| outcome.result.is_err());
            while let Some(step) = next(&pending, &running, &outcomes, failed && !options.keep_going) {
                pending.retain(|waiting| *waiting != step);
                running.push(step);
                println!("==> {} started", step.name());
                let built =
                    outcomes.iter().any(|outcome| outcome.step == Step::Build && outcome.result.is_ok());
                let ended = ended.clone();
                scope.spawn(move || ended.send((step, one(own, step, steps, options, Some(built)))));
            }
            if running.is_empty() {
                return Ok(());
            }
            let (step, outcome) = ends.recv().context("a step was lost")?;
            let outcome = outcome?;
            running.retain(|other| *other != step);
            show(&outcome)?;
            outcomes.push(outcome);
        }
    })
    .map(|()| outcomes)
}

/// The next step that may start.
fn next(pending: &[Step], running: &[Step], outcomes: &[Outcome], stopped: bool) -> Option<Step> {
    let is_open = |needed: &Step| pending.contains(needed) || running.contains(needed);
    let is_broken =
        |needed: &Step| outcomes.iter().any(|outcome| outcome.step == *needed && outcome.result.is_err());
    let may_start = |step: &&Step| {
        let needs = step.needs();
        !running.iter().any(|other| other.lane() == step.lane())
            && !needs.iter().any(|needed| is_open(needed) || is_broken(needed))
    };
    pending.iter().find(may_start).copied().filter(|_| !stopped)
}

/// Returns a copy of the running program: the step `build` replaces the program itself, because the features of its
/// dependencies differ when all default members are built at once.
fn kept_program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the file of xtask itself")?;
    let kept = own.with_file_name("xtask-steps");
    // A copy of an earlier run may still be running: it keeps its file.
    let part = own.with_file_name(format!("xtask-steps-{}", std::process::id()));
    std::fs::copy(&own, &part).with_context(|| format!("cannot copy {}", own.display()))?;
    std::fs::rename(&part, &kept).with_context(|| format!("cannot rename {}", part.display()))?;
    Ok(kept)
}

/// Runs a step as a process of the program `own`. `built` is `None` if it is the only one, which then has the terminal.
fn one(
    own: &Path,
    step: Step,
    steps: &[Step],
    options: Options,
    built: Option<bool>,
) -> anyhow::Result<Outcome> {
    let mut command = Command::new(own);
    if built.is_some() && step.lane() == Lane::Cargo && step != Step::Build {
        // Tests have priority over compilers.
        command = Command::new("nice");
        command.args(["-n", "5"]).arg(own);
    }
    command.args(["step", &step.name()]).stdin(Stdio::null()).current_dir(workspace());
    if !options.install {
        command.arg("--no-install");
    }
    command.args(steps.iter().map(|other| format!("--beside={}", other.name())));
    if built == Some(true) {
        command.env(BUILT, "1");
    }
    if built.is_some() {
        let log = File::create(log_of(step)?).context("cannot write a log")?;
        command.stderr(log.try_clone().context("cannot share a log")?).stdout(log);
    }
    let start = now();
    let mut child = command.spawn().with_context(|| format!("cannot start the step {}", step.name()))?;
    let (status, cpu) = wait_with_cpu(&mut child)?;
    let wall = start.elapsed();
    let log = if built.is_some() { read_log(step)? } else { String::new() };
    let result = if status.success() {
        Ok(Done::Whole)
    } else if status.code() == Some(NOT_CHECKED.into()) {
        let reason = log.lines().rev().find_map(|line| line.strip_prefix(REASON));
        Ok(Done::Without(reason.unwrap_or("its output says why").to_owned()))
    } else {
        Err(anyhow::anyhow!("{status}"))
    };
    let tail = if result.is_err() { tail(&log) } else { String::new() };
    Ok(Outcome { step, wall, cpu, result, tail })
}

/// Prints the result of a step and its log.
fn show(outcome: &Outcome) -> anyhow::Result<()> {
    let end = match &outcome.result {
        Ok(Done::Whole) => "ok".to_owned(),
        Ok(Done::Without(reason)) => format!("NOT CHECKED: {reason}"),
        Err(error) => format!("FAILED: {error}"),
    };
    let (wall, cpu) = (outcome.wall.as_secs_f64(), outcome.cpu.as_secs_f64());
    println!("\n==> {}: {end} ({wall:.1} s, CPU time {cpu:.1} s)", outcome.step.name());
    println!("{}", read_log(outcome.step)?.trim_end());
    Ok(())
}

fn log_of(step: Step) -> anyhow::Result<PathBuf> {
    let folder = build_dir()?.join("xtask").join("logs");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder.join(format!("{}.log", step.name())))
}

fn read_log(step: Step) -> anyhow::Result<String> {
    let place = log_of(step)?;
    let bytes = std::fs::read(&place).with_context(|| format!("cannot read {}", place.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(step: Step, good: bool) -> Outcome {
        let result = if good { Ok(Done::Whole) } else { Err(anyhow::anyhow!("broken")) };
        Outcome { step, wall: Duration::ZERO, cpu: Duration::ZERO, result, tail: String::new() }
    }

    #[test]
    fn tests_wait_for_the_build_and_lanes_hold_one_step() {
        let pending = [Step::Build, Step::Unit, Step::Clippy, Step::Vm];
        assert_eq!(next(&pending, &[], &[], false), Some(Step::Build));
        assert_eq!(next(&[Step::Fmt, Step::Build], &[], &[], false), Some(Step::Fmt));
        let pending = [Step::Unit, Step::Clippy, Step::Vm];
        assert_eq!(next(&pending, &[Step::Build], &[], false), None, "the machine needs what is built");
        let built = [outcome(Step::Build, true)];
        assert_eq!(next(&pending, &[], &built, false), Some(Step::Unit));
        assert_eq!(next(&pending[1..], &[Step::Unit], &built, false), Some(Step::Clippy));
        assert_eq!(next(&[Step::Doc], &[Step::Clippy], &built, false), None);
    }

    #[test]
    fn nothing_starts_after_a_failure_nor_what_needs_what_failed() {
        let failed = [outcome(Step::Build, false)];
        assert_eq!(next(&[Step::Clippy], &[], &failed, true), None);
        assert_eq!(next(&[Step::Clippy], &[], &failed, false), Some(Step::Clippy));
        assert_eq!(next(&[Step::Unit], &[], &failed, false), None);
    }

    #[test]
    fn steps_run_a_copy_that_no_build_replaces() {
        let own = std::env::current_exe().unwrap();
        let kept = kept_program().unwrap();
        assert_ne!(kept, own);
        assert_eq!(kept.parent(), own.parent(), "programs are looked for beside it");
        assert_eq!(std::fs::metadata(&kept).unwrap().len(), std::fs::metadata(&own).unwrap().len());
        std::fs::remove_file(&kept).unwrap();
    }

    #[test]
    fn the_end_of_a_log_is_what_is_repeated() {
        let log: String = (0..30).map(|line| format!("{line}\n")).collect();
        assert_eq!(tail(&log).lines().next(), Some("18"));
        assert_eq!(tail("one\n\n"), "one");
    }
}
