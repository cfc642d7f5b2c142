//! Arguments of `zcached quickstart`.

use std::path::PathBuf;

/// Cache some of this machine's files, measure, and serve them
///
/// It needs no root and changes nothing outside its directory. It copies the files into a volume of a store, makes a
/// clone of the volume and changes a part of it. Then it reads both volumes twice through a cache, compares every byte,
/// prints hits and times, and reads a disk that is made slow without a cache and with one. It serves the volumes over NBD
/// until Ctrl-C. A second start finds the cache warm. Delete the directory to undo it all.
#[derive(Debug, clap::Args)]
pub(crate) struct QuickstartArgs {
    /// Directory to make for origins, cache, sockets and configuration
    #[arg(long, value_name = "DIR", default_value = "zcached-quickstart")]
    pub(crate) dir: PathBuf,
    /// Files or directories to store; default is 300 MB of /usr
    ///
    /// Together they must have at least 16 MiB
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) input: Vec<PathBuf>,
    /// Stop after the report instead of serving
    #[arg(long)]
    pub(crate) exit: bool,
}
