//! Errors of starting and running an engine.

pub mod refusal;

use std::io;
use std::path::Path;

use zc_cache::startup::StartError;
use zc_core::ErrorKind;
use zc_format::FormatError;
use zc_io::IoError;

use crate::error::refusal::Refusal;

/// Reason why an engine did not start or did not end well. One sentence that a user can act on; the source has the
/// rest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The configuration or its files do not match. Nothing was changed.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// Volumes that cannot be served as things stand, by name, and why. Others can. Nothing was changed.
    #[error("{}", reasons(.0))]
    Unservable(Vec<(String, EngineError)>),
    /// Another program has it.
    #[error("{0}")]
    InUse(String),
    /// The cache device is not there, or cannot be read. Nothing was changed.
    #[error("{why}")]
    CacheMissing {
        /// Missing item.
        why: String,
    },
    /// The device in the place of the cache is unusable: corrupt, truncated, or on a read-only file system. Nothing
    /// was changed.
    #[error("{why}")]
    CacheUnusable {
        /// Fault.
        why: String,
    },
    /// A device, file or socket failed.
    #[error("{what}{}", reason(.source))]
    Io {
        /// Attempted operation, with its place.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// A file or device could not be opened or managed.
    #[error("{}{}", .0, reason_of(.0))]
    File(#[from] IoError),
    /// The operation hangs, and so does its caller, until a remote server or device responds.
    #[error("{place} does not answer")]
    NoAnswer {
        /// Hung place.
        place: String,
    },
    /// The data plane ended on its own.
    #[error("the data plane ended unexpectedly: {0}")]
    DataPlane(String),
}

fn reasons(volumes: &[(String, EngineError)]) -> String {
    volumes.iter().map(|(_, error)| error.to_string()).collect::<Vec<_>>().join("; ")
}

fn reason(source: &io::Error) -> String {
    format!(": {}", zc_io::name_errnos(&source.to_string()))
}

fn reason_of(error: &IoError) -> String {
    std::error::Error::source(error)
        .map(|source| format!(": {}", zc_io::name_errnos(&source.to_string())))
        .unwrap_or_default()
}

impl EngineError {
    /// Wraps a refusal.
    pub fn refused(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }

    /// Wraps an error of the kernel; `what` names operation and place.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }

    /// Wraps an error of opening or reading the cache device or its journal's: an unusable one counts as missing.
    pub fn of_cache_device(error: IoError) -> Self {
        let source = std::error::Error::source(&error);
        let failed = error.kind() == ErrorKind::Io && source.is_some();
        let read_only = source
            .and_then(|source| source.downcast_ref::<io::Error>())
            .is_some_and(|source| source.kind() == io::ErrorKind::ReadOnlyFilesystem);
        let error = Self::File(error);
        match (failed && !error.is_in_use(), read_only) {
            (true, _) => Self::CacheMissing { why: error.to_string() },
            (_, true) => Self::CacheUnusable { why: error.to_string() },
            _ => error,
        }
    }

    /// Wraps an error in the contents of the cache device at `place`.
    pub fn of_cache(place: &Path, error: StartError) -> Self {
        let why = format!("{}: {error}", place.display());
        match error {
            StartError::Device(..) => Self::CacheMissing { why },
            StartError::NotACache
            | StartError::VolumeTable(_)
            | StartError::Truncated { .. }
            | StartError::Format(FormatError::Checksum | FormatError::Field(_) | FormatError::Truncated) => {
                Self::CacheUnusable { why }
            }
            error => Self::refused(Refusal::Cache { place: place.to_owned(), error }),
        }
    }

    /// Wraps the failure to start a thread.
    pub fn thread(what: &str, source: io::Error) -> Self {
        Self::io(format!("cannot start the thread of {what}"), source)
    }

    /// Returns `true` if the configuration is at fault rather than the machine.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Unservable(_) | Self::InUse(_) | Self::CacheUnusable { .. })
    }

    /// Returns `true` if something is in use that may become free.
    pub fn is_in_use(&self) -> bool {
        match self {
            Self::InUse(_) => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            // A lock that is held, or a device that is open exclusively.
            Self::File(error) => error.is_in_use(),
            Self::Refused(_)
            | Self::Unservable(_)
            | Self::CacheMissing { .. }
            | Self::CacheUnusable { .. }
            | Self::NoAnswer { .. }
            | Self::DataPlane(_) => false,
        }
    }

    /// Returns `true` if something does not answer.
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::NoAnswer { .. })
    }
}
