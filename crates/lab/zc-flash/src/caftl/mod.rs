//! CaFTL and BlueZIP: a translation layer that compresses chunks of pages selectively in hardware (Lee, Park, Fleming,
//! Arvind and Kim, "Improving Performance and Lifetime of Solid-State Drives Using Hardware-Accelerated Compression",
//! IEEE Transactions on Consumer Electronics 57(4), 2011).
//!
//! - [`codec`]: BlueZIP's codec, after LZRW3.
//! - [`Layer`]: chunks of four pages of 2 KiB with a header, the chunk table, the filtering table, the read buffer.
//! - [`corpus`]: synthetic data instead of the paper's files.
//! - [`figures`]: Figures 5 to 10.
//!
//! It does not collect garbage. Files are copied to a new device, as in the paper; chunks under garbage
//! collection are in [`crate::packing`].

pub mod codec;
pub mod corpus;
pub mod figures;
mod layer;

pub use layer::{Counts, Layer, Mode};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 2048;
/// Pages of a chunk.
pub const CHUNK_PAGES: usize = 4;
/// Bytes of the header of a chunk that is compressed: the logical addresses of its pages.
pub const HEADER_BYTES: usize = 16;
/// Entries of the dictionary.
pub const DICTIONARY_ENTRIES: u32 = 2048;
