//! Replacement: which WEU goes when a slot is needed (Nitro 3.1: WEU-LRU).
//!
//! Invariants: a policy knows exactly the slots that were inserted and not removed; it names victims, it does not evict
//! them. The same calls give the same victims. What it does not do: know what a WEU holds, or who pins it.

use zc_core::{WeuSlot, u64_from_usize, usize_from_u32};

/// Order in which WEUs are evicted.
pub(crate) trait ReplacementPolicy: core::fmt::Debug {
    /// A WEU was written to `slot` (or is open there). Counts as a use.
    fn inserted(&mut self, slot: WeuSlot);
    /// Content of the slot was used. Nothing happens for a slot that was not inserted.
    fn touched(&mut self, slot: WeuSlot);
    /// The slot's WEU is gone or about to go. Nothing happens for a slot that was not inserted.
    fn removed(&mut self, slot: WeuSlot);
    /// The first slot in the order of eviction for which `skip` is false. It stays known until it is removed.
    fn victim(&mut self, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot>;
    /// RAM held, in bytes.
    fn ram_bytes(&self) -> u64;
}

/// A link to a slot that is not in the list.
const UNLISTED: u32 = u32::MAX;

/// Least recently used first: a doubly linked ring through two arrays indexed by slot, 8 bytes a slot. The element after
/// the last slot is the ring's head: its `older` is the most recently used slot, its `newer` the least recently used.
#[derive(Debug)]
pub(crate) struct WeuLru {
    newer: Vec<u32>,
    older: Vec<u32>,
}

impl WeuLru {
    /// An empty list for `slots` slots.
    ///
    /// # Panics
    /// With 2^32 - 1 slots or more.
    #[must_use]
    pub(crate) fn new(slots: u32) -> Self {
        assert!(slots < UNLISTED, "too many slots");
        let mut links = vec![UNLISTED; usize_from_u32(slots) + 1];
        links[usize_from_u32(slots)] = slots;
        Self { newer: links.clone(), older: links }
    }

    fn head(&self) -> u32 {
        let Ok(head) = u32::try_from(self.newer.len() - 1) else {
            unreachable!("the list was made for fewer slots")
        };
        head
    }

    fn is_listed(&self, slot: WeuSlot) -> bool {
        slot.0 < self.head() && self.newer[usize_from_u32(slot.0)] != UNLISTED
    }

    fn unlink(&mut self, slot: u32) {
        let (newer, older) = (self.newer[usize_from_u32(slot)], self.older[usize_from_u32(slot)]);
        self.older[usize_from_u32(newer)] = older;
        self.newer[usize_from_u32(older)] = newer;
        self.newer[usize_from_u32(slot)] = UNLISTED;
        self.older[usize_from_u32(slot)] = UNLISTED;
    }

    fn link_newest(&mut self, slot: u32) {
        let head = self.head();
        let before = self.older[usize_from_u32(head)];
        self.older[usize_from_u32(slot)] = before;
        self.newer[usize_from_u32(slot)] = head;
        self.newer[usize_from_u32(before)] = slot;
        self.older[usize_from_u32(head)] = slot;
    }
}

impl ReplacementPolicy for WeuLru {
    fn inserted(&mut self, slot: WeuSlot) {
        assert!(slot.0 < self.head(), "{slot:?} does not exist");
        if self.is_listed(slot) {
            self.unlink(slot.0);
        }
        self.link_newest(slot.0);
    }

    fn touched(&mut self, slot: WeuSlot) {
        if self.is_listed(slot) {
            self.unlink(slot.0);
            self.link_newest(slot.0);
        }
    }

    fn removed(&mut self, slot: WeuSlot) {
        if self.is_listed(slot) {
            self.unlink(slot.0);
        }
    }

    fn victim(&mut self, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        let head = self.head();
        let mut at = self.newer[usize_from_u32(head)];
        while at != head {
            if !skip(WeuSlot(at)) {
                return Some(WeuSlot(at));
            }
            at = self.newer[usize_from_u32(at)];
        }
        None
    }

    fn ram_bytes(&self) -> u64 {
        u64_from_usize((self.newer.capacity() + self.older.capacity()) * size_of::<u32>() + size_of::<Self>())
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
