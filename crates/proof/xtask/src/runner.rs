//! Runs tests side by side, as many as cores and memory allow, and reports failures and the slowest.
//!
//! Job: unit tests run a program each, which has threads of its own; end-to-end tests run a process each, so that one
//! that hangs or crashes is the only one that fails. The output of a test is printed if it fails.

use crate::products::{self, Executable};
use anyhow::{Context as _, bail};
use std::collections::VecDeque;
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use zc_rig::host::run::{cargo, run as run_command, timed};

/// Time after which a program of unit tests, or an end-to-end test, counts as hung.
const LIMIT_SECONDS: u32 = 600;
/// Memory bound of an end-to-end test: QEMU's machine and fio need the most.
const TEST_BYTES: u64 = 1 << 30;
/// Slowest tests that are listed.
const SLOWEST: usize = 20;
/// The package of the end-to-end tests, and its program.
const TESTS_PACKAGE: &str = "zc-tests";
const END_TO_END: &str = "e2e";
/// The tests that drive a browser.
const BROWSER_TESTS: &[&str] = &["e2e_page::a_browser_"];
/// The tests whose kills of a server can be more, and those with a server that is large to install.
const KILL_TESTS: &[&str] = &["e2e_remote::kills_", CEPH_TESTS];
/// The tests with a Ceph cluster.
const CEPH_TESTS: &str = "e2e_ceph::";
/// Their kills in each mode.
const KILL_CYCLES: &str = "50";

/// Prefixes of end-to-end tests that run while no other test does, with the reason.
const ALONE: &[(&str, &str)] = &[
    ("e2e_memory::", "holds 150 MiB in the daemon, and judges what of it goes back"),
    ("e2e_partial::", "judges shares of hits, which fall when the daemon gets no time to insert"),
];

/// Tests that run in one process.
#[derive(Debug)]
struct Job {
    name: String,
    command: Command,
    /// Command line that runs it alone.
    alone: String,
}

/// Result of a job.
#[derive(Debug)]
struct Ended {
    name: String,
    took: Duration,
    passed: u64,
    failed: u64,
    /// Output, and the command that runs it alone, if it failed.
    failure: Option<(String, String)>,
}

/// Unit, property and integration tests of every default member but the end-to-end tests' package.
///
/// # Errors
/// A test failed, or cannot be built.
pub(crate) fn unit() -> anyhow::Result<()> {
    whole_programs(|executable| executable.package != TESTS_PACKAGE)
}

/// Tests of the members that no program is made of.
///
/// # Errors
/// As [`unit()`].
pub(crate) fn lab() -> anyhow::Result<()> {
    let default = products::default_members()?;
    let mut command = cargo();
    // Runs all tests, so that one run names every failure.
    command.args([
        "test",
        "--workspace",
        "--no-fail-fast",
        "--locked",
        "--quiet",
        "--lib",
        "--bins",
        "--tests",
    ]);
    for member in default {
        command.args(["--exclude", &member]);
    }
    run_command(&mut command)
}

/// The rules about the tree itself, and the tests of the test helpers.
///
/// # Errors
/// As [`unit()`].
pub(crate) fn tidy() -> anyhow::Result<()> {
    whole_programs(|executable| executable.package == TESTS_PACKAGE && executable.target != END_TO_END)
}

/// The programs with real clients, but for the browser and Ceph.
///
/// # Errors
/// As [`unit()`].
pub(crate) fn end_to_end() -> anyhow::Result<()> {
    one_by_one(|name| !is_listed(name, BROWSER_TESTS) && !is_listed(name, &[CEPH_TESTS]), &[])
}

/// The tests with a browser.
///
/// # Errors
/// As [`unit()`].
pub(crate) fn browser() -> anyhow::Result<()> {
    one_by_one(|name| is_listed(name, BROWSER_TESTS), &[])
}

/// The tests with kills of the server of a remote origin, with more kills than in the base, and with Ceph.
///
/// # Errors
/// As [`unit()`].
pub(crate) fn remote_kills() -> anyhow::Result<()> {
    one_by_one(|name| is_listed(name, KILL_TESTS), &[("ZC_KILL_CYCLES", KILL_CYCLES)])
}

fn is_listed(name: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| name.starts_with(start))
}

fn whole_programs(wanted: impl Fn(&Executable) -> bool) -> anyhow::Result<()> {
    let mut jobs = Vec::new();
    for executable in products::executables()?.iter().filter(|executable| wanted(executable)) {
        jobs.push(Job {
            name: format!("{} {}", executable.package, executable.target),
            command: executable.command(LIMIT_SECONDS)?,
            alone: executable.alone(),
        });
    }
    judge(side_by_side(jobs, cores()))
}

fn one_by_one(wanted: impl Fn(&str) -> bool, variables: &[(&str, &str)]) -> anyhow::Result<()> {
    let all = products::executables()?;
    let is_ours = |one: &&Executable| one.package == TESTS_PACKAGE && one.target == END_TO_END;
    let program = all.iter().find(is_ours).context("the end-to-end tests were not built")?;
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for name in names_in(program)?.into_iter().filter(|name| wanted(name)) {
        let mut command = program.command(LIMIT_SECONDS)?;
        command.args(["--exact", &name]).envs(variables.iter().copied());
        let job = Job { alone: format!("{} -- --exact {name}", program.alone()), name, command };
        let is_alone = ALONE.iter().any(|(start, _)| job.name.starts_with(start));
        if is_alone { alone.push(job) } else { together.push(job) }
    }
    // Most of them wait for a daemon most of the time.
    let workers = (2 * cores()).min(memory_for(TEST_BYTES));
    println!("    {} tests, {workers} at once, then {} alone", together.len(), alone.len());
    let mut ended = side_by_side(together, workers);
    ended.extend(side_by_side(alone, 1));
    judge(ended)
}

/// The tests of a program.
fn names_in(program: &Executable) -> anyhow::Result<Vec<String>> {
    let mut command = program.command(LIMIT_SECONDS)?;
    let output = command.args(["--list", "--format", "terse"]).output().context("cannot list the tests")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<String> =
        text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    if !output.status.success() || names.is_empty() {
        bail!("{} lists no tests: {}", program.path.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(names)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Number of tests, at least one, that fit into the available memory.
fn memory_for(bytes: u64) -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let count = available_bytes(&text).map_or(1, |free| free / bytes);
    usize::try_from(count).unwrap_or(usize::MAX).max(1)
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Runs jobs in `workers` threads and prints each failure at once.
fn side_by_side(jobs: Vec<Job>, workers: usize) -> Vec<Ended> {
    let waiting = Mutex::new(VecDeque::from(jobs));
    let ended = Mutex::new(Vec::new());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        while let Some(job) = next() {
            let one = run(job);
            if let Some((output, alone)) = &one.failure {
                println!("\n--- {} FAILED\n{output}\n    alone: {alone}\n", one.name);
            }
            ended.lock().unwrap_or_else(PoisonError::into_inner).push(one);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run(mut job: Job) -> Ended {
    let (output, took) = timed(|| job.command.stdin(Stdio::null()).output());
    let (text, is_good, status) = match output {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            (String::from_utf8_lossy(&text).into_owned(), output.status.success(), output.status.to_string())
        }
        Err(error) => (String::new(), false, format!("cannot start: {error}")),
    };
    let (passed, mut failed) = counts(&text);
    // A crash or a hang prints no closing line.
    let is_good = is_good && failed == 0;
    if !is_good {
        failed = failed.max(1);
    }
    let failure = (!is_good).then(|| (format!("{text}{status}"), job.alone));
    Ended { name: job.name, took, passed, failed, failure }
}

/// The numbers in the closing lines of test programs: `test result: ok. 3 passed; 0 failed; ...`.
fn counts(text: &str) -> (u64, u64) {
    let mut sum = (0, 0);
    for line in text.lines().filter_map(|line| line.strip_prefix("test result: ")) {
        let number = |word: &str| {
            let (before, _) = line.split_once(word)?;
            before.split_whitespace().next_back()?.parse::<u64>().ok()
        };
        sum.0 += number(" passed;").unwrap_or(0);
        sum.1 += number(" failed;").unwrap_or(0);
    }
    sum
}

/// Prints the slowest jobs and the counts, and fails if a job failed.
fn judge(mut ended: Vec<Ended>) -> anyhow::Result<()> {
    if ended.is_empty() {
        bail!("there was no test to run");
    }
    ended.sort_by_key(|one| std::cmp::Reverse(one.took));
    println!("    the slowest:");
    for one in ended.iter().take(SLOWEST) {
        println!("    {:>7.1} s  {}", one.took.as_secs_f64(), one.name);
    }
    let passed: u64 = ended.iter().map(|one| one.passed).sum();
    let failed: u64 = ended.iter().map(|one| one.failed).sum();
    println!("{passed} passed, {failed} failed");
    let failures: Vec<String> = ended
        .iter()
        .filter_map(|one| one.failure.as_ref().map(|(_, alone)| format!("{}; alone: {alone}", one.name)))
        .collect();
    if !failures.is_empty() {
        bail!("tests failed:\n  {}", failures.join("\n  "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command, alone: format!("alone {name}") }
    }

    #[test]
    fn jobs_run_side_by_side_and_failures_are_named_with_what_runs_them_alone() {
        let good = "echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured'";
        // Each job waits for the other: run in sequence they would hang until `timeout` kills them.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let meet = |act: &str| format!("timeout 60 sh -c '{act} {}' && {good}", pipe.display());
        let jobs = vec![
            shell("a", &meet("echo x >")),
            shell("b", &meet("cat")),
            shell("c", "echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored'; echo why >&2; exit 101"),
            shell("d", "kill -9 $$"),
        ];
        let ended = side_by_side(jobs, 2);
        let find = |name: &str| ended.iter().find(|one| one.name == name).unwrap();
        assert_eq!((find("a").passed, find("b").passed), (3, 3));
        assert_eq!((find("c").passed, find("c").failed), (1, 2));
        assert!(find("c").failure.as_ref().unwrap().0.contains("why"));
        assert_eq!(find("d").failed, 1, "a crash is a failure");
        let error = judge(ended).unwrap_err().to_string();
        assert!(
            error.contains("alone c") && error.contains("alone d") && !error.contains("alone a"),
            "{error}"
        );
    }

    #[test]
    fn no_test_at_all_is_an_error() {
        judge(Vec::new()).unwrap_err();
    }

    #[test]
    fn memory_bounds_how_many_run() {
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(memory_for(u64::MAX), 1);
    }
}
