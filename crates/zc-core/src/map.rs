//! Hash maps whose iteration order depends only on their history, or on that and a key, so that a run replays from its
//! seed.
//!
//! Job: [`Map`] for keys that the program numbers itself: operations, buffers, volumes, slots. [`KeyedMap`] for keys
//! that a client chooses, such as extents: their hash depends on a secret [`HashKey`], so that no client can choose
//! extents that collide.
//!
//! Invariant: a keyed map cannot be made without a key.
//!
//! Out of scope: random keys in a simulation, which uses the fixed one.

use core::hash::{BuildHasher, BuildHasherDefault};

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// The hasher behind [`Map`] and [`Set`]: fast, without a random key.
pub type FixedHasher = BuildHasherDefault<rustc_hash::FxHasher>;
/// A hash map with a fixed hasher. Not for keys that a hostile peer chooses freely.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedHasher>;
/// A hash set with a fixed hasher. Not for keys that a hostile peer chooses freely.
pub type Set<K> = hashbrown::HashSet<K, FixedHasher>;

/// A hash map for keys that a client chooses.
pub type KeyedMap<K, V> = hashbrown::HashMap<K, V, HashKey>;
/// A hash set for keys that a client chooses.
pub type KeyedSet<K> = hashbrown::HashSet<K, HashKey>;

/// Key of the hashes of keyed maps.
#[derive(Debug, Clone)]
pub struct HashKey(SeedableRandomState);

impl HashKey {
    /// The public key, for simulations, replays and tests, which must repeat.
    #[must_use]
    pub fn fixed() -> Self {
        Self(SeedableRandomState::with_seed(0, SharedSeed::global_fixed()))
    }

    /// Returns a key of this process, derived from `number` and from the randomness that the process drew at its first
    /// call.
    #[must_use]
    pub fn random(number: u64) -> Self {
        Self(SeedableRandomState::with_seed(number, SharedSeed::global_random()))
    }

    /// An empty map with this key.
    #[must_use]
    pub fn map<K, V>(&self) -> KeyedMap<K, V> {
        KeyedMap::with_hasher(self.clone())
    }

    /// An empty set with this key.
    #[must_use]
    pub fn set<K>(&self) -> KeyedSet<K> {
        KeyedSet::with_hasher(self.clone())
    }
}

impl BuildHasher for HashKey {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExtentKey, ExtentNo, VolumeId};

    /// Position of an extent of volume 1 in a table of 4096.
    fn place(hasher: &impl BuildHasher, extent: u64) -> u64 {
        hasher.hash_one(ExtentKey { volume: VolumeId(1), extent: ExtentNo(extent) }) % 4096
    }

    /// Number of distinct positions of these extents.
    fn places(hasher: &impl BuildHasher, extents: &[u64]) -> usize {
        let mut places: Vec<u64> = extents.iter().map(|extent| place(hasher, *extent)).collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    }

    #[test]
    fn extents_that_collide_without_a_key_do_not_with_one() {
        let fixed = FixedHasher::default();
        let chosen: Vec<u64> = (0..1 << 24).filter(|extent| place(&fixed, *extent) == 7).take(2048).collect();
        assert_eq!((chosen.len(), places(&fixed, &chosen)), (2048, 1), "all in one place");
        for key in [HashKey::fixed(), HashKey::random(1), HashKey::random(2)] {
            // 1,612 of 4,096 are expected when 2,048 fall at random.
            assert!(places(&key, &chosen) > 1400, "{}", places(&key, &chosen));
        }
        let differ = |one: &HashKey, other: &HashKey| {
            place(one, 1) != place(other, 1) || place(one, 2) != place(other, 2)
        };
        assert!(differ(&HashKey::random(1), &HashKey::random(2)));
        assert!(!differ(&HashKey::fixed(), &HashKey::fixed()));
    }
}
