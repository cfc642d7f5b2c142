//! W-TinyLFU: new keys stay in an LRU window of one per cent; a key that leaves it replaces the victim of the main
//! part only if its recent frequency is higher. The main part is a segmented LRU, with four fifths for keys used
//! again.

use crate::arena::{Arena, List, NIL};
use crate::sketch::Sketch;
use crate::{Keys, Policy};

/// Segment of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Window,
    Probation,
    Protected,
}

/// A W-TinyLFU.
#[derive(Debug)]
pub(crate) struct TinyLfu {
    window_max: usize,
    main_max: usize,
    protected_max: usize,
    keys: Keys<u32>,
    arena: Arena<Place>,
    window: List,
    probation: List,
    protected: List,
    sketch: Sketch,
}

impl TinyLfu {
    pub(crate) fn new(capacity: usize) -> Self {
        let window_max = (capacity / 100).max(1);
        let main_max = capacity - window_max;
        let list = List::new();
        Self {
            window_max,
            main_max,
            protected_max: main_max / 5 * 4,
            keys: Keys::new(),
            arena: Arena::new(),
            window: list,
            probation: list,
            protected: list,
            sketch: Sketch::new(capacity),
        }
    }

    fn hit(&mut self, id: u32) {
        match self.arena.mark(id) {
            Place::Window => self.arena.move_to_front(&mut self.window, id),
            Place::Protected => self.arena.move_to_front(&mut self.protected, id),
            Place::Probation => {
                self.arena.unlink(&mut self.probation, id);
                self.arena.set_mark(id, Place::Protected);
                self.arena.push_front(&mut self.protected, id);
                if self.protected.len() > self.protected_max
                    && let Some(oldest) = self.arena.pop_back(&mut self.protected)
                {
                    self.arena.set_mark(oldest, Place::Probation);
                    self.arena.push_front(&mut self.probation, oldest);
                }
            }
        }
    }

    fn forget(&mut self, id: u32) {
        self.keys.remove(self.arena.drop_node(id));
    }

    /// Moves the overflow of the window to the main part, drops it, or replaces another key with it.
    fn leave_window(&mut self) {
        let Some(candidate) = self.arena.pop_back(&mut self.window) else { return };
        if self.probation.len() + self.protected.len() >= self.main_max {
            let list = if self.probation.is_empty() { &mut self.protected } else { &mut self.probation };
            let victim = list.back();
            let wins = victim != NIL
                && self.sketch.count(self.arena.key(candidate)) > self.sketch.count(self.arena.key(victim));
            if !wins {
                return self.forget(candidate);
            }
            self.arena.unlink(list, victim);
            self.forget(victim);
        }
        self.arena.set_mark(candidate, Place::Probation);
        self.arena.push_front(&mut self.probation, candidate);
    }
}

impl Policy for TinyLfu {
    fn access(&mut self, key: u64) -> bool {
        self.sketch.add(key);
        if let Some(id) = self.keys.get(key) {
            self.hit(id);
            return true;
        }
        let id = self.arena.add(key, Place::Window);
        self.arena.push_front(&mut self.window, id);
        self.keys.set(key, id);
        if self.window.len() > self.window_max {
            self.leave_window();
        }
        false
    }

    fn len(&self) -> usize {
        self.window.len() + self.probation.len() + self.protected.len()
    }

    fn ram_bytes(&self) -> u64 {
        self.keys.ram_bytes() + self.arena.ram_bytes() + self.sketch.ram_bytes()
    }
}
