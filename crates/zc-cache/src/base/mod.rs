//! State that every component of the core may use: settings, the clock of the last tick, the port, counters, and the
//! volumes.
//!
//! Job: hold the state that belongs to no component alone. Components get it with each call, and reach the outside
//! through its port. Session, filter, tracks and port have private fields of their own; counters are plain numbers
//! that any component adds to.
//!
//! Invariants: time does not go back; an effect stays until the manager takes it.
//!
//! Out of scope: decisions.

use core::ops::Range;
use std::collections::VecDeque;

use zc_core::{BufId, BufSlice, Codec, ErrorKind, ExtentKey, Map, Mode, SECTOR_BYTES, VolumeId};

use crate::base::compressibility::CompressionFilter;
use crate::base::effects::Effect;
use crate::base::health::{DeviceHealth, Health};
use crate::base::origin::{FlushWaiter, OriginTracker};
use crate::base::port::Port;
use crate::base::session::Session;
use crate::base::tracks::Tracks;
use crate::base::volume::Volume;
use crate::config::{ManagerConfig, VolumeConfig};
use crate::expect_held::ExpectHeld;
use crate::ops::OpKind;
use crate::seam::{Action, Digest, Note, Purpose, Request, RequestKind};
use crate::startup::StartState;
use crate::stats::Stats;

pub(crate) mod compressibility;
pub(crate) mod effects;
pub(crate) mod health;
pub(crate) mod origin;
pub(crate) mod port;
pub(crate) mod rate;
pub(crate) mod session;
pub(crate) mod tracks;
pub(crate) mod volume;

/// State of earlier sessions that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    /// An index image: the file index is a small one in the meantime.
    Image,
    Headers,
    Nothing,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Base {
    cfg: ManagerConfig,
    /// Time of the last tick.
    now_ms: u64,
    /// The driver requested a stop: nothing new is cached.
    stopping: bool,
    /// Time of a client's last write, or of the start.
    last_write_ms: u64,
    volumes: Map<VolumeId, Volume>,
    /// Volumes whose contents the manager reports when they are determined.
    reported: Vec<VolumeId>,
    health: DeviceHealth,
    loading: Loading,
    effects: VecDeque<Effect>,
    pub(crate) session: Session,
    /// Filter of extents that are worth compressing.
    pub(crate) filter: CompressionFilter,
    /// Extents that work in progress refers to.
    pub(crate) tracks: Tracks,
    pub(crate) port: Port<OpKind>,
    pub(crate) stats: Stats,
}

impl Base {
    /// Without volumes, at time 0, after a start that found this on the device.
    pub(crate) fn new(cfg: ManagerConfig, start: &StartState) -> Self {
        Self {
            now_ms: 0,
            stopping: false,
            last_write_ms: 0,
            session: Session::new(start.session, start.first_session, start.weu_seq_next, start.summary_uuid),
            volumes: Map::default(),
            reported: Vec::new(),
            health: DeviceHealth::default(),
            loading: Loading::Headers,
            filter: CompressionFilter::default(),
            tracks: Tracks::new(&cfg.hash_key),
            port: Port::default(),
            effects: VecDeque::new(),
            stats: Stats::default(),
            cfg,
        }
    }

    /// The settings of the cache.
    pub(crate) const fn cfg(&self) -> &ManagerConfig {
        &self.cfg
    }

    pub(crate) const fn extent_bytes(&self) -> u32 {
        self.cfg.geometry.extent_bytes
    }

    pub(crate) const fn whole_sectors(&self) -> Range<u32> {
        0..self.extent_bytes() / SECTOR_BYTES
    }

    /// Time of the last tick.
    pub(crate) const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Begins the session at this time.
    pub(crate) const fn begin(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.last_write_ms = now_ms;
    }

    /// Advances the time. It never goes back.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Counts a client's write that goes to the origin.
    pub(crate) const fn client_writes(&mut self) {
        self.last_write_ms = self.now_ms;
    }

    /// Returns `true` if no client has written for so long.
    pub(crate) const fn is_idle_for(&self, ms: u64) -> bool {
        self.now_ms.saturating_sub(self.last_write_ms) >= ms
    }

    /// Returns `true` if the driver requested a stop: nothing new is cached then.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub(crate) const fn stop(&mut self) {
        self.stopping = true;
    }

    /// Returns `true` if everything of earlier sessions was read.
    #[inline]
    pub(crate) fn is_loaded(&self) -> bool {
        self.loading == Loading::Nothing
    }

    /// Returns `true` if an index image is being read: the index is a small one in the meantime.
    #[inline]
    pub(crate) fn is_reading_image(&self) -> bool {
        self.loading == Loading::Image
    }

    /// Sets the state being read; only recovery calls this.
    pub(crate) const fn set_loading(&mut self, loading: Loading) {
        self.loading = loading;
    }

    /// Volume of this number, if it is served.
    pub(crate) fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.volumes.get(&id)
    }

    /// Volume of this number, for changes.
    pub(crate) fn volume_mut(&mut self, id: VolumeId) -> Option<&mut Volume> {
        self.volumes.get_mut(&id)
    }

    /// All volumes, in no order that a simulation could repeat.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// Returns `true` if the manager serves the volume.
    pub(crate) fn has_volume(&self, id: VolumeId) -> bool {
        self.volumes.contains_key(&id)
    }

    pub(crate) fn add_volume(&mut self, cfg: VolumeConfig) {
        let volume = Volume::new(cfg, self.extent_bytes());
        self.volumes.insert(volume.cfg().id, volume);
    }

    pub(crate) fn remove_volume(&mut self, id: VolumeId) {
        self.volumes.remove(&id);
    }

    /// A volume's writes and flushes at its origin.
    ///
    /// # Panics
    /// If the manager does not serve the volume.
    pub(crate) fn origin_mut(&mut self, id: VolumeId) -> &mut OriginTracker {
        self.volumes.get_mut(&id).expect_held().origin_mut()
    }

    /// Appends an effect that others have to act on.
    pub(crate) fn announce(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Takes the oldest effect that others have to act on.
    pub(crate) fn take_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns `true` if others have acted on all effects.
    pub(crate) fn has_no_effects(&self) -> bool {
        self.effects.is_empty()
    }

    /// Returns `true` if the cache device works.
    pub(crate) fn is_good(&self) -> bool {
        self.health.state() == Health::Good
    }

    /// Returns `true` if the device failed, and the record of distrust in its contents is not durable yet.
    pub(crate) fn is_failing(&self) -> bool {
        self.health.state() == Health::Failing
    }

    /// State of the cache device.
    pub(crate) const fn health(&self) -> Health {
        self.health.state()
    }

    /// Records that the distrust in the device's contents is durable.
    pub(crate) const fn distrust_is_recorded(&mut self) {
        self.health.recorded();
    }

    /// Puts the cache out of service. The consequences come with [`Effect::DeviceFailed`].
    pub(crate) fn fail_device(&mut self, during: Purpose, error: ErrorKind) {
        if !self.health.fail() {
            return;
        }
        self.port.emit(Action::Note(Note::CacheFailed { during, error }));
        self.announce(Effect::DeviceFailed(error));
    }

    /// Records a successful read of the device.
    pub(crate) const fn device_read_worked(&mut self) {
        self.health.read_ended(false);
    }

    /// Records a failed read of the device. Too many in a row put the cache out of service.
    pub(crate) fn device_read_failed(&mut self, purpose: Purpose, error: ErrorKind) {
        self.stats.device_read_errors += 1;
        if self.health.read_ended(true) {
            self.fail_device(purpose, error);
        }
    }

    /// Records a successful write of a unit.
    pub(crate) const fn unit_write_worked(&mut self) {
        self.health.write_ended(false);
    }

    /// Records a failed write of a unit. Too many in a row put the cache out of service.
    pub(crate) fn unit_write_failed(&mut self, error: ErrorKind) {
        self.stats.device_write_errors += 1;
        if self.health.write_ended(true) {
            self.fail_device(Purpose::WeuWrite, error);
        }
    }

    pub(crate) fn whole(&self, buf: BufId) -> BufSlice {
        BufSlice { buf, start_bytes: 0, len_bytes: self.extent_bytes() }
    }

    /// Requests the fingerprint of an extent of this volume.
    pub(crate) fn hash(&mut self, kind: impl Into<OpKind>, volume: VolumeId, src: BufSlice) {
        let domain = self.volumes.get(&volume).expect_held().cfg().domain;
        let op = self.port.op(kind);
        self.port.emit(Action::Hash { op, src, domain });
    }

    pub(crate) fn is_flushing(&self, volume: VolumeId) -> bool {
        self.volumes.get(&volume).is_some_and(|entry| entry.origin().is_flushing())
    }

    pub(crate) fn answer_write(&mut self, request: &Request, result: Result<(), ErrorKind>) {
        self.port.emit(Action::Reply { req: request.req, result });
        if let RequestKind::Write { buf, .. } = request.kind {
            self.port.release(buf);
        }
    }

    /// Records that acknowledged writes are lost, even if no client could observe it: the next flush of the volume
    /// reports it.
    pub(crate) fn owe_loss(&mut self, volume: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.origin_mut().owe_loss();
        }
    }

    /// Requests an origin flush after the one in progress.
    pub(crate) fn flush_origin(&mut self, volume: VolumeId, waiter: FlushWaiter) {
        self.origin_mut(volume).want_flush(waiter);
        self.pump_origin_flush(volume);
    }

    /// Flushes an origin if that is requested and no flush is in progress.
    pub(crate) fn pump_origin_flush(&mut self, volume: VolumeId) {
        let Self { volumes, port, .. } = self;
        volumes.get_mut(&volume).expect_held().origin_mut().pump_flush(volume, port);
    }

    /// Returns `true` if the cache is in use for the volume: it has not failed, and the volume is not in pass-through.
    pub(crate) fn is_used_by(&self, volume: VolumeId) -> bool {
        self.is_good()
            && self.volumes.get(&volume).is_some_and(|volume| volume.cfg().mode != Mode::PassThrough)
    }

    /// Returns `true` if the driver requested reports of the extent's contents.
    pub(crate) fn reports(&self, key: ExtentKey) -> bool {
        !self.reported.is_empty() && self.reported.contains(&key.volume)
    }

    pub(crate) fn tell(&mut self, key: ExtentKey, digest: Digest, stored: Option<(Codec, u32)>) {
        self.port.emit(Action::Note(Note::Content { key, digest, stored }));
    }

    /// Starts or stops reports of the volume's contents.
    pub(crate) fn tell_contents(&mut self, volume: VolumeId, tell: bool) {
        self.reported.retain(|other| *other != volume);
        if tell {
            self.reported.push(volume);
        }
    }

    /// Records the distrust of a volume, or of all.
    pub(crate) fn distrust(&mut self, volume: Option<VolumeId>) {
        let op = self.port.op(OpKind::Distrust(volume));
        self.port.emit(Action::Distrust { op, volume });
    }
}
