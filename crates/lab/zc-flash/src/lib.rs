//! A model of the SSD below the cache: what a stream of page writes costs in programs, erasures and lifetime.
//!
//! Job: flash as it is (pages programmed once per erasure, erased in blocks), and two translation layers over it.
//!
//! - [`Geometry`], [`Latencies`], [`Nand`]: the chips.
//! - [`PageMapped`]: a map entry per page, greedy garbage collection. [`Hybrid`]: data blocks mapped as a whole, and
//!   log blocks for what does not fit, split into sequential and random ones. Both behind [`Ftl`].
//! - [`nitro`]: caches of WEUs and of extents on an SSD, what they cost it, and where to reduce.
//! - [`caftl`]: an SSD that compresses in hardware, and knows when not to.
//! - [`packing`]: compression inside the SSD, and how compressed pages are laid out.
//!
//! Invariants, held by assertions and checked as properties: pages programmed = written by the host + copied; no page
//! is read before it is programmed; a page is programmed once per erasure, pages of a block in ascending order; a read
//! returns what was written last.
//!
//! What came of it: `FLASH.md` beside this crate.
//!
//! It does not hold bytes (a page has a tag of 32 bits), queue requests (times are those of each die, as if
//! its work could always be overlapped with that of the others), or fail.
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

    /// Reads a page: what was written to it last, unless it was trimmed since or never written.
    fn read(&mut self, page: u32) -> Option<u32>;

    /// Tells that a page's contents are not needed any more.
    fn trim(&mut self, page: u32);

    /// What happened so far.
    fn stats(&self) -> Stats;
}

#[cfg(test)]
mod properties_tests;
