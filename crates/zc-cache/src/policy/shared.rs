//! Least recently used first, but units whose content many addresses share go round once more: the dedup count as a
//! frequency. That the number of addresses that share a content tells what is worth keeping is the idea of CDAC (Tan et
//! al., MSST 2019), there for blocks. 10 bytes a slot.
//!
//! What counts is how often an address came to have the unit's content, since the unit came; overwritten addresses are
//! not taken off, but the count is halved at every round that it buys. Without duplicates this is WEU-LRU.

use zc_core::{WeuSlot, u64_from_usize};

use super::ReplacementPolicy;
use super::ring::{Queue, Ring};
use super::uses::Uses;

const ALL: Queue = Queue(0);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct WeuSharedLru {
    ring: Ring,
    shares: Uses,
    spared: u64,
}

impl WeuSharedLru {
    /// For `slots` slots, none of them known.
    pub(super) fn new(slots: u32) -> Self {
        Self { ring: Ring::new(slots, 1), shares: Uses::new(slots), spared: 0 }
    }
}

impl ReplacementPolicy for WeuSharedLru {
    fn inserted(&mut self, slot: WeuSlot) {
        self.removed(slot);
        self.ring.push(ALL, slot);
        self.shares.enter();
    }

    fn touched(&mut self, slot: WeuSlot) {
        if self.ring.contains(slot) {
            self.ring.renew(ALL, slot);
        }
    }

    fn shared(&mut self, slot: WeuSlot) {
        if self.ring.contains(slot) {
            self.ring.renew(ALL, slot);
            self.shares.add(slot);
        }
    }

    fn removed(&mut self, slot: WeuSlot) {
        if self.ring.contains(slot) {
            self.ring.unlink(slot);
            self.shares.leave(slot);
        }
    }

    fn victim(&mut self, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        let Self { ring, shares, spared } = self;
        ring.second_chance(ALL, skip, |ring, slot| {
            let stays = shares.many(slot);
            if stays {
                shares.halve(slot);
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
        self.ring.ram_bytes() + self.shares.ram_bytes() + u64_from_usize(size_of::<Self>())
    }
}
