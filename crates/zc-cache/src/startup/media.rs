//! Access of the start to the cache device, and its errors.

use zc_core::{ErrorKind, JournalSeq, limits};
use zc_format::FormatError;

pub(super) const BLOCK_BYTES: u64 = limits::BLOCK_BYTES as u64;

/// A cache device, for metadata at start and stop; blocking. Offsets from [`zc_format::JOURNAL_DEVICE`] on are places on
/// the journal device, if the cache has one; a flush is of both.
pub trait Media {
    /// Size of the device in bytes.
    fn len_bytes(&self) -> u64;
    /// Fills `buf` from `offset_bytes`.
    ///
    /// # Errors
    /// The error of the device.
    fn read(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), ErrorKind>;
    /// Writes all of `data` at `offset_bytes`.
    ///
    /// # Errors
    /// The error of the device.
    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), ErrorKind>;
    /// Makes everything written durable.
    ///
    /// # Errors
    /// The error of the device.
    fn flush(&mut self) -> Result<(), ErrorKind>;
}

/// Reason that a cache device could not be formatted, opened or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The device failed.
    #[error("the cache device failed while its metadata was {0}: {1}")]
    Device(&'static str, ErrorKind),
    /// There is no cache.
    #[error("there is no zcached cache on the device, or all copies of its superblock are damaged")]
    NotACache,
    /// There is one, but it cannot be used.
    #[error("the cache cannot be opened: {0}")]
    Format(FormatError),
    /// The cache does not know which volumes are cached.
    #[error(
        "both copies of the cache's volume table are damaged ({0}), so zcached does not know what it holds of which volume; \
         `zcctl check` tells what else is, `zcctl format --force` makes a new cache and refuses if dirty data is lost by it"
    )]
    VolumeTable(FormatError),
    /// The journal device is another cache's.
    #[error("the journal device holds the journal of another cache, or of one that was here before")]
    ForeignJournal,
    /// The device is smaller than the cache's geometry.
    #[error("the device has {have_bytes} bytes, the cache on it needs {need_bytes}: it was truncated")]
    Truncated {
        /// Size of the device.
        have_bytes: u64,
        /// Size that the cache was made for.
        need_bytes: u64,
    },
}

/// Reason that mappings are not trusted at a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DistrustReason {
    /// The operator requested a cold start.
    #[error("a cold start was asked for")]
    Cold,
    /// No checkpoint is whole.
    #[error("no checkpoint is complete and valid")]
    Checkpoint,
    /// The journal continues another checkpoint than the newest that was found, or has run past it.
    #[error("the checkpoint that the journal goes on from was lost")]
    OldCheckpoint,
    /// No copy of the region map is valid.
    #[error("no copy of the region map is valid")]
    RegionMap,
    /// One copy of the region map is damaged; it may have been the newer one.
    #[error("one copy of the region map is damaged or was torn by a power cut")]
    DamagedRegionMap,
    /// A newer region map is mentioned than was found.
    #[error("region map {mentioned} is mentioned, the newest found is {found}")]
    OldRegionMap {
        /// The newest that journal or checkpoint mention.
        mentioned: u64,
        /// The newest found.
        found: u64,
    },
    /// Journal blocks are missing.
    #[error("the journal ends before block {next}, block {required} is required")]
    Journal {
        /// First block that could not be replayed.
        next: JournalSeq,
        /// A block known to have been durable.
        required: JournalSeq,
    },
    /// The last session distrusted them, and was cut off before all its invalidations were durable.
    #[error("the last session began without trust and was cut off")]
    CutOff,
}
