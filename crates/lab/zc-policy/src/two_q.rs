//! 2Q, the full version: newcomers pass through a FIFO of a quarter of the capacity, leave a ghost for half of it, and
//! enter an LRU when they are used while a ghost.

use crate::arena::{Arena, List};
use crate::{Keys, Policy};

/// Queue of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The FIFO of newcomers (A1in).
    In,
    /// The ghosts of those that left it (A1out).
    Out,
    /// The LRU (Am).
    Main,
}

/// A 2Q.
#[derive(Debug)]
pub(crate) struct TwoQ {
    capacity: usize,
    in_max: usize,
    out_max: usize,
    keys: Keys<u32>,
    arena: Arena<Place>,
    newcomers: List,
    ghosts: List,
    main: List,
}

impl TwoQ {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            in_max: (capacity / 4).max(1),
            out_max: (capacity / 2).max(1),
            keys: Keys::new(),
            arena: Arena::new(),
            newcomers: List::new(),
            ghosts: List::new(),
            main: List::new(),
        }
    }

    /// Frees capacity for one key.
    fn reclaim(&mut self) {
        if self.len() < self.capacity {
            return;
        }
        if self.newcomers.len() <= self.in_max
            && let Some(id) = self.arena.pop_back(&mut self.main)
        {
            self.keys.remove(self.arena.drop_node(id));
            return;
        }
        if let Some(id) = self.arena.pop_back(&mut self.newcomers) {
            self.arena.set_mark(id, Place::Out);
            self.arena.push_front(&mut self.ghosts, id);
        }
        if self.ghosts.len() > self.out_max
            && let Some(id) = self.arena.pop_back(&mut self.ghosts)
        {
            self.keys.remove(self.arena.drop_node(id));
        }
    }
}

impl Policy for TwoQ {
    fn access(&mut self, key: u64) -> bool {
        let Some(id) = self.keys.get(key) else {
            self.reclaim();
            let id = self.arena.add(key, Place::In);
            self.arena.push_front(&mut self.newcomers, id);
            self.keys.set(key, id);
            return false;
        };
        match self.arena.mark(id) {
            Place::In => true,
            Place::Main => {
                self.arena.move_to_front(&mut self.main, id);
                true
            }
            Place::Out => {
                self.arena.unlink(&mut self.ghosts, id);
                self.reclaim();
                self.arena.set_mark(id, Place::Main);
                self.arena.push_front(&mut self.main, id);
                false
            }
        }
    }

    fn len(&self) -> usize {
        self.newcomers.len() + self.main.len()
    }

    fn ram_bytes(&self) -> u64 {
        self.keys.ram_bytes() + self.arena.ram_bytes()
    }
}
