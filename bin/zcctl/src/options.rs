//! Options that several commands have: where the daemon is, and how its answers are shown.

use std::path::PathBuf;

use clap::Args;

/// Control socket of the default configuration.
pub(crate) const SOCKET_DEFAULT: &str = "/run/zcached/control.sock";

/// Names another control socket than [`SOCKET_DEFAULT`] for every command.
const SOCKET_VARIABLE: &str = "ZCACHED_SOCKET";

/// State directory of the default configuration.
pub(crate) const STATE_DIR_DEFAULT: &str = "/var/lib/zcached";

/// The control socket that a command uses if its line names none.
pub(crate) fn socket_default() -> PathBuf {
    std::env::var_os(SOCKET_VARIABLE).map_or_else(|| SOCKET_DEFAULT.into(), PathBuf::from)
}

/// Address of the daemon, and output format.
#[derive(Debug, Args)]
pub(crate) struct Daemon {
    /// Control socket of the daemon, also set by ZCACHED_SOCKET.
    #[arg(long, value_name = "PATH", default_value_os_t = socket_default())]
    pub(crate) socket: PathBuf,
    /// Print the daemon's answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of a table for programs. Each of them selects that output.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Listing {
    /// Print only the table, with these columns, separated by commas.
    #[arg(short = 'o', long, value_name = "COLUMNS", value_delimiter = ',', conflicts_with = "json")]
    pub(crate) columns: Vec<String>,
    /// Print only the table, without headings, one tab between cells.
    #[arg(long, conflicts_with = "json")]
    pub(crate) no_headings: bool,
    /// Print only the table, with bytes and milliseconds.
    #[arg(long, conflicts_with = "json")]
    pub(crate) bytes: bool,
}

impl Listing {
    /// Returns `true` if a table for programs is requested.
    pub(crate) const fn is_asked(&self) -> bool {
        !self.columns.is_empty() || self.no_headings || self.bytes
    }
}
