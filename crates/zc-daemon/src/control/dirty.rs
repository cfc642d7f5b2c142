//! Commands about dirty data.
//!
//! Job: `flush`, `drop-dirty` of all or unreadable data, `accept-loss`, a stop that never leaves dirty data silently,
//! and the durable record of volumes that may become dirty.
//!
//! Invariants: the control thread never blocks on a device; work on media runs on a thread of tokio's pool.
//!
//! It does not wait for a flush (a drop is waited for: it takes as long as the operations in flight). The caller polls
//! the counters in the reply.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use zc_config::Config;
use zc_core::Mode;

use crate::control::{InForce, Shared};
use zc_engine::error::EngineError;
use zc_engine::shard::commands::Command;
use zc_engine::shard::stats::ShardStats;
use zc_engine::state::ledger::Ledger;

impl Shared {
    /// Changes the pairing record.
    pub(crate) async fn on_media(
        &self,
        work: impl FnOnce(&Ledger) -> Result<(), EngineError> + Send + 'static,
    ) -> Result<(), String> {
        let ledger = Arc::clone(&self.ledger);
        self.work_on_cache(move || work(&ledger)).await
    }

    /// Runs blocking work that may fail with an error of the cache device, which is then reported to the data plane.
    pub(crate) async fn work_on_cache<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, String> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(|_| "the work on the cache device was interrupted".to_owned())?;
        if let Err(EngineError::CacheMissing { why }) = &done {
            self.mailbox.send(Command::LoseCache(why.clone()));
        }
        done.map_err(|error| error.to_string())
    }

    /// Durably records the volumes that a new configuration makes write-back.
    pub(crate) async fn announce_write_back(&self, in_force: &InForce, new: &Config) -> Result<(), String> {
        let served = |name: &str| {
            in_force.volumes.iter().any(|(known, config)| known == name && config.mode != Mode::ReadOnly)
        };
        let write_back = new.volumes.iter().filter(|volume| volume.mode == Mode::WriteBack);
        let names =
            write_back.map(|volume| volume.name.clone()).filter(|name| served(name)).collect::<Vec<_>>();
        self.announce(names).await
    }

    /// Durably records that volumes may become dirty. While the cache is offline none does.
    pub(crate) async fn announce(&self, names: Vec<String>) -> Result<(), String> {
        if names.is_empty() || !self.stats().await?.cache_healthy {
            return Ok(());
        }
        self.on_media(move |ledger| ledger.may_become_dirty(&names)).await
    }

    /// Starts destaging a volume, and returns its dirty bytes.
    pub(crate) async fn flush(&self, name: &str) -> Result<Value, String> {
        let id = self.id_of(name)?;
        // Before the drain begins: it covers each epoch that is dirty in this answer.
        let stats = self.stats().await?;
        self.mailbox.send(Command::Destage(id));
        Ok(json!({ "volume": name, "uptime_ms": stats.uptime_ms, "dirty": stats.dirty.get(name) }))
    }

    /// Discards a volume's dirty data: all of it, or only the unreadable part.
    pub(crate) async fn drop_dirty(&self, name: &str, unreadable: bool) -> Result<Value, String> {
        if unreadable { self.give_up_unreadable(name).await } else { self.forget_dirty(name).await }
    }

    /// Discards a volume's dirty data, and returns its amount.
    async fn forget_dirty(&self, name: &str) -> Result<Value, String> {
        let id = self.id_of(name)?;
        let stats = self.stats().await?;
        let remembered = !stats.cache_healthy;
        if remembered && let Some(dirty) = stats.dirty.get(name) {
            let (owned, epoch) = (name.to_owned(), dirty.newest_epoch);
            self.on_media(move |ledger| ledger.give_up(&owned, epoch)).await?;
        }
        let (reply, dropped) = oneshot::channel();
        self.mailbox.send(Command::DropDirty { volume: id, remembered, reply });
        if !dropped.await.map_err(|_| "the data plane has ended".to_owned())? {
            return Err(format!(
                "the cache device failed before it recorded that the dirty data of volume \"{name}\" is dropped, so \
                 the volume still has it; type `zcctl drop-dirty {name}` again to drop it without the device"
            ));
        }
        let owned = name.to_owned();
        self.on_media(move |ledger| ledger.is_complete(&owned)).await?;
        let lost = stats.dirty.get(name).map_or(0, |dirty| dirty.bytes);
        tracing::warn!(
            "volume \"{name}\": {lost} bytes of dirty data are dropped, as requested with `zcctl drop-dirty`; these \
             writes are lost"
        );
        Ok(json!({ "volume": name, "dropped": stats.dirty.get(name) }))
    }

    /// Discards the unreadable dirty data of a volume: zeros replace it. Returns its amount.
    async fn give_up_unreadable(&self, name: &str) -> Result<Value, String> {
        let id = self.id_of(name)?;
        let stats = self.stats().await?;
        let dirty = stats.dirty.get(name);
        if dirty.is_none_or(|dirty| dirty.unreadable_bytes == 0) {
            return Err(format!(
                "no dirty data of volume \"{name}\" is known to be unreadable; `zcctl flush {name}` reads all of it"
            ));
        }
        let (reply, given_up) = oneshot::channel();
        self.mailbox.send(Command::GiveUpUnreadable { volume: id, reply });
        if !given_up.await.map_err(|_| "the data plane has ended".to_owned())? {
            return Err(format!(
                "the unreadable dirty data of volume \"{name}\" stays: the cache device failed, or the volume is \
                 fenced; `zcctl status` shows the remedy"
            ));
        }
        let lost = dirty.map_or(0, |dirty| dirty.unreadable_bytes);
        tracing::warn!(
            "volume \"{name}\": {lost} bytes of dirty data that cannot be read are dropped, as requested with \
             `zcctl drop-dirty`; \
             they are zeros now"
        );
        Ok(json!({ "volume": name, "given_up_bytes": lost }))
    }

    /// Serves a volume again that is fenced because dirty data is missing; returns the recovered amount.
    pub(crate) async fn accept_loss(&self, name: &str) -> Result<Value, String> {
        let id = self.id_of(name)?;
        let stats = self.stats().await?;
        if !stats.dirty.get(name).is_some_and(|dirty| dirty.fenced) {
            return Err(format!("volume \"{name}\" is not fenced"));
        }
        if !stats.cache_healthy {
            return Err(format!(
                "volume \"{name}\" is fenced because the cache device does not answer, so there is no data to \
                 serve; `zcctl drop-dirty {name}` discards its dirty data"
            ));
        }
        let owned = name.to_owned();
        self.on_media(move |ledger| ledger.is_complete(&owned)).await?;
        self.mailbox.send(Command::AcceptLoss(id));
        tracing::warn!(
            "volume \"{name}\" is served in its recovered state, as requested: its newest writes may be missing"
        );
        let stats = self.stats().await?;
        Ok(json!({ "volume": name, "dirty": stats.dirty.get(name) }))
    }

    /// Stops the daemon; by default not while the cache has dirty data. With `flush`, everything is destaged first,
    /// and later writes of clients go to the origins.
    pub(crate) async fn asked_to_stop(&self, keep_dirty: bool, flush: bool) -> Result<Value, String> {
        if flush {
            let in_force = self.settings().await?;
            if let Err(error) = self.bring_all_to_origins(&in_force.volumes).await {
                // An ended data plane is reported elsewhere.
                let _ended = self.configure(in_force.volumes.clone()).await;
                return Err(format!("the daemon continues to serve: {error}"));
            }
        }
        let stats = self.stats().await?;
        if let Some(refusal) = dirty_refusal(&stats).filter(|_| !keep_dirty) {
            return Err(refusal);
        }
        self.stop();
        Ok(json!({ "dirty": stats.dirty }))
    }
}

/// Returns the reason against a stop.
fn dirty_refusal(stats: &ShardStats) -> Option<String> {
    let dirty: Vec<String> = stats
        .dirty
        .iter()
        .filter(|(_, dirty)| dirty.bytes > 0)
        .map(|(name, dirty)| format!("{} bytes of volume \"{name}\"", dirty.bytes))
        .collect();
    (!dirty.is_empty()).then(|| {
        format!(
            "the cache has dirty data: {}; flush first (`zcctl stop --flush`), or leave it on the cache until the \
             next start (`zcctl stop --keep-dirty`)",
            dirty.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_engine::shard::stats::Dirty;

    #[test]
    fn a_stop_is_refused_with_the_bytes_of_each_volume() {
        let mut stats = ShardStats::default();
        stats.dirty.insert("clean".to_owned(), Dirty::default());
        assert_eq!(dirty_refusal(&stats), None);
        stats.dirty.insert("db".to_owned(), Dirty { bytes: 4096, ..Dirty::default() });
        let text = dirty_refusal(&stats).unwrap();
        assert!(text.contains("4096 bytes of volume \"db\"") && !text.contains("clean"), "{text}");
    }
}
