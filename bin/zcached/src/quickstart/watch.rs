//! Quickstart's view of a running engine.

use std::time::Duration;

use anyhow::Context as _;
use zc_engine::{Engine, ShardStats};

/// The counters.
///
/// # Errors
/// The engine has ended.
pub(super) fn stats(engine: &Engine) -> anyhow::Result<ShardStats> {
    engine.stats().context("the engine has ended")
}

/// Waits until nothing waits for the reduce workers.
pub(super) fn settle(engine: &Engine) -> anyhow::Result<()> {
    while stats(engine)?.driver.reduce_jobs_waiting > 0 {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits until all content of earlier starts is available: earlier reads would go to the origin.
pub(super) fn wait_for_index(engine: &Engine) -> anyhow::Result<()> {
    loop {
        let stats = stats(engine)?;
        if stats.index_loaded_ms.is_some() || stats.cache_fault.is_some() {
            return Ok(());
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
