//! The control plane's commands about warm-ups.
//!
//! Job: check ranges, pass them to the data plane, answer how far it is.
//!
//! It does not choose ranges (`zcctl` does), or warm anything (`shard/warm`).

use std::ops::Range;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use zc_cache::config::VolumeConfig;
use zc_core::Mode;

use crate::control::Shared;
use zc_engine::shard::commands::Command;
use zc_engine::shard::warm::{WarmCommand, WarmRanges};

/// Ranges in a request: first byte and length.
pub(crate) struct Ranges {
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) is_last: bool,
}

impl Ranges {
    /// Checks them against the volume.
    fn of(self, config: &VolumeConfig) -> Result<WarmRanges, String> {
        let size_bytes = config.size_bytes;
        let inside = |(start, len): (u64, u64)| {
            let end = start.checked_add(len).filter(|end| *end <= size_bytes && len > 0);
            end.map(|end| start..end)
                .ok_or_else(|| format!("{len} bytes from {start} on are no range of its {size_bytes} bytes"))
        };
        let ranges = self.ranges.into_iter().map(inside).collect::<Result<Vec<Range<u64>>, _>>()?;
        Ok(WarmRanges { ranges, is_last: self.is_last })
    }
}

impl Shared {
    /// Begins to warm a volume.
    pub(crate) async fn warm_start(
        &self,
        name: &str,
        ranges: Ranges,
        limit_bytes_per_s: u64,
    ) -> Result<Value, String> {
        let config = self.volume_config(name).await?;
        if config.mode == Mode::PassThrough {
            return Err(format!(
                "volume \"{name}\" is in pass-through and uses no cache; `zcctl set-mode {name} write-through` \
                 changes that"
            ));
        }
        if !self.stats().await?.cache_healthy {
            return Err("the cache device is offline; `zcctl status` shows the remedy".to_owned());
        }
        let more = ranges.of(&config).map_err(|why| format!("volume \"{name}\": {why}"))?;
        self.ask_warm(name, WarmCommand::Start { more, limit_bytes_per_s }).await
    }

    /// Adds ranges to a warm-up.
    pub(crate) async fn warm_add(&self, name: &str, ranges: Ranges) -> Result<Value, String> {
        let config = self.volume_config(name).await?;
        let more = ranges.of(&config).map_err(|why| format!("volume \"{name}\": {why}"))?;
        self.ask_warm(name, WarmCommand::Add(more)).await
    }

    /// Returns the progress of a warm-up, and extends its time-out.
    pub(crate) async fn warm_status(&self, name: &str) -> Result<Value, String> {
        self.ask_warm(name, WarmCommand::Look).await
    }

    /// Ends a warm-up.
    pub(crate) async fn warm_stop(&self, name: &str) -> Result<Value, String> {
        self.ask_warm(name, WarmCommand::Stop).await
    }

    async fn ask_warm(&self, name: &str, ask: WarmCommand) -> Result<Value, String> {
        let volume = self.id_of(name)?;
        let (reply, answer) = oneshot::channel();
        self.mailbox.send(Command::Warm { volume, ask, reply });
        let answer = answer.await.map_err(|_| "the data plane is busy or has ended".to_owned())?;
        let warm = answer.map_err(|why| format!("volume \"{name}\": {why}"))?;
        Ok(json!({ "volume": name, "warm": warm }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_the_volume_are_refused() {
        let config = VolumeConfig::new(zc_core::VolumeId(1), 100, 1 << 20);
        let of = |ranges| Ranges { ranges, is_last: true }.of(&config);
        assert_eq!(of(vec![(0, 100), (99, 1)]).unwrap().ranges, [0..100, 99..100]);
        for wrong in [(0, 101), (100, 1), (5, 0), (u64::MAX, 2)] {
            assert!(of(vec![wrong]).unwrap_err().contains("no range of its 100 bytes"), "{wrong:?}");
        }
    }
}
