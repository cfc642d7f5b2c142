//! Second-chance policies: the oldest unit is evicted, unless its count is high: then the count is halved and the unit
//! becomes the newest. 10 bytes per slot. Two variants differ in the events that are counted and in those that renew a
//! unit:
//!
//! - [`Counts::Uses`]: FIFO with re-insertion, known as CLOCK since Corbato, "A paging experiment with the Multics
//!   system" (1969). Reads change the count and not the order.
//! - [`Counts::Shares`]: LRU with the deduplication count as a frequency. The number of addresses that share a content
//!   as a measure of its value is the idea of CDAC (Tan et al., MSST 2019), there for blocks. The count includes every
//!   mapping to the unit's content since it was written; overwritten addresses are not subtracted. Without duplicates
//!   this is WEU-LRU.

use zc_core::{WeuSlot, u64_from_usize};

use super::order::ReplacementPolicy;
use super::ring::{Queue, Ring};
use super::uses::Uses;
use crate::device::slots::class_id::ClassId;

/// Events that count towards another round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// Every use of its content.
    Uses,
    /// Every additional address with its content. Any use makes the unit the newest.
    Shares,
}

#[derive(Debug)]
pub(super) struct WeuSecondChance {
    counts: Counts,
    ring: Ring,
    uses: Uses,
    spared: u64,
}

impl WeuSecondChance {
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
