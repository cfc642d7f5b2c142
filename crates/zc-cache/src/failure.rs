//! The cache device fails: what puts the cache out of order, and what follows.
//!
//! # Failure (G4)
//! An error of a metadata write or of a flush, or several errors in a row of WEU writes or extent reads, put the
//! cache out of order: from then on requests go to the origin. Before a write may go there unmarked, the distrust of
//! what the device holds is recorded outside it ([`Action::Distrust`]).
//!
//! # The record
//! Until it is durable the cache stays *failing*: a restart would believe what the device holds outside marked regions.
//! Writes into regions whose marks are durable go on; the intent log, on which a restart after a kill relies instead of
//! the marks, hears of what they void. Other writes wait. A record that fails is tried again at a bounded rate. Writes
//! that have waited 30 s in vain fail: cache device and state directory are both broken then, and neither a stale byte
//! nor an endless wait is a way out.

use zc_core::{ErrorKind, VolumeId};

use crate::base::Base;
use crate::health::Health;
use crate::manager::CacheManager;
use crate::op_kind::OpKind;
use crate::seam::{Action, Note};

impl Base {
    /// Has the distrust of a volume, or of all, recorded.
    pub(crate) fn distrust(&mut self, volume: Option<VolumeId>) {
        let op = self.port.op(OpKind::Distrust(volume));
        self.port.emit(Action::Distrust { op, volume });
    }
}

impl CacheManager {
    /// The cache is out of order: what each component makes of that.
    pub(crate) fn device_failed(&mut self, error: ErrorKind) {
        self.core.device.meta.device_failed();
        self.core.device.recovery.load = None;
        if let Some(open) = self.core.device.units.open.take() {
            self.core.base.port.release(open.buf);
        }
        self.dirty.fail_write_back(error, &mut self.core);
        self.distrusts.device_failed(self.core.base.now_ms);
        self.core.base.distrust(None);
        self.admit_waiting();
        self.clean.start_marked_pieces(&mut self.core);
    }

    /// Whether the distrust of what a failed device holds is not recorded yet, so that some writes wait or fail.
    #[must_use]
    pub fn is_distrust_owed(&self) -> bool {
        self.core.base.health == Health::Failing
    }

    /// An attempt to record a distrust ended.
    pub(crate) fn distrust_done(&mut self, volume: Option<VolumeId>, result: Result<(), ErrorKind>) {
        if result.is_err() {
            self.core.base.stats.distrust_failures += 1;
            self.distrusts.record_failed(volume, self.core.base.now_ms);
            return;
        }
        if volume.is_some() {
            return;
        }
        self.distrusts.all_recorded();
        self.core.base.health = Health::Failed;
        self.clean.start_marked_pieces(&mut self.core);
        self.admit_waiting();
    }

    /// Tries again what could not be recorded, and ends waits that have lasted too long.
    pub(crate) fn pump_distrusts(&mut self) {
        for volume in self.distrusts.take_due(self.core.base.now_ms, self.core.base.stopping) {
            self.core.base.distrust(volume);
        }
        if self.core.base.health == Health::Failing && self.distrusts.is_patience_over(self.core.base.now_ms)
        {
            for id in core::mem::take(&mut self.clean.waiting.for_mark) {
                self.dirty.end_write(id, Err(ErrorKind::Io), &mut self.core, &mut self.clean);
            }
        }
    }

    /// A stop ends: says what could not be recorded.
    pub(crate) fn tell_owed_distrusts(&mut self) {
        for volume in self.distrusts.take_owed() {
            self.core.base.port.emit(Action::Note(Note::DistrustUnrecorded { volume }));
        }
    }
}
