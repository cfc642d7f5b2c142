//! Writes that bypass the dirty layer: each piece invalidates the cache, writes to the origin, and offers the data to
//! the cache.

use core::ops::RangeInclusive;
use std::collections::VecDeque;

use zc_core::{Ack, BufSlice, ErrorKind, ExtentKey, ExtentNo, Map, Mode, VolumeId};

use crate::base::Base;
use crate::base::effects::Effect;
use crate::base::health::Health;
use crate::base::volume::Volume;
use crate::clean::copies::Copies;
use crate::clean::copies::staged::fills_from_writes;
use crate::clean::insert::{InsertOptions, is_cut_off};
use crate::clean::order::Turn;
use crate::clean::read::portion::{Portion, portions, sector_range};
use crate::clean::streams::{StreamConfig, StreamTable};
use crate::clean::write::clear::{self, Parts};
use crate::clean::write::op::{PIECE_EXTENTS_MAX, WriteOp};
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::index::CALLED_UP;
use crate::ops::write::Op;
use crate::seam::{Action, Request, RequestKind};

/// Writes that wait for the marks of their regions.
#[derive(Debug, Default)]
pub(crate) struct WaitingWrites {
    /// Writes that wait for capacity for a mark, in order of arrival.
    pub(super) for_room: VecDeque<u64>,
    /// Writes whose marks are not durable yet.
    pub(super) for_mark: Vec<u64>,
}

/// Upgrades a write that bypasses the dirty layer to a durable one (FUA) if the volume acknowledges durable writes
/// only.
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

#[derive(Debug)]
pub(crate) struct Writes {
    writes: Map<u64, WriteOp>,
    waiting: WaitingWrites,
    streams: StreamTable,
}

impl Writes {
    pub(crate) fn new(streams: StreamConfig) -> Self {
        Self { writes: Map::default(), waiting: WaitingWrites::default(), streams: StreamTable::new(streams) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn has_any_of(&self, volume: VolumeId) -> bool {
        self.writes.values().any(|write| write.volume == volume)
    }

    /// Submits a write, trim or zeroing that bypasses the dirty layer; its buffer has been adopted.
    pub(crate) fn write_through(&mut self, request: &Request, copies: &mut Copies, core: &mut Core) {
        let stream = matches!(request.kind, RequestKind::Write { .. })
            .then(|| self.streams.on_write(request.volume, request.offset_bytes, request.len_bytes))
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
            copies,
            core,
        );
    }

    fn begin_write(&mut self, op: WriteOp, copies: &mut Copies, core: &mut Core) {
        let id = core.base.port.number();
        self.writes.insert(id, op);
        self.begin_piece(id, copies, core);
    }

    /// Submits an origin write of dirty data, which is handled as any other write.
    pub(crate) fn submit_destage_write(
        &mut self,
        volume: VolumeId,
        (offset_bytes, len_bytes): (u64, u32),
        kind: RequestKind,
        copies: &mut Copies,
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
            copies,
            core,
        );
    }

    fn begin_piece(&mut self, id: u64, copies: &mut Copies, core: &mut Core) {
        if !self.waiting.for_room.is_empty() && core.base.is_good() {
            core.base.stats.region_room_waits += 1;
            self.waiting.for_room.push_back(id);
            return;
        }
        if !self.mark_piece(id, copies, core) {
            core.base.stats.region_room_waits += 1;
            self.waiting.for_room.push_back(id);
        }
    }

    /// Marks the regions of the next piece and starts it when the marks are durable. Returns `false` if there is no
    /// capacity.
    fn mark_piece(&mut self, id: u64, copies: &mut Copies, core: &mut Core) -> bool {
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
            self.start_piece(id, copies, core);
        } else {
            core.base.stats.region_mark_waits += 1;
            self.waiting.for_mark.push(id);
        }
        true
    }

    /// Returns `true` if the marks of a waiting piece are durable.
    fn piece_is_marked(&self, id: u64, core: &Core) -> bool {
        let op = self.writes.get(&id).expect_held();
        let marked = |regions: &RangeInclusive<u64>| {
            core.device.catalog.meta().regions().are_durable(op.volume, regions.clone())
        };
        op.regions.as_ref().map_or_else(|| !core.base.is_failing(), marked)
    }

    /// Starts a piece with durable marks, as soon as it overlaps no other access of the origin.
    fn start_piece(&mut self, id: u64, copies: &mut Copies, core: &mut Core) {
        let turn = core.base.port.number();
        let op = self.writes.get_mut(&id).expect_held();
        op.turn = turn;
        let (volume, start, len_bytes) = (op.volume, op.piece_start(), op.piece_bytes);
        if copies.origin_order_mut().begin(turn, volume, start..start + len_bytes, Turn::Piece(id)) {
            self.issue_piece(id, copies, core);
        }
    }

    /// Invalidates the cached contents and writes to the origin.
    pub(crate) fn issue_piece(&mut self, id: u64, copies: &mut Copies, core: &mut Core) {
        let op = self.writes.get_mut(&id).expect_held();
        let (kind, volume, offset_bytes, len_bytes) = (op.kind, op.volume, op.piece_start(), op.piece_bytes);
        op.in_range = clear::is_range(kind, len_bytes, core);
        let (parts, skip) =
            (Parts::of(op, core.base.extent_bytes()), u32::try_from(op.done_bytes).unwrap_or(u32::MAX));
        debug_assert!(self.piece_is_marked(id, core) || !core.base.is_good(), "{volume:?}: no durable mark");
        core.base.client_writes();
        if let Some(extents) = &parts.range {
            copies.range_begins(id, volume, extents, core);
        }
        for (offset_bytes, len_bytes) in parts.rest {
            self.void_part(id, offset_bytes, len_bytes, copies, core);
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

    /// Invalidates the cached contents of a part of a piece, extent by extent.
    fn void_part(
        &mut self,
        id: u64,
        offset_bytes: u64,
        len_bytes: u64,
        copies: &mut Copies,
        core: &mut Core,
    ) {
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
            if let Some(buf) = copies.read_buffer_mut().invalidate(&key) {
                core.base.port.release(buf);
            }
            copies.drop_prefetched(key, core);
            copies.recipes_mut().remove(&key);
            core.device.recovery.remember_written(key, &mut core.device.catalog, &mut core.base);
            // A miss fill that completed in the meantime may have mapped a staged extent.
            let old = core.device.catalog.forget(key, &mut core.base);
            if let Some(staged) = copies.staging_mut().get_mut(&key) {
                staged.write_begins(id, sectors);
                staged.touched_ms = core.base.now_ms();
            } else if stage && len < core.base.extent_bytes() {
                let old = old.filter(|mapping| core.device.is_past_gate(volume, *mapping, &core.base));
                copies.stage(id, key, old, sectors, core);
            }
        }
    }
}

impl Writes {
    /// Completes a piece of a write at the origin. On success the data is offered to the cache, except for whole
    /// extents of dirty data, which are returned: the dirty layer holds their places.
    pub(crate) fn piece_written(
        &mut self,
        id: u64,
        result: Result<(), ErrorKind>,
        copies: &mut Copies,
        core: &mut Core,
    ) -> Vec<ExtentKey> {
        let mut destaged = Vec::new();
        let op = self.writes.get(&id).expect_held();
        let (kind, volume, offset_bytes, len_bytes) = (op.kind, op.volume, op.piece_start(), op.piece_bytes);
        let (regions, stream, skip) = (op.regions.clone(), op.stream, op.done_bytes);
        let by_client = op.req.is_some();
        copies.origin_order_mut().end(op.turn);
        let origin = core.base.origin_mut(volume);
        let ended = origin.write_ended(by_client, result.is_ok());
        if let Some(regions) = regions {
            core.device.catalog.meta_mut().regions_mut().write_ends(volume, regions, ended);
        }
        if let Err(error) = result
            && kind.is_fua()
        {
            // A failed durable write may be a failed flush.
            copies.unflushed_lost(volume, error, core);
        }
        match kind {
            RequestKind::Write { buf, .. } => {
                let start_bytes = u32::try_from(skip).unwrap_or(u32::MAX);
                let len_bytes = u32::try_from(len_bytes).unwrap_or(u32::MAX);
                let src = BufSlice { buf, start_bytes, len_bytes };
                let batch = copies.inserts_mut().begin_batch(stream, core);
                for portion in portions(volume, offset_bytes, src, core.base.extent_bytes()) {
                    destaged.extend(self.portion_written(id, &portion, result.is_ok(), batch, copies, core));
                }
                copies.inserts_mut().end_batch(batch);
            }
            _ => {
                self.piece_cleared(id, result.is_ok(), copies, core);
            }
        }
        destaged
    }

    /// Handles the completion of a piece of a trim or zeroing.
    fn piece_cleared(&mut self, id: u64, ok: bool, copies: &mut Copies, core: &mut Core) {
        let op = self.writes.get(&id).expect_held();
        let (kind, volume, parts) = (op.kind, op.volume, Parts::of(op, core.base.extent_bytes()));
        let zero = matches!(kind, RequestKind::WriteZeroes { .. }) && fills_from_writes(volume, &core.base);
        if let Some(extents) = &parts.range {
            copies.range_ends(id, volume, extents, core);
        }
        for (offset_bytes, len_bytes) in parts.rest {
            for (key, _, len) in pieces(volume, offset_bytes, len_bytes, core.base.extent_bytes()) {
                copies.range_cleared(id, key, zero && len == core.base.extent_bytes() && ok, core);
            }
        }
    }

    /// Continues a write with its next piece, or completes it.
    pub(crate) fn end_piece(
        &mut self,
        id: u64,
        result: Result<(), ErrorKind>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let op = self.writes.get_mut(&id).expect_held();
        op.done_bytes += op.piece_bytes;
        if result.is_ok() && op.done_bytes < op.len_bytes {
            self.begin_piece(id, copies, core);
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

    /// Completes a part of a write at the origin. Returns its extent if it is a whole extent of dirty data.
    fn portion_written(
        &mut self,
        id: u64,
        portion: &Portion,
        ok: bool,
        batch: u64,
        copies: &mut Copies,
        core: &mut Core,
    ) -> Option<ExtentKey> {
        let key = portion.key;
        let certain = core.base.tracks.write_ends(key, id) && ok;
        if let Some(staged) = copies.staging_mut().get_mut(&key) {
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
            copies.finish_staged(key, Some(batch), core);
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
            copies.inserts_mut().insert(
                batch,
                guard,
                portion.dest,
                InsertOptions { only_if_duplicate: false },
                core,
            );
        }
        None
    }
}

/// Region marks, and the pieces that wait for them.
impl Writes {
    /// Continues retirements of region marks. Returns `true` if one began, for which the journal must become durable.
    pub(crate) fn pump_retiring(&mut self, copies: &mut Copies, core: &mut Core) -> bool {
        let is_room_wanted = !self.waiting.for_room.is_empty();
        let retired = core.device.catalog.meta_mut().pump_retiring(is_room_wanted, &mut core.base);
        if let Some(end) = retired.ended {
            if !end.failed.is_empty() {
                self.fail_waiting_writes(&end.failed, end.made_room, core);
            }
            self.admit_waiting(copies, core);
        }
        retired.began
    }

    /// Fails writes that need capacity for their marks when origins do not flush, instead of blocking them. Writes of
    /// other volumes wait if some capacity was freed.
    fn fail_waiting_writes(&mut self, failed: &[(VolumeId, ErrorKind)], others_wait: bool, core: &mut Core) {
        for id in core::mem::take(&mut self.waiting.for_room) {
            let volume = self.writes.get(&id).expect_held().volume;
            let own = failed.iter().find(|(failed, _)| *failed == volume);
            match own.or_else(|| failed.first().filter(|_| !others_wait)) {
                Some((_, error)) => self.end_write(id, Err(*error), core),
                None => self.waiting.for_room.push_back(id),
            }
        }
    }

    /// Marks regions for waiting writes while capacity is available.
    pub(crate) fn admit_waiting(&mut self, copies: &mut Copies, core: &mut Core) {
        while let Some(id) = self.waiting.for_room.front().copied() {
            if !self.mark_piece(id, copies, core) {
                return;
            }
            self.waiting.for_room.pop_front();
        }
        core.device.catalog.meta_mut().pump_map(&mut core.base);
    }

    /// Starts the pieces whose marks are durable.
    pub(crate) fn start_marked_pieces(&mut self, copies: &mut Copies, core: &mut Core) {
        for id in core::mem::take(&mut self.waiting.for_mark) {
            if core.base.health() == Health::Failed || self.piece_is_marked(id, core) {
                self.start_piece(id, copies, core);
            } else {
                self.waiting.for_mark.push(id);
            }
        }
    }

    /// Fails the writes that wait for a mark, because no further mark becomes durable.
    pub(crate) fn fail_unmarked_writes(&mut self, core: &mut Core) {
        for id in core::mem::take(&mut self.waiting.for_mark) {
            self.end_write(id, Err(ErrorKind::Io), core);
        }
    }

    /// Handles a device failure: writes continue if they need no mark or their mark is durable.
    pub(crate) fn device_failed(&mut self, copies: &mut Copies, core: &mut Core) {
        self.admit_waiting(copies, core);
        self.start_marked_pieces(copies, core);
    }
}

/// Splits a byte range at extent boundaries: key, bytes of the extent before, bytes in it.
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
