//! Arguments of `zcached quickstart`.

use std::path::PathBuf;

/// Cache some of this machine's files, measure, and serve them
#[derive(Debug, clap::Args)]
pub(crate) struct QuickstartArgs {
    /// Directory to make for origins, cache, sockets and configuration
    #[arg(long, value_name = "DIR", default_value = "zcached-quickstart")]
    pub(crate) dir: PathBuf,
    /// Files or directories to store; default is 300 MB of /usr
    ///
    /// They hold at least 16 MiB
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) input: Vec<PathBuf>,
    /// Stop after the report instead of serving
    #[arg(long)]
    pub(crate) exit: bool,
}
