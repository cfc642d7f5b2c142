//! What the program around the engine tells it and provides: how to start, sockets that are there already, hooks.
//!
//! What it does not do: act on any of it (`engine` and `session` do).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::net::AddressFamily;
use zc_config::Config;

use crate::error::EngineError;
use crate::front::listen::Listener;

/// How to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineOptions {
    /// Believe nothing that the cache holds.
    pub cold: bool,
    /// Names of volumes whose dirty data is to be believed although something speaks against it: an origin that
    /// changed, an old or unknown image of the cache.
    pub trust_dirty: Vec<String>,
    /// Names of volumes whose dirty data is given up, on this cache or on another.
    pub drop_dirty: Vec<String>,
    /// Handle SIGTERM, SIGINT and SIGHUP, and tell the service manager.
    pub signals: bool,
}

/// Sets the log filter of the process; called on reload.
pub type SetLogLevel = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;
/// Reads and checks a configuration file.
pub type ReadConfig = Box<dyn Fn(&Path) -> Result<Config, String> + Send + Sync>;

/// Where the configuration is, and how it is read; for reloads.
pub struct ConfigFile {
    /// The file.
    pub path: PathBuf,
    /// Reads it, or one that may take its place.
    pub read: ReadConfig,
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConfigFile({})", self.path.display())
    }
}

impl ConfigFile {
    pub(crate) fn read_again(&self) -> Result<Config, String> {
        (self.read)(&self.path)
    }
}

/// Sockets that are there already. If there are any, those of the configuration are not opened.
#[derive(Debug, Default)]
pub struct Passed {
    /// Listening sockets.
    pub listeners: Vec<OwnedFd>,
    /// A connection; the engine stops when it ends.
    pub connection: Option<OwnedFd>,
}

impl Passed {
    /// The configuration without the sockets that passed ones take the place of.
    pub(crate) fn without_sockets(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if !self.listeners.is_empty() || self.connection.is_some() {
            config.nbd.listen.clear();
            config.nbd.unix.clear();
        }
        config
    }

    /// Whether clients may be on other machines, and so outlive a power cut of this one. Of passed sockets their own
    /// addresses say so; one whose address cannot be told counts as remote.
    pub(crate) fn is_remote(&self, config: &Config) -> bool {
        let is_remote = |address: SocketAddr| !address.ip().is_loopback();
        let mut passed = self.listeners.iter().chain(&self.connection).peekable();
        if passed.peek().is_none() {
            return config.nbd.listen.iter().any(|address| is_remote(*address));
        }
        passed.any(|fd| match rustix::net::getsockname(fd) {
            Ok(address) if address.address_family() == AddressFamily::UNIX => false,
            Ok(address) => SocketAddr::try_from(address).map_or(true, is_remote),
            Err(_) => true,
        })
    }

    /// Adds the passed listeners; returns the passed connection.
    pub(crate) fn take_up(self, listeners: &mut Vec<Listener>) -> Result<Option<OwnedFd>, EngineError> {
        for fd in self.listeners {
            listeners.push(Listener::adopt(fd)?);
        }
        Ok(self.connection)
    }
}

/// What the program around the engine provides.
#[derive(Default)]
pub struct Hooks {
    /// Without it, a change of the log level needs a restart.
    pub set_log_level: Option<SetLogLevel>,
    /// Without it, there is no reload.
    pub config_file: Option<ConfigFile>,
    /// What the process has given up, for the status; `None` if nothing was to be.
    pub confined: Option<Confined>,
}

/// What the process has given up.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Confined {
    /// Number of its user.
    pub uid: u32,
    /// Capabilities that it still has, without `CAP_`.
    pub capabilities: Vec<&'static str>,
    /// Executed programs gain no rights.
    pub no_new_privileges: bool,
    /// Files are bounded.
    pub landlock: bool,
    /// System calls are bounded.
    pub seccomp: bool,
    /// What was refused.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooks")
    }
}

impl Confined {
    /// What to add to an error that may come from the bounds on files.
    pub(crate) fn hint(&self, error: &str) -> Option<&'static str> {
        (self.landlock && error.contains("(EACCES)")).then_some(
            "; since its start the daemon is confined to the folders of its configuration: name further ones in \
             sandbox.paths, then restart it",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn clients_of_passed_sockets_outlive_a_power_cut_if_they_may_be_elsewhere() {
        let config = |listen: &str| {
            let text = format!(
                "[cache]\npath = \"/srv/c\"\n[nbd]\nlisten = [{listen}]\n[[volume]]\nname = \"v\"\norigin = \"/srv/v\"\n"
            );
            Config::parse(&text, "test.toml").unwrap()
        };
        let local = config("\"127.0.0.1:10809\"");
        assert!(!Passed::default().is_remote(&local));
        let passed = |fd: OwnedFd| Passed { listeners: vec![fd], connection: None };
        let dir = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(dir.path().join("s")).unwrap();
        assert!(!passed(unix.into()).is_remote(&local));
        for (address, is_remote) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
            let listener = TcpListener::bind(address).unwrap();
            assert_eq!(passed(listener.into()).is_remote(&local), is_remote, "{address}");
        }
        let (connection, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let passed = Passed { listeners: Vec::new(), connection: Some(connection.into()) };
        assert!(!passed.is_remote(&local));
    }
}
