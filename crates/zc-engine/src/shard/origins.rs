//! Actions on origins.
//!
//! Job: read, write, flush, trim and zero origins: raw ones in steps on the ring, volumes of stores and exports of
//! servers by requests to their threads; turn completions into events.
//!
//! Invariants: each completion becomes exactly one event. The first failure is logged, then exponentially fewer: an
//! origin that fails for hours must not fill a disk with its log.
//!
//! It does not order what origins do (the cache manager does), or the arithmetic of limits (`origin_limits`).

use std::fmt;
use std::io;

use zc_cache::seam::{Action, Event};
use zc_core::{DedupDomain, ExtentNo, FingerprintKind, OpId, VolumeId};
use zc_io::{Operation, Segment, Target, Waker};
use zc_origin::{Job, JobStep, OriginRequest};

use crate::origin::Origin;
use crate::origin::answers::{Asker, OriginAnswer, OriginAnswers, OriginOutcome};
use crate::shard::base::Base;
use crate::shard::origin_limits::OriginLimits;
use crate::shard::volumes::Volumes;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Origins {
    /// Answers of stores and servers.
    answers: OriginAnswers,
    limits: OriginLimits,
}

impl Origins {
    /// Creates the state; responses of stores and servers wake `waker`.
    pub(crate) fn new(waker: Waker) -> Self {
        Self { answers: OriginAnswers::new(waker), limits: OriginLimits::default() }
    }

    pub(crate) const fn limits(&self) -> &OriginLimits {
        &self.limits
    }

    pub(crate) const fn limits_mut(&mut self) -> &mut OriginLimits {
        &mut self.limits
    }

    /// Executes an action on an origin, now or when its limits admit it.
    pub(crate) fn act(&mut self, base: &mut Base, volumes: &mut Volumes, action: Action, extent_bytes: u32) {
        if let Some(action) = self.limits.passes(action, || base.clock.now_ns()) {
            self.begin(base, volumes, action, extent_bytes);
        }
    }

    /// Executes waiting actions that the limits now admit.
    pub(crate) fn go_on(&mut self, base: &mut Base, volumes: &mut Volumes, extent_bytes: u32) {
        while let Some(action) = self.limits.next(|| base.clock.now_ns()) {
            self.begin(base, volumes, action, extent_bytes);
        }
    }

    fn begin(&self, base: &mut Base, volumes: &mut Volumes, action: Action, extent_bytes: u32) {
        let mut known = Vec::new();
        let (op, volume, request) = match action {
            Action::OriginRead { op, volume, offset_bytes, dest } => {
                let target = Target::whole(base.buffers.write(dest));
                (op, volume, OriginRequest::Read { offset: offset_bytes, target })
            }
            Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
                let segments = vec![Segment::whole(base.buffers.read(src))];
                known = base.buffers.known_in(src, extent_bytes);
                (op, volume, OriginRequest::Write { offset: offset_bytes, segments, fua })
            }
            Action::OriginFlush { op, volume } => (op, volume, OriginRequest::Flush),
            Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua } => {
                (op, volume, OriginRequest::Trim { offset: offset_bytes, len: len_bytes, fua })
            }
            Action::OriginZero { op, volume, offset_bytes, len_bytes, no_hole, fua } => (
                op,
                volume,
                OriginRequest::WriteZeroes { offset: offset_bytes, len: len_bytes, no_hole, fua },
            ),
            other => unreachable!("{other:?} is not for an origin"),
        };
        match &mut volumes.used(volume).origin {
            Origin::Raw(raw) => {
                let step = raw.start(request);
                go_on(base, volumes, op, volume, step);
            }
            Origin::Store(store) => store.begin(request, known, extent_bytes, self.asker(op, volume)),
            Origin::Remote(remote) => remote.begin(request, self.asker(op, volume)),
        }
    }

    /// Requests fingerprints of a volume's contents. Those of a store have no key.
    pub(crate) fn want_recipe(
        &self,
        base: &mut Base,
        volumes: &mut Volumes,
        wanted: Wanted<'_>,
        (kind, extent_bytes): (FingerprintKind, u32),
    ) {
        let Wanted { op, volume, first, count, domain } = wanted;
        let is_strong = kind == FingerprintKind::Blake3 && *domain == DedupDomain::COMMON;
        match &volumes.used(volume).origin {
            Origin::Store(store) if is_strong => {
                store.recipe(first.0, count, extent_bytes, self.asker(op, volume));
            }
            _ => base.tell(Event::RecipeArrived { op, prints: Vec::new() }),
        }
    }

    fn asker(&self, op: OpId, volume: VolumeId) -> Asker {
        Asker { op, volume, answers: self.answers.clone() }
    }

    /// Handles the completion of a step on the ring.
    pub(crate) fn ended(
        base: &mut Base,
        volumes: &mut Volumes,
        (op, volume, job): (OpId, VolumeId, Job),
        result: io::Result<usize>,
        operation: Operation,
    ) {
        let Origin::Raw(raw) = &mut volumes.used(volume).origin else {
            unreachable!("origins with a thread of their own have no operations of this ring")
        };
        let step = raw.advance(job, result, operation);
        go_on(base, volumes, op, volume, step);
        base.io.origin_has_room(volume);
    }

    /// Processes replies of stores and servers.
    pub(crate) fn take_answers(&self, base: &mut Base, volumes: &mut Volumes) {
        for OriginAnswer { op, volume, outcome } in self.answers.take() {
            match outcome {
                OriginOutcome::Recipe(prints) => base.tell(Event::RecipeArrived { op, prints }),
                OriginOutcome::Done(result) => {
                    let result = result.map_err(|error| {
                        let place = match &volumes.used(volume).origin {
                            Origin::Store(store) => store.name().to_owned(),
                            Origin::Remote(remote) => remote.name().to_owned(),
                            Origin::Raw(_) => String::new(),
                        };
                        failed(base, volumes, volume, &format_args!("cannot use origin {place}: {error}"));
                        error.kind()
                    });
                    base.tell(Event::OriginDone { op, result });
                }
            }
        }
    }
}

/// Extents of which the fingerprints are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) op: OpId,
    pub(crate) volume: VolumeId,
    pub(crate) first: ExtentNo,
    pub(crate) count: u32,
    pub(crate) domain: &'a DedupDomain,
}

fn go_on(base: &mut Base, volumes: &mut Volumes, op: OpId, volume: VolumeId, step: JobStep) {
    match step {
        JobStep::Submit(job, operation) => base.io.submit_to_origin(operation, op, volume, job),
        JobStep::Done(finished) => {
            // The lease ends before the manager receives the event.
            drop(finished.target);
            let result = finished.result.map_err(|error| {
                failed(base, volumes, volume, &error);
                error.kind()
            });
            base.tell(Event::OriginDone { op, result });
        }
    }
}

fn failed(base: &mut Base, volumes: &mut Volumes, volume: VolumeId, error: &dyn fmt::Display) {
    base.metrics.origin_errors += 1;
    volumes.used(volume).traffic.origin_errors += 1;
    if base.metrics.origin_errors.is_power_of_two() {
        let count = base.metrics.origin_errors;
        tracing::error!(count, "{error}");
    }
}
