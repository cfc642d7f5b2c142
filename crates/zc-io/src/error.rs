//! Errors of opening and managing files and devices; results of ring operations are plain [`std::io::Error`]s.

use std::fmt;
use std::io;

use zc_core::ErrorKind;

/// Failed operation with its place and cause.
#[derive(Debug)]
pub struct IoError {
    kind: ErrorKind,
    operation: &'static str,
    place: String,
    reason: Option<String>,
    source: Option<io::Error>,
    /// Another program holds it.
    in_use: bool,
}

impl IoError {
    /// Creates an error that no system call reported.
    pub fn new(
        kind: ErrorKind,
        operation: &'static str,
        place: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            operation,
            place: place.into(),
            reason: Some(reason.into()),
            source: None,
            in_use: false,
        }
    }

    pub(crate) fn from_io(operation: &'static str, place: impl Into<String>, source: io::Error) -> Self {
        Self {
            kind: kind_of(&source),
            operation,
            place: place.into(),
            reason: None,
            source: Some(source),
            in_use: false,
        }
    }

    pub(crate) fn in_use(
        operation: &'static str,
        place: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self { in_use: true, ..Self::new(ErrorKind::Invalid, operation, place, reason) }
    }

    pub(crate) fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Returns `true` if another program holds it, which may release it.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.in_use || self.source.as_ref().is_some_and(|source| source.kind() == io::ErrorKind::ResourceBusy)
    }

    /// Returns the kind of failure, which decides the reaction.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.operation, self.place)?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// Returns the kind of an error of a system call or ring operation.
#[must_use]
pub fn kind_of(error: &io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::NoSpace,
        Some(libc::EINVAL) => ErrorKind::Invalid,
        Some(libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF) => ErrorKind::ReadOnly,
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY) => ErrorKind::Unsupported,
        Some(libc::ECANCELED) => ErrorKind::Shutdown,
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => ErrorKind::Limit,
        _ => ErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn the_text_names_operation_place_and_reason_and_leaves_the_source_to_the_chain() {
        let error = IoError::from_io("open", "/dev/x", io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(error.to_string(), "cannot open /dev/x");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.source().is_some_and(|source| source.to_string().contains("No space")));
        let error = error.because("it is full");
        assert_eq!(error.to_string(), "cannot open /dev/x: it is full");
    }

    #[test]
    fn an_error_without_errno_is_an_io_error() {
        assert_eq!(kind_of(&io::ErrorKind::UnexpectedEof.into()), ErrorKind::Io);
    }
}
