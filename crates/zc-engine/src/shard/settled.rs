//! Volumes that need nothing of a cache that failed.
//!
//! Job: while the cache device is out of order, tell the state directory of each volume of which nothing is dirty. The
//! next start serves such a volume without the cache, also after a kill. Otherwise it would wait for data that the
//! origin has.
//!
//! Invariants: no volume is told of while clients have yet to be told of a loss, because a start without the cache would
//! not tell them. What is told counts for the session that it is about: a session that begins on the cache later says
//! first that the volume may be dirty.
//!
//! What it does not do: judge what is dirty (the manager), or what a start may serve (`without_cache`).

use std::sync::Arc;

use zc_core::{ErrorKind, Map, VolumeId};

use crate::limits::STATE_RETRY_MS;
use crate::shard::Shard;
use crate::state::state_thread::Requester;

/// What the state directory was told since the cache failed.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    told: Map<VolumeId, ()>,
    /// After a failure, nothing before that.
    not_before_ms: u64,
}

impl Shard {
    /// The newest epoch of a volume of which nothing is dirty; `None` if its dirty data, or some of it, may be on the
    /// cache alone.
    pub(crate) fn needs_no_cache(&self, volume: VolumeId) -> Option<u64> {
        let dirty = self.manager.dirty(volume).unwrap_or_default();
        (dirty.bytes == 0 && dirty.waiting == 0 && !dirty.fenced).then_some(dirty.newest_epoch)
    }

    /// Tells the state directory what it was not told yet.
    pub(crate) fn settle_volumes(&mut self) {
        let now_ms = self.clock.now_ms();
        let has_failed = !self.manager.is_healthy() && !self.cache_missing;
        // In a pause another session may have begun, whose manager is not here yet.
        if !has_failed
            || self.pause.is_some()
            || !self.stopping.is_running()
            || now_ms < self.settled.not_before_ms
        {
            return;
        }
        let owes = |id: VolumeId| self.manager.owes_loss(id) || self.manager.has_volatile(id);
        let is_new = |id: &VolumeId| !self.settled.told.contains_key(id) && !owes(*id);
        let due: Vec<(VolumeId, u64)> = self
            .volumes
            .keys()
            .copied()
            .filter(is_new)
            .filter_map(|id| self.needs_no_cache(id).map(|epoch| (id, epoch)))
            .collect();
        for (id, epoch) in due {
            self.settled.told.insert(id, ());
            self.settle(id, epoch, now_ms);
        }
    }

    fn settle(&mut self, id: VolumeId, epoch: u64, now_ms: u64) {
        let name = self.volume_mut(id).name.clone();
        let known = self.state.snapshot();
        if !known.volumes.get(&name).is_some_and(|entry| entry.dirty) {
            return;
        }
        let state = Arc::clone(&self.state);
        let work = move || {
            state.give_up(known.session, &name, epoch).map_err(|error| {
                tracing::warn!(
                    "volume \"{name}\": a start after a kill will wait for the cache, although the origin has all data: \
                     {error}; tried again"
                );
                ErrorKind::Io
            })?;
            tracing::info!(
                "volume \"{name}\": its origin has all data, so the next start can do without the cache"
            );
            Ok(())
        };
        self.state_thread.ask(Requester::Settled(id), Box::new(work), now_ms);
    }

    /// The state directory was told, or could not be.
    pub(crate) fn settled_ended(&mut self, volume: VolumeId, result: Result<(), ErrorKind>) {
        if result.is_err() {
            self.settled.told.remove(&volume);
            self.settled.not_before_ms = self.clock.now_ms() + STATE_RETRY_MS;
        }
    }
}
