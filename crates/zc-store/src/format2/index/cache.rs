//! Cache of encoded nodes by place.
//!
//! Invariants: what lies at a place never changes, so an entry is never stale; a node that is not on the device yet
//! stays. It does not read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Blocked;
use crate::format2::node::Spot;

type Key = (u64, u32);

#[derive(Debug)]
struct Entry {
    bytes: Arc<[u8]>,
    stamp: u64,
    /// Batch that brings the node to the device.
    unwritten: Option<u64>,
}

/// Encoded nodes in memory.
#[derive(Debug)]
pub(super) struct Cache {
    uuid: [u8; 16],
    entries: BTreeMap<Key, Entry>,
    by_age: BTreeMap<u64, Key>,
    damaged: BTreeSet<Key>,
    bytes: usize,
    bytes_max: usize,
    stamp: u64,
}

const fn key(spot: &Spot) -> Key {
    (spot.segment, spot.offset_units)
}

impl Cache {
    pub(super) fn new(uuid: [u8; 16], bytes_max: usize) -> Self {
        let (entries, by_age, damaged) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { uuid, entries, by_age, damaged, bytes: 0, bytes_max, stamp: 0 }
    }

    /// Returns `true` if [`Cache::get`] need not wait for a read.
    pub(super) fn has(&self, spot: &Spot) -> bool {
        self.entries.contains_key(&key(spot)) || self.damaged.contains(&key(spot))
    }

    pub(super) fn get(&mut self, spot: &Spot) -> Result<Arc<[u8]>, Blocked> {
        if self.damaged.contains(&key(spot)) {
            return Err(Blocked::Damaged(*spot));
        }
        let entry = self.entries.get_mut(&key(spot)).ok_or_else(|| Blocked::Missing(vec![*spot]))?;
        self.stamp += 1;
        self.by_age.remove(&entry.stamp);
        entry.stamp = self.stamp;
        self.by_age.insert(self.stamp, key(spot));
        Ok(Arc::clone(&entry.bytes))
    }

    /// Takes a node from the device. Returns `false` if it does not verify.
    pub(super) fn loaded(&mut self, spot: Spot, bytes: &[u8]) -> bool {
        if spot.verify(&self.uuid, bytes).is_err() {
            self.damaged.insert(key(&spot));
            return false;
        }
        self.insert(spot, Arc::from(bytes), None);
        true
    }

    /// Takes a node that a batch brings to the device.
    pub(super) fn insert(&mut self, spot: Spot, bytes: Arc<[u8]>, unwritten: Option<u64>) {
        self.stamp += 1;
        self.bytes += bytes.len();
        let entry = Entry { bytes, stamp: self.stamp, unwritten };
        if let Some(before) = self.entries.insert(key(&spot), entry) {
            self.bytes -= before.bytes.len();
            self.by_age.remove(&before.stamp);
        }
        self.by_age.insert(self.stamp, key(&spot));
    }

    /// Batches up to this one are on the device.
    pub(super) fn written(&mut self, seq: u64) {
        for entry in self.entries.values_mut().filter(|entry| entry.unwritten.is_some_and(|own| own <= seq)) {
            entry.unwritten = None;
        }
    }

    pub(super) fn shrink(&mut self) {
        let mut kept = Vec::new();
        while self.bytes > self.bytes_max {
            let Some((stamp, key)) = self.by_age.pop_first() else { break };
            if self.entries.get(&key).is_some_and(|entry| entry.unwritten.is_some()) {
                kept.push((stamp, key));
            } else if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.bytes.len();
            }
        }
        self.by_age.extend(kept);
    }
}
