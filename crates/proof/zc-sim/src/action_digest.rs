//! Digest over every action of the cache manager, in order.
//!
//! Job: show if two builds of the manager act identically under one seed. A change that only moves code keeps the
//! digest.
//!
//! Invariants: the digest covers values and the order of variants and fields, not names. Actions emitted for another
//! event change it, even in the same order.
//!
//! It does not compare builds of different toolchains, whose standard hash may differ.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use zc_cache::seam::Action;

/// Digest of the actions of one seed so far.
#[derive(Debug, Clone)]
pub(crate) struct ActionDigest(DefaultHasher);

impl ActionDigest {
    pub(crate) fn new(seed: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        Self(hasher)
    }

    /// Adds the actions caused by one event.
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
