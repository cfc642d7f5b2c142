//! Arguments of `zcached quickstart`.

use std::path::PathBuf;

/// Try zcached: cache some of this machine's files, measure, and serve them
#[derive(Debug, clap::Args)]
pub(crate) struct QuickstartArgs {
    /// Directory for origins, cache, sockets and configuration; it is made
    #[arg(long, value_name = "DIR", default_value = "zcached-quickstart")]
    pub(crate) dir: PathBuf,
    /// Files or directories to store, 16 MiB of them at least, instead of about 300 MB of /usr
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) input: Vec<PathBuf>,
    /// Stop after the report instead of serving
    #[arg(long)]
    pub(crate) exit: bool,
}
