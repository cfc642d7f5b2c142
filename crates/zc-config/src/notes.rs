//! What a configuration means that a reader may not expect.
//!
//! Job: one sentence each, for `zcached check-config`. Invariant: notes are no mistakes; a daemon starts with them.
//!
//! What it does not do: look at devices.

use zc_core::units::Millis;
use zc_core::{Ack, Destage, Mode};

use crate::{Config, DestageWindow, Fingerprint};

impl Config {
    /// What is right and may still surprise.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let volatile = |volume: &&crate::VolumeConfig| {
            volume.mode == Mode::WriteBack && volume.ack != Some(Ack::Durable)
        };
        let weak = self.cache.fingerprint == Fingerprint::Sha1 && self.cache.learned_recipes_bytes > 0;
        let unused = weak.then(|| {
            "learned_recipes does nothing with fingerprint = \"sha1\": bytes could not be compared without the origin"
                .to_owned()
        });
        let in_memory = self.volumes.iter().filter(volatile).map(|volume| {
            let why = match volume.ack {
                Some(_) => "as asked with ack = \"volatile\"",
                None if self.cache.journal_path.is_some() => {
                    "the default unless journal_path turns out to be persistent memory"
                }
                None => "the default",
            };
            format!(
                "volume \"{}\": writes are acknowledged from memory ({why}), as by a disk with a volatile write \
                 cache: those that no flush followed are lost when the daemon is killed, and its block device is \
                 then removed, not taken over; ack = \"durable\" waits for the cache device instead",
                volume.name
            )
        });
        let coalesced = |volume: &&crate::VolumeConfig| {
            volume.mode == Mode::WriteBack && volume.destage == Destage::Coalesce
        };
        let unordered = self.volumes.iter().filter(coalesced).map(|volume| {
            format!(
                "volume \"{}\": with destage = \"coalesce\" the cache must not be lost while it has dirty data: the \
                 origin alone may then be no state that the volume ever had",
                volume.name
            )
        });
        let windows = self.volumes.iter().filter(|volume| volume.mode == Mode::WriteBack);
        let useless = windows.filter_map(|volume| {
            let gap_ms = u64::from(DestageWindow::longest_gap_minutes(&volume.destage_window)?) * 60_000;
            (volume.max_dirty_age_ms / 2 < gap_ms).then(|| {
                format!(
                    "volume \"{}\": destage_window leaves {} between two windows, and dirty data goes to the origin at \
                     half of max_dirty_age in any case, which is after {}",
                    volume.name,
                    Millis(gap_ms),
                    Millis(volume.max_dirty_age_ms / 2)
                )
            })
        });
        let addresses = [("listen", self.metrics.listen), ("page", self.metrics.page)];
        let open = addresses.into_iter().filter_map(|(key, address)| {
            let address = address.filter(|address| !address.ip().is_loopback())?;
            Some(format!(
                "metrics.{key}: whoever reaches {address} reads the names, sizes and counters of all volumes, without TLS \
                 and without a password; let a firewall keep others out"
            ))
        });
        unused.into_iter().chain(in_memory).chain(unordered).chain(useless).chain(open).collect()
    }
}
