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
//! that have waited [`RECORD_PATIENCE_MS`] in vain fail: cache device and state directory are both broken then, and
//! neither a stale byte nor an endless wait is a way out.

use zc_core::{ErrorKind, VolumeId};

use crate::manager::CacheManager;
use crate::op_kind::OpKind;
use crate::seam::{Action, Note, Purpose};

/// Errors in a row that put the cache out of order.
const ERRORS_IN_ROW_MAX: u32 = 8;
/// Time between the end of an attempt to record a distrust and the next attempt.
const RECORD_RETRY_MS: u64 = 1000;
/// Time after the failure of the device until writes that need the record fail instead of waiting for it.
const RECORD_PATIENCE_MS: u64 = 30_000;

/// State of the cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    /// It failed; the distrust of its contents is being recorded.
    Failing,
    /// Out of order; everything goes to the origin.
    Failed,
}

/// The records of distrust that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Distrusts {
    /// When the device failed.
    since_ms: u64,
    /// Records to try again: of volumes, or of all of them.
    owed: Vec<Option<VolumeId>>,
    /// Not before.
    retry_at_ms: u64,
    /// Writes that need the record of all volumes do not wait for it any more.
    impatient: bool,
    /// A stop has tried once more.
    last_try: bool,
}

/// Errors in a row.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorRuns {
    reads: u32,
    writes: u32,
}

impl CacheManager {
    /// Puts the cache out of order.
    pub(crate) fn fail_cache(&mut self, during: Purpose, error: ErrorKind) {
        if self.health != Health::Good {
            return;
        }
        self.health = Health::Failing;
        self.port.emit(Action::Note(Note::CacheFailed { during, error }));
        self.retirements.running = None;
        self.maps.writing = None;
        self.checkpoints.running = None;
        self.load = None;
        if let Some(open) = self.open.take() {
            self.port.release(open.buf);
        }
        self.fail_write_back(error);
        self.distrusts.since_ms = self.now_ms;
        self.distrust(None);
        self.admit_waiting();
        self.start_marked_pieces();
    }

    /// Whether the distrust of what a failed device holds is not recorded yet, so that some writes wait or fail.
    #[must_use]
    pub fn is_distrust_owed(&self) -> bool {
        self.health == Health::Failing
    }

    /// Has the distrust of a volume, or of all, recorded.
    pub(crate) fn distrust(&mut self, volume: Option<VolumeId>) {
        let op = self.port.op(OpKind::Distrust(volume));
        self.port.emit(Action::Distrust { op, volume });
    }

    /// An attempt to record a distrust ended.
    pub(crate) fn distrust_done(&mut self, volume: Option<VolumeId>, result: Result<(), ErrorKind>) {
        if result.is_err() {
            self.stats.distrust_failures += 1;
            self.distrusts.owed.push(volume);
            self.distrusts.retry_at_ms = self.now_ms + RECORD_RETRY_MS;
            return;
        }
        if volume.is_some() {
            return;
        }
        // The record of all covers each volume.
        self.distrusts.owed.clear();
        self.health = Health::Failed;
        self.start_marked_pieces();
        self.admit_waiting();
    }

    /// Tries again what could not be recorded, and ends waits that have lasted too long.
    pub(crate) fn pump_distrusts(&mut self) {
        let at_stop = self.stop.wanted && !self.distrusts.owed.is_empty() && !self.distrusts.last_try;
        let is_time = self.now_ms >= self.distrusts.retry_at_ms && !self.stop.wanted;
        if at_stop || is_time {
            self.distrusts.last_try = at_stop;
            let owed = core::mem::take(&mut self.distrusts.owed);
            owed.into_iter().for_each(|volume| self.distrust(volume));
        }
        if self.health != Health::Failing {
            return;
        }
        let waited_ms = self.now_ms.saturating_sub(self.distrusts.since_ms);
        // A stop does not wait either: what was not written has not been acknowledged.
        let is_stopping = self.distrusts.last_try && !self.distrusts.owed.is_empty();
        self.distrusts.impatient = waited_ms >= RECORD_PATIENCE_MS || is_stopping;
        if self.distrusts.impatient {
            for id in core::mem::take(&mut self.waiting.for_mark) {
                self.end_write(id, Err(ErrorKind::Io));
            }
        }
    }

    /// A stop ends: says what could not be recorded.
    pub(crate) fn tell_owed_distrusts(&mut self) {
        for volume in core::mem::take(&mut self.distrusts.owed) {
            self.port.emit(Action::Note(Note::DistrustUnrecorded { volume }));
        }
    }

    /// Counts extent reads that failed one after the other; true when there were too many.
    pub(crate) fn read_errors_in_row(&mut self, failed: bool) -> bool {
        self.errors.reads = if failed { self.errors.reads + 1 } else { 0 };
        self.errors.reads >= ERRORS_IN_ROW_MAX
    }

    /// Counts WEU writes that failed one after the other; true when there were too many.
    pub(crate) fn write_errors_in_row(&mut self, failed: bool) -> bool {
        self.errors.writes = if failed { self.errors.writes + 1 } else { 0 };
        self.errors.writes >= ERRORS_IN_ROW_MAX / 2
    }
}
