//! A volume's writes and flushes at its origin: writes that an origin flush has covered, and losses that are not
//! reported to clients yet.
//!
//! An origin reports a loss of writes once, to the first flush, and not to flushes beside it. So a volume's flushes
//! are serialised. Flushes that arrive in the meantime share the next one, and if the one in progress fails, they
//! have failed, too: the next would succeed as if nothing had happened.
//!
//! Invariants: writes are counted as they complete, and a flush covers those that had completed when it began. At
//! most one flush is in flight. Each loss is reported to clients once.
//!
//! Out of scope: answering clients, and forgetting cached contents of lost writes (`clean` does).

use zc_core::{ErrorKind, ReqId, VolumeId};

use crate::base::port::Port;
use crate::expect_held::ExpectHeld;
use crate::ops::origin::Op;
use crate::seam::Action;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushWaiter {
    /// A client, for his answer.
    Client(ReqId),
    /// Regions whose marks are to be removed.
    Retire,
    /// A run of epochs that was written.
    Destage,
    /// The removal of the volume.
    Remove,
}

/// A flush that is in progress, or has completed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flush {
    /// The last write that it covers.
    pub(crate) covers: u64,
    pub(crate) waiters: Vec<FlushWaiter>,
}

impl Flush {
    /// Returns `true` if a client waits for it.
    pub(crate) fn has_client(&self) -> bool {
        self.waiters.iter().any(|waiter| matches!(waiter, FlushWaiter::Client(_)))
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct OriginTracker {
    /// Writes that completed, with any outcome.
    writes_ended: u64,
    writes_flushed: u64,
    /// Writes of clients on their way to the origin.
    direct_writes: u32,
    /// Last completed write of a client.
    direct_ended: u64,
    /// The last one of these that succeeded.
    direct_good: u64,
    /// Number of the last write whose possible loss was reported to clients: a flush of theirs failed.
    loss_heard: u64,
    /// Writes of clients may be lost without a report: a flush of ours failed, of which the origin reports the loss
    /// only once, or a session before this one was cut off. So the next flush of a client has to report it.
    owes_error: Option<ErrorKind>,
    flush_failed: bool,
    /// The last write that failed there. Part of it may be visible, and gone when the origin is reopened.
    write_failed: u64,
    current: Option<Flush>,
    next: Vec<FlushWaiter>,
}

impl OriginTracker {
    /// Tracker of a session; `lost_writes`: clients have no report yet of writes lost by an earlier one;
    /// `is_flushed`: the origin was flushed.
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

    /// Returns `true` if a client has a write in progress.
    pub(crate) const fn has_direct_writes(&self) -> bool {
        self.direct_writes > 0
    }

    /// Completes a write of a client, or of destaging, at the origin; returns its number.
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

    /// Counts all destaged writes as client writes: to be flushed, and missed.
    pub(crate) const fn count_all_as_direct(&mut self) {
        self.direct_ended = self.writes_ended;
        self.direct_good = self.writes_ended;
    }

    /// The last write that a flush has covered.
    pub(crate) const fn writes_flushed(&self) -> u64 {
        self.writes_flushed
    }

    /// Returns `true` if the last flush failed.
    pub(crate) const fn has_flush_failed(&self) -> bool {
        self.flush_failed
    }

    /// Returns `true` if reads may see data that the origin does not keep: part of a write that failed, which no
    /// flush has covered.
    pub(crate) const fn is_in_doubt(&self) -> bool {
        self.write_failed > self.writes_flushed
    }

    /// Returns `true` if a flush of a client has nothing to do there, and nothing to report.
    pub(crate) const fn is_flushed(&self) -> bool {
        self.direct_ended <= self.writes_flushed && self.owes_error.is_none() && self.direct_writes == 0
    }

    /// Returns `true` if a loss is not reported to clients yet.
    pub(crate) const fn owes_loss(&self) -> bool {
        self.owes_error.is_some()
    }

    /// Records that acknowledged writes are lost: the next flush of a client reports it.
    pub(crate) const fn owe_loss(&mut self) {
        self.owes_error = Some(ErrorKind::Io);
    }

    /// Takes the loss, which is reported to clients now.
    pub(crate) const fn take_loss(&mut self) -> Option<ErrorKind> {
        self.owes_error.take()
    }

    /// Requests a flush after the one in progress.
    pub(crate) fn want_flush(&mut self, waiter: FlushWaiter) {
        self.next.push(waiter);
    }

    /// Returns `true` if the origin is being flushed, or will be.
    pub(crate) const fn is_flushing(&self) -> bool {
        self.current.is_some() || !self.next.is_empty()
    }

    /// Flushes the origin if that is requested and possible now.
    pub(crate) fn pump_flush<K: From<Op>>(&mut self, volume: VolumeId, port: &mut Port<K>) {
        if self.current.is_some() || self.next.is_empty() {
            return;
        }
        let waiters = core::mem::take(&mut self.next);
        self.current = Some(Flush { covers: self.writes_ended, waiters });
        let op = port.op(Op::Flush(volume));
        port.emit(Action::OriginFlush { op, volume });
    }

    /// Completes the flush in progress: if it failed, the flushes that wait for the next have failed, too.
    pub(crate) fn flush_ended(&mut self, result: Result<(), ErrorKind>) -> Flush {
        let mut flush = self.current.take().expect_held();
        self.flush_failed = result.is_err();
        match result {
            Ok(()) => self.writes_flushed = self.writes_flushed.max(flush.covers),
            Err(_) => flush.waiters.append(&mut self.next),
        }
        flush
    }

    /// Records that a client's flush that covers writes up to this one fails. The client has the report of their
    /// loss, and needs no second one when the origin works: the writes that repair it must not fail for that.
    pub(crate) fn loss_is_told_to(&mut self, covers: u64) {
        self.loss_heard = self.loss_heard.max(covers);
    }

    /// Records that the origin may have lost writes since its last flush: the next flush of a client reports it,
    /// unless all of it was reported.
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

    /// Ends a requested flush at once.
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
