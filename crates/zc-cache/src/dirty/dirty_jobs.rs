//! Dirty data on its way from memory into a unit: hash, look up, compress, place.
//!
//! Whole extents share content with what is stored already, as the clean path does; pieces of extents are compressed
//! only. A job whose version was written over meanwhile ends without a trace.
//!
//! What it does not do: skip anything under pressure; what is taken in must be stored.

use smallvec::SmallVec;
use zc_core::{
    BufId, BufSlice, Codec, ErrorKind, ExtentKey, Fingerprint, Generation, SECTOR_BYTES, SectorSpan, WeuSlot,
};
use zc_format::{ExpectedExtent, ExtentError};

use crate::base::port::Ended;
use crate::clean::Clean;
use crate::device::units::header_reads::{HeaderWaiter, Lookup};
use crate::device::units::headers::Stored;
use crate::device::units::in_share;
use crate::device::units::unit::Content;
use crate::device::{Core, Device};
use crate::dirty::versions::Body;
use crate::dirty::{DirtyLayer, Op};
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Mapping;
use crate::seam::{Action, Digest, ExtentRead};

/// What a job came to.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Zero,
    Shared { slot: WeuSlot, generation: Generation, stored: Stored },
    Store { codec: Codec, payload: BufSlice },
}

/// Stored content that is being read before it is shared.
#[derive(Debug)]
struct Proving {
    slot: WeuSlot,
    generation: Generation,
    stored: Stored,
    buf: BufId,
}

/// A piece of an extent on its way into a dirty unit.
#[derive(Debug)]
pub(crate) struct DirtyJob {
    pub(in crate::dirty) key: ExtentKey,
    pub(in crate::dirty) span: SectorSpan,
    /// Only whole extents are shared.
    pub(in crate::dirty) whole: bool,
    pub(in crate::dirty) src: BufSlice,
    pub(in crate::dirty) print: Option<Fingerprint>,
    /// Where it is compressed to, and how.
    scratch: Option<(BufId, Codec)>,
    proving: Option<Proving>,
    outcome: Option<Outcome>,
    lookups: u8,
}

impl DirtyLayer {
    pub(crate) fn start_job(
        &mut self,
        key: ExtentKey,
        sectors: &core::ops::Range<u32>,
        src: BufSlice,
        core: &mut Core,
        clean: &mut Clean,
    ) -> Body {
        let id = core.base.port.number();
        let whole = src.len_bytes == core.base.extent_bytes();
        core.base.port.retain(src.buf);
        self.memory_bytes += u64::from(src.len_bytes);
        let span = SectorSpan::new(sectors).expect_held();
        let job = DirtyJob {
            key,
            span,
            whole,
            src,
            print: None,
            scratch: None,
            proving: None,
            outcome: None,
            lookups: 0,
        };
        self.jobs.insert(id, job);
        if whole {
            core.base.hash(Op::Hash(id), key.volume, src);
        } else {
            self.compress_dirty(id, core, clean);
        }
        Body::Memory { src, job: id }
    }

    fn dirty_hashed(&mut self, id: u64, digest: Digest, core: &mut Core, clean: &mut Clean) {
        let job = self.jobs.get_mut(&id).expect_held();
        match digest {
            Digest::Zero => self.dirty_reduced(id, Outcome::Zero, core),
            Digest::Print(print) => {
                job.print = Some(print);
                self.look_up_dirty(id, core, clean);
            }
        }
    }

    /// Whether the content is on the device already.
    pub(crate) fn look_up_dirty(&mut self, id: u64, core: &mut Core, clean: &mut Clean) {
        let job = self.jobs.get_mut(&id).expect_held();
        job.lookups += 1;
        let (print, key, first) = (job.print.expect_held(), job.key, job.lookups == 1);
        let dedup = core.base.volume(key.volume).is_some_and(|volume| volume.cfg().dedup);
        if !dedup {
            return self.compress_dirty(id, core, clean);
        }
        let lent_max = core.device.owed_bounds(&core.base).lent;
        let may_owe = |device: &Device, slot| device.may_owe(slot, lent_max);
        match core.device.look_up(&print, HeaderWaiter::Dirty(id), first, may_owe, &mut core.base) {
            Lookup::Found { slot, generation, stored } => {
                let is_new = core.base.session.wrote(core.device.weu_seq(slot));
                if is_new && core.base.cfg().fingerprint.is_collision_resistant() {
                    self.dirty_reduced(id, Outcome::Shared { slot, generation, stored }, core);
                } else {
                    self.prove_shared(id, slot, generation, stored, core);
                }
            }
            Lookup::Waits => {}
            Lookup::Absent => self.compress_dirty(id, core, clean),
        }
    }

    /// A header of an earlier session names the content; the body beside it may have been torn when that was cut off.
    /// A clean extent that does not verify is read from the origin, a dirty one is lost: so it is read before it is
    /// relied upon. Under a weak fingerprint it always is, and compared (G7).
    fn prove_shared(
        &mut self,
        id: u64,
        slot: WeuSlot,
        generation: Generation,
        stored: Stored,
        core: &mut Core,
    ) {
        core.base.stats.dirty_proofs += 1;
        core.device.pin(slot);
        let buf = core.base.port.alloc(core.base.extent_bytes());
        let place = core.device.place(slot, generation, stored);
        let job = self.jobs.get_mut(&id).expect_held();
        job.proving = Some(Proving { slot, generation, stored, buf });
        let (key, print) = (job.key, job.print);
        let expected = ExpectedExtent {
            print,
            ..core.device.expected(&Mapping::Duplicate(place), &place, key, &core.base)
        };
        let proof = core.device.proof(key.volume, &place, &core.base.whole_sectors(), &core.base);
        let dest = BufSlice { buf, start_bytes: 0, len_bytes: core.base.extent_bytes() };
        core.device.read_stored_extent(
            Op::Proof(id),
            &place,
            ExtentRead { expected, skip_bytes: 0, dest, proof },
            &mut core.base,
        );
    }

    fn shared_proved(
        &mut self,
        id: u64,
        result: Result<Vec<Result<(), ExtentError>>, ErrorKind>,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let ok = result.is_ok_and(|parts| parts.iter().all(Result::is_ok));
        if ok && !core.base.cfg().fingerprint.is_collision_resistant() {
            core.base.stats.compares += 1;
            let job = self.jobs.get(&id).expect_held();
            let (left, buf) = (job.src, job.proving.as_ref().expect_held().buf);
            let right = BufSlice { buf, start_bytes: 0, len_bytes: core.base.extent_bytes() };
            let op = core.base.port.op(Op::Compare(id));
            core.base.port.emit(Action::Compare { op, left, right });
            return;
        }
        let Proving { slot, generation, stored, .. } = self.end_proof(id, core);
        if ok {
            self.dirty_reduced(id, Outcome::Shared { slot, generation, stored }, core);
        } else {
            let place = core.device.place(slot, generation, stored);
            core.device.note_damaged(&Mapping::Duplicate(place));
            self.compress_dirty(id, core, clean);
        }
    }

    /// Stored content of the same fingerprint was compared.
    fn dirty_compared(&mut self, id: u64, equal: bool, core: &mut Core, clean: &mut Clean) {
        let Proving { slot, generation, stored, .. } = self.end_proof(id, core);
        if equal {
            self.dirty_reduced(id, Outcome::Shared { slot, generation, stored }, core);
        } else {
            core.base.stats.compares_differed += 1;
            self.compress_dirty(id, core, clean);
        }
    }

    fn end_proof(&mut self, id: u64, core: &mut Core) -> Proving {
        let proving = self.jobs.get_mut(&id).expect_held().proving.take().expect_held();
        core.device.unpin(proving.slot);
        core.base.port.release(proving.buf);
        proving
    }

    fn compress_dirty(&mut self, id: u64, core: &mut Core, clean: &mut Clean) {
        let job = self.jobs.get(&id).expect_held();
        let (key, src) = (job.key, job.src);
        let codec = core.base.volume(key.volume).map_or(Codec::Raw, |volume| volume.cfg().codec);
        let max_bytes = src.len_bytes.saturating_sub(zc_core::limits::PLACE_ALIGN_BYTES);
        let worth = codec != Codec::Raw && max_bytes > SECTOR_BYTES && clean.is_compression_worth(key, core);
        if !worth {
            self.dirty_reduced(id, Outcome::Store { codec: Codec::Raw, payload: src }, core);
            return;
        }
        core.base.stats.compress_tried += 1;
        let out = core.base.port.alloc(max_bytes);
        self.jobs.get_mut(&id).expect_held().scratch = Some((out, codec));
        let op = core.base.port.op(Op::Compress(id));
        core.base.port.emit(Action::Compress { op, src, codec, max_bytes, out });
    }

    fn dirty_compressed(&mut self, id: u64, stored_bytes: Option<u32>, core: &mut Core, clean: &mut Clean) {
        let job = self.jobs.get(&id).expect_held();
        let (key, src, scratch) = (job.key, job.src, job.scratch);
        let stored = stored_bytes.unwrap_or(src.len_bytes);
        if job.whole {
            clean.report_compression(key, stored, core);
        }
        let outcome = match (stored_bytes, scratch) {
            (Some(len_bytes), Some((buf, codec))) => {
                Outcome::Store { codec, payload: BufSlice { buf, start_bytes: 0, len_bytes } }
            }
            _ => Outcome::Store { codec: Codec::Raw, payload: src },
        };
        self.dirty_reduced(id, outcome, core);
    }

    fn dirty_reduced(&mut self, id: u64, outcome: Outcome, core: &mut Core) {
        let job = self.jobs.get_mut(&id).expect_held();
        job.outcome = Some(outcome);
        let (key, whole, print, tried) = (job.key, job.whole, job.print, job.scratch.is_some());
        let data = self.volumes.get(&key.volume).map(|dirty| &dirty.data);
        if whole && core.base.tells(key) && data.is_some_and(|data| data.newest_awaits(key.extent, id)) {
            let stored = match outcome {
                Outcome::Store { codec, payload } if tried => Some((codec, payload.len_bytes)),
                _ => None,
            };
            core.base.tell(key, print.map_or(Digest::Zero, Digest::Print), stored);
        }
        self.ready.push_back(id);
    }

    /// Places what is reduced, in order, as far as there are slots.
    pub(crate) fn pump_dirty_placement(&mut self, core: &mut Core) {
        while core.base.is_good()
            && let Some(id) = self.ready.front().copied()
        {
            let job = self.jobs.get(&id).expect_held();
            let (key, outcome) = (job.key, job.outcome.expect_held());
            let data = self.volumes.get(&key.volume).map(|dirty| &dirty.data);
            let body = if data.is_some_and(|data| data.awaits(key.extent, id)) {
                let Some(body) = self.place_dirty(id, outcome, core) else { return };
                Some(body)
            } else {
                None
            };
            self.ready.pop_front();
            if let (Some(body), Some(dirty)) = (body, self.volumes.get_mut(&key.volume)) {
                dirty.data.placed(key.extent, id, body);
            }
            self.end_dirty_job(id, core);
        }
    }

    fn end_dirty_job(&mut self, id: u64, core: &mut Core) {
        let job = self.jobs.remove(&id).expect_held();
        self.memory_bytes -= u64::from(job.src.len_bytes);
        core.base.port.release(job.src.buf);
        if let Some((scratch, _)) = job.scratch {
            core.base.port.release(scratch);
        }
    }

    fn place_dirty(&mut self, id: u64, outcome: Outcome, core: &mut Core) -> Option<Body> {
        match outcome {
            Outcome::Zero => Some(Body::Zero { no_hole: true }),
            Outcome::Shared { slot, generation, stored } => {
                let place = core.device.place(slot, generation, stored);
                let good = core.device.generation(slot) == generation
                    && core.device.may_share(&place)
                    && core.device.may_owe(slot, core.device.owed_bounds(&core.base).lent);
                if !good {
                    let src = self.jobs.get(&id).expect_held().src;
                    return self.store_dirty(id, Codec::Raw, src, core);
                }
                core.base.stats.dirty_shared += 1;
                core.device.slot_shared(slot);
                core.device.owe(slot, false);
                Some(Body::Stored { place, own: false })
            }
            Outcome::Store { codec, payload } => self.store_dirty(id, codec, payload, core),
        }
    }

    fn store_dirty(&self, id: u64, codec: Codec, payload: BufSlice, core: &mut Core) -> Option<Body> {
        let job = self.jobs.get(&id).expect_held();
        let (key, raw_bytes, dirty) = (job.key, job.src.len_bytes, Some(job.span));
        let print = job.print.unwrap_or(Fingerprint([0; 32]));
        let content = Content { key, print, codec, payload, raw_bytes, dirty };
        let place = core.device.place_dirty(&content, &mut core.base)?;
        core.base.stats.dirty_stored += 1;
        core.base.stats.stored_raw_bytes += u64::from(raw_bytes);
        core.base.stats.stored_bytes += u64::from(payload.len_bytes);
        let volume = core.base.volume(key.volume).map(|v| (v.cfg().dedup, v.cfg().index_share_percent));
        if let (Some(print), Some((true, share))) = (job.print.filter(|_| job.whole), volume)
            && in_share(&print, share)
        {
            let stored = Stored { offset_units: place.offset_units, pages: place.pages };
            core.device.index_content(print, place.slot, stored);
        }
        Some(Body::Stored { place, own: true })
    }

    /// While stopping: ends jobs that cannot be placed any more.
    pub(crate) fn abandon_dirty_jobs(&mut self, core: &mut Core) {
        let ready: SmallVec<[u64; 8]> = self.ready.drain(..).collect();
        ready.into_iter().for_each(|id| self.end_dirty_job(id, core));
        core.device.drop_dirty_unit(&mut core.base);
    }
}

impl DirtyLayer {
    pub(crate) fn dirty_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core, clean: &mut Clean) {
        match (op, ended) {
            (Op::Hash(job), Ended::Hashed(digest)) => self.dirty_hashed(job, digest, core, clean),
            (Op::Compress(job), Ended::Compressed(stored_bytes)) => {
                self.dirty_compressed(job, stored_bytes, core, clean);
            }
            (Op::Proof(job), Ended::Extents(result)) => self.shared_proved(job, result, core, clean),
            (Op::Compare(job), Ended::Compared(equal)) => self.dirty_compared(job, equal, core, clean),
            (Op::Part(part), Ended::Device(result)) => {
                if core.device.part_written(part, result, &mut core.base) {
                    self.summary_written(part.number, core);
                }
            }
            (Op::Gather { gather, part }, Ended::Extents(result)) => {
                self.gather_read_done(gather, part, result, core, clean);
            }
            (Op::Scrub, Ended::Extents(result)) => self.scrub_read_done(result, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
