//! Errors of opening, making or closing a pool.

use std::path::PathBuf;

use zc_io::IoError;
use zc_pool::PoolError;
use zc_store::seam::StoreError;

/// Cause of the failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// File or device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The threads of the pool cannot be started.
    #[error("cannot start a thread of the pool")]
    Thread(#[source] std::io::Error),
    /// The device holds no pool, or one that cannot be recovered.
    #[error("{} cannot be opened as a store: {error}", .path.display())]
    Refused {
        /// The file or device.
        path: PathBuf,
        /// Cause.
        error: StoreError,
    },
    /// The last changes may not be durable.
    #[error("{} cannot make its last changes durable: {error}", .path.display())]
    Flush {
        /// The file or device.
        path: PathBuf,
        /// Cause.
        error: PoolError,
    },
    /// The thread of the pool ended unexpectedly; its log has the reason.
    #[error("the thread of the store {} has ended", .path.display())]
    Gone {
        /// The file or device.
        path: PathBuf,
    },
}

impl OpenError {
    /// Returns `true` if the device lost a part of the log that it had confirmed. [`zc_store::Config::accept_loss`]
    /// opens the pool.
    #[must_use]
    pub const fn is_log_lost(&self) -> bool {
        matches!(self, Self::Refused { error: StoreError::LogLost, .. })
    }

    /// Returns `true` if another program holds the file or device, and may release it.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_in_use())
    }
}
