//! ARC: a list of keys that were used once and one of keys used more often, the ghosts of both, and a target size for
//! the first that every hit on a ghost adjusts (Figure 4 of the paper).

use crate::arena::{Arena, List};
use crate::{Keys, Policy};

/// List of a key, with the paper's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Used once.
    T1,
    /// Used more often.
    T2,
    /// Ghosts of the first.
    B1,
    /// Ghosts of the second.
    B2,
}

/// An ARC.
#[derive(Debug)]
pub(crate) struct Arc {
    capacity: usize,
    /// Target size of T1.
    target: usize,
    keys: Keys<u32>,
    arena: Arena<Place>,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
}

impl Arc {
    pub(crate) fn new(capacity: usize) -> Self {
        let list = List::new();
        let (t1, t2, b1, b2) = (list, list, list, list);
        Self { capacity, target: 0, keys: Keys::new(), arena: Arena::new(), t1, t2, b1, b2 }
    }

    fn forget(&mut self, place: Place) {
        let list = match place {
            Place::T1 => &mut self.t1,
            Place::T2 => &mut self.t2,
            Place::B1 => &mut self.b1,
            Place::B2 => &mut self.b2,
        };
        if let Some(id) = self.arena.pop_back(list) {
            self.keys.remove(self.arena.drop_node(id));
        }
    }

    /// The paper's REPLACE: one resident key becomes a ghost.
    fn replace(&mut self, for_b2: bool) {
        let used_once = self.t1.len();
        let from_t1 = used_once > self.target || (for_b2 && used_once == self.target) || self.t2.is_empty();
        let (from, to, place) = if from_t1 && used_once > 0 {
            (&mut self.t1, &mut self.b1, Place::B1)
        } else {
            (&mut self.t2, &mut self.b2, Place::B2)
        };
        if let Some(id) = self.arena.pop_back(from) {
            self.arena.set_mark(id, place);
            self.arena.push_front(to, id);
        }
    }

    fn miss(&mut self, key: u64) {
        let (recent, all) = (self.t1.len() + self.b1.len(), self.keys.len());
        if recent >= self.capacity {
            if self.t1.len() < self.capacity {
                self.forget(Place::B1);
                self.replace(false);
            } else {
                self.forget(Place::T1);
            }
        } else if all >= self.capacity {
            if all >= 2 * self.capacity {
                self.forget(Place::B2);
            }
            self.replace(false);
        }
        let id = self.arena.add(key, Place::T1);
        self.arena.push_front(&mut self.t1, id);
        self.keys.set(key, id);
    }
}

impl Policy for Arc {
    fn access(&mut self, key: u64) -> bool {
        let Some(id) = self.keys.get(key) else {
            self.miss(key);
            return false;
        };
        let (ones, twos) = (self.b1.len(), self.b2.len());
        let place = self.arena.mark(id);
        match place {
            Place::T1 => self.arena.unlink(&mut self.t1, id),
            Place::T2 => self.arena.unlink(&mut self.t2, id),
            Place::B1 => {
                self.target = (self.target + (twos / ones).max(1)).min(self.capacity);
                self.replace(false);
                self.arena.unlink(&mut self.b1, id);
            }
            Place::B2 => {
                self.target = self.target.saturating_sub((ones / twos).max(1));
                self.replace(true);
                self.arena.unlink(&mut self.b2, id);
            }
        }
        self.arena.set_mark(id, Place::T2);
        self.arena.push_front(&mut self.t2, id);
        matches!(place, Place::T1 | Place::T2)
    }

    fn len(&self) -> usize {
        self.t1.len() + self.t2.len()
    }

    fn ram_bytes(&self) -> u64 {
        self.keys.ram_bytes() + self.arena.ram_bytes()
    }
}
