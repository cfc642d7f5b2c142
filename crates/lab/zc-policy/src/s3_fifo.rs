//! S3-FIFO: a small FIFO of a tenth of the capacity, a main one, and the ghosts of keys that left the small one
//! unused. Counters go up to three; two uses promote from the small to the main queue, each use there grants one more
//! round.

use crate::arena::{Arena, List};
use crate::{Keys, Policy};

/// Largest count of uses.
const USES_MAX: u8 = 3;
/// Uses in the small queue that lead to the main one.
const USES_TO_STAY: u8 = 2;

/// Queue of a key, and its uses there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Small(u8),
    Main(u8),
    Ghost,
}

/// An S3-FIFO.
#[derive(Debug)]
pub(crate) struct S3Fifo {
    capacity: usize,
    small_max: usize,
    keys: Keys<u32>,
    arena: Arena<Place>,
    small: List,
    main: List,
    ghosts: List,
}

impl S3Fifo {
    pub(crate) fn new(capacity: usize) -> Self {
        let list = List::new();
        let small_max = (capacity / 10).max(1);
        let (keys, arena) = (Keys::new(), Arena::new());
        Self { capacity, small_max, keys, arena, small: list, main: list, ghosts: list }
    }

    /// Takes keys from the small queue until one leaves the cache, or the queue is empty.
    fn evict_small(&mut self) {
        while let Some(id) = self.arena.pop_back(&mut self.small) {
            if matches!(self.arena.mark(id), Place::Small(uses) if uses >= USES_TO_STAY) {
                self.arena.set_mark(id, Place::Main(0));
                self.arena.push_front(&mut self.main, id);
                continue;
            }
            self.arena.set_mark(id, Place::Ghost);
            self.arena.push_front(&mut self.ghosts, id);
            if self.ghosts.len() > self.capacity - self.small_max {
                let oldest = self.arena.pop_back(&mut self.ghosts);
                oldest.map(|id| self.arena.drop_node(id)).into_iter().for_each(|key| self.keys.remove(key));
            }
            return;
        }
    }

    fn evict_main(&mut self) {
        while let Some(id) = self.arena.pop_back(&mut self.main) {
            if let Place::Main(uses @ 1..) = self.arena.mark(id) {
                self.arena.set_mark(id, Place::Main(uses - 1));
                self.arena.push_front(&mut self.main, id);
                continue;
            }
            self.keys.remove(self.arena.drop_node(id));
            return;
        }
    }

    fn make_room(&mut self) {
        while self.len() >= self.capacity {
            if self.small.len() >= self.small_max || self.main.is_empty() {
                self.evict_small();
            } else {
                self.evict_main();
            }
        }
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, key: u64) -> bool {
        if let Some(id) = self.keys.get(key) {
            let used = |uses: u8| (uses + 1).min(USES_MAX);
            match self.arena.mark(id) {
                Place::Small(uses) => self.arena.set_mark(id, Place::Small(used(uses))),
                Place::Main(uses) => self.arena.set_mark(id, Place::Main(used(uses))),
                Place::Ghost => {
                    self.arena.unlink(&mut self.ghosts, id);
                    self.make_room();
                    self.arena.set_mark(id, Place::Main(0));
                    self.arena.push_front(&mut self.main, id);
                    return false;
                }
            }
            return true;
        }
        self.make_room();
        let id = self.arena.add(key, Place::Small(0));
        self.arena.push_front(&mut self.small, id);
        self.keys.set(key, id);
        false
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn ram_bytes(&self) -> u64 {
        self.keys.ram_bytes() + self.arena.ram_bytes()
    }
}
