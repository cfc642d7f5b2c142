//! Errors of a replay.

use zc_config::manager::TooLittleRam;
use zc_format::GeometryError;
use zc_trace::TraceError;

/// Error that ended a replay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// More devices than keys can number.
    #[error("the trace names more than {max} devices; split it by device")]
    Devices {
        /// The bound.
        max: u64,
    },
    /// More accesses than Belady's policy can process.
    #[error("the trace has more than {max} accesses; Belady's policy holds all of them in memory")]
    TooLong {
        /// The bound.
        max: usize,
    },
    /// More requests than are held in memory.
    #[error("the trace has more than {max} requests, all of which are held in memory; split it")]
    Requests {
        /// The bound.
        max: usize,
    },
    /// More contents than can be numbered.
    #[error("the trace has more than {max} different blocks; split it")]
    Contents {
        /// The bound.
        max: u32,
    },
    /// The configuration contains no size of the cache.
    #[error("the configuration has no cache.size, and there is no device to take it from")]
    NoSize,
    /// The cache cannot have that size.
    #[error("a cache of {device_bytes} bytes cannot be laid out: {source}")]
    Geometry {
        /// Bytes of the device.
        device_bytes: u64,
        /// Cause.
        source: GeometryError,
    },
    /// There is no SSD of that size in the model.
    #[error("an SSD for a cache of {device_bytes} bytes: {source}")]
    Ssd {
        /// Bytes of the device.
        device_bytes: u64,
        /// Cause.
        source: zc_flash::GeometryError,
    },
    /// The cache does not fit into its RAM.
    #[error(transparent)]
    Ram(#[from] TooLittleRam),
    /// The store behind the cache failed.
    #[error("the store behind the cache: {0}")]
    Store(#[from] zc_drive::pool::DriveError),
    /// The cache manager did something that it never should without a fault.
    #[error("the cache manager, after {requests} requests: {what}")]
    Manager {
        /// Requests so far.
        requests: u64,
        /// The failure.
        what: String,
    },
}
