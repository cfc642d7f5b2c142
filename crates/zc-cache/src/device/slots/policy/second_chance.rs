//! The oldest unit is evicted, but one with a high count gets another round: its count is halved and it becomes the
//! newest. 10 bytes a slot. Two policies, which differ in the events counted and in those that make a unit new:
//!
//! - [`Counts::Uses`]: first in, first out with re-insertion, known as CLOCK since Corbato, "A paging experiment with
//!   the Multics system" (1969). Reads do not change the order, only the count.
//! - [`Counts::Shares`]: least recently used first, with the dedup count as a frequency. The number of addresses that
//!   share a content as a measure of its value is the idea of CDAC (Tan et al., MSST 2019), there for blocks. Counted
//!   are the times an address came to have the unit's content, since the unit came; overwritten addresses are not
//!   subtracted. Without duplicates this is WEU-LRU.

use zc_core::{WeuSlot, u64_from_usize};

use super::order::ReplacementPolicy;
use super::ring::{Queue, Ring};
use super::uses::Uses;
use crate::device::slots::class_id::ClassId;

/// Events that earn a unit another round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// Every use of its content.
    Uses,
    /// Every address more that has its content. Any use makes the unit the newest.
    Shares,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct WeuSecondChance {
    counts: Counts,
    ring: Ring,
    uses: Uses,
    spared: u64,
}

impl WeuSecondChance {
    /// For `slots` slots, none of them known.
    pub(super) fn new(slots: u32, counts: Counts) -> Self {
        Self { counts, ring: Ring::new(slots, ClassId::COUNT), uses: Uses::new(slots), spared: 0 }
    }

    fn used(&mut self, slot: WeuSlot, class: ClassId, how: Counts) {
        if !self.ring.contains(slot) {
            return;
        }
        if self.counts == Counts::Shares {
            self.ring.renew(of(class), slot);
        }
        if self.counts == Counts::Uses || how == Counts::Shares {
            self.uses.add(slot);
        }
    }
}

fn of(class: ClassId) -> Queue {
    Queue(class.number())
}

impl ReplacementPolicy for WeuSecondChance {
    fn inserted(&mut self, slot: WeuSlot, class: ClassId) {
        self.removed(slot, class);
        self.ring.push(of(class), slot);
        self.uses.enter();
    }

    fn touched(&mut self, slot: WeuSlot, class: ClassId) {
        self.used(slot, class, Counts::Uses);
    }

    fn shared(&mut self, slot: WeuSlot, class: ClassId) {
        self.used(slot, class, Counts::Shares);
    }

    fn removed(&mut self, slot: WeuSlot, _class: ClassId) {
        if self.ring.contains(slot) {
            self.ring.unlink(slot);
            self.uses.leave(slot);
        }
    }

    fn victim(&mut self, class: ClassId, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        let Self { ring, uses, spared, .. } = self;
        ring.second_chance(of(class), skip, |ring, slot| {
            let stays = uses.many(slot);
            if stays {
                uses.halve(slot);
                ring.renew(of(class), slot);
                *spared += 1;
            }
            stays
        })
        .or_else(|| ring.oldest_but(of(class), skip))
    }

    fn oldest(&self, class: ClassId) -> Option<WeuSlot> {
        self.ring.oldest(of(class))
    }

    fn spared(&self) -> u64 {
        self.spared
    }

    fn ram_bytes(&self) -> u64 {
        self.ring.ram_bytes() + self.uses.ram_bytes() + u64_from_usize(size_of::<Self>())
    }
}
