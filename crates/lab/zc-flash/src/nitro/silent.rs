//! An SSD that is a cache: it appends extents to a log of erase blocks and lets the cache drop some under pressure.
//!
//! Invariants: one block is always erased, as a copy target; an extent lies within a block.

use std::collections::BTreeSet;

use zc_core::usize_from_u32;

use super::extents::Store;
use super::{PAGE_BYTES, Settings};
use crate::geometry::{Geometry, Latencies};
use crate::nand::{Nand, Stored};
use crate::pool::Pool;
use crate::stats::Stats;

/// Nowhere.
const NONE: u32 = u32::MAX;

pub(super) struct Silent {
    nand: Nand,
    extent_pages: u32,
    extents_per_block: u32,
    /// First page of each slot.
    places: Vec<u32>,
    /// Extents that live in each block.
    live: Vec<u32>,
    /// Full blocks by live extents.
    full: BTreeSet<(u32, u32)>,
    is_full: Vec<bool>,
    pool: Pool,
    open: Option<u32>,
    counts: Stats,
}

impl Silent {
    pub(super) fn new(geometry: Geometry, settings: &Settings) -> Self {
        let nand = Nand::new(geometry, Latencies::nitro(u64::from(settings.block_bytes)));
        let extent_pages = settings.extent_bytes / PAGE_BYTES;
        let extents_per_block = geometry.pages_per_block() / extent_pages;
        let blocks = usize_from_u32(geometry.blocks());
        Self {
            places: vec![NONE; blocks * usize_from_u32(extents_per_block)],
            live: vec![0; blocks],
            full: BTreeSet::new(),
            is_full: vec![false; blocks],
            pool: Pool::all(&nand),
            open: None,
            counts: Stats::default(),
            nand,
            extent_pages,
            extents_per_block,
        }
    }

    fn count(&mut self, block: u32, more: bool) {
        let at = usize_from_u32(block);
        let before = self.live[at];
        self.live[at] = if more { before + 1 } else { before - 1 };
        if self.is_full[at] {
            self.full.remove(&(before, block));
            self.full.insert((self.live[at], block));
        }
    }

    fn append(&mut self, slot: u32) {
        let open = self.open.or_else(|| self.pool.take(0));
        let Some(block) = open else { panic!("no block is erased") };
        let Some(first) = self.nand.next_page(block) else { panic!("block {block} is open and full") };
        for page in first..first + self.extent_pages {
            self.nand.program(page, Stored { page: slot, tag: 0 });
        }
        self.places[usize_from_u32(slot)] = first;
        self.count(block, true);
        let len = self.nand.geometry().pages_per_block();
        let full = first % len + 2 * self.extent_pages > len;
        self.open = (!full).then_some(block);
        if full {
            self.is_full[usize_from_u32(block)] = true;
            self.full.insert((self.live[usize_from_u32(block)], block));
        }
    }

    /// Copies the live extents of a full block, and erases it.
    fn relocate(&mut self, block: u32) {
        self.is_full[usize_from_u32(block)] = false;
        self.full.remove(&(self.live[usize_from_u32(block)], block));
        let held: Vec<(u32, Stored)> = self.nand.programmed(block).collect();
        for (at, stored) in held {
            if self.places[usize_from_u32(stored.page)] != at {
                continue;
            }
            for page in at..at + self.extent_pages {
                self.nand.read(page);
            }
            self.count(block, false);
            self.append(stored.page);
            self.counts.copies += u64::from(self.extent_pages);
        }
        self.nand.erase(block);
        self.pool.put(&self.nand, block);
    }
}

impl Store for Silent {
    fn slots(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(NONE)
    }

    fn room(&mut self) -> bool {
        while self.open.is_none() && self.pool.len() < 2 {
            match self.full.first().copied() {
                Some((live, block)) if live <= self.extents_per_block / 2 => self.relocate(block),
                _ => return false,
            }
        }
        true
    }

    fn write(&mut self, slot: u32) {
        self.append(slot);
        self.counts.host_writes += u64::from(self.extent_pages);
    }

    fn read(&mut self, slot: u32) {
        let first = self.places[usize_from_u32(slot)];
        for page in first..first + self.extent_pages {
            assert_eq!(self.nand.read(page).page, slot, "what the index names is on the SSD");
        }
        self.counts.host_reads += u64::from(self.extent_pages);
    }

    fn release(&mut self, slot: u32) {
        let first = std::mem::replace(&mut self.places[usize_from_u32(slot)], NONE);
        if first != NONE {
            self.count(self.nand.geometry().block_of(first), false);
            self.counts.trims += u64::from(self.extent_pages);
        }
    }

    fn stats(&self) -> Stats {
        let Stats { host_writes, host_reads, trims, copies, .. } = self.counts;
        Stats { host_writes, host_reads, trims, copies, ..Stats::of(&self.nand) }
    }
}
