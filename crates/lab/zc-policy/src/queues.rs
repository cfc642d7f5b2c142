//! LRU, FIFO and CLOCK: one queue with three reactions to a hit.

use crate::arena::{Arena, List};
use crate::{Keys, Policy};

/// Reaction to a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Nothing (FIFO).
    Nothing,
    /// Moves the key to the front (LRU).
    Move,
    /// Marks the key; marked keys go round once more when they reach the back (CLOCK).
    Mark,
}

/// A queue of keys.
#[derive(Debug)]
pub(crate) struct Queue {
    capacity: usize,
    touch: Touch,
    keys: Keys<u32>,
    arena: Arena<bool>,
    list: List,
}

impl Queue {
    pub(crate) fn new(capacity: usize, touch: Touch) -> Self {
        Self { capacity, touch, keys: Keys::new(), arena: Arena::new(), list: List::new() }
    }

    /// Drops a key early; returns `true` if it was resident.
    pub(crate) fn remove(&mut self, key: u64) -> bool {
        let Some(id) = self.keys.get(key) else { return false };
        self.arena.unlink(&mut self.list, id);
        self.keys.remove(self.arena.drop_node(id));
        true
    }

    fn evict(&mut self) {
        while let Some(id) = self.arena.pop_back(&mut self.list) {
            if self.arena.mark(id) {
                self.arena.set_mark(id, false);
                self.arena.push_front(&mut self.list, id);
                continue;
            }
            self.keys.remove(self.arena.drop_node(id));
            return;
        }
    }
}

impl Policy for Queue {
    fn access(&mut self, key: u64) -> bool {
        if let Some(id) = self.keys.get(key) {
            match self.touch {
                Touch::Nothing => {}
                Touch::Move => self.arena.move_to_front(&mut self.list, id),
                Touch::Mark => self.arena.set_mark(id, true),
            }
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
