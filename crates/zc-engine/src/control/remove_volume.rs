//! Volumes that go while the daemon serves others.
//!
//! # Which
//! Those that a reload does not find in the configuration any more. One that is in use stays, and the answer says why: it
//! is a block device, clients are connected, or the cache has what its origin lacks. The other changes take effect.
//!
//! # The order, and what a crash leaves
//! 1. What can be refused. The plan for a block device goes, so that there is none from now on.
//! 2. The data plane: no client can choose the volume, and no request of it is left. The manager forgets the volume,
//!    durably (`zc-cache/CONSISTENCY.md`). Until that is done a start finds a volume that the configuration does not
//!    name, and believes nothing of what is left of it.
//! 3. Volume table, then state directory. From then on the number is free, and the name is that of a new volume.
//!
//! # What it does not do
//! Bring dirty data to the origin, close connections or detach devices: the operator does, and asks again.

use std::sync::Arc;

use tokio::sync::oneshot;
use zc_config::Config;
use zc_core::VolumeId;

use crate::control::add_volume::{Changed, volume_key};
use crate::control::{InForce, Shared};
use crate::error::EngineError;
use crate::front::reloadable::FrontSettings;
use crate::shard::commands::Command;
use crate::shard::leaving::Removed;
use crate::shard::stats::ShardStats;
use crate::state::ledger::Ledger;

/// Clients that a refusal names.
const NAMED_MAX: usize = 4;

impl Shared {
    /// Takes away the volumes that a new configuration lacks, as far as that is possible now.
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

    /// What [`Shared::remove_volumes`] would come to now.
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

    /// Why a volume has to stay; reads on from its name, in brackets.
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
                "clients are connected, {}{more}: let them go, or `zcctl disconnect --volume {name}` first",
                named.join(", ")
            ));
        }
        if !stats.cache_healthy {
            return Some("the cache device does not answer, and has to record the removal first".to_owned());
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

    /// Takes a volume away, or says why it stays.
    async fn take_away(&self, in_force: &mut InForce, name: &str) -> Result<(), String> {
        let id = self.id_of(name)?;
        if let Some(why) = self.obstacle(&*self.stats().await?, name) {
            return Err(why);
        }
        // One that runs ends with its volume.
        let _not_recorded = self.record_stop(name).await;
        let plan = self.ublk.forget(name).await?;
        let removed = self.forget_on_data_plane(id).await;
        let volume = match removed {
            Ok(volume) => volume,
            Err(why) => {
                // It is served again, as a device only if an operator asks for that.
                self.restore_exports(in_force);
                if let Some(plan) = plan {
                    self.ublk.add(plan.on_demand()).await?;
                }
                return Err(why);
            }
        };
        // Its last file may be closed now, which may take time.
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

impl Ledger {
    /// Forgets a volume of which the cache holds nothing, so that its number is free. Blocks.
    fn forget(&self, name: &str) -> Result<(), EngineError> {
        // First the table: without it, what the state directory says of the name is about no volume.
        self.set_table(|table| table.records.retain(|record| record.name != name))?;
        self.state().update(|state| drop(state.volumes.remove(name)))?;
        self.drop_stamp(name);
        Ok(())
    }
}
