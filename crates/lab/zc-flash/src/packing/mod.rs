//! Layouts of compressed pages in flash pages inside an SSD ("Compression and SSD: Where and How?", Zuck, Toledo,
//! Sotnikov and Harnik, INFLOW 2014, section 3).
//!
//! - *page mapping*: no compression.
//! - *chunks*: 4 or 8 consecutively written pages are compressed together (CaFTL).
//! - *bin packing*: pages are compressed one by one and gathered in page-sized bins, first-fit or best-fit; if none
//!   has space, the fullest is written.
//! - *re-ordering*: before that, all bins are repacked by size.
//! - *compaction*: pages follow each other without gaps, and may span two flash pages.
//!
//! Sizes come from the caller: a page of [`PAGE_BYTES`] has a compressed size, and a chunk takes the sum of its pages,
//! less the gain of joint compression.
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

/// Choice of a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The first that fits.
    First,
    /// The one with the least space left.
    Best,
}

/// A layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// No compression.
    PageMapping,
    /// This many pages compressed together.
    Chunk(u32),
    /// With this number of bins.
    BinPacking(u32, Fit),
    /// With this number of bins, repacked before one is written.
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
