//! State of the destaging of one volume.

use core::ops::RangeInclusive;

use zc_core::ExtentNo;

use crate::dirty::versions::Version;

/// Backlog of epochs from which destaging runs without a pause. Above this backlog destaging is not paced; below it,
/// pacing keeps origin flushes and records from competing with those of clients.
pub(crate) const EPOCHS_CROWDED: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Destaging {
    pub(super) step: DestagePhase,
    pub(super) failures: u32,
    pub(super) not_before_ms: u64,
    /// The current run of failures was reported.
    pub(super) noted: bool,
    /// Version that the cache device failed to return in the last attempt.
    pub(super) stuck: Option<(ExtentNo, Version)>,
    /// Bytes of the run that were issued to the origin, or skipped for good.
    pub(super) issued_bytes: u64,
    /// Last epoch of a step that runs without a pause because it replaces unreadable data.
    pub(super) step_until: u64,
    /// The last attempt failed because the origin has no space.
    pub(super) out_of_space: bool,
    /// Last epoch whose discards are on the origin.
    pub(super) discarded_to: u64,
    /// Discards since the origin ran out of space are not committed yet.
    discards_wait: bool,
}

/// Progress of the discards of later epochs with which a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Discards from this cursor on are still to be issued, up to that epoch.
    Issuing { from: Cursor, to: u64 },
    /// All are issued, and some are in flight.
    Issued { to: u64 },
    /// None are left.
    Done,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum DestagePhase {
    #[default]
    Idle,
    /// Writes of the run are being issued or are in flight.
    Writing {
        run: RangeInclusive<u64>,
        /// Discards of later epochs, issued first.
        ahead: Ahead,
        /// Sectors from here on are still to be written; `None`: all are issued.
        next: Option<Cursor>,
        in_flight: u32,
        failed: bool,
    },
    /// The run is being flushed, up to this epoch. `spoiled`: another flush failed at the same time, or an equivalent
    /// failure occurred.
    Flushing { epoch: u64, spoiled: bool },
    /// `Clean` is being recorded, at this journal position.
    Recording { epoch: u64, position: u64 },
}

impl Destaging {
    /// The epoch that is on the origin while its `Clean` record is not durable yet.
    pub(crate) fn recorded(&self) -> Option<u64> {
        match self.step {
            DestagePhase::Recording { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.step != DestagePhase::Idle
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.is_some()
    }

    pub(crate) fn stuck_at(&self) -> Option<&(ExtentNo, Version)> {
        self.stuck.as_ref()
    }

    /// Clears the version that blocked destaging, since it is no longer needed: the next attempt follows at once.
    pub(crate) fn try_again(&mut self) {
        self.stuck = None;
        self.not_before_ms = 0;
    }

    /// Ends the pause after a failure.
    pub(crate) fn retry_now(&mut self) {
        self.not_before_ms = 0;
    }

    /// Returns `true` if the last attempt failed because the origin has no space.
    pub(crate) const fn is_out_of_space(&self) -> bool {
        self.out_of_space
    }

    /// Records that the origin may have free space again: a run that was refused for lack of it is retried at once.
    pub(crate) const fn may_have_space(&mut self) {
        if self.out_of_space {
            self.not_before_ms = 0;
        }
    }

    /// Records a discard. Returns `true` if it should reach the origin soon.
    pub(crate) const fn discards(&mut self) -> bool {
        self.discards_wait |= self.out_of_space;
        self.discards_wait
    }

    /// Records a committed epoch; `all`: no later writes are dirty. The origin then receives its discards.
    pub(crate) const fn committed(&mut self, all: bool) {
        if self.discards_wait {
            self.may_have_space();
            self.discards_wait = !all;
        }
    }

    /// Returns `true` if the last attempt failed, for any reason.
    pub(crate) fn is_refused(&self) -> bool {
        self.failures > 0
    }

    /// Returns `true` if writes to the origin are in flight, which could overwrite a later write that bypasses them.
    pub(crate) fn is_writing(&self) -> bool {
        matches!(self.step, DestagePhase::Writing { in_flight, .. } if in_flight > 0)
    }

    /// Returns `true` if the epoch belongs to a step that runs without a pause.
    pub(crate) fn is_in_step(&self, epoch: u64) -> bool {
        epoch <= self.step_until
    }

    /// Continues without a pause up to this epoch.
    pub(crate) fn hurry_until(&mut self, epoch: u64) {
        self.step_until = epoch.max(self.step_until);
    }

    /// Abandons the operations in flight, and ignores their results.
    pub(crate) fn give_up(&mut self) {
        *self = Self::default();
    }
}

/// Position in a volume: extent, and sector in it.
pub(super) type Cursor = (ExtentNo, u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discard_lets_an_origin_without_space_be_tried_again() {
        let mut destaging = Destaging { not_before_ms: 500, ..Destaging::default() };
        destaging.may_have_space();
        assert_eq!(destaging.not_before_ms, 500, "it has space, and fails for another reason");
        assert!(!destaging.discards());
        destaging.out_of_space = true;
        assert!(destaging.discards());
        destaging.committed(false);
        assert_eq!(destaging.not_before_ms, 0);
        assert!(destaging.discards_wait, "what was written since may discard, too");
        destaging.committed(true);
        assert!(!destaging.discards_wait);
    }

    #[test]
    fn a_step_without_a_pause_ends_with_the_last_epoch_that_asked_for_it() {
        let mut destaging = Destaging::default();
        destaging.hurry_until(7);
        destaging.hurry_until(5);
        assert!(destaging.is_in_step(7) && !destaging.is_in_step(8));
        destaging.step = DestagePhase::Recording { epoch: 7, position: 3 };
        assert_eq!(
            (destaging.recorded(), destaging.is_busy(), destaging.is_writing()),
            (Some(7), true, false)
        );
        destaging.give_up();
        assert!(!destaging.is_busy() && !destaging.is_in_step(1));
    }
}
