//! Slots of the device, and the segments that they hold.
//!
//! Invariants: a slot holds at most one segment; a free slot is in no state that a recovery may find. It does not
//! choose what is freed.

use std::collections::{BTreeMap, BTreeSet};

use crate::format2::node::FANOUT;
use crate::format2::segments::{SegmentLeaf, SegmentRecord};

/// Segments by number, and free slots.
#[derive(Debug)]
pub(in crate::format2) struct Slots {
    segments: BTreeMap<u64, SegmentRecord>,
    free: BTreeSet<u32>,
    count: u32,
    /// Leaves of the segment table that changed since the last checkpoint.
    changed: BTreeSet<u64>,
}

impl Slots {
    pub(in crate::format2) fn new(count: u32) -> Self {
        Self { segments: BTreeMap::new(), free: (0..count).collect(), count, changed: BTreeSet::new() }
    }

    /// Takes a segment that the table has. Returns `false` if its slot is not of this device, or taken.
    pub(in crate::format2) fn load(&mut self, segment: u64, record: SegmentRecord) -> bool {
        if segment == 0 || !self.free.remove(&record.slot) {
            return false;
        }
        self.segments.insert(segment, record);
        true
    }

    /// Keeps a slot from being taken: the log may continue there.
    pub(in crate::format2) fn reserve(&mut self, slot: u32) {
        self.free.remove(&slot);
    }

    /// A slot that holds no segment is free.
    pub(in crate::format2) fn free_again(&mut self, slot: u32) {
        self.free.insert(slot);
    }

    /// A segment begins.
    pub(in crate::format2) fn open(&mut self, segment: u64, slot: u32, first_seq: u64) {
        self.free.remove(&slot);
        self.segments.insert(segment, SegmentRecord { slot, blocks: 0, end_units: 0, first_seq });
        self.changed.insert(segment / FANOUT);
    }

    /// A segment ends, or is known to reach so far.
    pub(in crate::format2) fn seal(&mut self, segment: u64, blocks: u32, end_units: u32) {
        if let Some(record) = self.segments.get_mut(&segment) {
            (record.blocks, record.end_units) = (blocks, end_units);
            self.changed.insert(segment / FANOUT);
        }
    }

    /// Returns the numbers of all segments.
    pub(in crate::format2) fn segments(&self) -> impl Iterator<Item = u64> {
        self.segments.keys().copied()
    }

    /// Removes a segment to which nothing leads. Its slot is not free before it is given back.
    pub(in crate::format2) fn remove(&mut self, segment: u64) -> Option<u32> {
        self.changed.insert(segment / FANOUT);
        self.segments.remove(&segment).map(|record| record.slot)
    }

    /// Takes a free slot.
    pub(in crate::format2) fn take(&mut self) -> Option<u32> {
        self.free.pop_first()
    }

    pub(in crate::format2) fn free_slots(&self) -> usize {
        self.free.len()
    }

    pub(in crate::format2) fn slot_of(&self, segment: u64) -> Option<u32> {
        self.segments.get(&segment).map(|record| record.slot)
    }

    /// Changed leaves of the segment table, as a checkpoint writes them.
    pub(in crate::format2) fn leaves(&self) -> BTreeMap<u64, SegmentLeaf> {
        let leaf = |number: u64| {
            let mut leaf = SegmentLeaf::default();
            let first = number * FANOUT;
            for (segment, record) in self.segments.range(first..first + FANOUT) {
                leaf.set(u16::try_from(segment - first).unwrap_or(u16::MAX), *record);
            }
            (number, leaf)
        };
        self.changed.iter().map(|number| leaf(*number)).collect()
    }

    /// A checkpoint takes the changed leaves as they are. What changes from now on, recovery finds in the log.
    pub(in crate::format2) fn checkpointed(&mut self) {
        self.changed.clear();
    }

    /// Checks that slots are counted once.
    pub(in crate::format2) fn check(&self) -> Result<(), String> {
        let mut held = self.free.clone();
        for (segment, record) in &self.segments {
            if record.slot >= self.count || !held.insert(record.slot) {
                return Err(format!(
                    "slot {} of segment {segment} is taken or beyond the device",
                    record.slot
                ));
            }
        }
        Ok(())
    }
}
