//! Index of the store: roots, maps and tables as trees of numbered nodes, with the changes since the last checkpoint.
//!
//! Job: find the place of a block, apply changes in memory, and turn them into nodes ([`Index::fold`]). Invariants: a
//! node that another root may reach is not changed for one; what is in memory of a place on the device was verified.
//! It does not do I/O: a lookup that needs bytes returns [`Blocked::Missing`], and is repeated when they are there.

mod cache;
mod changes;
mod fold;
mod pages;
mod sweep;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::catalog::{CatalogChange, CatalogOp, OrderMark, ROOTS, Root, RootKind, Top, levels_of};
use super::leaf::{BLOCKS, Cell, Leaf};
use super::node::{NODES_MAX, NodeRecord, Spot};
use super::seam::StoreError;
use super::superblock::{PageTop, Superblock};
use cache::Cache;
use changes::Changes;
pub(super) use fold::{NewNode, Part};
use pages::Pages;
pub(super) use sweep::named_segments;
use tree::Inner;
use zc_core::{u64_from_usize, usize_from_u64};

/// Leaf of a table by its index, as it is encoded.
pub(super) type EncodedLeaf = (u64, Arc<[u8]>);

/// Largest number of a root.
const ROOT_MAX: u32 = u32::MAX - 1;
const LEAF_BLOCKS: u64 = BLOCKS as u64;

/// Reasons why a lookup cannot end now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Blocked {
    /// These nodes have to be read first.
    Missing(Vec<Spot>),
    /// This node does not verify.
    Damaged(Spot),
}

/// Reasons why a change of the catalog is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    NoSuchRoot,
    Invalid,
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoSuchRoot => Self::NoSuchRoot,
            Refused::Invalid => Self::Invalid,
        }
    }
}

/// Roots, trees and changes.
#[derive(Debug)]
pub(super) struct Index {
    roots: BTreeMap<u32, Root>,
    /// Leaves of the catalog whose roots changed since the last checkpoint.
    changed_roots: BTreeSet<u32>,
    changes: Changes,
    pages: Pages,
    inner: Inner,
    cache: Cache,
    nodes_end: u64,
    segments: Top,
    catalog: Top,
}

impl Index {
    pub(super) fn new(superblock: &Superblock, cache_bytes: usize) -> Self {
        Self {
            roots: BTreeMap::new(),
            changed_roots: BTreeSet::new(),
            changes: Changes::default(),
            pages: Pages::new(superblock.pages),
            inner: Inner::default(),
            cache: Cache::new(superblock.uuid, cache_bytes),
            nodes_end: superblock.nodes_end,
            segments: superblock.segments,
            catalog: superblock.catalog,
        }
    }

    pub(super) fn root(&self, id: u32) -> Option<&Root> {
        self.roots.get(&id)
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = (u32, &Root)> {
        self.roots.iter().map(|(id, root)| (*id, root))
    }

    /// Returns the last order mark of each volume that has one.
    pub(super) fn marks(&self) -> Vec<(u32, OrderMark)> {
        self.roots().filter_map(|(id, root)| root.mark.map(|mark| (id, mark))).collect()
    }

    /// Number of entries that the next checkpoint folds.
    pub(super) fn changed_blocks(&self) -> usize {
        self.changes.len()
    }

    /// Returns `true` if a checkpoint would write anything.
    pub(super) fn is_changed(&self) -> bool {
        !self.changes.is_empty()
            || !self.changed_roots.is_empty()
            || self.pages.is_changed()
            || self.inner.is_changed()
    }

    /// Upper bound of the bytes of the nodes that a checkpoint would write now.
    pub(super) fn checkpoint_bytes(&self) -> u64 {
        let cells = u64_from_usize(self.changes.len());
        let leaves = u64_from_usize(self.changes.leaf_count());
        let inner = u64_from_usize(self.inner.changed()) + 2 * leaves.min(16);
        let pages = u64_from_usize(self.pages.changed()) + leaves.min(16);
        cells * 24 + leaves * (6 << 10) + inner * (4 << 10) + pages * (12 << 10) + (64 << 10)
    }

    /// Ends of the numbers of nodes, tops of the page table, the segment table and the catalog: as a superblock has
    /// them after [`Index::top_written`].
    pub(super) fn tops(&self) -> (u64, PageTop, Top, Top) {
        (self.nodes_end, self.pages.top(), self.segments, self.catalog)
    }

    /// Takes a node that was read. Returns `false` if it does not verify.
    pub(super) fn loaded(&mut self, spot: Spot, bytes: &[u8]) -> bool {
        self.cache.loaded(spot, bytes)
    }

    /// Removes nodes from memory until the cache has its size. Nothing waits for a node.
    pub(super) fn shrink(&mut self) {
        self.cache.shrink();
    }

    /// Batches up to this one are on the device: their nodes may leave memory.
    pub(super) fn written(&mut self, seq: u64) {
        self.cache.written(seq);
    }

    /// Returns the entry of each block of a range, with the changes since the last fold.
    pub(super) fn cells(&mut self, id: u32, first: u64, count: u32) -> Result<Vec<Option<Cell>>, Blocked> {
        let end = first.saturating_add(u64::from(count));
        let mut cells = Vec::new();
        let mut missing = Vec::new();
        for number in first / LEAF_BLOCKS..=end.saturating_sub(1) / LEAF_BLOCKS {
            let (from, to) =
                (first.max(number * LEAF_BLOCKS), end.min((number + 1).saturating_mul(LEAF_BLOCKS)));
            // A range that is all in memory needs no leaf.
            let changed = self.changes.range(id, from..to).count();
            let leaf = if u64_from_usize(changed) == to.saturating_sub(from) {
                Ok(Leaf::default())
            } else {
                self.leaf(id, number)
            };
            match leaf {
                Err(Blocked::Missing(spots)) => missing.extend(spots),
                Err(blocked) => return Err(blocked),
                Ok(leaf) => cells.extend((from..to).map(|block| leaf.get(within(block)))),
            }
        }
        if !missing.is_empty() {
            return Err(Blocked::Missing(missing));
        }
        for (block, cell) in self.changes.range(id, first..end) {
            cells[usize_from_u64(block - first)] = (cell != Cell::Hole).then_some(cell);
        }
        Ok(cells)
    }

    /// Returns a leaf of a root's map without the changes in memory.
    fn leaf(&mut self, id: u32, number: u64) -> Result<Leaf, Blocked> {
        let Some(top) = self.roots.get(&id).map(|root| root.top) else { return Ok(Leaf::default()) };
        let Some(node) = self.find(top, number)? else { return Ok(Leaf::default()) };
        let record = self.pages.record(&mut self.cache, node)?;
        self.leaf_of(record)
    }

    /// Returns the leaf of a record: its base with its delta.
    fn leaf_of(&mut self, record: NodeRecord) -> Result<Leaf, Blocked> {
        let missing: Vec<Spot> =
            [record.base, record.delta].into_iter().flatten().filter(|spot| !self.cache.has(spot)).collect();
        if !missing.is_empty() {
            return Err(Blocked::Missing(missing));
        }
        let mut leaf = Leaf::default();
        for spot in [record.base, record.delta].into_iter().flatten() {
            leaf.apply(&decoded(&spot, &self.cache.get(&spot)?)?);
        }
        Ok(leaf)
    }

    /// Gives blocks of one leaf new entries.
    pub(super) fn apply_map(&mut self, id: u32, number: u64, delta: &Leaf) {
        let Some(root) = self.roots.get_mut(&id) else { return };
        root.changes += 1;
        self.changed_roots.insert(id / ROOTS);
        let size = self.roots.get(&id).map_or(0, |root| root.size_blocks);
        for within in 0..BLOCKS {
            let block = number.saturating_mul(LEAF_BLOCKS).saturating_add(u64_from_usize(within));
            if let Some(cell) = delta.get(within).filter(|_| block < size) {
                self.changes.insert(id, block, cell);
            }
        }
    }

    /// Removes the entries of a range. Whole leaves leave the tree with what is below them, so that the work follows
    /// what the range holds; the rest is changed block by block.
    pub(super) fn clear(&mut self, id: u32, first: u64, count: u64) -> Result<(), Blocked> {
        let Some(root) = self.roots.get(&id) else { return Ok(()) };
        let end = first.saturating_add(count).min(root.size_blocks);
        if first >= end {
            return Ok(());
        }
        let (mut top, shared_from) = (root.top, root.shared_from);
        // The part of a leaf at the end of the volume is all of that leaf.
        let last = if end == root.size_blocks { end.div_ceil(LEAF_BLOCKS) } else { end / LEAF_BLOCKS };
        let whole = first.div_ceil(LEAF_BLOCKS)..last;
        if !whole.is_empty() {
            self.remove(&mut top, whole.clone(), shared_from)?;
        }
        let edges = [first..end.min(first.next_multiple_of(LEAF_BLOCKS)), end - end % LEAF_BLOCKS..end];
        let edges = edges.map(|edge| edge.start.max(first)..edge.end);
        let edges: Vec<_> = edges
            .into_iter()
            .filter(|edge| !edge.is_empty() && !whole.contains(&(edge.start / LEAF_BLOCKS)))
            .collect();
        let mut kept = Vec::new();
        for edge in edges {
            // A leaf that does not exist has nothing to be discarded.
            if self.find(top, edge.start / LEAF_BLOCKS)?.is_some() {
                kept.push(edge);
            }
        }
        self.changes.remove(id, first..end);
        for block in kept.into_iter().flatten() {
            self.changes.insert(id, block, Cell::Hole);
        }
        if let Some(root) = self.roots.get_mut(&id) {
            (root.top, root.changes) = (top, root.changes + 1);
        }
        self.changed_roots.insert(id / ROOTS);
        Ok(())
    }

    /// Sets the order mark of a volume.
    pub(super) fn apply_mark(&mut self, id: u32, mark: OrderMark) {
        if let Some(root) = self.roots.get_mut(&id) {
            root.mark = Some(mark);
            self.changed_roots.insert(id / ROOTS);
        }
    }

    /// Checks a change of the catalog.
    pub(super) fn check_catalog(&self, change: &CatalogChange) -> Result<(), Refused> {
        let is_new = !self.roots.contains_key(&change.id) && change.id <= ROOT_MAX;
        let has_name = !self.roots.values().any(|root| root.name == change.name) && !change.name.is_empty();
        let source = self.roots.get(&change.source).ok_or(Refused::NoSuchRoot);
        let own = self.roots.get(&change.id).ok_or(Refused::NoSuchRoot);
        let is_valid = match change.op {
            CatalogOp::Create => is_new && has_name,
            CatalogOp::Snapshot | CatalogOp::Clone => source.is_ok_and(|_| is_new && has_name),
            CatalogOp::Delete => own.map(|_| true)?,
            CatalogOp::Rollback => {
                let (own, source) = (own?, source?);
                own.kind == RootKind::Volume && own.size_blocks == source.size_blocks
            }
            CatalogOp::Resize => own?.kind == RootKind::Volume && change.size_blocks >= own?.size_blocks,
            CatalogOp::Rename => own.map(|_| has_name)?,
        };
        if is_valid { Ok(()) } else { Err(Refused::Invalid) }
    }

    /// Root whose changes in memory have to become nodes before a change of the catalog.
    pub(super) fn folds_first(change: &CatalogChange) -> Option<u32> {
        let copies = matches!(change.op, CatalogOp::Snapshot | CatalogOp::Clone | CatalogOp::Rollback);
        copies.then_some(change.source)
    }

    /// Applies a change of the catalog that was checked; changes of its source were folded.
    pub(super) fn apply_catalog(&mut self, change: &CatalogChange) {
        let copy = |kind: RootKind, source: &Root| Root {
            kind,
            source: change.source,
            name: change.name.clone(),
            mark: None,
            ..source.clone()
        };
        match change.op {
            CatalogOp::Create => drop(self.roots.insert(change.id, created(change))),
            CatalogOp::Delete => {
                self.roots.remove(&change.id);
                self.drop_changes(change.id);
            }
            CatalogOp::Snapshot | CatalogOp::Clone => {
                let is_snapshot = change.op == CatalogOp::Snapshot;
                let kind = if is_snapshot { RootKind::Snapshot } else { RootKind::Volume };
                self.share(change.source);
                if let Some(root) = self.roots.get(&change.source).map(|source| copy(kind, source)) {
                    self.roots.insert(change.id, root);
                }
            }
            CatalogOp::Rollback => {
                self.share(change.source);
                self.drop_changes(change.id);
                let source = self.roots.get(&change.source).map(|source| (source.top, source.shared_from));
                if let (Some((top, shared_from)), Some(root)) = (source, self.roots.get_mut(&change.id)) {
                    (root.top, root.shared_from, root.changes) = (top, shared_from, root.changes + 1);
                }
            }
            CatalogOp::Resize => {
                if let Some(root) = self.roots.get_mut(&change.id) {
                    root.size_blocks = change.size_blocks;
                    self.grow(change.id);
                }
            }
            CatalogOp::Rename => {
                if let Some(root) = self.roots.get_mut(&change.id) {
                    root.name.clone_from(&change.name);
                }
            }
        }
        self.changed_roots.extend([change.id / ROOTS, change.source / ROOTS]);
    }

    fn drop_changes(&mut self, id: u32) {
        self.changes.clear(Some(id));
    }

    /// All nodes of a root's map may be reached from another one from now on.
    fn share(&mut self, id: u32) {
        if let Some(root) = self.roots.get_mut(&id) {
            root.shared_from = self.nodes_end;
        }
    }

    /// Returns a number that no node had before.
    fn new_number(&mut self) -> u64 {
        let number = self.nodes_end;
        assert!(number + 1 < NODES_MAX, "numbers of nodes are used up");
        self.nodes_end += 1;
        number
    }

    /// Takes a root that was read at the opening.
    pub(super) fn load_root(&mut self, id: u32, root: Root) {
        self.roots.insert(id, root);
    }

    /// Returns the encoded leaves of the segment table or the catalog; both are read as a whole.
    pub(super) fn table(&mut self, is_catalog: bool) -> Result<Vec<EncodedLeaf>, Blocked> {
        let top = if is_catalog { self.catalog } else { self.segments };
        let (mut leaves, mut missing) = (Vec::new(), Vec::new());
        for (number, node) in self.all(top)? {
            let record = self.pages.record(&mut self.cache, node)?;
            match record.base {
                Some(spot) if self.cache.has(&spot) => leaves.push((number, self.cache.get(&spot)?)),
                Some(spot) => missing.push(spot),
                None => {}
            }
        }
        if missing.is_empty() { Ok(leaves) } else { Err(Blocked::Missing(missing)) }
    }

    /// Checks that changes belong to roots and lie within them.
    pub(super) fn check(&self) -> Result<(), String> {
        self.changes.check()?;
        for (id, block) in self.changes.last_blocks() {
            let root = self.roots.get(&id).ok_or_else(|| format!("changes of root {id}, which is gone"))?;
            if block >= root.size_blocks {
                return Err(format!("block {block} of root {id} is beyond its end"));
            }
        }
        let is_old = |root: &Root| root.top.node < self.nodes_end && root.shared_from <= self.nodes_end;
        match self.roots.iter().find(|(_, root)| !is_old(root)) {
            Some((id, root)) => Err(format!("root {id} has numbers to come: {root:?}")),
            None => Ok(()),
        }
    }
}

fn created(change: &CatalogChange) -> Root {
    Root {
        kind: RootKind::Volume,
        codec: change.codec,
        frame_blocks: change.frame_blocks,
        mark: None,
        source: change.id,
        size_blocks: change.size_blocks,
        top: Top { node: 0, levels: levels_of(change.size_blocks) },
        shared_from: 0,
        flags: change.flags,
        changes: 0,
        name: change.name.clone(),
    }
}

/// Position of a block in its leaf.
fn within(block: u64) -> usize {
    usize_from_u64(block % LEAF_BLOCKS)
}

fn decoded(spot: &Spot, bytes: &[u8]) -> Result<Leaf, Blocked> {
    Leaf::decode(bytes).map_err(|_| Blocked::Damaged(*spot))
}
