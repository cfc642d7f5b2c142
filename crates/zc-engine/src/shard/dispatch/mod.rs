//! The shard itself: its components, and the dispatch between them.
//!
//! Job: hold them. `threads` has the I/O threads and the lock, `turn` the work of one of them with the shard, `exec`
//! routes the manager's actions and completions to components, `obey` the commands of other threads, `warming` passes
//! warm-up requests to the manager.
//!
//! Invariants: no module below depends on the shard.

mod exec;
mod obey;
#[cfg(test)]
mod swap_tests;
mod threads;
mod turn;
mod warming;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use zc_cache::CacheManager;
use zc_core::VolumeId;
use zc_io::EventFd;

use crate::clock::Clock;
use crate::error::EngineError;
use crate::front::access::Export;
use crate::front::listen::Listener;
use crate::front::reloadable::FrontSettings;
use crate::front::settings::ShardSettings;
use crate::origin::Origin;
use crate::registry::Registry;
use crate::shard::base::Base;
use crate::shard::clients::{Clients, Shared};
use crate::shard::close::Closer;
use crate::shard::commands::Mailbox;
use crate::shard::device::{CacheDevice, Device};
use crate::shard::dirty_asks::DirtyAsks;
use crate::shard::give_back::GiveBack;
use crate::shard::health::Health;
use crate::shard::io::Io;
use crate::shard::leaving::Leaving;
use crate::shard::metrics::Path;
use crate::shard::origins::{At, Origins};
use crate::shard::pause::Pause;
use crate::shard::settled::Settled;
use crate::shard::volumes::{Volume, Volumes};
use crate::shard::warm::WarmUps;
use crate::shard::workers::Workers;
use crate::state::intent::IntentLog;
use crate::state::risk::RiskFile;
use crate::state::state_dir::StateDir;
use crate::state::state_thread::StateThread;

/// Everything a shard starts with; made by `session/open` on another thread.
pub struct ShardParts {
    /// Cache manager, which has replayed its records.
    pub manager: CacheManager,
    /// The cache device.
    pub device: Device,
    /// Volumes that are served.
    pub volumes: Vec<(VolumeId, Volume)>,
    /// Exports of NBD.
    pub exports: Vec<Export>,
    /// Sockets of NBD.
    pub listeners: Vec<Listener>,
    /// The intent log.
    pub intent: IntentLog,
    /// The file of volumes with volatile writes.
    pub risk: RiskFile,
    /// The state directory.
    pub state: Arc<StateDir>,
    /// Threads, processors and bounds.
    pub settings: ShardSettings,
    /// Tables of connections and volumes.
    pub registry: Arc<Registry>,
    /// Queue of commands.
    pub mailbox: Arc<Mailbox>,
    /// Wakes the first thread.
    pub event: EventFd,
    /// The clock of the daemon.
    pub clock: Clock,
    /// Bytes that the start has read from the cache device.
    pub restart_bytes_read: u64,
    /// Reason for the placeholder of the cache device.
    pub cache_missing: Option<String>,
}

impl std::fmt::Debug for ShardParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShardParts")
    }
}

/// A running shard.
pub struct Shard {
    base: Base,
    manager: CacheManager,
    device: CacheDevice,
    workers: Workers,
    volumes: Volumes,
    origins: Origins,
    clients: Clients,
    health: Health,
    pause: Pause,
    leaving: Leaving,
    dirty_asks: DirtyAsks,
    give_back: GiveBack,
    warm_ups: WarmUps,
    intent: IntentLog,
    risk: RiskFile,
    state: Arc<StateDir>,
    state_thread: StateThread,
    settled: Settled,
    registry: Arc<Registry>,
    mailbox: Arc<Mailbox>,
    closer: Closer,
    /// Wake the threads, by ring.
    events: Vec<EventFd>,
    shard_cpus: Vec<usize>,
    poll_max_us: u32,
    /// Reason why it cannot continue.
    failure: Option<EngineError>,
    /// Path of the reads being answered.
    read_path: Path,
    last_tick_ms: u64,
    last_event_ms: u64,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shard")
    }
}

impl Shard {
    /// Makes the shard.
    ///
    /// # Errors
    /// If a thread or a descriptor for wake-ups cannot be created.
    pub fn new(parts: ShardParts, closer: Closer) -> Result<Self, EngineError> {
        let settings = parts.settings;
        let io = Io::new(settings.io_threads, settings.ring_ops);
        let mut events = vec![parts.event.clone()];
        for _ in 1..settings.io_threads {
            events.push(EventFd::new()?);
        }
        let waker = || parts.event.waker();
        let has_threads = settings.io_threads > 1;
        let workers = Workers::start(settings.reduce_threads, &settings.reduce_cpus, waker(), has_threads)?;
        let doors = (parts.exports, parts.listeners);
        let registry = Arc::clone(&parts.registry);
        let mut origins = Origins::new(waker());
        parts.volumes.iter().for_each(|(id, volume)| origins.set_patience(*id, volume));
        Ok(Self {
            base: Base::new(io, parts.clock),
            manager: parts.manager,
            device: CacheDevice::new(parts.device),
            workers,
            volumes: Volumes::new(parts.volumes),
            origins,
            clients: Clients::new(doors, settings.limits, registry, parts.clock, waker()),
            health: Health::new(parts.cache_missing, parts.restart_bytes_read),
            pause: Pause::default(),
            leaving: Leaving::default(),
            dirty_asks: DirtyAsks::default(),
            give_back: GiveBack::default(),
            warm_ups: WarmUps::default(),
            intent: parts.intent,
            risk: parts.risk,
            state: parts.state,
            state_thread: StateThread::start(waker())?,
            settled: Settled::default(),
            registry: parts.registry,
            mailbox: parts.mailbox,
            closer,
            events,
            shard_cpus: settings.shard_cpus,
            poll_max_us: settings.poll_max_us,
            failure: None,
            read_path: Path::Miss,
            last_tick_ms: 0,
            last_event_ms: 0,
        })
    }

    /// Applies new settings of the front end.
    pub fn apply_front(&mut self, front: FrontSettings) {
        if self.base.stopping.is_running() {
            let now_ns = self.base.clock.now_ns();
            for (id, limits) in &front.volumes {
                self.origins.limits_mut().set(*id, *limits, now_ns);
            }
        }
        for (id, reach) in &front.origins {
            if let Some(volume) = self.volumes.get_mut(*id) {
                volume.reach = *reach;
            }
            self.set_patience(*id);
        }
        let (clients, mut shared) = self.clients();
        clients.apply(&mut shared, front);
    }

    /// Sets the time limits of a volume's origin, which depend on its settings and its mode.
    pub(super) fn set_patience(&mut self, id: VolumeId) {
        if let Some(volume) = self.volumes.get(id) {
            if let Origin::Remote(remote) = &volume.origin {
                remote.set_outage_max(volume.reach.remote_bound_ms(volume.config.mode));
            }
            self.origins.set_patience(id, volume);
        }
    }

    /// Returns the origins, and the resources they use.
    pub(super) const fn origins(&mut self) -> (&mut Origins, At<'_>) {
        let (fingerprint, extent_bytes) = (self.device.fingerprint(), self.device.extent_bytes());
        let at = At { base: &mut self.base, volumes: &mut self.volumes, fingerprint, extent_bytes };
        (&mut self.origins, at)
    }

    /// Serves a connection that is there already, and ends with it.
    pub fn serve_only(&mut self, socket: OwnedFd) {
        if !self.clients.serve_only(&mut self.base, &mut self.volumes, socket) {
            self.begin_stop();
        }
    }

    /// Returns the clients, and the resources they use.
    const fn clients(&mut self) -> (&mut Clients, Shared<'_>) {
        let shared = Shared { base: &mut self.base, volumes: &mut self.volumes, manager: &self.manager };
        (&mut self.clients, shared)
    }
}
