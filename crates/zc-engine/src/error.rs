//! Errors of starting and running an engine.

use std::io;

use zc_io::IoError;

/// Why an engine did not start or did not end well. One sentence that a user can act on; the source has the rest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The configuration or what it names does not fit. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// Somebody else has it.
    #[error("{0}")]
    InUse(String),
    /// A device, file or socket failed.
    #[error("{what}{}", reason(.source))]
    Io {
        /// What was attempted, with its place.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A file or device could not be opened or managed.
    #[error("{}{}", .0, reason_of(.0))]
    File(#[from] IoError),
    /// The data plane ended on its own.
    #[error("the data plane ended unexpectedly: {0}")]
    DataPlane(String),
}

fn reason(source: &io::Error) -> String {
    format!(": {source}")
}

fn reason_of(error: &IoError) -> String {
    std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default()
}

fn is_busy(error: &IoError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::ResourceBusy)
}

impl EngineError {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }

    pub(crate) fn thread(what: &str, source: io::Error) -> Self {
        Self::io(format!("cannot start the thread of {what}"), source)
    }

    /// Whether the configuration is at fault rather than the machine.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::InUse(_))
    }

    /// Whether something is in use that may become free.
    pub(crate) fn is_in_use(&self) -> bool {
        match self {
            Self::InUse(_) => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            // A lock that is held, or a device that is open exclusively.
            Self::File(error) => error.to_string().starts_with("cannot lock ") || is_busy(error),
            Self::Refused(_) | Self::DataPlane(_) => false,
        }
    }
}
