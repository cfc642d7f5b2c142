//! Reads of the origin that may fill the cache.
//!
//! What a client misses is read in runs of neighbouring extents, rounded out to whole ones so that they can be inserted.
//! Each extent has a guard from the beginning of the read: what was written meanwhile is not inserted. What a client
//! waits for is not written meanwhile (`clean::order`); what is being written is read alone, when that has ended.
//!
//! Scan resistance: an extent that a sequential stream brings is inserted if its content is cached already or if a
//! stream brought it before (Nitro 3: prefetched data used once is not cached). The size of the client's requests does
//! not matter: those within the read-ahead and those that are larger are treated alike.

use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, ExtentNo, Mode, VolumeId};

use crate::base::tracks::Guard;
use crate::clean::Clean;
use crate::clean::insert::{InsertOptions, is_cut_off};
use crate::clean::read::read_ahead::{Prefetched, Reason};
use crate::clean::read::{FILL_BYTES_MAX, Op, Portion, Waiter};
use crate::clean::streams::InStream;
use crate::config::Admission;
use crate::device::Core;
use crate::expect_held::ExpectHeld;
use crate::seam::Action;

/// An origin read that may fill the cache.
#[derive(Debug)]
pub(crate) struct Fill {
    id: u64,
    volume: VolumeId,
    first: ExtentNo,
    buf: BufId,
    start_bytes: u32,
    guards: Vec<Option<Guard>>,
    admitted: Vec<bool>,
    pub(in crate::clean) waiters: Vec<(Waiter, bool)>,
    /// The turns of what is waited for among the accesses of the origin.
    turns: Vec<u64>,
    /// Why it was begun, if not by a request that waits for it.
    reason: Option<Reason>,
    stream: Option<InStream>,
}

impl Fill {
    pub(crate) const fn volume(&self) -> VolumeId {
        self.volume
    }
}

impl Fill {
    /// Whether it reads ahead of a stream.
    fn is_ahead(&self) -> bool {
        self.reason == Some(Reason::Stream)
    }

    /// The bytes of one of its extents.
    fn slice(&self, index: usize, extent_bytes: u32) -> BufSlice {
        let skip = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(extent_bytes);
        BufSlice { buf: self.buf, start_bytes: self.start_bytes + skip, len_bytes: extent_bytes }
    }
}

impl Clean {
    /// Reads what the cache does not have, in runs of neighbouring extents.
    pub(crate) fn read_missing(
        &mut self,
        read: u64,
        missing: &[Portion],
        stream: Option<InStream>,
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
            self.read_run(read, now, stream, core);
            rest = later;
        }
    }

    fn read_run(&mut self, read: u64, run: &[Portion], stream: Option<InStream>, core: &mut Core) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
        let bytes = first.bytes(core.base.extent_bytes()).start..last.bytes(core.base.extent_bytes()).end;
        if self.origin_order.read_waits(first.key.volume, &bytes) {
            return self.read_apart(read, run, core);
        }
        core.base.stats.extent_misses += zc_core::u64_from_usize(run.len());
        let volume = first.key.volume;
        let is_cut_off = is_cut_off(volume, stream, &core.base);
        if is_cut_off {
            core.base.stats.insert_sequential += zc_core::u64_from_usize(run.len());
        }
        let admits = |portion: &Portion| !is_cut_off && self.admits_read(portion.key, core);
        let admitted: Vec<bool> = run.iter().map(admits).collect();
        let extent = core.base.extent_bytes();
        if !admitted.contains(&true) {
            let len: u32 = run.iter().map(|portion| portion.len_bytes).sum();
            let dest = BufSlice { len_bytes: len, ..first.dest };
            let offset = first.key.extent.0 * u64::from(extent) + u64::from(first.skip_bytes);
            self.reads.get_mut(&read).expect_held().pending += 1;
            self.direct_read(read, volume, offset, dest, core);
            self.read_part_done(read, Ok(()), core);
            return;
        }
        // Edges that are cut are rounded out when the extent exists in full; else the run's buffer ends there.
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
        self.origin_order.join(turn, volume, &bytes);
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

    /// The read under way that brings an extent as it still is.
    pub(crate) fn filling(&self, key: ExtentKey, core: &Core) -> Option<u64> {
        let id = *self.fill_of.get(&key)?;
        let fill = self.fills.get(&id).expect_held();
        let index = usize::try_from(key.extent.0 - fill.first.0).unwrap_or(usize::MAX);
        let guard = fill.guards.get(index).copied().flatten();
        guard.is_some_and(|guard| core.base.tracks.holds(&guard)).then_some(id)
    }

    /// Gives what a read under way brings to another request, too.
    pub(crate) fn join_fill(&mut self, id: u64, waiter: Waiter, core: &mut Core) {
        let turn = core.base.port.number();
        self.origin_order.join(
            turn,
            waiter.portion.key.volume,
            &waiter.portion.bytes(core.base.extent_bytes()),
        );
        let fill = self.fills.get_mut(&id).expect_held();
        fill.waiters.push((waiter, false));
        fill.turns.push(turn);
    }

    /// Some of it is being written, or will be before: each extent is read for itself, and does not fill the cache.
    fn read_apart(&mut self, read: u64, run: &[Portion], core: &mut Core) {
        core.base.stats.extent_misses += zc_core::u64_from_usize(run.len());
        for portion in run {
            let bytes = portion.bytes(core.base.extent_bytes());
            self.direct_read(read, portion.key.volume, bytes.start, portion.dest, core);
        }
    }

    /// Reads extents that no client waits for.
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

    pub(crate) fn fill_done(&mut self, id: u64, result: Result<(), ErrorKind>, core: &mut Core) {
        let fill = self.fills.remove(&id).expect_held();
        if fill.reason == Some(Reason::Hint) {
            let extents = zc_core::u64_from_usize(fill.admitted.len());
            self.ahead.hint_ended(extents * u64::from(core.base.extent_bytes()));
        }
        fill.turns.iter().for_each(|turn| self.origin_order.end(*turn));
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
                    self.direct_read(waiter.read, key.volume, offset, dest, core);
                    self.read_part_done(waiter.read, Ok(()), core);
                }
                Err(error) => self.read_part_done(waiter.read, Err(error), core),
            }
        }
        let batch = self.begin_batch(fill.stream, core);
        for (index, used) in used.iter().enumerate() {
            self.fill_extent_done(&fill, index, *used, result.is_ok(), batch, core);
        }
        self.inserts.batches.end_requests(batch);
        core.base.port.release(fill.buf);
        if let Some(Reason::Warm(req)) = fill.reason {
            self.warm_part_done(req, result, core);
        }
        if fill.reason == Some(Reason::Kept) {
            let extents = zc_core::u64_from_usize(fill.admitted.len());
            self.keeper.fetched(extents * u64::from(core.base.extent_bytes()));
        }
    }

    /// An extent of a fill that ended goes into the cache, among what was read ahead, or nowhere.
    fn fill_extent_done(
        &mut self,
        fill: &Fill,
        index: usize,
        used: bool,
        ok: bool,
        batch: u64,
        core: &mut Core,
    ) {
        let key = fill_key(fill, index);
        let Some(guard) = fill.guards.get(index).copied().flatten() else {
            self.uncount_prefetched(fill, core);
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
        if !ok || !self.still_holds(&guard, core) || !admitted {
            core.base.tracks.release(&guard);
            self.uncount_prefetched(fill, core);
            return;
        }
        let src = fill.slice(index, core.base.extent_bytes());
        if is_kept {
            core.base.port.retain(fill.buf);
            self.keep_prefetched(key, Prefetched { src, guard });
            return;
        }
        core.base.stats.prefetched_used += u64::from(fill.is_ahead());
        self.uncount_prefetched(fill, core);
        self.drop_idle_staged(key, core);
        core.base.port.retain(fill.buf);
        let only_if_duplicate = fill.stream.is_some() && self.enters_as_duplicate(key, core);
        self.insert(batch, guard, src, InsertOptions { only_if_duplicate }, core);
    }

    /// An extent that was read ahead, if it was, waits for its reader no more.
    fn uncount_prefetched(&mut self, fill: &Fill, core: &mut Core) {
        if fill.is_ahead() {
            self.ahead.prefetch_ended(core.base.extent_bytes());
        }
    }

    /// Returns `true` if an extent of a stream is inserted only if its content is cached already: it is not pinned, and
    /// no stream brought it before, as far as that is remembered.
    pub(in crate::clean) fn enters_as_duplicate(&mut self, key: ExtentKey, core: &Core) -> bool {
        !self.enters_late(key.volume, core)
            && !core.device.catalog.slots().kept().has(key)
            && !self.streamed.before(key)
    }

    pub(crate) fn admits_read(&mut self, key: ExtentKey, core: &mut Core) -> bool {
        let Some(volume) = core.base.volume(key.volume) else { return false };
        if key.extent.0 >= volume.whole_extents() || core.base.is_stopping() || !core.base.is_good() {
            return false;
        }
        // What the origin may show now and not after it is opened again is not kept.
        if volume.origin().is_in_doubt() {
            return false;
        }
        match (volume.cfg().mode, volume.cfg().admission) {
            (Mode::PassThrough, _) | (_, Admission::Never) => false,
            (_, Admission::Always) => true,
            (_, Admission::SecondTouch) => self.touched.before(key),
            (_, Admission::Auto) => !self.enters_late(key.volume, core) || self.touched.before(key),
        }
    }
}

impl Clean {
    /// Whether nothing was written to the extent since it was asked for; counts it if something was.
    fn still_holds(&mut self, guard: &Guard, core: &mut Core) -> bool {
        let holds = core.base.tracks.holds(guard);
        core.base.stats.insert_stale += u64::from(!holds);
        holds
    }
}

fn fill_key(fill: &Fill, index: usize) -> ExtentKey {
    ExtentKey { volume: fill.volume, extent: ExtentNo(fill.first.0 + zc_core::u64_from_usize(index)) }
}
