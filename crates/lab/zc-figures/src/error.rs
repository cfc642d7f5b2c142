//! Why a figure could not be made.

use std::path::PathBuf;

use zc_replay::ReplayError;
use zc_trace::TraceError;

/// Why a figure could not be made.
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
        /// Why.
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
        /// Why.
        source: std::io::Error,
    },
    /// A folder has none of the files that are looked for.
    #[error("{} has no file whose name begins with \"{prefix}\"", path.display())]
    NoTrace {
        /// The folder.
        path: PathBuf,
        /// What the names begin with.
        prefix: String,
    },
    /// Files are there, and nothing is in them that can be replayed.
    #[error("{}: there is no request in {prefix}*, but {bad} bad line{}", path.display(), if *bad == 1 { "" } else { "s" })]
    EmptyTrace {
        /// The folder.
        path: PathBuf,
        /// What the names begin with.
        prefix: String,
        /// Lines that are none of the format.
        bad: u64,
    },
    /// A simulator gave up.
    #[error("{what}")]
    Simulator {
        /// What it says.
        what: String,
    },
}
