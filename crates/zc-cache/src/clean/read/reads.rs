//! Client reads: each portion is served from memory, the cache or the origin.

use zc_core::{BufSlice, ErrorKind, ExtentKey, HashKey, KeyedMap, Map, ReqId, VolumeId};

use crate::base::Base;
use crate::clean::copies::Copies;
use crate::clean::order::Turn;
use crate::clean::read::ahead::Reason;
use crate::clean::read::portion::{
    ClientRead, Portion, SectorSource, Sorted, StoredPart, Waiter, sector_range,
};
use crate::clean::read::under_way::{Fill, Hit};
use crate::clean::read::warm::Warms;
use crate::clean::staging::OldCopy;
use crate::clean::streams::{InStream, StreamConfig, StreamTable, StreamVerdict};
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Mapping;
use crate::ops::read::Op;
use crate::seam::{Action, Request};

/// Minimum read size for the detection of descending streams. Smaller reads in descending order are no scan, and the
/// lookup would cost each random read.
const DESCENDING_BYTES_MIN: u32 = 32 << 10;

/// Client reads, and the origin and device reads in progress for them.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(super) reads: Map<u64, ClientRead>,
    pub(super) hits: Map<u64, Hit>,
    pub(super) fetching: KeyedMap<ExtentKey, u64>,
    pub(super) fills: Map<u64, Fill>,
    pub(super) fill_of: KeyedMap<ExtentKey, u64>,
    pub(super) warms: Warms,
    streams: StreamTable,
    descending: StreamTable,
}

impl Reads {
    pub(crate) fn new(streams: StreamConfig, key: &HashKey) -> Self {
        Self {
            reads: Map::default(),
            hits: Map::default(),
            fetching: key.map(),
            fills: Map::default(),
            fill_of: key.map(),
            warms: Warms::default(),
            streams: StreamTable::new(streams),
            descending: StreamTable::descending(streams),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Returns `true` if no client read and no origin read is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.fills.is_empty()
    }

    pub(crate) fn has_any_of(&self, volume: VolumeId) -> bool {
        self.reads.values().any(|read| read.volume() == volume)
            || self.fills.values().any(|fill| fill.volume() == volume)
    }

    pub(crate) fn is_reading_hits(&self) -> bool {
        !self.hits.is_empty()
    }

    /// Counts a pending part of a read.
    pub(crate) fn wait(&mut self, read: u64) {
        self.reads.get_mut(&read).expect_held().pending += 1;
    }

    pub(crate) fn begin_read(&mut self, read: u64, op: ClientRead) {
        self.reads.insert(read, op);
    }

    pub(crate) fn read(&self, read: u64) -> &ClientRead {
        self.reads.get(&read).expect_held()
    }

    /// Returns the stream of a client read, and the range to prefetch. Descending streams are not prefetched.
    pub(crate) fn follow(&mut self, request: &Request) -> StreamVerdict {
        let Request { volume, offset_bytes, len_bytes, .. } = *request;
        let verdict = self.streams.on_read(volume, offset_bytes, len_bytes);
        if verdict.stream.is_some() || len_bytes < u64::from(DESCENDING_BYTES_MIN) {
            return verdict;
        }
        let stream = self.descending.on_descending_read(volume, offset_bytes, len_bytes);
        StreamVerdict { stream, prefetch: None }
    }

    /// Counts a part of a read that the origin serves.
    pub(crate) fn goes_to_origin(&mut self, read: u64) {
        self.reads.get_mut(&read).expect_held().from_origin = true;
    }

    /// Adds a part of a read to those that wait for an origin read in progress.
    pub(crate) fn wait_for_origin(&mut self, read: u64) {
        let op = self.reads.get_mut(&read).expect_held();
        op.pending += 1;
        op.from_origin = true;
    }

    pub(crate) fn read_sorted(
        &mut self,
        read: u64,
        sorted: Sorted,
        stream: Option<InStream>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let op = self.reads.get_mut(&read).expect_held();
        op.from_cache |= sorted.cache;
        op.from_origin |= sorted.origin;
        self.read_stored(read, sorted.stored, copies, core);
        self.read_missing(read, &sorted.missing, stream, copies, core);
    }

    pub(crate) fn sort_clean(
        &mut self,
        read: u64,
        portion: Portion,
        sorted: &mut Sorted,
        copies: &mut Copies,
        core: &mut Core,
    ) -> bool {
        match self.find(&portion, copies, core) {
            SectorSource::Copy(from) => {
                core.base.stats.extent_hits_memory += 1;
                core.base.port.emit(Action::Copy { from, to: portion.dest });
                // Prefetched data was read from the origin.
                let stream = self.read(read).stream();
                let was_ahead = copies.used_prefetched(portion.key, stream, core);
                if was_ahead { sorted.origin = true } else { sorted.cache = true }
            }
            SectorSource::Zero => {
                core.base.stats.extent_hits_zero += 1;
                core.base.port.emit(Action::Zero { dest: portion.dest });
                sorted.cache = true;
            }
            SectorSource::Stored(mapping, place) => {
                sorted.hit(StoredPart { place, mapping, portion, dirty: None });
            }
            SectorSource::Filling(fill) => {
                core.base.stats.extent_joins += 1;
                self.reads.get_mut(&read).expect_held().pending += 1;
                self.join_fill(fill, Waiter { read, portion }, copies, core);
                sorted.origin = true;
            }
            SectorSource::Nothing => {
                copies.recipes_mut().want(portion.key, core);
                let is_staged = copies.staging().get(&portion.key).is_some();
                let found = copies.recipes().find(portion.key, is_staged, core);
                let Some((mapping, place)) = found else { return false };
                sorted.hit(StoredPart { place, mapping, portion, dirty: None });
            }
        }
        true
    }

    pub(crate) fn find(&mut self, portion: &Portion, copies: &mut Copies, core: &mut Core) -> SectorSource {
        let key = portion.key;
        let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
        if let Some(staged) = copies.staging().get(&key) {
            if staged.valid.contains(sectors.clone()) {
                return SectorSource::Copy(BufSlice {
                    buf: staged.buf,
                    start_bytes: portion.skip_bytes,
                    len_bytes: portion.len_bytes,
                });
            }
            let untouched = staged.touched.runs(sectors.end, true).all(|run| run.end <= sectors.start);
            return match staged.old {
                OldCopy::Cached(Mapping::Zero) if untouched => SectorSource::Zero,
                OldCopy::Cached(mapping @ (Mapping::Base(place) | Mapping::Duplicate(place)))
                    if untouched =>
                {
                    SectorSource::Stored(mapping, place)
                }
                _ => SectorSource::Nothing,
            };
        }
        if let Some(ahead) = copies.ahead().get(&key)
            && core.base.tracks.holds(&ahead.guard)
        {
            return SectorSource::Copy(ahead.src.part(portion.skip_bytes, portion.len_bytes));
        }
        if portion.len_bytes < core.base.extent_bytes()
            && let Some(buf) = copies.buffered(&key)
        {
            return SectorSource::Copy(BufSlice {
                buf,
                start_bytes: portion.skip_bytes,
                len_bytes: portion.len_bytes,
            });
        }
        match core.device.catalog.mapping(key) {
            Some(Mapping::Base(place) | Mapping::Duplicate(place))
                if !core.device.catalog.table().is_live(&place) =>
            {
                core.device.catalog.drop_dead(key);
                core.base.stats.swept_entries += 1;
            }
            Some(mapping) if core.device.is_past_gate(key.volume, mapping, &core.base) => {
                return match mapping {
                    Mapping::Zero => SectorSource::Zero,
                    Mapping::Base(place) | Mapping::Duplicate(place) => SectorSource::Stored(mapping, place),
                };
            }
            Some(_) | None => {}
        }
        if let Some(src) = copies.inserts().inserting(key, core) {
            return SectorSource::Copy(src.part(portion.skip_bytes, portion.len_bytes));
        }
        self.filling(key, core).map_or(SectorSource::Nothing, SectorSource::Filling)
    }

    pub(crate) fn direct_read(
        &mut self,
        read: u64,
        volume: VolumeId,
        (offset_bytes, dest): (u64, BufSlice),
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let op = self.reads.get_mut(&read).expect_held();
        op.pending += 1;
        op.from_origin = true;
        let turn = core.base.port.number();
        let bytes = offset_bytes..offset_bytes + u64::from(dest.len_bytes);
        if copies.origin_order_mut().begin(turn, volume, bytes, Turn::Read { read, dest }) {
            start_direct_read(turn, read, volume, offset_bytes, dest, &mut core.base);
        }
    }

    /// Handles the completion of an uncached read.
    pub(crate) fn direct_read_done(
        &mut self,
        read: u64,
        turn: u64,
        result: Result<(), ErrorKind>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        copies.origin_order_mut().end(turn);
        self.read_part_done(read, result, core);
    }

    pub(crate) fn read_part_done(&mut self, read: u64, result: Result<(), ErrorKind>, core: &mut Core) {
        let op = self.reads.get_mut(&read).expect_held();
        op.error = op.error.or_else(|| result.err());
        op.pending -= 1;
        if op.pending > 0 {
            return;
        }
        let op = self.reads.remove(&read).expect_held();
        match (op.from_cache, op.from_origin) {
            (true, true) => core.base.stats.read_partial += 1,
            (true, false) => core.base.stats.read_hits += 1,
            _ => core.base.stats.read_misses += 1,
        }
        core.base.port.emit(Action::Reply { req: op.req, result: op.error.map_or(Ok(()), Err) });
        core.base.port.release(op.buf);
    }
}

/// Warm-up requests of operators.
impl Reads {
    /// Begins an operator's warm-up of a range.
    pub(crate) fn submit_warm(&mut self, request: &Request, copies: &mut Copies, core: &mut Core) {
        self.warms.begin(request.req);
        let extent = u64::from(core.base.extent_bytes());
        if let Some(volume) = core.base.volume(request.volume) {
            let end = (request.offset_bytes + request.len_bytes).div_ceil(extent).min(volume.whole_extents());
            let extents = request.offset_bytes / extent..end;
            self.fetch_extents(request.volume, extents, Reason::Warm(request.req), None, copies, core);
        }
        self.warm_part_done(request.req, Ok(()), core);
    }

    /// Handles the completion of an origin read for a warm-up.
    pub(crate) fn warm_part_done(&mut self, req: ReqId, result: Result<(), ErrorKind>, core: &mut Core) {
        if let Some(result) = self.warms.part_done(req, result) {
            core.base.port.emit(Action::Reply { req, result });
        }
    }

    /// Returns `true` if the insertion of `len_bytes` more bytes leaves at least half of the capacity to client
    /// requests.
    pub(crate) fn has_room_to_warm(len_bytes: u64, copies: &Copies, core: &Core) -> bool {
        let most = u64::from(core.base.cfg().insert_bytes_max) / 2;
        core.base.is_good()
            && !core.device.catalog.meta().is_pressed()
            && copies.inserts().bytes().saturating_add(len_bytes) <= most.max(len_bytes)
    }
}

/// Issues an uncached origin read. The caller holds the range, so no overlapping write is in flight.
pub(crate) fn start_direct_read(
    turn: u64,
    read: u64,
    volume: VolumeId,
    offset_bytes: u64,
    dest: BufSlice,
    base: &mut Base,
) {
    let op = base.port.op(Op::Direct { read, turn });
    base.port.emit(Action::OriginRead { op, volume, offset_bytes, dest });
}
