//! LIRS: keys whose last two uses lay close together (LIR) stay; the others (HIR) share one per cent of the capacity
//! and stay while they are young. A stack orders keys by their last use, down to the oldest LIR key; a HIR key that is
//! used while still in the stack takes the place of that one.
//!
//! The paper leaves the number of HIR keys in the stack that are not resident unbounded; here the oldest such ones are
//! forgotten beyond twice the capacity.

use crate::arena::{Arena, List, NIL};
use crate::{Keys, Policy};

/// Ghosts per resident key.
const GHOSTS_FACTOR: usize = 2;

/// State of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Low inter-reference recency; resident and in the stack.
    Lir,
    /// High, resident: in the queue, and perhaps in the stack.
    Hir,
    /// High, not resident: in the stack.
    Ghost,
}

/// A key's nodes in the stack and in the queue of resident HIR keys (or, for a ghost, in the queue of ghosts).
#[derive(Debug, Clone, Copy)]
struct Entry {
    state: State,
    stack: u32,
    queue: u32,
}

/// A LIRS.
#[derive(Debug)]
pub(crate) struct Lirs {
    capacity: usize,
    lir_max: usize,
    lir_count: usize,
    keys: Keys<Entry>,
    stacked: Arena<()>,
    queued: Arena<()>,
    stack: List,
    /// Resident HIR keys, the next victim at the back.
    queue: List,
    ghosts: List,
}

impl Lirs {
    pub(crate) fn new(capacity: usize) -> Self {
        let list = List::new();
        Self {
            capacity,
            lir_max: capacity - (capacity / 100).max(1),
            lir_count: 0,
            keys: Keys::new(),
            stacked: Arena::new(),
            queued: Arena::new(),
            stack: list,
            queue: list,
            ghosts: list,
        }
    }

    fn push_stack(&mut self, key: u64) -> u32 {
        let id = self.stacked.add(key, ());
        self.stacked.push_front(&mut self.stack, id);
        id
    }

    fn push_queue(&mut self, key: u64) -> u32 {
        let id = self.queued.add(key, ());
        self.queued.push_front(&mut self.queue, id);
        id
    }

    fn leave_queue(&mut self, entry: Entry) {
        let list = if entry.state == State::Ghost { &mut self.ghosts } else { &mut self.queue };
        self.queued.unlink(list, entry.queue);
        self.queued.drop_node(entry.queue);
    }

    fn leave_stack(&mut self, id: u32) {
        self.stacked.unlink(&mut self.stack, id);
        self.stacked.drop_node(id);
    }

    /// Takes HIR keys off the bottom of the stack.
    fn prune(&mut self) {
        while self.stack.back() != NIL {
            let bottom = self.stack.back();
            let key = self.stacked.key(bottom);
            let Some(entry) = self.keys.get(key) else { return };
            match entry.state {
                State::Lir => return,
                State::Hir => self.keys.set(key, Entry { stack: NIL, ..entry }),
                State::Ghost => {
                    self.leave_queue(entry);
                    self.keys.remove(key);
                }
            }
            self.leave_stack(bottom);
        }
    }

    /// The oldest LIR key becomes the youngest of the queue.
    fn demote_bottom(&mut self) {
        self.prune();
        let bottom = self.stack.back();
        if bottom == NIL {
            return;
        }
        let key = self.stacked.key(bottom);
        self.leave_stack(bottom);
        let queue = self.push_queue(key);
        self.keys.set(key, Entry { state: State::Hir, stack: NIL, queue });
        self.lir_count -= 1;
        self.prune();
    }

    /// The next victim leaves; it stays in the stack as a ghost.
    fn evict(&mut self) {
        let Some(id) = self.queued.pop_back(&mut self.queue) else { return };
        let key = self.queued.key(id);
        let Some(entry) = self.keys.get(key) else { return };
        if entry.stack == NIL {
            self.queued.drop_node(id);
            self.keys.remove(key);
            return;
        }
        self.queued.push_front(&mut self.ghosts, id);
        self.keys.set(key, Entry { state: State::Ghost, ..entry });
        if self.ghosts.len() > GHOSTS_FACTOR * self.capacity
            && let Some(oldest) = self.queued.pop_back(&mut self.ghosts)
        {
            let key = self.queued.drop_node(oldest);
            if let Some(entry) = self.keys.get(key) {
                self.leave_stack(entry.stack);
            }
            self.keys.remove(key);
        }
    }

    fn become_lir(&mut self, key: u64, stack: u32) {
        self.keys.set(key, Entry { state: State::Lir, stack, queue: NIL });
        self.lir_count += 1;
        if self.lir_count > self.lir_max {
            self.demote_bottom();
        }
    }

    fn hit(&mut self, key: u64, entry: Entry) {
        if entry.stack == NIL {
            self.queued.move_to_front(&mut self.queue, entry.queue);
            let stack = self.push_stack(key);
            self.keys.set(key, Entry { stack, ..entry });
            return;
        }
        self.stacked.move_to_front(&mut self.stack, entry.stack);
        if entry.state == State::Hir {
            self.leave_queue(entry);
            self.become_lir(key, entry.stack);
        }
        self.prune();
    }
}

impl Policy for Lirs {
    fn access(&mut self, key: u64) -> bool {
        if let Some(entry) = self.keys.get(key)
            && entry.state != State::Ghost
        {
            self.hit(key, entry);
            return true;
        }
        if self.len() >= self.capacity {
            self.evict();
        }
        // The eviction may have removed it.
        if let Some(entry) = self.keys.get(key) {
            self.leave_queue(entry);
            self.stacked.move_to_front(&mut self.stack, entry.stack);
            self.become_lir(key, entry.stack);
            return false;
        }
        let stack = self.push_stack(key);
        if self.lir_count < self.lir_max {
            self.become_lir(key, stack);
        } else {
            let queue = self.push_queue(key);
            self.keys.set(key, Entry { state: State::Hir, stack, queue });
        }
        false
    }

    fn len(&self) -> usize {
        self.lir_count + self.queue.len()
    }

    fn ram_bytes(&self) -> u64 {
        self.keys.ram_bytes() + self.stacked.ram_bytes() + self.queued.ram_bytes()
    }
}
