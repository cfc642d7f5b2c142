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
use zc_cache::seam::Event;
use zc_config::Config;
use zc_core::{ErrorKind, VolumeId};

use crate::added::{Changed, volume_key};
use crate::commands::Command;
use crate::control::{InForce, Shared};
use crate::custody::Custody;
use crate::error::EngineError;
use crate::front_settings::FrontSettings;
use crate::shard::{Shard, Volume};
use crate::stats::ShardStats;

/// Clients that a refusal names.
const NAMED_MAX: usize = 4;

/// The volume as the data plane had it; closing its origin may take time.
pub(crate) type Removed = Result<Box<Volume>, String>;

/// A volume that is going, on the data plane.
#[derive(Debug)]
pub(crate) struct Leaving {
    reply: oneshot::Sender<Removed>,
    /// The manager was told.
    is_told: bool,
}

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
                // It is served again, as a device only if somebody asks for that.
                self.restore_exports(in_force)?;
                if let Some(plan) = plan {
                    self.ublk.add(plan.on_demand()).await?;
                }
                return Err(why);
            }
        };
        // Its last file may be closed now, which may take time.
        drop(tokio::task::spawn_blocking(move || drop(volume)).await);
        self.let_go(name);
        in_force.volumes.retain(|(known, _)| known != name);
        in_force.config.volumes.retain(|volume| volume.name != name);
        tracing::info!("volume \"{name}\" is not served any more; its origin has all data");
        let owned = name.to_owned();
        let custody = Arc::clone(&self.custody);
        if let Err(error) = self.work_on_cache(move || custody.forget(&owned)).await {
            tracing::warn!("volume \"{name}\": its number is not free before the next start: {error}");
        }
        Ok(())
    }

    async fn forget_on_data_plane(&self, volume: VolumeId) -> Removed {
        let (reply, removed) = oneshot::channel();
        self.mailbox.send(Command::Remove { volume, reply });
        removed.await.map_err(|_| "the data plane is busy or has ended".to_owned())?
    }

    fn restore_exports(&self, in_force: &InForce) -> Result<(), String> {
        let tls = crate::tls::load(&in_force.config.nbd).map_err(|error| error.to_string())?;
        let front: FrontSettings = in_force.front(tls);
        self.mailbox.send(Command::Front(Box::new(front)));
        Ok(())
    }
}

/// Names of volumes that a new configuration lacks.
fn gone(old: &Config, new: &Config) -> Vec<String> {
    let stays = |name: &str| new.volumes.iter().any(|volume| volume.name == name);
    let gone = old.volumes.iter().filter(|volume| !stays(&volume.name));
    gone.map(|volume| volume.name.clone()).collect()
}

impl Custody {
    /// Forgets a volume of which the cache holds nothing, so that its number is free. Blocks.
    fn forget(&self, name: &str) -> Result<(), EngineError> {
        // First the table: without it, what the state directory says of the name is about no volume.
        self.set_table(|table| table.records.retain(|record| record.name != name))?;
        self.state().update(|state| drop(state.volumes.remove(name)))?;
        self.drop_stamp(name);
        Ok(())
    }
}

impl Shard {
    /// Lets a volume go that nobody uses; answered when the cache holds nothing of it any more.
    pub(crate) fn remove_volume(&mut self, id: VolumeId, reply: oneshot::Sender<Removed>) {
        if let Some(why) = self.is_used(id) {
            let _asker_left = reply.send(Err(why.to_owned()));
            return;
        }
        let name = self.volume_mut(id).name.clone();
        for export in self.nbd.exports.iter_mut().filter(|export| export.info.name == name) {
            // In its place, so that no other volume becomes the default export.
            *export = crate::access::Export::absent(&name);
        }
        self.leaving.insert(id, Leaving { reply, is_told: false });
    }

    /// Why a volume cannot go now.
    fn is_used(&self, id: VolumeId) -> Option<&'static str> {
        let dirty = self.manager.dirty(id).unwrap_or_default();
        let has_conn = self.nbd.conns.values().any(|conn| !conn.dead && conn.volume == Some(id));
        let reasons = [
            (!self.volumes.contains_key(&id), "it is not served"),
            (self.leaving.contains_key(&id), "it is being removed already"),
            (!self.stopping.is_running(), "the daemon is stopping"),
            (self.pause.is_some(), "the cache is being reattached; try again"),
            (has_conn, "a client has connected meanwhile; try again"),
            (self.ublk.values().any(|device| device.volume() == id), "it has become a block device"),
            (dirty.bytes > 0 || dirty.waiting > 0 || dirty.fenced, "it has dirty data; flush it first"),
        ];
        reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
    }

    /// Tells the manager of volumes of which no request is left. Once a turn.
    pub(crate) fn pump_leaving(&mut self) {
        let clients = &self.clients;
        for (id, leaving) in self.leaving.iter_mut().filter(|(_, leaving)| !leaving.is_told) {
            if !clients.values().any(|client| client.volume() == *id) {
                leaving.is_told = true;
                self.events.push_back(Event::Remove { volume: *id });
            }
        }
    }

    /// The manager has forgotten a volume, or could not.
    pub(crate) fn removed(&mut self, id: VolumeId, result: Result<(), ErrorKind>) {
        let Some(Leaving { reply, .. }) = self.leaving.remove(&id) else { return };
        let outcome = match result {
            Err(error) => Err(format!(
                "its origin was not flushed, or the cache device failed, or the daemon stops ({error}); it is served as before"
            )),
            Ok(()) => {
                self.set_tap(id, None);
                drop(self.origin_maps.remove(&id));
                self.risk.set(id, false);
                let volume = self.volumes.remove(&id);
                volume.map(Box::new).ok_or_else(|| "it is not served".to_owned())
            }
        };
        let _asker_left = reply.send(outcome);
    }
}
