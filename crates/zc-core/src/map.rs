//! Hash maps whose iteration order depends on their history alone, so that a seed replays a run.

use core::hash::BuildHasherDefault;

/// The hasher behind [`Map`] and [`Set`]: fast, without a random key.
pub type FixedHasher = BuildHasherDefault<rustc_hash::FxHasher>;
/// A hash map with a fixed hasher. Not for keys that a hostile peer chooses freely.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedHasher>;
/// A hash set with a fixed hasher. Not for keys that a hostile peer chooses freely.
pub type Set<K> = hashbrown::HashSet<K, FixedHasher>;
