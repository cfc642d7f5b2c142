//! Replacement: selects the WEU to evict when a slot is needed.
//!
//! Invariants: a policy holds exactly the slots that were inserted and not removed; it names victims, it does not
//! evict them. The same calls give the same victims. A victim is found in at most two passes over the slots, so that
//! slots that may not go (dirty, pinned, open) cost time but never an endless search. Out of scope: contents and pins
//! of a WEU.
//!
//! Policies are those of caches of pages, at the grain of units that are written once and evicted whole. A unit does
//! not come back after it was evicted, so none of them keeps a record of evicted ones (no ghosts). Hundreds of
//! extents share a unit, so that "used at all" means little: a policy that checks if a unit was used compares it with
//! more than the mean of all units (see [`uses`]).
//!
//! Units are in classes (see `classes`). Each class has an order of its own, and a victim is requested from one
//! class. All orders share the arrays that are indexed by slot. Callers name the class that a slot was inserted in.

mod cost_benefit;
pub(crate) mod lru;
pub(crate) mod order;
pub(crate) mod ring;
mod s3_fifo;
mod second_chance;
mod uses;

use lru::WeuLru;
use order::ReplacementPolicy;
use second_chance::{Counts, WeuSecondChance};

use crate::config::Replacement;

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
