//! SIEVE: a FIFO in which a hand skips used keys, clears their mark and leaves them in place.

use crate::arena::{Arena, List, NIL};
use crate::{Keys, Policy};

/// A SIEVE.
#[derive(Debug)]
pub(crate) struct Sieve {
    capacity: usize,
    keys: Keys<u32>,
    arena: Arena<bool>,
    list: List,
    /// Position at which the search for a victim resumes; [`NIL`]: at the back.
    hand: u32,
}

impl Sieve {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, keys: Keys::new(), arena: Arena::new(), list: List::new(), hand: NIL }
    }

    fn evict(&mut self) {
        let mut at = if self.hand == NIL { self.list.back() } else { self.hand };
        while self.arena.mark(at) {
            self.arena.set_mark(at, false);
            let newer = self.arena.newer(at);
            at = if newer == NIL { self.list.back() } else { newer };
        }
        self.hand = self.arena.newer(at);
        self.arena.unlink(&mut self.list, at);
        self.keys.remove(self.arena.drop_node(at));
    }
}

impl Policy for Sieve {
    fn access(&mut self, key: u64) -> bool {
        if let Some(id) = self.keys.get(key) {
            self.arena.set_mark(id, true);
            return true;
        }
        if self.list.len() >= self.capacity {
            self.evict();
        }
        let id = self.arena.add(key, false);
        self.arena.push_front(&mut self.list, id);
        self.keys.set(key, id);
        false
    }

    fn len(&self) -> usize {
        self.list.len()
    }

    fn ram_bytes(&self) -> u64 {
        self.keys.ram_bytes() + self.arena.ram_bytes()
    }
}
