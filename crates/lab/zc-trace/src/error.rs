//! Errors of reading a trace.

use std::io;
use std::path::PathBuf;

/// Reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open the trace {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Reading or decompressing failed.
    #[error("cannot read the trace on from line or record {place}")]
    Read {
        /// Lines or records read before.
        place: u64,
        /// Cause.
        source: io::Error,
    },
    /// The format cannot be detected from the first bytes.
    #[error("cannot tell the format of the trace; name it: {known}")]
    Unknown {
        /// Names of formats.
        known: String,
    },
    /// A format name that is not known.
    #[error("there is no trace format \"{name}\"; there are {known}")]
    NoSuchFormat {
        /// Requested name.
        name: String,
        /// Names of formats.
        known: String,
    },
    /// An archive holds several traces, or not the one that was named.
    #[error("the trace is a tar archive; name one of its members after a colon: {members}")]
    Archive {
        /// Members.
        members: String,
    },
    /// The beginning of a recording is not one.
    #[error("cannot read the recording: {why}")]
    Recording {
        /// Reason.
        why: &'static str,
    },
    /// A bad line, when none is tolerated.
    #[error("line {line}: {why}")]
    BadLine {
        /// Its number, from 1.
        line: u64,
        /// Reason.
        why: &'static str,
    },
    /// No request is of the chosen device.
    #[error("no request is of device {device}: {others} are of others, which `zcsim info` lists")]
    NoSuchDevice {
        /// The device that was chosen.
        device: String,
        /// Requests of other devices.
        others: u64,
    },
    /// A template that is too large.
    #[error("the trace is too large for a template: more than {max} {what}")]
    TooLarge {
        /// Subject.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// A template without a single read or write.
    #[error("the trace has no reads or writes with fingerprints to make contents from")]
    NoContents,
    /// Traces that do not fit one volume side by side.
    #[error("the traces together reach farther than a volume can: beyond 4 EiB")]
    OutOfRange,
    /// A database of a size that there is none of.
    #[error("a database has {} to {} MiB, not {bytes} bytes", min >> 20, max >> 20)]
    Database {
        /// Requested size.
        bytes: u64,
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A database cannot be made.
    #[error("cannot make the database")]
    Generate {
        /// Cause.
        source: io::Error,
    },
}
