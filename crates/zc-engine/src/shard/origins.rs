//! Actions on origins.
//!
//! Job: read, write, flush, trim and zero origins: raw ones in steps on the ring, volumes of stores and exports of
//! servers by requests to their threads; turn completions into events.
//!
//! Invariants: each completion becomes exactly one event. The first failure is logged, then exponentially fewer: an
//! origin that fails for hours must not fill a disk with its log. An operation that its origin keeps for too long is
//! reported as failed, and its memory stays leased until the origin returns it.
//!
//! It does not order what origins do (the cache manager does, and `zc_cache::origin_deadlines` behind operations that
//! were abandoned), or the arithmetic of limits (`origin_limits`).

use std::fmt;
use std::io;

use zc_cache::origin_deadlines::{DeadlineStep, OriginDeadlines, Patience, Ticket};
use zc_cache::seam::{Action, Event};
use zc_config::OriginReach;
use zc_core::{DedupDomain, ErrorKind, FingerprintKind, Mode, VolumeId};
use zc_io::{Operation, Segment, Target, Waker};
use zc_origin::{Job, JobStep, OriginRequest};

use crate::limits::STOP_ORIGIN_MS;
use crate::origin::Origin;
use crate::origin::answers::{Asker, OriginAnswer, OriginAnswers, OriginOutcome};
use crate::shard::base::Base;
use crate::shard::origin_limits::OriginLimits;
use crate::shard::volumes::{Volume, Volumes};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Origins {
    /// Answers of stores and servers.
    answers: OriginAnswers,
    /// Limits of their use.
    limits: OriginLimits,
    /// Limits of the time that operations take.
    deadlines: OriginDeadlines,
}

/// Resources of the shard that operations of origins use.
#[derive(Debug)]
pub(crate) struct At<'a> {
    pub(crate) base: &'a mut Base,
    pub(crate) volumes: &'a mut Volumes,
    /// Fingerprint function of the cache.
    pub(crate) fingerprint: FingerprintKind,
    /// Size of its extents.
    pub(crate) extent_bytes: u32,
}

impl Origins {
    /// Creates the state; responses of stores and servers wake `waker`.
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            answers: OriginAnswers::new(waker),
            limits: OriginLimits::default(),
            deadlines: OriginDeadlines::default(),
        }
    }

    /// Returns the limits of origins.
    pub(crate) const fn limits(&self) -> &OriginLimits {
        &self.limits
    }

    /// Returns the limits of origins for changes.
    pub(crate) const fn limits_mut(&mut self) -> &mut OriginLimits {
        &mut self.limits
    }

    /// Returns the time limits of operations.
    pub(crate) const fn deadlines(&self) -> &OriginDeadlines {
        &self.deadlines
    }

    /// Executes an action on an origin, now or when its limits admit it.
    pub(crate) fn act(&mut self, at: &mut At<'_>, action: Action) {
        if let Some(action) = self.limits.passes(action, || at.base.clock.now_ns()) {
            self.deadlines.submit(action);
            self.take_steps(at);
        }
    }

    /// Executes waiting actions that the limits now admit.
    pub(crate) fn go_on(&mut self, at: &mut At<'_>) {
        while let Some(action) = self.limits.next(|| at.base.clock.now_ns()) {
            self.deadlines.submit(action);
        }
        self.take_steps(at);
    }

    /// Time has passed: expires operations.
    pub(crate) fn tick(&mut self, at: &mut At<'_>, now_ms: u64) {
        self.deadlines.tick(now_ms);
        self.take_steps(at);
    }

    /// Sets the time limits of a volume's operations. An export has limits of its own, which count from the beginning of
    /// an outage.
    pub(crate) fn set_patience(&mut self, id: VolumeId, volume: &Volume) {
        let patience = match &volume.origin {
            Origin::Remote(_) => Patience::default(),
            Origin::Raw(_) | Origin::Store(_) => patience(&volume.reach, volume.config.mode),
        };
        self.deadlines.set(id, patience);
    }

    /// The daemon stops: no limit of use holds any more, and no origin delays it without end.
    pub(crate) fn begin_stop(&mut self, now_ns: u64) {
        self.limits.lift(now_ns);
        self.deadlines.begin_stop(STOP_ORIGIN_MS);
    }

    /// A volume is gone.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        self.limits.forget(volume);
        self.deadlines.forget(volume);
    }

    /// Executes what the time limits let begin, and reports operations that they end.
    fn take_steps(&mut self, at: &mut At<'_>) {
        while let Some(step) = self.deadlines.next_step() {
            match step {
                DeadlineStep::Begin(ticket, action) => self.begin(at, ticket, action),
                DeadlineStep::Expire { ticket, op, volume, error, is_recipe, has_begun } => {
                    if has_begun && at.base.io.abandon_origin(volume, ticket) {
                        self.deadlines.withdrawn(ticket);
                    }
                    let place = place_of(at.volumes, volume);
                    let text = format_args!("origin {place} does not answer in time; a request to it fails");
                    failed(at.base, at.volumes, volume, &text);
                    at.base.tell(if is_recipe {
                        Event::RecipeArrived { op, prints: Vec::new() }
                    } else {
                        Event::OriginDone { op, result: Err(error) }
                    });
                }
                DeadlineStep::Late(volume, is_late) => self.log_late(at.volumes, volume, is_late),
            }
        }
    }

    fn log_late(&self, volumes: &Volumes, id: VolumeId, is_late: bool) {
        let Some(volume) = volumes.get(id) else { return };
        let (name, place) = (&volume.name, place_of(volumes, id));
        if is_late {
            let seconds = self.deadlines.state(id).outage_ms.unwrap_or(0) / 1000;
            tracing::error!("volume \"{name}\": origin {place} has not answered a request for {seconds} s");
        } else {
            tracing::warn!("volume \"{name}\": origin {place} answers again");
        }
    }

    fn begin(&mut self, at: &mut At<'_>, ticket: Ticket, action: Action) {
        let mut known = Vec::new();
        let (volume, request) = match action {
            Action::OriginRead { volume, offset_bytes, dest, .. } => {
                let target = Target::whole(at.base.buffers.write(dest));
                (volume, OriginRequest::Read { offset: offset_bytes, target })
            }
            Action::OriginWrite { volume, offset_bytes, src, fua, .. } => {
                let segments = vec![Segment::whole(at.base.buffers.read(src))];
                known = at.base.buffers.known_in(src, at.extent_bytes);
                (volume, OriginRequest::Write { offset: offset_bytes, segments, fua })
            }
            Action::OriginFlush { volume, .. } => (volume, OriginRequest::Flush),
            Action::OriginTrim { volume, offset_bytes, len_bytes, fua, .. } => {
                (volume, OriginRequest::Trim { offset: offset_bytes, len: len_bytes, fua })
            }
            Action::OriginZero { volume, offset_bytes, len_bytes, no_hole, fua, .. } => {
                (volume, OriginRequest::WriteZeroes { offset: offset_bytes, len: len_bytes, no_hole, fua })
            }
            Action::WantRecipe { volume, first, count, domain, .. } => {
                return self.want_recipe(at, (ticket, volume), (first.0, count), &domain);
            }
            other => unreachable!("{other:?} is not for an origin"),
        };
        let asker = || Asker { ticket, volume, answers: self.answers.clone() };
        match &mut at.volumes.used(volume).origin {
            Origin::Raw(raw) => {
                let step = raw.start(request);
                self.proceed(at, ticket, volume, step);
            }
            Origin::Store(store) => store.begin(request, known, at.extent_bytes, asker()),
            Origin::Remote(remote) => remote.begin(request, asker()),
        }
    }

    /// Requests fingerprints of a volume's contents. Those of a store have no key.
    fn want_recipe(
        &mut self,
        at: &mut At<'_>,
        (ticket, volume): (Ticket, VolumeId),
        (first, count): (u64, u32),
        domain: &DedupDomain,
    ) {
        let is_strong = at.fingerprint == FingerprintKind::Blake3 && *domain == DedupDomain::COMMON;
        match &at.volumes.used(volume).origin {
            Origin::Store(store) if is_strong => {
                let asker = Asker { ticket, volume, answers: self.answers.clone() };
                store.recipe(first, count, at.extent_bytes, asker);
            }
            _ => {
                if let Some(op) = self.deadlines.ended(ticket, Ok(())) {
                    at.base.tell(Event::RecipeArrived { op, prints: Vec::new() });
                }
            }
        }
    }

    /// A step on the ring ended.
    pub(crate) fn ended(
        &mut self,
        at: &mut At<'_>,
        (ticket, volume, job): (Ticket, VolumeId, Job),
        result: io::Result<usize>,
        operation: Operation,
    ) {
        let Origin::Raw(raw) = &mut at.volumes.used(volume).origin else {
            unreachable!("origins with a thread of their own have no operations of this ring")
        };
        let step = raw.advance(job, result, operation);
        self.proceed(at, ticket, volume, step);
        at.base.io.origin_has_room(volume);
    }

    /// A step of an abandoned request ended. No further one follows.
    pub(crate) fn late_ended(
        &mut self,
        at: &mut At<'_>,
        (ticket, volume): (Ticket, VolumeId),
        result: &io::Result<usize>,
        operation: Operation,
    ) {
        drop(operation);
        let result = result.as_ref().map(|_| ()).map_err(zc_io::kind_of);
        let op = self.deadlines.ended(ticket, result);
        debug_assert!(op.is_none(), "the manager was told that the request failed");
        at.base.io.origin_has_room(volume);
        self.take_steps(at);
    }

    fn proceed(&mut self, at: &mut At<'_>, ticket: Ticket, volume: VolumeId, step: JobStep) {
        match step {
            JobStep::Submit(job, operation) => at.base.io.submit_to_origin(operation, ticket, volume, job),
            JobStep::Done(finished) => {
                // The lease ends before the manager receives the event.
                drop(finished.target);
                let result = finished.result.map_err(|error| {
                    failed(at.base, at.volumes, volume, &error);
                    error.kind()
                });
                self.report(at.base, ticket, result);
            }
        }
    }

    fn report(&mut self, base: &mut Base, ticket: Ticket, result: Result<(), ErrorKind>) {
        if let Some(op) = self.deadlines.ended(ticket, result) {
            base.tell(Event::OriginDone { op, result });
        }
    }

    /// Processes replies of stores and servers.
    pub(crate) fn take_answers(&mut self, at: &mut At<'_>) {
        for OriginAnswer { ticket, volume, outcome } in self.answers.take() {
            match outcome {
                OriginOutcome::Recipe(prints) => {
                    if let Some(op) = self.deadlines.ended(ticket, Ok(())) {
                        at.base.tell(Event::RecipeArrived { op, prints });
                    }
                }
                OriginOutcome::Done(result) => {
                    let result = result.map_err(|error| {
                        let place = place_of(at.volumes, volume);
                        let text = format_args!("cannot use origin {place}: {error}");
                        failed(at.base, at.volumes, volume, &text);
                        error.kind()
                    });
                    self.report(at.base, ticket, result);
                }
            }
        }
        self.take_steps(at);
    }
}

/// Returns the time limits of a file, a device or a volume of a store.
fn patience(reach: &OriginReach, mode: Mode) -> Patience {
    let late_ms = Some(reach.deadline_ms).filter(|ms| *ms > 0);
    let fail_ms = late_ms.and_then(|late_ms| reach.local_bound_ms(mode).map(|most| most.max(late_ms)));
    Patience { late_ms, fail_ms }
}

/// Returns the name of a volume's origin, for messages.
fn place_of(volumes: &Volumes, volume: VolumeId) -> String {
    match volumes.get(volume).map(|volume| &volume.origin) {
        Some(Origin::Store(store)) => store.name().to_owned(),
        Some(Origin::Remote(remote)) => remote.name().to_owned(),
        Some(Origin::Raw(raw)) => raw.path().display().to_string(),
        None => "of a removed volume".to_owned(),
    }
}

fn failed(base: &mut Base, volumes: &mut Volumes, volume: VolumeId, error: &dyn fmt::Display) {
    base.metrics.origin_errors += 1;
    if let Some(volume) = volumes.get_mut(volume) {
        volume.traffic.origin_errors += 1;
    }
    if base.metrics.origin_errors.is_power_of_two() {
        let count = base.metrics.origin_errors;
        tracing::error!(count, "{error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_fail_no_sooner_than_their_origin_is_late_and_not_without_a_deadline() {
        let of = |deadline_ms, outage_max_ms, mode| {
            let Patience { late_ms, fail_ms } = patience(&OriginReach { deadline_ms, outage_max_ms }, mode);
            (late_ms, fail_ms)
        };
        assert_eq!(of(30_000, None, Mode::WriteThrough), (Some(30_000), Some(180_000)));
        assert_eq!(of(30_000, None, Mode::WriteBack), (Some(30_000), None));
        assert_eq!(of(30_000, Some(1_000), Mode::WriteBack), (Some(30_000), Some(30_000)));
        assert_eq!(of(1_000, Some(5_000), Mode::ReadOnly), (Some(1_000), Some(5_000)));
        assert_eq!(of(1_000, Some(0), Mode::ReadOnly), (Some(1_000), None));
        assert_eq!(of(0, Some(5_000), Mode::ReadOnly), (None, None));
    }
}
