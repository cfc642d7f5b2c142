//! Destage windows: volumes that may destage idly at this time of day.
//!
//! Job: check the local time once in [`WINDOW_LOOK_MS`], and notify the data plane of volumes whose window opens or
//! closes.
//!
//! Invariants: the data plane has no time of day. A volume with windows waits until it is notified of an open one:
//! after a start, a reload or its return for one interval at most.
//!
//! It does not destage. A run in progress continues when its window closes.

use std::sync::Arc;
use std::time::Duration;

use zc_cache::config::{VolumeConfig, WriteBackConfig};
use zc_config::DestageWindow;

use crate::control::{InForce, Shared};
use crate::limits::WINDOW_LOOK_MS;
use zc_engine::clock::minute_of_day;

/// Opens and closes windows until the daemon ends.
pub(crate) async fn watch_windows(shared: Arc<Shared>) {
    loop {
        // The next interval retries.
        if let Err(error) = shared.look_at_windows().await {
            tracing::debug!("cannot evaluate destage windows: {error}");
        }
        tokio::time::sleep(Duration::from_millis(WINDOW_LOOK_MS)).await;
    }
}

/// Returns `true` if a volume with these windows may destage idly.
fn is_open(windows: &[DestageWindow], minute: u16) -> bool {
    windows.is_empty() || windows.iter().any(|window| window.contains(minute))
}

impl InForce {
    /// Returns the volumes whose window opened or closed since the data plane was last updated, with their new
    /// settings.
    fn windows_moved(&self, minute: u16) -> Vec<(String, VolumeConfig)> {
        let moved = |(name, current): &(String, VolumeConfig)| {
            let volume = self.config.volumes.iter().find(|volume| volume.name == *name)?;
            let destages_idly = is_open(&volume.destage_window, minute);
            let write_back = WriteBackConfig { destages_idly, ..current.write_back };
            (write_back != current.write_back)
                .then(|| (name.clone(), VolumeConfig { write_back, ..current.clone() }))
        };
        self.volumes.iter().filter_map(moved).collect()
    }
}

impl Shared {
    async fn look_at_windows(&self) -> Result<(), String> {
        let mut in_force = self.settings().await?;
        let moved = in_force.windows_moved(minute_of_day());
        if moved.is_empty() {
            return Ok(());
        }
        self.configure(moved.clone()).await?;
        for (name, config) in moved {
            let what = if config.write_back.destages_idly { "opens" } else { "closes" };
            tracing::info!("volume \"{name}\": its destage window {what}");
            if let Some((_, current)) = in_force.volumes.iter_mut().find(|(known, _)| *known == name) {
                *current = config;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_is_always_open() {
        let windows = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        assert!(is_open(&[], 0));
        let two = windows(&["22:00-06:00", "12:00-13:00"]);
        assert!(is_open(&two, 0) && is_open(&two, 12 * 60 + 59) && !is_open(&two, 13 * 60));
    }
}
