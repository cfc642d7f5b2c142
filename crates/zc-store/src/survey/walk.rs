//! A walk over the maps of frozen roots, one number at a time.
//!
//! Job: bring every page and every mapped address, root after root, addresses upward. Invariant: a step that lacks a page
//! changes nothing. What it does not do: look chunks up.

use crate::catalog::FANOUT;
use crate::ids::{ChunkNo, PageNo, RootId};
use crate::lost::LOST;
use crate::map::{numbers_of, span_of};
use crate::pager::Missing;
use crate::trees::{Trees, map_key};

/// Where a scrub begins or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScrubPoint {
    /// The volume or snapshot.
    pub root: RootId,
    /// The address in it, in chunks.
    pub address: u64,
}

/// A volume or snapshot as it was when the survey began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frozen {
    pub(crate) id: RootId,
    pub(crate) is_volume: bool,
    pub(crate) page: PageNo,
    pub(crate) height: u8,
    pub(crate) chunk_shift: u8,
    pub(crate) size_chunks: u64,
}

/// What the walk comes to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item {
    /// Another root begins.
    Root,
    /// A page of its map.
    Page(usize, PageNo),
    /// An address that holds something.
    Chunk(usize, u64, ChunkNo),
    /// Addresses of which the map says that what they held cannot be read: the first, and how many at most.
    Lost(usize, u64, u64),
    End,
}

/// A page still to be visited, and the addresses below it.
#[derive(Debug, Clone, Copy)]
struct Node {
    page: PageNo,
    level: u8,
    first: u64,
}

/// The walk.
#[derive(Debug)]
pub(super) struct Walk {
    roots: Vec<Frozen>,
    /// Roots that have begun.
    begun: usize,
    /// The next in order is last.
    pages: Vec<Node>,
    chunks: Vec<(u64, ChunkNo)>,
    /// In the first root, addresses before this one are passed over.
    from: u64,
}

impl Walk {
    pub(super) fn new(roots: Vec<Frozen>, from: u64) -> Self {
        Self { roots, begun: 0, pages: Vec::new(), chunks: Vec::new(), from }
    }

    pub(super) fn roots(&self) -> &[Frozen] {
        &self.roots
    }

    /// From the beginning again.
    pub(super) fn rewind(&mut self) {
        self.begun = 0;
    }

    pub(super) fn next(&mut self, trees: &mut Trees) -> Result<Item, Missing> {
        let root = self.begun.saturating_sub(1);
        if let Some((address, number)) = self.chunks.pop() {
            let is_lost = number.0 == LOST;
            return Ok(if is_lost {
                Item::Lost(root, address, 1)
            } else {
                Item::Chunk(root, address, number)
            });
        }
        let Some(node) = self.pages.last().copied() else { return Ok(self.next_root()) };
        if node.page.0 == LOST {
            self.pages.pop();
            return Ok(Item::Lost(root, node.first, span_of(node.level + 1)));
        }
        trees.load_map_page(node.page, node.level)?;
        self.pages.pop();
        let from = if root == 0 { self.from } else { 0 };
        let numbers = numbers_of(trees.pager.page(map_key(node.page)));
        let span = span_of(node.level);
        let held = numbers.zip(0..FANOUT).filter(|(number, _)| *number != 0);
        let held = held.map(|(number, slot)| (number, node.first + slot * span));
        let held = held.filter(|(_, first)| first + (span - 1) >= from);
        if node.level == 0 {
            self.chunks.extend(held.map(|(number, address)| (address, ChunkNo(number))));
            self.chunks.reverse();
        } else {
            let level = node.level - 1;
            let below = held.map(|(number, first)| Node { page: PageNo(number), level, first });
            let at = self.pages.len();
            self.pages.extend(below);
            self.pages[at..].reverse();
        }
        Ok(Item::Page(root, node.page))
    }

    fn next_root(&mut self) -> Item {
        let Some(root) = self.roots.get(self.begun) else { return Item::End };
        self.begun += 1;
        if root.page.0 != 0 {
            self.pages.push(Node { page: root.page, level: root.height - 1, first: 0 });
        }
        Item::Root
    }

    /// What comes next: a root, and an address in it.
    pub(super) fn point(&self) -> Option<ScrubPoint> {
        let present = self.roots.get(self.begun.saturating_sub(1)).map(|root| root.id);
        let ahead = self.chunks.last().map(|(address, _)| *address);
        let ahead = ahead.or_else(|| self.pages.last().map(|node| node.first));
        match (present, ahead) {
            (Some(root), Some(address)) => Some(ScrubPoint { root, address }),
            _ => self.roots.get(self.begun).map(|root| ScrubPoint { root: root.id, address: 0 }),
        }
    }

    /// The next page cannot be read: it is passed over. The root, and the addresses that it maps.
    pub(super) fn pass_page(&mut self) -> Option<(RootId, u64, u64)> {
        let node = self.pages.pop()?;
        let root = self.roots[self.begun - 1];
        let end = node.first.saturating_add(span_of(node.level + 1)).min(root.size_chunks);
        Some((root.id, node.first, end.saturating_sub(node.first)))
    }
}
