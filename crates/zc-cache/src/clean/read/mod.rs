//! The way of a read: lookup per extent, and what becomes of each.
//!
//! A request is cut at extent borders. What is known is copied or read from stored extents straight into the request's
//! buffer (`hit`); the rest goes to the origin (`fill`), and what comes next is read ahead (`read_ahead`).
//! What an operator wants in the cache is read as well (`warm`).
//!
//! Invariant: each part of a request that waits for something is counted in `pending`; the reply goes when none is
//! left.

pub(crate) mod fill;
pub(crate) mod hit;
pub(crate) mod read_ahead;
pub(crate) mod read_buffer;
pub(crate) mod recipes;
pub(crate) mod residency;
pub(crate) mod seen;
pub(crate) mod warm;

pub(crate) use crate::clean::read::recipes::RecipeWait;
use core::ops::Range;

use smallvec::SmallVec;
use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, ExtentNo, ReqId, SECTOR_BYTES, VolumeId};

use crate::base::Base;
use crate::base::port::Ended;
use crate::clean::Clean;
use crate::clean::order::Turn;
use crate::clean::staging::OldCopy;
use crate::clean::streams::{InStream, StreamVerdict};
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::{Mapping, Place};
use crate::ops::read::Op;
use crate::seam::{Action, Request};

/// Smallest read that may be part of a descending stream. Smaller reads in descending order are no scan, and looking for
/// their stream would cost each random read.
const DESCENDING_BYTES_MIN: u32 = 32 << 10;
/// Largest single fill.
const FILL_BYTES_MAX: u64 = 4 << 20;

/// A client read in progress.
#[derive(Debug)]
pub(crate) struct ReadOp {
    req: ReqId,
    buf: BufId,
    volume: VolumeId,
    offset_bytes: u64,
    len_bytes: u32,
    pub(crate) pending: u32,
    error: Option<ErrorKind>,
    from_cache: bool,
    pub(crate) from_origin: bool,
    stream: Option<InStream>,
}

impl ReadOp {
    /// A request whose lookup holds it until that is through.
    pub(crate) const fn new(request: &Request, buf: BufId, len_bytes: u32, stream: Option<InStream>) -> Self {
        Self {
            req: request.req,
            buf,
            volume: request.volume,
            offset_bytes: request.offset_bytes,
            len_bytes,
            pending: 1,
            error: None,
            from_cache: false,
            from_origin: false,
            stream,
        }
    }

    pub(crate) const fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    pub(crate) const fn stream(&self) -> Option<InStream> {
        self.stream
    }

    /// Where its bytes go.
    pub(crate) const fn dest(&self) -> BufSlice {
        BufSlice { buf: self.buf, start_bytes: 0, len_bytes: self.len_bytes }
    }

    pub(crate) const fn volume(&self) -> VolumeId {
        self.volume
    }
}

/// The part of a request that lies in one extent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portion {
    pub(crate) key: ExtentKey,
    /// Bytes of the extent before it.
    pub(crate) skip_bytes: u32,
    pub(crate) len_bytes: u32,
    pub(crate) dest: BufSlice,
}

impl Portion {
    /// Where it lies in the volume.
    pub(crate) fn bytes(&self, extent_bytes: u32) -> Range<u64> {
        let start = self.key.extent.0 * u64::from(extent_bytes) + u64::from(self.skip_bytes);
        start..start + u64::from(self.len_bytes)
    }
}

/// A read that waits for bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) read: u64,
    pub(crate) portion: Portion,
}

/// A stored extent that a read wants a part of.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) place: Place,
    pub(crate) mapping: Mapping,
    pub(crate) portion: Portion,
    /// For dirty data: the sectors that are stored there.
    pub(crate) dirty: Option<Range<u32>>,
}

/// The stored extents of a read; that of a read of one extent needs no memory of its own.
pub(crate) type StoredParts = SmallVec<[Wanted; 1]>;

/// Where the portions of a read come from, as far as that is not memory.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    stored: StoredParts,
    missing: Vec<Portion>,
    cache: bool,
    origin: bool,
}

impl Sorted {
    pub(crate) fn hit(&mut self, wanted: Wanted) {
        self.stored.push(wanted);
        self.cache = true;
    }

    /// Stored extents that it comes from, for one more.
    pub(crate) const fn stored(&mut self) -> &mut StoredParts {
        self.cache = true;
        &mut self.stored
    }

    pub(crate) fn miss(&mut self, portion: Portion) {
        self.missing.push(portion);
        self.origin = true;
    }
}

pub(crate) enum Found {
    Copy(BufSlice),
    Zero,
    Stored(Mapping, Place),
    Filling(u64),
    Nothing,
}

impl Clean {
    /// A read of a client begins.
    pub(crate) fn begin_read(&mut self, read: u64, op: ReadOp) {
        self.reads.insert(read, op);
    }

    /// A read that has not ended.
    pub(crate) fn read(&self, read: u64) -> &ReadOp {
        self.reads.get(&read).expect_held()
    }

    /// Returns the stream that a client's read belongs to, and the range to read ahead of it. There is no read-ahead for
    /// descending streams.
    pub(crate) fn follow(&mut self, request: &Request) -> StreamVerdict {
        let Request { volume, offset_bytes, len_bytes, .. } = *request;
        let verdict = self.read_streams.on_read(volume, offset_bytes, len_bytes);
        if verdict.stream.is_some() || len_bytes < u64::from(DESCENDING_BYTES_MIN) {
            return verdict;
        }
        let stream = self.descending_reads.on_descending_read(volume, offset_bytes, len_bytes);
        StreamVerdict { stream, prefetch: None }
    }

    /// A part of a read comes from the origin.
    pub(crate) fn goes_to_origin(&mut self, read: u64) {
        self.reads.get_mut(&read).expect_held().from_origin = true;
    }

    /// A part of a read comes from a read of the origin that is under way.
    pub(crate) fn wait_for_origin(&mut self, read: u64) {
        let op = self.reads.get_mut(&read).expect_held();
        op.pending += 1;
        op.from_origin = true;
    }

    /// A miss waits for headers no more.
    pub(crate) fn end_recipe_wait(&mut self, id: u64) -> RecipeWait {
        self.recipes.waiting.remove(&id).expect_held()
    }

    pub(crate) fn read_sorted(
        &mut self,
        read: u64,
        sorted: Sorted,
        stream: Option<InStream>,
        core: &mut Core,
    ) {
        let op = self.reads.get_mut(&read).expect_held();
        op.from_cache |= sorted.cache;
        op.from_origin |= sorted.origin;
        self.read_stored(read, sorted.stored, core);
        self.read_missing(read, &sorted.missing, stream, core);
    }

    pub(crate) fn sort_clean(
        &mut self,
        read: u64,
        portion: Portion,
        sorted: &mut Sorted,
        core: &mut Core,
    ) -> bool {
        match self.find(&portion, core) {
            Found::Copy(from) => {
                core.base.stats.extent_hits_memory += 1;
                core.base.port.emit(Action::Copy { from, to: portion.dest });
                // What was read ahead came from the origin.
                let stream = self.read(read).stream();
                let was_ahead = self.used_prefetched(portion.key, stream, core);
                if was_ahead { sorted.origin = true } else { sorted.cache = true }
            }
            Found::Zero => {
                core.base.stats.extent_hits_zero += 1;
                core.base.port.emit(Action::Zero { dest: portion.dest });
                sorted.cache = true;
            }
            Found::Stored(mapping, place) => sorted.hit(Wanted { place, mapping, portion, dirty: None }),
            Found::Filling(fill) => {
                core.base.stats.extent_joins += 1;
                self.reads.get_mut(&read).expect_held().pending += 1;
                self.join_fill(fill, Waiter { read, portion }, core);
                sorted.origin = true;
            }
            Found::Nothing => {
                self.want_recipe(portion.key, core);
                let Some((mapping, place)) = self.find_by_recipe(portion.key, core) else { return false };
                sorted.hit(Wanted { place, mapping, portion, dirty: None });
            }
        }
        true
    }

    pub(crate) fn find(&mut self, portion: &Portion, core: &mut Core) -> Found {
        let key = portion.key;
        let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
        if let Some(staged) = self.staging.get(&key) {
            if staged.valid.contains(sectors.clone()) {
                return Found::Copy(BufSlice {
                    buf: staged.buf,
                    start_bytes: portion.skip_bytes,
                    len_bytes: portion.len_bytes,
                });
            }
            let untouched = staged.touched.runs(sectors.end, true).all(|run| run.end <= sectors.start);
            return match staged.old {
                OldCopy::Cached(Mapping::Zero) if untouched => Found::Zero,
                OldCopy::Cached(mapping @ (Mapping::Base(place) | Mapping::Duplicate(place)))
                    if untouched =>
                {
                    Found::Stored(mapping, place)
                }
                _ => Found::Nothing,
            };
        }
        if let Some(ahead) = self.ahead.get(&key)
            && core.base.tracks.holds(&ahead.guard)
        {
            return Found::Copy(ahead.src.part(portion.skip_bytes, portion.len_bytes));
        }
        if portion.len_bytes < core.base.extent_bytes()
            && let Some(buf) = self.read_buffer.get(&key)
        {
            return Found::Copy(BufSlice {
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
                    Mapping::Zero => Found::Zero,
                    Mapping::Base(place) | Mapping::Duplicate(place) => Found::Stored(mapping, place),
                };
            }
            Some(_) | None => {}
        }
        if let Some(src) = self.inserting(key, core) {
            return Found::Copy(src.part(portion.skip_bytes, portion.len_bytes));
        }
        self.filling(key, core).map_or(Found::Nothing, Found::Filling)
    }

    pub(crate) fn direct_read(
        &mut self,
        read: u64,
        volume: VolumeId,
        offset_bytes: u64,
        dest: BufSlice,
        core: &mut Core,
    ) {
        let op = self.reads.get_mut(&read).expect_held();
        op.pending += 1;
        op.from_origin = true;
        let turn = core.base.port.number();
        let bytes = offset_bytes..offset_bytes + u64::from(dest.len_bytes);
        if self.origin_order.begin(turn, volume, bytes, Turn::Read { read, dest }) {
            start_direct_read(turn, read, volume, offset_bytes, dest, &mut core.base);
        }
    }

    fn direct_read_done(&mut self, read: u64, turn: u64, result: Result<(), ErrorKind>, core: &mut Core) {
        self.origin_order.end(turn);
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

/// The sectors of an extent that some of its bytes make up.
pub(crate) fn sector_range(skip_bytes: u32, len_bytes: u32) -> Range<u32> {
    skip_bytes / SECTOR_BYTES..(skip_bytes + len_bytes) / SECTOR_BYTES
}

/// Cuts a request at extent borders.
pub(crate) fn portions(
    volume: VolumeId,
    offset_bytes: u64,
    dest: BufSlice,
    extent_bytes: u32,
) -> impl Iterator<Item = Portion> {
    let extent = u64::from(extent_bytes);
    let mut done = 0;
    core::iter::from_fn(move || {
        if done >= dest.len_bytes {
            return None;
        }
        let at = offset_bytes + u64::from(done);
        let skip_bytes = u32::try_from(at % extent).unwrap_or(0);
        let len_bytes = (extent_bytes - skip_bytes).min(dest.len_bytes - done);
        let portion = Portion {
            key: ExtentKey { volume, extent: ExtentNo(at / extent) },
            skip_bytes,
            len_bytes,
            dest: dest.part(done, len_bytes),
        };
        done += len_bytes;
        Some(portion)
    })
}

/// No write of the same sectors is in flight, and none goes off before this ends.
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

impl Clean {
    pub(crate) fn read_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core) {
        match (op, ended) {
            (Op::Fill(fill), Ended::Origin(result)) => self.fill_done(fill, result, core),
            (Op::Direct { read, turn }, Ended::Origin(result)) => {
                self.direct_read_done(read, turn, result, core);
            }
            (Op::Hit(hit), Ended::Extents(result)) => self.hit_done(hit, result, core),
            (Op::Move(id), Ended::Extents(result)) => self.moved(id, result, core),
            (Op::Recipe(id), Ended::Recipe(prints)) => self.recipe_arrived(id, &prints, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
