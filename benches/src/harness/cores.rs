//! Binding of servers and load generator to cores.
//!
//! Invariants: a process stays, with all its threads, on the core of this thread at its start.

use anyhow::{Context as _, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Two cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    /// For the load generator, where it does not share that of the server.
    pub(crate) client: usize,
}

impl Cores {
    /// The last two that this process may use: the first one often has the interrupts of devices.
    pub(crate) fn pick() -> anyhow::Result<Self> {
        let set = sched_getaffinity(None).context("cannot ask for the cores of this process")?;
        let mut usable = (0..CpuSet::MAX_CPU).rev().filter(|&core| set.is_set(core));
        let (server, client) = (usable.next(), usable.next());
        ensure!(client.is_some(), "this benchmark needs two cores: one for the server, one for its client");
        Ok(Self { server: server.unwrap_or(0), client: client.unwrap_or(0) })
    }
}

/// Binds this thread, and the processes that it starts from now on, to a core.
pub(crate) fn run_on(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_cores_differ_and_can_be_used() {
        let Ok(cores) = Cores::pick() else { return };
        assert_ne!(cores.server, cores.client);
        std::thread::spawn(move || {
            run_on(cores.server).unwrap();
            let set = sched_getaffinity(None).unwrap();
            assert!(set.is_set(cores.server) && set.count() == 1);
        })
        .join()
        .unwrap();
    }
}
