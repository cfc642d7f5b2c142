//! Snapshots during the run, corruption, and contents of the store alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use zc_pool::{Answer, RequestKind};
use zc_reduce::Reducer;
use zc_store::{RootId, RootKind};

use super::{Pooled, STEPS_MAX, Waits};

/// Maximum number of snapshots at a time.
const SNAPSHOTS_MAX: usize = 8;
/// First snapshot number.
const SNAPSHOT_ROOTS: u16 = 100;

#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// Name of the snapshot. An earlier one may have had its number.
    name: String,
    /// Content; shared, because worlds and their lists of snapshots are cloned.
    bytes: Arc<[u8]>,
    /// A flush ended since it was taken.
    is_durable: bool,
}

impl Snapshot {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) const fn is_durable(&self) -> bool {
        self.is_durable
    }
}

/// Snapshots that the store must have, unless a power cut removed them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshots(BTreeMap<RootId, Snapshot>);

impl Snapshots {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of the next snapshot, or `None` at the maximum.
    pub(crate) fn next_number(&self) -> Option<RootId> {
        let free = (SNAPSHOT_ROOTS..).map(RootId).find(|id| !self.0.contains_key(id));
        free.filter(|_| self.0.len() < SNAPSHOTS_MAX)
    }

    pub(crate) fn keep(&mut self, id: RootId, name: String, bytes: Vec<u8>, is_durable: bool) {
        self.0.insert(id, Snapshot { name, bytes: bytes.into(), is_durable });
    }

    pub(crate) fn forget(&mut self, id: RootId) {
        self.0.remove(&id);
    }

    /// Removes the first snapshot from the list, and returns its number.
    pub(crate) fn take_first(&mut self) -> Option<RootId> {
        self.0.pop_first().map(|(id, _)| id)
    }

    pub(crate) fn list(&self) -> Vec<(RootId, Snapshot)> {
        self.0.iter().map(|(id, snapshot)| (*id, snapshot.clone())).collect()
    }

    /// Excuses the absence of any of them.
    pub(crate) fn distrust(&mut self) {
        self.0.values_mut().for_each(|snapshot| snapshot.is_durable = false);
    }
}

fn is_snapshot(root: &zc_store::Root) -> bool {
    root.kind == RootKind::Snapshot
}

impl Pooled {
    /// Returns a copy of the device, with only its writes in progress.
    pub(crate) fn copy(&self) -> Self {
        let busy = self.busy.iter().filter_map(|busy| match busy {
            super::Busy::Device(op, operation, issued) => {
                Some(super::Busy::Device(*op, operation.clone(), *issued))
            }
            super::Busy::Job(..) => None,
        });
        Self {
            config: self.config.clone(),
            disk: self.disk.clone(),
            pool: None,
            busy: busy.collect(),
            waiting: BTreeMap::new(),
            answered: Vec::new(),
            heard: None,
            opened: None,
            stopped: false,
            roots: self.roots.clone(),
            chunk_shift: self.chunk_shift,
            extent_bytes: self.extent_bytes,
            is_strong: self.is_strong,
            faults: super::PoolFaults::default(),
            is_fenced: false,
            lost_power: self.lost_power,
            is_rotten: self.is_rotten,
            is_full: false,
            log: self.log.clone(),
            snaps: Snapshots::default(),
            next_req: 0,
            next_name: 0,
        }
    }

    pub(crate) const fn snaps(&self) -> &Snapshots {
        &self.snaps
    }

    pub(crate) const fn snaps_mut(&mut self) -> &mut Snapshots {
        &mut self.snaps
    }

    /// Returns `true` if the store has this snapshot, by number and name.
    pub(crate) fn has_snapshot(&self, id: RootId, snapshot: &Snapshot) -> bool {
        let root = self.pool.as_ref().and_then(|pool| pool.store().root(id));
        root.is_some_and(|root| is_snapshot(root) && root.name == snapshot.name)
    }

    /// Returns snapshots of the store that should not exist.
    pub(crate) fn strangers(&self) -> Vec<RootId> {
        let Some(pool) = &self.pool else { return Vec::new() };
        let strange =
            |(id, root): &(RootId, &zc_store::Root)| is_snapshot(root) && !self.snaps.0.contains_key(id);
        pool.store().roots().filter(strange).map(|(id, _)| id).collect()
    }

    /// Draws a power cut of this copy. Returns `true` if it happened.
    pub(crate) fn loses_power(&mut self, rng: &mut Pcg64Mcg) -> bool {
        let goes = rng.random_bool(0.5);
        if goes {
            self.disk.power_cut(rng);
        }
        goes
    }

    pub(crate) fn read_all(
        &mut self,
        root: RootId,
        len: usize,
        rng: &mut Pcg64Mcg,
        reducer: &mut Reducer,
    ) -> Option<Vec<u8>> {
        let store = self.pool.as_ref()?.store();
        // Before its creation the root held nothing.
        let Some(found) = store.root(root) else { return Some(Vec::new()) };
        let len = (len as u64).min(found.size_chunks << found.chunk_shift) as u32;
        let asked = self.submit(RequestKind::Read { root, offset_bytes: 0, len_bytes: len }, Waits::World);
        for _ in 0..STEPS_MAX {
            if let Some((req, result)) = self.answered.pop()
                && req == asked
            {
                let Ok(Answer::Bytes(pieces)) = result else { return None };
                return Some(pieces.concat());
            }
            self.step(rng, reducer);
        }
        None
    }
}
