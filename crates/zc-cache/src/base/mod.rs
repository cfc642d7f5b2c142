//! State that all components share: settings, the clock of the last tick, the port, counters, and the volumes.
//!
//! Components receive it with each call, and communicate with the driver through its port. Session, filter, tracks and
//! port have private fields; counters are plain numbers that any component increments.
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
pub mod origin_deadlines;
pub(crate) mod port;
pub(crate) mod rate;
pub(crate) mod session;
pub(crate) mod tracks;
pub(crate) mod volume;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    /// An index image; a small file index is in use until it is loaded.
    Image,
    Headers,
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Base {
    cfg: ManagerConfig,
    now_ms: u64,
    stopping: bool,
    /// Time of the last client write, or of the start.
    last_write_ms: u64,
    volumes: Map<VolumeId, Volume>,
    /// Volumes whose content sizes are reported when they are known.
    reported: Vec<VolumeId>,
    health: DeviceHealth,
    loading: Loading,
    effects: VecDeque<Effect>,
    pub(crate) session: Session,
    pub(crate) filter: CompressionFilter,
    /// Guards of work in progress.
    pub(crate) tracks: Tracks,
    pub(crate) port: Port<OpKind>,
    pub(crate) stats: Stats,
}

impl Base {
    /// Creates the state without volumes, at time 0, from the session found on the device.
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

    pub(crate) const fn cfg(&self) -> &ManagerConfig {
        &self.cfg
    }

    pub(crate) const fn extent_bytes(&self) -> u32 {
        self.cfg.geometry.extent_bytes
    }

    pub(crate) const fn whole_sectors(&self) -> Range<u32> {
        0..self.extent_bytes() / SECTOR_BYTES
    }

    pub(crate) const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub(crate) const fn begin(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.last_write_ms = now_ms;
    }

    /// Advances the time; an earlier time has no effect.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    pub(crate) const fn client_writes(&mut self) {
        self.last_write_ms = self.now_ms;
    }

    /// Returns `true` if no client has written for `ms`.
    pub(crate) const fn is_idle_for(&self, ms: u64) -> bool {
        self.now_ms.saturating_sub(self.last_write_ms) >= ms
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub(crate) const fn stop(&mut self) {
        self.stopping = true;
    }

    #[inline]
    pub(crate) fn is_loaded(&self) -> bool {
        self.loading == Loading::Nothing
    }

    /// Returns `true` while an index image is loaded; a small index is in use until then.
    #[inline]
    pub(crate) fn is_reading_image(&self) -> bool {
        self.loading == Loading::Image
    }

    /// Sets the state of loading; only recovery calls this.
    pub(crate) const fn set_loading(&mut self, loading: Loading) {
        self.loading = loading;
    }

    pub(crate) fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.volumes.get(&id)
    }

    pub(crate) fn volume_mut(&mut self, id: VolumeId) -> Option<&mut Volume> {
        self.volumes.get_mut(&id)
    }

    /// Volumes, in an order that differs between runs: simulations must not depend on it.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

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

    pub(crate) fn origin_mut(&mut self, id: VolumeId) -> &mut OriginTracker {
        self.volumes.get_mut(&id).expect_held().origin_mut()
    }

    /// Appends an effect for other components.
    pub(crate) fn announce(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(crate) fn take_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns `true` if no effect is pending.
    pub(crate) fn has_no_effects(&self) -> bool {
        self.effects.is_empty()
    }

    pub(crate) fn is_good(&self) -> bool {
        self.health.state() == Health::Good
    }

    /// Returns `true` if the device has failed and the record of distrust is not durable yet.
    pub(crate) fn is_failing(&self) -> bool {
        self.health.state() == Health::Failing
    }

    pub(crate) const fn health(&self) -> Health {
        self.health.state()
    }

    pub(crate) const fn distrust_is_recorded(&mut self) {
        self.health.recorded();
    }

    /// Takes the cache offline. [`Effect::DeviceFailed`] notifies the components.
    pub(crate) fn fail_device(&mut self, during: Purpose, error: ErrorKind) {
        if !self.health.fail() {
            return;
        }
        self.port.emit(Action::Note(Note::CacheFailed { during, error }));
        self.announce(Effect::DeviceFailed(error));
    }

    pub(crate) const fn device_read_worked(&mut self) {
        self.health.read_ended(false);
    }

    /// Records a failed read of the device. Too many in a row take the cache offline.
    pub(crate) fn device_read_failed(&mut self, purpose: Purpose, error: ErrorKind) {
        self.stats.device_read_errors += 1;
        if self.health.read_ended(true) {
            self.fail_device(purpose, error);
        }
    }

    pub(crate) const fn unit_write_worked(&mut self) {
        self.health.write_ended(false);
    }

    /// Records a failed write of a unit. Too many in a row take the cache offline.
    pub(crate) fn unit_write_failed(&mut self, error: ErrorKind) {
        self.stats.device_write_errors += 1;
        if self.health.write_ended(true) {
            self.fail_device(Purpose::WeuWrite, error);
        }
    }

    pub(crate) fn whole(&self, buf: BufId) -> BufSlice {
        BufSlice { buf, start_bytes: 0, len_bytes: self.extent_bytes() }
    }

    /// Requests the fingerprint of an extent.
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

    /// Records a loss of acknowledged writes, so that the next flush of the volume reports it, even if no read could
    /// detect it.
    pub(crate) fn owe_loss(&mut self, volume: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.origin_mut().owe_loss();
        }
    }

    /// Requests an origin flush that starts after the one in progress.
    pub(crate) fn flush_origin(&mut self, volume: VolumeId, waiter: FlushWaiter) {
        self.origin_mut(volume).want_flush(waiter);
        self.pump_origin_flush(volume);
    }

    /// Starts the requested origin flush unless one is in progress.
    pub(crate) fn pump_origin_flush(&mut self, volume: VolumeId) {
        let Self { volumes, port, .. } = self;
        volumes.get_mut(&volume).expect_held().origin_mut().pump_flush(volume, port);
    }

    /// Returns `true` if the cache is online and the volume is not in pass-through.
    pub(crate) fn is_used_by(&self, volume: VolumeId) -> bool {
        self.is_good()
            && self.volumes.get(&volume).is_some_and(|volume| volume.cfg().mode != Mode::PassThrough)
    }

    pub(crate) fn reports(&self, key: ExtentKey) -> bool {
        !self.reported.is_empty() && self.reported.contains(&key.volume)
    }

    pub(crate) fn tell(&mut self, key: ExtentKey, digest: Digest, stored: Option<(Codec, u32)>) {
        self.port.emit(Action::Note(Note::Content { key, digest, stored }));
    }

    pub(crate) fn tell_contents(&mut self, volume: VolumeId, tell: bool) {
        self.reported.retain(|other| *other != volume);
        if tell {
            self.reported.push(volume);
        }
    }

    pub(crate) fn distrust(&mut self, volume: Option<VolumeId>) {
        let op = self.port.op(OpKind::Distrust(volume));
        self.port.emit(Action::Distrust { op, volume });
    }
}
