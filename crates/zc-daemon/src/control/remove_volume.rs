//! Removes volumes while the daemon serves others.
//!
//! # Candidates
//! Volumes that are missing in the configuration at a reload. A volume in use stays, and the reply has the reason: it
//! is a block device, clients are connected, or it has dirty data. The other changes take effect.
//!
//! # Order, and effects of a crash
//! 1. Checks that may refuse. The plan for a block device is removed, so that none can be created.
//! 2. The data plane: no client can choose the volume, and none of its requests remains. The manager durably removes
//!    the volume (`zc-cache/CONSISTENCY.md`). Before that is complete, a start finds a volume that is missing in the
//!    configuration, and distrusts its remains.
//! 3. Volume table, then state directory. From then on the number is free, and the name denotes a new volume.
//!
//! # Out of scope
//! Destaging, closing connections and detaching devices: the operator does that, and retries.

use std::sync::Arc;

use tokio::sync::oneshot;
use zc_config::Config;
use zc_core::VolumeId;

use crate::control::add_volume::{Changed, volume_key};
use crate::control::{InForce, Shared};
use zc_engine::front::reloadable::FrontSettings;
use zc_engine::shard::commands::Command;
use zc_engine::shard::leaving::Removed;
use zc_engine::shard::stats::ShardStats;

/// Clients that a refusal names.
const NAMED_MAX: usize = 4;

impl Shared {
    /// Removes the volumes that are missing in a new configuration, as far as possible now.
    pub(crate) async fn remove_volumes(
        &self,
        in_force: &mut InForce,
        new: &Config,
    ) -> Result<Changed, String> {
        let mut changed = Changed::default();
        for name in gone(&in_force.config, new) {
            match self.take_away(in_force, &name).await {
                Ok(()) => changed.applied.push(volume_key(&name)),
                Err(why) => changed.refused.push((volume_key(&name), why)),
            }
        }
        Ok(changed)
    }

    /// Returns the prospective result of [`Shared::remove_volumes`].
    pub(crate) async fn would_remove(&self, in_force: &InForce, new: &Config) -> Result<Changed, String> {
        let mut changed = Changed::default();
        let stats = self.stats().await?;
        for name in gone(&in_force.config, new) {
            match self.obstacle(&stats, &name) {
                None => changed.applied.push(volume_key(&name)),
                Some(why) => changed.refused.push((volume_key(&name), why)),
            }
        }
        Ok(changed)
    }

    /// Returns the reason against a removal; continues the volume's name, in brackets.
    fn obstacle(&self, stats: &ShardStats, name: &str) -> Option<String> {
        let device = self.registry.volumes.get(name).and_then(|info| info.device.clone());
        if let Some(device) = device {
            return Some(format!("it is {device}: `zcctl detach {name}` first"));
        }
        let clients = self.clients_of(name);
        if !clients.is_empty() {
            let named: Vec<&str> = clients.iter().take(NAMED_MAX).map(String::as_str).collect();
            let more = clients.len() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            return Some(format!(
                "clients are connected, {}{more}: close them, or type `zcctl disconnect --volume {name}` first",
                named.join(", ")
            ));
        }
        if !stats.cache_healthy {
            return Some("the cache device does not answer, and must record the removal first".to_owned());
        }
        let dirty = stats.dirty.get(name)?;
        if dirty.fenced {
            return Some(format!(
                "it is fenced, and may have dirty data: `zcctl drop-dirty {name} --force` discards that"
            ));
        }
        (dirty.bytes > 0 || dirty.waiting_writes > 0)
            .then(|| format!("it has {} bytes of dirty data: `zcctl flush {name}` first", dirty.bytes))
    }

    fn clients_of(&self, name: &str) -> Vec<String> {
        let connections = self.registry.connections.iter();
        let mut clients: Vec<(u64, String)> = connections
            .filter(|entry| entry.export.as_deref() == Some(name))
            .map(|entry| (*entry.key(), entry.peer.clone()))
            .collect();
        clients.sort_unstable();
        clients.into_iter().map(|(_, peer)| peer).collect()
    }

    /// Removes a volume, or returns the reason against it.
    async fn take_away(&self, in_force: &mut InForce, name: &str) -> Result<(), String> {
        let id = self.id_of(name)?;
        if let Some(why) = self.obstacle(&*self.stats().await?, name) {
            return Err(why);
        }
        // A running recording ends with its volume.
        let _not_recorded = self.record_stop(name).await;
        let plan = self.ublk.forget(name).await?;
        let removed = self.forget_on_data_plane(id).await;
        let volume = match removed {
            Ok(volume) => volume,
            Err(why) => {
                // It is served again, but becomes a device only on an operator's request.
                self.restore_exports(in_force);
                if let Some(plan) = plan {
                    self.ublk.add(plan.on_demand()).await?;
                }
                return Err(why);
            }
        };
        // This may close the last file of a store, which may block.
        let stores = Arc::clone(&self.stores);
        let close = move || {
            drop(volume);
            stores.remotes().close_unused();
        };
        drop(tokio::task::spawn_blocking(close).await);
        self.let_go(name);
        in_force.volumes.retain(|(known, _)| known != name);
        in_force.config.volumes.retain(|volume| volume.name != name);
        tracing::info!("volume \"{name}\" is not served any more; its origin has all data");
        let owned = name.to_owned();
        let ledger = Arc::clone(&self.ledger);
        if let Err(error) = self.work_on_cache(move || ledger.forget(&owned)).await {
            tracing::warn!("volume \"{name}\": its number is not free before the next start: {error}");
        }
        Ok(())
    }

    async fn forget_on_data_plane(&self, volume: VolumeId) -> Removed {
        let (reply, removed) = oneshot::channel();
        self.mailbox.send(Command::Remove { volume, reply });
        removed.await.map_err(|_| "the data plane is busy or has ended".to_owned())?
    }

    fn restore_exports(&self, in_force: &InForce) {
        let front: FrontSettings = in_force.front();
        self.mailbox.send(Command::Front(Box::new(front)));
    }
}

/// Names of volumes that a new configuration lacks.
fn gone(old: &Config, new: &Config) -> Vec<String> {
    let stays = |name: &str| new.volumes.iter().any(|volume| volume.name == name);
    let gone = old.volumes.iter().filter(|volume| !stays(&volume.name));
    gone.map(|volume| volume.name.clone()).collect()
}
