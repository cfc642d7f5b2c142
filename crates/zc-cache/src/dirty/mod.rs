//! Path of a write in write-back (Nitro section 3.1, dirty list): admitted at once, reduced, placed in a *dirty unit*,
//! made durable by a commit (see `commit`), destaged to the origin later (see `destage`).
//!
//! There are two separate layers. The clean layer (both indexes, staging, read buffer) caches the contents of the
//! origin in write-through mode; the dirty layer does not change it. The dirty layer is an overlay of versions (see
//! `versions`) that readers check first. So a crash cannot confuse them: uncommitted data is lost, and the clean layer
//! was valid throughout.
//!
//! Dirty extents fill units of their own (paper: dirty and clean extents are kept in separate WEUs). A unit is written
//! in pieces, is read from memory until it is full and written, and is pinned by every version in it until that is
//! clean.
//!
//! Back-pressure: a write waits when units of dirty data reach the high watermark, when too much of it is only in
//! memory, or when the journal is nearly full (see `admission`; `shares` divides the capacity among volumes).

mod admission;
mod all_requests;
mod batch;
mod bounds;
mod commit;
mod commit_state;
pub(crate) mod destage;
mod destaging;
mod dirty_jobs;
mod install;
pub(crate) mod overlay;
mod phase;
mod proof;
mod record_bounds;
mod rotten;
mod scrub;
mod shares;
mod summary;
mod unreadable;
pub(crate) mod versions;
mod volume;
pub(crate) mod volumes;

use std::collections::VecDeque;

use zc_core::{ErrorKind, JournalSeq, Mode, VolumeId};

use crate::base::effects::Effect;
use crate::base::origin::{Flush, FlushWaiter};
use crate::base::port::Ended;
use crate::clean::Clean;
use crate::config::VolumeConfig;
use crate::device::{Core, Device};
use crate::dirty::admission::Admission;
use crate::dirty::commit::Commits;
use crate::dirty::destage::Destager;
use crate::dirty::phase::Dropping;
use crate::dirty::scrub::DirtyScrub;
use crate::dirty::unreadable::{give_up_unreadable, pump_giving_up};
use crate::dirty::versions::{DirtyFill, DirtyState, EpochState};
use crate::dirty::volume::{VolumeDirty, WaitingWrite};
use crate::dirty::volumes::DirtyVolumes;
use crate::expect_held::ExpectHeld;
use crate::ops::dirty::Op;
use crate::ops::meta;
use crate::reduce::ReduceStep;
use crate::residency::OriginLag;
use crate::seam::{Action, Note, Request};

/// Dirty data of all volumes, and the operations in progress on it.
#[derive(Debug, Default)]
pub(crate) struct DirtyLayer {
    volumes: DirtyVolumes,
    admission: Admission,
    commits: Commits,
    destager: Destager,
    /// Reads dirty data back in order to detect corruption.
    scrub: DirtyScrub,
    /// Requests that wait until a decision about their volume is durable.
    deferred: VecDeque<Request>,
}

impl DirtyLayer {
    pub(crate) fn new(proved_before: JournalSeq) -> Self {
        Self { commits: Commits::new(proved_before), ..Self::default() }
    }

    /// Returns `true` if a stop must wait for work in progress.
    fn is_busy(&self) -> bool {
        !self.admission.jobs().is_empty()
            || !self.deferred.is_empty()
            || self.volumes.is_waiting()
            || self.volumes.commits().next().is_some()
    }
}

impl DirtyLayer {
    /// Defers a request until the decisions of the start are durable, or until an operator's drop of dirty data is
    /// complete. Returns `true` if it is deferred.
    pub(crate) fn defer(&mut self, request: &Request) -> bool {
        let undecided = self.volumes.is_undecided();
        let dirty = self.volumes.get(&request.volume);
        let is_deferred = dirty.is_some_and(|dirty| undecided || dirty.phase.dropping().is_some());
        if is_deferred {
            self.deferred.push_back(request.clone());
        }
        is_deferred
    }

    /// Releases the requests that waited for a decision to become durable. If the device has failed, the volumes
    /// concerned are fenced.
    pub(crate) fn pump_deferred(&mut self, core: &mut Core, clean: &mut Clean) {
        if !self.volumes.pump_decided(core) {
            return;
        }
        // Requests of a volume that is still to be dropped are deferred again.
        for request in core::mem::take(&mut self.deferred) {
            if !self.defer(&request) {
                self.submit_any(&request, core, clean);
            }
        }
    }

    /// Submits a write, trim or zeroing of a volume in write-back; its buffer has been adopted.
    fn submit_write_back(&mut self, request: &Request, core: &mut Core) {
        if self.volumes.fence(request.volume, core).is_some() {
            core.base.answer_write(request, Err(ErrorKind::Io));
            return;
        }
        let clean = self.volumes.get(&request.volume).map_or(0, |dirty| dirty.data.clean);
        let dirty = self.volumes.get_or_insert(request.volume, || VolumeDirty::new(clean));
        dirty.last_request_ms = core.base.now_ms();
        let since_ms = core.base.now_ms();
        dirty.waiting.push_back(WaitingWrite {
            request: request.clone(),
            done_bytes: 0,
            since_ms,
            has_waited: false,
        });
    }

    /// Changes a volume's settings now, or once it has no dirty data.
    pub(crate) fn leave_write_back(&mut self, cfg: &VolumeConfig, core: &mut Core) -> bool {
        let Some(dirty) = self.volumes.get_mut(&cfg.id) else { return false };
        dirty.phase.stay();
        let volume = core.base.volume_mut(cfg.id);
        if cfg.mode == Mode::WriteBack || !dirty.is_dirty() {
            return false;
        }
        match volume {
            // Only a decision about the volume is not durable yet, for which its requests wait in any mode.
            None if !dirty.has_data() => return false,
            Some(volume) if !dirty.has_data() && volume.cfg().mode != Mode::WriteBack => return false,
            // Nothing is written to the origin of a read-only volume, so its dirty data remains.
            Some(volume) if volume.cfg().mode == Mode::ReadOnly && cfg.mode == Mode::ReadOnly => {
                return false;
            }
            Some(volume) => volume.set_mode(Mode::WriteBack),
            None => {}
        }
        dirty.leave(cfg.clone(), core.base.now_ms());
        true
    }

    /// Admits waiting writes of all volumes while capacity is available.
    pub(crate) fn pump_admission(&mut self, core: &mut Core, clean: &mut Clean) {
        if self.volumes.is_empty() {
            return;
        }
        for volume in self.admission.pump(&mut self.volumes, &mut self.commits, core) {
            pump_giving_up(volume, &mut self.volumes, &mut self.commits, core);
            self.finish_leaving(volume, core, clean);
        }
    }

    /// Applies the pending settings of a clean volume, and submits its waiting writes, or a clearing and the writes
    /// after it.
    fn finish_leaving(&mut self, volume: VolumeId, core: &mut Core, clean: &mut Clean) {
        let now_ms = core.base.now_ms();
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        dirty.phase.press(dirty.data.record_count(), now_ms);
        if !dirty.data.is_empty() || dirty.is_incomplete() || dirty.phase.is_unrecorded() {
            return;
        }
        let clears = dirty.phase.is_clearing();
        let cfg = dirty.phase.arrive();
        if cfg.is_none() && !clears {
            return;
        }
        let waiting = core::mem::take(&mut dirty.waiting);
        if let Some(cfg) = cfg {
            core.apply_config(cfg);
        }
        for write in waiting {
            // No admitted part of it is missing on the origin; it is repeated as a whole.
            self.submit_adopted(&write.request, core, clean);
        }
    }

    /// Destages everything that is dirty now without a pause. Later writes do not extend the drain, so it ends while
    /// clients write. An attempt that is pausing after a failure is retried at once.
    pub(crate) fn drain(&mut self, volume: VolumeId) {
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        let until = dirty.data.dirty_until();
        if until > dirty.data.clean {
            dirty.phase.drain(until);
            dirty.destaging.retry_now();
        }
    }

    /// Drops the data that only the cache has. `remembered`: the decision is recorded outside the device, which then
    /// needs no record of it.
    pub(crate) fn drop_dirty(&mut self, volume: VolumeId, remembered: bool, core: &mut Core) {
        let Some(dirty) = self.volumes.get_mut(&volume) else { return };
        dirty.phase.drop_data(Dropping { is_remembered: remembered });
        self.volumes.finish_dropping(volume, core);
    }

    /// Handles a loss of the cache device: no further write becomes durable.
    pub(crate) fn device_failed(&mut self, error: ErrorKind, core: &mut Core) {
        Commits::fail_commits(error, &mut self.volumes, core);
        for volume in self.volumes.ids() {
            let fenced = self.volumes.fence(volume, core).is_some();
            let dirty = self.volumes.get_mut(&volume).expect_held();
            let lost = fenced && dirty.phase.tell_fence();
            self.volumes.refuse_waiting(volume, error, core);
            self.volumes.finish_dropping(volume, core);
            if lost {
                core.base.port.emit(Action::Note(Note::Fenced { volume }));
            }
        }
    }
}

/// Components, for the manager.
impl DirtyLayer {
    pub(crate) const fn volumes(&self) -> &DirtyVolumes {
        &self.volumes
    }

    pub(crate) const fn volumes_mut(&mut self) -> &mut DirtyVolumes {
        &mut self.volumes
    }

    pub(crate) const fn commits_mut(&mut self) -> &mut Commits {
        &mut self.commits
    }

    pub(crate) const fn scrub_mut(&mut self) -> &mut DirtyScrub {
        &mut self.scrub
    }

    /// Recounts the volumes that share the capacity, after a possible change of settings.
    pub(crate) fn count_sharers(&mut self, core: &Core) {
        self.admission.count_sharers(core);
    }

    /// Returns `true` if reduced dirty data waits to be placed.
    pub(crate) fn is_placing(&self) -> bool {
        self.admission.jobs().is_placing()
    }

    /// Use of the capacity of all volumes.
    pub(crate) fn fill(&self, core: &Core) -> DirtyFill {
        Admission::fill(&self.volumes, core)
    }

    /// Handles the completion of a step of a reduction.
    pub(crate) fn dirty_step_ended(&mut self, id: u64, step: ReduceStep, ended: Ended, core: &mut Core) {
        self.admission.jobs_mut().step_ended(id, step, ended, &self.volumes, core);
    }

    /// Resumes a reduction whose unit headers are loaded.
    pub(crate) fn dirty_headers_read(&mut self, id: u64, core: &mut Core) {
        self.admission.jobs_mut().headers_read(id, &self.volumes, core);
    }

    /// Places reduced data in order while slots are available.
    pub(crate) fn pump_dirty_placement(&mut self, core: &mut Core) {
        self.admission.jobs_mut().pump_placement(&mut self.volumes, core);
    }

    /// Continues all commits, and begins those that are due.
    pub(crate) fn pump_commits(&mut self, core: &mut Core) {
        self.commits.pump_commits(&mut self.volumes, core);
    }

    /// Continues the destaging of all volumes.
    pub(crate) fn pump_destage(&mut self, core: &mut Core, clean: &mut Clean) {
        self.destager.pump(&mut self.volumes, &self.commits, core, clean);
    }

    /// Reads the next version to scrub if it is due.
    pub(crate) fn pump_scrub(&mut self, core: &mut Core) {
        self.scrub.pump(&mut self.volumes, core);
    }

    /// Issues the writes that are due: journal block, region map, retirements, checkpoint.
    pub(crate) fn pump_persist(&mut self, core: &mut Core, clean: &mut Clean) {
        self.commits.pump_persist(&mut self.volumes, core, clean);
    }

    /// Handles the completion of an operation of durable metadata.
    pub(crate) fn persist_done(
        &mut self,
        kind: meta::Op,
        result: Result<(), ErrorKind>,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        self.commits.persist_done(kind, result, &mut self.volumes, core, clean);
    }

    /// Drops only the unreadable part of a volume's dirty data, as an operator requested.
    pub(crate) fn give_up_unreadable(&mut self, volume: VolumeId, core: &mut Core) {
        give_up_unreadable(volume, &mut self.volumes, &mut self.commits, core);
    }
}

/// Completions of operations and flushes.
impl DirtyLayer {
    /// Handles the completion of an operation of dirty data.
    pub(crate) fn dirty_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core, clean: &mut Clean) {
        let Self { volumes, commits, destager, scrub, .. } = self;
        match (op, ended) {
            (Op::Part(part), Ended::Device(result)) => {
                let Device { catalog, units, .. } = &mut core.device;
                if units.dirty_mut().part_written(part, result, catalog, &mut core.base) {
                    commits.summary_written(part.number, volumes, core);
                }
            }
            (Op::Gather { gather, part }, Ended::Extents(result)) => {
                destager.gather_read_done(gather, part, result, volumes, core, clean);
            }
            (Op::Scrub, Ended::Extents(result)) => scrub.read_done(result, volumes, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }

    /// Returns the result that clients get for a flush: an unreported loss takes precedence.
    fn result_for_clients(
        &self,
        volume: VolumeId,
        flush: &Flush,
        result: Result<(), ErrorKind>,
        core: &mut Core,
    ) -> Result<(), ErrorKind> {
        let fenced = self.volumes.fence(volume, core).map(|_| ErrorKind::Io);
        let origin = core.base.origin_mut(volume);
        let answer = origin.take_loss().or(fenced).map_or(result, Err);
        if answer.is_err() {
            origin.loss_is_told_to(flush.covers);
        }
        answer
    }

    /// Handles the completion of a flush of an origin.
    pub(crate) fn origin_flushed(
        &mut self,
        volume: VolumeId,
        result: Result<(), ErrorKind>,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let flush = core.base.origin_mut(volume).flush_ended(result);
        let for_clients =
            if flush.has_client() { self.result_for_clients(volume, &flush, result, core) } else { result };
        if let Err(error) = result {
            clean.copies_mut().unflushed_lost(volume, error, core);
        }
        for waiter in flush.waiters {
            match waiter {
                FlushWaiter::Client(req) if for_clients.is_ok() && self.volumes.has_dirty(volume) => {
                    self.commits.request_commit(volume, Some(req), &mut self.volumes, core);
                }
                FlushWaiter::Client(req) => core.base.port.emit(Action::Reply { req, result: for_clients }),
                FlushWaiter::Retire => core.device.catalog.meta_mut().retire_flush_done(volume, result),
                FlushWaiter::Destage => {
                    Destager::flushed(volume, result, &mut self.volumes, &self.commits, core);
                }
                FlushWaiter::Remove => {
                    core.base.announce(Effect::RemovalFlushed(volume, result));
                }
            }
        }
        core.base.pump_origin_flush(volume);
    }
}

/// Queries: amount of dirty data of a volume, the lag of its origin, and reasons for a stop to wait.
impl DirtyLayer {
    /// Returns the dirty data of a volume; `None` when the manager does not serve the volume.
    pub(crate) fn state(&self, volume: VolumeId, core: &Core) -> Option<DirtyState> {
        let Some(dirty) = self.volumes.get(&volume) else {
            return core.base.volume(volume).map(|_| DirtyState::default());
        };
        let oldest = dirty.data.oldest().map_or_else(|| core.base.now_ms(), |epoch| epoch.began_ms);
        let epochs = dirty.data.epochs.iter().filter(|epoch| !epoch.extents.is_empty()).count();
        let gap = dirty.gap(core.base.extent_bytes());
        Some(DirtyState {
            stuck_offset_bytes: gap.first.start,
            stuck_bytes: gap.first.end - gap.first.start,
            unreadable_bytes: gap.bytes,
            bytes: dirty.data.bytes(),
            extents: zc_core::u64_from_usize(dirty.data.extent_count()),
            epochs: zc_core::u64_from_usize(epochs),
            oldest_age_ms: core.base.now_ms().saturating_sub(oldest),
            fenced: self.volumes.fence(volume, core).is_some(),
            refusing: dirty.destaging.is_refused() && !dirty.destaging.is_stuck(),
            unproved: self.commits.is_unproved(volume),
            draining: dirty.is_draining(),
            waiting: zc_core::u64_from_usize(dirty.waiting.len()),
            waiting_ms: dirty
                .waiting
                .front()
                .map_or(0, |first| core.base.now_ms().saturating_sub(first.since_ms)),
            no_space: dirty.destaging.is_out_of_space(),
            newest_epoch: dirty.data.epochs.back().map_or(dirty.data.clean, |epoch| epoch.number),
            dirty_epoch: dirty.data.dirty_until(),
            clean_epoch: dirty.data.clean,
            destaged_bytes: dirty.destaged_bytes,
        })
    }

    /// Returns `true` if dirty data of the volume is being dropped, or the device has not recorded the drop yet.
    pub(crate) fn is_dropping(&self, volume: VolumeId, core: &Core) -> bool {
        let telling = |dirty: &VolumeDirty| dirty.phase.is_unrecorded() && core.base.is_good();
        self.volumes.get(&volume).is_some_and(|dirty| dirty.phase.dropping().is_some() || telling(dirty))
    }

    /// Returns `true` if the unreadable data of the volume is still being dropped.
    pub(crate) fn is_giving_up(&self, volume: VolumeId, core: &Core) -> bool {
        let dirty = self.volumes.get(&volume);
        core.base.is_good() && dirty.is_some_and(|dirty| dirty.is_giving_up(core.base.extent_bytes()))
    }

    /// Returns `true` if acknowledged writes of the volume would be lost with the manager.
    pub(crate) fn has_volatile(&self, volume: VolumeId) -> bool {
        let epochs = self.volumes.get(&volume).map(|dirty| dirty.data.epochs.iter().rev());
        let mut newer = epochs.into_iter().flatten().take_while(|epoch| epoch.state != EpochState::Committed);
        newer.any(|epoch| epoch.acknowledged)
    }

    /// Data that the origin of a volume may lack.
    pub(crate) fn origin_lag(&self, volume: VolumeId, core: &Core) -> OriginLag {
        let Some(dirty) = self.volumes.get(&volume) else { return OriginLag::Nothing };
        let is_undecided = dirty.phase.dropping().is_some() || dirty.phase.is_unrecorded();
        if !dirty.is_dirty() && !is_undecided {
            OriginLag::Nothing
        } else if is_undecided || self.volumes.fence(volume, core).is_some() || !core.base.is_used_by(volume)
        {
            OriginLag::Unknown
        } else {
            OriginLag::Dirty
        }
    }

    /// Returns `true` if nothing is in progress for the volume, and nothing of it is dirty.
    pub(crate) fn is_quiet(&self, volume: VolumeId) -> bool {
        !self.admission.jobs().has_any_of(volume)
            && !self.volumes.get(&volume).is_some_and(|dirty| dirty.is_dirty() || dirty.is_busy())
    }

    /// Returns `true` if data of any volume is dirty or may be.
    pub(crate) fn keeps_dirty(&self) -> bool {
        self.volumes.iter().any(|(_, dirty)| dirty.is_dirty() || dirty.phase.is_unrecorded())
    }

    /// Prepares for a stop: a cache that is offline places no more data.
    pub(crate) fn wind_down(&mut self, core: &mut Core) {
        if !core.base.is_good() {
            self.admission.jobs_mut().abandon(core);
        }
    }

    /// Returns `true` if no work here delays a stop.
    pub(crate) fn is_wound_down(&self, core: &Core) -> bool {
        let is_busy = if core.base.is_good() { self.is_busy() } else { !self.admission.jobs().is_empty() };
        !is_busy && self.destager.is_idle() && !self.scrub.is_reading()
    }

    /// Returns `true` if a start could not determine all dirty data of the volume.
    pub(crate) fn is_doubtful(&self, volume: &VolumeConfig, core: &Core) -> bool {
        volume.may_be_dirty && !core.device.recovery.knows_dirty_data(volume.id)
    }
}
