//! Insertion path: Nitro 3.2's six steps as jobs, and batches that keep neighbouring extents together.
//!
//! Steps: 1 hash, 2 look the fingerprint up, 3 compress (all in `reduce`); in `device::units` append to the open WEU,
//! 4 and 5 update both indexes, 6 write the WEU when full.
//!
//! A *batch* is a set of related extents: those of one request, or of one sequential stream up to 128 KiB. It is
//! placed as a whole, in address order, when all its jobs have ended, in whatever order the workers finish; so a later
//! 128 KiB read of the same data is one device read.
//!
//! All insertions are optional, and are skipped when the bound on bytes in progress is reached (G8).

pub(crate) mod batches;
mod placement;

use zc_core::{BufSlice, ExtentKey, HashKey, KeyedMap, Map, VolumeId};

use crate::base::Base;
use crate::base::port::Ended;
use crate::base::tracks::Guard;
use crate::clean::insert::batches::Batches;
use crate::clean::streams::InStream;
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::reduce::{Owner, ReduceRequest, ReduceStep, Reduction};

#[derive(Debug, Clone, Copy)]
pub(crate) struct InsertOptions {
    /// Inserts only if the content is cached already, which costs no SSD write.
    pub(crate) only_if_duplicate: bool,
}

/// Insertion of one extent.
#[derive(Debug)]
pub(crate) struct Job {
    guard: Guard,
    batch: u64,
    reduction: Reduction,
}

#[derive(Debug)]
pub(crate) struct Inserts {
    jobs: Map<u64, Job>,
    /// Newest job of each extent, whose bytes are in memory.
    by_key: KeyedMap<ExtentKey, u64>,
    batches: Batches,
    bytes: u64,
}

impl Inserts {
    pub(crate) fn new(key: &HashKey) -> Self {
        Self { jobs: Map::default(), by_key: key.map(), batches: Batches::default(), bytes: 0 }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.batches.is_empty()
    }

    /// Bytes of all insertions in progress.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Closes a batch to further requests.
    pub(crate) fn end_batch(&mut self, batch: u64) {
        self.batches.end_requests(batch);
    }

    pub(crate) fn age(&mut self, now_ms: u64, is_stopping: bool) {
        self.batches.age(now_ms, is_stopping);
    }

    /// Returns `true` if reduced extents wait for placement.
    pub(crate) fn is_placing(&self) -> bool {
        self.batches.has_ready()
    }

    fn job(&self, id: u64) -> &Job {
        self.jobs.get(&id).expect_held()
    }
}

impl Inserts {
    pub(crate) fn begin_batch(&mut self, stream: Option<InStream>, core: &mut Core) -> u64 {
        self.batches.begin(stream.map(|stream| stream.id), core.base.now_ms(), &mut core.base.port)
    }

    /// Starts the insertion of an extent. The reference to `src.buf` and the guard pass to the job.
    pub(crate) fn insert(
        &mut self,
        batch: u64,
        guard: Guard,
        src: BufSlice,
        options: InsertOptions,
        core: &mut Core,
    ) {
        core.base.stats.insert_offered += 1;
        let full =
            self.bytes + u64::from(core.base.extent_bytes()) > u64::from(core.base.cfg().insert_bytes_max);
        if full || !core.base.is_good() || core.base.is_stopping() || core.device.catalog.meta().is_pressed()
        {
            core.base.stats.insert_skipped += 1;
            core.base.tracks.release(&guard);
            core.base.port.release(src.buf);
            return;
        }
        self.bytes += u64::from(core.base.extent_bytes());
        let id = core.base.port.number();
        self.batches.add(batch, guard.key, id, core.base.extent_bytes());
        let InsertOptions { only_if_duplicate } = options;
        let wanted = ReduceRequest { owner: Owner::Clean, job: id, key: guard.key, src, only_if_duplicate };
        let mut reduction = Reduction::new(wanted);
        let is_reduced = reduction.begin(core);
        self.jobs.insert(id, Job { guard, batch, reduction });
        self.by_key.insert(guard.key, id);
        if is_reduced {
            self.reduced(id, core);
        }
    }

    /// Handles the completion of a reduction step.
    pub(crate) fn step_ended(&mut self, id: u64, step: ReduceStep, ended: Ended, core: &mut Core) {
        let job = self.jobs.get_mut(&id).expect_held();
        if job.reduction.ended(step, ended, core) {
            self.reduced(id, core);
        }
    }

    /// Resumes a reduction whose unit headers are loaded.
    pub(crate) fn headers_read(&mut self, id: u64, core: &mut Core) {
        let job = self.jobs.get_mut(&id).expect_held();
        if job.reduction.look_up(core) {
            self.reduced(id, core);
        }
    }

    fn reduced(&mut self, id: u64, core: &mut Core) {
        let Job { guard, batch, reduction } = self.job(id);
        if core.base.reports(guard.key) && core.base.tracks.holds(guard) {
            reduction.tell(core);
        }
        let batch = *batch;
        self.batches.job_reduced(batch);
    }

    /// Ends a job after its placement, successful or not.
    fn end_job(&mut self, id: u64, core: &mut Core) {
        let job = self.jobs.remove(&id).expect_held();
        self.bytes -= u64::from(core.base.extent_bytes());
        if self.by_key.get(&job.guard.key) == Some(&id) {
            self.by_key.remove(&job.guard.key);
        }
        core.base.tracks.release(&job.guard);
        job.reduction.release(core);
    }

    /// The bytes of an inserting extent, if they are current.
    pub(crate) fn inserting(&self, key: ExtentKey, core: &Core) -> Option<BufSlice> {
        let job = self.by_key.get(&key).and_then(|id| self.jobs.get(id))?;
        core.base.tracks.holds(&job.guard).then_some(job.reduction.src())
    }
}

/// Returns `true` if a stream is too long for its extents to be inserted.
pub(crate) fn is_cut_off(volume: VolumeId, stream: Option<InStream>, base: &Base) -> bool {
    let cutoff_bytes = base.volume(volume).map_or(0, |volume| volume.cfg().sequential_cutoff_bytes);
    cutoff_bytes > 0 && stream.is_some_and(|stream| stream.run_bytes >= cutoff_bytes)
}
