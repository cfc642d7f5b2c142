//! A translation layer with a map entry for each page.
//!
//! Writes go round the lanes, each to its open block. When erased blocks run short, the block with the fewest pages
//! that are still needed is collected (greedy; of equals the least worn), its pages copied to a block of their own.
//! Wear is levelled twice: the least worn erased block is used first, and when the most worn block is 16 erasures ahead
//! of one whose contents never change, those are moved.
//!
//! Invariants: a logical page has at most one live flash page; a block's live count is the number of those it holds.

use std::collections::BTreeSet;

use zc_core::usize_from_u32;

use crate::Ftl;
use crate::error::GeometryError;
use crate::geometry::{Geometry, Latencies};
use crate::nand::{Nand, Stored};
use crate::pool::Pool;
use crate::stats::Stats;

/// No page.
const NONE: u32 = u32::MAX;
/// Erased blocks below which garbage is collected: one for the host, one to copy to.
const FREE_MIN: u32 = 2;
/// Most erasures that a block may be behind the most worn one, give or take those under way.
pub(crate) const WEAR_SPREAD_MAX: u32 = 16;

/// The layer and its flash.
#[derive(Debug)]
pub struct PageMapped {
    nand: Nand,
    map: Vec<u32>,
    live: Vec<u32>,
    pool: Pool,
    /// Blocks that are full: by live pages, then wear; and by wear alone.
    full: BTreeSet<(u32, u32, u32)>,
    full_by_wear: BTreeSet<(u32, u32)>,
    is_full: Vec<bool>,
    /// The block of each lane that the host writes to.
    open: Vec<Option<u32>>,
    lane: u32,
    copy_to: Option<u32>,
    most_worn: u32,
    counts: Stats,
}

impl PageMapped {
    /// Creates flash that reserves this share of the exposed flash.
    ///
    /// # Errors
    /// When the reserve is too small.
    pub fn new(
        geometry: Geometry,
        latencies: Latencies,
        over_provisioning_permille: u32,
    ) -> Result<Self, GeometryError> {
        Self::exposing(geometry, latencies, geometry.exposed_blocks(over_provisioning_permille))
    }

    /// New flash of which this many blocks are exposed.
    ///
    /// # Errors
    /// It has too few more than that: one per lane, one to copy to, and two erased ones are in use.
    pub fn exposing(
        geometry: Geometry,
        latencies: Latencies,
        exposed_blocks: u32,
    ) -> Result<Self, GeometryError> {
        let needed = geometry.lanes() + 1 + FREE_MIN;
        let reserved = geometry.blocks().saturating_sub(exposed_blocks);
        if reserved < needed || exposed_blocks == 0 {
            return Err(GeometryError::Reserve { blocks: geometry.blocks(), reserved, needed });
        }
        let nand = Nand::new(geometry, latencies);
        let blocks = usize_from_u32(geometry.blocks());
        Ok(Self {
            map: vec![NONE; usize_from_u32(exposed_blocks * geometry.pages_per_block())],
            live: vec![0; blocks],
            pool: Pool::all(&nand),
            full: BTreeSet::new(),
            full_by_wear: BTreeSet::new(),
            is_full: vec![false; blocks],
            open: vec![None; usize_from_u32(geometry.lanes())],
            lane: 0,
            copy_to: None,
            most_worn: 0,
            counts: Stats::default(),
            nand,
        })
    }

    /// The live count of a block changes by one.
    fn count(&mut self, page: u32, more: bool) {
        let block = self.nand.geometry().block_of(page);
        let (at, erasures) = (usize_from_u32(block), self.nand.erasures(block));
        let before = self.live[at];
        let after = if more { before + 1 } else { before - 1 };
        self.live[at] = after;
        if self.is_full[at] {
            self.full.remove(&(before, erasures, block));
            self.full.insert((after, erasures, block));
        }
    }

    fn forget(&mut self, page: u32) -> bool {
        let old = std::mem::replace(&mut self.map[usize_from_u32(page)], NONE);
        if old != NONE {
            self.count(old, false);
        }
        old != NONE
    }

    /// Programs the next page of a block that has one, and files the block if it was the last.
    fn append(&mut self, block: u32, stored: Stored) {
        let Some(at) = self.nand.next_page(block) else { panic!("block {block} is open and full") };
        self.nand.program(at, stored);
        self.forget(stored.page);
        self.map[usize_from_u32(stored.page)] = at;
        self.count(at, true);
        if self.nand.next_page(block).is_none() {
            let erasures = self.nand.erasures(block);
            self.is_full[usize_from_u32(block)] = true;
            self.full.insert((self.live[usize_from_u32(block)], erasures, block));
            self.full_by_wear.insert((erasures, block));
        }
    }

    /// A block from the pool.
    fn erased(&mut self, lane: u32) -> u32 {
        let Some(block) = self.pool.take(lane) else { panic!("no block is erased") };
        block
    }

    /// Copies the live pages of a full block, and erases it.
    fn relocate(&mut self, block: u32) {
        let erasures = self.nand.erasures(block);
        self.is_full[usize_from_u32(block)] = false;
        self.full.remove(&(self.live[usize_from_u32(block)], erasures, block));
        self.full_by_wear.remove(&(erasures, block));
        let is_live = |(at, stored): &(u32, Stored)| self.map[usize_from_u32(stored.page)] == *at;
        let live: Vec<u32> = self.nand.programmed(block).filter(is_live).map(|(at, _)| at).collect();
        for at in live {
            let stored = self.nand.read(at);
            let lane = self.nand.geometry().lane_of(block);
            let to = match self.copy_to {
                Some(to) => to,
                None => self.erased(lane),
            };
            self.append(to, stored);
            self.copy_to = self.nand.next_page(to).map(|_| to);
            self.counts.copies += 1;
        }
        assert_eq!(self.live[usize_from_u32(block)], 0, "all that lives in block {block} was copied");
        self.nand.erase(block);
        self.most_worn = self.most_worn.max(self.nand.erasures(block));
        self.pool.put(&self.nand, block);
    }

    /// Makes blocks free.
    fn collect(&mut self) {
        while self.pool.len() < FREE_MIN {
            let Some((live, _, victim)) = self.full.first().copied() else { panic!("no block is full") };
            assert!(live < self.nand.geometry().pages_per_block(), "a block can be gained");
            self.relocate(victim);
        }
        let coldest = self.full_by_wear.first().copied();
        if let Some((erasures, block)) = coldest
            && erasures + WEAR_SPREAD_MAX < self.most_worn
        {
            self.relocate(block);
        }
    }

    /// Checks invariants that the counters do not show: for tests.
    ///
    /// # Panics
    /// If live pages and map differ.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut live = vec![0; self.live.len()];
        for at in self.map.iter().filter(|at| **at != NONE) {
            live[usize_from_u32(self.nand.geometry().block_of(*at))] += 1;
        }
        assert_eq!(live, self.live);
    }
}

impl Ftl for PageMapped {
    fn pages(&self) -> u32 {
        u32::try_from(self.map.len()).unwrap_or(NONE)
    }

    fn write(&mut self, page: u32, tag: u32) {
        let (lane, at) = (self.lane, usize_from_u32(self.lane));
        self.lane = (lane + 1) % self.nand.geometry().lanes();
        let block = match self.open[at] {
            Some(block) => block,
            None => {
                self.collect();
                self.erased(self.pool.fair(lane))
            }
        };
        self.append(block, Stored { page, tag });
        // A full block can be collected: it must not be written to any more.
        self.open[at] = self.nand.next_page(block).map(|_| block);
        self.counts.host_writes += 1;
    }

    fn read(&mut self, page: u32) -> Option<u32> {
        let at = self.map[usize_from_u32(page)];
        self.counts.host_reads += 1;
        (at != NONE).then(|| self.nand.read(at).tag)
    }

    fn trim(&mut self, page: u32) {
        self.counts.trims += u64::from(self.forget(page));
    }

    fn stats(&self) -> Stats {
        let Stats { host_writes, host_reads, trims, copies, .. } = self.counts;
        Stats { host_writes, host_reads, trims, copies, ..Stats::of(&self.nand) }
    }
}
