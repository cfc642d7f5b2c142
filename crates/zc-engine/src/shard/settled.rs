//! Volumes that do not need a failed cache.
//!
//! Job: while the cache device is offline, record each volume without dirty data in the state directory. The next
//! start serves such a volume without the cache, also after a kill. Otherwise it would wait for data that the origin
//! has.
//!
//! Invariants: no volume is recorded while it has a pending notification of a loss, because a start without the cache
//! would not deliver it. A record is valid for its session: a later session on the cache first records that the volume
//! may be dirty.
//!
//! It does not determine dirty data (the manager), or decide on a start (`without_cache`).

use std::sync::Arc;

use zc_cache::CacheManager;
use zc_core::{ErrorKind, Set, VolumeId};

use crate::limits::STATE_RETRY_MS;
use crate::shard::volumes::Volumes;
use crate::state::state_dir::StateDir;
use crate::state::state_thread::{Requester, StateThread};

/// Records in the state directory since the cache failed.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    noted: Set<VolumeId>,
    /// After a failure, nothing before that.
    not_before_ms: u64,
}

/// The newest epoch of a volume of which nothing is dirty; `None` if its dirty data, or some of it, may be on the cache
/// alone.
pub(crate) fn needs_no_cache(manager: &CacheManager, volume: VolumeId) -> Option<u64> {
    let dirty = manager.dirty(volume).unwrap_or_default();
    (dirty.bytes == 0 && dirty.waiting == 0 && !dirty.fenced).then_some(dirty.newest_epoch)
}

impl Settled {
    /// Sends missing records to the state directory. The cache has failed.
    pub(crate) fn tell(
        &mut self,
        volumes: &Volumes,
        manager: &CacheManager,
        (state, thread): (&Arc<StateDir>, &mut StateThread),
        now_ms: u64,
    ) {
        if now_ms < self.not_before_ms {
            return;
        }
        let owes = |id: VolumeId| manager.owes_loss(id) || manager.has_volatile(id);
        for (id, volume) in volumes.iter() {
            if self.noted.contains(&id) || owes(id) {
                continue;
            }
            if let Some(epoch) = needs_no_cache(manager, id) {
                self.noted.insert(id);
                settle(id, &volume.name, epoch, (state, thread), now_ms);
            }
        }
    }

    /// Processes the result of a record.
    pub(crate) fn ended(&mut self, volume: VolumeId, result: Result<(), ErrorKind>, now_ms: u64) {
        if result.is_err() {
            self.noted.remove(&volume);
            self.not_before_ms = now_ms + STATE_RETRY_MS;
        }
    }
}

fn settle(
    id: VolumeId,
    name: &str,
    epoch: u64,
    (state, thread): (&Arc<StateDir>, &mut StateThread),
    now_ms: u64,
) {
    let known = state.snapshot();
    if !known.volumes.get(name).is_some_and(|entry| entry.dirty) {
        return;
    }
    let (state, name) = (Arc::clone(state), name.to_owned());
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
    thread.ask(Requester::Settled(id), Box::new(work), now_ms);
}
