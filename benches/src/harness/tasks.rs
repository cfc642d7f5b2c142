//! Run times and context switches of a process's threads.
//!
//! Invariants: times are the scheduler's, in nanoseconds: /proc/PID/stat counts in steps of ten milliseconds, too
//! coarse for one short run. The kernel's io_uring threads of the process count.
//!
//! Threads that start and end between two readings are missed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

/// Sums over threads, or the difference of two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Nanoseconds of user and system time.
    pub(crate) cpu_ns: u64,
    /// Context switches, both of threads that waited and of those that were pushed aside.
    pub(crate) switches: u64,
}

/// The threads of a process at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tasks(BTreeMap<u32, Used>);

impl Tasks {
    /// Reads the tasks of a process.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let dir = Path::new("/proc").join(pid.to_string()).join("task");
        let entries = std::fs::read_dir(&dir).with_context(|| format!("process {pid} is gone"))?;
        let mut tasks = BTreeMap::new();
        for entry in entries {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may end between the two.
            if let Some(used) = one(&entry.path())? {
                tasks.insert(id, used);
            }
        }
        Ok(Self(tasks))
    }

    /// Returns the use since `before`.
    pub(crate) fn since(&self, before: &Self) -> Used {
        let mut sum = Used::default();
        for (id, now) in &self.0 {
            let then = before.0.get(id).copied().unwrap_or_default();
            sum.cpu_ns += now.cpu_ns.saturating_sub(then.cpu_ns);
            sum.switches += now.switches.saturating_sub(then.switches);
        }
        sum
    }
}

fn one(task: &Path) -> anyhow::Result<Option<Used>> {
    let Ok(status) = std::fs::read_to_string(task.join("status")) else { return Ok(None) };
    let Ok(schedstat) = std::fs::read_to_string(task.join("schedstat")) else {
        return if task.exists() {
            anyhow::bail!("the kernel has no schedstat of threads")
        } else {
            Ok(None)
        };
    };
    parse(&schedstat, &status).map(Some).with_context(|| format!("{} has another form", task.display()))
}

/// The first field of a thread's schedstat, and both counts of switches in its status.
fn parse(schedstat: &str, status: &str) -> Option<Used> {
    let cpu_ns = schedstat.split_whitespace().next()?.parse().ok()?;
    let count = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let switches = count("voluntary_ctxt_switches:")? + count("nonvoluntary_ctxt_switches:")?;
    Some(Used { cpu_ns, switches })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(of: &[(u32, u64, u64)]) -> Tasks {
        Tasks(of.iter().map(|&(id, cpu_ns, switches)| (id, Used { cpu_ns, switches })).collect())
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(parse("1678628 12 1\n", status), Some(Used { cpu_ns: 1_678_628, switches: 9 }));
        assert_eq!(parse("1678628 12 1\n", "Name:\ta\n"), None);
        assert!(Tasks::of(u32::MAX).unwrap_err().to_string().contains("is gone"));
    }

    #[test]
    fn threads_that_began_or_ended_do_not_disturb_the_others() {
        let before = tasks(&[(1, 100, 10), (2, 50, 5)]);
        let now = tasks(&[(1, 130, 12), (3, 7, 1)]);
        assert_eq!(now.since(&before), Used { cpu_ns: 37, switches: 3 });
    }

    #[test]
    fn this_process_is_seen() {
        let before = Tasks::of(std::process::id()).unwrap();
        assert!(before.0.values().any(|used| used.cpu_ns > 0), "{before:?}");
        let now = Tasks::of(std::process::id()).unwrap();
        assert!(now.since(&before).cpu_ns <= now.since(&Tasks::default()).cpu_ns);
    }
}
