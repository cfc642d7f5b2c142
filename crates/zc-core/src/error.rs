//! Kinds of failures that control flow distinguishes, and their errno at the front ends.

/// Kind of a failure. Few on purpose: control flow depends on the kind, and the text around it informs the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device reported an I/O error.
    #[error("I/O error")]
    Io,
    /// The device or file system has no space left.
    #[error("no space left on the device")]
    NoSpace,
    /// The request lies outside the volume or is malformed.
    #[error("invalid request")]
    Invalid,
    /// The volume does not accept writes.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The operation is not offered by this volume or origin.
    #[error("not supported")]
    Unsupported,
    /// The daemon is stopping.
    #[error("shutting down")]
    Shutdown,
    /// Bytes on media failed verification.
    #[error("verification failed")]
    Corrupt,
    /// A configured bound was reached.
    #[error("limit reached")]
    Limit,
    /// The device did not answer in time.
    #[error("no answer in time")]
    TimedOut,
}

/// A positive Linux errno value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub u32);

impl ErrorKind {
    /// The errno a front end reports for this kind.
    #[must_use]
    pub const fn errno(self) -> Errno {
        Errno(match self {
            Self::Io | Self::Corrupt | Self::TimedOut => 5,
            Self::NoSpace => 28,
            Self::Invalid => 22,
            Self::ReadOnly => 1,
            Self::Unsupported => 95,
            Self::Shutdown => 108,
            Self::Limit => 12,
        })
    }
}
