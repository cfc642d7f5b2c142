//! Failures of the cache device: the errors that take the cache offline, and the consequences.
//!
//! # Failure (G4)
//! A failed metadata write or flush, or several consecutive errors of WEU writes or extent reads, take the cache
//! offline: from then on requests go to the origin. Before an unmarked write may go there, the distrust of the
//! device's contents is recorded outside it ([`Action::Distrust`]).
//!
//! # The record
//! Until that record is durable the cache is *failing*: a restart would trust the device's contents outside marked
//! regions. Writes to regions with durable marks continue; the intent log, which a restart after a kill uses instead
//! of the marks, records their invalidations. Other writes wait. A failed record is retried at a bounded rate. Writes
//! that have waited 30 s fail: cache device and state directory are both broken then, and neither stale data nor an
//! endless wait is acceptable.

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

    /// Retries failed records of distrust, and fails writes that have waited too long.
    pub(crate) fn pump_distrusts(&mut self, core: &mut Core, clean: &mut Clean) {
        for volume in self.take_due(core.base.now_ms(), core.base.is_stopping()) {
            core.base.distrust(volume);
        }
        if core.base.is_failing() && self.is_patience_over(core.base.now_ms()) {
            clean.fail_unmarked_writes(core);
        }
    }

    /// Reports the distrusts that could not be recorded, at the end of a stop.
    pub(crate) fn tell_pending_distrusts(&mut self, core: &mut Core) {
        for volume in self.take_pending() {
            core.base.port.emit(Action::Note(Note::DistrustUnrecorded { volume }));
        }
    }
}
