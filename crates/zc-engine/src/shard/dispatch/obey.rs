//! Executes commands of other threads.
//!
//! Invariants: while requests are held back (`pause`) none is lost, answered or reordered. Connections, ranges and
//! origins are the same before and after another manager took over.

use tokio::sync::oneshot;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::Event;
use zc_core::{VolumeId, u64_from_usize};

use crate::error::EngineError;
use crate::error::refusal::Refusal;
use crate::origin::OriginStat;
use crate::shard::commands::Command;
use crate::shard::dispatch::Shard;
use crate::shard::leaving::Removed;
use crate::shard::lengths;
use crate::shard::pause::{CloseReply, Closed, OpenResources, Replacement};
use crate::shard::settled::{Settled, needs_no_cache};
use crate::shard::stats::{
    Curve, DirtyFill, Driver, Extents, ShardStats, dirty_by_volume, late_by_volume, origin_waits,
    pins_by_volume, remote_by_volume, shares_by_volume,
};
use crate::shard::stop::Stopping;
use crate::shard::volumes::Volume;
use crate::shard::warm::WarmEnd;

impl Shard {
    /// Executes commands. Those after an exchange of the manager wait for the next manager.
    pub(super) fn take_commands(&mut self) {
        while !self.pause.has_replacement()
            && let Some(command) = self.mailbox.next()
        {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Stats(reply) => answer(reply, Box::new(self.stats())),
            Command::Configure(volumes, reply) => {
                for config in volumes {
                    self.configure(config);
                }
                answer(reply, ());
            }
            Command::Add { id, volume, reply } => {
                self.add_volume(id, *volume);
                answer(reply, ());
            }
            Command::Remove { volume, reply } => self.remove_volume(volume, reply),
            Command::Erase { keep, reply } => {
                self.base.tell(Event::Erase { keep });
                self.dirty_asks.erases(reply);
            }
            Command::Destage(volume) => self.base.tell(Event::Destage { volume }),
            Command::DropDirty { volume, remembered, reply } => {
                self.base.tell(Event::DropDirty { volume, remembered });
                self.dirty_asks.drops(volume, reply);
            }
            Command::GiveUpUnreadable { volume, reply } => {
                self.base.tell(Event::GiveUpUnreadable { volume });
                self.dirty_asks.gives_up_unreadable(volume, reply);
            }
            Command::AcceptLoss(volume) => self.base.tell(Event::AcceptLoss { volume }),
            Command::LossTold(volume) => self.manager.loss_is_told(volume),
            Command::LoseCache(why) => self.health.lost(why, &mut self.base.events),
            Command::Look { pause: true, reply } => self.pause.begin(reply, self.base.clock.now_ms()),
            Command::Look { pause: false, reply } => answer(reply, self.looked()),
            Command::Close(reply) => self.close_cache(reply),
            Command::Swap(replacement) => {
                self.pause.keep_replacement(replacement, self.base.clock.now_ms());
            }
            Command::Resume => self.resume(),
            Command::Record { volume, tap, reply } => {
                self.volumes.set_tap(volume, tap, &mut self.manager, &self.base.clock);
                answer(reply, ());
            }
            Command::Front(front) => self.apply_front(*front),
            Command::Measure { volume, at_least_bytes, reply } => {
                answer(reply, lengths::measure(&self.volumes, volume, at_least_bytes));
            }
            Command::Grow { volume, size_bytes, reply } => {
                self.grow(volume, size_bytes);
                answer(reply, ());
            }
            Command::Lengths(reply) => answer(reply, lengths::lengths(&self.volumes)),
            Command::Withdraw(volume) => lengths::withdraw(&mut self.volumes, volume),
            Command::Warm { volume, ask, reply } => answer(reply, self.ask_warm(volume, ask)),
            Command::Disconnect(which, reply) => {
                answer(reply, self.clients.disconnect(&mut self.volumes, which));
            }
            Command::ServeDevice(device) => {
                self.clients.serve_device(&mut self.base, &mut self.volumes, *device);
            }
            Command::Stop => self.begin_stop(),
        }
    }

    fn configure(&mut self, config: VolumeConfig) {
        if let Some(volume) = self.volumes.get_mut(config.id) {
            volume.config = config.clone();
            self.set_patience(config.id);
            self.base.tell(Event::Configure(Box::new(config)));
        }
    }

    /// Serves another volume.
    fn add_volume(&mut self, id: VolumeId, volume: Volume) {
        let config: VolumeConfig = volume.config.clone();
        self.volumes.insert(id, volume);
        self.set_patience(id);
        self.base.tell(Event::Configure(Box::new(config)));
    }

    /// Removes a volume that no client uses; replies when the cache holds nothing of it any more.
    fn remove_volume(&mut self, id: VolumeId, reply: oneshot::Sender<Removed>) {
        if let Some(why) = self.is_used(id) {
            answer(reply, Err(why.to_owned()));
            return;
        }
        let name = self.volumes.used(id).name.clone();
        self.clients.nbd_mut().withdraw_export(&name);
        self.warm_ups.end(id, WarmEnd::NoCache, self.base.clock.now_ms());
        self.leaving.begin(id, reply);
    }

    /// Returns the reason why a volume cannot be removed now.
    fn is_used(&self, id: VolumeId) -> Option<&'static str> {
        let dirty = self.manager.dirty(id).unwrap_or_default();
        let reasons = [
            (self.volumes.get(id).is_none(), "it is not served"),
            (self.leaving.has(id), "it is being removed already"),
            (!self.base.stopping.is_running(), "the daemon is stopping"),
            (self.pause.is_on(), "the cache is being reattached; try again"),
            (self.clients.nbd().serves(id), "a client has connected meanwhile; try again"),
            (self.clients.is_device(id), "it has become a block device"),
            (dirty.bytes > 0 || dirty.waiting > 0 || dirty.fenced, "it has dirty data; flush it first"),
        ];
        reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
    }

    /// A volume becomes larger: its origin has grown.
    fn grow(&mut self, id: VolumeId, size_bytes: u64) {
        if let Some(config) = lengths::grow(&mut self.volumes, id, size_bytes) {
            self.base.tell(Event::Configure(Box::new(config)));
            self.clients.grow(id, size_bytes);
        }
    }

    fn looked(&self) -> Result<OpenResources, EngineError> {
        let mut origin_stats = Vec::new();
        for (id, volume) in self.volumes.iter() {
            origin_stats.push((id, OriginStat::of(&volume.origin)?));
        }
        let (cache, journal) = (self.device.file().clone(), self.device.journal().cloned());
        let has_to_be_told = |id: &VolumeId| self.manager.has_volatile(*id) || self.manager.owes_loss(*id);
        let lost = self.volumes.iter().map(|(id, _)| id).filter(has_to_be_told).collect();
        Ok(OpenResources { cache, journal, origin_stats, lost })
    }

    /// Returns `true` if only held-back requests are left: no event in line and no operation in flight is the manager's.
    fn is_quiet(&self) -> bool {
        self.clients.requests().parts() == self.pause.waiting()
            && self.base.events.is_empty()
            && self.manager.is_idle()
            && self.base.io.device_ops() == 0
    }

    /// Notifies the caller of the pause once only held-back requests remain. Then exchanges the manager, if a
    /// replacement is present. The events of this turn have been handled.
    pub(super) fn pump_pause(&mut self) {
        if !self.pause.is_on() {
            return;
        }
        let is_quiet = self.is_quiet();
        if self.pause.has_replacement() {
            self.pump_swap(is_quiet);
            return;
        }
        let mut pause = std::mem::take(&mut self.pause);
        let is_over = if is_quiet {
            pause.is_reached(|| self.looked())
        } else {
            pause.is_given_up(self.base.clock.now_ms())
        };
        self.pause = pause;
        if is_over {
            self.resume();
        }
    }

    fn resume(&mut self) {
        if self.pause.has_closed() {
            let why = "the cache was closed, and no other could take its place";
            self.failure = Some(EngineError::DataPlane(why.to_owned()));
            return;
        }
        self.base.events.extend(self.pause.end());
    }

    /// Has the manager close its cache, unless something speaks against it.
    fn close_cache(&mut self, reply: CloseReply) {
        let refusal = self.has_to_stay_open();
        let reply = match refusal {
            Some(why) => Err((reply, why)),
            None => self.pause.begin_closing(reply).map_err(|reply| {
                (reply, "requests in flight did not complete in time; try again".to_owned())
            }),
        };
        match reply {
            Ok(()) => {
                // Clients wait, and no start from this device will follow soon.
                self.manager.leave_no_image();
                self.base.tell(Event::Stop);
            }
            Err((reply, why)) => answer(reply, Err(EngineError::refused(Refusal::NotClosed(why)))),
        }
    }

    /// Returns the reason why the cache cannot be closed now.
    fn has_to_stay_open(&self) -> Option<String> {
        if !self.base.stopping.is_running() {
            return Some("the daemon is stopping".to_owned());
        }
        let is_needed =
            |id: VolumeId| needs_no_cache(&self.manager, id).is_none() || self.manager.has_volatile(id);
        let (_, volume) = self.volumes.iter().find(|(id, _)| is_needed(*id))?;
        let name = &volume.name;
        Some(format!("volume \"{name}\" has dirty data again; `zcctl flush {name}`, then try again"))
    }

    /// Handles the end of the manager: it closed its cache in a pause, or the daemon stops.
    pub(super) fn has_stopped(&mut self, clean: bool) {
        let (manager, volumes) = (&self.manager, &self.volumes);
        let closed = || {
            let ids = || volumes.iter().map(|(id, _)| id);
            let epoch = |id| (id, manager.dirty(id).unwrap_or_default().newest_epoch);
            Closed {
                is_whole: clean,
                journal_next: manager.journal_next(),
                epochs: ids().map(epoch).collect(),
                owes_loss: ids().filter(|id| manager.owes_loss(*id)).collect(),
            }
        };
        if !self.pause.is_closed_by(closed) {
            self.base.stopping = Stopping::Stopped { clean };
        }
    }

    /// Exchanges the manager as soon as no operation refers to the old one, then continues with the queued commands.
    pub(super) fn pump_swap(&mut self, is_quiet: bool) {
        let may_end = !self.pause.has_closed() && !self.base.stopping.is_running();
        if !is_quiet && !may_end {
            if self.pause.is_replacement_late(self.base.clock.now_ms()) {
                let why = "the manager could not be exchanged: operations of the old one do not end";
                self.failure = Some(EngineError::DataPlane(why.to_owned()));
            }
            return;
        }
        let Some(replacement) = self.pause.take_replacement() else { return };
        if may_end {
            // The old manager may be stopping, and must complete that.
            self.resume();
        } else {
            self.swap(*replacement);
        }
        self.take_commands();
    }

    /// Another manager takes over, on the cache device that is back, or on another.
    fn swap(&mut self, replacement: Replacement) {
        // Discards that the old manager has not completed have no effect. Removed volumes are passed to the next one.
        self.dirty_asks.answer(&self.manager);
        self.dirty_asks.fail();
        self.leaving.begin_again();
        let waiting = self.pause.buffers();
        self.base.buffers.keep(|buf| waiting.contains(&buf));
        let has_lost = |id: &VolumeId| self.manager.has_volatile(*id);
        let lost: Vec<VolumeId> = self.volumes.iter().map(|(id, _)| id).filter(has_lost).collect();
        let Replacement { manager, device, intent, risk, volumes, bytes_read } = replacement;
        (self.manager, self.intent, self.risk) = (manager, intent, risk);
        self.device.replace(device);
        for config in volumes {
            let id = config.id;
            self.volumes.used(id).config = config;
        }
        self.health.is_back(bytes_read);
        self.base.metrics.distrusts = 0;
        self.settled = Settled::default();
        self.volumes.tell_contents_again(&mut self.manager);
        let mut actions = Vec::new();
        self.manager.begin(self.base.clock.now_ms(), &mut actions);
        self.carry_out(&mut actions);
        self.base.tell(Event::Tick { now_ms: self.base.clock.now_ms() });
        self.close_connections_of(&lost);
        self.base.events.extend(self.pause.end());
        if self.base.stopping == Stopping::Finishing {
            // Its predecessor had received it.
            self.base.tell(Event::Stop);
        }
    }

    /// Clients of volumes that lost acknowledged, unflushed data are disconnected, as by a restarting server.
    fn close_connections_of(&mut self, lost: &[VolumeId]) {
        for id in lost {
            let name = &self.volumes.used(*id).name;
            tracing::warn!(
                "volume \"{name}\": acknowledged writes that no client had flushed are lost with the failed cache \
                 device; its connections are closed, and the next flush fails once"
            );
        }
        self.clients.nbd_mut().close_connections_of(&mut self.volumes, lost);
    }

    fn stats(&self) -> ShardStats {
        let (regions, regions_max) = self.manager.active_regions();
        let (slots, slots_max) = self.manager.slots_used();
        let counters = self.manager.stats();
        let extents = Extents {
            read: counters.extents_read(),
            hits: counters.extent_hits(),
            read_ahead: counters.prefetched_hits,
        };
        let volumes = || self.volumes.iter().map(|(_, volume)| volume);
        ShardStats {
            uptime_ms: self.base.clock.now_ms(),
            index_loaded_ms: self.health.loaded_ms(),
            restart_bytes_read: self.health.restart_bytes_read(),
            cache_healthy: self.manager.is_healthy(),
            cache_fault: self.health.fault(&self.manager),
            intent_fault: self.intent.fault().map(str::to_owned),
            manager: counters.named().into_iter().collect(),
            extents,
            curve: Curve::of(&self.manager.curve()),
            ram_bytes: self.manager.ram_by_structure().into_iter().collect(),
            stopping: !self.base.stopping.is_running(),
            slots: [u64_from_usize(slots), u64_from_usize(slots_max)],
            traffic: volumes().map(|volume| (volume.name.clone(), volume.traffic)).collect(),
            limits: self.volumes.waits(),
            origin_limits: origin_waits(&self.volumes, self.origins.limits()),
            warm: self.warm_by_volume(),
            dirty_fill: DirtyFill::of(self.manager.dirty_fill()),
            remote: remote_by_volume(&self.volumes),
            late: late_by_volume(&self.volumes, self.origins.deadlines()),
            shares: shares_by_volume(&self.volumes, &self.manager),
            pins: pins_by_volume(&self.volumes, &self.manager),
            dirty: dirty_by_volume(&self.volumes, &self.manager),
            regions_active: [u64_from_usize(regions), u64_from_usize(regions_max)],
            latency: self.base.metrics.latencies(),
            durations: volumes().map(|volume| (volume.name.clone(), *volume.durations)).collect(),
            driver: self.driver(),
        }
    }

    fn driver(&self) -> Driver {
        let (polls, metrics) = (self.base.io.poll_stats(), &self.base.metrics);
        Driver {
            connections_accepted: metrics.accepted,
            connections_refused: metrics.refused,
            connections_displaced: metrics.displaced,
            accept_errors: metrics.accept_errors,
            connections_broken: metrics.broken,
            requests_in_flight: u64_from_usize(self.clients.requests().len()),
            payload_bytes: self.base.payload_bytes,
            unsent_bytes: self.clients.nbd().unsent_bytes(),
            payload_stalls: metrics.stalls,
            origin_errors: metrics.origin_errors,
            device_errors: metrics.device_errors,
            reduce_jobs_waiting: u64_from_usize(self.workers.waiting()),
            reduce_jobs_inline: self.workers.inline_jobs(),
            waits_met: polls.met,
            waits_slept: polls.slept,
            looked_us: polls.looked_us,
            turns: metrics.turns.count,
            turns_us: metrics.turns.had_ns / 1000,
            turns_waited_us: metrics.turns.waited_ns / 1000,
            buffers: u64_from_usize(self.base.buffers.len()),
        }
    }
}

/// Sends a reply; the caller may have disconnected.
fn answer<T>(reply: oneshot::Sender<T>, answer: T) {
    let _asker_left = reply.send(answer);
}
