//! The least recently used key goes first, and a key that is dead goes at once.

use crate::queues::{Queue, Touch};
use crate::{CAPACITY_MAX, Policy};

/// An LRU whose user may drop keys: a cache without dead content.
#[derive(Debug)]
pub struct Lru(Queue);

impl Lru {
    /// An empty cache of `capacity` keys.
    ///
    /// # Panics
    /// If the capacity is 0 or above [`CAPACITY_MAX`].
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!((1..=CAPACITY_MAX).contains(&capacity), "the caller checks the capacity");
        Self(Queue::new(capacity, Touch::Move))
    }

    /// Accesses a key; returns `true` if it was resident. It is resident afterwards.
    pub fn access(&mut self, key: u64) -> bool {
        self.0.access(key)
    }

    /// Drops a key; returns `true` if it was resident.
    pub fn remove(&mut self, key: u64) -> bool {
        self.0.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_leaves_its_room_to_another() {
        let mut lru = Lru::new(2);
        assert_eq!([1, 2].map(|key| lru.access(key)), [false, false]);
        assert!(lru.remove(2));
        assert!(!lru.remove(2), "it has gone");
        assert_eq!(
            [3, 1, 3].map(|key| lru.access(key)),
            [false, true, true],
            "1 stays: 3 took the room of 2"
        );
        assert!(!lru.access(2));
        assert!(!lru.access(1), "the least recently used of 1 and 3 went");
    }
}
