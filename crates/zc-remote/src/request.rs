//! Requests of the engine and their progress.

use bytes::Bytes;
use zc_core::{ErrorKind, SECTOR_BYTES, u64_from_usize};
use zc_nbd::ErrorCode;
use zc_nbd::client::RemoteError;
use zc_nbd::proto::STATE_ZERO;

use crate::owed::Change;

/// Number of a request; later ones have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Number of a connection, below [`crate::Settings::connections`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub usize);

impl ConnId {
    /// The connection that is made first.
    pub const FIRST: Self = Self(0);
}

/// A request to the export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Read bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Count of bytes.
        len_bytes: u64,
    },
    /// Write bytes.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes, held until they are durable.
        data: Bytes,
        /// Durable before the answer.
        fua: bool,
    },
    /// Return the allocation and the residency of a range, as far as the server reports them. It does not wait for the
    /// end of an outage.
    Status {
        /// First byte.
        offset: u64,
        /// Count of bytes.
        len_bytes: u64,
    },
    /// Make every answered change durable.
    Flush,
    /// The range is not needed any more.
    Trim {
        /// First byte.
        offset: u64,
        /// Count of bytes.
        len_bytes: u64,
        /// Durable before the answer.
        fua: bool,
    },
    /// The range is to read as zeros.
    Zero {
        /// First byte.
        offset: u64,
        /// Count of bytes.
        len_bytes: u64,
        /// The server is to keep the space.
        no_hole: bool,
        /// Durable before the answer.
        fua: bool,
    },
}

impl Request {
    /// First byte and the byte behind the last, `None` if that overflows or is not made of sectors.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let (offset, len) = match self {
            Self::Read { offset, len_bytes }
            | Self::Status { offset, len_bytes }
            | Self::Trim { offset, len_bytes, .. }
            | Self::Zero { offset, len_bytes, .. } => (*offset, *len_bytes),
            Self::Write { offset, data, .. } => (*offset, u64_from_usize(data.len())),
            Self::Flush => (0, 0),
        };
        let sector = u64::from(SECTOR_BYTES);
        let is_whole = offset.is_multiple_of(sector) && len.is_multiple_of(sector);
        offset.checked_add(len).filter(|_| is_whole).map(|end| (offset, end))
    }

    /// Returns `true` if it changes the export.
    #[must_use]
    pub const fn changes(&self) -> bool {
        !matches!(self, Self::Read { .. } | Self::Status { .. } | Self::Flush)
    }

    /// Returns its change, `None` for requests that change nothing.
    pub(crate) fn change(&self) -> Option<Change> {
        match self {
            Self::Write { data, .. } => Some(Change::Data(data.clone())),
            Self::Trim { .. } => Some(Change::Trim),
            Self::Zero { no_hole, .. } => Some(Change::Zero { no_hole: *no_hole }),
            Self::Read { .. } | Self::Status { .. } | Self::Flush => None,
        }
    }

    pub(crate) const fn fua(&self) -> bool {
        match self {
            Self::Write { fua, .. } | Self::Trim { fua, .. } | Self::Zero { fua, .. } => *fua,
            Self::Read { .. } | Self::Status { .. } | Self::Flush => false,
        }
    }
}

/// A piece of a range, all in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Length in bytes, at least 1.
    pub len_bytes: u64,
    /// State bits of the context (`zc_nbd::proto`). Bits that are not known are cleared.
    pub flags: u32,
}

impl Run {
    /// Returns `true` if a run of `base:allocation` reads as zeros.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.flags & STATE_ZERO != 0
    }
}

/// States of a range, from its first byte on. A list may end before the range does: the rest is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Allocation (`base:allocation`).
    pub allocation: Vec<Run>,
    /// Residency, if the server is a zcached.
    pub residency: Vec<Run>,
}

/// Reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// For the client.
    pub kind: ErrorKind,
    /// For the log; fit for a terminal.
    pub text: String,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn of_server(error: &RemoteError) -> Self {
        let kind = match error.code {
            ErrorCode::Perm => ErrorKind::ReadOnly,
            ErrorCode::NoSpc => ErrorKind::NoSpace,
            ErrorCode::Inval | ErrorCode::Overflow => ErrorKind::Invalid,
            ErrorCode::NotSup => ErrorKind::Unsupported,
            ErrorCode::Io | ErrorCode::NoMem | ErrorCode::Shutdown => ErrorKind::Io,
        };
        Self::new(kind, error.to_string().escape_debug().to_string())
    }
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// First byte that was not sent on this connection.
    pub(crate) next: u64,
    /// Parts without an answer.
    pub(crate) parts: u32,
    /// A flush follows the parts, or is one of them.
    pub(crate) flush: FlushOf,
    pub(crate) failure: Option<Failure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushOf {
    None,
    /// To be sent when the parts are answered.
    Due,
    Sent,
}

impl Job {
    pub(crate) const fn new(request: Request, start: u64, end: u64) -> Self {
        Self { request, start, end, next: start, parts: 0, flush: FlushOf::None, failure: None }
    }

    /// Begins again on another connection.
    pub(crate) const fn restart(&mut self) {
        self.next = self.start;
        self.parts = 0;
        self.flush = FlushOf::None;
    }

    pub(crate) const fn is_change(&self) -> bool {
        self.request.changes()
    }
}
