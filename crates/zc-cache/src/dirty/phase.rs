//! Course of a volume's dirty data, and the conditions that hold it up.
//!
//! Job: hold the decisions of settings, operators and starts about the dirty data of a volume, and determine what
//! follows from them.
//!
//! # The course
//! A volume is on one course at a time:
//!
//! | course | event | next course |
//! |---|---|---|
//! | serving | an operator wants its data written to the origin, and some is dirty | draining, up to the newest epoch that is dirty |
//! | serving, draining | its settings leave write-back, and some is dirty | leaving |
//! | leaving | little is left, or it took too long | leaving, and new writes wait |
//! | leaving | other settings come | the course before, or leaving again |
//! | draining | data dirty at the request is on the origin; newer writes may be dirty | serving |
//! | leaving | nothing is dirty any more | serving, with the settings that waited |
//! | serving, draining | a clearing is much longer than the dirty data | clearing, and new writes wait |
//! | clearing | nothing is dirty any more | serving; the clearing goes to the origin |
//! | clearing | the origin refuses, a stop comes, or it took too long | the course before; the clearing becomes dirty |
//!
//! # Conditions
//! Each of these can occur on any course, and the course continues when it has ended:
//! - *fenced*: a start could not determine all dirty data, or the origin has changed. It ends when an operator
//!   accepts the loss, or when the data is dropped.
//! - *dropping*: the data is dropped as soon as nothing of it is in flight. It ends with the data, or with a device
//!   that cannot record it.
//! - *unrecorded*: a decision is not durable yet. It ends when the journal has it; a lost device keeps it for ever.
//!
//! Invariants: only the courses of leaving and clearing make new writes wait; a drop ends once; a fence is reported
//! once until it is lifted. The end of something that has not begun is a broken invariant and panics.
//!
//! `tests/manager/phases.rs` combines each phase with each event and each end of the process.
//!
//! Out of scope: reading the data, and acting.

use crate::config::VolumeConfig;
use crate::dirty::versions::Body;
use crate::expect_held::ExpectHeld;

/// Dirty records with so few left, or time after which, a volume that leaves write-back lets new writes wait.
const LEAVE_RECORDS: u64 = 256;
const LEAVE_MS: u64 = 30_000;
/// Longest wait of a clearing for the origin to receive the dirty data, in milliseconds.
const CLEAR_MS: u64 = 5_000;

/// Settings that wait until nothing is dirty.
#[derive(Debug)]
struct Leaving {
    cfg: Box<VolumeConfig>,
    since_ms: u64,
    makes_writes_wait: bool,
    /// The epoch up to which an operator had requested a drain before.
    drain_until: Option<u64>,
}

#[derive(Debug, Default)]
enum Course {
    #[default]
    Serving,
    Draining {
        /// The newest epoch that was dirty at the request.
        until: u64,
    },
    Leaving(Leaving),
    /// A clearing waits for everything that is dirty to be on the origin.
    Clearing {
        since_ms: u64,
        /// The epoch up to which an operator had requested a drain before.
        drain_until: Option<u64>,
    },
}

/// Manner in which dirty data is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropping {
    /// The decision is recorded outside the device: the device need not record it.
    pub(super) is_remembered: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Phase {
    course: Course,
    fenced: bool,
    /// The fence was reported, or the one that a lost device causes.
    is_fence_noted: bool,
    dropping: Option<Dropping>,
    /// With the bodies that a start would look for which does not know of the decision.
    unrecorded: Option<Vec<Body>>,
}

impl Phase {
    /// Begins a drain: all epochs up to this one are written to the origin without a pause, as an operator requested.
    /// A later request extends the drain; none shortens it.
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

    /// Settings to apply when nothing is dirty any more.
    pub(crate) fn leave(&mut self, cfg: VolumeConfig, since_ms: u64) {
        let drain_until = self.drain_until();
        let cfg = Box::new(cfg);
        self.course = Course::Leaving(Leaving { cfg, since_ms, makes_writes_wait: false, drain_until });
    }

    /// Drops the settings that wait.
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

    /// Begins a clearing, the first of the waiting writes, which goes to the origin when nothing is dirty any more.
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

    /// Lets new writes wait if the volume leaves and little is left, or if that takes too long.
    pub(crate) fn press(&mut self, records: u64, now_ms: u64) {
        if let Course::Leaving(leaving) = &mut self.course {
            let late = now_ms.saturating_sub(leaving.since_ms) >= LEAVE_MS;
            leaving.makes_writes_wait |= late || records <= LEAVE_RECORDS;
        }
    }

    /// Records that all epochs up to this one are on the origin: a drain up to there ends.
    pub(crate) fn drained(&mut self, clean: u64) {
        if self.drain_until().is_some_and(|until| until <= clean) {
            self.set_drain(None);
        }
    }

    /// Returns the settings that waited, when nothing is dirty any more and nothing holds them up.
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

    /// The newest epoch that is written to the origin without a pause; `None`: no epoch is.
    pub(crate) const fn drains_until(&self) -> Option<u64> {
        match &self.course {
            Course::Serving => None,
            Course::Draining { until } => Some(*until),
            // The settings or the clearing that wait need all of it there.
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

    /// Fences the volume: not all dirty data is determined, or the origin has changed. The caller reports it.
    pub(crate) const fn fence(&mut self) {
        self.fenced = true;
        self.is_fence_noted = true;
    }

    /// Lifts the fence; the next one is reported again. Returns `true` if there was one.
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

    /// A lost device fences the volume. Returns `true` if that is to be reported.
    pub(crate) const fn tell_fence(&mut self) -> bool {
        !core::mem::replace(&mut self.is_fence_noted, true)
    }

    /// Requests a drop of the data as soon as nothing of it is in flight.
    pub(crate) const fn drop_data(&mut self, how: Dropping) {
        self.dropping = Some(how);
    }

    /// Manner in which the data is dropped, if it is.
    pub(crate) const fn dropping(&self) -> Option<Dropping> {
        self.dropping
    }

    /// Ends a drop without effect: the device was lost before it recorded the drop.
    pub(crate) fn drop_failed(&mut self) {
        self.dropping.take().expect_held();
    }

    /// Ends a drop: the data is gone, and with it a fence and an earlier decision. Returns `true` if there was a
    /// fence, and the bodies that the decision was about.
    pub(crate) fn dropped(&mut self) -> (bool, Vec<Body>) {
        self.dropping.take().expect_held();
        (core::mem::take(&mut self.fenced), self.unrecorded.take().unwrap_or_default())
    }

    /// Records a decision about the data, which holds only when the journal is durable. `bodies` are those that a
    /// start without a record of the decision would read.
    pub(crate) fn decide(&mut self, bodies: Vec<Body>) {
        self.unrecorded.get_or_insert_default().extend(bodies);
    }

    /// Records that the decision is durable; returns the bodies that no start reads any more; none if nothing was
    /// undecided.
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
        // Settings that come take the course.
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
