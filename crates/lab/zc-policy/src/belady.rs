//! Belady's MIN: evicts the resident key whose next use is the latest. No policy that admits every accessed key has
//! more hits.

use std::collections::BTreeSet;

use zc_core::{Map, u64_from_usize, usize_from_u32};

use crate::{Keys, Policy};

/// Not used again.
const NEVER: u32 = u32::MAX;

/// MIN over accesses that are known in advance.
#[derive(Debug)]
pub struct Belady {
    capacity: usize,
    /// For every access, when its key is used next.
    next: Vec<u32>,
    now: usize,
    /// When each resident key is used next.
    keys: Keys<u32>,
    /// Resident keys with their next uses, in order of these uses.
    order: BTreeSet<(u32, u64)>,
}

impl Belady {
    /// A cache for exactly these accesses.
    ///
    /// # Panics
    /// With 2^32 - 1 accesses or more.
    #[must_use]
    pub fn new(capacity: usize, future: &[u64]) -> Self {
        let mut next = vec![NEVER; future.len()];
        let mut seen: Map<u64, u32> = Map::default();
        for (at, key) in future.iter().enumerate().rev() {
            let number = u32::try_from(at).unwrap_or(NEVER);
            assert!(number != NEVER, "traces are shorter");
            next[at] = seen.insert(*key, number).unwrap_or(NEVER);
        }
        Self { capacity, next, now: 0, keys: Keys::new(), order: BTreeSet::new() }
    }
}

impl Policy for Belady {
    /// # Panics
    /// On an access that was not announced.
    fn access(&mut self, key: u64) -> bool {
        let next = self.next[self.now];
        self.now += 1;
        let was = self.keys.get(key);
        if let Some(was) = was {
            assert!(usize_from_u32(was) == self.now - 1, "accesses come as announced");
            self.order.remove(&(was, key));
        } else if self.order.len() >= self.capacity
            && let Some((_, victim)) = self.order.pop_last()
        {
            self.keys.remove(victim);
        }
        self.order.insert((next, key));
        self.keys.set(key, next);
        was.is_some()
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn ram_bytes(&self) -> u64 {
        let ordered = self.order.len() * size_of::<(u32, u64)>();
        self.keys.ram_bytes() + u64_from_usize(ordered + self.next.capacity() * size_of::<u32>())
    }
}
