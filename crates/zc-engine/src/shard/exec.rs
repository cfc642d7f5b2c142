//! The manager's actions, carried out.
//!
//! Job: one function per family of [`Action`]; memory actions at once, the rest as ring operations or jobs for workers.
//!
//! Invariants: each operation's end becomes exactly one event. Errors of the cache device become results of operations
//! and nothing else: what they mean for clients is the manager's to say (G4).
//!
//! What it does not do: device layout beyond asking the geometry (see `device`).

use zc_cache::seam::{Action, Event, Note};
use zc_core::limits::BLOCK_BYTES;
use zc_core::{BufSlice, DedupDomain, ErrorKind, ExtentNo, FingerprintKind, OpId, VolumeId};
use zc_io::{Completion, Segment, Target};
use zc_origin::{OriginRequest, Step};

use crate::origin::Origin;
use crate::origin::store_volume::{Asker, StoreAnswer, StoreOutcome};
use crate::shard::Shard;
use crate::shard::metrics::Path;
use crate::shard::pending::Pending;
use crate::shard::reduce::Facts;
use crate::shard::reduce_pool::Job;
use crate::shard::stop::Stopping;
use crate::state::state_thread::Requester;

/// Counts of reads by how they were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadCounts {
    hits: u64,
    misses: u64,
    partial: u64,
}

impl Shard {
    pub(crate) fn read_counts(&self) -> ReadCounts {
        let stats = self.manager.stats();
        ReadCounts { hits: stats.read_hits, misses: stats.read_misses, partial: stats.read_partial }
    }

    /// How the reads were served that this event ended: the path under which their latency is booked.
    pub(crate) fn classify_reads(&mut self, before: ReadCounts) {
        let now = self.read_counts();
        self.read_path =
            match (now.hits > before.hits, now.misses > before.misses, now.partial > before.partial) {
                (true, false, false) => Path::Hit,
                (false, _, false) => Path::Miss,
                _ => Path::Mixed,
            };
    }

    /// Carries out actions in order; `actions` is empty afterwards.
    pub(crate) fn carry_out(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Reply { req, result } => self.part_done(req, result, self.read_path),
                Action::Alloc { buf, len_bytes } => self.buffers.alloc(buf, len_bytes),
                Action::Free { buf } => self.buffers.free(buf),
                Action::Copy { from, to } => self.buffers.copy(from, to),
                Action::Zero { dest } => self.buffers.zero(dest),
                Action::Place { weu, offset_bytes, header, payload } => {
                    self.place(weu, offset_bytes, &header, payload);
                }
                Action::Summarize { weu, place, summary } => {
                    let start_bytes = place.page * BLOCK_BYTES;
                    let mut page =
                        self.buffers.write(BufSlice { buf: weu, start_bytes, len_bytes: BLOCK_BYTES });
                    summary.encode_into(&place, &mut page);
                }
                Action::OriginRead { .. }
                | Action::OriginWrite { .. }
                | Action::OriginFlush { .. }
                | Action::OriginTrim { .. }
                | Action::OriginZero { .. } => self.origin_action(action),
                Action::Hash { .. } | Action::Compress { .. } | Action::Compare { .. } => {
                    self.reduce_action(action);
                }
                Action::WantRecipe { op, volume, first, count, domain } => {
                    self.want_recipe(op, volume, first, count, &domain);
                }
                Action::Intent { record } => self.intent.append(record),
                Action::IntentTrim { records } => self.intent.trim(records, self.journal_written),
                Action::IntentReady => self.intent.make_valid(),
                Action::Note(note) => self.note(note),
                Action::Stopped { clean } => self.stopping = Stopping::Stopped { clean },
                Action::Distrust { op, volume } => self.distrust(op, volume),
                Action::Abandon { op } => self.abandon(op),
                other => self.device_action(other),
            }
        }
    }

    fn place(
        &mut self,
        weu: zc_core::BufId,
        offset_bytes: u32,
        header: &zc_format::ExtentHeader,
        payload: BufSlice,
    ) {
        let bytes = self.buffers.read(payload);
        let len_bytes = zc_format::EXTENT_HEADER_BYTES + payload.len_bytes;
        let mut place = self.buffers.write(BufSlice { buf: weu, start_bytes: offset_bytes, len_bytes });
        header.seal(offset_bytes, &bytes, &mut place, self.device.geometry.salt);
        drop(place);
        // Up to where the next extent starts.
        let end = offset_bytes + len_bytes;
        let padding = end.next_multiple_of(zc_core::limits::PLACE_ALIGN_BYTES) - end;
        if padding > 0 {
            self.buffers.zero(BufSlice { buf: weu, start_bytes: end, len_bytes: padding });
        }
    }

    fn origin_action(&mut self, action: Action) {
        let (op, volume, request) = match action {
            Action::OriginRead { op, volume, offset_bytes, dest } => {
                let target = Target::whole(self.buffers.write(dest));
                (op, volume, OriginRequest::Read { offset: offset_bytes, target })
            }
            Action::OriginWrite { op, volume, offset_bytes, src, fua } => {
                let segments = vec![Segment::whole(self.buffers.read(src))];
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
        let answers = self.store_answers.clone();
        match &mut self.volume_mut(volume).origin {
            Origin::Raw(raw) => {
                let step = raw.start(request);
                self.origin_step(op, volume, step);
            }
            Origin::Store(store) => store.begin(request, Asker { op, volume, answers }),
        }
    }

    /// The fingerprints of a store have no key.
    fn want_recipe(&mut self, op: OpId, volume: VolumeId, first: ExtentNo, count: u32, domain: &DedupDomain) {
        let is_strong = self.device.fingerprint == FingerprintKind::Blake3 && *domain == DedupDomain::COMMON;
        let extent_bytes = self.device.geometry.extent_bytes;
        let asker = Asker { op, volume, answers: self.store_answers.clone() };
        match &self.volume_mut(volume).origin {
            Origin::Store(store) if is_strong => store.recipe(first.0, count, extent_bytes, asker),
            _ => self.events.push_back(Event::RecipeArrived { op, prints: Vec::new() }),
        }
    }

    /// A store answered.
    pub(crate) fn store_answered(&mut self, answer: StoreAnswer) {
        let StoreAnswer { op, volume, outcome } = answer;
        match outcome {
            StoreOutcome::Recipe(prints) => self.events.push_back(Event::RecipeArrived { op, prints }),
            StoreOutcome::Done(result) => {
                let result = result.map_err(|error| {
                    let place = match &self.volume_mut(volume).origin {
                        Origin::Store(store) => store.name().to_owned(),
                        Origin::Raw(_) => String::new(),
                    };
                    self.origin_failed(volume, &format_args!("cannot use origin {place}: {error}"));
                    error.kind()
                });
                self.events.push_back(Event::OriginDone { op, result });
            }
        }
    }

    /// The first failure is logged, then ever fewer: an origin that fails for hours fills no disk with its log.
    fn origin_failed(&mut self, volume: VolumeId, error: &dyn std::fmt::Display) {
        self.metrics.origin_errors += 1;
        self.volume_mut(volume).traffic.origin_errors += 1;
        if self.metrics.origin_errors.is_power_of_two() {
            let count = self.metrics.origin_errors;
            tracing::error!(count, "{error}");
        }
    }

    fn origin_step(&mut self, op: OpId, volume: VolumeId, step: Step) {
        match step {
            Step::Submit(job, operation) => self.submit_to_origin(operation, op, volume, job),
            Step::Done(finished) => {
                // The lease ends before the manager hears of it.
                drop(finished.target);
                let result = finished.result.map_err(|error| {
                    self.origin_failed(volume, &error);
                    error.kind()
                });
                self.events.push_back(Event::OriginDone { op, result });
            }
        }
    }

    fn reduce_action(&mut self, action: Action) {
        let job = match action {
            Action::Hash { op, src, domain } => {
                Job::Hash { op, src: self.buffers.read(src), kind: self.device.fingerprint, domain }
            }
            Action::Compress { op, src, codec, max_bytes, out } => {
                let out = BufSlice { buf: out, start_bytes: 0, len_bytes: max_bytes };
                let (src, out) = (self.buffers.read(src), self.buffers.write(out));
                Job::Compress { op, src, codec, max_bytes, out }
            }
            Action::Compare { op, left, right } => {
                Job::Compare { op, left: self.buffers.read(left), right: self.buffers.read(right) }
            }
            other => unreachable!("{other:?} is not for a worker"),
        };
        self.pool.submit(job);
    }

    /// A worker knows something.
    pub(crate) fn facts_known(&mut self, op: OpId, facts: Facts) {
        self.events.push_back(match facts {
            Facts::Hashed(digest) => Event::Hashed { op, digest },
            Facts::Compressed(stored_bytes) => Event::Compressed { op, stored_bytes },
            Facts::Compared(equal) => Event::Compared { op, equal },
        });
    }

    fn distrust(&mut self, op: OpId, volume: Option<VolumeId>) {
        // A volume alone is as good as new once what was stored for it is forgotten durably: at a clean stop.
        self.metrics.distrusts += u64::from(volume.is_none());
        let state = std::sync::Arc::clone(&self.state);
        let name = volume.and_then(|id| self.volumes.get(&id)).map(|volume| volume.name.clone());
        let work = move || {
            let done = match (volume, name) {
                (None, _) => state.distrust_all(),
                (Some(_), Some(name)) => state.distrust(&name),
                // A volume that is not served any more.
                (Some(_), None) => Ok(()),
            };
            done.map_err(|error| {
                tracing::error!(
                    "cannot record that what the cache holds is not to be trusted: {error}; tried again"
                );
                ErrorKind::Io
            })
        };
        self.state_thread.ask(Requester::Op(op), Box::new(work), self.clock.now_ms());
    }

    /// Changes of the state directory that have ended, one way or the other.
    pub(crate) fn take_state_changes(&mut self) {
        for (requester, result) in self.state_thread.take_ended(self.clock.now_ms()) {
            match requester {
                Requester::Op(op) => self.events.push_back(Event::DeviceDone { op, result }),
                Requester::Settled(volume) => self.settled_ended(volume, result),
            }
        }
    }

    /// Somebody else found that the cache device failed.
    pub(crate) fn lose_cache(&mut self, why: String) {
        if self.cache_fault.is_none() {
            tracing::error!("{why}; volumes go on without the cache");
            self.cache_fault = Some(why);
            self.events.push_back(Event::DeviceLost);
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            // It was said when it was known.
            Note::CacheFailed { .. } if self.cache_fault.is_some() => {}
            Note::CacheFailed { during, error } => {
                let text = format!("the cache device failed while {}: {error}", during.doing());
                tracing::error!("{text}; volumes go on without the cache");
                self.cache_fault = Some(text);
            }
            Note::ExtentDropped { slot, fault } => {
                self.metrics.extents_dropped += 1;
                if self.metrics.extents_dropped.is_power_of_two() {
                    let count = self.metrics.extents_dropped;
                    tracing::warn!(count, "a stored extent in slot {slot} was dropped: {fault}");
                }
            }
            Note::SlotDropped { slot } => tracing::warn!("slot {slot} was given up after an error"),
            Note::OriginDiffers { volume, extent } => self.note_changed_origin(volume, extent),
            Note::DistrustUnrecorded { volume } => self.note_unrecorded(volume),
            Note::DirtyUnreadable { volume, .. }
            | Note::DirtySkipped { volume, .. }
            | Note::DirtyGivenUp { volume, .. }
            | Note::DestageFailed { volume, .. }
            | Note::Fenced { volume }
            | Note::CommitsDropped { volume, .. } => self.note_dirty(volume, note),
            Note::Content { key, digest, stored } => {
                if let Some(tap) = self.volumes.get_mut(&key.volume).and_then(|volume| volume.tap.as_mut()) {
                    tap.learned(key.extent.0, digest, stored);
                }
            }
            Note::Removed { volume, result } => self.removed(volume, result),
            Note::IndexLoaded { extents } => {
                let ms = self.clock.now_ms();
                self.loaded_ms = Some(ms);
                tracing::info!("index complete: {extents} extents, {ms} ms after the start");
            }
        }
    }

    fn note_unrecorded(&self, volume: Option<VolumeId>) {
        let of = volume
            .and_then(|id| self.volumes.get(&id))
            .map(|volume| format!(" of volume \"{}\"", volume.name));
        tracing::error!(
            "the state directory could not record that what the cache holds{} is not to be trusted, not at the stop \
             either. The marks on the cache say what was written; if the cache is replaced or rolled back before the next \
             start, start with --cold",
            of.unwrap_or_default()
        );
    }

    fn note_changed_origin(&mut self, volume: VolumeId, extent: ExtentNo) {
        let name = self.volume_mut(volume).name.clone();
        let reason = format!(
            "its origin was written while the cache was not serving it: extent {extent} is not what was cached"
        );
        tracing::warn!("volume \"{name}\" starts cold: {reason}");
        if let Some(mut info) = self.registry.volumes.get_mut(&name) {
            info.cold_reason = Some(reason);
        }
    }

    /// News of dirty data. What repeats is said the first time, then ever more rarely.
    fn note_dirty(&mut self, volume: VolumeId, note: Note) {
        let Some(volume) = self.volumes.get_mut(&volume) else {
            tracing::warn!(
                "volume number {volume} is not in the configuration, but the cache has dirty data of it"
            );
            return;
        };
        let (name, cache_failed) = (&volume.name, self.cache_fault.is_some());
        match note {
            Note::DirtyUnreadable { extent, .. } => {
                volume.unreadable += 1;
                if volume.unreadable.is_power_of_two() {
                    let count = volume.unreadable;
                    tracing::error!(
                        count,
                        "volume \"{name}\": extent {extent}, which only the cache has, cannot be read from it; reads \
                         of it fail until it can, or it is written anew"
                    );
                }
            }
            Note::DirtyGivenUp { extent, sectors, .. } => tracing::warn!(
                "volume \"{name}\": sectors {} to {} of extent {extent} could not be read from the cache and are given up, \
                 as asked: they are zeros now",
                sectors.first(),
                sectors.last()
            ),
            Note::DirtySkipped { extent, sectors, .. } => tracing::warn!(
                "volume \"{name}\": sectors {} to {} of extent {extent} rotted on the cache and were written anew \
                 since; the origin gets the newer ones alone",
                sectors.first(),
                sectors.last()
            ),
            Note::DestageFailed { error, .. } => {
                volume.refused += 1;
                if volume.refused.is_power_of_two() {
                    let count = volume.refused;
                    tracing::error!(
                        count,
                        "volume \"{name}\": its origin refuses what the cache has for it ({error}); it is kept and \
                         tried again"
                    );
                }
            }
            Note::CommitsDropped { epoch, .. } => tracing::warn!(
                "volume \"{name}\": commits after epoch {epoch} were in flight when the last session was cut off and \
                 do not count; no client was told that they were durable"
            ),
            _ if cache_failed => tracing::error!(
                "volume \"{name}\" is fenced: its dirty data is on the cache device, which does not answer. Bring \
                 the device back, then `zcctl reattach`: no flushed byte is lost then. If it cannot be brought back, \
                 `zcached --drop-dirty {name}` discards the dirty data"
            ),
            _ => tracing::error!(
                "volume \"{name}\" is fenced: the cache has dirty data of it, and either the journal is incomplete or \
                 the origin has changed. Put back the cache and the origin that belong together; `zcctl accept-loss \
                 {name}` serves the data that was found, `zcctl drop-dirty {name}` discards it"
            ),
        }
    }

    /// A ring operation ended.
    pub(crate) fn completed(&mut self, completion: Completion) {
        let Completion { user, result, operation, accepted } = completion;
        match self.tokens.take(user) {
            Pending::Wake => self.woken(),
            Pending::Accept { listener } => self.accepted(listener, &result, accepted),
            Pending::Receive { conn } => self.received(conn, &result, operation),
            Pending::Send { conn } => {
                drop(operation);
                self.sent(conn, &result);
            }
            Pending::Ublk(tag) => self.ublk_ended(tag, result, operation),
            Pending::Origin { op, volume, job } => {
                let Origin::Raw(raw) = &mut self.volume_mut(volume).origin else {
                    unreachable!("a store's volume has no operations of this ring")
                };
                let step = raw.advance(job, result, operation);
                self.origin_step(op, volume, step);
                self.origin_has_room(volume);
            }
            Pending::Device { op } => {
                drop(operation);
                let result = self.device_result(result).map(|_| ());
                self.events.push_back(Event::DeviceDone { op, result });
            }
            Pending::Journal { op, block } => {
                drop(operation);
                let result = self.device_result(result).map(|_| ());
                if result.is_ok() {
                    self.journal_written = self.journal_written.max(block);
                }
                self.events.push_back(Event::DeviceDone { op, result });
            }
            Pending::Joined { join } => {
                drop(operation);
                let result = self.device_result(result).map(|_| ());
                if let Some((op, result)) = self.joins.ended(join, result) {
                    self.events.push_back(Event::DeviceDone { op, result });
                }
            }
            Pending::Extents(read) => self.extents_arrived(*read, result, operation),
            Pending::Header { op, slot, again } => self.header_arrived(op, slot, again, result, operation),
            Pending::Late => self.late_answer(&result, operation),
        }
    }

    /// The result of a cache device operation as a kind; logs errors, ever more rarely.
    pub(crate) fn device_result(&mut self, result: std::io::Result<usize>) -> Result<usize, ErrorKind> {
        result.map_err(|error| {
            self.metrics.device_errors += 1;
            if self.metrics.device_errors.is_power_of_two() {
                let count = self.metrics.device_errors;
                tracing::warn!(count, "cache device {}: {error}", self.device.file.path().display());
            }
            zc_io::kind_of(&error)
        })
    }
}

/// The range of a slice in its buffer.
pub(crate) fn slice(buf: zc_core::BufId, start_bytes: u32, len_bytes: u32) -> BufSlice {
    BufSlice { buf, start_bytes, len_bytes }
}
