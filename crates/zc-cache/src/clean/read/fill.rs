//! Origin reads that may fill the cache.
//!
//! Client misses are read in runs of neighbouring extents, extended to whole ones so that they can be inserted. Each
//! extent has a guard from the beginning of the read: extents written during the read are not inserted. Extents that a
//! client waits for are not written during the read (`clean::order`); extents with a write in flight are read alone
//! after it has completed.
//!
//! Scan resistance: an extent read by a sequential stream is inserted if its content is cached already or if a stream
//! read it before (Nitro 3: prefetched data used once is not cached). This applies to client requests of any size.

use core::ops::Range;

use zc_core::{BufSlice, ErrorKind, ExtentKey, ExtentNo, VolumeId};

use crate::base::tracks::Guard;
use crate::clean::copies::Copies;
use crate::clean::insert::{InsertOptions, is_cut_off};
use crate::clean::read::ahead::{HINTED_BYTES_MAX, Prefetched, Reason, admits};
use crate::clean::read::portion::{FILL_BYTES_MAX, Portion, Waiter};
use crate::clean::read::reads::Reads;
use crate::clean::read::under_way::{Fill, fill_key};
use crate::clean::streams::InStream;
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Mapping;
use crate::ops::read::Op;
use crate::seam::{Action, Request};

impl Reads {
    /// Reads missing extents, in runs of neighbours.
    pub(crate) fn read_missing(
        &mut self,
        read: u64,
        missing: &[Portion],
        stream: Option<InStream>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let mut rest = missing;
        while let Some(first) = rest.first() {
            let most =
                usize::try_from(FILL_BYTES_MAX / u64::from(core.base.extent_bytes())).unwrap_or(1).max(1);
            let run = rest
                .iter()
                .zip(first.key.extent.0..)
                .take(most)
                .take_while(|(portion, extent)| portion.key.extent.0 == *extent)
                .count();
            let (now, later) = rest.split_at(run);
            self.read_run(read, now, stream, copies, core);
            rest = later;
        }
    }

    fn read_run(
        &mut self,
        read: u64,
        run: &[Portion],
        stream: Option<InStream>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let bytes = first.bytes(core.base.extent_bytes()).start..last.bytes(core.base.extent_bytes()).end;
        if copies.read_waits(first.key.volume, &bytes) {
            return self.read_apart(read, run, copies, core);
        }
        core.base.stats.extent_misses += zc_core::u64_from_usize(run.len());
        let volume = first.key.volume;
        let is_cut_off = is_cut_off(volume, stream, &core.base);
        if is_cut_off {
            core.base.stats.insert_sequential += zc_core::u64_from_usize(run.len());
        }
        let admits = |portion: &Portion| !is_cut_off && copies.admits_read(portion.key, core);
        let admitted: Vec<bool> = run.iter().map(admits).collect();
        let extent = core.base.extent_bytes();
        if !admitted.contains(&true) {
            let len: u32 = run.iter().map(|portion| portion.len_bytes).sum();
            let dest = BufSlice { len_bytes: len, ..first.dest };
            let offset = first.key.extent.0 * u64::from(extent) + u64::from(first.skip_bytes);
            self.reads.get_mut(&read).expect_held().pending += 1;
            self.direct_read(read, volume, (offset, dest), copies, core);
            self.read_part_done(read, Ok(()), core);
            return;
        }
        // Partly requested edges are extended if the extent exists in full; otherwise the run's buffer ends there.
        let aligned = first.skip_bytes == 0 && last.len_bytes == extent - last.skip_bytes;
        let total = u32::try_from(run.len()).unwrap_or(u32::MAX).saturating_mul(extent);
        let (buf, start_bytes) = if aligned {
            core.base.port.retain(first.dest.buf);
            (first.dest.buf, first.dest.start_bytes)
        } else {
            (core.base.port.alloc(total), 0)
        };
        let waiters = run.iter().map(|portion| (Waiter { read, portion: *portion }, aligned)).collect();
        self.reads.get_mut(&read).expect_held().pending += u32::try_from(run.len()).unwrap_or(u32::MAX);
        let turn = core.base.port.number();
        copies.origin_order_mut().join(turn, volume, &bytes);
        let first_extent = first.key.extent;
        self.issue_fill(
            Fill {
                id: 0,
                volume,
                first: first_extent,
                buf,
                start_bytes,
                guards: Vec::new(),
                admitted,
                waiters,
                turns: vec![turn],
                reason: None,
                stream,
            },
            core,
        );
    }

    /// The read in progress of this extent, if the extent has not been written since.
    pub(crate) fn filling(&self, key: ExtentKey, core: &Core) -> Option<u64> {
        let id = *self.fill_of.get(&key)?;
        let fill = self.fills.get(&id).expect_held();
        let index = usize::try_from(key.extent.0 - fill.first.0).unwrap_or(usize::MAX);
        let guard = fill.guards.get(index).copied().flatten();
        guard.is_some_and(|guard| core.base.tracks.holds(&guard)).then_some(id)
    }

    pub(crate) fn join_fill(&mut self, id: u64, waiter: Waiter, copies: &mut Copies, core: &mut Core) {
        let turn = core.base.port.number();
        copies.origin_order_mut().join(
            turn,
            waiter.portion.key.volume,
            &waiter.portion.bytes(core.base.extent_bytes()),
        );
        let fill = self.fills.get_mut(&id).expect_held();
        fill.waiters.push((waiter, false));
        fill.turns.push(turn);
    }

    /// Reads extents with writes in flight or queued: each one separately, without filling the cache.
    fn read_apart(&mut self, read: u64, run: &[Portion], copies: &mut Copies, core: &mut Core) {
        core.base.stats.extent_misses += zc_core::u64_from_usize(run.len());
        for portion in run {
            let bytes = portion.bytes(core.base.extent_bytes());
            self.direct_read(read, portion.key.volume, (bytes.start, portion.dest), copies, core);
        }
    }

    /// Reads extents that no client request waits for.
    pub(crate) fn fill_ahead(
        &mut self,
        volume: VolumeId,
        first: ExtentNo,
        count: usize,
        reason: Reason,
        stream: Option<InStream>,
        core: &mut Core,
    ) {
        let is_admitted = !is_cut_off(volume, stream, &core.base);
        let extents = u32::try_from(count).unwrap_or(u32::MAX);
        let len_bytes = extents.saturating_mul(core.base.extent_bytes());
        let buf = core.base.port.alloc(len_bytes);
        self.issue_fill(
            Fill {
                id: 0,
                volume,
                first,
                buf,
                start_bytes: 0,
                guards: Vec::new(),
                admitted: vec![is_admitted; count],
                waiters: Vec::new(),
                turns: Vec::new(),
                reason: Some(reason),
                stream,
            },
            core,
        );
    }

    fn issue_fill(&mut self, mut fill: Fill, core: &mut Core) {
        let id = core.base.port.number();
        fill.id = id;
        for index in 0..fill.admitted.len() {
            let key = fill_key(&fill, index);
            let guard = core.base.tracks.guard(key);
            if guard.is_some() {
                self.fill_of.insert(key, id);
            }
            fill.guards.push(guard);
        }
        let len_bytes =
            u32::try_from(fill.admitted.len()).unwrap_or(u32::MAX).saturating_mul(core.base.extent_bytes());
        let dest = BufSlice { buf: fill.buf, start_bytes: fill.start_bytes, len_bytes };
        let offset_bytes = fill.first.0 * u64::from(core.base.extent_bytes());
        let volume = fill.volume;
        self.fills.insert(id, fill);
        let op = core.base.port.op(Op::Fill(id));
        core.base.port.emit(Action::OriginRead { op, volume, offset_bytes, dest });
    }

    /// Handles the completion of an origin read. Returns the bytes that were read in order to be kept, if any.
    pub(crate) fn fill_done(
        &mut self,
        id: u64,
        result: Result<(), ErrorKind>,
        copies: &mut Copies,
        core: &mut Core,
    ) -> Option<u64> {
        let fill = self.fills.remove(&id).expect_held();
        if fill.reason == Some(Reason::Hint) {
            let extents = zc_core::u64_from_usize(fill.admitted.len());
            copies.ahead_mut().hint_ended(extents * u64::from(core.base.extent_bytes()));
        }
        fill.turns.iter().for_each(|turn| copies.origin_order_mut().end(*turn));
        let mut used = vec![false; fill.admitted.len()];
        for (waiter, in_place) in &fill.waiters {
            let index = usize::try_from(waiter.portion.key.extent.0 - fill.first.0).unwrap_or(usize::MAX);
            if let Some(flag) = used.get_mut(index) {
                *flag = true;
            }
            match result {
                Ok(()) => {
                    if !in_place {
                        let from = fill.slice(index, core.base.extent_bytes());
                        let from = from.part(waiter.portion.skip_bytes, waiter.portion.len_bytes);
                        core.base.port.emit(Action::Copy { from, to: waiter.portion.dest });
                    }
                    self.read_part_done(waiter.read, Ok(()), core);
                }
                Err(_) if fill.is_ahead() => {
                    let Portion { key, skip_bytes, dest, .. } = waiter.portion;
                    let offset = key.extent.0 * u64::from(core.base.extent_bytes()) + u64::from(skip_bytes);
                    self.direct_read(waiter.read, key.volume, (offset, dest), copies, core);
                    self.read_part_done(waiter.read, Ok(()), core);
                }
                Err(error) => self.read_part_done(waiter.read, Err(error), core),
            }
        }
        let batch = copies.inserts_mut().begin_batch(fill.stream, core);
        for (index, used) in used.iter().enumerate() {
            self.fill_extent_done(&fill, index, (*used, result.is_ok()), batch, copies, core);
        }
        copies.inserts_mut().end_batch(batch);
        core.base.port.release(fill.buf);
        if let Some(Reason::Warm(req)) = fill.reason {
            self.warm_part_done(req, result, core);
        }
        let extents = zc_core::u64_from_usize(fill.admitted.len());
        let is_kept = fill.reason == Some(Reason::Kept);
        is_kept.then(|| extents * u64::from(core.base.extent_bytes()))
    }

    /// Handles an extent of a completed fill: inserts it, adds it to the prefetched ones, or drops it. `used`: a
    /// client has read it; `ok`: the read succeeded.
    fn fill_extent_done(
        &mut self,
        fill: &Fill,
        index: usize,
        (used, ok): (bool, bool),
        batch: u64,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let key = fill_key(fill, index);
        let Some(guard) = fill.guards.get(index).copied().flatten() else {
            Self::uncount_prefetched(fill, copies, core);
            return;
        };
        if self.fill_of.get(&key) == Some(&fill.id) {
            self.fill_of.remove(&key);
        }
        let is_kept = fill.is_ahead() && !used;
        let admitted = is_kept || fill.admitted.get(index).copied().unwrap_or(false);
        if ok && !admitted && fill.is_ahead() {
            core.base.stats.prefetched_used += 1;
            core.base.stats.insert_sequential += 1;
        }
        if !ok || !Self::still_holds(&guard, core) || !admitted {
            core.base.tracks.release(&guard);
            Self::uncount_prefetched(fill, copies, core);
            return;
        }
        let src = fill.slice(index, core.base.extent_bytes());
        if is_kept {
            core.base.port.retain(fill.buf);
            copies.ahead_mut().keep(key, Prefetched { src, guard });
            return;
        }
        core.base.stats.prefetched_used += u64::from(fill.is_ahead());
        Self::uncount_prefetched(fill, copies, core);
        copies.drop_idle_staged(key, core);
        core.base.port.retain(fill.buf);
        let only_if_duplicate = fill.stream.is_some() && copies.enters_as_duplicate(key, core);
        copies.inserts_mut().insert(batch, guard, src, InsertOptions { only_if_duplicate }, core);
    }

    /// Releases the prefetch budget of an extent, if it was prefetched.
    fn uncount_prefetched(fill: &Fill, copies: &mut Copies, core: &mut Core) {
        if fill.is_ahead() {
            copies.ahead_mut().prefetch_ended(core.base.extent_bytes());
        }
    }
}

impl Reads {
    /// Returns `true` if the extent has not been written since it was requested; counts the other case.
    fn still_holds(guard: &Guard, core: &mut Core) -> bool {
        let holds = core.base.tracks.holds(guard);
        core.base.stats.insert_stale += u64::from(!holds);
        holds
    }
}

/// Reads that no client request waits for.
impl Reads {
    /// Prefetches extents that are not in memory or cached, one run after the other.
    pub(crate) fn read_ahead(
        &mut self,
        volume: VolumeId,
        range: Range<u64>,
        stream: Option<InStream>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let Some(entry) = core.base.volume(volume) else { return };
        let extent = u64::from(core.base.extent_bytes());
        let end = range.end.div_ceil(extent).min(entry.whole_extents());
        self.fetch_extents(volume, range.start / extent..end, Reason::Stream, stream, copies, core);
    }

    /// Handles a client's prefetch request. The part that exceeds the bounds is skipped.
    pub(crate) fn submit_prefetch(&mut self, request: &Request, copies: &mut Copies, core: &mut Core) {
        let extent = u64::from(core.base.extent_bytes());
        if let Some(volume) = core.base.volume(request.volume) {
            let len_bytes = request.len_bytes.min(HINTED_BYTES_MAX);
            let end = (request.offset_bytes + len_bytes).div_ceil(extent).min(volume.whole_extents());
            self.fetch_extents(
                request.volume,
                request.offset_bytes / extent..end,
                Reason::Hint,
                None,
                copies,
                core,
            );
        }
        core.base.port.emit(Action::Reply { req: request.req, result: Ok(()) });
    }

    pub(crate) fn fetch_extents(
        &mut self,
        volume: VolumeId,
        extents: Range<u64>,
        reason: Reason,
        stream: Option<InStream>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let mut start = extents.start;
        for extent in extents.start..=extents.end {
            let key = ExtentKey { volume, extent: ExtentNo(extent) };
            let wanted = extent < extents.end
                && self.is_absent(key, copies, core)
                && admits(key, reason, &core.base)
                && (reason == Reason::Kept || !copies.recipes().has_hit(key, core));
            let run = (extent - start) * u64::from(core.base.extent_bytes());
            if wanted && run < FILL_BYTES_MAX {
                continue;
            }
            self.issue_fetch(volume, start..extent, reason, stream, copies, core);
            start = if wanted { extent } else { extent + 1 };
        }
    }

    fn issue_fetch(
        &mut self,
        volume: VolumeId,
        run: Range<u64>,
        reason: Reason,
        stream: Option<InStream>,
        copies: &mut Copies,
        core: &mut Core,
    ) {
        let count = usize::try_from(run.end.saturating_sub(run.start)).unwrap_or(0);
        let bytes = zc_core::u64_from_usize(count) * u64::from(core.base.extent_bytes());
        if reason == Reason::Stream {
            copies.make_prefetch_room(bytes, core);
        }
        if count == 0 || !copies.ahead_mut().begin(bytes, reason) {
            return;
        }
        let extents = zc_core::u64_from_usize(count);
        match reason {
            Reason::Stream => core.base.stats.prefetched_extents += extents,
            Reason::Hint => {}
            Reason::Warm(req) => {
                core.base.stats.warmed_extents += extents;
                self.warms.add_part(req);
            }
            Reason::Kept => core.base.stats.pinned_extents_read += extents,
        }
        self.fill_ahead(volume, ExtentNo(run.start), count, reason, stream, core);
    }

    fn is_absent(&self, key: ExtentKey, copies: &Copies, core: &Core) -> bool {
        let live = match core.device.catalog.mapping(key) {
            Some(Mapping::Zero) => true,
            Some(Mapping::Base(place) | Mapping::Duplicate(place)) => {
                core.device.catalog.table().is_live(&place)
            }
            None => false,
        };
        !live && self.is_quiet_extent(key, copies, core)
    }

    /// Returns `true` if the extent has no operation in progress and no copy in memory.
    pub(crate) fn is_quiet_extent(&self, key: ExtentKey, copies: &Copies, core: &Core) -> bool {
        copies.ahead().get(&key).is_none()
            && !self.fill_of.contains_key(&key)
            && copies.staging().get(&key).is_none()
            && copies.inserts().inserting(key, core).is_none()
            && !core.base.tracks.is_written(&key)
    }
}
