//! Failures of the cache device: the errors that put the cache out of service, and the consequences.
//!
//! # Failure (G4)
//! An error of a metadata write or of a flush, or several errors in a row of WEU writes or extent reads, put the
//! cache out of service: from then on requests go to the origin. Before an unmarked write may go there, the distrust
//! of the device's contents is recorded outside it ([`Action::Distrust`]).
//!
//! # The record
//! Until it is durable the cache stays *failing*: a restart would trust the device's contents outside marked regions.
//! Writes into regions whose marks are durable continue; the intent log, on which a restart after a kill relies
//! instead of the marks, records their invalidations. Other writes wait. A record that fails is retried at a bounded
//! rate. Writes that have waited 30 s without success fail: cache device and state directory are both broken then,
//! and neither a stale byte nor an endless wait is acceptable.

use zc_core::{ErrorKind, VolumeId};

use crate::base::health::Distrusts;
use crate::clean::Clean;
use crate::device::Core;
use crate::seam::{Action, Note};

impl Distrusts {
    /// Handles the completion of an attempt to record a distrust.
    pub(crate) fn distrust_done(
        &mut self,
        volume: Option<VolumeId>,
        result: Result<(), ErrorKind>,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        if result.is_err() {
            core.base.stats.distrust_failures += 1;
            self.record_failed(volume, core.base.now_ms());
            return;
        }
        if volume.is_some() {
            return;
        }
        self.all_recorded();
        core.base.distrust_is_recorded();
        clean.start_marked_pieces(core);
        clean.admit_waiting(core);
    }

    /// Tries again what could not be recorded, and ends waits that have lasted too long.
    pub(crate) fn pump_distrusts(&mut self, core: &mut Core, clean: &mut Clean) {
        for volume in self.take_due(core.base.now_ms(), core.base.is_stopping()) {
            core.base.distrust(volume);
        }
        if core.base.is_failing() && self.is_patience_over(core.base.now_ms()) {
            clean.fail_unmarked_writes(core);
        }
    }

    /// Reports the distrusts that could not be recorded, when a stop ends.
    pub(crate) fn tell_pending_distrusts(&mut self, core: &mut Core) {
        for volume in self.take_pending() {
            core.base.port.emit(Action::Note(Note::DistrustUnrecorded { volume }));
        }
    }
}
