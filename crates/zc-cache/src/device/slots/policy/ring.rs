//! Queues of slots: doubly linked rings in two arrays indexed by slot, 8 bytes per slot.
//!
//! The heads of the queues follow the slots: a head's `older` is its newest slot, its `newer` the oldest one.
//! Invariants: a slot is in at most one queue; every operation except searches takes constant time. Out of scope:
//! recording the queue of a slot.

use zc_core::{WeuSlot, u64_from_usize, usize_from_u32};

/// Link of a slot that is in no queue.
const UNLISTED: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Ring {
    newer: Vec<u32>,
    older: Vec<u32>,
    slots: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue(pub(crate) u32);

impl Ring {
    /// Creates empty queues for `slots` slots.
    ///
    /// # Panics
    /// If slots and heads together exceed 2^32 - 2.
    pub(crate) fn new(slots: u32, queues: u32) -> Self {
        assert!(slots < UNLISTED - queues, "too many slots");
        let mut links = vec![UNLISTED; usize_from_u32(slots + queues)];
        (slots..slots + queues).for_each(|head| links[usize_from_u32(head)] = head);
        Self { newer: links.clone(), older: links, slots }
    }

    pub(crate) fn contains(&self, slot: WeuSlot) -> bool {
        slot.0 < self.slots && self.newer[usize_from_u32(slot.0)] != UNLISTED
    }

    /// Removes a slot from its queue.
    pub(crate) fn unlink(&mut self, slot: WeuSlot) {
        debug_assert!(self.contains(slot), "{slot:?} is in no queue");
        let at = usize_from_u32(slot.0);
        let (newer, older) = (self.newer[at], self.older[at]);
        self.older[usize_from_u32(newer)] = older;
        self.newer[usize_from_u32(older)] = newer;
        self.newer[at] = UNLISTED;
        self.older[at] = UNLISTED;
    }

    /// Appends a slot that is in no queue as the newest of one.
    ///
    /// # Panics
    /// If there is no such slot.
    pub(crate) fn push(&mut self, queue: Queue, slot: WeuSlot) {
        assert!(slot.0 < self.slots, "{slot:?} does not exist");
        debug_assert!(!self.contains(slot), "{slot:?} is in a queue");
        let head = self.slots + queue.0;
        let before = self.older[usize_from_u32(head)];
        self.older[usize_from_u32(slot.0)] = before;
        self.newer[usize_from_u32(slot.0)] = head;
        self.newer[usize_from_u32(before)] = slot.0;
        self.older[usize_from_u32(head)] = slot.0;
    }

    pub(crate) fn oldest(&self, queue: Queue) -> Option<WeuSlot> {
        self.slot(self.newer[usize_from_u32(self.slots + queue.0)])
    }

    pub(crate) fn newest(&self, queue: Queue) -> Option<WeuSlot> {
        self.slot(self.older[usize_from_u32(self.slots + queue.0)])
    }

    /// Next newer slot of the same queue.
    pub(crate) fn newer(&self, slot: WeuSlot) -> Option<WeuSlot> {
        self.slot(self.newer[usize_from_u32(slot.0)])
    }

    fn slot(&self, link: u32) -> Option<WeuSlot> {
        (link < self.slots).then_some(WeuSlot(link))
    }

    /// Makes a slot of any queue the newest of this one.
    pub(crate) fn renew(&mut self, queue: Queue, slot: WeuSlot) {
        self.unlink(slot);
        self.push(queue, slot);
    }

    /// Returns the oldest slot of a queue for which both `skip` and `spare` return `false`. `spare` is called at most
    /// once per slot, and may make the slot the newest of a queue.
    pub(super) fn second_chance(
        &mut self,
        queue: Queue,
        skip: &mut dyn FnMut(WeuSlot) -> bool,
        mut spare: impl FnMut(&mut Self, WeuSlot) -> bool,
    ) -> Option<WeuSlot> {
        let last = self.newest(queue);
        let mut at = self.oldest(queue);
        while let Some(slot) = at {
            at = self.newer(slot).filter(|_| Some(slot) != last);
            if !skip(slot) && !spare(self, slot) {
                return Some(slot);
            }
        }
        None
    }

    /// Returns the oldest slot of a queue for which `skip` is false.
    pub(super) fn oldest_but(&self, queue: Queue, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        let mut at = self.oldest(queue);
        while let Some(slot) = at.filter(|slot| skip(*slot)) {
            at = self.newer(slot);
        }
        at
    }

    /// RAM of the links, in bytes.
    pub(crate) fn ram_bytes(&self) -> u64 {
        u64_from_usize((self.newer.capacity() + self.older.capacity()) * size_of::<u32>())
    }
}
