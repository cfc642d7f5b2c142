//! Replacement: which WEU goes when a slot is needed.
//!
//! Invariants: a policy knows exactly the slots that were inserted and not removed; it names victims, it does not evict
//! them. The same calls give the same victims. A victim is found in at most two passes over what is known, so that
//! slots that may not go (dirty, pinned, open) cost time but never an endless search. What it does not do: know what a
//! WEU holds, or who pins it.
//!
//! Policies are those of caches of pages, at the grain of units that are written once and evicted whole. A unit does
//! not come back after it was evicted, so none of them has a memory of what left (no ghosts); and hundreds of extents
//! share a unit, so that "used at all" tells little: where a policy asks whether a unit was used, it asks for more than
//! the mean of all units (see [`uses`]).
//!
//! Units are in classes (see `classes`). Each class has an order of its own, and a victim is asked of one class. All
//! orders share the arrays that are indexed by slot. Callers name the class that a slot was inserted in.

mod cost_benefit;
mod lru;
mod ring;
mod s3_fifo;
mod second_chance;
mod uses;

use second_chance::{Counts, WeuSecondChance};
use zc_core::WeuSlot;

use crate::config::Replacement;
use crate::device::units::classes::ClassId;

pub(crate) use lru::WeuLru;
pub(crate) use ring::{Queue, Ring};

/// Order in which WEUs are evicted.
pub(crate) trait ReplacementPolicy: core::fmt::Debug {
    /// A WEU was written to `slot` (or is open there), later than all that are known. Counts as a use where uses make
    /// the order. A slot that is known is known in the same class.
    fn inserted(&mut self, slot: WeuSlot, class: ClassId);
    /// Content of the slot was used. Nothing happens for a slot that was not inserted.
    fn touched(&mut self, slot: WeuSlot, class: ClassId);
    /// An address more has the slot's content, which also is a use. Nothing happens for a slot that was not inserted.
    fn shared(&mut self, slot: WeuSlot, class: ClassId) {
        self.touched(slot, class);
    }
    /// The slot's WEU is gone or about to go, or changes its class. Nothing happens for a slot that was not inserted.
    fn removed(&mut self, slot: WeuSlot, class: ClassId);
    /// The first slot in the class's order of eviction for which `skip` is false. It stays known until it is removed,
    /// which the caller does next: a policy may have let others pass for it.
    fn victim(&mut self, class: ClassId, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot>;
    /// As [`Self::victim`], told how many live extents a slot has; none if it may not go.
    fn emptiest(&mut self, class: ClassId, live: &mut dyn FnMut(WeuSlot) -> Option<u32>) -> Option<WeuSlot> {
        self.victim(class, &mut |slot| live(slot).is_none())
    }
    /// The first slot in the class's order of eviction, whether it may go or not.
    fn oldest(&self, class: ClassId) -> Option<WeuSlot>;
    /// Slots that were next and may stay for another round, since the start.
    fn spared(&self) -> u64 {
        0
    }
    /// RAM held, in bytes.
    fn ram_bytes(&self) -> u64;
}

/// The policy for a cache of `slots` slots.
#[must_use]
pub(crate) fn policy(replacement: Replacement, slots: u32) -> Box<dyn ReplacementPolicy + Send> {
    match replacement {
        Replacement::Lru => Box::new(WeuLru::new(slots)),
        Replacement::FifoReinsert => Box::new(WeuSecondChance::new(slots, Counts::Uses)),
        Replacement::S3Fifo => Box::new(s3_fifo::WeuS3Fifo::new(slots)),
        Replacement::CostBenefit => Box::new(cost_benefit::WeuCostBenefit::new(slots)),
        Replacement::SharedLru => Box::new(WeuSecondChance::new(slots, Counts::Shares)),
    }
}

#[cfg(test)]
mod tests;
