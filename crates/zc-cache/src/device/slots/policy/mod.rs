//! Replacement: selects the WEU to evict when a slot is needed.
//!
//! Invariants: a policy contains exactly the slots that were inserted and not removed; it selects victims and does not
//! evict them. It is deterministic. A victim is found in at most two passes over the slots, so that slots that cannot
//! be evicted (dirty, pinned, open) cost bounded time. Out of scope: contents and pins of a WEU.
//!
//! The policies are those of page caches, applied to units that are written once and evicted whole. A unit does not
//! return after its eviction, so no policy records evicted ones (no ghosts). Hundreds of extents share a unit, so most
//! units are used at least once: a policy that depends on use compares the count with a multiple of the mean of all
//! units (see [`uses`]).
//!
//! Units are in classes (see `classes`). Each class has an order of its own, and a victim is selected within one
//! class. All orders share the arrays indexed by slot. Callers pass the class in which a slot was inserted.

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

/// Returns the policy for a cache of `slots` slots.
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
