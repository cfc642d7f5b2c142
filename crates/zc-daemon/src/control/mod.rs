//! The control plane: control socket, signals, service manager. On its own thread, with tokio; the data path never
//! waits for it.
//!
//! The protocol is documented in `CONTROL.md` beside this file's crate: one JSON object per line in, one out.
//!
//! Invariants: lines and connections are bounded. Commands that change something are executed one after the other;
//! read-only commands do not wait for them, and a command that cannot run in bounded time is refused.
//!
//! It does not authenticate; the socket's file mode (0600) restricts access.

pub(crate) mod add_volume;
pub(crate) mod connection_limit;
pub(crate) mod dirty;
pub(crate) mod disconnect;
pub(crate) mod erase;
pub(crate) mod lengths;
pub(crate) mod metrics_http;
pub(crate) mod page_http;
pub(crate) mod reattach;
pub(crate) mod record;
pub(crate) mod reload;
pub(crate) mod remove_volume;
pub(crate) mod replace;
pub(crate) mod request;
pub(crate) mod resize;
pub(crate) mod returning;
pub(crate) mod store;
pub(crate) mod ublk;
pub(crate) mod warm;
pub(crate) mod windows;

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as BlockingMutex, MutexGuard as BlockingMutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, MutexGuard, oneshot};
use zc_cache::config::VolumeConfig;
use zc_config::manager::Memory;
use zc_config::{CacheConfig, Config};
use zc_core::{Mode, NoSuchWord, VolumeId, u64_from_usize};

use crate::control::connection_limit::{ConnectionLimit, Permit};
use crate::control::record::{Recordings, Wanted};
use crate::control::reload::live_mode;
use crate::control::replace::Target;
use crate::control::request::Request;
use crate::control::ublk::UblkHandle;
use crate::control::warm::Ranges;
use crate::http::Web;
use crate::limits::{
    CALLS_END_MS, CONTROL_CONNECTIONS_MAX, CONTROL_LINE_BYTES_MAX, LIVE_EVENTS_MAX, SETTINGS_WAIT_MS,
};
use crate::observe::events::Events;
use crate::observe::exposition::{Format, Scrape};
use crate::observe::live::{Live, Snapshot};
use crate::observe::verdict::{Incidents, LOOK_MS, Look, Verdict};
use crate::program::Hooks;
use crate::session::absent::Absent;
use crate::session::machine::machine_bytes;
use zc_engine::audit;
use zc_engine::clock::{Clock, unix_s};
use zc_engine::error::EngineError;
use zc_engine::front::listen::SocketPath;
use zc_engine::front::reloadable::FrontSettings;
use zc_engine::front::settings::{ack_name, connections_most, destage_name, early, max_dirty_age_ms};
use zc_engine::front::tls::Tls;
use zc_engine::origin::store_looks::StoreLooks;
use zc_engine::origin::stores::Stores;
use zc_engine::registry::{Registry, VolumeInfo};
use zc_engine::shard::commands::{Command, Mailbox};
use zc_engine::shard::stats::ShardStats;
use zc_engine::state::ledger::{Ledger, Unserved};

/// Characters of a command in the audit log.
const AUDIT_CHARS_MAX: usize = 400;
/// User in the audit log for commands by signal, whose sender is unknown.
const BY_SIGNAL: &str = "signal";

/// State of the control plane.
pub(crate) struct Control {
    /// Configuration of the served volumes.
    pub(crate) config: Config,
    pub(crate) last_read: Config,
    pub(crate) tls: Tls,
    pub(crate) default_export: Option<String>,
    /// Volumes that the start left out.
    pub(crate) absent: Vec<Absent>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) volumes: Vec<(String, VolumeConfig)>,
    pub(crate) ledger: Arc<Ledger>,
    /// The daemon was started without its cache device.
    pub(crate) without_cache: bool,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) addresses: Vec<String>,
    pub(crate) hooks: Hooks,
    pub(crate) ublk: UblkHandle,
    pub(crate) clock: Clock,
    pub(crate) extent_bytes: u32,
    pub(crate) weu_bytes: u32,
}

/// The running control thread; dropping it waits for its end, which follows the data plane's.
#[derive(Debug)]
pub(crate) struct ControlHandle(Option<JoinHandle<()>>);

impl Drop for ControlHandle {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take()
            && thread.join().is_err()
        {
            tracing::error!("the control thread had panicked");
        }
    }
}

/// Settings that commands change.
pub(crate) struct InForce {
    /// Configuration of the served volumes.
    pub(crate) config: Config,
    /// Configuration as last read, including keys that are not applied.
    pub(crate) last_read: Config,
    /// The volume for clients that name none, served or not.
    pub(crate) default_export: Option<String>,
    pub(crate) volumes: Vec<(String, VolumeConfig)>,
    /// Certificates and keys as they were read last.
    pub(crate) tls: Tls,
}

impl InForce {
    /// The live part of the front end.
    pub(crate) fn front(&self) -> FrontSettings {
        FrontSettings::new(&self.config, &self.volumes, self.tls.clone(), self.default_export.as_deref())
    }
}

pub(crate) struct Shared {
    in_force: Mutex<InForce>,
    /// Served volumes in order of addition.
    names: RwLock<Vec<(String, VolumeId)>>,
    /// Volumes that the start left out and that are not served yet.
    absent: BlockingMutex<Vec<Absent>>,
    pub(crate) stores: Arc<Stores>,
    cache_path: RwLock<PathBuf>,
    /// The cache's settings at the start, which decide on its memory.
    cache_settings: CacheConfig,
    /// Addresses of metrics and live page.
    web: Web<SocketAddr>,
    /// Connections that the ring has places for.
    pub(crate) connections_most: u32,
    pub(crate) ledger: Arc<Ledger>,
    /// The daemon was started without its cache device.
    pub(crate) without_cache: bool,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) registry: Arc<Registry>,
    addresses: Vec<String>,
    pub(crate) hooks: Hooks,
    pub(crate) ublk: UblkHandle,
    pub(crate) clock: Clock,
    pub(crate) extent_bytes: u32,
    weu_bytes: u32,
    pub(crate) recordings: Mutex<Recordings>,
    store_looks: StoreLooks,
    incidents: BlockingMutex<Incidents>,
    events: BlockingMutex<Events>,
    notify: bool,
}

/// Verdict with its basis.
struct Judged {
    verdict: Verdict,
    unserved: Vec<Unserved>,
    absent: Vec<Absent>,
}

struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Asked {
    Stop,
    Reload,
}

/// The next signal; never, if signals are not ours.
async fn next_signal(signals: Option<&mut Signals>) -> Asked {
    let Some(signals) = signals else { return std::future::pending().await };
    tokio::select! {
        _ = signals.term.recv() => Asked::Stop,
        _ = signals.int.recv() => Asked::Stop,
        _ = signals.hup.recv() => Asked::Reload,
    }
}

impl ControlHandle {
    /// Starts the control thread. It ends when `end` reports the end of the data plane.
    pub(crate) fn start(
        control: Control,
        socket: (StdListener, SocketPath),
        web: Web<StdTcpListener>,
        end: oneshot::Receiver<()>,
        signals: bool,
    ) -> Result<Self, EngineError> {
        let fail = |source| EngineError::io("cannot start the control plane", source);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let (listener, path) = socket;
        listener.set_nonblocking(true).map_err(fail)?;
        let guard = runtime.enter();
        let listener = UnixListener::from_std(listener).map_err(fail)?;
        let web = web.into_tokio().map_err(fail)?;
        // Installed before the caller continues: a signal from now on stops the daemon cleanly.
        let taken = if signals { Some(Signals::new().map_err(fail)?) } else { None };
        drop(guard);
        let names = control.volumes.iter().map(|(name, config)| (name.clone(), config.id)).collect();
        let shared = Arc::new(Shared {
            names: RwLock::new(names),
            cache_path: RwLock::new(control.config.cache.path.clone()),
            cache_settings: control.config.cache.clone(),
            web: web.addresses(),
            connections_most: connections_most(&control.config),
            in_force: Mutex::new(InForce {
                config: control.config,
                last_read: control.last_read,
                default_export: control.default_export,
                volumes: control.volumes,
                tls: control.tls,
            }),
            ledger: control.ledger,
            absent: BlockingMutex::new(control.absent),
            stores: control.stores,
            without_cache: control.without_cache,
            mailbox: control.mailbox,
            registry: control.registry,
            addresses: control.addresses,
            hooks: control.hooks,
            ublk: control.ublk,
            clock: control.clock,
            extent_bytes: control.extent_bytes,
            weu_bytes: control.weu_bytes,
            recordings: Mutex::default(),
            store_looks: StoreLooks::default(),
            incidents: BlockingMutex::default(),
            events: BlockingMutex::default(),
            notify: signals,
        });
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                // They end with the runtime.
                if let Some(listener) = web.metrics {
                    drop(runtime.spawn(metrics_http::serve(Arc::clone(&shared), listener)));
                }
                if let Some(listener) = web.page {
                    drop(runtime.spawn(page_http::serve(Arc::clone(&shared), listener)));
                }
                drop(runtime.spawn(lengths::look_at_lengths(Arc::clone(&shared))));
                drop(runtime.spawn(windows::watch_windows(Arc::clone(&shared))));
                if !shared.absent().is_empty() {
                    drop(runtime.spawn(returning::look_for_absent(Arc::clone(&shared))));
                }
                runtime.block_on(serve(&shared, &listener, end, taken));
                runtime.block_on(shared.end_recordings());
                drop(listener);
                drop(path);
                // A hung call, such as the check of an origin, does not block the daemon's exit.
                runtime.shutdown_timeout(Duration::from_millis(CALLS_END_MS));
            })
            .map_err(|source| EngineError::thread("the control plane", source))?;
        Ok(Self(Some(thread)))
    }
}

async fn serve(
    shared: &Arc<Shared>,
    listener: &UnixListener,
    mut end: oneshot::Receiver<()>,
    mut signals: Option<Signals>,
) {
    let limit = ConnectionLimit::new(CONTROL_CONNECTIONS_MAX);
    shared.notify(&[sd_notify::NotifyState::Ready]);
    let mut looks = tokio::time::interval(Duration::from_millis(LOOK_MS));
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut end => return,
            _ = looks.tick() => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move { shared.look_for_incidents().await });
            },
            asked = next_signal(signals.as_mut()) => match asked {
                Asked::Stop => {
                    tracing::info!(target: audit::TARGET, user = BY_SIGNAL, "audit: command begins: Stop {{}}");
                    shared.stop();
                }
                Asked::Reload => {
                    // A reload may wait for a running command, which must not block signals.
                    let shared = Arc::clone(shared);
                    tokio::spawn(async move {
                        let request_text = format!("{:?}", Request::Reload {});
                        if let Err(error) = audited(&shared, &request_text, BY_SIGNAL, shared.reload()).await {
                            tracing::error!("reload: {error}");
                        }
                    });
                }
            },
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (shared, limit) = (Arc::clone(shared), Arc::clone(&limit));
                    tokio::spawn(async move {
                        let Some(permit) = limit.take().await else {
                            let user = user_of(&stream);
                            tracing::warn!(
                                target: audit::TARGET,
                                user,
                                "audit: control connection refused: all others have commands in flight"
                            );
                            return;
                        };
                        if let Err(error) = converse(&shared, stream, &permit).await {
                            tracing::debug!("control connection: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("cannot accept on the control socket: {error}");
                    // Probably out of descriptors: pause before the next attempt.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

/// Executes the commands of one connection.
async fn converse(shared: &Shared, stream: UnixStream, permit: &Permit) -> io::Result<()> {
    let user = user_of(&stream);
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    loop {
        let mut line = Vec::new();
        let limit = u64_from_usize(CONTROL_LINE_BYTES_MAX);
        let mut bounded = (&mut reading).take(limit);
        match permit.idle(bounded.read_until(b'\n', &mut line)).await {
            None => return Ok(()),
            Some(read) => read?,
        };
        if line.is_empty() {
            return Ok(());
        }
        let whole = line.ends_with(b"\n") || line.len() < CONTROL_LINE_BYTES_MAX;
        let answer =
            if whole { answer(shared, &line, &user).await } else { Err("the line is too long".to_owned()) };
        let value = match answer {
            Ok(mut value) => {
                if let Some(object) = value.as_object_mut() {
                    object.insert("ok".to_owned(), Value::Bool(true));
                }
                value
            }
            Err(error) => json!({ "ok": false, "error": zc_io::name_errnos(&error) }),
        };
        let mut bytes = serde_json::to_vec(&value)?;
        bytes.push(b'\n');
        match permit.idle(writing.write_all(&bytes)).await {
            None => return Ok(()),
            Some(written) => written?,
        }
        if !whole {
            return Ok(());
        }
    }
}

/// Executes a line; commands that change something are audited.
async fn answer(shared: &Shared, line: &[u8], user: &str) -> Result<Value, String> {
    let request = Request::parse(line)?;
    if request.only_looks() || store::only_looks(&request) {
        return carry_out(shared, request).await.map_err(|error| shared.explained(&error));
    }
    let request_text: String = format!("{request:?}").chars().take(AUDIT_CHARS_MAX).collect();
    audited(shared, &request_text, user, carry_out(shared, request)).await
}

fn user_of(stream: &UnixStream) -> String {
    stream.peer_cred().map_or_else(|_| "unknown".to_owned(), |who| who.uid().to_string())
}

/// Executes a command that changes something, and audits it with its result.
async fn audited(
    shared: &Shared,
    request_text: &str,
    user: &str,
    command: impl Future<Output = Result<Value, String>>,
) -> Result<Value, String> {
    tracing::info!(target: audit::TARGET, user, "audit: command begins: {request_text}");
    let answer = command.await.map_err(|error| shared.explained(&error));
    match &answer {
        Ok(_) => tracing::info!(target: audit::TARGET, user, "audit: command done: {request_text}"),
        Err(error) => {
            tracing::warn!(target: audit::TARGET, user, "audit: command refused: {request_text}: {error}");
        }
    }
    answer
}

async fn carry_out(shared: &Shared, request: Request) -> Result<Value, String> {
    match request {
        Request::Status {} => shared.status().await,
        asked @ (Request::Stats {} | Request::Metrics {}) => {
            shared.numbers(asked == Request::Metrics {}).await
        }
        Request::Events { after } => shared.events(after).await,
        Request::Connections {} => Ok(json!({ "connections": shared.connections() })),
        Request::Disconnect { id, client, volume } => {
            shared.disconnect(id, client.as_deref(), volume.as_deref()).await
        }
        asked @ (Request::Reload {} | Request::Config { .. } | Request::CheckConfig { .. }) => {
            configuration(shared, asked).await
        }
        Request::Stop { keep_dirty, flush } => shared.asked_to_stop(keep_dirty, flush).await,
        asked @ (Request::Flush { .. } | Request::DropDirty { .. } | Request::AcceptLoss { .. }) => {
            dirty_data(shared, asked).await
        }
        Request::Clear { volume } => shared.clear(volume.as_deref()).await,
        Request::Reattach {} => shared.reattach().await,
        asked @ (Request::ReplaceCache { .. } | Request::ResizeCache { .. } | Request::Erase {}) => {
            on_cache_device(shared, asked).await
        }
        Request::SetMode { volume, mode } => shared.set_mode(&volume, &mode).await,
        Request::Resize { volume, size_bytes } => shared.resize(&volume, size_bytes).await,
        asked @ (Request::RecordStart { .. } | Request::RecordStop { .. } | Request::RecordStatus {}) => {
            recordings(shared, asked).await
        }
        asked @ (Request::WarmStart { .. }
        | Request::WarmAdd { .. }
        | Request::WarmStatus { .. }
        | Request::WarmStop { .. }) => warm(shared, asked).await,
        Request::Store { store, order } => shared.order(store, order).await,
        Request::Attach { volume } => shared.attach(&volume).await,
        Request::Detach { volume, force } => shared.detach(&volume, force).await,
    }
}

async fn dirty_data(shared: &Shared, request: Request) -> Result<Value, String> {
    match request {
        Request::Flush { volume } => shared.flush(&volume).await,
        Request::DropDirty { volume, unreadable } => shared.drop_dirty(&volume, unreadable).await,
        Request::AcceptLoss { volume } => shared.accept_loss(&volume).await,
        other => Err(format!("{other:?} is not about dirty data")),
    }
}

async fn on_cache_device(shared: &Shared, request: Request) -> Result<Value, String> {
    match request {
        Request::Erase {} => shared.erase().await,
        Request::ReplaceCache { path, force, dry_run } => {
            shared.exchange_cache(&Target::Other { path: path.into(), force }, dry_run).await
        }
        Request::ResizeCache { dry_run } => shared.exchange_cache(&Target::Same, dry_run).await,
        other => Err(format!("{other:?} is not about the cache device")),
    }
}

async fn recordings(shared: &Shared, request: Request) -> Result<Value, String> {
    match request {
        Request::RecordStart { volume, path, share, max_bytes, duration_ms } => {
            let path = path.into();
            shared.record_start(Wanted { volume, path, share, max_bytes, duration_ms }).await
        }
        Request::RecordStop { volume } => shared.record_stop(&volume).await,
        Request::RecordStatus {} => Ok(shared.record_status().await),
        other => Err(format!("{other:?} is not about recordings")),
    }
}

async fn warm(shared: &Shared, request: Request) -> Result<Value, String> {
    match request {
        Request::WarmStart { volume, ranges, last, limit_bytes_per_s } => {
            shared.warm_start(&volume, Ranges { ranges, is_last: last }, limit_bytes_per_s).await
        }
        Request::WarmAdd { volume, ranges, last } => {
            shared.warm_add(&volume, Ranges { ranges, is_last: last }).await
        }
        Request::WarmStop { volume } => shared.warm_stop(&volume).await,
        Request::WarmStatus { volume } => shared.warm_status(&volume).await,
        other => Err(format!("{other:?} is not about warm-ups")),
    }
}

async fn configuration(shared: &Shared, request: Request) -> Result<Value, String> {
    match request {
        Request::Config { volume } => shared.config_report(volume.as_deref()).await,
        Request::CheckConfig { path } => shared.check_config(&path).await,
        _ => shared.reload().await,
    }
}

impl Shared {
    async fn attach(&self, volume: &str) -> Result<Value, String> {
        let device = self.ublk.attach(volume).await?;
        Ok(json!({ "volume": volume, "device": device, "link": zc_ublk::registration::link_path(volume) }))
    }

    async fn detach(&self, volume: &str, force: bool) -> Result<Value, String> {
        let device = self.ublk.detach(volume, force).await?;
        Ok(json!({ "volume": volume, "device": device }))
    }

    /// Adds a hint to an error that Landlock may have caused.
    fn explained(&self, error: &str) -> String {
        let mut error = zc_io::name_errnos(error);
        if let Some(hint) = self.hooks.confined.as_ref().and_then(|confined| confined.hint(&error)) {
            error.push_str(hint);
        }
        error
    }

    pub(crate) fn notify(&self, states: &[sd_notify::NotifyState<'_>]) {
        if self.notify
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::warn!("cannot notify the service manager: {error}");
        }
    }

    pub(crate) fn stop(&self) {
        self.notify(&[sd_notify::NotifyState::Stopping]);
        self.ublk.stop();
    }

    /// All counters, or the text that Prometheus reads.
    async fn numbers(&self, as_text: bool) -> Result<Value, String> {
        if as_text {
            return Ok(json!({ "text": self.metrics(Format::Classic).await? }));
        }
        let stats = self.stats().await?;
        let mut numbers = serde_json::to_value(&*stats).map_err(|error| error.to_string())?;
        numbers["holds"] = self.holds(&stats);
        Ok(numbers)
    }

    /// Bytes of volumes that are cached, those of earlier starts included, and the units that hold them.
    fn holds(&self, stats: &ShardStats) -> Value {
        let mappings = stats.manager.get("file_index_len").copied().unwrap_or(0);
        json!({
            "bytes": mappings.saturating_mul(self.extent_bytes.into()),
            "ssd_bytes": stats.slots[0].saturating_mul(self.weu_bytes.into()),
        })
    }

    pub(crate) async fn stats(&self) -> Result<Box<ShardStats>, String> {
        let (reply, stats) = oneshot::channel();
        self.mailbox.send(Command::Stats(reply));
        stats.await.map_err(|_| "the data plane is busy or has ended".to_owned())
    }

    /// Locks the settings in force for a change. Waits while another command changes them, possibly for a device.
    pub(crate) async fn settings(&self) -> Result<MutexGuard<'_, InForce>, String> {
        let wait = Duration::from_millis(SETTINGS_WAIT_MS);
        let locked = tokio::time::timeout(wait, self.in_force.lock()).await;
        locked.map_err(|_| "another command that changes settings is still in progress; try again".to_owned())
    }

    pub(crate) fn id_of(&self, name: &str) -> Result<VolumeId, String> {
        let names = self.names();
        let volume = names.iter().find(|(known, _)| known == name);
        volume.map(|(_, id)| *id).ok_or_else(|| format!("there is no volume \"{name}\""))
    }

    fn names(&self) -> Vec<(String, VolumeId)> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The data plane serves another volume.
    pub(crate) fn took_up(&self, name: &str, id: VolumeId) {
        self.lock_absent().retain(|absent| absent.name != name);
        self.names.write().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), id));
    }

    /// The data plane serves a volume no more.
    pub(crate) fn let_go(&self, name: &str) {
        self.registry.volumes.remove(name);
        self.names.write().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| known != name);
    }

    fn memory(&self) -> Memory {
        Memory::of(&self.cache_settings, &self.ledger.superblock().geometry, machine_bytes())
    }

    fn cache_path(&self) -> PathBuf {
        self.cache_path.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the new path of the cache.
    pub(crate) fn cache_moved(&self, path: &Path) {
        path.clone_into(&mut self.cache_path.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn connections(&self) -> Vec<Value> {
        let mut list: Vec<_> =
            self.registry.connections.iter().map(|e| (*e.key(), e.value().clone())).collect();
        list.sort_unstable_by_key(|(id, _)| *id);
        list.into_iter()
            .map(|(id, connection)| {
                json!({
                    "id": id,
                    "listener": connection.listener,
                    "peer": connection.peer,
                    "export": connection.export,
                    "accepted_ms": connection.accepted_ms,
                })
            })
            .collect()
    }

    /// Returns the served volumes with their properties.
    fn infos(&self) -> Vec<(String, VolumeInfo)> {
        let info = |(name, _): (String, VolumeId)| {
            let info = self.registry.volumes.get(&name)?.value().clone();
            Some((name, info))
        };
        self.names().into_iter().filter_map(info).collect()
    }

    /// Queries the open stores, for a bounded time.
    async fn look_at_stores(&self) {
        let stores = Arc::clone(&self.stores);
        self.store_looks.refresh(move || stores.looks()).await;
    }

    /// Records the times at which counters changed, for the verdict.
    async fn look_for_incidents(&self) {
        self.look_at_stores().await;
        if let Ok(stats) = self.stats().await {
            self.judge(&stats, &self.infos());
        }
    }

    /// Returns the events after this number; checks for new ones first.
    async fn events(&self, after: u64) -> Result<Value, String> {
        self.look_at_stores().await;
        let stats = self.stats().await?;
        self.judge(&stats, &self.infos());
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).after(after);
        Ok(json!({ "pid": std::process::id(), "events": events }))
    }

    /// Returns the verdict on the current state, and records it.
    fn judge(&self, stats: &ShardStats, infos: &[(String, VolumeInfo)]) -> Judged {
        let served: Vec<&str> = infos.iter().map(|(name, _)| name.as_str()).collect();
        let (unserved, absent) = (self.ledger.unserved(&served), self.absent());
        let verdict = self.verdict(stats, infos, &unserved, &absent);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.observe(&verdict, stats, unix_s());
        Judged { verdict, unserved, absent }
    }

    /// Volumes that the start left out and that are not served yet.
    pub(crate) fn absent(&self) -> Vec<Absent> {
        self.lock_absent().clone()
    }

    fn lock_absent(&self) -> BlockingMutexGuard<'_, Vec<Absent>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An absent volume cannot be served yet.
    pub(crate) fn stays_absent(&self, name: &str, why: &str) {
        for absent in self.lock_absent().iter_mut().filter(|absent| absent.name == name && absent.why != why)
        {
            tracing::warn!("volume \"{name}\" is still not served: {why}");
            why.clone_into(&mut absent.why);
        }
    }

    /// Applies a new configuration to absent volumes.
    pub(crate) fn reconfigure_absent(&self, new: &Config) {
        self.lock_absent().retain_mut(|absent| {
            let wanted = new.volumes.iter().find(|volume| volume.name == absent.name);
            wanted.inspect(|wanted| absent.volume.clone_from(wanted)).is_some()
        });
    }

    fn verdict(
        &self,
        stats: &ShardStats,
        infos: &[(String, VolumeInfo)],
        unserved: &[Unserved],
        absent: &[Absent],
    ) -> Verdict {
        let mut incidents = self.incidents.lock().unwrap_or_else(PoisonError::into_inner);
        let stores = self.store_looks.last();
        incidents.observe(stats, infos, &stores);
        let look = Look {
            stats,
            cache: self.cache_path().display().to_string(),
            without_cache: self.without_cache,
            volumes: infos,
            unserved,
            absent,
            stores: &stores,
            shortfall: self
                .memory()
                .shortfall(&self.cache_settings, &self.ledger.superblock().geometry)
                .filter(|_| !self.without_cache),
            // A connection may have been passed at the start.
            listens: !self.addresses.is_empty() || !self.registry.connections.is_empty(),
        };
        Verdict::of(&look, &incidents)
    }

    /// Acknowledges incidents on behalf of an operator: ended ones no longer count.
    async fn clear(&self, volume: Option<&str>) -> Result<Value, String> {
        if let Some(name) = volume {
            self.id_of(name)?;
        }
        let stats = self.stats().await?;
        self.judge(&stats, &self.infos());
        let cleared = {
            let mut incidents = self.incidents.lock().unwrap_or_else(PoisonError::into_inner);
            incidents.clear(volume, stats.uptime_ms)
        };
        let state = self.judge(&stats, &self.infos()).verdict.state;
        Ok(json!({ "cleared": cleared, "state": state }))
    }

    /// The numbers as Prometheus reads them.
    pub(crate) async fn metrics(&self, format: Format) -> Result<String, String> {
        self.look_at_stores().await;
        let stats = self.stats().await?;
        let volumes = self.infos();
        let Judged { verdict, absent, .. } = self.judge(&stats, &volumes);
        let (state, failed) = (verdict.state, verdict.failed_volumes());
        let absent = absent.into_iter().map(|absent| absent.name).collect();
        let (stores, ram_max_bytes) = (self.store_looks.last(), self.memory().max_bytes);
        Ok(Scrape { stats, volumes, failed, absent, stores, state, ram_max_bytes }.render(format))
    }

    /// Returns the data of the live page.
    pub(crate) async fn live(&self) -> Result<Live, String> {
        self.look_at_stores().await;
        let stats = self.stats().await?;
        let volumes = self.infos();
        let Judged { verdict, absent, .. } = self.judge(&stats, &volumes);
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).newest(LIVE_EVENTS_MAX);
        Ok(Live::of(Snapshot {
            unix_s: unix_s(),
            stats,
            cache_path: self.cache_path(),
            extent_bytes: self.extent_bytes,
            weu_bytes: self.weu_bytes,
            verdict,
            volumes,
            absent,
            stores: self.store_looks.last(),
            events,
        }))
    }

    async fn status(&self) -> Result<Value, String> {
        self.look_at_stores().await;
        let stats = self.stats().await?;
        let infos = self.infos();
        let volume = |(name, info): &(String, VolumeInfo)| {
            let (dirty, traffic) = (stats.dirty.get(name), stats.traffic.get(name));
            let (limits, origin_limits) = (stats.limits.get(name), stats.origin_limits.get(name));
            let (share, pins) = (stats.shares.get(name), stats.pins.get(name));
            let (remote, late) = (stats.remote.get(name), stats.late.get(name));
            json!({
                "name": name, "info": info, "dirty": dirty, "traffic": traffic, "limits": limits,
                "origin_limits": origin_limits, "share": share, "pins": pins, "remote": remote,
                "late": late,
            })
        };
        let volumes: Vec<Value> = infos.iter().map(volume).collect();
        let Judged { verdict, unserved, absent } = self.judge(&stats, &infos);
        let holds = self.holds(&stats);
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uptime_ms": stats.uptime_ms,
            "stopping": stats.stopping,
            "verdict": verdict,
            "extents": stats.extents,
            "cache": {
                "path": self.cache_path(),
                "healthy": stats.cache_healthy,
                "fault": stats.cache_fault,
                "slots": stats.slots,
                "unit_bytes": self.weu_bytes,
                "extent_bytes": self.extent_bytes,
                "ram_max_bytes": self.memory().max_bytes,
                "holds": holds,
                "index_loaded_ms": stats.index_loaded_ms,
            },
            "volumes": volumes,
            "unserved_dirty": unserved,
            "absent": absent,
            "stores": self.store_looks.last(),
            "listening": self.addresses,
            "metrics": self.web.metrics.map(|address| format!("http://{address}/metrics")),
            "page": self.web.page.map(|address| format!("http://{address}/")),
            "sandbox": self.hooks.confined,
            "connections": self.registry.connections.len(),
        }))
    }

    /// Applies settings, after durably recording the volumes that may become dirty under them.
    pub(crate) async fn configure(&self, volumes: Vec<(String, VolumeConfig)>) -> Result<(), String> {
        let write_back = volumes.iter().filter(|(_, config)| config.mode == Mode::WriteBack);
        let names: Vec<String> = write_back.map(|(name, _)| name.clone()).collect();
        self.announce(names).await?;
        let early = early(volumes.iter().map(|(name, config)| (name, config)));
        if !early.is_empty() {
            self.on_media(move |ledger| ledger.acknowledges_early(&early)).await?;
        }
        let volumes: Vec<VolumeConfig> = volumes.into_iter().map(|(_, config)| config).collect();
        let (reply, done) = oneshot::channel();
        for config in &volumes {
            let mode = config.mode.word().to_owned();
            for mut info in self.registry.volumes.iter_mut().filter(|info| info.id == config.id.0) {
                info.mode.clone_from(&mode);
                info.ack = ack_name(config);
                info.destage = destage_name(config);
                info.max_dirty_age_ms = max_dirty_age_ms(config);
            }
        }
        self.mailbox.send(Command::Configure(volumes, reply));
        done.await.map_err(|_| "the data plane is busy or has ended".to_owned())
    }

    async fn set_mode(&self, name: &str, mode: &str) -> Result<Value, String> {
        let wanted: Mode = mode.parse().map_err(|error: NoSuchWord| error.to_string())?;
        let mut in_force = self.settings().await?;
        let volume = in_force.volumes.iter().find(|(known, _)| known == name);
        let Some((_, config)) = volume else { return Err(format!("there is no volume \"{name}\"")) };
        if live_mode(config.mode, wanted) != wanted {
            return Err(format!(
                "a change from or to read-only needs a restart: `zcctl volume set {name} mode={mode}`, then `zcctl \
                 stop --flush`, and start the daemon"
            ));
        }
        let config = VolumeConfig { mode: wanted, ..config.clone() };
        self.configure(vec![(name.to_owned(), config)]).await?;
        if let Some((_, config)) = in_force.volumes.iter_mut().find(|(known, _)| known == name) {
            config.mode = wanted;
        }
        drop(in_force);
        tracing::info!("volume \"{name}\" is {mode} now");
        let stats = self.stats().await?;
        Ok(json!({ "volume": name, "mode": mode, "dirty": stats.dirty.get(name) }))
    }
}

#[cfg(test)]
#[path = "../../fuzz/bodies/control.rs"]
mod fuzz_control;
