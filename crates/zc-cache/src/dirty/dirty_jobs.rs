//! Reduction and placement of dirty data: hash, look up, compress, place in a unit.
//!
//! Whole extents share stored content, as on the clean path; pieces of extents are only compressed. A job whose
//! version was overwritten has no effect.
//!
//! Out of scope: skipping work under pressure; all admitted data must be stored.

use std::collections::VecDeque;

use smallvec::SmallVec;
use zc_core::{BufSlice, Codec, ExtentKey, Fingerprint, Map, SectorSpan, VolumeId};

use crate::base::port::Ended;
use crate::device::Core;
use crate::device::contents::in_share;
use crate::device::stored::Stored;
use crate::device::units::unit::Content;
use crate::dirty::versions::Body;
use crate::dirty::volumes::DirtyVolumes;
use crate::expect_held::ExpectHeld;
use crate::reduce::{Outcome, Owner, ReduceRequest, ReduceStep, Reduction};

/// A piece of an extent being reduced for a dirty unit.
#[derive(Debug)]
pub(crate) struct DirtyJob {
    span: SectorSpan,
    /// A whole extent, which may share content.
    whole: bool,
    reduction: Reduction,
}

impl DirtyJob {
    pub(super) const fn volume(&self) -> VolumeId {
        self.reduction.key().volume
    }
}

/// Jobs of dirty data being reduced and placed.
#[derive(Debug, Default)]
pub(crate) struct DirtyJobs {
    jobs: Map<u64, DirtyJob>,
    /// Reduced jobs, to be placed in this order.
    ready: VecDeque<u64>,
    memory_bytes: u64,
}

impl DirtyJobs {
    pub(crate) const fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns `true` if reduced dirty data waits to be placed.
    pub(crate) fn is_placing(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns `true` if data of the volume is in progress.
    pub(crate) fn has_any_of(&self, volume: VolumeId) -> bool {
        self.jobs.values().any(|job| job.volume() == volume)
    }

    /// Begins to reduce sectors of an extent, which reads are served from until it is placed.
    pub(crate) fn start(
        &mut self,
        key: ExtentKey,
        sectors: &core::ops::Range<u32>,
        src: BufSlice,
        volumes: &DirtyVolumes,
        core: &mut Core,
    ) -> Body {
        let id = core.base.port.number();
        let whole = src.len_bytes == core.base.extent_bytes();
        core.base.port.retain(src.buf);
        self.memory_bytes += u64::from(src.len_bytes);
        let span = SectorSpan::new(sectors).expect_held();
        let only_if_duplicate = false;
        let wanted = ReduceRequest { owner: Owner::Dirty, job: id, key, src, only_if_duplicate };
        let mut reduction = Reduction::new(wanted);
        let is_reduced = reduction.begin(core);
        self.jobs.insert(id, DirtyJob { span, whole, reduction });
        if is_reduced {
            self.reduced(id, volumes, core);
        }
        Body::Memory { src, job: id }
    }

    /// Handles the completion of a step of a reduction.
    pub(crate) fn step_ended(
        &mut self,
        id: u64,
        step: ReduceStep,
        ended: Ended,
        volumes: &DirtyVolumes,
        core: &mut Core,
    ) {
        let job = self.jobs.get_mut(&id).expect_held();
        if job.reduction.ended(step, ended, core) {
            self.reduced(id, volumes, core);
        }
    }

    /// Resumes a reduction whose unit headers are loaded.
    pub(crate) fn headers_read(&mut self, id: u64, volumes: &DirtyVolumes, core: &mut Core) {
        let job = self.jobs.get_mut(&id).expect_held();
        if job.reduction.look_up(core) {
            self.reduced(id, volumes, core);
        }
    }

    fn reduced(&mut self, id: u64, volumes: &DirtyVolumes, core: &mut Core) {
        let job = self.jobs.get(&id).expect_held();
        let key = job.reduction.key();
        let data = volumes.get(&key.volume).map(|dirty| &dirty.data);
        if job.whole && core.base.reports(key) && data.is_some_and(|data| data.newest_awaits(key.extent, id))
        {
            job.reduction.tell(core);
        }
        self.ready.push_back(id);
    }

    /// Places reduced data in order while slots are available.
    pub(crate) fn pump_placement(&mut self, volumes: &mut DirtyVolumes, core: &mut Core) {
        while core.base.is_good()
            && let Some(id) = self.ready.front().copied()
        {
            let job = self.jobs.get(&id).expect_held();
            let (key, outcome) = (job.reduction.key(), job.reduction.outcome().expect_held());
            let data = volumes.get(&key.volume).map(|dirty| &dirty.data);
            let body = if data.is_some_and(|data| data.awaits(key.extent, id)) {
                let Some(body) = self.place_dirty(id, outcome, core) else { return };
                Some(body)
            } else {
                None
            };
            self.ready.pop_front();
            if let (Some(body), Some(dirty)) = (body, volumes.get_mut(&key.volume)) {
                dirty.data.placed(key.extent, id, body);
            }
            self.end_job(id, core);
        }
    }

    fn end_job(&mut self, id: u64, core: &mut Core) {
        let job = self.jobs.remove(&id).expect_held();
        self.memory_bytes -= u64::from(job.reduction.src().len_bytes);
        job.reduction.release(core);
    }

    fn place_dirty(&mut self, id: u64, outcome: Outcome, core: &mut Core) -> Option<Body> {
        match outcome {
            Outcome::Zero => Some(Body::Zero { no_hole: true }),
            Outcome::Duplicate(found) => {
                let lent_max = core.device.catalog.slots().dirty_bounds(&core.base).lent;
                if !found.may_share(&core.device.catalog) || !core.device.may_hold_dirty(found.slot, lent_max)
                {
                    let src = self.jobs.get(&id).expect_held().reduction.src();
                    return self.store_dirty(id, Codec::Raw, src, core);
                }
                let place = found.place(&core.device.catalog);
                core.base.stats.dirty_shared += 1;
                core.device.catalog.slots_mut().slot_shared(found.slot);
                let volume = self.jobs.get(&id).expect_held().volume();
                core.device.catalog.slots_mut().add_dirty(volume, found.slot, false);
                Some(Body::Stored { place, own: false })
            }
            Outcome::OnceOnly => panic!("job {id} is dirty, and may not be left out"),
            Outcome::Store { codec, payload } => self.store_dirty(id, codec, payload, core),
        }
    }

    fn store_dirty(&self, id: u64, codec: Codec, payload: BufSlice, core: &mut Core) -> Option<Body> {
        let job = self.jobs.get(&id).expect_held();
        let (key, raw_bytes) = (job.reduction.key(), job.reduction.src().len_bytes);
        let (known, dirty) = (job.reduction.print(), Some(job.span));
        let print = known.unwrap_or(Fingerprint([0; 32]));
        let content = Content { key, print, codec, payload, raw_bytes, dirty };
        let place =
            core.device.units.dirty_mut().place(&content, &mut core.device.catalog, &mut core.base)?;
        core.base.stats.dirty_stored += 1;
        core.base.stats.stored_raw_bytes += u64::from(raw_bytes);
        core.base.stats.stored_bytes += u64::from(payload.len_bytes);
        let volume = core.base.volume(key.volume).map(|v| (v.cfg().dedup, v.cfg().index_share_percent));
        if let (Some(print), Some((true, share))) = (known.filter(|_| job.whole), volume)
            && in_share(&print, share)
        {
            let stored = Stored { offset_units: place.offset_units, pages: place.pages };
            core.device.catalog.contents_mut().add(print, place.slot, stored);
        }
        Some(Body::Stored { place, own: true })
    }

    /// During a stop: ends jobs that can no longer be placed.
    pub(crate) fn abandon(&mut self, core: &mut Core) {
        let ready: SmallVec<[u64; 8]> = self.ready.drain(..).collect();
        ready.into_iter().for_each(|id| self.end_job(id, core));
        core.device.units.dirty_mut().drop_open(&mut core.base);
    }
}
