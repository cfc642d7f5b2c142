//! A digest over every action of the cache manager, in order.
//!
//! Job: tell whether two builds of the manager do the same under one seed. A change that only moves code keeps it.
//!
//! Invariants: it goes by values and by the order of variants and fields, not by names. Actions that leave with
//! another event give another digest, even in the same order.
//!
//! What it does not do: compare builds of different toolchains, whose standard hash may differ.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use zc_cache::seam::Action;

/// The digest of what one seed has done so far.
#[derive(Debug, Clone)]
pub(crate) struct ActionDigest(DefaultHasher);

impl ActionDigest {
    pub(crate) fn new(seed: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        Self(hasher)
    }

    /// Adds the actions that one event has led to.
    pub(crate) fn add(&mut self, actions: &[Action]) {
        actions.hash(&mut self.0);
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use zc_core::{BufId, OpId};

    use super::*;

    fn digest(seed: u64, turns: &[&[Action]]) -> u64 {
        let mut digest = ActionDigest::new(seed);
        turns.iter().for_each(|actions| digest.add(actions));
        digest.finish()
    }

    #[test]
    fn order_values_events_and_seed_tell() {
        let free = |buf| Action::Free { buf: BufId(buf) };
        let flush = |op| Action::FlushCache { op: OpId(op) };
        let known = digest(1, &[&[free(1), flush(2)]]);
        assert_eq!(known, digest(1, &[&[free(1), flush(2)]]));
        let others = [
            digest(1, &[&[flush(2), free(1)]]),
            digest(1, &[&[free(1), flush(3)]]),
            digest(1, &[&[free(1)], &[flush(2)]]),
            digest(1, &[&[free(1), flush(2)], &[]]),
            digest(2, &[&[free(1), flush(2)]]),
        ];
        assert!(!others.contains(&known));
    }
}
