//! The cache device fails: what puts the cache out of order, and what follows.
//!
//! # Failure (G4)
//! An error of a metadata write or of a flush, or several errors in a row of WEU writes or extent reads, put the
//! cache out of order: from then on requests go to the origin. Before a write may go there unmarked, the distrust of
//! what the device holds is recorded outside it ([`Action::Distrust`]).

use zc_core::ErrorKind;

use crate::manager::{CacheManager, OpKind};
use crate::seam::{Action, Note, Purpose};

/// Errors in a row that put the cache out of order.
const ERRORS_IN_ROW_MAX: u32 = 8;

/// State of the cache device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    /// It failed; the distrust of its contents is being recorded.
    Failing,
    /// Out of order; everything goes to the origin.
    Failed,
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
        self.out.push(Action::Note(Note::CacheFailed { during, error }));
        self.retirements.running = None;
        self.maps.writing = None;
        self.checkpoints.running = None;
        self.load = None;
        if let Some(open) = self.open.take() {
            self.release(open.buf);
        }
        self.fail_write_back(error);
        let op = self.op(OpKind::Distrust);
        self.out.push(Action::Distrust { op, volume: None });
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
