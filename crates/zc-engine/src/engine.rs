//! A running engine: the shard's thread, the control thread, and the handles to them.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::net::AddressFamily;
use tokio::sync::oneshot;
use zc_config::Config;

use crate::absent::{self, Absent};
use crate::commands::{Command, Mailbox};
use crate::control::{Control, ControlHandle};
use crate::error::EngineError;
use crate::front_settings::{FrontSettings, default_export};
use crate::listen::{Listener, raise_descriptor_limit};
use crate::registry::Registry;
use crate::shard::Shard;
use crate::startup::{self, Opened, Surroundings};
use crate::stats::ShardStats;
use crate::stores::Stores;
use crate::ublk_control::UblkHandle;

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
    fn without_sockets(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if !self.listeners.is_empty() || self.connection.is_some() {
            config.nbd.listen.clear();
            config.nbd.unix.clear();
        }
        config
    }

    /// Whether clients may be on other machines, and so outlive a power cut of this one. Of passed sockets their own
    /// addresses say so; one whose address cannot be told counts as remote.
    fn is_remote(&self, config: &Config) -> bool {
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
    fn take_up(self, listeners: &mut Vec<Listener>) -> Result<Option<OwnedFd>, EngineError> {
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

/// A running engine. Dropping it stops it in order.
#[derive(Debug)]
pub struct Engine {
    mailbox: Arc<Mailbox>,
    registry: Arc<Registry>,
    addresses: Vec<String>,
    ublk: UblkHandle,
    shard: Option<JoinHandle<Result<bool, EngineError>>>,
    control: Option<ControlHandle>,
}

impl Engine {
    /// As [`Engine::start_with`], with the sockets that the configuration names.
    ///
    /// # Errors
    /// As there.
    pub fn start(config: &Config, options: &EngineOptions, hooks: Hooks) -> Result<Self, EngineError> {
        Self::start_with(config, options, hooks, Passed::default())
    }

    /// Opens everything the configuration names, and serves. Returns when clients can connect; the index loads while
    /// they are served.
    ///
    /// # Errors
    /// One sentence on what does not fit; then nothing was touched, or nothing that matters.
    pub fn start_with(
        config: &Config,
        options: &EngineOptions,
        hooks: Hooks,
        passed: Passed,
    ) -> Result<Self, EngineError> {
        raise_descriptor_limit(zc_core::usize_from_u32(config.nbd.connections_max))?;
        let tls = crate::tls::load(&config.nbd)?;
        let stores = Arc::new(Stores::new(&config.stores));
        let default_export = default_export(config);
        let last_read = config.clone();
        let (config, absent, opened) = open_what_is_there(config, options, &stores, &passed)?;
        let Opened { mut parts, closer, control_socket, web, volumes, custody, ublk, without_cache } = opened;
        let connection = passed.take_up(&mut parts.listeners)?;
        let (mailbox, registry) = (Arc::clone(&parts.mailbox), Arc::clone(&parts.registry));
        let addresses: Vec<String> =
            parts.listeners.iter().map(|listener| listener.address.clone()).collect();
        let (clock, geometry) = (parts.clock, &parts.device.geometry);
        let (extent_bytes, weu_bytes) = (geometry.extent_bytes, geometry.weu_bytes);
        let (ended, end) = oneshot::channel();
        let shard_mailbox = Arc::clone(&mailbox);
        let front = FrontSettings::new(&config, &volumes, tls, default_export.as_deref());
        let shard = std::thread::Builder::new()
            .name("shard-0".to_owned())
            .spawn(move || {
                let result = Shard::new(parts).and_then(|mut shard| {
                    shard.apply_front(front);
                    if let Some(connection) = connection {
                        shard.serve_only(connection);
                    }
                    shard.run(closer)
                });
                shard_mailbox.close();
                let _nobody_listens = ended.send(());
                result
            })
            .map_err(|source| EngineError::thread("the data plane", source))?;
        let ublk = UblkHandle::start(ublk, Arc::clone(&mailbox), Arc::clone(&registry))?;
        let control = Control {
            config,
            last_read,
            default_export,
            absent,
            stores,
            volumes,
            custody,
            without_cache,
            mailbox: Arc::clone(&mailbox),
            registry: Arc::clone(&registry),
            addresses: addresses.clone(),
            hooks,
            ublk: ublk.clone(),
            clock,
            extent_bytes,
            weu_bytes,
        };
        // Before the service manager is told that everything is there. Devices that cannot be are no reason to stop.
        ublk.bring_up();
        let started = ControlHandle::start(control, control_socket, web, end, options.signals);
        let mut engine = Self { mailbox, registry, addresses, ublk, shard: Some(shard), control: None };
        match started {
            Ok(control) => engine.control = Some(control),
            Err(error) => {
                engine.stop()?;
                return Err(error);
            }
        }
        Ok(engine)
    }

    /// Where clients can connect, as NBD URIs without an export.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Connections and volumes.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The counters; `None` when the data plane has ended. Blocks for a turn of it. Not for use within tokio.
    #[must_use]
    pub fn stats(&self) -> Option<ShardStats> {
        let (reply, stats) = oneshot::channel();
        self.mailbox.send(Command::Stats(reply));
        stats.blocking_recv().ok().map(|stats| *stats)
    }

    /// Drains, makes everything durable and ends. Returns whether the cache was left clean.
    ///
    /// # Errors
    /// When the data plane failed.
    pub fn stop(mut self) -> Result<bool, EngineError> {
        self.ublk.stop();
        self.join()
    }

    /// Waits until somebody stops the engine: a signal or the control socket.
    ///
    /// # Errors
    /// When the data plane failed.
    pub fn wait(mut self) -> Result<bool, EngineError> {
        self.join()
    }

    fn join(&mut self) -> Result<bool, EngineError> {
        let Some(shard) = self.shard.take() else { return Ok(false) };
        let result = shard.join().unwrap_or_else(|panic| Err(EngineError::DataPlane(panic_text(&*panic))));
        // The control thread ends when the shard has.
        self.control = None;
        result
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ublk.stop();
        if let Err(error) = self.join() {
            tracing::error!("{error}");
        }
    }
}

/// Opens everything but volumes that cannot be served; with the configuration without those.
fn open_what_is_there(
    config: &Config,
    options: &EngineOptions,
    stores: &Arc<Stores>,
    passed: &Passed,
) -> Result<(Config, Vec<Absent>, Opened), EngineError> {
    absent::wait_for_devices(config);
    let (mut config, mut absent) = absent::leave_out(config, options, stores)?;
    loop {
        let remote = passed.is_remote(&config);
        let around = Surroundings { remote, absent: &absent, stores, has_cache: true };
        match startup::open(&passed.without_sockets(&config), options, around) {
            Err(EngineError::Unservable(volumes)) => {
                let (served, more) = absent::leave_out_unservable(&config, options, &volumes)?;
                config = served;
                absent.extend(more);
            }
            result => return result.map(|opened| (config, absent, opened)),
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
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
