//! Volume maps: from an address to a chunk number, through pages that snapshots share.
//!
//! Job: look addresses up, make paths of a map changeable, change them. Invariants: a page that another root may reach
//! (its birth is not above the volume's `shared_at`) is copied before it changes; making a path changeable changes
//! nothing that can be read, so it may be broken off and begun again. What it does not do: log the change (the caller
//! does, in the same step).

use crate::catalog::{FANOUT, Root, levels};
use crate::ids::{ChunkNo, PageNo, Place, Pointer, RootId};
use crate::limits;
use crate::lost::LOST;
use crate::media::page::{HEADER, birth_of, level_of, new_page, rename};
use crate::media::{Block, put_u64, u64_at};
use crate::pager::Missing;
use crate::seam::Run;
use crate::trees::{Trees, map_key};

/// A range of addresses: the first, and the one after the last.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: u64,
    end: u64,
}

/// A page of a map and the address it begins at.
#[derive(Debug, Clone, Copy)]
struct Node {
    page: PageNo,
    level: u8,
    base: u64,
}

/// Owner of the pages that are made changeable.
#[derive(Debug, Clone, Copy)]
struct Owner {
    shared_at: u64,
    size_chunks: u64,
}

impl Owner {
    const fn of(root: &Root) -> Self {
        Self { shared_at: root.shared_at, size_chunks: root.size_chunks }
    }
}

/// Says of all addresses of a page that what they held is lost.
fn put_lost(block: &mut Block, node: Node, size_chunks: u64) {
    let held = size_chunks.saturating_sub(node.base).div_ceil(span_of(node.level));
    for slot in 0..held.min(FANOUT) {
        put_u64(block, slot_at(slot), LOST);
    }
}

/// The numbers that a page holds.
pub(crate) fn numbers_of(block: &Block) -> impl Iterator<Item = u64> + '_ {
    block[HEADER..].chunks_exact(8).map(|field| u64_at(field, 0))
}

fn slot_at(slot: u64) -> usize {
    HEADER + 8 * zc_core::usize_from_u64(slot)
}

/// Addresses below one slot of a page of this level.
pub(crate) fn span_of(level: u8) -> u64 {
    FANOUT.saturating_pow(u32::from(level))
}

fn slot_of(address: u64, level: u8) -> u64 {
    address / span_of(level) % FANOUT
}

impl Trees {
    /// The chunk at an address; number 0 for none.
    pub(crate) fn lookup(&mut self, id: RootId, address: u64) -> Result<ChunkNo, Missing> {
        let Some(root) = self.root(id) else { return Ok(ChunkNo(0)) };
        let (mut page, mut level) = (root.page, root.height);
        while page.0 != 0 {
            level -= 1;
            self.load_map_page(page, level)?;
            let number = u64_at(self.pager.page(map_key(page)), slot_at(slot_of(address, level)));
            if level == 0 {
                return Ok(ChunkNo(number));
            }
            page = PageNo(number);
        }
        Ok(ChunkNo(0))
    }

    /// Which of these addresses hold a chunk, as far as few pages tell.
    pub(crate) fn runs(&mut self, id: RootId, first: u64, end: u64) -> Result<Vec<Run>, Missing> {
        let mut runs: Vec<Run> = Vec::new();
        let mut at = first;
        for _ in 0..limits::ALLOCATION_RUNS_MAX {
            if at >= end {
                break;
            }
            let (next, is_hole) = self.run_at(id, at)?;
            let chunks = next.min(end) - at;
            match runs.last_mut().filter(|last| last.is_hole == is_hole) {
                Some(last) => last.chunks += chunks,
                None => runs.push(Run { chunks, is_hole }),
            }
            at += chunks;
        }
        Ok(runs)
    }

    /// Where what is said of this address ends: inside one page.
    fn run_at(&mut self, id: RootId, address: u64) -> Result<(u64, bool), Missing> {
        let Some(root) = self.root(id) else { return Ok((u64::MAX, true)) };
        let (mut page, mut level) = (root.page, root.height);
        if page.0 == 0 {
            return Ok((u64::MAX, true));
        }
        loop {
            level -= 1;
            self.load_map_page(page, level)?;
            let (span, slot) = (span_of(level), slot_of(address, level));
            let block = self.pager.page(map_key(page));
            let number = u64_at(block, slot_at(slot));
            if level > 0 && number != 0 && number != LOST {
                page = PageNo(number);
                continue;
            }
            let is_hole = number == 0;
            let is_same = |slot: &u64| (u64_at(block, slot_at(*slot)) == 0) == is_hole;
            // Above the leaves a slot that holds something has to be looked into.
            let same = (slot..FANOUT).take_while(is_same).count();
            let start = address / span * span;
            return Ok((start.saturating_add(span.saturating_mul(same as u64)), is_hole));
        }
    }

    /// Makes the path to an address changeable.
    pub(crate) fn make_address_writable(&mut self, id: RootId, address: u64) -> Result<(), Missing> {
        let Some(root) = self.root(id) else { return Ok(()) };
        let (owner, top, mut level) = (Owner::of(root), root.page, root.height - 1);
        let mut page = self.own(owner, Node { page: top, level, base: 0 })?;
        if page != top {
            self.root_mut(id).page = page;
        }
        while level > 0 {
            let base = address / span_of(level + 1) * span_of(level + 1);
            page = self.own_child(owner, Node { page, level, base }, slot_of(address, level))?;
            level -= 1;
        }
        Ok(())
    }

    /// Puts a chunk at an address whose path was made changeable.
    ///
    /// # Panics
    /// When it was not.
    pub(crate) fn put_address(&mut self, id: RootId, address: u64, number: ChunkNo) {
        let Some(root) = self.root(id) else { panic!("{id:?} is written and is gone") };
        let (mut page, mut level) = (root.page, root.height - 1);
        while level > 0 {
            page = PageNo(u64_at(self.pager.page(map_key(page)), slot_at(slot_of(address, level))));
            level -= 1;
        }
        put_u64(self.pager.edit(map_key(page)), slot_at(slot_of(address, 0)), number.0);
        self.with_mark(|mark| mark.chunk(number));
        self.count_change(id);
    }

    /// Makes the borders of a range changeable, or, after that, clears the range.
    pub(crate) fn clear(&mut self, id: RootId, first: u64, count: u64, apply: bool) -> Result<(), Missing> {
        let Some(root) = self.root(id) else { return Ok(()) };
        let (owner, top, level) = (Owner::of(root), root.page, root.height - 1);
        if top.0 == 0 {
            return Ok(());
        }
        let page = self.own(owner, Node { page: top, level, base: 0 })?;
        if page != top {
            self.root_mut(id).page = page;
        }
        // Behind the last address nothing is held, so the last page is cleared as a whole.
        let end = first.saturating_add(count);
        let end = if end >= owner.size_chunks { u64::MAX } else { end };
        self.clear_below(owner, Node { page, level, base: 0 }, Range { first, end }, apply)?;
        if apply {
            self.count_change(id);
        }
        Ok(())
    }

    fn clear_below(&mut self, owner: Owner, node: Node, range: Range, apply: bool) -> Result<(), Missing> {
        let span = span_of(node.level);
        let first_slot = range.first.saturating_sub(node.base) / span;
        for slot in first_slot..FANOUT {
            let (start, end) = (node.base + slot * span, node.base + (slot + 1) * span);
            if start >= range.end {
                break;
            }
            if u64_at(self.pager.page(map_key(node.page)), slot_at(slot)) == 0 {
                continue;
            }
            if range.first <= start && end <= range.end {
                if apply {
                    put_u64(self.pager.edit(map_key(node.page)), slot_at(slot), 0);
                }
                continue;
            }
            let page = self.own_child(owner, node, slot)?;
            self.clear_below(owner, Node { page, level: node.level - 1, base: start }, range, apply)?;
        }
        Ok(())
    }

    /// The child in a slot of a page that is the volume's own becomes its own too.
    fn own_child(&mut self, owner: Owner, node: Node, slot: u64) -> Result<PageNo, Missing> {
        let child = PageNo(u64_at(self.pager.page(map_key(node.page)), slot_at(slot)));
        let base = node.base + slot * span_of(node.level);
        let own = self.own(owner, Node { page: child, level: node.level - 1, base })?;
        if own != child {
            put_u64(self.pager.edit(map_key(node.page)), slot_at(slot), own.0);
        }
        Ok(own)
    }

    /// The page itself if no other root can reach it, a copy if one can, a new one if there is none. It may be changed.
    /// In place of one that cannot be read comes one that says so of each of its addresses.
    fn own(&mut self, owner: Owner, node: Node) -> Result<PageNo, Missing> {
        let Node { page, level, .. } = node;
        let mut is_lost = false;
        if page.0 != 0 {
            match self.load_map_page(page, level) {
                Ok(()) if birth_of(self.pager.page(map_key(page))) > owner.shared_at => {
                    match self.pages.make_writable(&mut self.pager, page.0) {
                        Ok(()) => {
                            self.pager.mark_dirty(map_key(page));
                            return Ok(page);
                        }
                        // Its record cannot be written: it gets another number.
                        Err(missing) if self.lost.has(&missing) => {}
                        Err(missing) => return Err(missing),
                    }
                }
                Ok(()) => {}
                Err(missing) if self.lost.has(&missing) => is_lost = true,
                Err(missing) => return Err(missing),
            }
        }
        let number = self.new_page_number()?;
        let key = map_key(number);
        let mut block = new_page(key, level, self.epoch);
        if is_lost {
            put_lost(&mut block, node, owner.size_chunks);
        } else if page.0 != 0 {
            block.copy_from_slice(self.pager.page(map_key(page)));
            rename(&mut block, number.0, self.epoch);
        }
        self.with_mark(|mark| {
            mark.new_page(number);
            mark_numbers(mark, &block);
        });
        self.pager.insert_new(key, block);
        Ok(number)
    }

    /// Makes a map high enough for a size.
    pub(crate) fn fit_height(&mut self, id: RootId, size_chunks: u64) -> Result<(), Missing> {
        while let Some(root) = self.root(id)
            && root.height < levels(size_chunks)
        {
            let (below, height) = (root.page, root.height);
            if below.0 != 0 {
                let number = self.new_page_number()?;
                let mut block = new_page(map_key(number), height, self.epoch);
                put_u64(&mut block[..], HEADER, below.0);
                self.with_mark(|mark| {
                    mark.new_page(number);
                    mark.page(below);
                });
                self.pager.insert_new(map_key(number), block);
                self.root_mut(id).page = number;
            }
            self.root_mut(id).height = height + 1;
        }
        Ok(())
    }

    /// A step of the mark: what one page refers to.
    pub(crate) fn visit_marked_page(&mut self, page: PageNo) -> Result<(), Missing> {
        self.load_any_map_page(page)?;
        let Self { pager, mark: Some(mark), .. } = self else { return Ok(()) };
        mark_numbers(mark, pager.page(map_key(page)));
        Ok(())
    }

    /// A map page that no root refers to goes. Its record was made writable. Where it was.
    pub(crate) fn drop_map_page(&mut self, number: PageNo) -> Option<Place> {
        self.pager.forget(map_key(number));
        self.put_page_pointer(number, Pointer::default())
    }
}

/// Marks all that a page holds.
fn mark_numbers(mark: &mut crate::mark::Mark, block: &Block) {
    let is_leaf = level_of(block) == 0;
    for number in numbers_of(block).filter(|number| *number != LOST) {
        if is_leaf {
            mark.chunk(ChunkNo(number));
        } else {
            mark.page(PageNo(number));
        }
    }
}
