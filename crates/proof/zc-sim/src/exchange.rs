//! Exchanges of the manager in a process that lives on: `zcctl cache reattach`, `replace` and `resize`.
//!
//! Job: drive an exchange as `zc-engine` does (`shard/pause`, `control/reattach`, `control/replace`). Requests are held
//! back until nothing refers to the old manager. Then the code of a start begins a session on the same device, or on one
//! that was just made empty, and the next manager gets the held requests in their order. The process may end at any
//! step. For the judges, a device that is taken up again is a kill whose clients live on. A device that is made empty
//! excuses nothing: the origins hold all that was acknowledged.
//!
//! Invariants: a held request has not begun. It counts as issued when the next manager gets it, so no older content is
//! legal once it was answered.
//!
//! What it does not do: exchange a journal that has a device of its own, or the store of a volume.

use core::mem;
use std::collections::BTreeSet;

use rand::RngExt as _;
use zc_cache::CacheManager;
use zc_cache::seam::{Event, Request, RequestKind};
use zc_cache::startup;
use zc_core::{BufId, Mode, VolumeId};
use zc_format::{Geometry, PlanOptions};

use crate::boot::Raw;
use crate::canary::DriverBug;
use crate::disk::{self, Disk};
use crate::oracle::Oracle;
use crate::world::World;
use crate::write_back::Trouble;

/// Steps until a pause is called off, because what is in flight does not end.
const PAUSE_STEPS: u32 = 3_000;
/// Steps until an exchange is called off, because the origins do not get all dirty data.
const HOME_STEPS: u32 = 4_000;
/// I/Os of a format among which one is chosen to be the last.
const FORMAT_IOS: u32 = 20;

/// State of the device for the next manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Device {
    /// As the old one left it, and not to be believed.
    Cold,
    /// Made empty.
    Empty,
}

/// State of an exchange.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    is_drawn: bool,
    /// Requests that wait for the pause to end.
    held: Option<Vec<Request>>,
    /// The next manager's device, while its session begins.
    device: Option<Device>,
}

impl Exchange {
    /// `is_drawn`: the seed exchanges managers.
    pub(crate) fn new(is_drawn: bool) -> Self {
        Self { is_drawn, ..Self::default() }
    }

    pub(crate) const fn is_drawn(&self) -> bool {
        self.is_drawn
    }

    /// Returns `true` while the session of the next manager begins.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.device.is_some()
    }

    /// Returns `true` if that session begins on a device that served before.
    fn is_same_cache(&self) -> bool {
        self.device == Some(Device::Cold)
    }

    /// The process has ended.
    pub(crate) fn call_off(&mut self) {
        (self.held, self.device) = (None, None);
    }

    fn holds(&self) -> usize {
        self.held.as_ref().map_or(0, Vec::len)
    }
}

fn buffer(request: &Request) -> Option<BufId> {
    match request.kind {
        RequestKind::Read { buf } | RequestKind::Write { buf, .. } => Some(buf),
        _ => None,
    }
}

impl World {
    /// Returns `true` if a session begins that believes no mapping, because the origins were written without it.
    pub(crate) fn begins_cold(&self) -> bool {
        self.exchange.is_same_cache() && !self.has_bug(DriverBug::ExchangeTrusts)
    }

    /// A client's request reaches the manager, or waits for the end of a pause.
    pub(crate) fn submitted(&mut self, request: Request) {
        match &mut self.exchange.held {
            Some(held) => held.push(request),
            None => self.event(Event::Submit(request)),
        }
    }

    /// Another manager takes over.
    pub(crate) fn exchange(&mut self) {
        match self.rng.random_range(0..4) {
            0..2 => self.reattach(),
            2 => self.replace_cache("exchange: replace"),
            _ => self.replace_cache("exchange: resize"),
        }
    }

    /// The cache device fails, or an operator says so, and is taken up again.
    fn reattach(&mut self) {
        if self.is_journal_gone() {
            return;
        }
        if self.manager.as_ref().is_some_and(CacheManager::is_healthy) {
            self.trouble.session = true;
            self.event(Event::DeviceLost);
        }
        self.serve_for(60);
        if !self.pause() {
            return;
        }
        let found = startup::read_superblock(&mut Raw::whole(&mut self.cache, &self.geometry));
        let is_as_left = found.is_ok_and(|found| found.session == self.files.session && !found.clean);
        if !is_as_left || self.rng.random_bool(0.05) {
            return self.call_off_exchange();
        }
        self.trace(|| "exchange: reattach".to_owned());
        self.coverage.note("exchange: reattach");
        self.manager_leaves(false);
        if self.rng.random_bool(0.3) {
            self.coverage.note("exchange: devices that lost power");
            self.cache.power_cut(&mut self.rng);
            // The intent log says more than the journal has left: volumes may be fenced.
            self.trouble.damage();
        }
        self.memory_is_lost();
        self.forgive_lies(true);
        self.take_over(Device::Cold);
    }

    /// Clients continue for a while.
    fn serve_for(&mut self, turns_max: u32) {
        for _ in 0..self.rng.random_range(0..turns_max) {
            if self.violation.is_some() {
                return;
            }
            if self.rng.random_bool(0.4) && self.in_flight() < 12 {
                self.random_request();
            } else {
                self.step_or_tick();
            }
        }
    }

    /// Holds requests back until nothing refers to the manager. Returns `false` if that does not happen: they go on.
    fn pause(&mut self) -> bool {
        self.exchange.held = Some(Vec::new());
        for _ in 0..PAUSE_STEPS {
            if self.violation.is_some() {
                return false;
            }
            if self.is_quiet() {
                // Others may still come while the next manager is made.
                for _ in 0..self.rng.random_range(0..4) {
                    self.random_client_request();
                }
                return true;
            }
            if self.rng.random_bool(0.1) && self.exchange.holds() < 8 {
                self.random_client_request();
            } else {
                self.step_or_tick();
            }
        }
        self.call_off_exchange();
        false
    }

    /// A request of a served volume that changes no settings.
    fn random_client_request(&mut self) {
        let volume = self.rng.random_range(0..self.volumes.len());
        let (offset, len) = self.span(volume, 64 << 10);
        if !self.served[volume] || len == 0 {
            return;
        }
        self.coverage.note("exchange: requests held back");
        self.client_request(volume, offset, len);
    }

    /// Returns `true` if only held requests are left, and no operation in flight is the manager's.
    fn is_quiet(&mut self) -> bool {
        let is_idle = self.manager.as_ref().is_some_and(CacheManager::is_idle);
        if self.clients.len() != self.exchange.holds() || !is_idle {
            return false;
        }
        if !self.pending.is_empty() || !self.unheard.is_empty() {
            let left = format!("an idle manager has {:?} and {:?} in flight", self.pending, self.unheard);
            self.violation.get_or_insert(left);
        }
        true
    }

    /// The old manager stays.
    fn call_off_exchange(&mut self) {
        self.trace(|| "exchange: called off".to_owned());
        self.coverage.note("exchange: called off");
        for request in self.exchange.held.take().unwrap_or_default() {
            self.event(Event::Submit(request));
        }
    }

    /// The old manager is dropped. Of buffers and clients those stay whose requests are held back.
    fn manager_leaves(&mut self, clean: bool) {
        self.session_ends(clean);
        let held: BTreeSet<BufId> = self.exchange.held.iter().flatten().filter_map(buffer).collect();
        self.bufs.retain(|buf, _| held.contains(buf));
        if self.has_bug(DriverBug::ExchangeBuffers) {
            self.bufs.values_mut().for_each(|bytes| bytes.fill(0));
        }
    }

    /// Loses the memory of the old manager, as a kill does. Requests that are held back have not begun.
    fn memory_is_lost(&mut self) {
        self.now += 1;
        let now = self.now;
        self.losses.kill();
        for (volume, oracle) in self.oracles.iter_mut().enumerate() {
            if self.losses.is_safe(volume) {
                oracle.acknowledged_is_safe();
            }
            oracle.exchanged(now);
        }
        self.judges.iter_mut().for_each(|judge| judge.lost());
        self.now += 1;
    }

    /// A session begins on the device, and its manager gets what was held back. Otherwise the process ends.
    fn take_over(&mut self, device: Device) {
        self.exchange.device = Some(device);
        let mut records = Vec::new();
        let Some(Ok(opened)) = self.open(&mut records) else { return self.ends_in_exchange() };
        self.serve(opened, &records);
        self.exchange.device = None;
        // Volume table and state directory agree again, with what the device holds now.
        for (distrusted, served) in self.distrusted.iter_mut().zip(&self.served) {
            *distrusted &= !served;
        }
        self.event(Event::Tick { now_ms: self.now_ms });
        for request in self.exchange.held.take().unwrap_or_default() {
            self.begin_again(request.req);
            // One with a buffer would meet an invariant of the manager.
            if self.has_bug(DriverBug::ExchangeRepeats) && buffer(&request).is_none() {
                self.event(Event::Submit(request.clone()));
            }
            self.event(Event::Submit(request));
        }
    }

    /// The settings of a volume for the next manager: those that it has.
    pub(crate) fn configure_again(&mut self, volume: usize, was_clean: bool) {
        let begins_cold = self.begins_cold();
        let config = &mut self.volumes[volume];
        config.trusted = !begins_cold;
        config.may_be_dirty = self.maybe_dirty[volume];
        if !self.served[volume] {
            self.losses.put_aside(volume, config.may_be_dirty, was_clean);
        } else if self.exchange.device == Some(Device::Empty) {
            config.lost_writes = self.losses.begin_empty(volume, config);
        } else {
            config.lost_writes = self.losses.begin(volume, config, config.may_be_dirty, was_clean);
        }
        self.maybe_dirty[volume] |= config.mode == Mode::WriteBack;
        if self.has_bug(DriverBug::ExchangeForgets) {
            self.volumes[volume].lost_writes = false;
        }
    }

    /// The process ends while no manager serves.
    fn ends_in_exchange(&mut self) {
        self.coverage.note("exchange: crashes");
        self.gone(false);
        self.pool_dies();
        self.process_dies();
        self.cut_off_start("exchange: cut off");
        self.forgive_lies(true);
        self.start();
    }

    /// The origins get all dirty data, the manager closes its cache, and an empty device takes its place: another one,
    /// or the same with another length.
    fn replace_cache(&mut self, name: &'static str) {
        if self.geometry.has_journal_device() || !self.may_replace() {
            return;
        }
        let before: Vec<usize> =
            (0..self.volumes.len()).filter(|volume| self.volumes[*volume].mode == Mode::WriteBack).collect();
        for volume in &before {
            self.volumes[*volume].mode = Mode::WriteThrough;
            self.reconfigured(*volume);
            self.event(Event::Destage { volume: VolumeId(*volume as u16) });
        }
        if self.is_all_at_home() && self.pause() {
            if self.has_dirty() || self.rng.random_bool(0.05) {
                self.call_off_exchange();
            } else {
                self.exchange_device(name);
            }
        }
        // A crash in between is followed by a start, which may have served fewer or changed more.
        for volume in before {
            let may_change = self.served[volume] && self.volumes[volume].mode == Mode::WriteThrough;
            if may_change && !self.is_state_failing() && self.violation.is_none() {
                self.volumes[volume].mode = Mode::WriteBack;
                self.reconfigured(volume);
            }
        }
    }

    /// Nothing speaks against an exchange of the device.
    fn may_replace(&mut self) -> bool {
        let Some(manager) = &self.manager else { return false };
        let is_loading = manager.is_healthy() && !manager.is_loaded();
        let is_fenced = (0..self.volumes.len()).any(|volume| self.dirty(volume).is_some_and(|d| d.fenced));
        let is_known = !self.files.incomplete.is_empty() || !self.files.given_up.is_empty();
        if is_loading || is_fenced || is_known || self.is_state_failing() || self.free.contains(&true) {
            return false;
        }
        for volume in 0..self.volumes.len() {
            self.serve_volume(volume);
        }
        true
    }

    fn has_dirty(&self) -> bool {
        let Some(manager) = &self.manager else { return true };
        (0..self.volumes.len()).any(|volume| {
            let id = VolumeId(volume as u16);
            let dirty = manager.dirty(id).unwrap_or_default();
            dirty.bytes > 0 || dirty.waiting > 0 || dirty.fenced || manager.has_volatile(id)
        })
    }

    /// Waits until the origins have all, while clients go on.
    fn is_all_at_home(&mut self) -> bool {
        for _ in 0..HOME_STEPS {
            if self.violation.is_some() {
                return false;
            }
            if !self.has_dirty() {
                return true;
            }
            if self.rng.random_bool(0.1) && self.in_flight() < 6 {
                let volume = self.rng.random_range(0..self.volumes.len());
                let (offset, len) = self.span(volume, 32 << 10);
                self.client_request(volume, offset, len);
            } else {
                self.step_or_tick();
            }
        }
        self.coverage.note("exchange: called off");
        false
    }

    /// Steps 3 to 5 of `control/replace`.
    fn exchange_device(&mut self, name: &'static str) {
        self.trace(|| name.to_owned());
        self.manager.as_mut().expect("runs").leave_no_image();
        self.event(Event::Stop);
        let Some(clean) = self.wait_for_stop() else { return };
        if self.clients.len() != self.exchange.holds() || self.is_left_over() {
            let left = format!("left over after a close: {:?} {:?}", self.bufs.keys(), self.pending);
            self.violation = Some(left);
            return;
        }
        if clean && !self.mark_clean() || self.rng.random_bool(0.1) {
            // A start finds the old device.
            return self.ends_in_exchange();
        }
        let manager = self.manager.as_ref().expect("runs");
        if !clean {
            for volume in 0..self.volumes.len() {
                let epoch = manager.dirty(VolumeId(volume as u16)).unwrap_or_default().newest_epoch;
                self.files.given_up.insert(volume, epoch);
            }
        }
        self.losses.closed(manager);
        self.manager_leaves(clean);
        self.maybe_dirty.fill(false);
        if clean {
            self.oracles.iter_mut().for_each(Oracle::nothing_in_memory);
        }
        self.memory_is_lost();
        self.distrusted.fill(false);
        if !self.make_device(name == "exchange: resize") {
            return self.ends_in_exchange();
        }
        self.coverage.note(name);
        self.take_over(Device::Empty);
    }

    fn is_left_over(&self) -> bool {
        let held: BTreeSet<BufId> = self.exchange.held.iter().flatten().filter_map(buffer).collect();
        !self.pending.is_empty()
            || !self.unheard.is_empty()
            || self.bufs.keys().any(|buf| !held.contains(buf))
    }

    /// An empty cache with the old one's identity, of another length. Returns `false` if the process ended before that.
    fn make_device(&mut self, same: bool) -> bool {
        let old = self.geometry.clone();
        let slots = u64::from(old.slots);
        let slots = match self.rng.random_range(0..8) {
            0 => slots,
            1..3 => (slots / 2).max(4),
            _ => slots + self.rng.random_range(1..=8),
        };
        let mut geometry = Geometry::plan(&PlanOptions {
            device_bytes: (700 << 10) + slots * u64::from(old.weu_bytes),
            weu_bytes: old.weu_bytes,
            extent_bytes: old.extent_bytes,
            align_bytes: 0,
            journal_blocks: Some(old.journal_blocks),
        })
        .expect("a layout");
        geometry.checkpoint_blocks = geometry.checkpoint_blocks.min(old.checkpoint_blocks);
        geometry.salt = old.salt;
        let len = disk::device_bytes(&geometry);
        let before = if same { self.cache.clone() } else { mem::replace(&mut self.cache, Disk::new(len)) };
        if same {
            self.cache.resize(len);
        }
        self.cache.now = self.now;
        self.use_geometry(geometry);
        let left = self.rng.random_bool(0.15).then(|| self.rng.random_range(0..FORMAT_IOS));
        if self.format_cut_off(left) {
            self.trouble = Trouble::default();
            return true;
        }
        // What a power cut leaves of the format decides which cache a start finds.
        if self.rng.random_bool(0.6) {
            self.cache.power_cut(&mut self.rng);
        } else {
            self.cache.settle();
        }
        // Nothing says yet that another device is the cache, and one device may still be the old cache.
        let found = startup::read_superblock(&mut Raw::whole(&mut self.cache, &self.geometry));
        let is_old = found.is_ok_and(|superblock| superblock.geometry != self.geometry);
        if !same || is_old {
            let old_len = disk::device_bytes(&old);
            if same && old_len <= len {
                self.cache.resize(old_len);
            } else {
                self.cache = before;
            }
            self.use_geometry(old);
        }
        false
    }

    fn use_geometry(&mut self, geometry: Geometry) {
        self.config.geometry = geometry.clone();
        self.geometry = geometry;
        self.promise.forget();
        self.borders.forget();
        self.snapshots.clear();
        self.replays.clear();
        self.placed.clear();
        self.files.image = None;
    }
}
