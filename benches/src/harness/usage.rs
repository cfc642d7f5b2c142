//! Resource use of a server's process: CPU time from /proc, system calls from `perf stat`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::clock::pause;

/// Nanoseconds of one unit in /proc/PID/stat: USER_HZ is 100 on every Linux that has io_uring.
const TICK_NS: u64 = 10_000_000;

/// Nanoseconds, in steps of ten milliseconds, that a process has run: all threads, ended ones and those that the kernel
/// made for its io_uring included.
pub(crate) fn cpu_ns(pid: u32) -> anyhow::Result<u64> {
    let path = Path::new("/proc").join(pid.to_string()).join("stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("process {pid} is gone"))?;
    let ticks = ticks(&text).with_context(|| format!("{} has another form", path.display()))?;
    Ok(ticks * TICK_NS)
}

/// User and system time of a line of /proc/PID/stat, in ticks (proc(5): fields 14 and 15).
fn ticks(line: &str) -> Option<u64> {
    // The name, field 2, may hold anything, and ends with the last parenthesis.
    let (_, fields) = line.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().ok());
    Some(times.next()?? + times.next()??)
}

/// A count of system calls under way.
#[derive(Debug)]
pub(crate) struct SyscallCount(Child);

impl SyscallCount {
    /// Begins to count the system calls of a process; `None` where `perf` is missing or may not.
    pub(crate) fn begin(pid: u32) -> Option<Self> {
        let mut command = Command::new("perf");
        command.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", &pid.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()?;
        // It does not report that it has attached; a server without load makes no system calls meanwhile.
        pause(Duration::from_millis(300));
        Some(Self(child))
    }

    /// Ends the count.
    pub(crate) fn end(self) -> Option<u64> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).ok()?;
        let output = self.0.wait_with_output().ok()?;
        parse(&String::from_utf8_lossy(&output.stderr))
    }
}

/// A profile under way.
#[derive(Debug)]
pub(crate) struct Profile {
    child: Child,
    data: PathBuf,
}

impl Profile {
    /// Begins to sample the functions that a process runs; `data` is a scratch file.
    pub(crate) fn begin(pid: u32, data: &Path) -> Option<Self> {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "cpu-clock", "-F", "2999", "-g", "-p", &pid.to_string(), "-o"]);
        let child = command.arg(data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().ok()?;
        pause(Duration::from_millis(300));
        Some(Self { child, data: data.to_owned() })
    }

    /// Ends it: the functions by their own share of the time, per thread, then callers of the dearest.
    pub(crate) fn end(mut self) -> Option<String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).ok()?;
        self.child.wait().ok()?;
        let report = |args: &[&str]| {
            let mut command = Command::new("perf");
            command.args(["report", "--stdio", "-i"]).arg(&self.data).args(args).stderr(Stdio::null());
            Some(String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned())
        };
        let flat = report(&["--no-children", "-g", "none", "--percent-limit", "0.4"])?;
        let inclusive = report(&["--children", "-g", "none", "--percent-limit", "1"])?;
        Some(format!("Own time\n{flat}\nWith callees\n{inclusive}"))
    }
}

/// The functions of a profile that take the most time themselves: share, thread, function.
pub(crate) fn dearest(profile: &str, count: usize) -> Vec<String> {
    let own = profile.split("With callees").next().unwrap_or(profile);
    let lines = own.lines().map(str::trim).filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let columns = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    lines.map(columns).take(count).collect()
}

fn parse(text: &str) -> Option<u64> {
    text.lines().find(|line| line.contains("sys_enter"))?.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_perf() {
        assert_eq!(parse("\n29,,raw_syscalls:sys_enter,1,100.00,,\n"), Some(29));
        assert_eq!(parse("<not counted>,,raw_syscalls:sys_enter,0,0.00,,\n"), None);
        assert_eq!(parse("Access to performance monitoring is limited.\n"), None);
    }

    #[test]
    fn the_dearest_functions_come_first_and_callers_not_at_all() {
        let text = "Own time\n# Samples\n    11.64%  shard-0   [k] spin\n     6.85%  shard-0   [k] copy\n\nWith callees\n 99% x\n";
        assert_eq!(dearest(text, 9), ["11.64% shard-0 [k] spin", "6.85% shard-0 [k] copy"]);
        assert_eq!(dearest(text, 1).len(), 1);
    }

    #[test]
    fn times_are_found_behind_any_name() {
        let line = "7 (a (b) c) S 1 7 7 0 -1 4194560 10 20 30 40 250 50 1 2 20 0 3 0 100 0 0";
        assert_eq!(ticks(line), Some(300));
        assert_eq!(ticks("7 (short) S 1"), None);
        cpu_ns(std::process::id()).unwrap();
        assert!(cpu_ns(u32::MAX).unwrap_err().to_string().contains("is gone"));
    }
}
