//! Volumes that come and go on the data plane.
//!
//! Invariants: a volume goes when no client can choose it, no request of it is left, and the manager has forgotten it,
//! durably. If the manager cannot, it is served as before.
//!
//! What it does not do: judge what may be believed of a volume, or record it (`control/added`, `control/removed`).

use tokio::sync::oneshot;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::Event;
use zc_core::{ErrorKind, VolumeId};

use crate::front::access::Export;
use crate::shard::{Shard, Volume};

/// The volume as the data plane had it; closing its origin may take time.
pub(crate) type Removed = Result<Box<Volume>, String>;

/// A volume that is going, on the data plane.
#[derive(Debug)]
pub(crate) struct Leaving {
    reply: oneshot::Sender<Removed>,
    /// The manager was told.
    is_told: bool,
}

impl Shard {
    /// Serves another volume.
    pub(crate) fn add_volume(&mut self, id: VolumeId, volume: Volume) {
        let config: VolumeConfig = volume.config.clone();
        self.volumes.insert(id, volume);
        self.events.push_back(Event::Configure(Box::new(config)));
    }

    /// Lets a volume go that nobody uses; answered when the cache holds nothing of it any more.
    pub(crate) fn remove_volume(&mut self, id: VolumeId, reply: oneshot::Sender<Removed>) {
        if let Some(why) = self.is_used(id) {
            let _asker_left = reply.send(Err(why.to_owned()));
            return;
        }
        let name = self.volume_mut(id).name.clone();
        for export in self.nbd.exports.iter_mut().filter(|export| export.info.name == name) {
            // In its place, so that no other volume becomes the default export.
            *export = Export::absent(&name);
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
