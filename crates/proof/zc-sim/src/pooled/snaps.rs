//! Snapshots in between, what rots, and what the store alone holds.

use std::sync::Arc;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_pool::{Answer, RequestKind};
use zc_reduce::Reducer;
use zc_store::{CatalogOp, RootId, RootKind};

use super::{Pooled, STEPS_MAX, Waits};
use crate::content;
use crate::world::{SECTOR, World};

/// Snapshots that are kept at a time.
const SNAPSHOTS_MAX: usize = 8;
/// Their numbers begin here.
const SNAPSHOT_ROOTS: u16 = 100;
/// Bytes of a volume that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// A snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// Name of the snapshot. An earlier one may have had its number.
    name: String,
    /// Content; shared, because worlds and their lists of snapshots are cloned.
    bytes: Arc<[u8]>,
    /// A flush ended since it was taken.
    is_durable: bool,
}

impl World {
    /// Something happens at the store. False if nothing did.
    pub(crate) fn pool_turn(&mut self) -> bool {
        let Some(pooled) = &mut self.pooled else { return false };
        if pooled.faults.rot > 0.0 && self.rng.random_bool(pooled.faults.rot) {
            pooled.rot(&mut self.rng);
            self.coverage.note("store: bits rotted");
            return true;
        }
        let is_fenced = pooled.is_fenced;
        match self.rng.random_range(0..1000) {
            // An operator starts a daemon again whose store fails.
            0..20 if is_fenced => self.kill(),
            20..26 if !is_fenced => self.take_snapshot(),
            26 if !is_fenced => self.delete_snapshot(),
            27 => self.judge_snapshots(),
            28 => pooled.with_pool(zc_pool::Pool::clean),
            _ => return false,
        }
        true
    }

    fn take_snapshot(&mut self) {
        let Some(pooled) = &self.pooled else { return };
        let roots: Vec<RootId> = pooled.roots.iter().flatten().copied().collect();
        let source = roots[self.rng.random_range(0..roots.len())];
        let id = (SNAPSHOT_ROOTS..).map(RootId).find(|id| !pooled.snaps.contains_key(id));
        let Some(id) = id.filter(|_| pooled.snaps.len() < SNAPSHOTS_MAX) else { return };
        let change = self.catalog_change(CatalogOp::Snapshot, id, source);
        let name = change.name.clone();
        if self.ask_pool(RequestKind::Catalog(change)).is_err() {
            return;
        }
        let Some(bytes) = self.read_root(id) else { return };
        let known = bytes.chunks(SECTOR).all(|sector| content::identify(sector).is_some());
        if !known {
            return self.violate(format!("the snapshot {id:?} holds what no client wrote (S2)"));
        }
        let is_durable = self.rng.random_bool(0.5) && self.ask_pool(RequestKind::Flush).is_ok();
        self.coverage.note("store: snapshots");
        if let Some(pooled) = &mut self.pooled {
            pooled.snaps.insert(id, Snapshot { name, bytes: bytes.into(), is_durable });
        }
    }

    fn delete_snapshot(&mut self) {
        let Some(pooled) = &mut self.pooled else { return };
        let Some((id, _)) = pooled.snaps.pop_first() else { return };
        let change = self.catalog_change(CatalogOp::Delete, id, id);
        match self.ask_pool(RequestKind::Catalog(change)) {
            Ok(_) => {
                self.coverage.note("store: snapshots deleted");
                if let Some(pooled) = &mut self.pooled {
                    pooled.is_full = false;
                }
            }
            Err(error) => self.violate_unless_fenced(&format!("{id:?} cannot be deleted: {error}")),
        }
    }

    fn violate_unless_fenced(&mut self, text: &str) {
        if self.pooled.as_ref().is_some_and(|pooled| !pooled.is_fenced && !pooled.is_rotten) {
            self.violate(text.to_owned());
        }
    }

    /// Whether the store keeps a volume's dirty data from going home.
    pub(crate) fn is_pool_in_the_way(&self, volume: usize) -> bool {
        let stuck = |pooled: &Pooled| pooled.is_fenced || pooled.is_rotten || pooled.is_full;
        self.pooled.as_ref().is_some_and(|pooled| pooled.has(volume) && stuck(pooled))
    }

    /// Whether the store takes no changes until it is opened again.
    pub(crate) fn is_pool_fenced(&self) -> bool {
        self.pooled.as_ref().is_some_and(|pooled| pooled.is_fenced)
    }

    /// Whether something of the store is damaged: nothing is demanded of its volumes in the end.
    pub(crate) fn is_pool_rotten(&self) -> bool {
        self.pooled.as_ref().is_some_and(|pooled| pooled.is_rotten)
    }

    /// The store's device does what it says from now on, the store is opened again if that had failed, and nothing keeps
    /// what was overwritten.
    pub(crate) fn mend_pool(&mut self) {
        let Some(pooled) = &mut self.pooled else { return };
        pooled.faults = super::PoolFaults::default();
        if pooled.is_fenced {
            self.kill();
        }
        self.delete_all_snapshots();
    }

    /// An operator makes room in a store that is full.
    pub(crate) fn make_room_in_pool(&mut self) {
        if self.pooled.as_ref().is_some_and(|pooled| pooled.is_full) {
            self.delete_all_snapshots();
        }
    }

    fn delete_all_snapshots(&mut self) {
        while self.violation.is_none()
            && self.pooled.as_ref().is_some_and(|pooled| !pooled.snaps.is_empty() && !pooled.is_fenced)
        {
            self.delete_snapshot();
        }
    }

    /// Snapshots hold what they held, and those that were flushed are there (S3, S1).
    pub(crate) fn judge_snapshots(&mut self) {
        let Some(pooled) = &self.pooled else { return };
        for (id, snapshot) in pooled.snaps.clone() {
            let pool = self.pooled.as_ref().and_then(|pooled| pooled.pool.as_ref());
            let root = pool.and_then(|pool| pool.store().root(id));
            let is_there = root.is_some_and(|root| is_snapshot(root) && root.name == snapshot.name);
            if !is_there {
                if let Some(pooled) = &mut self.pooled {
                    pooled.snaps.remove(&id);
                }
                if snapshot.is_durable {
                    return self.violate(format!("the snapshot {id:?} was flushed and is gone (S1)"));
                }
                continue;
            }
            let Some(bytes) = self.read_root(id) else { continue };
            if bytes[..] != snapshot.bytes[..] {
                let at = bytes.iter().zip(&snapshot.bytes[..]).position(|(now, then)| now != then);
                return self.violate(format!("the snapshot {id:?} has changed at byte {at:?} (S3)"));
            }
            self.coverage.note("store: snapshots judged");
        }
        self.forget_strangers();
    }

    /// A start has taken a batch that rotted for one that a power cut tore: its volumes, and which snapshots there are,
    /// may be of an earlier time.
    pub(super) fn forgive_rotten_log(&mut self) {
        let Some(pooled) = &mut self.pooled else { return };
        if !pooled.log.take_owed() {
            return;
        }
        self.coverage.note("store: logs that rotted");
        pooled.snaps.values_mut().for_each(|snapshot| snapshot.is_durable = false);
        for volume in 0..self.volumes.len() {
            if self.pooled.as_ref().is_some_and(|pooled| pooled.has(volume)) {
                self.forgive(volume);
            }
        }
    }

    /// A deletion that was not durable when the power went: the snapshot is there again.
    fn forget_strangers(&mut self) {
        let Some(pooled) = &self.pooled else { return };
        let Some(pool) = &pooled.pool else { return };
        let strange: Vec<RootId> = pool
            .store()
            .roots()
            .filter(|(id, root)| is_snapshot(root) && !pooled.snaps.contains_key(id))
            .map(|(id, _)| id)
            .collect();
        for id in strange {
            let change = self.catalog_change(CatalogOp::Delete, id, id);
            if let Err(error) = self.ask_pool(RequestKind::Catalog(change)) {
                self.violate_unless_fenced(&format!("{id:?} cannot be deleted: {error}"));
            }
        }
    }

    /// All bytes of a root, or `None` where damage is told.
    fn read_root(&mut self, root: RootId) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let len = self.root_bytes(root);
        for offset_bytes in (0..len).step_by(READ_BYTES as usize) {
            let len_bytes = (len - offset_bytes).min(READ_BYTES) as u32;
            match self.ask_pool(RequestKind::Read { root, offset_bytes, len_bytes }) {
                Ok(Answer::Bytes(pieces)) => pieces.iter().for_each(|piece| bytes.extend_from_slice(piece)),
                Ok(_) => return None,
                Err(error) => {
                    if !self.pooled.as_ref().is_some_and(|pooled| pooled.is_rotten) {
                        self.violate(format!("{root:?} cannot be read: {error} (S2)"));
                    }
                    return None;
                }
            }
        }
        Some(bytes)
    }

    /// The power goes now, the cache is lost, and the store is opened alone: what its volumes hold then. It is what
    /// their origins hold, for whoever judges them. False when damage keeps that from being told.
    pub(crate) fn look_into_store(&mut self) -> bool {
        let Some(pooled) = &self.pooled else { return true };
        let mut rng = Pcg64Mcg::seed_from_u64(self.rng.random());
        let mut reducer = Reducer::new();
        let mut alone = pooled.copy();
        alone.die(&mut rng);
        if rng.random_bool(0.5) {
            alone.disk.power_cut(&mut rng);
        }
        let is_rotten = alone.is_rotten;
        if alone.log.is_rotten() {
            return false;
        }
        match alone.open(&mut rng, &mut reducer, None) {
            Some(Ok(())) => {}
            _ if is_rotten => return false,
            other => {
                self.violate(format!("the store alone does not open: {other:?} (S1)"));
                return false;
            }
        }
        self.coverage.note("store: opened alone");
        for volume in 0..self.volumes.len() {
            let Some(root) = alone.root(volume) else { continue };
            let len = self.origins[volume].seen.len();
            let Some(mut bytes) = alone.read_all(root, len, &mut rng, &mut reducer) else {
                if !is_rotten {
                    self.violate(format!("{root:?} of the store alone cannot be read (S2)"));
                }
                return false;
            };
            bytes.resize(len, 0);
            self.origins[volume].restore(&bytes);
        }
        true
    }
}

fn is_snapshot(root: &zc_store::Root) -> bool {
    root.kind == RootKind::Snapshot
}

impl Pooled {
    /// A copy of the device, with nothing in progress but its writes.
    fn copy(&self) -> Self {
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
            waiting: std::collections::BTreeMap::new(),
            answered: Vec::new(),
            heard: None,
            opened: None,
            stopped: false,
            roots: self.roots.clone(),
            chunk_shift: self.chunk_shift,
            faults: super::PoolFaults::default(),
            is_fenced: false,
            lost_power: self.lost_power,
            is_rotten: self.is_rotten,
            is_full: false,
            log: self.log.clone(),
            snaps: std::collections::BTreeMap::new(),
            next_req: 0,
            next_name: 0,
        }
    }

    fn read_all(
        &mut self,
        root: RootId,
        len: usize,
        rng: &mut Pcg64Mcg,
        reducer: &mut Reducer,
    ) -> Option<Vec<u8>> {
        let store = self.pool.as_ref()?.store();
        // Before it was made, it held nothing.
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
