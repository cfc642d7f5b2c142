//! An SSD that compresses: a map from pages to the positions of their compressed bytes, over packed flash pages.
//!
//! Garbage is collected block by block, the one with the fewest live bytes first; live data is read, decompressed if
//! it lies in a chunk, and placed again, through a separate buffer. The buffers are NV-RAM: data in them is safe.
//!
//! Invariants: a page has one newest version, of which each part is in a buffer or in one place on flash; the live
//! count of a block is the bytes of newest versions in it.

use std::collections::BTreeSet;

use zc_core::{u64_from_usize, usize_from_u32};

use super::pack::{Flush, Packer, Piece};
use super::{PAGE_BYTES, Scheme};
use crate::error::GeometryError;
use crate::geometry::{Geometry, Latencies};
use crate::nand::{Nand, Stored};
use crate::pool::Pool;
use crate::stats::Stats;

/// Waits in a buffer, or not on flash.
const NONE: u32 = u32::MAX;
/// Threshold of erased blocks for garbage collection: placing again may temporarily take more pages than it frees.
const FREE_MIN: u32 = 4;

/// Position of a page.
#[derive(Debug, Clone, Copy)]
struct Home {
    /// 0: never written.
    version: u32,
    bytes: u32,
    split: bool,
    parts: [u32; 2],
}

/// Contents of a flash page.
#[derive(Debug, Clone, Default)]
struct Unit {
    pages: u32,
    pieces: Vec<Piece>,
}

/// Counters beyond those of the flash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Statistics of flash and host.
    pub flash: Stats,
    /// Flash pages read for the host.
    pub read_pages: u64,
    /// Flash pages read to collect garbage.
    pub collected_pages: u64,
    /// Bytes decompressed for the host: pages, or whole chunks.
    pub decompressed_bytes: u64,
    /// Bytes decompressed for the host if a chunk is decompressed up to the page that is wanted.
    pub decompressed_to_page_bytes: u64,
    /// Bytes decompressed to collect garbage.
    pub collected_bytes: u64,
}

/// The device.
#[derive(Debug)]
pub struct Device {
    scheme: Scheme,
    nand: Nand,
    pool: Pool,
    homes: Vec<Home>,
    units: Vec<Unit>,
    live: Vec<u64>,
    full: BTreeSet<(u64, u32)>,
    is_full: Vec<bool>,
    /// Buffers of host writes and of relocations.
    packers: [Packer; 2],
    open: [Option<u32>; 2],
    lane: u32,
    absorbs: bool,
    counts: Counts,
}

impl Device {
    /// Creates a device that reserves this share of the exposed flash.
    ///
    /// # Errors
    /// When the reserve is too small.
    pub fn new(
        geometry: Geometry,
        latencies: Latencies,
        over_provisioning_permille: u32,
        scheme: Scheme,
    ) -> Result<Self, GeometryError> {
        let exposed = geometry.exposed_blocks(over_provisioning_permille);
        let (reserved, needed) = (geometry.blocks() - exposed, 2 + FREE_MIN);
        if reserved < needed || exposed == 0 {
            return Err(GeometryError::Reserve { blocks: geometry.blocks(), reserved, needed });
        }
        let home = Home { version: 0, bytes: 0, split: false, parts: [NONE; 2] };
        let nand = Nand::new(geometry, latencies);
        let blocks = usize_from_u32(geometry.blocks());
        Ok(Self {
            scheme,
            pool: Pool::all(&nand),
            homes: vec![home; usize_from_u32(exposed * geometry.pages_per_block())],
            units: vec![Unit::default(); usize_from_u32(geometry.pages())],
            live: vec![0; blocks],
            full: BTreeSet::new(),
            is_full: vec![false; blocks],
            packers: [Packer::new(scheme), Packer::new(scheme)],
            open: [None; 2],
            lane: 0,
            absorbs: true,
            counts: Counts::default(),
            nand,
        })
    }

    /// Makes every write reach flash: the buffer keeps the old version of a page that the host writes again.
    #[must_use]
    pub fn without_absorbing(self) -> Self {
        Self { absorbs: false, ..self }
    }

    /// Pages that the host may use.
    #[must_use]
    pub fn pages(&self) -> u32 {
        u32::try_from(self.homes.len()).unwrap_or(NONE)
    }

    fn count(&mut self, at: u32, bytes: u32, more: bool) {
        let block = self.nand.geometry().block_of(at);
        let live = &mut self.live[usize_from_u32(block)];
        let before = *live;
        *live = if more { before + u64::from(bytes) } else { before - u64::from(bytes) };
        if self.is_full[usize_from_u32(block)] {
            self.full.remove(&(before, block));
            self.full.insert((*live, block));
        }
    }

    /// Returns the bytes of a page's part at a position.
    fn bytes_at(&self, at: u32, page: u32) -> u32 {
        let pieces = &self.units[usize_from_u32(at)].pieces;
        pieces.iter().find(|piece| piece.page == page && self.is_newest(piece)).map_or(0, |piece| piece.bytes)
    }

    fn is_newest(&self, piece: &Piece) -> bool {
        self.homes[usize_from_u32(piece.page)].version == piece.version
    }

    /// The newest version of a page becomes an old one.
    fn supersede(&mut self, page: u32) {
        let home = self.homes[usize_from_u32(page)];
        for at in home.parts.into_iter().filter(|at| *at != NONE) {
            let bytes = self.bytes_at(at, page);
            self.count(at, bytes, false);
        }
        if self.absorbs {
            self.packers.iter_mut().for_each(|packer| packer.forget(page, home.version));
        }
    }

    /// Lays out a page.
    fn put(&mut self, page: u32, bytes: u32, stream: usize) {
        self.supersede(page);
        let version = self.homes[usize_from_u32(page)].version + 1;
        self.homes[usize_from_u32(page)] = Home { version, bytes, split: false, parts: [NONE; 2] };
        let piece = Piece { page, version, bytes, part: 0, split: false };
        if let Some(flush) = self.packers[stream].insert(piece) {
            self.program(flush, stream);
        }
    }

    /// Writes to consecutive pages of the open block of a stream; the rest of a block that is too small stays unused.
    fn program(&mut self, flush: Flush, stream: usize) {
        let len = self.nand.geometry().pages_per_block();
        let room = |block: &u32| self.nand.next_page(*block).is_some_and(|at| at % len + flush.pages <= len);
        let block = self.open[stream].filter(room).unwrap_or_else(|| {
            self.close(stream);
            self.lane = (self.lane + 1) % self.nand.geometry().lanes();
            let Some(block) = self.pool.take(self.lane) else { panic!("no block is erased") };
            self.open[stream] = Some(block);
            block
        });
        let Some(first) = self.nand.next_page(block) else { panic!("block {block} is full") };
        for at in first..first + flush.pages {
            self.nand.program(at, Stored { page: first, tag: 0 });
        }
        self.counts.flash.copies += if stream == 1 { u64::from(flush.pages) } else { 0 };
        let newest: Vec<Piece> = flush.pieces.iter().copied().filter(|piece| self.is_newest(piece)).collect();
        self.units[usize_from_u32(first)] = Unit { pages: flush.pages, pieces: flush.pieces };
        for piece in newest {
            let home = &mut self.homes[usize_from_u32(piece.page)];
            home.parts[usize::from(piece.part)] = first;
            home.split |= piece.split;
            self.count(first, piece.bytes, true);
        }
        if self.nand.next_page(block).is_none() {
            self.close(stream);
        }
    }

    fn close(&mut self, stream: usize) {
        if let Some(block) = self.open[stream].take() {
            self.is_full[usize_from_u32(block)] = true;
            self.full.insert((self.live[usize_from_u32(block)], block));
        }
    }

    /// Relocates the live data of the block with the least of it, and erases the block.
    fn collect(&mut self) {
        while self.pool.len() < FREE_MIN {
            let Some((_, victim)) = self.full.pop_first() else { panic!("no block is full") };
            self.is_full[usize_from_u32(victim)] = false;
            let held: Vec<u32> = self.nand.programmed(victim).map(|(at, _)| at).collect();
            for at in held {
                let unit = std::mem::take(&mut self.units[usize_from_u32(at)]);
                self.rescue(at, unit);
            }
            assert_eq!(self.live[usize_from_u32(victim)], 0, "all that lives in block {victim} was moved");
            self.nand.erase(victim);
            self.pool.put(&self.nand, victim);
        }
    }

    /// Relocates the live data of a unit.
    fn rescue(&mut self, at: u32, unit: Unit) {
        let live: Vec<Piece> = unit.pieces.iter().copied().filter(|piece| self.is_newest(piece)).collect();
        if live.is_empty() {
            return;
        }
        for page in at..at + unit.pages {
            self.nand.read(page);
            self.counts.collected_pages += 1;
        }
        if matches!(self.scheme, Scheme::Chunk(_)) {
            self.counts.collected_bytes += u64_from_usize(unit.pieces.len()) * u64::from(PAGE_BYTES);
        }
        self.units[usize_from_u32(at)] = unit;
        for piece in live {
            let home = self.homes[usize_from_u32(piece.page)];
            for other in home.parts.into_iter().filter(|other| *other != NONE && *other != at) {
                self.nand.read(other);
                self.counts.collected_pages += 1;
            }
            self.put(piece.page, home.bytes, 1);
        }
        self.units[usize_from_u32(at)] = Unit::default();
    }

    /// Writes a page of this compressed size, at most a page.
    ///
    /// # Panics
    /// If the page does not exist.
    pub fn write(&mut self, page: u32, bytes: u32) {
        self.collect();
        self.put(page, bytes.clamp(1, PAGE_BYTES), 0);
        self.counts.flash.host_writes += 1;
    }

    /// Reads a page; returns its compressed size if it was written.
    pub fn read(&mut self, page: u32) -> Option<u32> {
        let home = self.homes[usize_from_u32(page)];
        self.counts.flash.host_reads += 1;
        if home.version == 0 {
            return None;
        }
        let mut position = 1;
        let mut together = 1;
        for at in home.parts.into_iter().filter(|at| *at != NONE) {
            let unit = &self.units[usize_from_u32(at)];
            if matches!(self.scheme, Scheme::Chunk(_)) {
                let found = unit.pieces.iter().position(|piece| piece.page == page && self.is_newest(piece));
                position = u64_from_usize(found.unwrap_or(0)) + 1;
                together = u64_from_usize(unit.pieces.len());
            }
            for read in at..at + unit.pages {
                self.nand.read(read);
                self.counts.read_pages += 1;
            }
        }
        if self.scheme != Scheme::PageMapping {
            self.counts.decompressed_bytes += together * u64::from(PAGE_BYTES);
            self.counts.decompressed_to_page_bytes += position * u64::from(PAGE_BYTES);
        }
        Some(home.bytes)
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Stats { host_writes, host_reads, copies, .. } = self.counts.flash;
        let flash = Stats { host_writes, host_reads, copies, ..Stats::of(&self.nand) };
        Counts { flash, ..self.counts }
    }

    /// Returns the RAM of the map in bytes: 4 for the flash page of each written page; 2 more for the position in it
    /// if pages share one and are not located by their header; a second entry for data across two; and a byte per
    /// flash page for the table of chunks (CaFTL, section III.B).
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        let written = self.homes.iter().filter(|home| home.version > 0);
        let (pages, split) =
            written.fold((0, 0), |(pages, split), home| (pages + 1, split + u64::from(home.split)));
        match self.scheme {
            Scheme::PageMapping => pages * 4,
            Scheme::Chunk(_) => pages * 4 + u64::from(self.nand.geometry().pages()),
            Scheme::BinPacking(..) | Scheme::Reordering(_) => pages * 6,
            Scheme::Compaction => (pages + split) * 6,
        }
    }

    /// Checks invariants that the counters do not show: for tests.
    ///
    /// # Panics
    /// If live bytes and map differ.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut live = vec![0; self.live.len()];
        for (page, home) in (0..).zip(&self.homes) {
            let mut found = 0;
            for at in home.parts.into_iter().filter(|at| *at != NONE) {
                let bytes = self.bytes_at(at, page);
                assert!(bytes > 0, "page {page} is where the map says");
                live[usize_from_u32(self.nand.geometry().block_of(at))] += u64::from(bytes);
                found += bytes;
            }
            let whole = home.parts[0] != NONE && (!home.split || home.parts[1] != NONE);
            let plain = self.scheme == Scheme::PageMapping;
            assert!(!whole || plain || found == home.bytes, "page {page} is all there");
        }
        assert_eq!(live, self.live);
    }
}
