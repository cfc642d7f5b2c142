//! Use counts of slots since their insertion or last halving. A count is high if it is more than twice the mean of all
//! slots. A fixed threshold, as in page caches, would spare every unit if units have hundreds of extents, or none.
//!
//! Invariant: the total is that of the slots in the policy. Counts saturate at 65,535: 2 bytes per slot. Out of scope:
//! the set of slots in the policy.

use zc_core::{WeuSlot, u64_from_usize, usize_from_u32};

/// Multiple of the mean above which a count is high. Chosen among 1/2, 1, 2, 4 and 8, measured on four workloads.
const MANY_MEANS: u64 = 2;

#[derive(Debug)]
pub(super) struct Uses {
    counts: Vec<u16>,
    sum: u64,
    known: u64,
}

impl Uses {
    pub(super) fn new(slots: u32) -> Self {
        Self { counts: vec![0; usize_from_u32(slots)], sum: 0, known: 0 }
    }

    pub(super) fn enter(&mut self) {
        self.known += 1;
    }

    pub(super) fn leave(&mut self, slot: WeuSlot) {
        let count = core::mem::take(&mut self.counts[usize_from_u32(slot.0)]);
        self.sum -= u64::from(count);
        self.known -= 1;
    }

    pub(super) fn add(&mut self, slot: WeuSlot) {
        let count = &mut self.counts[usize_from_u32(slot.0)];
        self.sum += u64::from(*count < u16::MAX);
        *count = count.saturating_add(1);
    }

    /// Returns `true` if a slot's count is high.
    pub(super) fn many(&self, slot: WeuSlot) -> bool {
        u64::from(self.counts[usize_from_u32(slot.0)]) * self.known > MANY_MEANS * self.sum
    }

    /// Halves the count of a slot.
    pub(super) fn halve(&mut self, slot: WeuSlot) {
        let count = &mut self.counts[usize_from_u32(slot.0)];
        self.sum -= u64::from(*count - *count / 2);
        *count /= 2;
    }

    /// RAM of the counts, in bytes.
    pub(super) fn ram_bytes(&self) -> u64 {
        u64_from_usize(self.counts.capacity() * size_of::<u16>())
    }
}
