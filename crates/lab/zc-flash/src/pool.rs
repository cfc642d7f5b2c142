//! Erased blocks, the least worn first: dynamic wear levelling.
//!
//! Invariant: a block is in the pool at most once, with its erasures at the time of insertion.

use std::collections::BTreeSet;

use zc_core::{u64_from_usize, usize_from_u32};

use crate::nand::Nand;

/// Free blocks of each lane.
#[derive(Debug)]
pub(crate) struct Pool {
    lanes: Vec<BTreeSet<(u32, u32)>>,
    len: u32,
}

impl Pool {
    /// All blocks of new flash.
    pub(crate) fn all(nand: &Nand) -> Self {
        let geometry = nand.geometry();
        let mut pool = Self { lanes: vec![BTreeSet::new(); usize_from_u32(geometry.lanes())], len: 0 };
        (0..geometry.blocks()).for_each(|block| pool.put(nand, block));
        pool
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn put(&mut self, nand: &Nand, block: u32) {
        let lane = usize_from_u32(nand.geometry().lane_of(block));
        assert!(self.lanes[lane].insert((nand.erasures(block), block)), "block {block} is freed twice");
        self.len += 1;
    }

    /// The least worn block of the lane; if it has none, of the one that has most.
    pub(crate) fn take(&mut self, lane: u32) -> Option<u32> {
        let own = usize_from_u32(lane);
        let most = (0..self.lanes.len()).max_by_key(|lane| (self.lanes[*lane].len(), usize::MAX - lane))?;
        let from = if self.lanes[own].is_empty() { most } else { own };
        let (_, block) = self.lanes[from].pop_first()?;
        self.len -= 1;
        Some(block)
    }

    /// The lane with most free blocks, if this one has fewer than four fifths of that ("Compression and SSD: Where and
    /// How?", section 3.2: chips differ by no more than 20 %).
    pub(crate) fn fair(&self, lane: u32) -> u32 {
        let own = u64_from_usize(self.lanes[usize_from_u32(lane)].len());
        let mut best = (own * 5, lane);
        for (other, free) in (0..).zip(&self.lanes) {
            let theirs = u64_from_usize(free.len()) * 4;
            if theirs > best.0 {
                best = (theirs, other);
            }
        }
        best.1
    }
}
