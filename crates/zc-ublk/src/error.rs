//! What can go wrong with a device, in sentences that a user can act on.

use std::io;

use zc_core::ErrorKind;

/// A failure of the control side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UblkError {
    /// This machine cannot have ublk devices; the sentence says what is missing and what helps.
    #[error("{0}")]
    Unavailable(String),
    /// The kernel refused a command.
    #[error("cannot {what} {place}: {}", zc_io::name_errnos(&.source.to_string()))]
    Command {
        /// The attempt.
        what: &'static str,
        /// The device.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel did not end a command in time.
    #[error(
        "the kernel did not {what} {place} within {ms} ms; \"dmesg\" may tell why, and ublk may hang until a reboot"
    )]
    TimedOut {
        /// The attempt.
        what: &'static str,
        /// The device.
        place: String,
        /// The time it had.
        ms: u64,
    },
    /// An earlier command hangs in the kernel: another would hang, too.
    #[error(
        "an earlier ublk command hangs in the kernel; nothing more is asked of it until zcached is restarted"
    )]
    Stuck,
    /// What was asked for is out of bounds.
    #[error("{0}")]
    Invalid(String),
    /// A file of the registration or of /proc.
    #[error("cannot {what} {place}: {}", zc_io::name_errnos(&.source.to_string()))]
    File {
        /// The attempt.
        what: &'static str,
        /// The path.
        place: String,
        /// Why.
        source: io::Error,
    },
}

impl UblkError {
    /// What to do about it in the program.
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
