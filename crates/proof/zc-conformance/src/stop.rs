//! Reasons for the early end of a case.
//!
//! Job: distinguish a server's fault from a missing feature and from an unreachable server.

/// Reason for the early end of a case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    /// The server violated the case's requirement.
    #[error("{0}")]
    Fail(String),
    /// The server closed the connection where an answer was due. Some cases allow that; elsewhere it is a failure.
    #[error("the server closed the connection {0}")]
    Closed(String),
    /// The server does not offer the tested feature.
    #[error("{0}")]
    NotApplicable(String),
    /// The server cannot be reached.
    #[error("{0}")]
    Unreachable(String),
}

/// The result of a case.
pub(crate) type Check = Result<(), Stop>;

/// A failure unless `holds`.
pub(crate) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(Stop::Fail(why())) }
}

/// The case does not apply unless `holds`.
pub(crate) fn applies(holds: bool, why: &str) -> Check {
    if holds { Ok(()) } else { Err(Stop::NotApplicable(why.to_owned())) }
}

/// Maps a closed connection to `None`.
pub(crate) fn or_closed<T>(result: Result<T, Stop>) -> Result<Option<T>, Stop> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Closed(_)) => Ok(None),
        Err(other) => Err(other),
    }
}
