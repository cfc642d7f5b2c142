//! Origin writes and flushes of a volume: the writes that an origin flush has covered, and losses that have not been
//! reported to clients.
//!
//! An origin reports a loss of writes once, to the first flush that completes, and not to concurrent ones. So a
//! volume's flushes are serialised. Flushes that arrive during a flush share the next one; if the flush in progress
//! fails, they fail too, because the next would succeed and hide the loss.
//!
//! Invariants: writes are counted when they complete, and a flush covers those that completed before it began. At most
//! one flush is in flight. Each loss is reported to clients once.
//!
//! Out of scope: replies to clients, and invalidation of cached contents of lost writes (`clean` does both).

use zc_core::{ErrorKind, ReqId, VolumeId};

use crate::base::port::Port;
use crate::expect_held::ExpectHeld;
use crate::ops::origin::Op;
use crate::seam::Action;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushWaiter {
    /// A client's flush.
    Client(ReqId),
    /// The retirement of region marks.
    Retire,
    /// The destaging of a run of epochs.
    Destage,
    Remove,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flush {
    /// Number of the last write that it covers.
    pub(crate) covers: u64,
    pub(crate) waiters: Vec<FlushWaiter>,
}

impl Flush {
    pub(crate) fn has_client(&self) -> bool {
        self.waiters.iter().any(|waiter| matches!(waiter, FlushWaiter::Client(_)))
    }
}

#[derive(Debug)]
pub(crate) struct OriginTracker {
    writes_ended: u64,
    writes_flushed: u64,
    /// Client writes that are in flight to the origin.
    direct_writes: u32,
    /// Number of the last completed client write.
    direct_ended: u64,
    /// Number of the last successful client write.
    direct_good: u64,
    /// Number of the last write whose possible loss was reported to clients by a failed flush.
    loss_heard: u64,
    /// A loss of client writes that the next client flush must report. It comes from a failed internal flush, since
    /// the origin reports the loss only once, or from an earlier session that was cut off.
    owes_error: Option<ErrorKind>,
    flush_failed: bool,
    /// Number of the last failed write. Part of it may be visible, and gone when the origin is reopened.
    write_failed: u64,
    current: Option<Flush>,
    next: Vec<FlushWaiter>,
}

impl OriginTracker {
    /// Creates the tracker of a session. `lost_writes`: an earlier session lost writes and has not reported it;
    /// `is_flushed`: the origin was flushed since.
    pub(crate) const fn new(lost_writes: bool, is_flushed: bool) -> Self {
        Self {
            // An earlier session may have made writes that the origin has not flushed.
            writes_ended: 1,
            writes_flushed: if is_flushed { 1 } else { 0 },
            direct_writes: 0,
            direct_ended: 1,
            direct_good: 1,
            loss_heard: 0,
            owes_error: if lost_writes { Some(ErrorKind::Io) } else { None },
            flush_failed: false,
            write_failed: 0,
            current: None,
            next: Vec::new(),
        }
    }

    pub(crate) const fn direct_write_begins(&mut self) {
        self.direct_writes += 1;
    }

    pub(crate) const fn direct_write_answered(&mut self) {
        self.direct_writes -= 1;
    }

    pub(crate) const fn has_direct_writes(&self) -> bool {
        self.direct_writes > 0
    }

    /// Completes an origin write of a client or of destaging; returns its number.
    pub(crate) const fn write_ended(&mut self, by_client: bool, is_good: bool) -> u64 {
        self.writes_ended += 1;
        if by_client {
            self.direct_ended = self.writes_ended;
            if is_good {
                self.direct_good = self.writes_ended;
            }
        }
        if !is_good {
            self.write_failed = self.writes_ended;
        }
        self.writes_ended
    }

    /// Counts all destaged writes as client writes, so that client flushes cover them and report their loss.
    pub(crate) const fn count_all_as_direct(&mut self) {
        self.direct_ended = self.writes_ended;
        self.direct_good = self.writes_ended;
    }

    pub(crate) const fn writes_flushed(&self) -> u64 {
        self.writes_flushed
    }

    pub(crate) const fn has_flush_failed(&self) -> bool {
        self.flush_failed
    }

    /// Returns `true` if reads may return data that the origin does not keep: part of a failed write that no flush has
    /// covered.
    pub(crate) const fn is_in_doubt(&self) -> bool {
        self.write_failed > self.writes_flushed
    }

    /// Returns `true` if a client flush has nothing to flush and no loss to report.
    pub(crate) const fn is_flushed(&self) -> bool {
        self.direct_ended <= self.writes_flushed && self.owes_error.is_none() && self.direct_writes == 0
    }

    pub(crate) const fn owes_loss(&self) -> bool {
        self.owes_error.is_some()
    }

    pub(crate) const fn owe_loss(&mut self) {
        self.owes_error = Some(ErrorKind::Io);
    }

    /// Takes the loss in order to report it.
    pub(crate) const fn take_loss(&mut self) -> Option<ErrorKind> {
        self.owes_error.take()
    }

    /// Requests a flush that starts after the one in progress.
    pub(crate) fn want_flush(&mut self, waiter: FlushWaiter) {
        self.next.push(waiter);
    }

    /// Returns `true` if a flush is in progress or requested.
    pub(crate) const fn is_flushing(&self) -> bool {
        self.current.is_some() || !self.next.is_empty()
    }

    /// Starts the requested flush unless one is in progress.
    pub(crate) fn pump_flush<K: From<Op>>(&mut self, volume: VolumeId, port: &mut Port<K>) {
        if self.current.is_some() || self.next.is_empty() {
            return;
        }
        let waiters = core::mem::take(&mut self.next);
        self.current = Some(Flush { covers: self.writes_ended, waiters });
        let op = port.op(Op::Flush(volume));
        port.emit(Action::OriginFlush { op, volume });
    }

    /// Completes the flush in progress. If it failed, the flushes that wait for the next one fail too.
    pub(crate) fn flush_ended(&mut self, result: Result<(), ErrorKind>) -> Flush {
        let mut flush = self.current.take().expect_held();
        self.flush_failed = result.is_err();
        match result {
            Ok(()) => self.writes_flushed = self.writes_flushed.max(flush.covers),
            Err(_) => flush.waiters.append(&mut self.next),
        }
        flush
    }

    /// Records that a failed client flush reported the loss of writes up to `covers`. A second report is not needed
    /// once the origin works again: it would fail the flush of the writes that repair the loss.
    pub(crate) fn loss_is_told_to(&mut self, covers: u64) {
        self.loss_heard = self.loss_heard.max(covers);
    }

    /// Records that the origin may have lost writes since its last flush. The next client flush reports it unless all
    /// of it was reported.
    pub(crate) fn unflushed_lost(&mut self, error: ErrorKind) {
        if self.direct_good > self.writes_flushed.max(self.loss_heard) {
            self.owes_error = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: VolumeId = VolumeId(1);
    const CLIENT: FlushWaiter = FlushWaiter::Client(ReqId(7));

    /// Requests a flush and completes it at once.
    fn flush(tracker: &mut OriginTracker, waiter: FlushWaiter, result: Result<(), ErrorKind>) -> Flush {
        let mut port = Port::<Op>::default();
        tracker.want_flush(waiter);
        tracker.pump_flush(V, &mut port);
        assert_eq!(port.ops().map(|(_, kind)| *kind).collect::<Vec<_>>(), [Op::Flush(V)]);
        tracker.flush_ended(result)
    }

    fn write(tracker: &mut OriginTracker, is_good: bool) -> u64 {
        tracker.direct_write_begins();
        let number = tracker.write_ended(true, is_good);
        tracker.direct_write_answered();
        number
    }

    #[test]
    fn an_origin_is_in_doubt_from_a_failed_write_to_the_flush_after_it() {
        let mut tracker = OriginTracker::new(false, false);
        write(&mut tracker, true);
        assert!(!tracker.is_in_doubt());
        write(&mut tracker, false);
        assert!(tracker.is_in_doubt());
        write(&mut tracker, true);
        flush(&mut tracker, CLIENT, Err(ErrorKind::Io));
        assert!(tracker.is_in_doubt(), "that flush failed");
        flush(&mut tracker, CLIENT, Ok(()));
        assert!(!tracker.is_in_doubt());
    }

    #[test]
    fn flushed_is_what_a_flush_has_covered_and_a_start_is_not() {
        let mut tracker = OriginTracker::new(false, false);
        assert!(!tracker.is_flushed(), "an earlier session may have written");
        assert!(OriginTracker::new(false, true).is_flushed(), "unless the driver flushed");
        flush(&mut tracker, CLIENT, Ok(()));
        assert!(tracker.is_flushed());
        tracker.direct_write_begins();
        assert!(!tracker.is_flushed());
        let number = tracker.write_ended(true, false);
        tracker.direct_write_answered();
        assert!(!tracker.is_flushed(), "one that failed may have happened in part");
        assert_eq!(flush(&mut tracker, FlushWaiter::Retire, Ok(())).covers, number);
        assert!(tracker.is_flushed());
        tracker.write_ended(false, true);
        assert!(tracker.is_flushed(), "clients have no part in what is destaged,");
        tracker.count_all_as_direct();
        assert!(!tracker.is_flushed(), "until they can read it there");
    }

    #[test]
    fn flushes_go_one_after_the_other_and_one_that_fails_takes_along_who_waits() {
        let mut port = Port::<Op>::default();
        let mut tracker = OriginTracker::new(false, false);
        let wants = |tracker: &mut OriginTracker, port: &mut Port<Op>, waiter| {
            tracker.want_flush(waiter);
            tracker.pump_flush(V, port);
        };
        wants(&mut tracker, &mut port, CLIENT);
        let late = tracker.write_ended(true, true);
        wants(&mut tracker, &mut port, FlushWaiter::Retire);
        assert_eq!(port.ops().count(), 1);
        let ended = tracker.flush_ended(Ok(()));
        assert!(ended.covers < late && ended.has_client());
        tracker.pump_flush(V, &mut port);
        wants(&mut tracker, &mut port, FlushWaiter::Destage);
        let failed = tracker.flush_ended(Err(ErrorKind::Io));
        assert_eq!(failed, Flush { covers: late, waiters: vec![FlushWaiter::Retire, FlushWaiter::Destage] });
        assert!(!failed.has_client() && tracker.has_flush_failed() && !tracker.is_flushing());
    }

    #[test]
    fn a_loss_is_owed_for_good_writes_of_clients_that_have_not_heard_of_it() {
        let mut tracker = OriginTracker::new(false, false);
        flush(&mut tracker, FlushWaiter::Retire, Ok(()));
        write(&mut tracker, false);
        tracker.write_ended(false, true);
        tracker.unflushed_lost(ErrorKind::Io);
        assert!(!tracker.owes_loss(), "that write failed, and the other one is no client's");
        write(&mut tracker, true);
        let covers = flush(&mut tracker, CLIENT, Err(ErrorKind::Io)).covers;
        tracker.loss_is_told_to(covers);
        tracker.unflushed_lost(ErrorKind::Io);
        assert!(!tracker.owes_loss(), "a flush of theirs has failed");
        write(&mut tracker, true);
        tracker.unflushed_lost(ErrorKind::NoSpace);
        assert_eq!(tracker.take_loss(), Some(ErrorKind::NoSpace));
        assert!(!tracker.owes_loss());
        assert!(OriginTracker::new(true, false).owes_loss());
    }
}
