//! Changes of maps as nodes, and the nodes of a checkpoint.
//!
//! Job: base or delta of each changed leaf, leaves of the tables, inner nodes and page table, in the order in which they
//! can be written: each level after the one below it. Invariants: [`Index::prepare`] reads all that is needed, so the
//! steps after it do not wait. It does not give places.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Blocked, Index, LEAF_BLOCKS, decoded, within};
use crate::format2::catalog::{CatalogLeaf, ROOTS};
use crate::format2::leaf::Leaf;
use crate::format2::node::{NodeRecord, Spot};
use crate::format2::segments::SegmentLeaf;

/// Largest delta of any base, and the largest of a small one. See `FORMAT-2.md`, section 5.2.
const DELTA_BYTES_MAX: usize = 1 << 10;
const SMALL_DELTA_BYTES_MAX: usize = 256;

/// Part of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format2) enum Part {
    /// All of it.
    Base,
    /// Changes of a leaf.
    Delta,
    /// Node of the page table, which has no record of its own.
    Page,
}

/// Node to be written.
#[derive(Debug, Clone)]
pub(in crate::format2) struct NewNode {
    /// Level above the leaves.
    pub(in crate::format2) level: u8,
    /// Number of the node, or index in its level of the page table.
    pub(in crate::format2) number: u64,
    pub(in crate::format2) part: Part,
    /// Encoding; not empty.
    pub(in crate::format2) bytes: Arc<[u8]>,
}

impl NewNode {
    fn new(level: u8, number: u64, part: Part, bytes: Vec<u8>) -> Self {
        Self { level, number, part, bytes: Arc::from(bytes) }
    }
}

impl Index {
    /// Brings into memory all that folding the changes of a root, or of all, needs.
    pub(in crate::format2) fn prepare_fold(&mut self, only: Option<u32>) -> Result<(), Blocked> {
        let mut missing = Vec::new();
        for (id, leaf) in self.changes.leaves(only) {
            note(self.prepare_leaf(id, leaf), &mut missing)?;
        }
        if missing.is_empty() { Ok(()) } else { Err(Blocked::Missing(missing)) }
    }

    fn prepare_leaf(&mut self, id: u32, leaf: u64) -> Result<(), Blocked> {
        let (_, record) = self.own_leaf(id, leaf)?;
        let mut needed: Vec<Spot> = record.delta.into_iter().collect();
        if self.is_rewritten(id, leaf, record)? {
            needed.extend(record.base);
        }
        needed.retain(|spot| !self.cache.has(spot));
        if needed.is_empty() { Ok(()) } else { Err(Blocked::Missing(needed)) }
    }

    /// Returns the number and record of a leaf that only this root reaches.
    fn own_leaf(&mut self, id: u32, leaf: u64) -> Result<(u64, NodeRecord), Blocked> {
        let Some(root) = self.roots.get(&id) else { return Ok((0, NodeRecord::default())) };
        let (mut top, shared_from) = (root.top, root.shared_from);
        let path = self.path(&mut top, leaf, shared_from);
        if let Some(root) = self.roots.get_mut(&id) {
            root.top = top;
        }
        let number = path?;
        Ok((number, self.pages.record(&mut self.cache, number)?))
    }

    /// Entries of a leaf that changed.
    fn changes_of(&self, id: u32, leaf: u64) -> Leaf {
        let mut delta = Leaf::default();
        let first = leaf * LEAF_BLOCKS;
        for (block, cell) in self.changes.range(id, first..first.saturating_add(LEAF_BLOCKS)) {
            delta.set(within(block), Some(cell));
        }
        delta
    }

    /// Returns the delta of a leaf with its changes. The delta before it is in memory.
    fn delta(&mut self, id: u32, leaf: u64, record: NodeRecord) -> Result<Leaf, Blocked> {
        let mut delta = Leaf::default();
        if let Some(spot) = record.delta {
            delta = decoded(&spot, &self.cache.get(&spot)?)?;
        }
        delta.merge(&self.changes_of(id, leaf));
        Ok(delta)
    }

    /// Returns `true` if the leaf gets a new base.
    fn is_rewritten(&mut self, id: u32, leaf: u64, record: NodeRecord) -> Result<bool, Blocked> {
        let Some(base) = record.base else { return Ok(true) };
        if self.cache.has(&base) {
            return Ok(true);
        }
        let bytes = self.delta(id, leaf, record)?.encode().len();
        let quarter = zc_core::usize_from_u32(base.bytes / 4);
        Ok(bytes > quarter.clamp(SMALL_DELTA_BYTES_MAX, DELTA_BYTES_MAX))
    }

    /// Turns the changes of a root, or of all, into nodes. They were prepared.
    pub(in crate::format2) fn fold(&mut self, only: Option<u32>) -> Result<Vec<NewNode>, Blocked> {
        let mut nodes = Vec::new();
        for (id, leaf) in self.changes.leaves(only) {
            let (number, record) = self.own_leaf(id, leaf)?;
            let delta = self.delta(id, leaf, record)?;
            if self.is_rewritten(id, leaf, record)? {
                let mut base = Leaf::default();
                if let Some(spot) = record.base {
                    base = decoded(&spot, &self.cache.get(&spot)?)?;
                }
                base.apply(&delta);
                let bytes = base.encode();
                if bytes.is_empty() {
                    self.pages.set(number, NodeRecord::default());
                } else {
                    nodes.push(NewNode::new(0, number, Part::Base, bytes));
                }
            } else {
                nodes.push(NewNode::new(0, number, Part::Delta, delta.encode()));
            }
        }
        self.changes.clear(only);
        Ok(nodes)
    }

    /// Brings into memory all that a checkpoint with these leaves of the segment table needs.
    pub(in crate::format2) fn prepare(
        &mut self,
        segments: &BTreeMap<u64, SegmentLeaf>,
    ) -> Result<(), Blocked> {
        let mut missing = Vec::new();
        note(self.prepare_fold(None), &mut missing)?;
        for leaf in segments.keys() {
            note(self.table_leaf(false, *leaf).map(drop), &mut missing)?;
        }
        for leaf in self.changed_roots.clone() {
            note(self.table_leaf(true, u64::from(leaf)).map(drop), &mut missing)?;
        }
        let numbers: Vec<u64> = self.inner.encoded().into_iter().map(|(number, _)| number).collect();
        for number in numbers {
            note(self.pages.touch(&mut self.cache, number), &mut missing)?;
        }
        if missing.is_empty() { Ok(()) } else { Err(Blocked::Missing(missing)) }
    }

    /// Returns the number of a leaf of the catalog or the segment table.
    fn table_leaf(&mut self, is_catalog: bool, leaf: u64) -> Result<u64, Blocked> {
        let mut top = if is_catalog { self.catalog } else { self.segments };
        let number = self.path(&mut top, leaf, 0);
        *(if is_catalog { &mut self.catalog } else { &mut self.segments }) = top;
        number
    }

    /// Returns the changed leaves of both tables.
    pub(in crate::format2) fn tables(
        &mut self,
        segments: &BTreeMap<u64, SegmentLeaf>,
    ) -> Result<Vec<NewNode>, Blocked> {
        let mut nodes = Vec::new();
        for (leaf, encoded) in segments.iter().map(|(leaf, segments)| (*leaf, segments.encode())) {
            let number = self.table_leaf(false, leaf)?;
            self.table_node(number, encoded, &mut nodes);
        }
        for leaf in core::mem::take(&mut self.changed_roots) {
            let number = self.table_leaf(true, u64::from(leaf))?;
            let mut encoded = CatalogLeaf::default();
            let first = leaf * ROOTS;
            for (id, root) in self.roots.range(first..=first.saturating_add(ROOTS - 1)) {
                encoded.set(u8::try_from(id - first).unwrap_or(u8::MAX), root.clone());
            }
            self.table_node(number, encoded.encode(), &mut nodes);
        }
        Ok(nodes)
    }

    fn table_node(&mut self, number: u64, encoded: Vec<u8>, nodes: &mut Vec<NewNode>) {
        if encoded.is_empty() {
            self.pages.set(number, NodeRecord::default());
        } else {
            nodes.push(NewNode::new(0, number, Part::Base, encoded));
        }
    }

    /// Returns the changed inner nodes. All leaves below them have numbers.
    pub(in crate::format2) fn inner_nodes(&mut self) -> Vec<NewNode> {
        let mut nodes = Vec::new();
        for (number, bytes) in self.inner.encoded() {
            if bytes.is_empty() {
                self.pages.set(number, NodeRecord::default());
            } else {
                nodes.push(NewNode::new(1, number, Part::Base, bytes));
            }
        }
        self.inner.all_placed();
        nodes
    }

    /// Returns the changed nodes of a level of the page table. The nodes below have places.
    pub(in crate::format2) fn page_nodes(&mut self, level: u8) -> Vec<NewNode> {
        let (mut nodes, mut empty) = (Vec::new(), Vec::new());
        for (index, bytes) in self.pages.encoded(level) {
            if bytes.is_empty() {
                empty.push((index, None));
            } else {
                nodes.push(NewNode::new(level, index, Part::Page, bytes));
            }
        }
        self.pages.placed(level, &empty);
        nodes
    }

    /// Levels of the page table.
    pub(in crate::format2) const fn page_levels(&self) -> u8 {
        self.pages.top().levels
    }

    /// Ends the writing of a checkpoint: all changed nodes have places.
    pub(in crate::format2) fn top_written(&mut self) {
        self.pages.all_placed();
    }

    /// Takes the place of a node, which this batch brings to the device.
    pub(in crate::format2) fn placed(&mut self, node: &NewNode, spot: Spot, seq: u64) -> Result<(), Blocked> {
        self.cache.insert(spot, Arc::clone(&node.bytes), Some(seq));
        let record = match node.part {
            Part::Page => {
                self.pages.placed(node.level, &[(node.number, Some(spot))]);
                return Ok(());
            }
            Part::Base => NodeRecord { base: Some(spot), ..NodeRecord::default() },
            Part::Delta => {
                let before = self.pages.record(&mut self.cache, node.number)?;
                NodeRecord { delta: Some(spot), ..before }
            }
        };
        self.pages.set(node.number, record);
        Ok(())
    }
}

/// Collects what is missing, so that all of it is read at once.
fn note(result: Result<(), Blocked>, missing: &mut Vec<Spot>) -> Result<(), Blocked> {
    match result {
        Ok(()) => Ok(()),
        Err(Blocked::Missing(spots)) => {
            missing.extend(spots);
            Ok(())
        }
        Err(blocked) => Err(blocked),
    }
}
