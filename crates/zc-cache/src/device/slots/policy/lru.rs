//! LRU over units (Nitro 3.1: WEU-LRU). 8 bytes per slot.

use zc_core::{WeuSlot, u64_from_usize};

use super::order::ReplacementPolicy;
use super::ring::{Queue, Ring};
use crate::device::slots::class_id::ClassId;

#[derive(Debug)]
pub(crate) struct WeuLru {
    ring: Ring,
}

impl WeuLru {
    /// Creates an empty list for `slots` slots.
    ///
    /// # Panics
    /// With 2^32 - 2 slots or more.
    #[must_use]
    pub(crate) fn new(slots: u32) -> Self {
        Self { ring: Ring::new(slots, ClassId::COUNT) }
    }

    /// Slots of a class, least recently used first.
    pub(super) fn oldest_first(&self, class: ClassId) -> impl Iterator<Item = WeuSlot> {
        core::iter::successors(self.ring.oldest(of(class)), |slot| self.ring.newer(*slot))
    }

    pub(super) fn contains(&self, slot: WeuSlot) -> bool {
        self.ring.contains(slot)
    }
}

fn of(class: ClassId) -> Queue {
    Queue(class.number())
}

impl ReplacementPolicy for WeuLru {
    fn inserted(&mut self, slot: WeuSlot, class: ClassId) {
        self.removed(slot, class);
        self.ring.push(of(class), slot);
    }

    fn touched(&mut self, slot: WeuSlot, class: ClassId) {
        if self.ring.contains(slot) {
            self.ring.renew(of(class), slot);
        }
    }

    fn removed(&mut self, slot: WeuSlot, _class: ClassId) {
        if self.ring.contains(slot) {
            self.ring.unlink(slot);
        }
    }

    fn victim(&mut self, class: ClassId, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        self.ring.oldest_but(of(class), skip)
    }

    fn oldest(&self, class: ClassId) -> Option<WeuSlot> {
        self.ring.oldest(of(class))
    }

    fn ram_bytes(&self) -> u64 {
        self.ring.ram_bytes() + u64_from_usize(size_of::<Self>())
    }
}
