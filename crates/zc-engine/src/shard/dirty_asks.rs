//! Commands that wait for discarded dirty data, or for the erasure of removed volumes.
//!
//! Job: answer each when the manager has completed or refused the request.
//!
//! It does not discard anything (the manager does).

use tokio::sync::oneshot;
use zc_cache::CacheManager;
use zc_cache::seam::Erased;
use zc_core::VolumeId;

type DropRequest = (VolumeId, oneshot::Sender<bool>);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct DirtyAsks {
    /// Waiting until all of a volume's dirty data is discarded.
    drops: Vec<DropRequest>,
    /// Waiting until its unreadable part is discarded.
    unreadable: Vec<DropRequest>,
    /// Until an erasure has ended.
    erasures: Vec<oneshot::Sender<Option<Erased>>>,
}

impl DirtyAsks {
    /// The manager was instructed to discard a volume's dirty data.
    pub(crate) fn drops(&mut self, volume: VolumeId, reply: oneshot::Sender<bool>) {
        self.drops.push((volume, reply));
    }

    /// The manager was instructed to discard its unreadable part.
    pub(crate) fn gives_up_unreadable(&mut self, volume: VolumeId, reply: oneshot::Sender<bool>) {
        self.unreadable.push((volume, reply));
    }

    /// Waits for the erasure of removed volumes, which the manager has started.
    pub(crate) fn erases(&mut self, reply: oneshot::Sender<Option<Erased>>) {
        self.erasures.push(reply);
    }

    /// Replies to the waiting callers that nothing was discarded or erased, because another manager takes over without
    /// their commands.
    pub(crate) fn fail(&mut self) {
        for (_, reply) in self.drops.drain(..).chain(self.unreadable.drain(..)) {
            let _asker_left = reply.send(false);
        }
        for reply in self.erasures.drain(..) {
            let _asker_left = reply.send(None);
        }
    }

    /// Replies to callers whose dirty data is discarded, or cannot be.
    pub(crate) fn answer(&mut self, manager: &CacheManager) {
        if !manager.is_erasing() {
            for reply in self.erasures.drain(..) {
                let _asker_left = reply.send(manager.erased());
            }
        }
        for (volume, reply) in std::mem::take(&mut self.drops) {
            if manager.is_dropping(volume) {
                self.drops.push((volume, reply));
            } else {
                let fenced = manager.dirty(volume).is_some_and(|dirty| dirty.fenced);
                let _asker_left = reply.send(!fenced);
            }
        }
        for (volume, reply) in std::mem::take(&mut self.unreadable) {
            if manager.is_giving_up(volume) {
                self.unreadable.push((volume, reply));
            } else {
                let state = manager.dirty(volume);
                let done = manager.is_healthy()
                    && state.is_some_and(|dirty| !dirty.fenced && dirty.unreadable_bytes == 0);
                let _asker_left = reply.send(done);
            }
        }
    }
}
