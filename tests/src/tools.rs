//! Real clients: find them, run them, print their output when they fail.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Debian's own Python, whatever others come first on the search path: python3-libnbd is a module of this one.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// A client that runs longer than this hangs.
const BOUND_SECONDS: &str = "180";

/// The path of a program that the test cannot do without.
///
/// # Panics
/// It is not installed. A missing tool fails the test: a check that is skipped in silence checks nothing.
#[must_use]
pub fn require_tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed; `cargo xtask test --only packages` installs it"))
}

/// A program that the test cannot do without, ended if it takes longer than any test should.
///
/// # Panics
/// It is not installed.
#[must_use]
pub fn bounded(name: &str) -> Command {
    let mut command = Command::new(require_tool("timeout"));
    command.args(["--kill-after=5", BOUND_SECONDS]).arg(require_tool(name));
    command
}

/// A Python that has the `nbd` module, to be given `-c` and a program.
///
/// # Panics
/// The module is not installed.
#[must_use]
pub fn python_nbd() -> Command {
    let probe = Command::new(PYTHON).args(["-c", "import nbd"]).output();
    let there = probe.is_ok_and(|output| output.status.success());
    assert!(there, "python3-libnbd is not installed; `cargo xtask test --only packages` installs it");
    Command::new(PYTHON)
}

/// Runs `command` to its end and returns its output.
///
/// # Panics
/// It cannot be started or reports failure; the message contains the command and both of its outputs.
pub fn run_ok(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed: {}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_there_is_found_and_runs() {
        let output = run_ok(Command::new(require_tool("sh")).args(["-c", "echo found"]));
        assert_eq!(output.stdout, b"found\n");
    }

    #[test]
    fn a_bounded_program_runs_as_ever() {
        assert_eq!(run_ok(bounded("echo").args(["-n", "--", "x"])).stdout, b"-- x");
    }

    #[test]
    #[should_panic(expected = "no-such-program is not installed")]
    fn a_missing_tool_fails_the_test() {
        let _path = require_tool("no-such-program");
    }

    #[test]
    #[should_panic(expected = "it broke")]
    fn a_failing_command_shows_what_it_said() {
        run_ok(Command::new("sh").args(["-c", "echo it broke >&2; exit 3"]));
    }
}
