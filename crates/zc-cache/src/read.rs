//! The way of a read: lookup per extent, hits from device or memory, misses from the origin, read-ahead.
//!
//! A request is cut at extent borders. What is known is copied or read from stored extents straight into the
//! request's buffer; neighbouring stored extents of one WEU are one device read. The rest goes to the origin in runs
//! rounded out to whole extents, so that they can be inserted. A stored extent that fails verification, or a device
//! read that fails, turns into a miss; clients never see it (G3, G4).

use core::ops::Range;

use smallvec::SmallVec;
use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, ExtentNo, ReqId, SECTOR_BYTES, VolumeId, WeuSlot};
use zc_format::{ExpectedExtent, ExtentError};

use crate::config::{Admission, Mode};
use crate::file_index::{Mapping, Place};
use crate::insert::InsertOptions;
use crate::manager::{CacheManager, OpKind};
use crate::persist::Health;
use crate::seam::{Action, ExtentRead, Note, Purpose, Request, Source};
use crate::staging::OldCopy;
use crate::streams::StreamId;
use crate::tracks::{ExpectHeld, Guard};

/// Bytes read ahead that may be in flight or waiting for use.
const PREFETCHED_BYTES_MAX: u64 = 8 << 20;
/// Largest device read for hits.
const HIT_READ_BYTES_MAX: u32 = 512 << 10;
/// Stored extents at most so many pages apart are read in one go.
const HIT_GAP_PAGES_MAX: u32 = 1;
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
    stream: Option<StreamId>,
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

/// Who waits for bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) read: u64,
    pub(crate) portion: Portion,
}

/// A device (or WEU memory) read in progress.
#[derive(Debug)]
pub(crate) struct Hit {
    slot: WeuSlot,
    parts: Vec<HitPart>,
}

#[derive(Debug)]
pub(crate) struct HitPart {
    key: ExtentKey,
    mapping: Mapping,
    /// What only the cache has: nothing else can be read instead.
    dirty: bool,
    pub(crate) waiters: SmallVec<[Waiter; 1]>,
    /// The whole extent is read here, for the read buffer, with the guard that says whether it may stay.
    whole: Option<(BufId, Option<Guard>)>,
}

/// An origin read that may fill the cache.
#[derive(Debug)]
pub(crate) struct Fill {
    volume: VolumeId,
    first: ExtentNo,
    buf: BufId,
    start_bytes: u32,
    guards: Vec<Option<Guard>>,
    admitted: Vec<bool>,
    pub(crate) waiters: Vec<(Waiter, bool)>,
    prefetch: bool,
    stream: Option<StreamId>,
}

/// An extent read ahead, waiting for its first use.
#[derive(Debug)]
pub(crate) struct Prefetched {
    src: BufSlice,
    pub(crate) guard: Guard,
}

/// A stored extent that a read wants a part of.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) place: Place,
    pub(crate) mapping: Mapping,
    pub(crate) portion: Portion,
    /// For dirty data: the sectors that are stored there.
    pub(crate) dirty: Option<Range<u32>>,
}

/// Where the portions of a read come from, as far as that is not memory.
#[derive(Debug, Default)]
struct Sorted {
    stored: Vec<Wanted>,
    missing: Vec<Portion>,
    cache: bool,
    origin: bool,
}

impl Sorted {
    fn hit(&mut self, wanted: Wanted) {
        self.stored.push(wanted);
        self.cache = true;
    }

    fn miss(&mut self, portion: Portion) {
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

impl CacheManager {
    pub(crate) fn submit_read(&mut self, request: &Request, buf: BufId) {
        let len_bytes = u32::try_from(request.len_bytes).unwrap_or(u32::MAX);
        self.adopt(buf);
        let Some(mode) = self.volumes.get(&request.volume).map(|volume| volume.cfg.mode) else {
            self.out.push(Action::Reply { req: request.req, result: Err(ErrorKind::Invalid) });
            self.release(buf);
            return;
        };
        self.stats.reads += 1;
        self.stats.read_bytes += request.len_bytes;
        if let Some(dirty) = self.wb.volumes.get_mut(&request.volume) {
            dirty.last_request_ms = self.now_ms;
        }
        if self.refuses_read(request) {
            self.out.push(Action::Reply { req: request.req, result: Err(ErrorKind::Io) });
            self.release(buf);
            return;
        }
        let read = self.number();
        let mut op = ReadOp {
            req: request.req,
            buf,
            volume: request.volume,
            offset_bytes: request.offset_bytes,
            len_bytes,
            pending: 1,
            error: None,
            from_cache: false,
            from_origin: false,
            stream: None,
        };
        if mode == Mode::PassThrough || self.health != Health::Good {
            self.stats.read_bypassed += 1;
            self.reads.insert(read, op);
            let dest = BufSlice { buf, start_bytes: 0, len_bytes };
            self.direct_read(read, request.volume, request.offset_bytes, dest);
        } else {
            let verdict = self.read_streams.on_read(request.volume, request.offset_bytes, request.len_bytes);
            op.stream = verdict.stream;
            self.reads.insert(read, op);
            self.cached_read(read);
            if let Some(range) = verdict.prefetch {
                self.read_ahead(request.volume, range, verdict.stream);
            }
        }
        self.read_part_done(read, Ok(()));
    }

    fn cached_read(&mut self, read: u64) {
        let op = self.reads.get(&read).expect_held();
        let (volume, offset, stream) = (op.volume, op.offset_bytes, op.stream);
        let dest = BufSlice { buf: op.buf, start_bytes: 0, len_bytes: op.len_bytes };
        let (mut sorted, mut unknown) = (Sorted::default(), None);
        for portion in portions(volume, offset, dest, self.extent_bytes) {
            if self.sort(read, portion, &mut sorted) {
                continue;
            }
            unknown = Some(portion.key);
            if !self.wait_for_headers(read, portion, stream) {
                sorted.miss(portion);
            }
        }
        if let Some(key) = unknown {
            self.expect_learned(key);
        }
        self.read_sorted(read, sorted, stream);
    }

    /// Goes on with a portion that waited for headers. Whether it is known by now.
    pub(crate) fn read_again(&mut self, read: u64, portion: Portion, stream: Option<StreamId>) -> bool {
        let mut sorted = Sorted::default();
        let known = self.sort(read, portion, &mut sorted);
        if !known {
            sorted.miss(portion);
        }
        self.read_sorted(read, sorted, stream);
        self.read_part_done(read, Ok(()));
        known
    }

    fn read_sorted(&mut self, read: u64, sorted: Sorted, stream: Option<StreamId>) {
        let op = self.reads.get_mut(&read).expect_held();
        op.from_cache |= sorted.cache;
        op.from_origin |= sorted.origin;
        self.read_stored(read, sorted.stored);
        self.read_missing(read, &sorted.missing, stream);
    }

    /// Finds out where a portion comes from, and brings it from memory if it is there. Whether it is known.
    fn sort(&mut self, read: u64, portion: Portion, sorted: &mut Sorted) -> bool {
        if self.has_dirty(portion.key.volume) {
            let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
            let visible = self.overlay(portion.key, &sectors);
            if !visible.is_empty() {
                self.read_overlaid(read, &portion, &visible, &mut sorted.stored);
                sorted.cache = true;
                return true;
            }
        }
        match self.find(&portion) {
            Found::Copy(from) => {
                self.stats.extent_hits_memory += 1;
                self.out.push(Action::Copy { from, to: portion.dest });
                self.used_prefetched(portion.key);
                sorted.cache = true;
            }
            Found::Zero => {
                self.stats.extent_hits_zero += 1;
                self.out.push(Action::Zero { dest: portion.dest });
                sorted.cache = true;
            }
            Found::Stored(mapping, place) => sorted.hit(Wanted { place, mapping, portion, dirty: None }),
            Found::Filling(fill) => {
                self.stats.extent_joins += 1;
                self.reads.get_mut(&read).expect_held().pending += 1;
                let fill = self.fills.get_mut(&fill).expect_held();
                fill.waiters.push((Waiter { read, portion }, false));
                if fill.prefetch { sorted.cache = true } else { sorted.origin = true }
            }
            Found::Nothing => {
                self.want_recipe(portion.key);
                let Some((mapping, place)) = self.find_by_recipe(portion.key) else { return false };
                sorted.hit(Wanted { place, mapping, portion, dirty: None });
            }
        }
        true
    }

    pub(crate) fn find(&mut self, portion: &Portion) -> Found {
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
                OldCopy::Held(Mapping::Zero) if untouched => Found::Zero,
                OldCopy::Held(mapping @ (Mapping::Base(place) | Mapping::Duplicate(place))) if untouched => {
                    Found::Stored(mapping, place)
                }
                _ => Found::Nothing,
            };
        }
        if let Some(ahead) = self.prefetched.get(&key)
            && self.tracks.holds(&ahead.guard)
        {
            return Found::Copy(ahead.src.part(portion.skip_bytes, portion.len_bytes));
        }
        if portion.len_bytes < self.extent_bytes
            && let Some(buf) = self.read_buffer.get(&key)
        {
            return Found::Copy(BufSlice {
                buf,
                start_bytes: portion.skip_bytes,
                len_bytes: portion.len_bytes,
            });
        }
        match self.files.get(key) {
            Some(Mapping::Base(place) | Mapping::Duplicate(place)) if !self.slots.is_live(&place) => {
                self.files.remove(key);
                self.stats.swept_entries += 1;
            }
            Some(mapping) if self.is_past_gate(key.volume, mapping) => {
                return match mapping {
                    Mapping::Zero => Found::Zero,
                    Mapping::Base(place) | Mapping::Duplicate(place) => Found::Stored(mapping, place),
                };
            }
            Some(_) | None => {}
        }
        if let Some(src) = self.inserting(key) {
            return Found::Copy(src.part(portion.skip_bytes, portion.len_bytes));
        }
        if let Some(fill) = self.fill_of.get(&key) {
            let index = usize::try_from(key.extent.0 - self.fills.get(fill).expect_held().first.0)
                .unwrap_or(usize::MAX);
            let guard = self.fills.get(fill).and_then(|f| f.guards.get(index).copied().flatten());
            if guard.is_some_and(|guard| self.tracks.holds(&guard)) {
                return Found::Filling(*fill);
            }
        }
        Found::Nothing
    }

    /// Reads stored extents, neighbours together.
    fn read_stored(&mut self, read: u64, mut stored: Vec<Wanted>) {
        stored.sort_by_key(|wanted| (wanted.place.slot, wanted.place.offset_units));
        let mut group: Vec<Wanted> = Vec::new();
        let mut pages = 0..0;
        for item in stored {
            let extent = page_range(&item.place);
            let fits = group.first().is_some_and(|first| first.place.slot == item.place.slot)
                && extent.start <= pages.end + HIT_GAP_PAGES_MAX
                && (extent.end - pages.start) * zc_core::limits::BLOCK_BYTES <= HIT_READ_BYTES_MAX;
            if fits {
                pages.end = pages.end.max(extent.end);
            } else {
                self.issue_hit(read, core::mem::take(&mut group), &pages);
                pages = extent;
            }
            group.push(item);
        }
        self.issue_hit(read, group, &pages);
    }

    fn issue_hit(&mut self, read: u64, group: Vec<Wanted>, pages: &Range<u32>) {
        let Some(first) = group.first() else { return };
        let slot = first.place.slot;
        let id = self.number();
        let mut parts = Vec::with_capacity(group.len());
        let mut reads = Vec::with_capacity(group.len());
        for Wanted { place, mapping, portion, dirty } in group {
            self.reads.get_mut(&read).expect_held().pending += 1;
            let waiter = Waiter { read, portion };
            let waiters = SmallVec::from_elem(waiter, 1);
            if let Some(stored) = dirty {
                let key = matches!(mapping, Mapping::Base(_)).then_some(portion.key);
                reads.push(ExtentRead {
                    expected: self.expected_dirty(&place, key, &stored),
                    skip_bytes: portion.skip_bytes - stored.start * SECTOR_BYTES,
                    dest: portion.dest,
                });
                parts.push(HitPart { key: portion.key, mapping, dirty: true, waiters, whole: None });
                continue;
            }
            if self.join_fetch(portion.key, waiter) {
                continue;
            }
            let whole = self.fetch_whole(&portion, id);
            let (skip_bytes, dest) = match &whole {
                Some((buf, _)) => (0, BufSlice { buf: *buf, start_bytes: 0, len_bytes: self.extent_bytes }),
                None => (portion.skip_bytes, portion.dest),
            };
            reads.push(ExtentRead {
                expected: self.expected(&mapping, &place, portion.key),
                skip_bytes,
                dest,
            });
            parts.push(HitPart { key: portion.key, mapping, dirty: false, waiters, whole });
        }
        if parts.is_empty() {
            return;
        }
        self.slots.pin(slot);
        self.policy.touched(slot);
        self.hits.insert(id, Hit { slot, parts });
        let op = self.op(OpKind::Hit(id));
        let len_bytes = (pages.end - pages.start) * zc_core::limits::BLOCK_BYTES;
        let source = self.source(slot);
        self.hold_source(op, source);
        if source == Source::Device {
            self.stats.device_reads += 1;
            self.stats.device_read_bytes += u64::from(len_bytes);
            self.stats.device_read_extents += zc_core::u64_from_usize(reads.len());
        }
        let start_bytes = pages.start * zc_core::limits::BLOCK_BYTES;
        self.out.push(Action::ReadExtents {
            op,
            source,
            slot,
            start_bytes,
            len_bytes,
            parts: reads,
            urgent: true,
        });
    }

    /// Joins a read of the whole extent that is in flight and still good.
    fn join_fetch(&mut self, key: ExtentKey, waiter: Waiter) -> bool {
        let Some(hit) = self.fetching.get(&key) else { return false };
        let Some(part) =
            self.hits.get_mut(hit).and_then(|hit| hit.parts.iter_mut().find(|part| part.key == key))
        else {
            return false;
        };
        let good = matches!(&part.whole, Some((_, Some(guard))) if self.tracks.holds(guard));
        if good {
            part.waiters.push(waiter);
        }
        good
    }

    /// For a small read: a buffer for the whole extent, to be kept in the read buffer.
    fn fetch_whole(&mut self, portion: &Portion, hit: u64) -> Option<(BufId, Option<Guard>)> {
        if portion.len_bytes >= self.extent_bytes
            || self.cfg.read_buffer_bytes == 0
            || self.staging.get(&portion.key).is_some()
        {
            return None;
        }
        let guard = self.tracks.guard(portion.key);
        let buf = self.alloc(self.extent_bytes);
        if guard.is_some() {
            self.fetching.insert(portion.key, hit);
        }
        Some((buf, guard))
    }

    /// What the pages of a location must hold.
    pub(crate) fn expected(&self, mapping: &Mapping, place: &Place, key: ExtentKey) -> ExpectedExtent {
        let slot = self.slots.get(place.slot);
        ExpectedExtent {
            slot: place.slot,
            generation: slot.generation,
            weu_seq: slot.weu_seq,
            offset_bytes: u32::from(place.offset_units) * zc_core::limits::PLACE_ALIGN_BYTES,
            raw_bytes: self.extent_bytes,
            first_sector: 0,
            key: matches!(mapping, Mapping::Base(_)).then_some(key),
        }
    }

    /// Reads one stored extent in the background, from where it is now.
    pub(crate) fn read_stored_extent(
        &mut self,
        kind: OpKind,
        place: &Place,
        expected: ExpectedExtent,
        skip_bytes: u32,
        dest: BufSlice,
    ) {
        let page = zc_core::limits::BLOCK_BYTES;
        let source = self.source(place.slot);
        let op = self.op(kind);
        self.hold_source(op, source);
        self.out.push(Action::ReadExtents {
            op,
            source,
            slot: place.slot,
            start_bytes: expected.offset_bytes / page * page,
            len_bytes: u32::from(place.pages) * page,
            parts: vec![ExtentRead { expected, skip_bytes, dest }],
            urgent: false,
        });
    }

    /// Where a slot's extents are read from now.
    pub(crate) fn source(&self, slot: WeuSlot) -> Source {
        if let Some(open) = self.open.as_ref().filter(|open| open.slot == slot) {
            return Source::Memory(open.buf);
        }
        if let Some(unit) = self.wb.unit.as_ref().filter(|unit| unit.slot == slot) {
            return Source::Memory(unit.buf);
        }
        self.writing.get(&slot).map_or(Source::Device, |weu| Source::Memory(weu.buf))
    }

    pub(crate) fn hit_done(&mut self, id: u64, result: Result<Vec<Result<(), ExtentError>>, ErrorKind>) {
        let hit = self.hits.remove(&id).expect_held();
        self.slots.unpin(hit.slot);
        match result {
            Ok(results) => {
                assert_eq!(results.len(), hit.parts.len(), "one result per part");
                self.device_read_worked();
                for (part, result) in hit.parts.into_iter().zip(results) {
                    self.hit_part_done(hit.slot, &part, result);
                }
            }
            Err(error) => {
                for part in hit.parts {
                    self.drop_fetch(&part);
                    if part.dirty {
                        self.dirty_read_failed(&part);
                        continue;
                    }
                    #[cfg(feature = "canary")]
                    if self.canary == Some(crate::config::Canary::SurfaceCacheError) {
                        part.waiters.iter().for_each(|waiter| self.read_part_done(waiter.read, Err(error)));
                        continue;
                    }
                    self.refetch(&part.waiters);
                }
                self.device_read_failed(Purpose::ExtentRead, error);
            }
        }
    }

    fn hit_part_done(&mut self, slot: WeuSlot, part: &HitPart, result: Result<(), ExtentError>) {
        if result.is_err() && part.dirty {
            self.dirty_read_failed(part);
            return;
        }
        if let Err(fault) = result {
            self.stats.failed_hits += 1;
            self.drop_fetch(part);
            self.note_damaged(&part.mapping);
            if self.files.get(part.key) == Some(part.mapping) {
                self.forget(part.key);
            }
            self.out.push(Action::Note(Note::ExtentDropped { slot, fault }));
            self.refetch(&part.waiters);
            return;
        }
        self.stats.verified_hits += 1;
        self.stats.extent_hits_device += zc_core::u64_from_usize(part.waiters.len());
        if !part.dirty {
            self.count_outlived(part);
            self.files.touch(part.key);
        }
        if let Some((buf, _)) = &part.whole {
            let buf = *buf;
            for waiter in &part.waiters {
                let Portion { skip_bytes, len_bytes, dest, .. } = waiter.portion;
                self.out.push(Action::Copy {
                    from: BufSlice { buf, start_bytes: skip_bytes, len_bytes },
                    to: dest,
                });
            }
            self.keep_fetched(part);
        }
        for waiter in &part.waiters {
            self.read_part_done(waiter.read, Ok(()));
        }
    }

    pub(crate) fn note_damaged(&mut self, mapping: &Mapping) {
        if let Mapping::Base(place) | Mapping::Duplicate(place) = mapping
            && self.slots.is_live(place)
            && !self.slots.get(place.slot).damaged.contains(&place.offset_units)
        {
            self.slots.get_mut(place.slot).damaged.push(place.offset_units);
        }
    }

    fn count_outlived(&mut self, part: &HitPart) {
        if let Mapping::Duplicate(place) = part.mapping
            && self.slots.get(place.slot).void_bases.contains(&place.offset_units)
        {
            self.stats.duplicate_outlived_base += 1;
        }
    }

    fn end_fetch(&mut self, part: &HitPart) -> bool {
        let Some((_, Some(guard))) = &part.whole else { return false };
        let good = self.tracks.holds(guard);
        self.tracks.release(guard);
        self.fetching.remove(&part.key);
        good
    }

    fn drop_fetch(&mut self, part: &HitPart) {
        self.end_fetch(part);
        if let Some((buf, _)) = part.whole {
            self.release(buf);
        }
    }

    fn keep_fetched(&mut self, part: &HitPart) {
        let good = self.end_fetch(part);
        let Some((buf, _)) = part.whole else { return };
        if !good {
            self.release(buf);
            return;
        }
        for evicted in self.read_buffer.insert(part.key, buf) {
            self.release(evicted);
        }
    }

    /// Serves waiters of a failed hit from the origin instead.
    fn refetch(&mut self, waiters: &[Waiter]) {
        for waiter in waiters {
            if let Some(op) = self.reads.get_mut(&waiter.read) {
                op.from_origin = true;
            }
            self.read_missing(waiter.read, &[waiter.portion], None);
            self.read_part_done(waiter.read, Ok(()));
        }
    }

    /// Reads what the cache does not have, in runs of neighbouring extents.
    pub(crate) fn read_missing(&mut self, read: u64, missing: &[Portion], stream: Option<StreamId>) {
        let mut rest = missing;
        while let Some(first) = rest.first() {
            let most = usize::try_from(FILL_BYTES_MAX / u64::from(self.extent_bytes)).unwrap_or(1).max(1);
            let run = rest
                .iter()
                .zip(first.key.extent.0..)
                .take(most)
                .take_while(|(portion, extent)| portion.key.extent.0 == *extent)
                .count();
            let (now, later) = rest.split_at(run);
            self.read_run(read, now, stream);
            rest = later;
        }
    }

    fn read_run(&mut self, read: u64, run: &[Portion], stream: Option<StreamId>) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        self.stats.extent_misses += zc_core::u64_from_usize(run.len());
        let admitted: Vec<bool> = run.iter().map(|portion| self.admits_read(portion.key)).collect();
        let volume = first.key.volume;
        let extent = self.extent_bytes;
        if !admitted.contains(&true) {
            let len: u32 = run.iter().map(|portion| portion.len_bytes).sum();
            let dest = BufSlice { len_bytes: len, ..first.dest };
            let offset = first.key.extent.0 * u64::from(extent) + u64::from(first.skip_bytes);
            self.reads.get_mut(&read).expect_held().pending += 1;
            self.direct_read(read, volume, offset, dest);
            self.read_part_done(read, Ok(()));
            return;
        }
        // Edges that are cut are rounded out when the extent exists in full; else the run's buffer ends there.
        let aligned = first.skip_bytes == 0 && last.len_bytes == extent - last.skip_bytes;
        let total = u32::try_from(run.len()).unwrap_or(u32::MAX).saturating_mul(extent);
        let (buf, start_bytes) = if aligned {
            self.retain(first.dest.buf);
            (first.dest.buf, first.dest.start_bytes)
        } else {
            (self.alloc(total), 0)
        };
        let waiters = run.iter().map(|portion| (Waiter { read, portion: *portion }, aligned)).collect();
        self.reads.get_mut(&read).expect_held().pending += u32::try_from(run.len()).unwrap_or(u32::MAX);
        let first_extent = first.key.extent;
        self.issue_fill(Fill {
            volume,
            first: first_extent,
            buf,
            start_bytes,
            guards: Vec::new(),
            admitted,
            waiters,
            prefetch: false,
            stream,
        });
    }

    fn issue_fill(&mut self, mut fill: Fill) {
        let id = self.number();
        for index in 0..fill.admitted.len() {
            let key = fill_key(&fill, index);
            let guard = self.tracks.guard(key);
            if guard.is_some() {
                self.fill_of.insert(key, id);
            }
            fill.guards.push(guard);
        }
        let len_bytes =
            u32::try_from(fill.admitted.len()).unwrap_or(u32::MAX).saturating_mul(self.extent_bytes);
        let dest = BufSlice { buf: fill.buf, start_bytes: fill.start_bytes, len_bytes };
        let offset_bytes = fill.first.0 * u64::from(self.extent_bytes);
        let volume = fill.volume;
        self.fills.insert(id, fill);
        let op = self.op(OpKind::Fill(id));
        self.out.push(Action::OriginRead { op, volume, offset_bytes, dest });
    }

    pub(crate) fn fill_done(&mut self, id: u64, result: Result<(), ErrorKind>) {
        let fill = self.fills.remove(&id).expect_held();
        let mut used = vec![false; fill.admitted.len()];
        for (waiter, in_place) in &fill.waiters {
            let index = usize::try_from(waiter.portion.key.extent.0 - fill.first.0).unwrap_or(usize::MAX);
            if let Some(flag) = used.get_mut(index) {
                *flag = true;
            }
            match result {
                Ok(()) => {
                    if !in_place {
                        let from = self.fill_slice(&fill, index);
                        let from = from.part(waiter.portion.skip_bytes, waiter.portion.len_bytes);
                        self.out.push(Action::Copy { from, to: waiter.portion.dest });
                    }
                    self.read_part_done(waiter.read, Ok(()));
                }
                Err(_) if fill.prefetch => {
                    let Portion { key, skip_bytes, dest, .. } = waiter.portion;
                    let offset = key.extent.0 * u64::from(self.extent_bytes) + u64::from(skip_bytes);
                    self.direct_read(waiter.read, key.volume, offset, dest);
                    self.read_part_done(waiter.read, Ok(()));
                }
                Err(error) => self.read_part_done(waiter.read, Err(error)),
            }
        }
        let run = self.begin_run(fill.stream);
        for (index, used) in used.iter().enumerate() {
            self.fill_extent_done(id, &fill, index, *used, result.is_ok(), run);
        }
        self.end_run_requests(run);
        self.release(fill.buf);
    }

    fn fill_extent_done(&mut self, id: u64, fill: &Fill, index: usize, used: bool, ok: bool, run: u64) {
        let key = fill_key(fill, index);
        let Some(guard) = fill.guards.get(index).copied().flatten() else {
            if fill.prefetch {
                self.prefetch_bytes -= u64::from(self.extent_bytes);
            }
            return;
        };
        if self.fill_of.get(&key) == Some(&id) {
            self.fill_of.remove(&key);
        }
        let admitted = fill.admitted.get(index).copied().unwrap_or(false);
        let holds = self.tracks.holds(&guard);
        #[cfg(feature = "canary")]
        let holds = holds || self.canary == Some(crate::config::Canary::StaleFill);
        if !ok || !holds || (!admitted && !fill.prefetch) {
            self.stats.insert_stale += u64::from(ok && !holds);
            self.tracks.release(&guard);
            if fill.prefetch {
                self.prefetch_bytes -= u64::from(self.extent_bytes);
            }
            return;
        }
        let src = self.fill_slice(fill, index);
        if fill.prefetch && !used {
            self.retain(fill.buf);
            self.prefetched.insert(key, Prefetched { src, guard });
            self.prefetched_order.push_back(key);
            return;
        }
        if fill.prefetch {
            self.stats.prefetched_used += 1;
            self.prefetch_bytes -= u64::from(self.extent_bytes);
        }
        self.drop_idle_staged(key);
        self.retain(fill.buf);
        let only_if_duplicate = fill.prefetch && !self.seen.seen_or_record(key);
        self.insert(run, guard, src, InsertOptions { only_if_duplicate });
    }

    fn fill_slice(&self, fill: &Fill, index: usize) -> BufSlice {
        let skip = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(self.extent_bytes);
        BufSlice { buf: fill.buf, start_bytes: fill.start_bytes + skip, len_bytes: self.extent_bytes }
    }

    /// An extent that was read ahead is used: it leaves the waiting room, and stays in the cache if it was seen
    /// before or its content is there already (Nitro 3: prefetched data used once is not cached).
    fn used_prefetched(&mut self, key: ExtentKey) {
        let Some(ahead) = self.prefetched.remove(&key) else { return };
        self.prefetch_bytes -= u64::from(self.extent_bytes);
        self.stats.prefetched_used += 1;
        if self.files.get(key).is_some() || !self.admits_read(key) {
            self.tracks.release(&ahead.guard);
            self.release(ahead.src.buf);
            return;
        }
        let only_if_duplicate = !self.seen.seen_or_record(key);
        let run = self.begin_run(None);
        self.insert(run, ahead.guard, ahead.src, InsertOptions { only_if_duplicate });
        self.end_run_requests(run);
    }

    /// Lets go of an extent read ahead.
    pub(crate) fn drop_prefetched(&mut self, key: ExtentKey) {
        if let Some(ahead) = self.prefetched.remove(&key) {
            self.prefetch_bytes -= u64::from(self.extent_bytes);
            self.tracks.release(&ahead.guard);
            self.release(ahead.src.buf);
        }
    }

    fn admits_read(&mut self, key: ExtentKey) -> bool {
        let Some(volume) = self.volumes.get(&key.volume) else { return false };
        if key.extent.0 >= volume.whole_extents || self.stopping || self.health != Health::Good {
            return false;
        }
        match (volume.cfg.mode, volume.cfg.admission) {
            (Mode::PassThrough, _) | (_, Admission::Never) => false,
            (_, Admission::Always) => true,
            (_, Admission::SecondTouch) => self.seen.seen_or_record(key),
        }
    }

    fn direct_read(&mut self, read: u64, volume: VolumeId, offset_bytes: u64, dest: BufSlice) {
        let op = self.reads.get_mut(&read).expect_held();
        op.pending += 1;
        op.from_origin = true;
        let op = self.op(OpKind::DirectRead(read));
        self.out.push(Action::OriginRead { op, volume, offset_bytes, dest });
    }

    pub(crate) fn read_part_done(&mut self, read: u64, result: Result<(), ErrorKind>) {
        let op = self.reads.get_mut(&read).expect_held();
        op.error = op.error.or_else(|| result.err());
        op.pending -= 1;
        if op.pending > 0 {
            return;
        }
        let op = self.reads.remove(&read).expect_held();
        match (op.from_cache, op.from_origin) {
            (true, true) => self.stats.read_partial += 1,
            (true, false) => self.stats.read_hits += 1,
            _ => self.stats.read_misses += 1,
        }
        self.out.push(Action::Reply { req: op.req, result: op.error.map_or(Ok(()), Err) });
        self.release(op.buf);
    }

    /// Reads ahead what is not at hand, one run after the other.
    fn read_ahead(&mut self, volume: VolumeId, range: Range<u64>, stream: Option<StreamId>) {
        let Some(entry) = self.volumes.get(&volume) else { return };
        let extent = u64::from(self.extent_bytes);
        let end = range.end.div_ceil(extent).min(entry.whole_extents);
        self.fetch_extents(volume, range.start / extent..end, true, stream);
    }

    /// The client asked for a range to be brought into the cache.
    pub(crate) fn submit_prefetch(&mut self, request: &Request) {
        let extent = u64::from(self.extent_bytes);
        if let Some(volume) = self.volumes.get(&request.volume) {
            let len_bytes = request.len_bytes.min(PREFETCHED_BYTES_MAX);
            let end = (request.offset_bytes + len_bytes).div_ceil(extent).min(volume.whole_extents);
            self.fetch_extents(request.volume, request.offset_bytes / extent..end, false, None);
        }
        self.out.push(Action::Reply { req: request.req, result: Ok(()) });
    }

    fn fetch_extents(
        &mut self,
        volume: VolumeId,
        extents: Range<u64>,
        prefetch: bool,
        stream: Option<StreamId>,
    ) {
        let mut start = extents.start;
        for extent in extents.start..=extents.end {
            let key = ExtentKey { volume, extent: ExtentNo(extent) };
            let wanted = extent < extents.end && self.is_absent(key) && self.admits_read_ahead(key);
            let run = (extent - start) * u64::from(self.extent_bytes);
            if wanted && run < FILL_BYTES_MAX {
                continue;
            }
            self.issue_fetch(volume, start..extent, prefetch, stream);
            start = if wanted { extent } else { extent + 1 };
        }
    }

    fn issue_fetch(&mut self, volume: VolumeId, run: Range<u64>, prefetch: bool, stream: Option<StreamId>) {
        let count = usize::try_from(run.end.saturating_sub(run.start)).unwrap_or(0);
        let bytes = zc_core::u64_from_usize(count) * u64::from(self.extent_bytes);
        self.make_prefetch_room(bytes);
        if count == 0 || self.prefetch_bytes + bytes > PREFETCHED_BYTES_MAX {
            return;
        }
        if prefetch {
            self.prefetch_bytes += bytes;
            self.stats.prefetched_extents += zc_core::u64_from_usize(count);
        }
        let buf = self.alloc(u32::try_from(bytes).unwrap_or(u32::MAX));
        let before = self.prefetch_bytes;
        self.issue_fill(Fill {
            volume,
            first: ExtentNo(run.start),
            buf,
            start_bytes: 0,
            guards: Vec::new(),
            admitted: vec![true; count],
            waiters: Vec::new(),
            prefetch,
            stream,
        });
        debug_assert_eq!(before, self.prefetch_bytes);
    }

    fn make_prefetch_room(&mut self, bytes: u64) {
        while self.prefetch_bytes + bytes > PREFETCHED_BYTES_MAX {
            let Some(key) = self.prefetched_order.pop_front() else { return };
            self.drop_prefetched(key);
        }
    }

    fn is_absent(&self, key: ExtentKey) -> bool {
        let live = match self.files.get(key) {
            Some(Mapping::Zero) => true,
            Some(Mapping::Base(place) | Mapping::Duplicate(place)) => self.slots.is_live(&place),
            None => false,
        };
        !live
            && !self.prefetched.contains_key(&key)
            && !self.fill_of.contains_key(&key)
            && self.staging.get(&key).is_none()
            && self.inserting(key).is_none()
            && !self.tracks.is_written(&key)
    }

    fn admits_read_ahead(&self, key: ExtentKey) -> bool {
        self.health == Health::Good
            && !self.stopping
            && self.volumes.get(&key.volume).is_some_and(|volume| {
                volume.cfg.mode != Mode::PassThrough && volume.cfg.admission != Admission::Never
            })
    }

    pub(crate) fn device_read_worked(&mut self) {
        self.read_errors_in_row(false);
    }

    pub(crate) fn device_read_failed(&mut self, purpose: Purpose, error: ErrorKind) {
        self.stats.device_read_errors += 1;
        if self.read_errors_in_row(true) {
            self.fail_cache(purpose, error);
        }
    }
}

fn fill_key(fill: &Fill, index: usize) -> ExtentKey {
    ExtentKey { volume: fill.volume, extent: ExtentNo(fill.first.0 + zc_core::u64_from_usize(index)) }
}

/// The 4 KiB pages of a location, relative to its slot.
fn page_range(place: &Place) -> Range<u32> {
    let start =
        u32::from(place.offset_units) * zc_core::limits::PLACE_ALIGN_BYTES / zc_core::limits::BLOCK_BYTES;
    start..start + u32::from(place.pages)
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
