//! Health of the cache device: its state, consecutive errors, and records of distrust that are not durable yet.
//!
//! Invariants: a failed record of distrust is retried until it is durable or a stop has retried it once. Out of scope:
//! reactions to failures (see `failure`).

use zc_core::VolumeId;

/// Consecutive errors after which the cache goes offline.
const ERRORS_IN_ROW_MAX: u32 = 8;
/// Delay between attempts to record a distrust.
const RECORD_RETRY_MS: u64 = 1000;
/// Time after a device failure from which writes that need the record of distrust fail instead of waiting for it.
const RECORD_PATIENCE_MS: u64 = 30_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    /// The device failed, and the distrust of its contents is being recorded.
    Failing,
    /// Offline: all requests go to the origin.
    Failed,
}

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

    /// Marks the device as failed. Returns `true` on the first call.
    pub(crate) fn fail(&mut self) -> bool {
        let was_good = self.state == Health::Good;
        if was_good {
            self.state = Health::Failing;
        }
        was_good
    }

    pub(crate) const fn recorded(&mut self) {
        self.state = Health::Failed;
    }

    /// Records the result of a read. Returns `true` if too many have failed in a row.
    pub(crate) const fn read_ended(&mut self, failed: bool) -> bool {
        self.errors.read_ended(failed)
    }

    /// Records the result of a write of a WEU. Returns `true` if too many have failed in a row.
    pub(crate) const fn write_ended(&mut self, failed: bool) -> bool {
        self.errors.write_ended(failed)
    }
}

/// Records of distrust that are not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Distrusts {
    since_ms: u64,
    /// Records to retry: a volume, or `None` for all volumes.
    pending: Vec<Option<VolumeId>>,
    retry_at_ms: u64,
    /// The stop has made its only retry.
    last_try: bool,
}

impl Distrusts {
    /// Starts the wait for the record that covers all volumes.
    pub(crate) const fn device_failed(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
    }

    pub(crate) fn record_failed(&mut self, volume: Option<VolumeId>, now_ms: u64) {
        self.pending.push(volume);
        self.retry_at_ms = now_ms + RECORD_RETRY_MS;
    }

    /// Handles the durability of the record of all volumes, which covers each of them.
    pub(crate) fn all_recorded(&mut self) {
        self.pending.clear();
    }

    /// Takes the records that are due for a retry. A stop retries once, without a delay.
    pub(crate) fn take_due(&mut self, now_ms: u64, is_stopping: bool) -> Vec<Option<VolumeId>> {
        let at_stop = is_stopping && !self.pending.is_empty() && !self.last_try;
        let is_time = now_ms >= self.retry_at_ms && !is_stopping;
        if !(at_stop || is_time) {
            return Vec::new();
        }
        self.last_try = at_stop;
        core::mem::take(&mut self.pending)
    }

    /// Returns `true` if writes that need the record of all volumes should fail instead of waiting for it.
    pub(crate) const fn is_patience_over(&self, now_ms: u64) -> bool {
        // A stop does not wait either: the failed writes have not been acknowledged.
        let has_stop_tried = self.last_try && !self.pending.is_empty();
        has_stop_tried || now_ms.saturating_sub(self.since_ms) >= RECORD_PATIENCE_MS
    }

    pub(crate) fn take_pending(&mut self) -> Vec<Option<VolumeId>> {
        core::mem::take(&mut self.pending)
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct ErrorRuns {
    reads: u32,
    writes: u32,
}

impl ErrorRuns {
    /// Records the result of a read of the device. Returns `true` if too many have failed in a row.
    const fn read_ended(&mut self, failed: bool) -> bool {
        self.reads = if failed { self.reads + 1 } else { 0 };
        self.reads >= ERRORS_IN_ROW_MAX
    }

    /// Records the result of a write of a WEU. Returns `true` if too many have failed in a row.
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
