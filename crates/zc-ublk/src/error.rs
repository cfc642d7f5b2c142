//! Errors of devices, in sentences that a user can act on.

use std::io;

use zc_core::ErrorKind;

/// A failure of the control side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UblkError {
    /// This machine cannot have ublk devices; the sentence has cause and remedy.
    #[error("{0}")]
    Unavailable(String),
    /// The kernel refused a command.
    #[error("cannot {what} {place}: {}", zc_io::name_errnos(&.source.to_string()))]
    Command {
        /// Attempted operation.
        what: &'static str,
        /// The device.
        place: String,
        /// Cause.
        source: io::Error,
    },
    /// A command timed out.
    #[error(
        "the kernel did not {what} {place} within {ms} ms; see \"dmesg\" for the cause; ublk may hang until a reboot"
    )]
    TimedOut {
        /// Attempted operation.
        what: &'static str,
        /// The device.
        place: String,
        /// Time-out in milliseconds.
        ms: u64,
    },
    /// An earlier command hangs in the kernel: another would hang, too.
    #[error(
        "an earlier ublk command hangs in the kernel; zcached sends no further commands until it is restarted"
    )]
    Stuck,
    /// Options are out of bounds.
    #[error("{0}")]
    Invalid(String),
    /// A file of the registration or of /proc.
    #[error("cannot {what} {place}: {}", zc_io::name_errnos(&.source.to_string()))]
    File {
        /// Attempted operation.
        what: &'static str,
        /// The path.
        place: String,
        /// Cause.
        source: io::Error,
    },
}

impl UblkError {
    /// Returns the kind of failure, which decides the reaction.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unavailable(_) => ErrorKind::Unsupported,
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::Command { source, .. } | Self::File { source, .. } => zc_io::kind_of(source),
            Self::TimedOut { .. } | Self::Stuck => ErrorKind::Io,
        }
    }

    /// The errno of a refused command.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Command { source, .. } | Self::File { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
