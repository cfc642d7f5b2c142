//! The way of a write, a trim and a zeroing to the origin.
//!
//! A request is done in *pieces* that touch a bounded number of regions. Per piece: mark the regions (durably, if
//! they were not), void what the cache holds, write to the origin; when the origin has it the piece is done, and what
//! was written is offered to the cache. The acknowledgement is the origin's alone (G4, G8): the paper waits for both.
//!
//! A partial overwrite takes the old copy's location along (see `staging`), so that the extent can be completed from
//! the cache later.

pub(crate) mod clear;
mod marks;

pub(crate) use crate::ops::write::Op;

use core::ops::RangeInclusive;
use std::collections::VecDeque;

use smallvec::SmallVec;
use zc_core::{
    Ack, BufId, BufSlice, ErrorKind, ExtentKey, ExtentNo, Mode, ReqId, SectorMap, VolumeId, WeuSlot,
};

use crate::base::Base;
use crate::base::effects::Effect;
use crate::base::health::Health;
use crate::base::volume::Volume;
use crate::clean::Clean;
use crate::clean::insert::{InsertOptions, is_cut_off};
use crate::clean::order::Turn;
use crate::clean::read::{Portion, portions, sector_range};
use crate::clean::staging::{OldCopy, Staged};
use crate::clean::streams::InStream;
use crate::clean::write::clear::Parts;
use crate::config::Admission;
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::index::CALLED_UP;
use crate::index::file_index::Mapping;
use crate::seam::{Action, ExtentRead, PartResults, Request, RequestKind};

/// Extents of one piece: bounds the work of one event for huge trims.
const PIECE_EXTENTS_MAX: u64 = 4096;
/// A partly written extent is merged after it has been left alone for so long.
const MERGE_AFTER_MS: u64 = 20;
/// A partly written extent that nothing completes is dropped after so long.
const STAGED_AGE_MS: u64 = 2000;
/// Merges begun per tick.
const MERGES_PER_TICK: usize = 64;

/// Writes that wait for their regions' marks.
#[derive(Debug, Default)]
pub(crate) struct WaitingWrites {
    /// Until there is room for a mark, in order of arrival.
    for_room: VecDeque<u64>,
    /// Until the marks are durable.
    for_mark: Vec<u64>,
}

/// A write-like request in progress.
#[derive(Debug)]
pub(crate) struct WriteOp {
    /// The request; none for what is destaged.
    req: Option<ReqId>,
    kind: RequestKind,
    pub(in crate::clean) volume: VolumeId,
    offset_bytes: u64,
    len_bytes: u64,
    done_bytes: u64,
    piece_bytes: u64,
    /// Regions that the piece marked; none while the cache is out of order.
    regions: Option<RangeInclusive<u64>>,
    stream: Option<InStream>,
    /// The turn of the piece among the accesses of the origin.
    turn: u64,
    /// Whole extents of the piece are cleared as a range.
    in_range: bool,
}

impl WriteOp {
    fn piece_start(&self) -> u64 {
        self.offset_bytes + self.done_bytes
    }

    fn buf(&self) -> Option<BufId> {
        match self.kind {
            RequestKind::Write { buf, .. } => Some(buf),
            _ => None,
        }
    }
}

/// What goes past the dirty layer of a volume that acknowledges durable writes alone must be durable on the origin.
fn as_durable_as_promised(request: &Request, base: &Base) -> RequestKind {
    let config = base.volume(request.volume).map(Volume::cfg);
    let promised =
        config.is_some_and(|cfg| cfg.mode == Mode::WriteBack && cfg.write_back.ack == Ack::Durable);
    match request.kind {
        RequestKind::WriteZeroes { no_hole, .. } if promised => {
            RequestKind::WriteZeroes { no_hole, fua: true }
        }
        RequestKind::Write { buf, .. } if promised => RequestKind::Write { buf, fua: true },
        RequestKind::Trim { .. } if promised => RequestKind::Trim { fua: true },
        kind => kind,
    }
}

fn fills_from_writes(volume: VolumeId, base: &Base) -> bool {
    base.is_good()
        && !base.is_stopping()
        && base.volume(volume).is_some_and(|volume| {
            matches!(volume.cfg().mode, Mode::WriteThrough | Mode::WriteBack)
                && volume.cfg().admission != Admission::Never
        })
}

fn unpin_old(staged: &Staged, core: &mut Core) {
    if let OldCopy::Cached(Mapping::Base(place) | Mapping::Duplicate(place)) = staged.old {
        core.device.catalog.table_mut().unpin(place.slot);
    }
}

impl Clean {
    /// A write, trim or zeroing that goes past the dirty layer; its buffer has been adopted.
    pub(crate) fn write_through(&mut self, request: &Request, core: &mut Core) {
        let stream = matches!(request.kind, RequestKind::Write { .. })
            .then(|| self.write_streams.on_write(request.volume, request.offset_bytes, request.len_bytes))
            .flatten();
        if let Some(volume) = core.base.volume_mut(request.volume) {
            volume.origin_mut().direct_write_begins();
        }
        self.begin_write(
            WriteOp {
                req: Some(request.req),
                kind: as_durable_as_promised(request, &core.base),
                volume: request.volume,
                offset_bytes: request.offset_bytes,
                len_bytes: request.len_bytes,
                done_bytes: 0,
                piece_bytes: 0,
                regions: None,
                stream,
                turn: 0,
                in_range: false,
            },
            core,
        );
    }

    fn begin_write(&mut self, op: WriteOp, core: &mut Core) {
        let id = core.base.port.number();
        self.writes.insert(id, op);
        self.begin_piece(id, core);
    }

    /// A write of destaged data: the way of any other, for the clean layer.
    pub(crate) fn submit_destage_write(
        &mut self,
        volume: VolumeId,
        offset_bytes: u64,
        len_bytes: u32,
        kind: RequestKind,
        core: &mut Core,
    ) {
        self.begin_write(
            WriteOp {
                req: None,
                kind,
                volume,
                offset_bytes,
                len_bytes: len_bytes.into(),
                done_bytes: 0,
                piece_bytes: 0,
                regions: None,
                stream: None,
                turn: 0,
                in_range: false,
            },
            core,
        );
    }

    fn begin_piece(&mut self, id: u64, core: &mut Core) {
        if !self.waiting.for_room.is_empty() && core.base.is_good() {
            core.base.stats.region_room_waits += 1;
            self.waiting.for_room.push_back(id);
            return;
        }
        if !self.mark_piece(id, core) {
            core.base.stats.region_room_waits += 1;
            self.waiting.for_room.push_back(id);
        }
    }

    /// Marks the regions of the next piece and starts it when the marks are durable. False if there is no room.
    fn mark_piece(&mut self, id: u64, core: &mut Core) -> bool {
        let op = self.writes.get(&id).expect_held();
        let volume = core.base.volume(op.volume).expect_held();
        let region_bytes = volume.cfg().region_bytes;
        let start = op.piece_start();
        let first = start / region_bytes;
        let by_regions = (first + core.device.catalog.meta().regions().piece_max()) * region_bytes - start;
        let by_extents = match op.kind {
            RequestKind::Write { .. } => PIECE_EXTENTS_MAX * u64::from(core.base.extent_bytes()),
            _ => clear::piece_bytes(op, core),
        };
        let piece_bytes = (op.len_bytes - op.done_bytes).min(by_regions).min(by_extents);
        let regions = first..=(start + piece_bytes - 1) / region_bytes;
        let volume = op.volume;
        let tracked = match core.base.health() {
            Health::Good => true,
            Health::Failing => core.device.catalog.meta().regions().are_marked(volume, regions.clone()),
            Health::Failed => false,
        };
        if tracked
            && !core.device.catalog.meta_mut().regions_mut().write_begins(
                volume,
                regions.clone(),
                core.base.now_ms(),
            )
        {
            return false;
        }
        let op = self.writes.get_mut(&id).expect_held();
        op.piece_bytes = piece_bytes;
        op.regions = tracked.then_some(regions.clone());
        if core.base.is_failing() && !tracked {
            core.base.stats.distrust_waits += 1;
            self.waiting.for_mark.push(id);
        } else if !tracked || core.device.catalog.meta().regions().are_durable(volume, regions) {
            self.start_piece(id, core);
        } else {
            core.base.stats.region_mark_waits += 1;
            self.waiting.for_mark.push(id);
        }
        true
    }

    /// Whether the marks of a waiting piece are durable.
    fn piece_is_marked(&self, id: u64, core: &Core) -> bool {
        let op = self.writes.get(&id).expect_held();
        let marked = |regions: &RangeInclusive<u64>| {
            core.device.catalog.meta().regions().are_durable(op.volume, regions.clone())
        };
        op.regions.as_ref().map_or_else(|| !core.base.is_failing(), marked)
    }

    /// The marks are durable: the piece goes off when it meets no other access of the origin.
    fn start_piece(&mut self, id: u64, core: &mut Core) {
        let turn = core.base.port.number();
        let op = self.writes.get_mut(&id).expect_held();
        op.turn = turn;
        let (volume, start, len_bytes) = (op.volume, op.piece_start(), op.piece_bytes);
        if self.origin_order.begin(turn, volume, start..start + len_bytes, Turn::Piece(id)) {
            self.issue_piece(id, core);
        }
    }

    /// Voids what the cache holds and writes to the origin.
    pub(crate) fn issue_piece(&mut self, id: u64, core: &mut Core) {
        let op = self.writes.get_mut(&id).expect_held();
        let (kind, volume, offset_bytes, len_bytes) = (op.kind, op.volume, op.piece_start(), op.piece_bytes);
        op.in_range = clear::is_range(kind, len_bytes, core);
        let (parts, skip) =
            (Parts::of(op, core.base.extent_bytes()), u32::try_from(op.done_bytes).unwrap_or(u32::MAX));
        debug_assert!(self.piece_is_marked(id, core) || !core.base.is_good(), "{volume:?}: no durable mark");
        core.base.client_writes();
        if let Some(extents) = &parts.range {
            self.range_begins(id, volume, extents, core);
        }
        for (offset_bytes, len_bytes) in parts.rest {
            self.void_part(id, offset_bytes, len_bytes, core);
        }
        let op = core.base.port.op(Op::Piece(id));
        core.base.port.emit(match kind {
            RequestKind::Trim { fua } => Action::OriginTrim { op, volume, offset_bytes, len_bytes, fua },
            RequestKind::WriteZeroes { no_hole, fua } => {
                Action::OriginZero { op, volume, offset_bytes, len_bytes, no_hole, fua }
            }
            RequestKind::Write { buf, fua } => {
                let len_bytes = u32::try_from(len_bytes).unwrap_or(u32::MAX);
                let src = BufSlice { buf, start_bytes: skip, len_bytes };
                Action::OriginWrite { op, volume, offset_bytes, src, fua }
            }
            RequestKind::Read { .. } | RequestKind::Flush | RequestKind::Prefetch | RequestKind::Warm => {
                panic!("{kind:?} is not a write")
            }
        });
    }

    /// Voids what the cache holds of a part of a piece, extent by extent.
    fn void_part(&mut self, id: u64, offset_bytes: u64, len_bytes: u64, core: &mut Core) {
        let op = self.writes.get(&id).expect_held();
        let (kind, volume) = (op.kind, op.volume);
        let stage = matches!(kind, RequestKind::Write { .. }) && fills_from_writes(volume, &core.base);
        let mut ahead = pieces(volume, offset_bytes, len_bytes, core.base.extent_bytes());
        for (number, (key, start, len)) in
            pieces(volume, offset_bytes, len_bytes, core.base.extent_bytes()).enumerate()
        {
            if number % CALLED_UP == 0 {
                ahead.by_ref().take(CALLED_UP).for_each(|(key, ..)| core.device.catalog.files().call_up(key));
            }
            let sectors = sector_range(start, len);
            core.base.tracks.write_begins(key, id, sectors.clone());
            if let Some(buf) = self.read_buffer.invalidate(&key) {
                core.base.port.release(buf);
            }
            self.drop_prefetched(key, core);
            self.recipes.remove(&key);
            core.device.recovery.remember_written(key, &mut core.device.catalog, &mut core.base);
            // Also a staged extent may be mapped: by a miss fill that ended meanwhile.
            let old = core.device.catalog.forget(key, &mut core.base);
            if let Some(staged) = self.staging.get_mut(&key) {
                staged.write_begins(id, sectors);
                staged.touched_ms = core.base.now_ms();
            } else if stage && len < core.base.extent_bytes() {
                let old = old.filter(|mapping| core.device.is_past_gate(volume, *mapping, &core.base));
                self.stage(id, key, old, sectors, core);
            }
        }
    }

    /// Begins to collect a partly written extent.
    fn stage(
        &mut self,
        id: u64,
        key: ExtentKey,
        old: Option<Mapping>,
        sectors: core::ops::Range<u32>,
        core: &mut Core,
    ) {
        let whole = core.base.volume(key.volume).is_some_and(|volume| volume.has_whole(key.extent));
        if self.staging.is_crowded() {
            self.make_staging_room(core);
        }
        if !whole || !self.staging.has_room() {
            core.base.stats.staged_dropped += u64::from(whole);
            return;
        }
        if let Some(Mapping::Base(place) | Mapping::Duplicate(place)) = old {
            core.device.catalog.table_mut().pin(place.slot);
        }
        let buf = core.base.port.alloc(core.base.extent_bytes());
        let mut staged = Staged {
            buf,
            valid: SectorMap::EMPTY,
            touched: SectorMap::EMPTY,
            writers: SmallVec::new(),
            old: old.map_or(OldCopy::None, OldCopy::Cached),
            touched_ms: core.base.now_ms(),
            ticket: 0,
        };
        staged.write_begins(id, sectors);
        self.staging.insert(key, staged);
    }

    /// A trim or a zeroing of (a part of) an extent has ended.
    fn range_cleared(&mut self, id: u64, key: ExtentKey, is_zero: bool, core: &mut Core) {
        let certain = core.base.tracks.write_ends(key, id);
        if let Some(staged) = self.staging.get_mut(&key) {
            staged.write_ends(id);
            self.finish_staged(key, None, core);
        } else if certain
            && is_zero
            && !core.base.tracks.is_written(&key)
            && !core.device.catalog.is_mapped(key)
        {
            let whole = core.base.volume(key.volume).is_some_and(|volume| volume.has_whole(key.extent));
            if whole && !core.device.catalog.meta().is_pressed() {
                core.base.stats.insert_offered += 1;
                core.base.stats.insert_offered_written += 1;
                core.base.stats.insert_zero += 1;
                core.device.catalog.map_extent(key, Mapping::Zero, &mut core.base);
            }
        }
    }

    /// Inserts a staged extent if it is whole.
    fn finish_staged(&mut self, key: ExtentKey, batch: Option<u64>, core: &mut Core) {
        let sectors = core.base.extent_bytes() / zc_core::SECTOR_BYTES;
        let whole = self
            .staging
            .get(&key)
            .is_some_and(|staged| staged.is_whole(sectors) && staged.old != OldCopy::Merging);
        if !whole {
            return;
        }
        let staged = self.staging.remove(&key).expect_held();
        unpin_old(&staged, core);
        match core.base.tracks.guard(key) {
            Some(guard) if fills_from_writes(key.volume, &core.base) => {
                core.base.stats.staged_whole += 1;
                let src = BufSlice { buf: staged.buf, start_bytes: 0, len_bytes: core.base.extent_bytes() };
                let own = batch.is_none();
                let batch = batch.unwrap_or_else(|| self.begin_batch(None, core));
                core.base.stats.insert_offered_written += 1;
                self.insert(batch, guard, src, InsertOptions { only_if_duplicate: false }, core);
                if own {
                    self.inserts.batches.end_requests(batch);
                }
            }
            guard => {
                if let Some(guard) = guard {
                    core.base.tracks.release(&guard);
                }
                core.base.port.release(staged.buf);
            }
        }
    }

    /// A miss fill brings the whole extent, or it is not what it was: the staged part is not needed.
    pub(crate) fn drop_idle_staged(&mut self, key: ExtentKey, core: &mut Core) {
        if self
            .staging
            .get(&key)
            .is_some_and(|staged| staged.writers.is_empty() && staged.old != OldCopy::Merging)
        {
            self.drop_staged(key, core);
        }
    }

    fn drop_staged(&mut self, key: ExtentKey, core: &mut Core) {
        if let Some(staged) = self.staging.remove(&key) {
            unpin_old(&staged, core);
            core.base.port.release(staged.buf);
        }
    }

    /// Merges partly written extents that have been left alone, drops those that cannot be completed.
    pub(crate) fn age_staging(&mut self, core: &mut Core) {
        let now_ms = core.base.now_ms();
        let due: Vec<_> = self
            .staging
            .idle()
            .filter(|(_, staged)| {
                let wait = if staged.old == OldCopy::None { STAGED_AGE_MS } else { MERGE_AFTER_MS };
                now_ms.saturating_sub(staged.touched_ms) >= wait
            })
            .map(|(key, staged)| (key, staged.old))
            .take(MERGES_PER_TICK)
            .collect();
        for (key, old) in due {
            self.complete_staged(key, old, core);
        }
    }

    fn complete_staged(&mut self, key: ExtentKey, old: OldCopy, core: &mut Core) {
        match old {
            OldCopy::Cached(Mapping::Zero) => self.merge_zero(key, core),
            OldCopy::Cached(mapping @ (Mapping::Base(place) | Mapping::Duplicate(place))) => {
                self.begin_merge(key, &mapping, &place, core);
            }
            OldCopy::None => {
                core.base.stats.staged_dropped += 1;
                self.drop_staged(key, core);
            }
            OldCopy::Merging => {}
        }
    }

    fn make_staging_room(&mut self, core: &mut Core) {
        let oldest = self.staging.idle().map(|(key, staged)| (key, staged.old)).next();
        match oldest {
            Some((key, OldCopy::None)) => {
                core.base.stats.staged_dropped += 1;
                self.drop_staged(key, core);
            }
            Some((key, old)) => self.complete_staged(key, old, core),
            None => {}
        }
    }

    /// No slot can be evicted: gives up the old copies that pin some.
    pub(crate) fn drop_old_copies(&mut self, core: &mut Core) {
        let pinning: Vec<_> = self
            .staging
            .idle()
            .filter(|(_, staged)| {
                matches!(staged.old, OldCopy::Cached(Mapping::Base(_) | Mapping::Duplicate(_)))
            })
            .map(|(key, _)| key)
            .collect();
        for key in pinning {
            core.base.stats.staged_dropped += 1;
            self.drop_staged(key, core);
        }
    }

    /// Drops everything staged that is idle (the manager stops).
    pub(crate) fn drop_all_staged(&mut self, core: &mut Core) {
        let idle: Vec<_> = self.staging.idle().map(|(key, _)| key).collect();
        for key in idle {
            self.drop_staged(key, core);
        }
    }

    fn merge_zero(&mut self, key: ExtentKey, core: &mut Core) {
        let sectors = core.base.extent_bytes() / zc_core::SECTOR_BYTES;
        let staged = self.staging.get_mut(&key).expect_held();
        let runs: Vec<_> = staged.touched.runs(sectors, false).collect();
        for run in runs {
            staged.valid.insert(run.clone());
            staged.touched.insert(run.clone());
            core.base.port.emit(Action::Zero { dest: sector_slice(staged.buf, &run) });
        }
        staged.old = OldCopy::None;
        core.base.stats.merges += 1;
        self.finish_staged(key, None, core);
    }

    fn begin_merge(
        &mut self,
        key: ExtentKey,
        mapping: &Mapping,
        place: &crate::index::file_index::Place,
        core: &mut Core,
    ) {
        let expected = core.device.catalog.slots().expected(mapping, place, key, &core.base);
        let into = core.base.port.alloc(core.base.extent_bytes());
        let dest = BufSlice { buf: into, start_bytes: 0, len_bytes: core.base.extent_bytes() };
        let proof = self.hit_proof(key.volume, place, &core.base.whole_sectors(), core);
        self.staging.get_mut(&key).expect_held().old = OldCopy::Merging;
        let slot = place.slot;
        core.device.units.read_stored_extent(
            Op::Merge { key, slot, into },
            place,
            ExtentRead { expected, skip_bytes: 0, dest, proof, keep: false },
            &mut core.base,
        );
    }

    pub(crate) fn merge_done(
        &mut self,
        key: ExtentKey,
        slot: WeuSlot,
        into: BufId,
        result: Result<PartResults, ErrorKind>,
        core: &mut Core,
    ) {
        core.device.catalog.table_mut().unpin(slot);
        let ok = result.is_ok_and(|parts| parts.iter().all(Result::is_ok));
        let sectors = core.base.extent_bytes() / zc_core::SECTOR_BYTES;
        let staged = self.staging.get_mut(&key).expect_held();
        staged.old = OldCopy::None;
        if ok {
            let runs: Vec<_> = staged.touched.runs(sectors, false).collect();
            for run in runs {
                staged.valid.insert(run.clone());
                staged.touched.insert(run.clone());
                let to = sector_slice(staged.buf, &run);
                core.base.port.emit(Action::Copy { from: sector_slice(into, &run), to });
            }
            core.base.stats.merges += 1;
        }
        core.base.port.release(into);
        self.finish_staged(key, None, core);
    }
}

impl Clean {
    /// The origin has a piece of a write, or failed to take it: what was written is offered to the cache. Whole extents
    /// of a write of dirty data are returned instead: the dirty layer knows where they are stored.
    pub(crate) fn piece_written(
        &mut self,
        id: u64,
        result: Result<(), ErrorKind>,
        core: &mut Core,
    ) -> Vec<ExtentKey> {
        let mut destaged = Vec::new();
        let op = self.writes.get(&id).expect_held();
        let (kind, volume, offset_bytes, len_bytes) = (op.kind, op.volume, op.piece_start(), op.piece_bytes);
        let (regions, stream, skip) = (op.regions.clone(), op.stream, op.done_bytes);
        let by_client = op.req.is_some();
        self.origin_order.end(op.turn);
        let origin = core.base.origin_mut(volume);
        let ended = origin.write_ended(by_client, result.is_ok());
        if let Some(regions) = regions {
            core.device.catalog.meta_mut().regions_mut().write_ends(volume, regions, ended);
        }
        if let Err(error) = result
            && kind.is_fua()
        {
            // It may have been a flush.
            self.unflushed_lost(volume, error, core);
        }
        match kind {
            RequestKind::Write { buf, .. } => {
                let start_bytes = u32::try_from(skip).unwrap_or(u32::MAX);
                let len_bytes = u32::try_from(len_bytes).unwrap_or(u32::MAX);
                let src = BufSlice { buf, start_bytes, len_bytes };
                let batch = self.begin_batch(stream, core);
                for portion in portions(volume, offset_bytes, src, core.base.extent_bytes()) {
                    destaged.extend(self.portion_written(id, &portion, result.is_ok(), batch, core));
                }
                self.inserts.batches.end_requests(batch);
            }
            _ => {
                self.piece_cleared(id, result.is_ok(), core);
            }
        }
        destaged
    }

    /// A piece of a trim or a zeroing has ended.
    fn piece_cleared(&mut self, id: u64, ok: bool, core: &mut Core) {
        let op = self.writes.get(&id).expect_held();
        let (kind, volume, parts) = (op.kind, op.volume, Parts::of(op, core.base.extent_bytes()));
        let zero = matches!(kind, RequestKind::WriteZeroes { .. }) && fills_from_writes(volume, &core.base);
        if let Some(extents) = &parts.range {
            self.range_ends(id, volume, extents, core);
        }
        for (offset_bytes, len_bytes) in parts.rest {
            for (key, _, len) in pieces(volume, offset_bytes, len_bytes, core.base.extent_bytes()) {
                self.range_cleared(id, key, zero && len == core.base.extent_bytes() && ok, core);
            }
        }
    }

    /// Goes on with the next piece of a write, or ends it.
    pub(crate) fn end_piece(&mut self, id: u64, result: Result<(), ErrorKind>, core: &mut Core) {
        let op = self.writes.get_mut(&id).expect_held();
        op.done_bytes += op.piece_bytes;
        if result.is_ok() && op.done_bytes < op.len_bytes {
            self.begin_piece(id, core);
        } else {
            self.end_write(id, result, core);
        }
    }

    fn end_write(&mut self, id: u64, result: Result<(), ErrorKind>, core: &mut Core) {
        let op = self.writes.remove(&id).expect_held();
        if let Some(req) = op.req {
            core.base.port.emit(Action::Reply { req, result });
            if let Some(volume) = core.base.volume_mut(op.volume) {
                volume.origin_mut().direct_write_answered();
            }
        } else {
            core.base.announce(Effect::DestageWriteEnded(op.volume, result));
        }
        if let Some(buf) = op.buf() {
            core.base.port.release(buf);
        }
    }

    /// A part of a write has reached the origin, or not. Its extent, if it is a whole one of dirty data.
    fn portion_written(
        &mut self,
        id: u64,
        portion: &Portion,
        ok: bool,
        batch: u64,
        core: &mut Core,
    ) -> Option<ExtentKey> {
        let key = portion.key;
        let certain = core.base.tracks.write_ends(key, id) && ok;
        if let Some(staged) = self.staging.get_mut(&key) {
            let ours = staged.write_ends(id);
            staged.touched_ms = core.base.now_ms();
            if certain && ours {
                staged.valid.insert(sector_range(portion.skip_bytes, portion.len_bytes));
                let to = BufSlice {
                    buf: staged.buf,
                    start_bytes: portion.skip_bytes,
                    len_bytes: portion.len_bytes,
                };
                core.base.port.emit(Action::Copy { from: portion.dest, to });
            }
            self.finish_staged(key, Some(batch), core);
        } else if certain
            && portion.len_bytes == core.base.extent_bytes()
            && fills_from_writes(key.volume, &core.base)
        {
            let op = self.writes.get(&id).expect_held();
            if op.req.is_none() {
                return Some(key);
            }
            if is_cut_off(key.volume, op.stream, &core.base) {
                core.base.stats.insert_sequential += 1;
                return None;
            }
            let guard = core.base.tracks.guard(key)?;
            core.base.port.retain(portion.dest.buf);
            core.base.stats.insert_offered_written += 1;
            self.insert(batch, guard, portion.dest, InsertOptions { only_if_duplicate: false }, core);
        }
        None
    }
}

fn sector_slice(buf: BufId, run: &core::ops::Range<u32>) -> BufSlice {
    BufSlice {
        buf,
        start_bytes: run.start * zc_core::SECTOR_BYTES,
        len_bytes: (run.end - run.start) * zc_core::SECTOR_BYTES,
    }
}

/// Cuts a byte range at extent borders: key, bytes of the extent before, bytes in it.
fn pieces(
    volume: VolumeId,
    offset_bytes: u64,
    len_bytes: u64,
    extent_bytes: u32,
) -> impl Iterator<Item = (ExtentKey, u32, u32)> {
    let extent = u64::from(extent_bytes);
    let mut done = 0;
    core::iter::from_fn(move || {
        if done >= len_bytes {
            return None;
        }
        let at = offset_bytes + done;
        let skip = at % extent;
        let len = (extent - skip).min(len_bytes - done);
        done += len;
        let key = ExtentKey { volume, extent: ExtentNo(at / extent) };
        Some((key, u32::try_from(skip).unwrap_or(0), u32::try_from(len).unwrap_or(0)))
    })
}
