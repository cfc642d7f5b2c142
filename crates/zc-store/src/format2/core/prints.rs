//! Index of fingerprints in memory: blocks that new contents may share.
//!
//! Invariants: bounded; an entry names a block whose contents have exactly this fingerprint. It forgets the oldest
//! entries, so it finds a part of what is stored.

use std::collections::VecDeque;

use crate::format2::leaf::Stored;
use zc_core::{Fingerprint, HashKey, KeyedMap};

/// Blocks by fingerprint.
#[derive(Debug)]
pub(super) struct Prints {
    blocks: KeyedMap<Fingerprint, Stored>,
    by_age: VecDeque<Fingerprint>,
    count_max: usize,
}

impl Prints {
    pub(super) fn new(count_max: usize, key: &HashKey) -> Self {
        Self { blocks: key.map(), by_age: VecDeque::new(), count_max }
    }

    pub(super) fn get(&self, print: &Fingerprint) -> Option<Stored> {
        self.blocks.get(print).copied()
    }

    /// Notes a block; it replaces one with the same contents.
    pub(super) fn insert(&mut self, print: Fingerprint, stored: Stored) {
        if self.blocks.insert(print, stored).is_none() {
            self.by_age.push_back(print);
        }
        while self.blocks.len() > self.count_max {
            let Some(oldest) = self.by_age.pop_front() else { break };
            self.blocks.remove(&oldest);
        }
    }

    /// Removes the blocks of a frame that does not verify.
    pub(super) fn remove_frame(&mut self, segment: u64, offset_units: u32) {
        let is_other =
            |stored: &Stored| (stored.name.segment, stored.offset_units) != (segment, offset_units);
        self.blocks.retain(|_, stored| is_other(stored));
        self.by_age.retain(|print| self.blocks.contains_key(print));
    }
}
