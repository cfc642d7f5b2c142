//! Keys in doubly linked lists, all nodes in one vector.
//!
//! Invariants: a node is in at most one list; the caller keeps track of which. Freed nodes are reused, so the vector
//! never holds more nodes than were in use at once.

use zc_core::{u64_from_usize, usize_from_u32};

/// No node.
pub(crate) const NIL: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node<M> {
    key: u64,
    prev: u32,
    next: u32,
    mark: M,
}

/// The nodes of some lists, each with a key and a mark.
#[derive(Debug)]
pub(crate) struct Arena<M> {
    nodes: Vec<Node<M>>,
    free: Vec<u32>,
}

/// A list: new members go to its front, old ones leave from its back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    front: u32,
    back: u32,
    len: usize,
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { front: NIL, back: NIL, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest member, or [`NIL`].
    pub(crate) const fn back(&self) -> u32 {
        self.back
    }
}

impl<M: Copy> Arena<M> {
    pub(crate) const fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new() }
    }

    /// A new node, in no list.
    ///
    /// # Panics
    /// With 2^32 - 1 nodes in use; [`crate::CAPACITY_MAX`] keeps policies far below.
    pub(crate) fn add(&mut self, key: u64, mark: M) -> u32 {
        let node = Node { key, prev: NIL, next: NIL, mark };
        if let Some(id) = self.free.pop() {
            self.nodes[usize_from_u32(id)] = node;
            return id;
        }
        let id = u32::try_from(self.nodes.len()).unwrap_or(NIL);
        assert!(id != NIL, "policies are bounded");
        self.nodes.push(node);
        id
    }

    /// Frees a node that is in no list; returns its key.
    pub(crate) fn drop_node(&mut self, id: u32) -> u64 {
        self.free.push(id);
        self.key(id)
    }

    pub(crate) fn key(&self, id: u32) -> u64 {
        self.nodes[usize_from_u32(id)].key
    }

    pub(crate) fn mark(&self, id: u32) -> M {
        self.nodes[usize_from_u32(id)].mark
    }

    pub(crate) fn set_mark(&mut self, id: u32, mark: M) {
        self.nodes[usize_from_u32(id)].mark = mark;
    }

    /// The member before this one, towards the front; [`NIL`] for the front itself.
    pub(crate) fn newer(&self, id: u32) -> u32 {
        self.nodes[usize_from_u32(id)].prev
    }

    pub(crate) fn push_front(&mut self, list: &mut List, id: u32) {
        let node = &mut self.nodes[usize_from_u32(id)];
        (node.prev, node.next) = (NIL, list.front);
        if list.front == NIL {
            list.back = id;
        } else {
            self.nodes[usize_from_u32(list.front)].prev = id;
        }
        list.front = id;
        list.len += 1;
    }

    pub(crate) fn unlink(&mut self, list: &mut List, id: u32) {
        let Node { prev, next, .. } = self.nodes[usize_from_u32(id)];
        if prev == NIL {
            list.front = next;
        } else {
            self.nodes[usize_from_u32(prev)].next = next;
        }
        if next == NIL {
            list.back = prev;
        } else {
            self.nodes[usize_from_u32(next)].prev = prev;
        }
        list.len -= 1;
    }

    /// Takes the oldest member out of its list.
    pub(crate) fn pop_back(&mut self, list: &mut List) -> Option<u32> {
        let id = list.back;
        if id == NIL {
            return None;
        }
        self.unlink(list, id);
        Some(id)
    }

    pub(crate) fn move_to_front(&mut self, list: &mut List, id: u32) {
        if list.front != id {
            self.unlink(list, id);
            self.push_front(list, id);
        }
    }

    /// Bytes held.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let nodes = self.nodes.capacity().saturating_mul(size_of::<Node<M>>());
        u64_from_usize(nodes + self.free.capacity() * size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(arena: &Arena<()>, list: &List) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = list.back();
        while at != NIL {
            found.push(arena.key(at));
            at = arena.newer(at);
        }
        found
    }

    #[test]
    fn lists_keep_their_order() {
        let (mut arena, mut list, mut other) = (Arena::new(), List::new(), List::new());
        let ids: Vec<u32> = (0..4).map(|key| arena.add(key, ())).collect();
        ids.iter().for_each(|id| arena.push_front(&mut list, *id));
        assert_eq!((keys(&arena, &list), list.len()), (vec![0, 1, 2, 3], 4));
        arena.move_to_front(&mut list, ids[1]);
        arena.move_to_front(&mut list, ids[1]);
        assert_eq!(keys(&arena, &list), [0, 2, 3, 1]);
        arena.unlink(&mut list, ids[3]);
        arena.push_front(&mut other, ids[3]);
        assert_eq!((keys(&arena, &list), keys(&arena, &other)), (vec![0, 2, 1], vec![3]));
        assert_eq!(arena.pop_back(&mut list).map(|id| arena.drop_node(id)), Some(0));
        assert_eq!(arena.add(9, ()), ids[0], "freed nodes are used again");
        assert_eq!(keys(&arena, &list), [2, 1]);
        assert_eq!(arena.pop_back(&mut other), Some(ids[3]));
        assert!(other.is_empty() && arena.pop_back(&mut other).is_none());
        assert_eq!((other.back(), list.back()), (NIL, ids[2]));
    }
}
