//! Health of the cache device: its state, errors in a row, and the records of distrust that are not durable yet.
//!
//! Job: count and remember. Invariants: a record of distrust that failed is retried until it is durable or a stop has
//! tried once more. Out of scope: acting on any of it (`failure` does).

use zc_core::VolumeId;

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
    /// The device failed; the distrust of its contents is being recorded.
    Failing,
    /// Out of order; everything goes to the origin.
    Failed,
}

/// The state of the cache device and its errors in a row.
#[derive(Debug)]
pub(crate) struct DeviceHealth {
    state: Health,
    errors: ErrorRuns,
}

impl Default for DeviceHealth {
    fn default() -> Self {
        Self { state: Health::Good, errors: ErrorRuns::default() }
    }
}

impl DeviceHealth {
    pub(crate) const fn state(&self) -> Health {
        self.state
    }

    /// Marks the device as failed. Returns `true` if it worked until now.
    pub(crate) fn fail(&mut self) -> bool {
        let was_good = self.state == Health::Good;
        if was_good {
            self.state = Health::Failing;
        }
        was_good
    }

    /// Marks the distrust of its contents as recorded.
    pub(crate) const fn recorded(&mut self) {
        self.state = Health::Failed;
    }

    /// Records the result of a read; returns `true` when too many failed in a row.
    pub(crate) const fn read_ended(&mut self, failed: bool) -> bool {
        self.errors.read_ended(failed)
    }

    /// Records the result of a write of a WEU; returns `true` when too many failed in a row.
    pub(crate) const fn write_ended(&mut self, failed: bool) -> bool {
        self.errors.write_ended(failed)
    }
}

/// The records of distrust that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Distrusts {
    /// Time at which the device failed.
    since_ms: u64,
    /// Records to try again: of volumes, or of all of them.
    pending: Vec<Option<VolumeId>>,
    retry_at_ms: u64,
    /// A stop has tried once more.
    last_try: bool,
}

impl Distrusts {
    /// Marks the device as failed: the wait for the record of all volumes begins.
    pub(crate) const fn device_failed(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
    }

    /// Records that an attempt to record the distrust of a volume, or of all, failed.
    pub(crate) fn record_failed(&mut self, volume: Option<VolumeId>, now_ms: u64) {
        self.pending.push(volume);
        self.retry_at_ms = now_ms + RECORD_RETRY_MS;
    }

    /// Records that the record of all is durable. It covers each volume.
    pub(crate) fn all_recorded(&mut self) {
        self.pending.clear();
    }

    /// Takes the records that are due for a retry. A stop tries once, without a delay.
    pub(crate) fn take_due(&mut self, now_ms: u64, is_stopping: bool) -> Vec<Option<VolumeId>> {
        let at_stop = is_stopping && !self.pending.is_empty() && !self.last_try;
        let is_time = now_ms >= self.retry_at_ms && !is_stopping;
        if !(at_stop || is_time) {
            return Vec::new();
        }
        self.last_try = at_stop;
        core::mem::take(&mut self.pending)
    }

    /// Returns `true` if writes that need the record of all volumes do not wait for it any more.
    pub(crate) const fn is_patience_over(&self, now_ms: u64) -> bool {
        // A stop does not wait either: unwritten data has not been acknowledged.
        let has_stop_tried = self.last_try && !self.pending.is_empty();
        has_stop_tried || now_ms.saturating_sub(self.since_ms) >= RECORD_PATIENCE_MS
    }

    /// Takes the distrusts that could not be recorded.
    pub(crate) fn take_pending(&mut self) -> Vec<Option<VolumeId>> {
        core::mem::take(&mut self.pending)
    }
}

/// Errors in a row.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct ErrorRuns {
    reads: u32,
    writes: u32,
}

impl ErrorRuns {
    /// Records the result of a read of the device; returns `true` when too many failed in a row.
    const fn read_ended(&mut self, failed: bool) -> bool {
        self.reads = if failed { self.reads + 1 } else { 0 };
        self.reads >= ERRORS_IN_ROW_MAX
    }

    /// Records the result of a write of a WEU; returns `true` when too many failed in a row.
    const fn write_ended(&mut self, failed: bool) -> bool {
        self.writes = if failed { self.writes + 1 } else { 0 };
        self.writes >= ERRORS_IN_ROW_MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: Option<VolumeId> = Some(VolumeId(1));

    #[test]
    fn a_record_that_failed_is_due_again_after_a_while_until_all_are_covered() {
        let mut distrusts = Distrusts::default();
        distrusts.record_failed(V, 100);
        assert!(distrusts.take_due(100 + RECORD_RETRY_MS - 1, false).is_empty());
        assert_eq!(distrusts.take_due(100 + RECORD_RETRY_MS, false), [V]);
        distrusts.record_failed(None, 5000);
        distrusts.record_failed(V, 5000);
        distrusts.all_recorded();
        assert!(distrusts.take_due(9000, false).is_empty());
    }

    #[test]
    fn a_stop_tries_once_and_then_no_write_waits() {
        let mut distrusts = Distrusts::default();
        distrusts.device_failed(100);
        distrusts.record_failed(None, 100);
        assert_eq!(distrusts.take_due(101, true), [None]);
        assert!(!distrusts.is_patience_over(101), "the last attempt is under way");
        distrusts.record_failed(None, 102);
        assert!(distrusts.take_due(90_000, true).is_empty());
        assert!(distrusts.is_patience_over(102));
        assert_eq!(distrusts.take_pending(), [None]);
    }

    #[test]
    fn patience_ends_by_itself() {
        let mut distrusts = Distrusts::default();
        distrusts.device_failed(100);
        assert!(!distrusts.is_patience_over(100 + RECORD_PATIENCE_MS - 1));
        assert!(distrusts.is_patience_over(100 + RECORD_PATIENCE_MS));
    }

    #[test]
    fn a_device_fails_once_and_stays_failed() {
        let mut health = DeviceHealth::default();
        assert!(health.fail() && !health.fail());
        assert_eq!(health.state(), Health::Failing);
        health.recorded();
        assert!(!health.fail());
        assert_eq!(health.state(), Health::Failed);
    }

    #[test]
    fn only_errors_in_a_row_count() {
        let mut errors = ErrorRuns::default();
        let reads = (1..ERRORS_IN_ROW_MAX).map(|_| errors.read_ended(true));
        assert!(!reads.fold(false, |any, many| any | many));
        assert!(!errors.read_ended(false));
        let reads: Vec<_> = (0..ERRORS_IN_ROW_MAX).map(|_| errors.read_ended(true)).collect();
        assert!(reads.ends_with(&[false, true]));
        assert!((1..ERRORS_IN_ROW_MAX / 2).all(|_| !errors.write_ended(true)) && errors.write_ended(true));
    }
}
