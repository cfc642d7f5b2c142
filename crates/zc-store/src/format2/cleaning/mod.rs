//! Cleaner: finds segments to which nothing leads.
//!
//! Job: mark the segments that roots lead to, leaf by leaf, beside changes. Invariants: what is put into a map while the
//! mark runs is marked at once; a change of the catalog begins the mark again; segments that began after the mark are
//! no victims. It does not move what lives, and does not free slots.

use std::collections::{BTreeSet, VecDeque};

/// Mark in progress.
#[derive(Debug)]
pub(super) struct Cleaning {
    /// Segments that lead somewhere.
    live: BTreeSet<u64>,
    /// Segments from this one on are too young.
    before: u64,
    roots: VecDeque<u32>,
    /// Leaves of the first root that are still to be visited; `None` before they are known.
    leaves: Option<VecDeque<u64>>,
}

/// Next step of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// List the leaves of a root.
    List(u32),
    /// Visit a leaf of a root.
    Visit(u32, u64),
    /// All are visited.
    Sweep,
}

impl Cleaning {
    /// Begins a mark of these roots; `changed` are the segments to which changes in memory lead.
    pub(super) fn new(before: u64, roots: impl Iterator<Item = u32>, changed: BTreeSet<u64>) -> Self {
        Self { live: changed, before, roots: roots.collect(), leaves: None }
    }

    /// Marks segments: those of a visited leaf, or of entries that were put into a map.
    pub(super) fn mark(&mut self, segments: BTreeSet<u64>) {
        self.live.extend(segments);
    }

    pub(super) fn step(&mut self) -> Step {
        while let Some(root) = self.roots.front() {
            match &self.leaves {
                None => return Step::List(*root),
                Some(leaves) => match leaves.front() {
                    Some(leaf) => return Step::Visit(*root, *leaf),
                    None => {
                        self.roots.pop_front();
                        self.leaves = None;
                    }
                },
            }
        }
        Step::Sweep
    }

    /// The first root has these leaves.
    pub(super) fn listed(&mut self, leaves: Vec<u64>) {
        self.leaves = Some(leaves.into());
    }

    /// The first leaf was visited.
    pub(super) fn visited(&mut self) {
        if let Some(leaves) = &mut self.leaves {
            leaves.pop_front();
        }
    }

    /// Returns the victims among segments, when `nodes` are those that hold nodes.
    pub(super) fn victims(&self, segments: impl Iterator<Item = u64>, nodes: &BTreeSet<u64>) -> Vec<u64> {
        let is_victim = |segment: &u64| {
            *segment < self.before && !self.live.contains(segment) && !nodes.contains(segment)
        };
        segments.filter(is_victim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_of_every_root_is_visited_before_the_sweep() {
        let mut cleaning = Cleaning::new(9, [3, 5].into_iter(), BTreeSet::from([1]));
        let mut visited = Vec::new();
        loop {
            match cleaning.step() {
                Step::List(root) => cleaning.listed(if root == 3 { vec![7, 8] } else { Vec::new() }),
                Step::Visit(root, leaf) => {
                    visited.push((root, leaf));
                    cleaning.mark(BTreeSet::from([leaf - 5]));
                    cleaning.visited();
                }
                Step::Sweep => break,
            }
        }
        assert_eq!(visited, [(3, 7), (3, 8)]);
        // 1 to 3 are marked, 4 holds a node, 9 and 10 are too young.
        assert_eq!(cleaning.victims(1..=10, &BTreeSet::from([4])), [5, 6, 7, 8]);
    }
}
