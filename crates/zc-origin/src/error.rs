//! Errors of origins.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use zc_core::ErrorKind;

/// Class of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestClass {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Trims.
    Trim,
    /// Writes of zeros.
    Zero,
}

impl RequestClass {
    const fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::Zero => "zero",
        }
    }
}

/// Failed request: operation, place, cause.
#[derive(Debug)]
pub struct OriginError {
    kind: ErrorKind,
    class: RequestClass,
    path: PathBuf,
    offset: u64,
    len: u64,
    source: Option<io::Error>,
}

impl OriginError {
    pub(crate) fn new(kind: ErrorKind, class: RequestClass, path: &Path, offset: u64, len: u64) -> Self {
        Self { kind, class, path: path.to_owned(), offset, len, source: None }
    }

    pub(crate) fn with_source(mut self, source: io::Error) -> Self {
        self.source = Some(source);
        self
    }

    /// Returns the kind of failure, which decides the reaction.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, class, path, offset, len, .. } = self;
        write!(f, "cannot {} origin {}", class.verb(), path.display())?;
        if *class != RequestClass::Flush {
            write!(f, " ({len} bytes at byte {offset})")?;
        }
        write!(f, ": {kind}")
    }
}

impl std::error::Error for OriginError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_and_where() {
        let path = Path::new("/srv/disk.img");
        let error = OriginError::new(ErrorKind::Io, RequestClass::Write, path, 512, 1024);
        assert_eq!(
            error.to_string(),
            "cannot write origin /srv/disk.img (1024 bytes at byte 512): I/O error"
        );
        let error = OriginError::new(ErrorKind::NoSpace, RequestClass::Flush, path, 0, 0);
        assert_eq!(error.to_string(), "cannot flush origin /srv/disk.img: no space left on the device");
    }
}
