//! The chips: pages and blocks, and the rules of flash.
//!
//! Invariants, asserted at every operation: a page is programmed at most once between two erasures of its block, in
//! ascending order within the block; only programmed pages are read.
//!
//! It does not track which pages are live. That is the translation layer's job.

use zc_core::usize_from_u32;

use crate::geometry::{Geometry, Latencies};

/// Contents of a page: data and spare area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Logical page, as translation layers note in the spare area.
    pub page: u32,
    /// Stands for the data.
    pub tag: u32,
}

/// Operations on flash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erasures: u64,
}

/// Flash.
#[derive(Debug)]
pub struct Nand {
    geometry: Geometry,
    latencies: Latencies,
    pages: Vec<Option<Stored>>,
    /// First programmable page of each block.
    next: Vec<u32>,
    /// Erasures of each block.
    erasures: Vec<u32>,
    /// Busy time of each lane.
    busy_us: Vec<u64>,
    operations: Operations,
}

impl Nand {
    /// Erased flash.
    #[must_use]
    pub fn new(geometry: Geometry, latencies: Latencies) -> Self {
        let blocks = usize_from_u32(geometry.blocks());
        Self {
            geometry,
            latencies,
            pages: vec![None; usize_from_u32(geometry.pages())],
            next: vec![0; blocks],
            erasures: vec![0; blocks],
            busy_us: vec![0; usize_from_u32(geometry.lanes())],
            operations: Operations::default(),
        }
    }

    /// Its dimensions.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the durations of operations.
    #[must_use]
    pub const fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Returns the operations so far.
    #[must_use]
    pub const fn operations(&self) -> Operations {
        self.operations
    }

    /// Returns the erasures of a block.
    #[must_use]
    pub fn erasures(&self, block: u32) -> u32 {
        self.erasures[usize_from_u32(block)]
    }

    /// Fewest and most erasures of a block.
    #[must_use]
    pub fn wear(&self) -> (u32, u32) {
        let all = &self.erasures;
        (all.iter().copied().min().unwrap_or(0), all.iter().copied().max().unwrap_or(0))
    }

    /// Returns the busy time of the busiest lane: the duration if lanes never waited for each other.
    #[must_use]
    pub fn busiest_us(&self) -> u64 {
        self.busy_us.iter().copied().max().unwrap_or(0)
    }

    /// The first page of a block that can be programmed, none if it is full.
    #[must_use]
    pub fn next_page(&self, block: u32) -> Option<u32> {
        let next = self.next[usize_from_u32(block)];
        (next < self.geometry.pages_per_block()).then(|| block * self.geometry.pages_per_block() + next)
    }

    /// Returns the programmed pages of a block, with their contents.
    pub fn programmed(&self, block: u32) -> impl Iterator<Item = (u32, Stored)> + '_ {
        let first = block * self.geometry.pages_per_block();
        let all = first..first + self.next[usize_from_u32(block)];
        all.filter_map(|page| Some((page, self.pages[usize_from_u32(page)]?)))
    }

    fn takes(&mut self, block: u32, us: u64) {
        self.busy_us[usize_from_u32(self.geometry.lane_of(block))] += us;
    }

    /// Programs a page.
    ///
    /// # Panics
    /// If it, or a later one of its block, was programmed since the block was erased.
    pub fn program(&mut self, page: u32, stored: Stored) {
        let (block, within) = (self.geometry.block_of(page), page % self.geometry.pages_per_block());
        let next = &mut self.next[usize_from_u32(block)];
        assert!(within >= *next, "page {page} is programmed twice or out of order");
        *next = within + 1;
        self.pages[usize_from_u32(page)] = Some(stored);
        self.operations.programs += 1;
        self.takes(block, self.latencies.program_us);
    }

    /// Reads a page.
    ///
    /// # Panics
    /// If it was not programmed since its block was erased.
    pub fn read(&mut self, page: u32) -> Stored {
        let Some(stored) = self.pages[usize_from_u32(page)] else {
            panic!("page {page} is read before it is programmed");
        };
        self.operations.reads += 1;
        self.takes(self.geometry.block_of(page), self.latencies.read_us);
        stored
    }

    /// Erases a block.
    pub fn erase(&mut self, block: u32) {
        let len = usize_from_u32(self.geometry.pages_per_block());
        let first = usize_from_u32(block) * len;
        self.pages[first..first + len].fill(None);
        self.next[usize_from_u32(block)] = 0;
        self.erasures[usize_from_u32(block)] += 1;
        self.operations.erasures += 1;
        self.takes(block, self.latencies.erase_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nand() -> Nand {
        Nand::new(Geometry::new(4096, 4, 3, 1, 2).unwrap(), Latencies::WHERE_AND_HOW)
    }

    const A: Stored = Stored { page: 7, tag: 1 };

    #[test]
    fn what_is_programmed_is_read_until_it_is_erased() {
        let mut nand = nand();
        nand.program(4, A);
        nand.program(6, Stored { page: 8, tag: 2 });
        assert_eq!(nand.read(4), A);
        assert_eq!(nand.next_page(1), Some(7));
        assert_eq!(nand.programmed(1).count(), 2);
        nand.erase(1);
        assert_eq!((nand.next_page(1), nand.programmed(1).count()), (Some(4), 0));
        assert_eq!((nand.erasures(1), nand.wear()), (1, (0, 1)));
        assert_eq!(nand.busiest_us(), 2 * 250 + 25 + 2000);
        assert_eq!(nand.operations(), Operations { reads: 1, programs: 2, erasures: 1 });
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn a_page_is_programmed_once() {
        let mut nand = nand();
        nand.program(4, A);
        nand.program(4, A);
    }

    #[test]
    #[should_panic(expected = "out of order")]
    fn pages_of_a_block_are_programmed_in_order() {
        let mut nand = nand();
        nand.program(5, A);
        nand.program(4, A);
    }

    #[test]
    #[should_panic(expected = "before it is programmed")]
    fn an_erased_page_is_not_read() {
        nand().read(4);
    }
}
