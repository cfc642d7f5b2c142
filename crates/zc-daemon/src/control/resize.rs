//! Enlarges a volume while it is served: `zcctl resize`, after its origin has grown.
//!
//! # Order, and effects of a crash
//! 1. The origin is measured; a file is extended first, if requested. The new length is not used yet.
//! 2. State directory and volume table are updated durably: a start then finds the recorded origin. After an earlier
//!    crash it finds one of another length, and reacts as usual: the volume starts cold, or not at all while only the
//!    cache has some of its data.
//! 3. The data plane: the origin's bound, the manager, exports, the devices that the shard serves.
//! 4. The kernel's block device, whose users are notified and may use the new range at once.
//!
//! Step 3 is safe with requests in flight: all of them end at or before the old end. The manager's `grow` explains why
//! the cache holds nothing beyond it.
//!
//! # Out of scope
//! Shrinking a volume. An origin that is truncated under a running daemon is withdrawn (`lengths`). The stop reports
//! it and records the previous length (`close`). The next start proceeds if the origin has that length again;
//! otherwise the volume starts with the new length, cold, and not at all while it has dirty data.
//! Connected NBD clients are not notified of a new size, because the protocol has no message for it; they keep the old
//! size, and later connections get the new one.

use serde_json::{Value, json};
use tokio::sync::oneshot;
use zc_core::VolumeId;

use crate::control::Shared;
use zc_engine::origin::OriginStat;
use zc_engine::shard::commands::Command;

impl Shared {
    /// Sets the size of a volume to that of its origin; extends a file origin first, if requested.
    pub(crate) async fn resize(&self, name: &str, size_bytes: Option<u64>) -> Result<Value, String> {
        let mut in_force = self.settings().await?;
        let volume = in_force.volumes.iter_mut().find(|(known, _)| known == name);
        let Some((_, config)) = volume else { return Err(format!("there is no volume \"{name}\"")) };
        if !self.stats().await?.cache_healthy {
            return Err("the cache device does not answer, and must record the new size first".to_owned());
        }
        let before_bytes = config.size_bytes;
        if let Some(wanted) = size_bytes {
            check_wanted(name, wanted, before_bytes)?;
        }
        let origin_stat = self.measure(config.id, size_bytes).await?;
        check_measured(name, origin_stat.len_bytes, before_bytes, size_bytes)?;
        let new_bytes = origin_stat.len_bytes;
        if new_bytes > before_bytes {
            let owned = name.to_owned();
            self.on_media(move |ledger| ledger.origin_grew(&owned, &origin_stat)).await?;
            self.grow(config.id, new_bytes).await?;
            config.size_bytes = new_bytes;
            if let Some(mut info) = self.registry.volumes.get_mut(name) {
                info.size_bytes = new_bytes;
            }
            tracing::info!("volume \"{name}\" has {new_bytes} bytes now, {before_bytes} before");
        }
        drop(in_force);
        // Also without a new size: the device may have kept the former one.
        let (device, kept) = match self.ublk.resize(name, new_bytes).await {
            Ok(device) => (device, None),
            Err(reason) => (None, Some(reason)),
        };
        Ok(json!({
            "volume": name, "before_bytes": before_bytes, "size_bytes": new_bytes, "device": device, "device_error": kept,
        }))
    }

    async fn measure(&self, volume: VolumeId, at_least_bytes: Option<u64>) -> Result<OriginStat, String> {
        let (reply, measured) = oneshot::channel();
        self.mailbox.send(Command::Measure { volume, at_least_bytes, reply });
        let measured = measured.await.map_err(|_| "the data plane is busy or has ended".to_owned())?;
        measured.map_err(|error| error.to_string())
    }

    async fn grow(&self, volume: VolumeId, size_bytes: u64) -> Result<(), String> {
        let (reply, done) = oneshot::channel();
        self.mailbox.send(Command::Grow { volume, size_bytes, reply });
        done.await.map_err(|_| "the data plane is busy or has ended; try again".to_owned())
    }
}

/// Checks a requested size before any action.
fn check_wanted(name: &str, wanted_bytes: u64, before_bytes: u64) -> Result<(), String> {
    if wanted_bytes < before_bytes {
        return Err(format!(
            "volume \"{name}\" has {before_bytes} bytes and only grows: to make it smaller, stop the daemon, shrink \
             the origin and start again; what the cache holds of the volume starts cold then"
        ));
    }
    if !wanted_bytes.is_multiple_of(u64::from(zc_core::SECTOR_BYTES)) {
        return Err(format!("{wanted_bytes} bytes are not whole sectors of {}", zc_core::SECTOR_BYTES));
    }
    Ok(())
}

fn check_measured(
    name: &str,
    measured_bytes: u64,
    before_bytes: u64,
    wanted_bytes: Option<u64>,
) -> Result<(), String> {
    if measured_bytes < before_bytes {
        return Err(format!(
            "the origin of volume \"{name}\" has shrunk to {measured_bytes} bytes, below the {before_bytes} of the \
             volume, and requests beyond its end fail; extend it again, or stop the daemon and start it again"
        ));
    }
    if let Some(wanted) = wanted_bytes.filter(|wanted| *wanted != measured_bytes) {
        return Err(format!(
            "the origin of volume \"{name}\" has {measured_bytes} bytes, not {wanted}; a volume is as large as its \
             origin"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_grows_to_the_end_of_its_origin_is_resized() {
        check_wanted("a", 4096, 4096).unwrap();
        assert!(check_wanted("a", 512, 4096).unwrap_err().contains("only grows"));
        assert!(check_wanted("a", 5000, 4096).unwrap_err().contains("whole sectors"));
        check_measured("a", 8192, 4096, None).unwrap();
        check_measured("a", 8192, 4096, Some(8192)).unwrap();
        assert!(check_measured("a", 512, 4096, None).unwrap_err().contains("has shrunk"));
        assert!(check_measured("a", 8192, 4096, Some(6144)).unwrap_err().contains("as large as its origin"));
    }
}
