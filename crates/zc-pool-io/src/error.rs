//! Why a pool cannot be opened, made or closed.

use std::path::PathBuf;

use zc_io::IoError;
use zc_pool::PoolError;
use zc_store::seam::StoreError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file or device.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The threads of the pool cannot be started.
    #[error("cannot start a thread of the pool")]
    Thread(#[source] std::io::Error),
    /// What is there is no pool, or cannot be recovered.
    #[error("{} cannot be opened as a store: {error}", .path.display())]
    Refused {
        /// The file or device.
        path: PathBuf,
        /// Why.
        error: StoreError,
    },
    /// The last changes may not be durable.
    #[error("{} cannot make its last changes durable: {error}", .path.display())]
    Flush {
        /// The file or device.
        path: PathBuf,
        /// Why.
        error: PoolError,
    },
    /// The thread of the pool ended by itself; its log says why.
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

    /// Returns `true` if another program has the file or device, and may let it go.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_in_use())
    }
}
