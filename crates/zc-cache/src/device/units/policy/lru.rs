//! Least recently used first (Nitro 3.1: WEU-LRU). 8 bytes a slot.

use zc_core::{WeuSlot, u64_from_usize};

use super::ReplacementPolicy;
use super::ring::{Queue, Ring};

const ALL: Queue = Queue(0);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct WeuLru {
    ring: Ring,
}

impl WeuLru {
    /// For `slots` slots, none of them known.
    ///
    /// # Panics
    /// With 2^32 - 2 slots or more.
    #[must_use]
    pub(crate) fn new(slots: u32) -> Self {
        Self { ring: Ring::new(slots, 1) }
    }

    /// The known slots, the least recently used first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = WeuSlot> {
        core::iter::successors(self.ring.oldest(ALL), |slot| self.ring.newer(*slot))
    }
}

impl ReplacementPolicy for WeuLru {
    fn inserted(&mut self, slot: WeuSlot) {
        self.removed(slot);
        self.ring.push(ALL, slot);
    }

    fn touched(&mut self, slot: WeuSlot) {
        if self.ring.contains(slot) {
            self.ring.renew(ALL, slot);
        }
    }

    fn removed(&mut self, slot: WeuSlot) {
        if self.ring.contains(slot) {
            self.ring.unlink(slot);
        }
    }

    fn victim(&mut self, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        self.ring.oldest_but(ALL, skip)
    }

    fn ram_bytes(&self) -> u64 {
        self.ring.ram_bytes() + u64_from_usize(size_of::<Self>())
    }
}
