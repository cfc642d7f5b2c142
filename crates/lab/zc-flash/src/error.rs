//! Errors in the parameters of a flash device.

/// A device that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A dimension is zero, or there are too many pages.
    #[error(
        "flash with {chips} chips of {planes} planes of {blocks} blocks of {pages} pages: each must be at least 1, \
         and all pages together at most {max}"
    )]
    Dimensions {
        /// Chips.
        chips: u32,
        /// Planes per chip.
        planes: u32,
        /// Blocks per plane.
        blocks: u32,
        /// Pages per block.
        pages: u32,
        /// Most pages.
        max: u64,
    },
    /// The translation layer needs more blocks for itself.
    #[error(
        "{reserved} of {blocks} blocks are set aside, the translation layer needs {needed}; set more aside"
    )]
    Reserve {
        /// Blocks of the device.
        blocks: u32,
        /// Blocks not exposed.
        reserved: u32,
        /// Blocks it works with.
        needed: u32,
    },
}
