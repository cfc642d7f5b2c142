//! Creation of an empty pool on a file or device.

use zc_core::{u64_from_usize, usize_from_u32};
use zc_io::{AlignedBuf, BlockFile, IoError};
use zc_store::config::Shape;
use zc_store::{Config, Superblock, limits};

/// Error of creating a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// The file or device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No space would be left for contents.
    #[error("a store needs at least {least_bytes} bytes, but the device has {bytes}")]
    TooSmall {
        /// Available bytes.
        bytes: u64,
        /// Required bytes.
        least_bytes: u64,
    },
}

/// Creates an empty pool and destroys earlier content. Blocks.
///
/// # Errors
/// [`MakeError`]; nothing was written if it is too small.
pub fn make(file: &BlockFile) -> Result<(), MakeError> {
    let (uuid, nonce) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    let (bytes, segment_bytes) = (file.len_bytes(), limits::SEGMENT_BYTES_DEFAULT);
    let superblock = Superblock::format(*uuid.as_bytes(), bytes, segment_bytes, nonce.as_u64_pair().0);
    let shape = Shape { segment_bytes, segments: superblock.as_ref().map_or(0, |found| found.segments) };
    let config = Config::default();
    let kept = config.reserve_segments(shape) + config.overwrite_segments(shape) + limits::LOG_SEGMENTS;
    let fits = |found: &Superblock| usize_from_u32(found.segments) > kept;
    // One segment for contents, and one for the superblocks.
    let least_bytes = u64_from_usize(kept + 2) * u64::from(segment_bytes);
    let superblock = superblock.filter(fits).ok_or(MakeError::TooSmall { bytes, least_bytes })?;
    for copy in 0..2 {
        let block = AlignedBuf::from(&superblock.encode(copy)[..]);
        file.write_blocking(Superblock::offset_bytes(copy), &block)?;
    }
    file.sync_blocking()?;
    Ok(())
}
