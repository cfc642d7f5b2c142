//! Inner nodes of trees: paths from a top to the number of a leaf.
//!
//! Invariants: a changed inner node belongs to one root; its record in the page table is in memory. It does not know
//! the contents of leaves.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use super::{Blocked, Index};
use crate::format2::catalog::{Top, levels_above, levels_of};
use crate::format2::node::{FANOUT, InnerNode};

/// Inner nodes that changed since the last checkpoint.
#[derive(Debug, Default)]
pub(super) struct Inner {
    changed: BTreeMap<u64, InnerNode>,
}

impl Inner {
    pub(super) fn changed(&self) -> usize {
        self.changed.len()
    }

    pub(super) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    pub(super) fn encoded(&self) -> Vec<(u64, Vec<u8>)> {
        self.changed.iter().map(|(number, node)| (*number, node.encode())).collect()
    }

    pub(super) fn all_placed(&mut self) {
        self.changed.clear();
    }
}

/// Leaves below a child of a node of this level; the lowest inner nodes have level 1.
fn below(level: u8) -> u64 {
    FANOUT.saturating_pow(u32::from(level.saturating_sub(1)))
}

fn position(leaf: u64, level: u8) -> u16 {
    u16::try_from(leaf / below(level) % FANOUT).unwrap_or(u16::MAX)
}

impl Index {
    fn inner_node(&mut self, number: u64) -> Result<InnerNode, Blocked> {
        if let Some(node) = self.inner.changed.get(&number) {
            return Ok(node.clone());
        }
        let record = self.pages.record(&mut self.cache, number)?;
        let Some(spot) = record.base else { return Ok(InnerNode::default()) };
        InnerNode::decode(&self.cache.get(&spot)?).map_err(|_| Blocked::Damaged(spot))
    }

    /// Returns the number of a leaf.
    pub(super) fn find(&mut self, top: Top, leaf: u64) -> Result<Option<u64>, Blocked> {
        if top.node == 0 || leaf / FANOUT >= below(top.levels) {
            return Ok(None);
        }
        let mut number = top.node;
        for level in (1..=top.levels).rev() {
            match self.inner_node(number)?.get(position(leaf, level)) {
                Some(child) => number = child,
                None => return Ok(None),
            }
        }
        Ok(Some(number))
    }

    /// Adds the numbers of all nodes of a tree.
    pub(super) fn numbers(&mut self, top: Top, numbers: &mut BTreeSet<u64>) -> Result<(), Blocked> {
        let mut nodes: Vec<u64> = (top.node != 0).then_some(top.node).into_iter().collect();
        for level in (0..=top.levels).rev() {
            let (mut next, mut missing) = (Vec::new(), Vec::new());
            for number in nodes {
                // Nodes that another root has were visited with it, with all below them.
                if !numbers.insert(number) || level == 0 {
                    continue;
                }
                match self.inner_node(number) {
                    Ok(node) => next.extend(node.children().map(|(_, child)| child)),
                    Err(Blocked::Missing(spots)) => missing.extend(spots),
                    Err(blocked) => return Err(blocked),
                }
            }
            if !missing.is_empty() {
                return Err(Blocked::Missing(missing));
            }
            nodes = next;
        }
        Ok(())
    }

    /// Returns all leaves of a tree with their numbers.
    pub(super) fn all(&mut self, top: Top) -> Result<Vec<(u64, u64)>, Blocked> {
        let mut nodes: Vec<(u64, u64)> = (top.node != 0).then_some((0, top.node)).into_iter().collect();
        for _ in 0..top.levels {
            let (mut next, mut missing) = (Vec::new(), Vec::new());
            for (index, number) in nodes {
                match self.inner_node(number) {
                    Ok(node) => next.extend(
                        node.children()
                            .map(|(position, child)| (index * FANOUT + u64::from(position), child)),
                    ),
                    Err(Blocked::Missing(spots)) => missing.extend(spots),
                    Err(blocked) => return Err(blocked),
                }
            }
            if !missing.is_empty() {
                return Err(Blocked::Missing(missing));
            }
            nodes = next;
        }
        Ok(nodes)
    }

    /// Adds levels above the top of a root until its map covers its size. The new nodes are the root's own.
    pub(super) fn grow(&mut self, id: u32) {
        let Some(root) = self.roots.get(&id) else { return };
        let (mut top, levels) = (root.top, levels_of(root.size_blocks));
        self.raise(&mut top, levels);
        if let Some(root) = self.roots.get_mut(&id) {
            root.top = top;
        }
    }

    fn raise(&mut self, top: &mut Top, levels: u8) {
        while top.node != 0 && top.levels < levels {
            let number = self.new_number();
            let mut node = InnerNode::default();
            node.set(0, top.node);
            self.inner.changed.insert(number, node);
            *top = Top { node: number, levels: top.levels + 1 };
        }
        top.levels = top.levels.max(levels);
    }

    /// Makes an inner node changeable: one that another root may reach gets a new number.
    fn own(&mut self, number: u64, shared_from: u64) -> Result<u64, Blocked> {
        let node = self.inner_node(number)?;
        let own = if number < shared_from { self.nodes_end } else { number };
        self.pages.touch(&mut self.cache, own)?;
        if own != number {
            self.new_number();
        }
        self.inner.changed.insert(own, node);
        Ok(own)
    }

    /// Makes the path to a leaf changeable and returns the leaf's number; a new leaf has no record. Repeated after
    /// [`Blocked::Missing`], it continues with the nodes that it already has.
    pub(super) fn path(&mut self, top: &mut Top, leaf: u64, shared_from: u64) -> Result<u64, Blocked> {
        self.raise(top, levels_above(leaf.saturating_add(1)));
        if top.node == 0 {
            self.pages.touch(&mut self.cache, self.nodes_end)?;
            top.node = self.new_number();
            self.inner.changed.insert(top.node, InnerNode::default());
        }
        top.node = self.own(top.node, shared_from)?;
        let mut number = top.node;
        for level in (1..=top.levels).rev() {
            let position = position(leaf, level);
            let child = self.inner_node(number)?.get(position);
            let next = match child {
                Some(child) if level > 1 => self.own(child, shared_from)?,
                Some(child) if child >= shared_from => {
                    self.pages.touch(&mut self.cache, child)?;
                    child
                }
                Some(_) | None => self.new_child(child, level > 1)?,
            };
            if child != Some(next) {
                self.inner.changed.entry(number).or_default().set(position, next);
            }
            number = next;
        }
        Ok(number)
    }

    /// Gives a new number to a child: an empty inner node, or a leaf with the record of the one before it.
    fn new_child(&mut self, before: Option<u64>, is_inner: bool) -> Result<u64, Blocked> {
        self.pages.touch(&mut self.cache, self.nodes_end)?;
        let record = before.map(|before| self.pages.record(&mut self.cache, before)).transpose()?;
        let number = self.new_number();
        if is_inner {
            self.inner.changed.insert(number, InnerNode::default());
        } else if let Some(record) = record {
            self.pages.set(number, record);
        }
        Ok(number)
    }

    /// Removes a range of leaves from a tree, with the inner nodes that have no others.
    pub(super) fn remove(
        &mut self,
        top: &mut Top,
        leaves: Range<u64>,
        shared_from: u64,
    ) -> Result<(), Blocked> {
        if top.node == 0 || leaves.is_empty() {
            return Ok(());
        }
        let (node, levels) = (top.node, top.levels);
        top.node = self.remove_below(node, levels, 0, &leaves, shared_from)?.unwrap_or(0);
        Ok(())
    }

    /// Removes leaves below a node whose first leaf is `start`. Returns the node's number, or `None` if it is empty.
    fn remove_below(
        &mut self,
        number: u64,
        level: u8,
        start: u64,
        leaves: &Range<u64>,
        shared_from: u64,
    ) -> Result<Option<u64>, Blocked> {
        let node = self.inner_node(number)?;
        let (step, mut changed) = (below(level), node.clone());
        for (position, child) in node.children() {
            let first = start.saturating_add(u64::from(position).saturating_mul(step));
            let end = first.saturating_add(step);
            if end <= leaves.start || leaves.end <= first {
                continue;
            }
            if leaves.start <= first && end <= leaves.end {
                changed.remove(position, position);
                continue;
            }
            match self.remove_below(child, level - 1, first, leaves, shared_from)? {
                Some(kept) if kept != child => changed.set(position, kept),
                Some(_) => {}
                None => changed.remove(position, position),
            }
        }
        if changed == node {
            return Ok(Some(number));
        }
        if changed.is_empty() {
            return Ok(None);
        }
        let own = self.own(number, shared_from)?;
        self.inner.changed.insert(own, changed);
        Ok(Some(own))
    }
}
