//! A model of the SSD below the cache: what a stream of page writes costs in programs, erasures and lifetime.
//!
//! Job: flash (pages programmed once per erasure, erased in blocks), and two translation layers over it.
//!
//! - [`Geometry`], [`Latencies`], [`Nand`]: the chips.
//! - [`PageMapped`]: a map entry per page, greedy garbage collection. [`Hybrid`]: block-mapped data blocks, and log
//!   blocks for overwrites, split into sequential and random ones. Both behind [`Ftl`].
//! - [`nitro`]: caches of units and of extents on an SSD, their cost for it, and the best place for reduction.
//! - [`caftl`]: an SSD that compresses selectively in hardware.
//! - [`packing`]: compression inside the SSD, and the layout of compressed pages.
//!
//! Invariants, asserted and checked as properties: pages programmed = written by the host + copied; no page is read
//! before it is programmed; a page is programmed once per erasure, pages of a block in ascending order; a read returns
//! the last write.
//!
//! Results: `FLASH.md` beside this crate.
//!
//! It does not hold bytes (a page has a tag of 32 bits), queue requests (times are those of each die, as if its work
//! always overlapped with that of the others), or fail.
#![forbid(unsafe_code)]

pub mod caftl;
mod error;
mod geometry;
mod hybrid;
mod lru;
mod nand;
pub mod nitro;
pub mod packing;
mod page_mapped;
mod pool;
mod stats;

pub use error::GeometryError;
pub use geometry::{Geometry, Latencies};
pub use hybrid::{Hybrid, Logs};
pub use nand::{Nand, Stored};
pub use page_mapped::PageMapped;
pub use stats::Stats;

/// A translation layer: logical pages that can be overwritten, on flash that cannot.
pub trait Ftl: std::fmt::Debug {
    /// Logical pages that the host may use.
    fn pages(&self) -> u32;

    /// Writes a page.
    ///
    /// # Panics
    /// If there is no such page.
    fn write(&mut self, page: u32, tag: u32);

    /// Returns the last data written to a page, unless it was trimmed since or never written.
    fn read(&mut self, page: u32) -> Option<u32>;

    /// Invalidates a page's contents.
    fn trim(&mut self, page: u32);

    /// Returns the statistics so far.
    fn stats(&self) -> Stats;
}

#[cfg(test)]
mod properties_tests;
