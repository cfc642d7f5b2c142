//! Why a replay ended early.

use zc_trace::TraceError;

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// More devices than keys have room for.
    #[error("the trace names more than {max} devices; split it by device")]
    Devices {
        /// The bound.
        max: u64,
    },
    /// More accesses than Belady's policy can look ahead.
    #[error("the trace has more than {max} accesses; Belady's policy holds all of them in memory")]
    TooLong {
        /// The bound.
        max: usize,
    },
}
