//! Detects origins that are truncated while they are served.
//!
//! Job: measure every raw origin once in [`LENGTHS_PAUSE_MS`]; withdraw one that is shorter than its volume, and
//! report it.
//!
//! # Reason for withdrawal
//! A write beyond the new end extends the file again, with a hole in place of data. The loss is then undetectable, and
//! reads return zeros. So no request goes to such an origin until the daemon restarts; dirty data stays on the cache.
//! Then the state directory records it, so that a start after a kill distrusts the volume's clean contents as well. It
//! keeps the previous length, which `session/pair` compares. Operators are notified after that.
//!
//! Invariants: measuring an unresponsive origin delays neither the data plane nor other measurements. Each origin has
//! at most one measurement in progress.
//!
//! Detection is not immediate. Between two measurements, a write can extend the origin again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use zc_core::VolumeId;

use crate::control::Shared;
use crate::limits::{LENGTHS_PAUSE_MS, ORIGIN_LOOK_MS};
use zc_engine::shard::commands::Command;
use zc_engine::shard::lengths::OriginProbe;

type Answer = oneshot::Receiver<std::io::Result<u64>>;

/// Measures the origins until the daemon ends.
pub(crate) async fn look_at_lengths(shared: Arc<Shared>) {
    let mut hanging: BTreeMap<VolumeId, Answer> = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_millis(LENGTHS_PAUSE_MS)).await;
        let (reply, origins) = oneshot::channel();
        shared.mailbox.send(Command::Lengths(reply));
        hanging.retain(|_, answer| matches!(answer.try_recv(), Err(TryRecvError::Empty)));
        for origin in origins.await.unwrap_or_default() {
            if !hanging.contains_key(&origin.volume)
                && let Some(answer) = shared.look_at(&origin).await
            {
                hanging.insert(origin.volume, answer);
            }
        }
    }
}

impl Shared {
    /// Measures an origin. Returns the pending measurement if it does not respond in time.
    async fn look_at(&self, origin: &OriginProbe) -> Option<Answer> {
        let (tell, mut answer) = oneshot::channel();
        let probe = origin.probe.clone();
        let measure = move || {
            let _too_late = tell.send(probe.measure());
        };
        // Without a thread the next interval retries.
        std::thread::Builder::new().name("origin-length".to_owned()).spawn(measure).ok()?;
        let outcome = tokio::time::timeout(Duration::from_millis(ORIGIN_LOOK_MS), &mut answer).await;
        match outcome {
            Err(_) => return Some(answer),
            Ok(Ok(Ok(len_bytes))) if len_bytes < origin.size_bytes => {
                self.origin_cut(origin, len_bytes).await;
            }
            // Requests report a failing origin.
            Ok(_) => {}
        }
        None
    }

    async fn origin_cut(&self, origin: &OriginProbe, len_bytes: u64) {
        let OriginProbe { volume, name, size_bytes, .. } = origin;
        self.mailbox.send(Command::Withdraw(*volume));
        // Reported only after it is durable, so that a later kill finds it.
        let owned = name.clone();
        let recorded = self.on_media(move |ledger| ledger.origin_was_cut(&owned)).await;
        let mut place = String::new();
        if let Some(mut info) = self.registry.volumes.get_mut(name) {
            info.origin_truncated_bytes = Some(len_bytes);
            place = info.origin.display().to_string();
        }
        tracing::error!(
            "volume \"{name}\": {place} was truncated from {size_bytes} to {len_bytes} bytes while it was served; \
             it is no longer read or written, and dirty data stays on the cache. Type `zcctl stop \
             --keep-dirty`, make it {size_bytes} bytes long again (`truncate --size={size_bytes}` for a file), then \
             start"
        );
        if let Err(error) = recorded {
            tracing::error!(
                "volume \"{name}\": cannot record that its cached data is invalid: {error}; after a kill, start \
                 with --cold"
            );
        }
    }
}
