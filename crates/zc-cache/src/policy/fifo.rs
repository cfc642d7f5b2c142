//! First in, first out, but units that were used much go round once more: FIFO with re-insertion, known as CLOCK since
//! Corbato, "A paging experiment with the Multics system" (1969). 10 bytes a slot.
//!
//! The oldest unit that was not used much goes; older ones have their uses halved and become the newest. Reads do not
//! change the order, only a count.

use zc_core::{WeuSlot, u64_from_usize};

use super::ReplacementPolicy;
use super::ring::{Queue, Ring};
use super::uses::Uses;

const ALL: Queue = Queue(0);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct WeuFifo {
    ring: Ring,
    uses: Uses,
    spared: u64,
}

impl WeuFifo {
    /// For `slots` slots, none of them known.
    pub(super) fn new(slots: u32) -> Self {
        Self { ring: Ring::new(slots, 1), uses: Uses::new(slots), spared: 0 }
    }
}

impl ReplacementPolicy for WeuFifo {
    fn inserted(&mut self, slot: WeuSlot) {
        self.removed(slot);
        self.ring.push(ALL, slot);
        self.uses.enter();
    }

    fn touched(&mut self, slot: WeuSlot) {
        if self.ring.contains(slot) {
            self.uses.add(slot);
        }
    }

    fn removed(&mut self, slot: WeuSlot) {
        if self.ring.contains(slot) {
            self.ring.unlink(slot);
            self.uses.leave(slot);
        }
    }

    fn victim(&mut self, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        let Self { ring, uses, spared } = self;
        ring.second_chance(ALL, skip, |ring, slot| {
            let stays = uses.many(slot);
            if stays {
                uses.halve(slot);
                ring.renew(ALL, slot);
                *spared += 1;
            }
            stays
        })
        .or_else(|| ring.oldest_but(ALL, skip))
    }

    fn spared(&self) -> u64 {
        self.spared
    }

    fn ram_bytes(&self) -> u64 {
        self.ring.ram_bytes() + self.uses.ram_bytes() + u64_from_usize(size_of::<Self>())
    }
}
