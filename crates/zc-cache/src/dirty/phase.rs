//! State machine of a volume's dirty data, and the conditions that suspend it.
//!
//! Holds the decisions of settings, operators and starts about the dirty data of a volume, and derives the
//! consequences.
//!
//! # The course
//! A volume has one course at a time:
//!
//! | course | event | next course |
//! |---|---|---|
//! | serving | an operator requests a drain, and some data is dirty | draining, up to the newest dirty epoch |
//! | serving, draining | the settings end write-back, and some data is dirty | leaving |
//! | leaving | little dirty data is left, or it took too long | leaving, and new writes wait |
//! | leaving | other settings are applied | the previous course, or leaving again |
//! | draining | data dirty at the request is on the origin; newer writes may be dirty | serving |
//! | leaving | no data is dirty | serving, with the pending settings |
//! | serving, draining | a clearing is much longer than the dirty data | clearing, and new writes wait |
//! | clearing | no data is dirty | serving; the clearing is sent to the origin |
//! | clearing | the origin refuses, a stop begins, or it took too long | the previous course; the clearing becomes
//! dirty |
//!
//! # Conditions
//! Each of these conditions can occur on any course, which resumes afterwards:
//! - *fenced*: a start could not determine all dirty data, or the origin has changed. It ends when an operator accepts
//!   the loss, or when the data is dropped.
//! - *dropping*: the data is dropped as soon as none of it is in flight. It ends with the data, or with a device that
//!   cannot record it.
//! - *unrecorded*: a decision is not durable yet. It ends when the journal contains it, and never if the device is
//!   lost.
//!
//! Invariants: only the courses of leaving and clearing make new writes wait; a drop ends once; a fence is reported
//! once until it is lifted. Ending a condition that has not begun is a broken invariant and panics.
//!
//! `tests/manager/phases.rs` combines each phase with each event and each kind of process end.
//!
//! Out of scope: reading the data, and acting.

use crate::config::VolumeConfig;
use crate::dirty::versions::Body;
use crate::expect_held::ExpectHeld;

/// Number of dirty records, or time, from which a volume that leaves write-back makes new writes wait.
const LEAVE_RECORDS: u64 = 256;
const LEAVE_MS: u64 = 30_000;
/// Maximum wait of a clearing for the destaging of all dirty data, in milliseconds.
const CLEAR_MS: u64 = 5_000;

/// Settings that wait until nothing is dirty.
#[derive(Debug)]
struct Leaving {
    cfg: Box<VolumeConfig>,
    since_ms: u64,
    makes_writes_wait: bool,
    /// Last epoch of the drain that an operator requested before.
    drain_until: Option<u64>,
}

#[derive(Debug, Default)]
enum Course {
    #[default]
    Serving,
    Draining {
        /// Newest dirty epoch at the time of the request.
        until: u64,
    },
    Leaving(Leaving),
    /// A clearing waits until all dirty data is on the origin.
    Clearing {
        since_ms: u64,
        /// Last epoch of the drain that an operator requested before.
        drain_until: Option<u64>,
    },
}

/// Manner in which dirty data is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropping {
    /// The decision is recorded outside the device, which need not record it.
    pub(super) is_remembered: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Phase {
    course: Course,
    fenced: bool,
    /// The fence was reported, including one caused by a lost device.
    is_fence_noted: bool,
    dropping: Option<Dropping>,
    /// Bodies that a start without a record of the decision would read.
    unrecorded: Option<Vec<Body>>,
}

impl Phase {
    /// Begins a drain: all epochs up to this one are destaged without a pause. A later request extends the drain; none
    /// shortens it.
    pub(crate) fn drain(&mut self, until: u64) {
        let until = self.drain_until().map_or(until, |earlier| earlier.max(until));
        self.set_drain(Some(until));
    }

    fn set_drain(&mut self, until: Option<u64>) {
        match &mut self.course {
            Course::Leaving(leaving) => leaving.drain_until = until,
            Course::Clearing { drain_until, .. } => *drain_until = until,
            course => *course = until.map_or(Course::Serving, |until| Course::Draining { until }),
        }
    }

    /// Stores settings to apply once no data is dirty.
    pub(crate) fn leave(&mut self, cfg: VolumeConfig, since_ms: u64) {
        let drain_until = self.drain_until();
        let cfg = Box::new(cfg);
        self.course = Course::Leaving(Leaving { cfg, since_ms, makes_writes_wait: false, drain_until });
    }

    /// Drops the pending settings.
    pub(crate) fn stay(&mut self) {
        if matches!(self.course, Course::Leaving(_)) {
            self.course = self.drain_until().map_or(Course::Serving, |until| Course::Draining { until });
        }
    }

    const fn drain_until(&self) -> Option<u64> {
        match &self.course {
            Course::Serving => None,
            Course::Draining { until } => Some(*until),
            Course::Leaving(leaving) => leaving.drain_until,
            Course::Clearing { drain_until, .. } => *drain_until,
        }
    }

    /// Begins a clearing, the first of the waiting writes, which is sent to the origin once no data is dirty.
    pub(crate) fn clear(&mut self, since_ms: u64) {
        debug_assert!(!self.is_leaving(), "settings wait, and writes may");
        if !self.is_clearing() {
            self.course = Course::Clearing { since_ms, drain_until: self.drain_until() };
        }
    }

    /// Ends the wait of the clearing.
    pub(crate) fn clear_no_more(&mut self) {
        if self.is_clearing() {
            self.course = self.drain_until().map_or(Course::Serving, |until| Course::Draining { until });
        }
    }

    /// Returns `true` if a clearing waits.
    pub(crate) const fn is_clearing(&self) -> bool {
        matches!(self.course, Course::Clearing { .. })
    }

    /// Returns `true` if a clearing has waited too long.
    pub(crate) const fn clears_late(&self, now_ms: u64) -> bool {
        matches!(self.course, Course::Clearing { since_ms, .. } if now_ms.saturating_sub(since_ms) >= CLEAR_MS)
    }

    /// Makes new writes wait if the volume leaves write-back and little dirty data is left, or leaving takes too long.
    pub(crate) fn press(&mut self, records: u64, now_ms: u64) {
        if let Course::Leaving(leaving) = &mut self.course {
            let late = now_ms.saturating_sub(leaving.since_ms) >= LEAVE_MS;
            leaving.makes_writes_wait |= late || records <= LEAVE_RECORDS;
        }
    }

    /// Records that all epochs up to this one are on the origin, which may end a drain.
    pub(crate) fn drained(&mut self, clean: u64) {
        if self.drain_until().is_some_and(|until| until <= clean) {
            self.set_drain(None);
        }
    }

    /// Returns the pending settings once no data is dirty and no condition prevents applying them.
    pub(crate) fn arrive(&mut self) -> Option<VolumeConfig> {
        match core::mem::take(&mut self.course) {
            Course::Leaving(leaving) => Some(*leaving.cfg),
            Course::Serving | Course::Draining { .. } | Course::Clearing { .. } => None,
        }
    }

    /// Returns `true` if dirty data is written to the origin without a pause.
    pub(crate) const fn is_draining(&self) -> bool {
        !matches!(self.course, Course::Serving)
    }

    /// Newest epoch that is destaged without a pause, if any.
    pub(crate) const fn drains_until(&self) -> Option<u64> {
        match &self.course {
            Course::Serving => None,
            Course::Draining { until } => Some(*until),
            // Pending settings and clearings need all of it on the origin.
            Course::Leaving(_) | Course::Clearing { .. } => Some(u64::MAX),
        }
    }

    /// Returns `true` if settings wait.
    pub(crate) const fn is_leaving(&self) -> bool {
        matches!(self.course, Course::Leaving(_))
    }

    /// Returns `true` if new writes wait.
    pub(crate) const fn makes_writes_wait(&self) -> bool {
        matches!(
            self.course,
            Course::Leaving(Leaving { makes_writes_wait: true, .. }) | Course::Clearing { .. }
        )
    }

    /// Fences the volume: its dirty data is not completely known, or the origin has changed. The caller reports it.
    pub(crate) const fn fence(&mut self) {
        self.fenced = true;
        self.is_fence_noted = true;
    }

    /// Lifts the fence; a later one is reported again. Returns `true` if the volume was fenced.
    pub(crate) const fn accept_loss(&mut self) -> bool {
        let was_fenced = self.fenced;
        if was_fenced {
            self.fenced = false;
            self.is_fence_noted = false;
        }
        was_fenced
    }

    /// Returns `true` if an operator has to decide.
    pub(crate) const fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Fences the volume because the device is lost. Returns `true` if the caller must report it.
    pub(crate) const fn tell_fence(&mut self) -> bool {
        !core::mem::replace(&mut self.is_fence_noted, true)
    }

    /// Requests a drop of the data as soon as none of it is in flight.
    pub(crate) const fn drop_data(&mut self, how: Dropping) {
        self.dropping = Some(how);
    }

    pub(crate) const fn dropping(&self) -> Option<Dropping> {
        self.dropping
    }

    /// Ends a drop without effect: the device was lost before it recorded the drop.
    pub(crate) fn drop_failed(&mut self) {
        self.dropping.take().expect_held();
    }

    /// Completes a drop, which also lifts a fence and ends an earlier decision. Returns `true` if there was a fence,
    /// and the bodies of that decision.
    pub(crate) fn dropped(&mut self) -> (bool, Vec<Body>) {
        self.dropping.take().expect_held();
        (core::mem::take(&mut self.fenced), self.unrecorded.take().unwrap_or_default())
    }

    /// Records a decision about the data that takes effect once the journal is durable. `bodies` are those that a
    /// start without a record of the decision would read.
    pub(crate) fn decide(&mut self, bodies: Vec<Body>) {
        self.unrecorded.get_or_insert_default().extend(bodies);
    }

    /// Records that the decision is durable. Returns the bodies that starts no longer read, or `None` if no decision
    /// was pending.
    pub(crate) const fn recorded(&mut self) -> Option<Vec<Body>> {
        self.unrecorded.take()
    }

    /// Returns `true` if a decision is not durable.
    pub(crate) const fn is_unrecorded(&self) -> bool {
        self.unrecorded.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_core::{Mode, VolumeId};

    fn through() -> VolumeConfig {
        VolumeConfig { mode: Mode::WriteThrough, ..VolumeConfig::new(VolumeId(1), 1 << 20, 1 << 16) }
    }

    fn course(phase: &Phase) -> (bool, bool, bool) {
        (phase.is_draining(), phase.is_leaving(), phase.makes_writes_wait())
    }

    #[test]
    fn a_drain_lasts_until_its_epoch_is_clean() {
        let mut phase = Phase::default();
        phase.drained(7);
        assert_eq!((course(&phase), phase.drains_until()), ((false, false, false), None));
        phase.drain(9);
        phase.drain(8);
        phase.drained(8);
        assert_eq!((course(&phase), phase.drains_until()), ((true, false, false), Some(9)));
        phase.leave(through(), 0);
        assert_eq!(phase.drains_until(), Some(u64::MAX), "the settings wait for all of it");
        phase.stay();
        assert_eq!(phase.drains_until(), Some(9));
        phase.drained(9);
        assert_eq!((course(&phase), phase.drains_until()), ((false, false, false), None));
        phase.drain(10);
        assert!(phase.arrive().is_none());
        assert_eq!(course(&phase), (false, false, false));
    }

    #[test]
    fn writes_wait_for_settings_when_little_is_left_or_after_long() {
        for (records, now_ms) in [(LEAVE_RECORDS, 100), (LEAVE_RECORDS + 1, 100 + LEAVE_MS)] {
            let mut phase = Phase::default();
            phase.press(0, u64::MAX);
            assert!(!phase.makes_writes_wait(), "it serves");
            phase.leave(through(), 100);
            phase.press(LEAVE_RECORDS + 1, 99 + LEAVE_MS);
            assert_eq!(course(&phase), (true, true, false));
            phase.press(records, now_ms);
            phase.press(LEAVE_RECORDS + 1, 100);
            assert_eq!(course(&phase), (true, true, true), "they wait until nothing is left");
            assert_eq!(phase.arrive().map(|cfg| cfg.mode), Some(Mode::WriteThrough));
            assert_eq!(course(&phase), (false, false, false));
        }
    }

    #[test]
    fn settings_that_are_taken_back_leave_a_drain_as_it_was() {
        let mut phase = Phase::default();
        phase.drain(3);
        phase.leave(through(), 0);
        phase.leave(through(), 1);
        phase.press(0, 1);
        phase.stay();
        assert_eq!(course(&phase), (true, false, false));
        phase.leave(through(), 2);
        phase.drained(3);
        phase.stay();
        assert_eq!(course(&phase), (false, false, false));
    }

    #[test]
    fn a_clearing_waits_for_a_bounded_time_and_keeps_a_drain() {
        let mut phase = Phase::default();
        phase.drain(3);
        phase.clear(100);
        phase.clear(200);
        assert_eq!((course(&phase), phase.drains_until()), ((true, false, true), Some(u64::MAX)));
        assert!(!phase.clears_late(99 + CLEAR_MS) && phase.clears_late(100 + CLEAR_MS));
        phase.clear_no_more();
        assert_eq!((course(&phase), phase.drains_until()), ((true, false, false), Some(3)));
        phase.clear(300);
        phase.drained(3);
        assert!(phase.arrive().is_none(), "no settings waited");
        assert_eq!(course(&phase), (false, false, false));
        // New settings take over the course.
        phase.clear(400);
        phase.leave(through(), 400);
        assert_eq!(course(&phase), (true, true, false));
    }

    #[test]
    fn a_fence_is_told_once_until_a_loss_is_accepted() {
        let mut phase = Phase::default();
        assert!(!phase.accept_loss());
        assert!(phase.tell_fence() && !phase.tell_fence());
        phase.fence();
        assert!(phase.is_fenced() && !phase.tell_fence());
        assert!(phase.accept_loss() && !phase.is_fenced());
        assert!(phase.tell_fence());
    }

    #[test]
    fn what_is_dropped_takes_fence_and_decision_along_and_no_course() {
        let mut phase = Phase::default();
        phase.leave(through(), 0);
        phase.fence();
        phase.decide(Vec::new());
        phase.drop_data(Dropping { is_remembered: false });
        assert_eq!(phase.dropped(), (true, Vec::new()));
        assert!(!phase.is_fenced() && !phase.is_unrecorded() && phase.dropping().is_none());
        assert!(phase.is_leaving());
    }

    #[test]
    fn a_drop_that_failed_keeps_the_fence() {
        let mut phase = Phase::default();
        phase.fence();
        phase.drop_data(Dropping { is_remembered: true });
        phase.drop_failed();
        assert!(phase.is_fenced() && phase.dropping().is_none());
    }

    #[test]
    #[should_panic(expected = "lost track")]
    fn a_drop_ends_once() {
        let mut phase = Phase::default();
        phase.drop_data(Dropping { is_remembered: true });
        phase.drop_failed();
        phase.dropped();
    }
}
