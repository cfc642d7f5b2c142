//! Page table: from the number of a node to its place.
//!
//! Invariants: all nodes above a changed node are in memory, so that a checkpoint writes the levels from below without
//! reading. It does not give numbers.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::Blocked;
use super::cache::Cache;
use crate::format2::node::{FANOUT, NodeRecord, PageNode, Spot};
use crate::format2::superblock::PageTop;

/// Records by the number of their nodes.
type Records = Vec<(u64, NodeRecord)>;

/// Page table with its changed nodes.
#[derive(Debug)]
pub(super) struct Pages {
    top: PageTop,
    /// Changed nodes, by level and index.
    changed: BTreeMap<(u8, u64), PageNode>,
}

/// Numbers that a page table of so many levels covers.
fn covered(levels: u8) -> u64 {
    FANOUT.saturating_pow(u32::from(levels))
}

/// Position of a number's record in the node of a level, and the index of that node.
fn position(number: u64, level: u8) -> (u64, u16) {
    let below = covered(level);
    let index = number / below;
    (index / FANOUT, u16::try_from(index % FANOUT).unwrap_or(u16::MAX))
}

impl Pages {
    pub(super) const fn new(top: PageTop) -> Self {
        Self { top, changed: BTreeMap::new() }
    }

    pub(super) const fn top(&self) -> PageTop {
        self.top
    }

    pub(super) fn changed(&self) -> usize {
        self.changed.len()
    }

    pub(super) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns the record of a node, empty if it has none.
    pub(super) fn record(&self, cache: &mut Cache, number: u64) -> Result<NodeRecord, Blocked> {
        if number >= covered(self.top.levels) {
            return Ok(NodeRecord::default());
        }
        let mut spot = self.top.spot;
        for level in (0..self.top.levels).rev() {
            let (index, position) = position(number, level);
            let record = match (self.changed.get(&(level, index)), spot) {
                (Some(node), _) => node.get(position),
                (None, Some(spot)) => decoded(cache, spot)?.get(position),
                (None, None) => None,
            };
            let record = record.unwrap_or_default();
            if level == 0 {
                return Ok(record);
            }
            spot = record.base;
        }
        Ok(NodeRecord::default())
    }

    /// Returns all records, and the segments that hold nodes of the page table.
    pub(super) fn all(&self, cache: &mut Cache) -> Result<(Records, BTreeSet<u64>), Blocked> {
        let (mut records, mut segments) = (Vec::new(), BTreeSet::new());
        let mut nodes = vec![(0, self.top.spot)];
        for level in (0..self.top.levels).rev() {
            let (mut next, mut missing) = (Vec::new(), Vec::new());
            for (index, spot) in nodes {
                segments.extend(spot.map(|spot| spot.segment));
                let node = match (self.changed.get(&(level, index)), spot) {
                    (Some(node), _) => node.clone(),
                    (None, Some(spot)) if !cache.has(&spot) => {
                        missing.push(spot);
                        continue;
                    }
                    (None, Some(spot)) => decoded(cache, spot)?,
                    (None, None) => continue,
                };
                for (position, record) in node.records() {
                    let number = index * FANOUT + u64::from(position);
                    if level == 0 { records.push((number, record)) } else { next.push((number, record.base)) }
                }
                // A changed node below may have no place yet.
                if level > 0 {
                    let below =
                        self.changed.range((level - 1, index * FANOUT)..(level - 1, (index + 1) * FANOUT));
                    let new = below.map(|((_, below), _)| *below).filter(|below| {
                        let position = u16::try_from(below % FANOUT).unwrap_or(u16::MAX);
                        node.get(position).is_none()
                    });
                    next.extend(new.map(|below| (below, None)));
                }
            }
            if !missing.is_empty() {
                return Err(Blocked::Missing(missing));
            }
            nodes = next;
        }
        Ok((records, segments))
    }

    /// Brings the path to a node into memory, so that [`Pages::set`] succeeds.
    pub(super) fn touch(&mut self, cache: &mut Cache, number: u64) -> Result<(), Blocked> {
        while number >= covered(self.top.levels) {
            self.raise();
        }
        let mut spot = self.top.spot;
        for level in (0..self.top.levels).rev() {
            let (index, position) = position(number, level);
            let node = match self.changed.entry((level, index)) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let node = spot.map(|spot| decoded(cache, spot)).transpose()?;
                    entry.insert(node.unwrap_or_default())
                }
            };
            spot = node.get(position).and_then(|record| record.base);
        }
        Ok(())
    }

    /// Adds a level above the top.
    fn raise(&mut self) {
        if self.top.levels > 0 {
            let mut above = PageNode::default();
            above.set(0, NodeRecord { base: self.top.spot, ..NodeRecord::default() });
            self.changed.insert((self.top.levels, 0), above);
        }
        self.top.levels += 1;
    }

    /// Replaces the record of a node whose path was touched.
    pub(super) fn set(&mut self, number: u64, record: NodeRecord) {
        let (index, position) = position(number, 0);
        self.changed.entry((0, index)).or_default().set(position, record);
    }

    /// Returns the changed nodes of a level, encoded.
    pub(super) fn encoded(&self, level: u8) -> Vec<(u64, Vec<u8>)> {
        let nodes = self.changed.range((level, 0)..=(level, u64::MAX));
        nodes.map(|((_, index), node)| (*index, node.encode())).collect()
    }

    /// Takes the places of the nodes of a level; a node that is empty has none.
    pub(super) fn placed(&mut self, level: u8, places: &[(u64, Option<Spot>)]) {
        for (index, spot) in places {
            if level + 1 == self.top.levels {
                self.top.spot = *spot;
            } else {
                let record = NodeRecord { base: *spot, ..NodeRecord::default() };
                let position = u16::try_from(index % FANOUT).unwrap_or(u16::MAX);
                self.changed.entry((level + 1, index / FANOUT)).or_default().set(position, record);
            }
        }
    }

    /// Forgets the changed nodes: all have places.
    pub(super) fn all_placed(&mut self) {
        self.changed.clear();
        if self.top.spot.is_none() {
            self.top.levels = 0;
        }
    }
}

fn decoded(cache: &mut Cache, spot: Spot) -> Result<PageNode, Blocked> {
    PageNode::decode(&cache.get(&spot)?).map_err(|_| Blocked::Damaged(spot))
}
