//! A running daemon: the shard's thread, the control thread, and the handles to them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use zc_config::Config;

use crate::control::ublk::UblkHandle;
use crate::control::{Control, ControlHandle};
use crate::program::{Hooks, Passed, StartOptions};
use crate::session::absent::{self, Absent};
use crate::session::open::{self, Opened, Surroundings};
use zc_engine::error::EngineError;
use zc_engine::front::listen::raise_descriptor_limit;
use zc_engine::front::reloadable::{FrontSettings, default_export};
use zc_engine::origin::stores::Stores;
use zc_engine::registry::Registry;
use zc_engine::shard::close::Closer;
use zc_engine::shard::commands::{Command, Mailbox};
use zc_engine::shard::dispatch::{Shard, ShardParts};
use zc_engine::shard::stats::ShardStats;

/// A running daemon. Dropping it stops it in order.
#[derive(Debug)]
pub struct Daemon {
    mailbox: Arc<Mailbox>,
    registry: Arc<Registry>,
    addresses: Vec<String>,
    ublk: UblkHandle,
    shard: Option<ShardThread>,
    control: Option<ControlHandle>,
}

impl Daemon {
    /// As [`Daemon::start_with`], with the sockets that the configuration names.
    ///
    /// # Errors
    /// As there.
    pub fn start(config: &Config, options: &StartOptions, hooks: Hooks) -> Result<Self, EngineError> {
        Self::start_with(config, options, hooks, Passed::default())
    }

    /// Opens everything in the configuration, and serves. Returns when clients can connect; the index loads while they
    /// are served.
    ///
    /// # Errors
    /// One sentence on the obstacle; nothing relevant was changed.
    pub fn start_with(
        config: &Config,
        options: &StartOptions,
        hooks: Hooks,
        passed: Passed,
    ) -> Result<Self, EngineError> {
        raise_descriptor_limit(zc_core::usize_from_u32(config.nbd.connections_max))?;
        let tls = zc_engine::front::tls::load(&config.nbd)?;
        let stores = Arc::new(Stores::new(&config.stores));
        let default_export = default_export(config);
        let last_read = config.clone();
        let (config, absent, opened) = open_what_is_there(config, options, &stores, &passed)?;
        let Opened { mut parts, closer, control_socket, web, volumes, ledger, ublk, without_cache } = opened;
        passed.warn_without_tls(&config);
        let connection = passed.take_up(&mut parts.listeners)?;
        let (mailbox, registry) = (Arc::clone(&parts.mailbox), Arc::clone(&parts.registry));
        let addresses: Vec<String> =
            parts.listeners.iter().map(|listener| listener.address.clone()).collect();
        let (clock, geometry) = (parts.clock, &parts.device.geometry);
        let (extent_bytes, weu_bytes) = (geometry.extent_bytes, geometry.weu_bytes);
        let front = FrontSettings::new(&config, &volumes, tls.clone(), default_export.as_deref());
        let (shard, end) = start_shard(parts, closer, front, connection)?;
        let ublk = UblkHandle::start(ublk, Arc::clone(&mailbox), Arc::clone(&registry))?;
        let control = Control {
            config,
            last_read,
            tls,
            default_export,
            absent,
            stores,
            volumes,
            ledger,
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
        // Before the service manager is notified of readiness. Impossible devices are no reason to stop.
        ublk.bring_up();
        let started = ControlHandle::start(control, control_socket, web, end, options.signals);
        let mut daemon = Self { mailbox, registry, addresses, ublk, shard: Some(shard), control: None };
        match started {
            Ok(control) => daemon.control = Some(control),
            Err(error) => {
                daemon.stop()?;
                return Err(error);
            }
        }
        Ok(daemon)
    }

    /// Returns the addresses for clients, as NBD URIs without an export.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Connections and volumes.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the counters; `None` when the data plane has ended. Blocks for one turn of the data plane, so it must
    /// not be called within tokio.
    #[must_use]
    pub fn stats(&self) -> Option<ShardStats> {
        let (reply, stats) = oneshot::channel();
        self.mailbox.send(Command::Stats(reply));
        stats.blocking_recv().ok().map(|stats| *stats)
    }

    /// Drains, makes everything durable and ends. Returns `true` if the cache was left clean.
    ///
    /// # Errors
    /// When the data plane failed.
    pub fn stop(mut self) -> Result<bool, EngineError> {
        self.ublk.stop();
        self.join()
    }

    /// Waits until a signal or the control socket stops the daemon.
    ///
    /// # Errors
    /// When the data plane failed.
    pub fn wait(mut self) -> Result<bool, EngineError> {
        self.join()
    }

    fn join(&mut self) -> Result<bool, EngineError> {
        let Some(shard) = self.shard.take() else { return Ok(false) };
        let result = shard.join().unwrap_or_else(|panic| Err(EngineError::DataPlane(panic_text(&*panic))));
        // The control thread ends after the shard.
        self.control = None;
        result
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.ublk.stop();
        if let Err(error) = self.join() {
            tracing::error!("{error}");
        }
    }
}

/// The thread of the data plane.
type ShardThread = JoinHandle<Result<bool, EngineError>>;

/// Starts the thread of the data plane, and serves; with `connection`, it alone. The receiver gets the end.
fn start_shard(
    parts: ShardParts,
    closer: Closer,
    front: FrontSettings,
    connection: Option<OwnedFd>,
) -> Result<(ShardThread, oneshot::Receiver<()>), EngineError> {
    let (ended, end) = oneshot::channel();
    let mailbox = Arc::clone(&parts.mailbox);
    let run = move || {
        let result = Shard::new(parts, closer).and_then(|mut shard| {
            shard.apply_front(front);
            if let Some(connection) = connection {
                shard.serve_only(connection);
            }
            shard.run()
        });
        mailbox.close();
        let _receiver_is_gone = ended.send(());
        result
    };
    let thread = std::thread::Builder::new().name("shard-0".to_owned()).spawn(run);
    Ok((thread.map_err(|source| EngineError::thread("the data plane", source))?, end))
}

/// Opens everything but volumes that cannot be served; with the configuration without those.
fn open_what_is_there(
    config: &Config,
    options: &StartOptions,
    stores: &Arc<Stores>,
    passed: &Passed,
) -> Result<(Config, Vec<Absent>, Opened), EngineError> {
    absent::wait_for_devices(config);
    let (mut config, mut absent) = absent::leave_out(config, options, stores)?;
    loop {
        let remote = passed.is_remote(&config);
        let around = Surroundings { remote, absent: &absent, stores, has_cache: true };
        match open::open(&passed.without_sockets(&config), options, around) {
            Err(EngineError::Unservable(volumes)) => {
                let (served, more) = absent::leave_out_unservable(&config, options, volumes)?;
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
