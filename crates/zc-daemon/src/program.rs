//! Interface to the program around the engine: start options, passed sockets, hooks.
//!
//! It does not act on them (`engine` and `session` do).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::AddressFamily;
use tokio::sync::Semaphore;
use zc_config::Config;

use crate::limits::{CONFIG_READ_MS, CONFIG_READS_MAX};
use zc_engine::deadline::await_within;
use zc_engine::error::EngineError;
use zc_engine::front::listen::Listener;
use zc_engine::front::tls::{self, Tls};

/// Start options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartOptions {
    /// Distrust all cached contents.
    pub cold: bool,
    /// Volumes whose clean cached contents are distrusted.
    pub cold_volumes: Vec<String>,
    /// Volumes whose dirty data is trusted despite an obstacle: an origin that changed, an old or unknown image of the
    /// cache.
    pub trust_dirty: Vec<String>,
    /// Volumes whose dirty data is discarded, on this cache or on another.
    pub drop_dirty: Vec<String>,
    /// Handle SIGTERM, SIGINT and SIGHUP, and notify the service manager.
    pub signals: bool,
}

impl StartOptions {
    /// Returns `true` if clean cached contents of the volume are distrusted.
    pub(crate) fn is_cold(&self, volume: &str) -> bool {
        self.cold || self.cold_volumes.iter().any(|name| name == volume)
    }
}

/// Sets the log filter of the process; called on reload.
pub type SetLogLevel = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;
/// Reads and checks a configuration file.
pub type ReadConfig = Arc<dyn Fn(&Path) -> Result<Config, String> + Send + Sync>;

/// Path and parser of the configuration, for reloads.
pub struct ConfigFile {
    path: PathBuf,
    read: ReadConfig,
    /// Permits for concurrent reads.
    reads: Arc<Semaphore>,
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConfigFile({})", self.path.display())
    }
}

impl ConfigFile {
    /// Configuration file at `path`. `read` parses it, or another file that would replace it.
    #[must_use]
    pub fn new(path: PathBuf, read: ReadConfig) -> Self {
        Self { path, read, reads: Arc::new(Semaphore::new(CONFIG_READS_MAX)) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) async fn read_again(&self) -> Result<Config, String> {
        self.in_bounded_time(|path, read| read_now(path, read)).await
    }

    /// Reads the file, and the TLS files that it names.
    pub(crate) async fn read_all(&self) -> Result<(Config, Tls), String> {
        self.in_bounded_time(|path, read| with_tls(read_now(path, read)?)).await
    }

    /// Reads a file that may take its place, and the TLS files that this names. It must lie in the same folder.
    pub(crate) async fn read_candidate(&self, candidate: PathBuf) -> Result<(Config, Tls), String> {
        let read = move |path: &Path, read: &ReadConfig| {
            if folder_of(&candidate) != folder_of(path) {
                return Err(format!(
                    "{} does not lie in the folder of {}",
                    candidate.display(),
                    path.display()
                ));
            }
            with_tls(read(&candidate)?)
        };
        self.in_bounded_time(read).await
    }

    /// Reads on a thread of its own: a path may lie on a file server that is gone.
    async fn in_bounded_time<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path, &ReadConfig) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let place = self.path.display();
        let Ok(turn) = Arc::clone(&self.reads).try_acquire_owned() else {
            return Err(format!("{place}: earlier commands still wait for it, or for a file that it names"));
        };
        let (path, read) = (self.path.clone(), Arc::clone(&self.read));
        let call = move || {
            let result = work(&path, &read);
            drop(turn);
            result
        };
        await_within(Duration::from_millis(CONFIG_READ_MS), call).await.unwrap_or_else(|error| {
            Err(format!("{place}, or a file that it names, cannot be read: {error}; nothing is changed"))
        })
    }
}

/// Reads the file that has the name now. A bind-mounted file stays the same file when it is replaced on the host: that
/// is an error, because its contents are out of date.
fn read_now(path: &Path, read: &ReadConfig) -> Result<Config, String> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.nlink() == 0) {
        return Err(format!(
            "{} is mounted as a single file, and another file has taken its place where it comes from: this daemon has the \
             old one. Nothing is applied. Mount the directory of the configuration instead of the file, and start the \
             daemon again",
            path.display()
        ));
    }
    read(path)
}

fn with_tls(config: Config) -> Result<(Config, Tls), String> {
    let tls = tls::load(&config.nbd).map_err(|error| error.to_string())?;
    Ok((config, tls))
}

/// The folder of a file, wherever links lead.
fn folder_of(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()?.parent().map(Path::to_owned)
}

/// Sockets that are there already. If there are any, those of the configuration are not opened.
#[derive(Debug, Default)]
pub struct Passed {
    /// Listening sockets.
    pub listeners: Vec<OwnedFd>,
    /// A connection to serve; the daemon stops when it is closed.
    pub connection: Option<OwnedFd>,
}

impl Passed {
    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.connection.is_none()
    }

    /// Returns the configuration without the sockets that passed ones replace.
    pub(crate) fn without_sockets(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if !self.is_empty() {
            config.nbd.listen.clear();
            config.nbd.unix.clear();
        }
        config
    }

    /// Returns `true` if clients may be on other machines, and so survive a power failure of this one. Passed sockets
    /// are judged by their addresses; an unknown address counts as remote.
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

    /// Warns of passed sockets that clients of other machines use without TLS.
    pub(crate) fn warn_without_tls(&self, config: &Config) {
        if !self.is_empty() && self.is_remote(config) && config.nbd.tls != zc_config::Tls::Required {
            tracing::warn!(
                "the service manager's sockets let clients of other machines in without TLS: set tls = \"required\" in [nbd]"
            );
        }
    }

    /// Adds the passed listeners; returns the passed connection.
    pub(crate) fn take_up(self, listeners: &mut Vec<Listener>) -> Result<Option<OwnedFd>, EngineError> {
        for fd in self.listeners {
            listeners.push(Listener::adopt(fd)?);
        }
        Ok(self.connection)
    }
}

/// Hooks of the program around the engine.
#[derive(Default)]
pub struct Hooks {
    /// Without it, a change of the log level needs a restart.
    pub set_log_level: Option<SetLogLevel>,
    /// Without it, there is no reload.
    pub config_file: Option<ConfigFile>,
    /// Dropped privileges of the process, for the status; `None` if the sandbox is off.
    pub confined: Option<Confined>,
}

/// Dropped privileges of the process.
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
    /// Refused steps.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooks")
    }
}

impl Confined {
    /// Returns an addition to an error that the sandbox's restriction of files may have caused.
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
