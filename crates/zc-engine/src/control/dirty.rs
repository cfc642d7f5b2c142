//! The control plane's commands about what origins lack.
//!
//! Job: `flush`, `drop-dirty` of all or of what cannot be read, `accept-loss`, a stop that does not leave data behind
//! unsaid, and the durable word on which volumes may become dirty.
//!
//! Invariants: the control thread never blocks on a device; work on media runs on a thread of tokio's pool.
//!
//! It does not wait until a flush is done (a drop is waited for: it takes as long as what is in flight). The
//! asker looks at the answer's numbers and asks again.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use zc_config::Config;
use zc_core::Mode;

use crate::control::{InForce, Shared};
use crate::error::EngineError;
use crate::shard::commands::Command;
use crate::shard::stats::ShardStats;
use crate::state::ledger::Ledger;

impl Shared {
    /// Does something to the record of who has what.
    pub(crate) async fn on_media(
        &self,
        work: impl FnOnce(&Ledger) -> Result<(), EngineError> + Send + 'static,
    ) -> Result<(), String> {
        let ledger = Arc::clone(&self.ledger);
        self.work_on_cache(move || work(&ledger)).await
    }

    /// Does something that blocks and may meet an error of the cache device, which the data plane has to know of.
    pub(crate) async fn work_on_cache<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, String> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(|_| "the work on the cache device was cut off".to_owned())?;
        if let Err(EngineError::CacheMissing { why }) = &done {
            self.mailbox.send(Command::LoseCache(why.clone()));
        }
        done.map_err(|error| error.to_string())
    }

    /// Says durably which volumes a new configuration makes write-back.
    pub(crate) async fn announce_write_back(&self, in_force: &InForce, new: &Config) -> Result<(), String> {
        let served = |name: &str| {
            in_force.volumes.iter().any(|(known, config)| known == name && config.mode != Mode::ReadOnly)
        };
        let write_back = new.volumes.iter().filter(|volume| volume.mode == Mode::WriteBack);
        let names =
            write_back.map(|volume| volume.name.clone()).filter(|name| served(name)).collect::<Vec<_>>();
        self.announce(names).await
    }

    /// Says durably that volumes may become dirty. While the cache is out of order none does.
    pub(crate) async fn announce(&self, names: Vec<String>) -> Result<(), String> {
        if names.is_empty() || !self.stats().await?.cache_healthy {
            return Ok(());
        }
        self.on_media(move |ledger| ledger.may_become_dirty(&names)).await
    }

    /// Begins to bring a volume's dirty data to the origin, and reports how much there is.
    pub(crate) async fn flush(&self, name: &str) -> Result<Value, String> {
        let id = self.id_of(name)?;
        // Before the drain begins: it covers each epoch that is dirty in this answer.
        let stats = self.stats().await?;
        self.mailbox.send(Command::Destage(id));
        Ok(json!({ "volume": name, "uptime_ms": stats.uptime_ms, "dirty": stats.dirty.get(name) }))
    }

    /// Gives a volume's dirty data up: all, or only what cannot be read.
    pub(crate) async fn drop_dirty(&self, name: &str, unreadable: bool) -> Result<Value, String> {
        if unreadable { self.give_up_unreadable(name).await } else { self.forget_dirty(name).await }
    }

    /// Forgets a volume's dirty data, and says how much there was.
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
                "the cache device failed before it recorded that the dirty data of volume \"{name}\" is dropped, so the \
                 volume still has it; type `zcctl drop-dirty {name}` again to drop it without the device"
            ));
        }
        let owned = name.to_owned();
        self.on_media(move |ledger| ledger.is_complete(&owned)).await?;
        let lost = stats.dirty.get(name).map_or(0, |dirty| dirty.bytes);
        tracing::warn!(
            "volume \"{name}\": {lost} bytes of dirty data are dropped, as `zcctl drop-dirty` says; these writes are lost"
        );
        Ok(json!({ "volume": name, "dropped": stats.dirty.get(name) }))
    }

    /// Gives up what of a volume's dirty data cannot be read: zeros take its place. Says how much there was.
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
                "the unreadable dirty data of volume \"{name}\" stays: the cache device failed, or the volume is fenced; \
                 `zcctl status` says what to do"
            ));
        }
        let lost = dirty.map_or(0, |dirty| dirty.unreadable_bytes);
        tracing::warn!(
            "volume \"{name}\": {lost} bytes of dirty data that cannot be read are dropped, as `zcctl drop-dirty` says; \
             they are zeros now"
        );
        Ok(json!({ "volume": name, "given_up_bytes": lost }))
    }

    /// Has a volume served again that is fenced because some of its dirty data was not found; says what was.
    pub(crate) async fn accept_loss(&self, name: &str) -> Result<Value, String> {
        let id = self.id_of(name)?;
        let stats = self.stats().await?;
        if !stats.dirty.get(name).is_some_and(|dirty| dirty.fenced) {
            return Err(format!("volume \"{name}\" is not fenced"));
        }
        if !stats.cache_healthy {
            return Err(format!(
                "volume \"{name}\" is fenced because the cache device does not answer, so there is no data to go on \
                 with; `zcctl drop-dirty {name}` discards its dirty data"
            ));
        }
        let owned = name.to_owned();
        self.on_media(move |ledger| ledger.is_complete(&owned)).await?;
        self.mailbox.send(Command::AcceptLoss(id));
        tracing::warn!(
            "volume \"{name}\" is served as it was found, as asked: its newest writes may be missing"
        );
        let stats = self.stats().await?;
        Ok(json!({ "volume": name, "dirty": stats.dirty.get(name) }))
    }

    /// Stops; unless told otherwise not while the cache has dirty data. With `flush`, the origins get all of it first,
    /// and clients' writes go to the origins from then on.
    pub(crate) async fn asked_to_stop(&self, keep_dirty: bool, flush: bool) -> Result<Value, String> {
        if flush {
            let in_force = self.settings().await?;
            if let Err(error) = self.bring_all_to_origins(&in_force.volumes).await {
                // If the data plane has ended, that is reported already.
                let _ended = self.configure(in_force.volumes.clone()).await;
                return Err(format!("the daemon goes on serving: {error}"));
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

/// Why not to stop now.
fn dirty_refusal(stats: &ShardStats) -> Option<String> {
    let dirty: Vec<String> = stats
        .dirty
        .iter()
        .filter(|(_, dirty)| dirty.bytes > 0)
        .map(|(name, dirty)| format!("{} bytes of volume \"{name}\"", dirty.bytes))
        .collect();
    (!dirty.is_empty()).then(|| {
        format!(
            "the cache has dirty data: {}; flush first (`zcctl stop --flush`), or leave it on the cache until the next \
             start (`zcctl stop --keep-dirty`)",
            dirty.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::stats::Dirty;

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
