//! The insertion path: Nitro 3.2's six steps as jobs, and runs that keep neighbours together.
//!
//! 1 hash, 2 look the fingerprint up (a hint is proved by a WEU header; under a weak hash also by comparing bytes),
//! 3 compress, then, in `device::units`, append to the open WEU, 4 and 5 update both indexes, 6 write the WEU when full.
//!
//! A *run* is a set of extents that belong together: those of one request, or of one sequential stream up to
//! 128 KiB. A run is placed as a whole, in address order, when all its jobs have ended, whatever order workers
//! finish in; so a later 128 KiB read of the same data is one device read.
//!
//! Everything here can be skipped and is, when the bound on bytes under way is reached (G8).

pub(crate) mod compressibility;
mod placement;
pub(crate) mod runs;

pub(crate) use crate::ops::insert::Op;

use zc_core::{
    BufId, BufSlice, Codec, ErrorKind, ExtentKey, Fingerprint, Generation, HashKey, KeyedMap, Map, WeuSlot,
};
use zc_format::ExtentError;

use crate::base::port::Ended;
use crate::base::tracks::Guard;
use crate::clean::Clean;
use crate::clean::insert::runs::Runs;
use crate::clean::streams::StreamId;
use crate::device::Core;
use crate::device::units::header_reads::{HeaderWaiter, Lookup};
use crate::device::units::headers::Stored;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Mapping;
use crate::seam::{Action, Digest, ExtentRead};

/// Times a job goes back to the lookup after headers were read.
const LOOKUPS_MAX: u8 = 3;

/// How an insertion is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InsertOptions {
    /// Only if the content is in the cache already: it costs no SSD write then.
    pub(in crate::clean) only_if_duplicate: bool,
}

/// What a job came to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Zero,
    Duplicate { slot: WeuSlot, generation: Generation, stored: Stored },
    Store { codec: Codec, payload: BufSlice },
    OnceOnly,
}

/// One extent on its way into the cache.
#[derive(Debug)]
pub(crate) struct Job {
    pub(in crate::clean) guard: Guard,
    pub(in crate::clean) src: BufSlice,
    pub(in crate::clean) print: Option<Fingerprint>,
    pub(in crate::clean) outcome: Option<Outcome>,
    run: u64,
    /// Output of compression, or the temporary for a comparison.
    scratch: Option<BufId>,
    /// How it is being compressed; the volume's setting may change meanwhile.
    codec: Codec,
    options: InsertOptions,
    lookups: u8,
    /// Units that had gone to the device at the last lookup.
    settled: u64,
    /// Slot pinned while its extent is compared.
    comparing: Option<(WeuSlot, Generation, Stored)>,
}

/// All insertions under way.
#[derive(Debug)]
pub(crate) struct Inserts {
    jobs: Map<u64, Job>,
    /// The newest job of each extent: its bytes are at hand.
    by_key: KeyedMap<ExtentKey, u64>,
    pub(in crate::clean) runs: Runs,
    bytes: u64,
}

impl Inserts {
    pub(crate) fn new(key: &HashKey) -> Self {
        Self { jobs: Map::default(), by_key: key.map(), runs: Runs::default(), bytes: 0 }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.runs.is_empty()
    }

    /// A job that has not ended.
    pub(crate) fn job(&self, id: u64) -> &Job {
        self.jobs.get(&id).expect_held()
    }
}

impl Clean {
    /// The run that extents of a request go into. Ended with [`Runs::end_requests`].
    pub(crate) fn begin_run(&mut self, stream: Option<StreamId>, core: &mut Core) -> u64 {
        self.inserts.runs.begin(stream, core.base.now_ms(), &mut core.base.port)
    }

    /// Takes an extent in. The hold on `src.buf` and the guard pass to the job.
    pub(crate) fn insert(
        &mut self,
        run: u64,
        guard: Guard,
        src: BufSlice,
        options: InsertOptions,
        core: &mut Core,
    ) {
        core.base.stats.insert_offered += 1;
        let full = self.inserts.bytes + u64::from(core.base.extent_bytes())
            > u64::from(core.base.cfg().insert_bytes_max);
        if full || !core.base.is_good() || core.base.is_stopping() || core.device.journal_is_pressed() {
            core.base.stats.insert_skipped += 1;
            core.base.tracks.release(&guard);
            core.base.port.release(src.buf);
            return;
        }
        self.inserts.bytes += u64::from(core.base.extent_bytes());
        let id = core.base.port.number();
        self.inserts.runs.add(run, guard.key, id, core.base.extent_bytes());
        let job = Job {
            guard,
            src,
            print: None,
            outcome: None,
            run,
            scratch: None,
            codec: Codec::Raw,
            options,
            lookups: 0,
            settled: 0,
            comparing: None,
        };
        self.inserts.jobs.insert(id, job);
        self.inserts.by_key.insert(guard.key, id);
        core.base.hash(Op::Hash(id), guard.key.volume, src);
    }

    fn hashed(&mut self, id: u64, digest: Digest, core: &mut Core) {
        let job = self.inserts.jobs.get_mut(&id).expect_held();
        match digest {
            Digest::Zero => self.finish_job(id, Outcome::Zero, core),
            Digest::Print(print) => {
                job.print = Some(print);
                let volume = job.guard.key.volume;
                if core.base.volume(volume).is_some_and(|volume| volume.cfg().dedup) {
                    self.look_up(id, core);
                } else {
                    self.not_found(id, core);
                }
            }
        }
    }

    /// Step 2. Goes on at once, or when the headers of candidate slots have been read.
    pub(crate) fn look_up(&mut self, id: u64, core: &mut Core) {
        let job = self.inserts.jobs.get_mut(&id).expect_held();
        job.lookups += 1;
        job.settled = core.device.settled_units();
        let (print, may_wait) = (job.print.expect_held(), job.lookups < LOOKUPS_MAX);
        let waiter = HeaderWaiter::Insert(id);
        match core.device.look_up(&print, waiter, may_wait, |_, _| true, &mut core.base) {
            Lookup::Found { slot, generation, stored } => self.found(id, slot, generation, stored, core),
            Lookup::Waits => {}
            Lookup::Absent => self.not_found(id, core),
        }
    }

    fn found(&mut self, id: u64, slot: WeuSlot, generation: Generation, stored: Stored, core: &mut Core) {
        if core.base.cfg().fingerprint.is_collision_resistant() {
            self.finish_job(id, Outcome::Duplicate { slot, generation, stored }, core);
            return;
        }
        core.base.stats.compares += 1;
        core.device.pin(slot);
        let buf = core.base.port.alloc(core.base.extent_bytes());
        let job = self.inserts.jobs.get_mut(&id).expect_held();
        job.scratch = Some(buf);
        job.comparing = Some((slot, generation, stored));
        let place = core.device.place(slot, generation, stored);
        let expected = core.device.expected(
            &Mapping::Duplicate(place),
            &place,
            self.inserts.jobs[&id].guard.key,
            &core.base,
        );
        let dest = BufSlice { buf, start_bytes: 0, len_bytes: core.base.extent_bytes() };
        core.device.read_stored_extent(
            Op::CompareRead(id),
            &place,
            ExtentRead { expected, skip_bytes: 0, dest, proof: None },
            &mut core.base,
        );
    }

    fn compare_read_done(
        &mut self,
        id: u64,
        result: Result<Vec<Result<(), ExtentError>>, ErrorKind>,
        core: &mut Core,
    ) {
        let ok = result.is_ok_and(|parts| parts.iter().all(Result::is_ok));
        let job = self.inserts.jobs.get(&id).expect_held();
        if !ok {
            self.compared(id, false, core);
            return;
        }
        let left = job.src;
        let right =
            BufSlice { buf: job.scratch.expect_held(), start_bytes: 0, len_bytes: core.base.extent_bytes() };
        let op = core.base.port.op(Op::Compare(id));
        core.base.port.emit(Action::Compare { op, left, right });
    }

    fn compared(&mut self, id: u64, equal: bool, core: &mut Core) {
        let job = self.inserts.jobs.get_mut(&id).expect_held();
        let (slot, generation, stored) = job.comparing.take().expect_held();
        let scratch = job.scratch.take().expect_held();
        core.device.unpin(slot);
        core.base.port.release(scratch);
        if equal {
            self.finish_job(id, Outcome::Duplicate { slot, generation, stored }, core);
        } else {
            core.base.stats.compares_differed += 1;
            self.not_found(id, core);
        }
    }

    /// Step 3: the content is new.
    fn not_found(&mut self, id: u64, core: &mut Core) {
        let job = self.inserts.jobs.get(&id).expect_held();
        if job.options.only_if_duplicate {
            self.finish_job(id, Outcome::OnceOnly, core);
            return;
        }
        let (key, src) = (job.guard.key, job.src);
        let codec = core.base.volume(key.volume).map_or(Codec::Raw, |volume| volume.cfg().codec);
        let raw = Outcome::Store { codec: Codec::Raw, payload: src };
        if codec == Codec::Raw {
            self.finish_job(id, raw, core);
        } else if self.is_compression_worth(key, core) {
            core.base.stats.compress_tried += 1;
            let max_bytes = core.base.extent_bytes() - zc_core::limits::PLACE_ALIGN_BYTES;
            let out = core.base.port.alloc(max_bytes);
            let job = self.inserts.jobs.get_mut(&id).expect_held();
            job.scratch = Some(out);
            job.codec = codec;
            let op = core.base.port.op(Op::Compress(id));
            core.base.port.emit(Action::Compress { op, src, codec, max_bytes, out });
        } else {
            core.base.stats.compress_avoided += 1;
            self.finish_job(id, raw, core);
        }
    }

    fn compressed(&mut self, id: u64, stored_bytes: Option<u32>, core: &mut Core) {
        let job = self.inserts.job(id);
        let (key, src, codec, scratch) = (job.guard.key, job.src, job.codec, job.scratch);
        let stored = stored_bytes.unwrap_or(core.base.extent_bytes());
        self.report_compression(key, stored, core);
        match stored_bytes {
            Some(len_bytes) => {
                let payload = BufSlice { buf: scratch.expect_held(), start_bytes: 0, len_bytes };
                self.finish_job(id, Outcome::Store { codec, payload }, core);
            }
            None => self.finish_job(id, Outcome::Store { codec: Codec::Raw, payload: src }, core),
        }
    }

    fn finish_job(&mut self, id: u64, outcome: Outcome, core: &mut Core) {
        let job = self.inserts.jobs.get_mut(&id).expect_held();
        job.outcome = Some(outcome);
        let (run, guard, print, tried) = (job.run, job.guard, job.print, job.scratch.is_some());
        if core.base.tells(guard.key) && core.base.tracks.holds(&guard) {
            let stored = match outcome {
                Outcome::Store { codec, payload } if tried => Some((codec, payload.len_bytes)),
                _ => None,
            };
            core.base.tell(guard.key, print.map_or(Digest::Zero, Digest::Print), stored);
        }
        self.inserts.runs.job_reduced(run);
    }

    /// Ends a job after placement, for better or worse.
    fn end_job(&mut self, id: u64, core: &mut Core) {
        let job = self.inserts.jobs.remove(&id).expect_held();
        self.inserts.bytes -= u64::from(core.base.extent_bytes());
        if self.inserts.by_key.get(&job.guard.key) == Some(&id) {
            self.inserts.by_key.remove(&job.guard.key);
        }
        core.base.tracks.release(&job.guard);
        core.base.port.release(job.src.buf);
        if let Some(scratch) = job.scratch {
            core.base.port.release(scratch);
        }
    }

    /// The bytes of an extent that is on its way into the cache, if they are current.
    pub(crate) fn inserting(&self, key: ExtentKey, core: &Core) -> Option<BufSlice> {
        let job = self.inserts.by_key.get(&key).and_then(|id| self.inserts.jobs.get(id))?;
        core.base.tracks.holds(&job.guard).then_some(job.src)
    }

    /// For placement: the same content may have been stored since the job's lookup, by its very run.
    fn found_since(&mut self, job: u64, core: &mut Core) -> Option<(WeuSlot, Generation, Stored)> {
        let job = self.inserts.jobs.get(&job).expect_held();
        let (print, settled) = (job.print?, job.settled);
        if settled != core.device.settled_units() {
            return core.device.find_content(&print, &mut core.base);
        }
        if !core.base.cfg().fingerprint.is_collision_resistant() {
            return None;
        }
        let (slot, generation, stored) = core.device.find_in_memory(&print)?;
        core.device
            .may_share(&core.device.place(slot, generation, stored))
            .then_some((slot, generation, stored))
    }
}

impl Clean {
    pub(crate) fn insert_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core) {
        match (op, ended) {
            (Op::Hash(job), Ended::Hashed(digest)) => self.hashed(job, digest, core),
            (Op::Compress(job), Ended::Compressed(stored_bytes)) => self.compressed(job, stored_bytes, core),
            (Op::CompareRead(job), Ended::Extents(result)) => self.compare_read_done(job, result, core),
            (Op::Compare(job), Ended::Compared(equal)) => self.compared(job, equal, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
