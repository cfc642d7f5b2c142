//! Slots in one or more queues: doubly linked rings through two arrays indexed by slot, 8 bytes a slot.
//!
//! After the slots come the heads of the queues: a head's `older` is its newest slot, its `newer` the oldest one.
//! Invariants: a slot is in one queue at most; every operation but a search takes constant time. Out of scope:
//! recording which queue a slot is in.

use zc_core::{WeuSlot, u64_from_usize, usize_from_u32};

/// A link of a slot that is in no queue.
const UNLISTED: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Ring {
    newer: Vec<u32>,
    older: Vec<u32>,
    slots: u32,
}

/// One of the queues, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue(pub(crate) u32);

impl Ring {
    /// Empty queues for `slots` slots.
    ///
    /// # Panics
    /// With more slots than fit beside the heads below 2^32 - 1.
    pub(crate) fn new(slots: u32, queues: u32) -> Self {
        assert!(slots < UNLISTED - queues, "too many slots");
        let mut links = vec![UNLISTED; usize_from_u32(slots + queues)];
        (slots..slots + queues).for_each(|head| links[usize_from_u32(head)] = head);
        Self { newer: links.clone(), older: links, slots }
    }

    pub(crate) fn contains(&self, slot: WeuSlot) -> bool {
        slot.0 < self.slots && self.newer[usize_from_u32(slot.0)] != UNLISTED
    }

    /// Takes a slot out of its queue.
    pub(crate) fn unlink(&mut self, slot: WeuSlot) {
        debug_assert!(self.contains(slot), "{slot:?} is in no queue");
        let at = usize_from_u32(slot.0);
        let (newer, older) = (self.newer[at], self.older[at]);
        self.older[usize_from_u32(newer)] = older;
        self.newer[usize_from_u32(older)] = newer;
        self.newer[at] = UNLISTED;
        self.older[at] = UNLISTED;
    }

    /// Puts a slot that is in no queue at the new end of one.
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

    /// The next newer slot of the same queue.
    pub(crate) fn newer(&self, slot: WeuSlot) -> Option<WeuSlot> {
        self.slot(self.newer[usize_from_u32(slot.0)])
    }

    fn slot(&self, link: u32) -> Option<WeuSlot> {
        (link < self.slots).then_some(WeuSlot(link))
    }

    /// Makes a slot that is in some queue the newest of one.
    pub(crate) fn renew(&mut self, queue: Queue, slot: WeuSlot) {
        self.unlink(slot);
        self.push(queue, slot);
    }

    /// Returns the oldest slot of a queue for which neither `skip` nor `spare` is true. `spare` is called at most
    /// once for every slot that is in the queue now, and may make it the newest of a queue.
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
