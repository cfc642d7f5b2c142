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

use crate::base::health::Distrusts;
use crate::clean::Clean;
use crate::device::Core;
use crate::seam::{Action, Note};

impl Distrusts {
    /// An attempt to record a distrust ended.
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

    /// A stop ends: says what could not be recorded.
    pub(crate) fn tell_pending_distrusts(&mut self, core: &mut Core) {
        for volume in self.take_pending() {
            core.base.port.emit(Action::Note(Note::DistrustUnrecorded { volume }));
        }
    }
}
