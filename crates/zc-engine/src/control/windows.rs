//! Windows for destaging: which volumes may destage idly at this time of day.
//!
//! Job: look at the local time once in [`WINDOW_LOOK_MS`], and tell the data plane of volumes whose window opens or
//! closes.
//!
//! Invariants: the data plane knows no time of day. A volume with windows waits until it is told that one is open: after
//! a start, a reload or its return for one look at most.
//!
//! It does not destage. A window that closes lets a run that began go to its end.

use std::sync::Arc;
use std::time::Duration;

use zc_cache::config::{VolumeConfig, WriteBackConfig};
use zc_config::DestageWindow;

use crate::clock::minute_of_day;
use crate::control::{InForce, Shared};
use crate::limits::WINDOW_LOOK_MS;

/// Opens and closes windows until the daemon ends.
pub(crate) async fn watch_windows(shared: Arc<Shared>) {
    loop {
        // What cannot be told now is told by the next look.
        if let Err(error) = shared.look_at_windows().await {
            tracing::debug!("cannot look at windows for destaging: {error}");
        }
        tokio::time::sleep(Duration::from_millis(WINDOW_LOOK_MS)).await;
    }
}

/// Returns `true` if a volume with these windows may destage idly.
fn is_open(windows: &[DestageWindow], minute: u16) -> bool {
    windows.is_empty() || windows.iter().any(|window| window.contains(minute))
}

impl InForce {
    /// The volumes of which another thing is true at this minute of the day than what the data plane knows, with what
    /// it is to know.
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
            tracing::info!("volume \"{name}\": its window for destaging {what}");
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
