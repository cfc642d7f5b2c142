//! How compressed pages are laid out in flash pages inside an SSD ("Compression and SSD: Where and How?", Zuck, Toledo,
//! Sotnikov and Harnik, INFLOW 2014, section 3).
//!
//! - *page mapping*: no compression.
//! - *chunks*: 4 or 8 pages written one after the other are compressed together (CaFTL).
//! - *bin packing*: pages are compressed one by one and gathered in page-sized bins, first-fit or best-fit; when none
//!   has room, the fullest is written.
//! - *re-ordering*: before that, all bins are packed anew, by size.
//! - *compaction*: pages follow each other without gaps, and may lie across two flash pages.
//!
//! Sizes come from the caller: a page of [`PAGE_BYTES`] has a compressed size, and a chunk takes what its pages take
//! together, less what compressing them together gains.
//!
//! It does not hold bytes, or queue requests.

mod device;
pub mod figures;
mod oltp;
mod pack;

pub use device::{Counts, Device};
pub use oltp::{Database, Oltp, Op};

/// Bytes of a page, the host's and the flash's.
pub const PAGE_BYTES: u32 = 4096;

/// How a bin is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The first that has room.
    First,
    /// The one that has least room left.
    Best,
}

/// A layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// No compression.
    PageMapping,
    /// This many pages compressed together.
    Chunk(u32),
    /// So many bins.
    BinPacking(u32, Fit),
    /// So many bins, packed anew before one is written.
    Reordering(u32),
    /// Without gaps.
    Compaction,
}

impl Scheme {
    /// Name of the scheme, after the paper's.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::PageMapping => "page-mapping".to_owned(),
            Self::Chunk(pages) => format!("chunk-{pages}"),
            Self::BinPacking(bins, Fit::First) => format!("bp-{bins}"),
            Self::BinPacking(bins, Fit::Best) => format!("bp-{bins}-best"),
            Self::Reordering(bins) => format!("re-bp-{bins}"),
            Self::Compaction => "compaction".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
