//! Quickstart's view of a running daemon.

use std::time::Duration;

use anyhow::Context as _;
use zc_daemon::{Daemon, ShardStats};

/// The counters.
///
/// # Errors
/// If the daemon has ended.
pub(super) fn stats(daemon: &Daemon) -> anyhow::Result<ShardStats> {
    daemon.stats().context("the daemon has ended")
}

/// Waits until the reduce workers are idle.
pub(super) fn settle(daemon: &Daemon) -> anyhow::Result<()> {
    while stats(daemon)?.driver.reduce_jobs_waiting > 0 {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits until all content of earlier starts is available: earlier reads would go to the origin.
pub(super) fn wait_for_index(daemon: &Daemon) -> anyhow::Result<()> {
    loop {
        let stats = stats(daemon)?;
        if stats.index_loaded_ms.is_some() || stats.cache_fault.is_some() {
            return Ok(());
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
