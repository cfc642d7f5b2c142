//! A translation layer with block-mapped data blocks, and page-mapped log blocks for overwrites.
//!
//! After BAST, FAST and their kin, as in Nitro's simulator (section 4): logical pages of a data block lie at their own
//! offsets. Overwritten pages go to log blocks, which are few. A write to the first page of a logical block opens a
//! *sequential* log block, which takes the pages that follow; when complete, it becomes the data block (switch merge);
//! when evicted earlier, the rest is copied to it (partial merge). All else goes to shared *random* log blocks; when
//! these run short, each logical block with a page in the emptiest of them is rewritten from its newest pages (full
//! merge). Trimmed pages are not copied, and a block without live pages is erased at once. Wear is levelled by using
//! the least worn erased block first; static data is not moved for it.
//!
//! Invariants: a logical page has at most one live flash page, in its data block or in a log block; a block's live
//! count is the number of those it holds.

use std::collections::VecDeque;

use zc_core::usize_from_u32;

use crate::Ftl;
use crate::error::GeometryError;
use crate::geometry::{Geometry, Latencies};
use crate::nand::{Nand, Stored};
use crate::pool::Pool;
use crate::stats::Stats;

/// No page, no block.
const NONE: u32 = u32::MAX;
/// Erased blocks that a merge works with.
const SPARE: u32 = 2;

/// Number of unexposed blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logs {
    /// Spare blocks, in thousandths of the device.
    pub over_provisioning_permille: u32,
    /// Log blocks, in thousandths of the device.
    pub log_permille: u32,
    /// Share of the log blocks for sequential writes, in thousandths.
    pub sequential_permille: u32,
}

impl Logs {
    /// Nitro section 5.4: 7 % over-provisioning, 10 % log blocks. Not from the paper: a quarter of them sequential.
    pub const NITRO: Self =
        Self { over_provisioning_permille: 70, log_permille: 100, sequential_permille: 250 };
}

/// A sequential log block that is being written.
#[derive(Debug, Clone, Copy)]
struct Sequential {
    /// The logical block.
    logical: u32,
    block: u32,
}

/// The layer and its flash.
#[derive(Debug)]
pub struct Hybrid {
    nand: Nand,
    /// Position of each logical page. A real device derives it from data block or log map.
    newest: Vec<u32>,
    /// The data block of each logical block.
    data: Vec<u32>,
    live: Vec<u32>,
    pool: Pool,
    sequential: VecDeque<Sequential>,
    sequential_max: usize,
    /// The last is being written.
    random: VecDeque<u32>,
    random_max: usize,
    counts: Stats,
}

impl Hybrid {
    /// New flash.
    ///
    /// # Errors
    /// Too few blocks are set aside: there must be a sequential and a random log block, and two more.
    pub fn new(geometry: Geometry, latencies: Latencies, logs: Logs) -> Result<Self, GeometryError> {
        let blocks = geometry.blocks();
        let share = |of: u32, permille: u32| {
            u32::try_from(u64::from(of) * u64::from(permille) / 1000).unwrap_or(u32::MAX)
        };
        let log = share(blocks, logs.log_permille);
        let sequential = share(log, logs.sequential_permille);
        let spare = share(blocks, logs.over_provisioning_permille);
        if sequential == 0 || log <= sequential || spare < SPARE || log + spare >= blocks {
            let needed = 2 + SPARE;
            return Err(GeometryError::Reserve { blocks, reserved: log.saturating_add(spare), needed });
        }
        let exposed = blocks - log - spare;
        let nand = Nand::new(geometry, latencies);
        Ok(Self {
            newest: vec![NONE; usize_from_u32(exposed * geometry.pages_per_block())],
            data: vec![NONE; usize_from_u32(exposed)],
            live: vec![0; usize_from_u32(blocks)],
            pool: Pool::all(&nand),
            sequential: VecDeque::new(),
            sequential_max: usize_from_u32(sequential),
            random: VecDeque::new(),
            random_max: usize_from_u32(log - sequential),
            counts: Stats::default(),
            nand,
        })
    }

    fn erased(&mut self) -> u32 {
        let Some(block) = self.pool.take(0) else { panic!("no block is erased") };
        block
    }

    fn free(&mut self, block: u32) {
        assert_eq!(self.live[usize_from_u32(block)], 0, "block {block} is erased while pages live in it");
        self.nand.erase(block);
        self.pool.put(&self.nand, block);
    }

    /// Invalidates a page; returns `true` if it was mapped.
    fn forget(&mut self, page: u32) -> bool {
        let old = std::mem::replace(&mut self.newest[usize_from_u32(page)], NONE);
        if old == NONE {
            return false;
        }
        let block = self.nand.geometry().block_of(old);
        self.live[usize_from_u32(block)] -= 1;
        let logical = usize_from_u32(self.nand.geometry().block_of(page));
        if self.live[usize_from_u32(block)] == 0 && self.data[logical] == block {
            self.data[logical] = NONE;
            self.free(block);
        }
        true
    }

    /// Programs a page, at an offset of its own or the next of the block.
    fn put(&mut self, block: u32, offset: Option<u32>, stored: Stored) {
        let at = match offset {
            Some(offset) => Some(block * self.nand.geometry().pages_per_block() + offset),
            None => self.nand.next_page(block),
        };
        let Some(at) = at else { panic!("block {block} is full") };
        self.nand.program(at, stored);
        // Counted first: the block being written must not appear empty.
        self.live[usize_from_u32(block)] += 1;
        self.forget(stored.page);
        self.newest[usize_from_u32(stored.page)] = at;
    }

    /// Copies the pages of a logical block from an offset on to where they belong.
    fn gather(&mut self, logical: u32, from: u32, into: u32) {
        let len = self.nand.geometry().pages_per_block();
        for offset in from..len {
            let at = self.newest[usize_from_u32(logical * len + offset)];
            if at != NONE {
                let stored = self.nand.read(at);
                self.put(into, Some(offset), stored);
                self.counts.copies += 1;
            }
        }
    }

    /// A block becomes the data block; the one before is erased.
    fn install(&mut self, logical: u32, block: u32) {
        let at = usize_from_u32(logical);
        let old = std::mem::replace(&mut self.data[at], block);
        if old != NONE {
            self.free(old);
        }
        if self.live[usize_from_u32(block)] == 0 {
            self.data[at] = NONE;
            self.free(block);
        }
    }

    /// Switch merge, or partial merge if the log block is not full.
    fn finish(&mut self, log: Sequential) {
        let len = self.nand.geometry().pages_per_block();
        if let Some(next) = self.nand.next_page(log.block) {
            self.gather(log.logical, next % len, log.block);
        }
        self.install(log.logical, log.block);
    }

    /// Rewrites a logical block. Its sequential log block is released.
    fn merge(&mut self, logical: u32) {
        let into = self.erased();
        self.gather(logical, 0, into);
        if let Some(at) = self.sequential.iter().position(|log| log.logical == logical)
            && let Some(log) = self.sequential.remove(at)
        {
            self.free(log.block);
        }
        self.install(logical, into);
    }

    /// Full merge: makes the random log block with the fewest live pages free; of equals the oldest.
    fn reclaim(&mut self) {
        let live = |at: &usize| self.live[usize_from_u32(self.random[*at])];
        let Some(victim) = (0..self.random.len()).min_by_key(live).and_then(|at| self.random.remove(at))
        else {
            panic!("no random log block can be reclaimed");
        };
        let held: Vec<(u32, Stored)> = self.nand.programmed(victim).collect();
        for (at, stored) in held {
            if self.newest[usize_from_u32(stored.page)] == at {
                self.merge(self.nand.geometry().block_of(stored.page));
            }
        }
        self.free(victim);
    }

    fn write_random(&mut self, stored: Stored) {
        let open = self.random.back().copied().filter(|block| self.nand.next_page(*block).is_some());
        let block = open.unwrap_or_else(|| {
            while self.random.len() >= self.random_max {
                self.reclaim();
            }
            let block = self.erased();
            self.random.push_back(block);
            block
        });
        self.put(block, None, stored);
    }

    /// Begins a sequential log block with the first page of a logical block.
    fn begin(&mut self, logical: u32, stored: Stored) {
        if let Some(at) = self.sequential.iter().position(|log| log.logical == logical)
            && let Some(log) = self.sequential.remove(at)
        {
            self.finish(log);
        }
        while self.sequential.len() >= self.sequential_max {
            let Some(log) = self.sequential.pop_front() else { break };
            self.finish(log);
        }
        let block = self.erased();
        self.put(block, None, stored);
        self.sequential.push_back(Sequential { logical, block });
    }

    /// Returns the sequential log block that accepts the page as its next one.
    fn continues(&self, page: u32) -> Option<usize> {
        let (geometry, logical) = (self.nand.geometry(), self.nand.geometry().block_of(page));
        let at = self.sequential.iter().position(|log| log.logical == logical)?;
        let next = self.nand.next_page(self.sequential[at].block)?;
        (next % geometry.pages_per_block() == page % geometry.pages_per_block()).then_some(at)
    }

    /// Checks invariants that the counters do not show: for tests.
    ///
    /// # Panics
    /// If live pages and map differ, or a data block holds a foreign page.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let geometry = self.nand.geometry();
        let mut live = vec![0; self.live.len()];
        for at in self.newest.iter().filter(|at| **at != NONE) {
            live[usize_from_u32(geometry.block_of(*at))] += 1;
        }
        assert_eq!(live, self.live);
        for (logical, block) in (0..).zip(&self.data).filter(|(_, block)| **block != NONE) {
            for (at, stored) in self.nand.programmed(*block) {
                assert_eq!(geometry.block_of(stored.page), logical);
                assert_eq!(stored.page % geometry.pages_per_block(), at % geometry.pages_per_block());
            }
        }
        let data = self.data.iter().filter(|block| **block != NONE).count();
        let used = data + self.sequential.len() + self.random.len();
        assert_eq!(used + usize_from_u32(self.pool.len()), self.live.len(), "no block is lost");
    }
}

impl Ftl for Hybrid {
    fn pages(&self) -> u32 {
        u32::try_from(self.newest.len()).unwrap_or(NONE)
    }

    fn write(&mut self, page: u32, tag: u32) {
        let (len, stored) = (self.nand.geometry().pages_per_block(), Stored { page, tag });
        if page.is_multiple_of(len) {
            self.begin(page / len, stored);
        } else if let Some(at) = self.continues(page) {
            let log = self.sequential[at];
            self.put(log.block, None, stored);
            if self.nand.next_page(log.block).is_none() {
                self.sequential.remove(at);
                self.finish(log);
            }
        } else {
            self.write_random(stored);
        }
        self.counts.host_writes += 1;
    }

    fn read(&mut self, page: u32) -> Option<u32> {
        let at = self.newest[usize_from_u32(page)];
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
