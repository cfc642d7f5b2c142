//! Commands that wait until dirty data is given up, or what volumes left that are gone is erased.
//!
//! Job: answer each when the manager has done what was asked, or cannot.
//!
//! It does not give anything up (the manager does).

use tokio::sync::oneshot;
use zc_cache::CacheManager;
use zc_cache::seam::Erased;
use zc_core::VolumeId;

type Ask = (VolumeId, oneshot::Sender<bool>);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct DirtyAsks {
    /// Until all of a volume's dirty data is given up.
    drops: Vec<Ask>,
    /// Until what of it cannot be read is given up.
    unreadable: Vec<Ask>,
    /// Until an erasure has ended.
    erasures: Vec<oneshot::Sender<Option<Erased>>>,
}

impl DirtyAsks {
    /// The manager was told to give a volume's dirty data up.
    pub(crate) fn drops(&mut self, volume: VolumeId, reply: oneshot::Sender<bool>) {
        self.drops.push((volume, reply));
    }

    /// The manager was told to give up what of it cannot be read.
    pub(crate) fn gives_up_unreadable(&mut self, volume: VolumeId, reply: oneshot::Sender<bool>) {
        self.unreadable.push((volume, reply));
    }

    /// Waits for the erasure of removed volumes, which has been asked of the manager.
    pub(crate) fn erases(&mut self, reply: oneshot::Sender<Option<Erased>>) {
        self.erasures.push(reply);
    }

    /// Another manager takes over and knows of no command: answers the waiting ones that nothing was given up or erased.
    pub(crate) fn fail(&mut self) {
        for (_, reply) in self.drops.drain(..).chain(self.unreadable.drain(..)) {
            let _asker_left = reply.send(false);
        }
        for reply in self.erasures.drain(..) {
            let _asker_left = reply.send(None);
        }
    }

    /// Answers those whose dirty data is given up, or cannot be.
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
