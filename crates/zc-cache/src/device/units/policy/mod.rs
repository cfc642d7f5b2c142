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

mod cost_benefit;
mod lru;
mod ring;
mod s3_fifo;
mod second_chance;
mod uses;

use second_chance::{Counts, WeuSecondChance};
use zc_core::WeuSlot;

use crate::config::Replacement;

pub(crate) use lru::WeuLru;
pub(crate) use ring::{Queue, Ring};

/// Order in which WEUs are evicted.
pub(crate) trait ReplacementPolicy: core::fmt::Debug {
    /// A WEU was written to `slot` (or is open there), later than all that are known. Counts as a use where uses make
    /// the order.
    fn inserted(&mut self, slot: WeuSlot);
    /// Content of the slot was used. Nothing happens for a slot that was not inserted.
    fn touched(&mut self, slot: WeuSlot);
    /// An address more has the slot's content, which also is a use. Nothing happens for a slot that was not inserted.
    fn shared(&mut self, slot: WeuSlot) {
        self.touched(slot);
    }
    /// The slot's WEU is gone or about to go. Nothing happens for a slot that was not inserted.
    fn removed(&mut self, slot: WeuSlot);
    /// The first slot in the order of eviction for which `skip` is false. It stays known until it is removed, which the
    /// caller does next: a policy may have let others pass for it.
    fn victim(&mut self, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot>;
    /// As [`Self::victim`], told how many live extents a slot has; none if it may not go.
    fn emptiest(&mut self, live: &mut dyn FnMut(WeuSlot) -> Option<u32>) -> Option<WeuSlot> {
        self.victim(&mut |slot| live(slot).is_none())
    }
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
