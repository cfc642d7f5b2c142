//! Running a child process with its output streamed, and the one clock of the tasks.
//!
//! Every command runs in the root of the workspace, whatever directory `cargo xtask` was called from.

use anyhow::{Context, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(3).unwrap_or(here).to_path_buf()
}

/// Returns the target directory: above the profile folder of our own executable.
///
/// # Errors
/// When the system does not report our path.
pub fn build_dir() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this task itself was built")?;
    Ok(own.ancestors().nth(2).map_or_else(|| workspace().join("target"), Path::to_path_buf))
}

/// Returns the cargo that started us, without the variables of this package: build scripts that depend on them would
/// run again, and with them everything above.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command
}

/// Prints and runs `command` in the workspace's root; its output goes straight to ours.
///
/// # Errors
/// The program cannot be started, or it reports failure.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = show(command);
    println!("    $ {shown}");
    let status =
        command.current_dir(workspace()).status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Runs `command` in the workspace's root; its output is shown only if it fails.
///
/// # Errors
/// If the program cannot be started, or its exit status is not one of `good`.
pub fn run_quietly(command: &mut Command, good: &[i32]) -> anyhow::Result<()> {
    let shown = show(command);
    let output =
        command.current_dir(workspace()).output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.code().is_some_and(|code| good.contains(&code)) {
        let (said, complained) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        println!("    $ {shown}\n{said}{complained}");
        bail!("`{shown}` failed: {}", output.status);
    }
    Ok(())
}

/// Runs `work` and returns its duration.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = work();
    (result, start.elapsed())
}

/// Ticks of the CPU times in `/proc` per second: `USER_HZ`, which is 100 on every processor that Linux and we run on.
const TICKS_PER_SECOND: u64 = 100;

/// Waits for a child. Returns its status and the CPU time, user and system, of it and of all descendants that were waited
/// for.
///
/// # Errors
/// The system refuses to wait for it.
pub fn wait_with_cpu(child: &mut Child) -> anyhow::Result<(ExitStatus, Duration)> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a child has no process id")?;
    // It stays in /proc until it is reaped.
    while let Err(error) = waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
        if error != rustix::io::Errno::INTR {
            return Err(error).context("cannot wait for a child");
        }
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let status = child.wait().context("cannot wait for a child")?;
    Ok((status, cpu_time(&stat).unwrap_or_default()))
}

/// The CPU time in a line of `/proc/ID/stat`: of the process and of its children that were waited for.
fn cpu_time(stat: &str) -> Option<Duration> {
    // The name, in parentheses, may contain any characters.
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Vec<u64> =
        fields.split_whitespace().skip(11).take(4).map(str::parse).collect::<Result<_, _>>().ok()?;
    let ticks: u64 = times.iter().sum();
    (times.len() == 4).then(|| Duration::from_millis(ticks * (1000 / TICKS_PER_SECOND)))
}

/// The time, for reports and limits only.
#[expect(clippy::disallowed_methods, reason = "the tasks' one clock, for reports and limits only")]
pub fn now() -> Instant {
    Instant::now()
}

/// Formats the command as typed in a shell, environment first.
pub fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut words: Vec<String> =
        set.map(|(name, value)| format!("{}={}", name.display(), quote(&value.to_string_lossy()))).collect();
    words.push(program.to_string_lossy().into_owned());
    words.extend(command.get_args().map(|word| quote(&word.to_string_lossy())));
    words.join(" ")
}

/// Quotes a word that a shell would split or expand.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_the_folder_with_the_lock_file() {
        assert!(workspace().join("Cargo.lock").is_file());
    }

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--test", "e2e_*"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(show(&command), "RUSTDOCFLAGS='-D warnings' cargo test --test 'e2e_*'");
    }

    #[test]
    fn cpu_time_of_a_child_includes_that_of_its_children() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 200 0 0 150 50 200 100 20 0 1 0 12345 1000 10";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(5)));
        assert_eq!(cpu_time("7 (a) Z 1"), None);
        let busy = "sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; exit 3";
        let mut child = Command::new("sh").args(["-c", busy]).spawn().unwrap();
        let (status, cpu) = wait_with_cpu(&mut child).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(cpu > Duration::ZERO);
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = run(&mut Command::new("false")).unwrap_err();
        assert!(error.to_string().contains("`false` failed"), "{error}");
        let error = run(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("cannot start `no-such-program`"), "{error}");
        run_quietly(&mut Command::new("false"), &[0, 1]).unwrap();
        let error = run_quietly(&mut Command::new("false"), &[0]).unwrap_err();
        assert!(error.to_string().contains("`false` failed"), "{error}");
    }
}
