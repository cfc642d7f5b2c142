//! Reduction of an extent's bytes to the stored form: hash, look up, prove, compress. Clean and dirty extents take
//! the same path.
//!
//! 1. *Hash*: a whole extent is hashed; a piece of one is compressed only.
//! 2. *Look up*: a hint of the fingerprint index is proved by the header of a WEU (G7), which may have to be read.
//! 3. *Prove*: under a weak fingerprint the stored content is read and compared. Content that dirty data is to rely
//!    upon is always read from the device, unless it goes there with the same commit.
//! 4. *Compress*, if the stream makes that seem worthwhile.
//!
//! Job: a state machine for one extent. Its owner keeps it, routes the completions of its steps to it, and places the
//! result. Invariants: it has one step in flight or waits for headers, until it is reduced; a slot is pinned while
//! A step of a reduction that completes later.
//!
//! Out of scope: placing anything, and the reason to store an extent.

pub(crate) use crate::ops::reduce::{Op, Owner, ReduceStep};

use zc_core::{
    BufId, BufSlice, Codec, ErrorKind, ExtentKey, Fingerprint, Generation, SECTOR_BYTES, WeuSlot, limits,
};
use zc_format::ExpectedExtent;

use crate::base::port::Ended;
use crate::device::catalog::Catalog;
use crate::device::contents::Lookup;
use crate::device::contents::header_reads::HeaderWaiter;
use crate::device::slots::Slots;
use crate::device::stored::Stored;
use crate::device::units::{Units, proof_of_content, read_stored_from};
use crate::device::{Core, Device};
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Mapping, Place};
use crate::seam::{Action, Digest, ExtentRead, PartResults, Source};

/// A content that is stored already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredContent {
    pub(crate) slot: WeuSlot,
    pub(crate) generation: Generation,
    pub(crate) stored: Stored,
}

/// Result of the reduction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Zero,
    Duplicate(StoredContent),
    Store {
        codec: Codec,
        payload: BufSlice,
    },
    /// Its content is not stored yet, and only a duplicate was requested.
    OnceOnly,
}

/// Inputs of a reduction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReduceRequest {
    pub(crate) owner: Owner,
    /// The owner's number for it.
    pub(crate) job: u64,
    pub(crate) key: ExtentKey,
    /// The bytes. The hold on them passes over.
    pub(crate) src: BufSlice,
    /// Only if the content is stored already.
    pub(crate) only_if_duplicate: bool,
}

#[derive(Debug)]
pub(crate) struct Reduction {
    wanted: ReduceRequest,
    print: Option<Fingerprint>,
    lookups: u8,
    /// Units that had been written to the device at the last lookup.
    written_units: u64,
    /// The content being proved, and the buffer it is read into.
    proving: Option<(StoredContent, BufId)>,
    /// Buffer and codec of its compression; the volume's setting may change in the meantime.
    scratch: Option<(BufId, Codec)>,
    outcome: Option<Outcome>,
}

impl StoredContent {
    pub(crate) fn place(&self, catalog: &Catalog) -> Place {
        catalog.place(self.slot, self.generation, self.stored)
    }

    /// Returns `true` if it is still there and another extent may have it.
    pub(crate) fn may_share(&self, catalog: &Catalog) -> bool {
        catalog.table().get(self.slot).generation() == self.generation
            && catalog.table().may_share(&self.place(catalog))
    }
}

impl ReduceRequest {
    /// Lookups of it at most: headers are read between two of them.
    const fn lookups_max(&self) -> u8 {
        match self.owner {
            Owner::Clean => 3,
            Owner::Dirty => 2,
        }
    }

    /// Returns `true` if a slot's content is of use: clean extents may have any, unless they are kept; dirty ones add
    /// Returns `true` if content of a slot may be shared: clean extents may share any, except with kept ones; dirty
    /// ones add to the dirty data of the slot.
    fn is_wanted(&self, slot: WeuSlot, lent_max: u64, slots: &Slots, units: &Units) -> bool {
        match self.owner {
            Owner::Clean => !slots.kept().has(self.key) || slots.may_keep_in(slot),
            Owner::Dirty => units.dirty().may_hold(slot, lent_max, slots),
        }
    }

    /// Returns `true` if a header's word is enough. The header names the content, but the body beside it may have been
    /// Returns `true` if the header is sufficient proof. It lists the content, but the body may have been torn when an
    /// earlier session was cut off, or corrupted since. A clean extent that fails verification is read from the
    /// origin, but a dirty one is lost: so its content is read first. With a weak fingerprint it is always read and
    /// compared (G7).
    fn believes(&self, found: &StoredContent, core: &Core) -> bool {
        let needs_no_read = self.owner == Owner::Clean || self.goes_along(found, core);
        needs_no_read && core.base.cfg().fingerprint.is_collision_resistant()
    }

    /// Returns `true` if the content goes to the device with the commit of the extent that shares it.
    fn goes_along(&self, found: &StoredContent, core: &Core) -> bool {
        !core.device.units.dirty().is_left_to_device(&found.place(&core.device.catalog))
    }
}

impl Reduction {
    pub(crate) const fn new(wanted: ReduceRequest) -> Self {
        Self {
            wanted,
            print: None,
            lookups: 0,
            written_units: 0,
            proving: None,
            scratch: None,
            outcome: None,
        }
    }

    pub(crate) const fn key(&self) -> ExtentKey {
        self.wanted.key
    }

    pub(crate) const fn src(&self) -> BufSlice {
        self.wanted.src
    }

    /// Its fingerprint, when it is known.
    pub(crate) const fn print(&self) -> Option<Fingerprint> {
        self.print
    }

    /// Result, once it is reduced.
    pub(crate) const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Begins the reduction. Returns `true` if it is reduced at once.
    pub(crate) fn begin(&mut self, core: &mut Core) -> bool {
        if self.is_whole(core) {
            core.base.hash(self.op(ReduceStep::Hash), self.wanted.key.volume, self.wanted.src);
            false
        } else {
            self.compress(core)
        }
    }

    /// Completes a step. Returns `true` if it is reduced now.
    pub(crate) fn ended(&mut self, step: ReduceStep, ended: Ended, core: &mut Core) -> bool {
        match (step, ended) {
            (ReduceStep::Hash, Ended::Hashed(digest)) => self.hashed(digest, core),
            (ReduceStep::Read, Ended::Extents(result)) => self.read(result, core),
            (ReduceStep::Compare, Ended::Compared(equal)) => self.compared(equal, core),
            (ReduceStep::Compress, Ended::Compressed(stored_bytes)) => self.compressed(stored_bytes, core),
            (step, ended) => panic!("{step:?} ended as {ended:?}"),
        }
    }

    /// Looks the content up, at first or when the headers that it waited for are here. Returns `true` if it is
    /// reduced now.
    pub(crate) fn look_up(&mut self, core: &mut Core) -> bool {
        // The volume's setting may have changed while it waited.
        if !core.base.volume(self.wanted.key.volume).is_some_and(|volume| volume.cfg().dedup) {
            return self.absent(core);
        }
        self.lookups += 1;
        self.written_units = core.device.catalog.contents().headers().written_units();
        let ReduceRequest { owner, job, .. } = self.wanted;
        let (wanted, print) = (self.wanted, self.print.expect_held());
        let may_wait = self.lookups < wanted.lookups_max();
        let lent_max = core.device.catalog.slots().dirty_bounds(&core.base).lent;
        let Core { device: Device { catalog, units, .. }, base } = core;
        let is_wanted = |slots: &Slots, slot| wanted.is_wanted(slot, lent_max, slots, units);
        let waiter = HeaderWaiter::Reduction(owner, job);
        match catalog.look_up(&print, waiter, may_wait, is_wanted, base) {
            Lookup::Found { slot, generation, stored } => {
                let found = StoredContent { slot, generation, stored };
                if wanted.believes(&found, core) {
                    self.finish(Outcome::Duplicate(found))
                } else {
                    self.prove(found, core)
                }
            }
            Lookup::Waits => false,
            Lookup::Absent => self.absent(core),
        }
    }

    /// For the placement of clean extents: where the content has been stored since the last lookup, by the extents beside
    /// Returns the content's place if it has been stored since the last lookup, for example by another extent of the
    /// batch.
    pub(crate) fn found_since(&self, core: &mut Core) -> Option<StoredContent> {
        let found = self.found_somewhere(core)?;
        let Device { catalog, units, .. } = &core.device;
        self.wanted.is_wanted(found.slot, 0, catalog.slots(), units).then_some(found)
    }

    fn found_somewhere(&self, core: &mut Core) -> Option<StoredContent> {
        let print = self.print?;
        if self.written_units != core.device.catalog.contents().headers().written_units() {
            let (slot, generation, stored) = core.device.catalog.find_content(&print, &core.base)?;
            return Some(StoredContent { slot, generation, stored });
        }
        if !core.base.cfg().fingerprint.is_collision_resistant() {
            return None;
        }
        let (slot, generation, stored) = core.device.catalog.contents().headers().find_in_memory(&print)?;
        let found = StoredContent { slot, generation, stored };
        core.device.catalog.table().may_share(&found.place(&core.device.catalog)).then_some(found)
    }

    /// Reports the extent's contents, if the driver requested that for its volume.
    pub(crate) fn tell(&self, core: &mut Core) {
        let stored = match self.outcome {
            Some(Outcome::Store { codec, payload }) if self.scratch.is_some() => {
                Some((codec, payload.len_bytes))
            }
            _ => None,
        };
        let digest = self.print.map_or(Digest::Zero, Digest::Print);
        core.base.tell(self.wanted.key, digest, stored);
    }

    /// Ends it: the memory is not needed any more.
    pub(crate) fn release(self, core: &mut Core) {
        core.base.port.release(self.wanted.src.buf);
        if let Some((scratch, _)) = self.scratch {
            core.base.port.release(scratch);
        }
    }

    const fn op(&self, step: ReduceStep) -> Op {
        Op { owner: self.wanted.owner, job: self.wanted.job, step }
    }

    fn is_whole(&self, core: &Core) -> bool {
        self.wanted.src.len_bytes == core.base.extent_bytes()
    }

    const fn finish(&mut self, outcome: Outcome) -> bool {
        self.outcome = Some(outcome);
        true
    }

    fn hashed(&mut self, digest: Digest, core: &mut Core) -> bool {
        match digest {
            Digest::Zero => self.finish(Outcome::Zero),
            Digest::Print(print) => {
                self.print = Some(print);
                self.look_up(core)
            }
        }
    }

    /// Reads the content stored under the same fingerprint.
    fn prove(&mut self, found: StoredContent, core: &mut Core) -> bool {
        let ReduceRequest { owner, key, .. } = self.wanted;
        core.base.stats.dirty_proofs += u64::from(owner == Owner::Dirty);
        core.device.catalog.table_mut().pin(found.slot);
        let len_bytes = core.base.extent_bytes();
        let buf = core.base.port.alloc(len_bytes);
        self.proving = Some((found, buf));
        let place = found.place(&core.device.catalog);
        let expected = ExpectedExtent {
            print: self.print,
            ..core.device.catalog.slots().expected(&Mapping::Duplicate(place), &place, key, &core.base)
        };
        let for_dirty = owner == Owner::Dirty && core.device.units.dirty().is_left_to_device(&place);
        let source = if for_dirty { Source::Device } else { core.device.units.source(place.slot) };
        // A compared content needs no other proof.
        let is_hashed = core.base.cfg().fingerprint.is_collision_resistant() && source == Source::Device;
        let proof = if is_hashed { proof_of_content(key.volume, &core.base) } else { None };
        let dest = BufSlice { buf, start_bytes: 0, len_bytes };
        let part = ExtentRead { expected, skip_bytes: 0, dest, proof, keep: false };
        read_stored_from(source, self.op(ReduceStep::Read), &place, part, &mut core.base);
        false
    }

    fn read(&mut self, result: Result<PartResults, ErrorKind>, core: &mut Core) -> bool {
        let is_good = result.is_ok_and(|parts| parts.iter().all(Result::is_ok));
        if is_good && !core.base.cfg().fingerprint.is_collision_resistant() {
            core.base.stats.compares += 1;
            let (_, buf) = self.proving.expect_held();
            let left = self.wanted.src;
            let right = BufSlice { buf, start_bytes: 0, len_bytes: core.base.extent_bytes() };
            let op = core.base.port.op(self.op(ReduceStep::Compare));
            core.base.port.emit(Action::Compare { op, left, right });
            return false;
        }
        let found = self.end_proof(core);
        if is_good {
            return self.finish(Outcome::Duplicate(found));
        }
        let place = found.place(&core.device.catalog);
        core.device.catalog.slots_mut().note_damaged(&Mapping::Duplicate(place));
        self.absent(core)
    }

    fn compared(&mut self, equal: bool, core: &mut Core) -> bool {
        let found = self.end_proof(core);
        if equal {
            return self.finish(Outcome::Duplicate(found));
        }
        core.base.stats.compares_differed += 1;
        self.absent(core)
    }

    fn end_proof(&mut self, core: &mut Core) -> StoredContent {
        let (found, buf) = self.proving.take().expect_held();
        core.device.catalog.table_mut().unpin(found.slot);
        core.base.port.release(buf);
        found
    }

    /// The content is new.
    fn absent(&mut self, core: &mut Core) -> bool {
        if self.wanted.only_if_duplicate { self.finish(Outcome::OnceOnly) } else { self.compress(core) }
    }

    fn compress(&mut self, core: &mut Core) -> bool {
        let ReduceRequest { key, src, .. } = self.wanted;
        let codec = core.base.volume(key.volume).map_or(Codec::Raw, |volume| volume.cfg().codec);
        let max_bytes = src.len_bytes.saturating_sub(limits::PLACE_ALIGN_BYTES);
        let raw = Outcome::Store { codec: Codec::Raw, payload: src };
        if codec == Codec::Raw || max_bytes <= SECTOR_BYTES {
            return self.finish(raw);
        }
        let extent_bytes = core.base.extent_bytes();
        if !core.base.filter.should_try(key.volume, key.extent, extent_bytes) {
            core.base.stats.compress_avoided += 1;
            return self.finish(raw);
        }
        core.base.stats.compress_tried += 1;
        let out = core.base.port.alloc(max_bytes);
        self.scratch = Some((out, codec));
        let op = core.base.port.op(self.op(ReduceStep::Compress));
        core.base.port.emit(Action::Compress { op, src, codec, max_bytes, out });
        false
    }

    fn compressed(&mut self, stored_bytes: Option<u32>, core: &mut Core) -> bool {
        let ReduceRequest { key, src, .. } = self.wanted;
        if self.is_whole(core) {
            let stored = stored_bytes.unwrap_or(src.len_bytes);
            core.base.filter.report(key.volume, key.extent, src.len_bytes, stored);
        }
        self.finish(match (stored_bytes, self.scratch) {
            (Some(len_bytes), Some((buf, codec))) => {
                Outcome::Store { codec, payload: BufSlice { buf, start_bytes: 0, len_bytes } }
            }
            _ => Outcome::Store { codec: Codec::Raw, payload: src },
        })
    }
}
