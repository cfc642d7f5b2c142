//! Errors of figures.

use std::path::PathBuf;

use zc_replay::ReplayError;
use zc_trace::TraceError;

/// Error that prevented a figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FigureError {
    /// No figure has this name.
    #[error("no figure is called \"{id}\"; there are {known}")]
    NoFigure {
        /// The name.
        id: String,
        /// All names.
        known: String,
    },
    /// A trace cannot be read.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: TraceError,
    },
    /// A replay ended early.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A configuration of a figure is not one.
    #[error(transparent)]
    Config(#[from] zc_config::ConfigError),
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A folder contains none of the expected files.
    #[error("{} has no file whose name begins with \"{prefix}\"", path.display())]
    NoTrace {
        /// The folder.
        path: PathBuf,
        /// Prefix of the file names.
        prefix: String,
    },
    /// Files are there, and nothing is in them that can be replayed.
    #[error("{}: there is no request in {prefix}*, but {bad} bad line{}", path.display(), if *bad == 1 { "" } else { "s" })]
    EmptyTrace {
        /// The folder.
        path: PathBuf,
        /// Prefix of the file names.
        prefix: String,
        /// Lines that are none of the format.
        bad: u64,
    },
    /// A simulator failed.
    #[error("{what}")]
    Simulator {
        /// Its error message.
        what: String,
    },
}
