//! Destaging: writes dirty epochs to the origin, oldest first (G6).
//!
//! One run of epochs of a volume is destaged at a time, between which no client flush lies. Of each sector the newest
//! version among them is written, in address order, with neighbours in one write. The path is that of a write-through
//! write: the region is marked and the clean copies are invalidated. Then the origin is flushed and `Clean` is made
//! durable; only then is the run forgotten and the next one begun. So the origin alone always contains all runs before
//! some k, and a subset of k. A whole extent becomes a clean mapping at its place. With `destage = "coalesce"` a run
//! continues past flushes: fewer writes, and no G6.
//!
//! Triggers: the volume is drained, dirty data is above the low watermark, writes wait for capacity, the oldest epoch
//! has reached half of its maximum age, or no client sends requests and the settings allow it. Rate: as fast as the
//! origin accepts it, or bounded (`base::rate`), unless a client or an operator waits for it.
//!
//! A refusal by the origin or an unreadable version (but see `unreadable`) ends the attempt. The run is retried from
//! its beginning after an increasing pause, with any epochs that joined it, and stays dirty.
//!
//! Discards that clients have sent since may free space on a full origin. So when the last attempt failed for lack of
//! space, the next one begins with all committed discards, including those of later epochs (*ahead*), and skips the
//! data that they cover (`CONSISTENCY.md`, "An origin without space").

use core::ops::RangeInclusive;

use smallvec::SmallVec;
use zc_core::{
    BufId, BufSlice, Destage, ErrorKind, ExtentKey, ExtentNo, Map, Mode, SECTOR_BYTES, SectorSpan, VolumeId,
};

use crate::base::Base;
use crate::base::origin::FlushWaiter;
use crate::base::rate::ByteRate;
use crate::clean::Clean;
use crate::device::Core;
use crate::device::stored::Stored;
use crate::dirty::batch::{Batch, joined};
use crate::dirty::commit::Commits;
use crate::dirty::destaging::{Ahead, Cursor, DestagePhase, EPOCHS_CROWDED};
use crate::dirty::record_bounds::dirty_records_max;
use crate::dirty::versions::{Body, RunBounds, Version};
use crate::dirty::volume::{VolumeDirty, let_go};
use crate::dirty::volumes::DirtyVolumes;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Mapping;
use crate::ops::dirty::Op;
use crate::seam::{Action, ExtentRead, Note, PartResults, RequestKind};

/// First pause after a failure, doubled each time.
const PAUSE_MS: u64 = 250;
const PAUSE_MAX_MS: u64 = 16_000;
/// Maximum epochs of a run: data overwritten within them is not written to the origin.
const RUN_EPOCHS_MAX: usize = 64;
/// Maximum epochs of a run for a volume whose runs continue past flushes.
const COALESCED_EPOCHS_MAX: usize = 4096;
/// Maximum client bytes of a run of more than one epoch: its capacity is freed when all of it is on the origin.
const RUN_BYTES_MAX: u64 = 1 << 30;
/// Time after a commit with a waiting client within which another one is expected: clean records are then added to its
/// block.
const COMMIT_NEAR_MS: u64 = 10;

/// A destaging write whose data is being read.
#[derive(Debug)]
struct Gather {
    buf: BufId,
    volume: VolumeId,
    batch: Batch,
    reads: u32,
    /// Parts that could not be read.
    failed: SmallVec<[usize; 1]>,
    /// The batch is being read for the second time.
    again: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Destager {
    /// Bound on the bytes that destaging writes in a second.
    rate: ByteRate,
    /// Reads of dirty data that is to be written to its origin.
    gathers: Map<u64, Gather>,
}

impl Destager {
    /// Returns `true` if no destaging read is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.gathers.is_empty()
    }

    /// Continues the destaging of all volumes.
    pub(crate) fn pump(
        &mut self,
        volumes: &mut DirtyVolumes,
        commits: &Commits,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        if !core.base.is_good() || volumes.is_empty() {
            return;
        }
        for volume in volumes.awake_ids() {
            self.pump_of(volume, volumes, commits, core, clean);
        }
    }

    fn pump_of(
        &mut self,
        volume: VolumeId,
        volumes: &mut DirtyVolumes,
        commits: &Commits,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        if !core.base.has_volume(volume) {
            return;
        }
        let dirty = volumes.get(&volume).expect_held();
        match dirty.destaging.step {
            DestagePhase::Idle => {
                if volumes.finish_dropping(volume, core) {
                    return;
                }
                if let Some(run) = Self::run_to_destage(volume, volumes, core) {
                    let clean_to = volumes.get(&volume).map_or(0, |dirty| dirty.data.clean);
                    debug_assert!(clean_to < *run.start(), "{volume:?}: a run begins that is clean");
                    let ahead = Self::discards_ahead(volume, volumes);
                    let step = DestagePhase::Writing {
                        run,
                        ahead,
                        next: Some((ExtentNo(0), 0)),
                        in_flight: 0,
                        failed: false,
                    };
                    let destaging = volumes.destaging(volume);
                    destaging.step = step;
                    destaging.issued_bytes = 0;
                    self.issue(volume, volumes, core, clean);
                }
            }
            DestagePhase::Writing { .. } => self.issue(volume, volumes, core, clean),
            DestagePhase::Flushing { .. } => {}
            DestagePhase::Recording { epoch, position } => {
                if commits.is_recorded(position, core) {
                    self.run_is_clean(volume, epoch, volumes, commits, core, clean);
                } else if !Self::is_commit_near(volumes, commits, core) {
                    core.device.catalog.meta_mut().journal_mut().want(position);
                }
            }
        }
    }

    /// Returns `true` if a commit is expected to write a journal block soon.
    fn is_commit_near(volumes: &DirtyVolumes, commits: &Commits, core: &Core) -> bool {
        let near = |at_ms: u64| core.base.now_ms().saturating_sub(at_ms) < COMMIT_NEAR_MS;
        // A client that waits for capacity from destaging does not commit before it gets some.
        !core.base.is_stopping() && !volumes.is_waiting() && commits.awaited_ms().is_some_and(near)
    }

    fn run_to_destage(volume: VolumeId, volumes: &DirtyVolumes, core: &Core) -> Option<RangeInclusive<u64>> {
        let dirty = volumes.get(&volume)?;
        let entry = core.base.volume(volume)?;
        let oldest = dirty.data.epochs.front()?;
        let paused = core.base.now_ms() < dirty.destaging.not_before_ms;
        // Nothing is written to an origin that may be another one, or while the set of missing data is uncertain.
        let doubtful = dirty.is_incomplete() || !core.device.recovery.probes().is_open(volume);
        if paused || doubtful || entry.origin().has_direct_writes() || entry.cfg().mode == Mode::ReadOnly {
            return None;
        }
        // Data that only the intent log marks as clean is dirty again after a power failure. The origin must not hold
        // newer data at that time.
        if dirty.phase.is_unrecorded() && core.base.is_good() {
            return None;
        }
        if core.base.is_stopping() && !volumes.is_waiting() {
            return None;
        }
        let old =
            core.base.now_ms().saturating_sub(oldest.began_ms) >= entry.cfg().write_back.max_dirty_age_ms / 2;
        let silent =
            core.base.now_ms().saturating_sub(dirty.last_request_ms) >= core.base.cfg().dirty.idle_ms;
        let idle = silent && entry.cfg().write_back.destages_idly;
        let low =
            u64::from(core.device.catalog.table().len()) * u64::from(core.base.cfg().dirty.low_percent) / 100;
        let crowded = core.device.catalog.slots().dirty().filled() > low;
        let records = dirty.data.record_count() * 2 > dirty_records_max(&core.base);
        let waiting = volumes.is_pressed(volume);
        let many = dirty.data.epochs.len() > EPOCHS_CROWDED;
        let due = dirty.is_urgent() || old || idle || crowded || waiting || many || records;
        let mut bounds = run_bounds(entry.cfg().write_back.destage);
        // A drain ends with its epoch, and does not wait for later client writes.
        bounds.last = dirty.phase.drains_until().filter(|until| *until >= oldest.number).unwrap_or(u64::MAX);
        dirty.data.oldest_run(bounds).filter(|_| due)
    }

    /// Issues writes until enough are in flight, or all of the run are issued.
    fn issue(&mut self, volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core, clean: &mut Clean) {
        loop {
            let most = core.base.cfg().dirty.destage_writes.max(1);
            let DestagePhase::Writing { run, ahead, next, in_flight, failed } =
                volumes.destaging(volume).step.clone()
            else {
                return;
            };
            if in_flight == 0 && (failed || (next.is_none() && ahead == Ahead::Done)) {
                Self::writes_ended(volume, *run.end(), failed, volumes, core);
                return;
            }
            if Self::is_called_off(volume, volumes, core) {
                if in_flight == 0 {
                    volumes.destaging(volume).step = DestagePhase::Idle;
                    volumes.finish_dropping(volume, core);
                }
                return;
            }
            if failed || in_flight >= most {
                return;
            }
            if ahead != Ahead::Done {
                if !Self::issue_ahead(volume, ahead, in_flight, volumes, core, clean) {
                    return;
                }
                continue;
            }
            let Some(from) = next else { return };
            if !self.may_write_now(volume, volumes, core) {
                return;
            }
            let (batch, next) = Self::next_batch(volume, &run, from, volumes, core);
            let issued = u32::from(batch.is_some());
            let in_flight = in_flight + issued;
            volumes.destaging(volume).step = DestagePhase::Writing { run, ahead, next, in_flight, failed };
            if let Some(batch) = batch {
                self.issue_batch(volume, batch, volumes, core, clean);
            }
        }
    }

    /// Returns the discards with which a run begins: none, unless the origin has no space and others were committed
    /// since.
    fn discards_ahead(volume: VolumeId, volumes: &DirtyVolumes) -> Ahead {
        let dirty = volumes.get(&volume).expect_held();
        let to = dirty.data.last_committed().filter(|to| *to > dirty.destaging.discarded_to);
        match to.filter(|_| dirty.destaging.out_of_space && dirty.data.has_discards()) {
            Some(to) => Ahead::Issuing { from: (ExtentNo(0), 0), to },
            None => Ahead::Done,
        }
    }

    /// Issues the next discard of those with which a run begins. Returns `false` while they are in flight.
    fn issue_ahead(
        volume: VolumeId,
        ahead: Ahead,
        in_flight: u32,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
        clean: &mut Clean,
    ) -> bool {
        let mut issued = None;
        let now = match ahead {
            Ahead::Issuing { from, to } => {
                let (batch, next) = Self::next_discard(volume, from, to, volumes, core);
                issued = batch;
                next.map_or(Ahead::Issued { to }, |from| Ahead::Issuing { from, to })
            }
            Ahead::Issued { .. } if in_flight > 0 => return false,
            Ahead::Issued { to } => {
                volumes.destaging(volume).discarded_to = to;
                Ahead::Done
            }
            Ahead::Done => Ahead::Done,
        };
        if let DestagePhase::Writing { ahead, in_flight, .. } = &mut volumes.destaging(volume).step {
            *ahead = now;
            *in_flight += u32::from(issued.is_some());
        }
        if let Some(Batch { offset_bytes, len_bytes, .. }) = issued {
            core.base.stats.discarded_ahead_bytes += u64::from(len_bytes);
            let kind = RequestKind::WriteZeroes { no_hole: false, fua: false };
            clean.submit_destage_write(volume, offset_bytes, len_bytes, kind, core);
        }
        true
    }

    /// Returns `true` if the rest of a run need not be written: it is to be dropped, or stays dirty past the stop.
    fn is_called_off(volume: VolumeId, volumes: &DirtyVolumes, core: &Core) -> bool {
        let dropping = volumes.get(&volume).is_some_and(|dirty| dirty.phase.dropping().is_some());
        dropping || (core.base.is_stopping() && !volumes.is_waiting())
    }

    /// Returns `true` if the bound on bytes per second permits a destaging write.
    fn may_write_now(&mut self, volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core) -> bool {
        let dirty = volumes.get(&volume);
        let urgent = core.base.is_stopping()
            || dirty.is_some_and(VolumeDirty::is_urgent)
            || volumes.is_pressed(volume);
        if urgent {
            self.rate.forgive();
        }
        urgent || self.rate.allows(core.base.cfg().dirty.destage_bytes_per_s, core.base.now_ms())
    }

    /// Returns the next run of adjacent sectors, and the cursor after it.
    fn next_batch(
        volume: VolumeId,
        run: &RangeInclusive<u64>,
        from: Cursor,
        volumes: &DirtyVolumes,
        core: &Core,
    ) -> (Option<Batch>, Option<Cursor>) {
        let Some(dirty) = volumes.get(&volume) else { return (None, None) };
        let ahead = dirty.destaging.discarded_to;
        joined(&dirty.data, run, from, core, |extent| dirty.data.of_run(extent, run, ahead))
    }

    /// Returns the next adjacent sectors that were discarded by the end of an epoch, and the cursor after them.
    fn next_discard(
        volume: VolumeId,
        from: Cursor,
        to: u64,
        volumes: &DirtyVolumes,
        core: &Core,
    ) -> (Option<Batch>, Option<Cursor>) {
        let Some(dirty) = volumes.get(&volume) else { return (None, None) };
        let epochs = dirty.data.clean + 1..=to;
        joined(&dirty.data, &epochs, from, core, |extent| dirty.data.discarded(extent, &epochs))
    }

    fn issue_batch(
        &mut self,
        volume: VolumeId,
        batch: Batch,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let Batch { offset_bytes, len_bytes, zero, .. } = batch;
        core.base.stats.destaged_bytes += u64::from(len_bytes);
        core.base.stats.destage_writes += 1;
        volumes.destaging(volume).issued_bytes += u64::from(len_bytes);
        self.rate.spend(len_bytes);
        if let Some(no_hole) = zero {
            let kind = RequestKind::WriteZeroes { no_hole, fua: false };
            clean.submit_destage_write(volume, offset_bytes, len_bytes, kind, core);
            return;
        }
        self.gather(volume, batch, false, volumes, core, clean);
    }

    /// Reads the data of a write.
    fn gather(
        &mut self,
        volume: VolumeId,
        batch: Batch,
        again: bool,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let buf = core.base.port.alloc(batch.len_bytes);
        let id = core.base.port.number();
        let parts = batch.parts.clone();
        let gather = Gather { volume, buf, batch, reads: 1, failed: SmallVec::new(), again };
        self.gathers.insert(id, gather);
        let mut done = 0;
        for (part, (extent, version)) in parts.iter().enumerate() {
            let len = (version.span.end - version.span.start) * SECTOR_BYTES;
            let dest = BufSlice { buf, start_bytes: done, len_bytes: len };
            self.gather_part(id, part, ExtentKey { volume, extent: *extent }, version, dest, core);
            done += len;
        }
        self.gathered(id, volumes, core, clean);
    }

    /// Reads or copies the bytes of one version into the write's buffer.
    fn gather_part(
        &mut self,
        id: u64,
        part: usize,
        key: ExtentKey,
        version: &Version,
        dest: BufSlice,
        core: &mut Core,
    ) {
        let skip_bytes = (version.span.start - version.stored.start) * SECTOR_BYTES;
        match version.body {
            Body::Zero { .. } => core.base.port.emit(Action::Zero { dest }),
            Body::Memory { src, .. } => {
                core.base.port.emit(Action::Copy { from: src.part(skip_bytes, dest.len_bytes), to: dest });
            }
            Body::Stored { place, own } => {
                let mut expected = core.device.catalog.slots().expected_dirty(
                    &place,
                    own.then_some(key),
                    &version.stored,
                    &core.base,
                );
                let proof = core.device.units.proof(key.volume, &place, &version.stored, &core.base);
                let gather = self.gathers.get_mut(&id).expect_held();
                gather.reads += 1;
                let keep = is_kept(key.volume, version, &core.base);
                if keep && !gather.again {
                    expected.print = core.device.units.print_in_memory(
                        key.volume,
                        &place,
                        core.device.catalog.contents(),
                        &core.base,
                    );
                }
                let kind = Op::Gather { gather: id, part };
                core.device.units.read_stored_extent(
                    kind,
                    &place,
                    ExtentRead { expected, skip_bytes, dest, proof, keep },
                    &mut core.base,
                );
            }
        }
    }

    /// Handles the completion of a read of a part of a write.
    pub(crate) fn gather_read_done(
        &mut self,
        id: u64,
        part: usize,
        result: Result<PartResults, ErrorKind>,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let ok = result.is_ok_and(|parts| parts.iter().all(Result::is_ok));
        let gather = self.gathers.get_mut(&id).expect_held();
        let dirty = volumes.get_mut(&gather.volume);
        if !ok {
            gather.failed.push(part);
        } else if let (Some(dirty), Some((extent, version))) = (dirty, gather.batch.parts.get(part)) {
            dirty.read_after_all(*extent, version);
        }
        self.gathered(id, volumes, core, clean);
    }

    /// Records that a part is read; the last one issues the write.
    fn gathered(&mut self, id: u64, volumes: &mut DirtyVolumes, core: &mut Core, clean: &mut Clean) {
        let gather = self.gathers.get_mut(&id).expect_held();
        gather.reads -= 1;
        if gather.reads > 0 {
            return;
        }
        let gather = self.gathers.remove(&id).expect_held();
        if gather.failed.is_empty() {
            let (Batch { offset_bytes, len_bytes, .. }, buf) = (gather.batch, gather.buf);
            let kind = RequestKind::Write { buf, fua: false };
            clean.submit_destage_write(gather.volume, offset_bytes, len_bytes, kind, core);
        } else {
            core.base.port.release(gather.buf);
            self.gather_failed(gather, volumes, core, clean);
        }
    }

    /// Replaces a write of the run by several, or none; the counted one completes.
    fn replace_batch(
        &mut self,
        volume: VolumeId,
        batch: &Batch,
        instead: Vec<Batch>,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let left: u32 = instead.iter().map(|batch| batch.len_bytes).sum();
        core.base.stats.destaged_bytes -= u64::from(batch.len_bytes);
        core.base.stats.destage_writes -= 1;
        volumes.destaging(volume).issued_bytes -= u64::from(left);
        let more = u32::try_from(instead.len()).unwrap_or(u32::MAX);
        if let DestagePhase::Writing { in_flight, .. } = &mut volumes.destaging(volume).step {
            *in_flight += more;
        }
        for batch in instead {
            self.issue_batch(volume, batch, volumes, core, clean);
        }
        Self::write_done(volume, Ok(()), volumes, core);
    }

    /// Stops a run that cannot be written until this version is read.
    fn stuck(
        volume: VolumeId,
        extent: ExtentNo,
        version: Version,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) {
        if !core::mem::replace(&mut volumes.destaging(volume).noted, true) {
            core.base.port.emit(Action::Note(Note::DirtyUnreadable { volume, extent }));
        }
        volumes.destaging(volume).stuck = Some((extent, version));
        Self::write_done(volume, Err(ErrorKind::Io), volumes, core);
    }

    /// Handles the completion of a write of destaged data.
    pub(crate) fn write_done(
        volume: VolumeId,
        result: Result<(), ErrorKind>,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) {
        let destaging = volumes.destaging(volume);
        if let DestagePhase::Writing { in_flight, failed, .. } = &mut destaging.step {
            *in_flight -= 1;
            *failed |= result.is_err();
        }
        destaging.out_of_space |= result == Err(ErrorKind::NoSpace);
        if let Err(error) = result
            && !core::mem::replace(&mut volumes.destaging(volume).noted, true)
        {
            core.base.port.emit(Action::Note(Note::DestageFailed { volume, error }));
        }
        volumes.finish_dropping(volume, core);
    }

    fn writes_ended(volume: VolumeId, epoch: u64, failed: bool, volumes: &mut DirtyVolumes, core: &mut Core) {
        if failed {
            Self::failed_run(volume, volumes, core);
            return;
        }
        volumes.destaging(volume).step = DestagePhase::Flushing { epoch, spoiled: false };
        core.base.flush_origin(volume, FlushWaiter::Destage);
    }

    /// Marks the run to be written again: the origin may have lost writes since its last flush.
    pub(crate) fn spoil_run(volume: VolumeId, volumes: &mut DirtyVolumes) {
        match volumes.get_mut(&volume).map(|dirty| &mut dirty.destaging.step) {
            Some(DestagePhase::Writing { failed, .. }) => *failed = true,
            Some(DestagePhase::Flushing { spoiled, .. }) => *spoiled = true,
            Some(DestagePhase::Idle | DestagePhase::Recording { .. }) | None => {}
        }
    }

    fn failed_run(volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core) {
        let now_ms = core.base.now_ms();
        core.base.stats.destage_failures += 1;
        let destaging = volumes.destaging(volume);
        let pause = PAUSE_MS.saturating_mul(1 << destaging.failures.min(8)).min(PAUSE_MAX_MS);
        destaging.failures += 1;
        destaging.not_before_ms = now_ms + pause;
        destaging.step = DestagePhase::Idle;
    }

    /// Handles the completion of an origin flush for a run.
    pub(crate) fn flushed(
        volume: VolumeId,
        result: Result<(), ErrorKind>,
        volumes: &mut DirtyVolumes,
        commits: &Commits,
        core: &mut Core,
    ) {
        let DestagePhase::Flushing { epoch, spoiled } = volumes.destaging(volume).step else { return };
        if let Err(error) = if spoiled { Err(result.err().unwrap_or(ErrorKind::Io)) } else { result } {
            volumes.destaging(volume).out_of_space |= error == ErrorKind::NoSpace;
            if !core::mem::replace(&mut volumes.destaging(volume).noted, true) {
                core.base.port.emit(Action::Note(Note::DestageFailed { volume, error }));
            }
            Self::failed_run(volume, volumes, core);
            return;
        }
        if !core.base.is_good() {
            volumes.destaging(volume).step = DestagePhase::Idle;
            return;
        }
        core.device.catalog.record(zc_format::Record::Clean { volume, epoch }, &mut core.base);
        let position = core.device.catalog.meta().journal().appended();
        if !Self::is_commit_near(volumes, commits, core) {
            core.device.catalog.meta_mut().journal_mut().want(position);
        }
        volumes.destaging(volume).step = DestagePhase::Recording { epoch, position };
    }

    fn run_is_clean(
        &mut self,
        volume: VolumeId,
        last: u64,
        volumes: &mut DirtyVolumes,
        commits: &Commits,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let dirty = volumes.get_mut(&volume).expect_held();
        let ended = core::mem::take(&mut dirty.destaging);
        dirty.destaging.step_until = ended.step_until;
        dirty.full_since_ms = None;
        let issued_bytes = ended.issued_bytes;
        let (epochs, bytes) = (dirty.data.epochs.len(), dirty.data.bytes());
        let bodies = dirty.data.forget_until(last);
        dirty.look_at_gap();
        dirty.destaged_bytes += bytes - dirty.data.bytes();
        dirty.drained();
        core.base.stats.epochs_clean += zc_core::u64_from_usize(epochs - dirty.data.epochs.len());
        core.base.stats.destage_spared_bytes += bytes - dirty.data.bytes() - issued_bytes;
        let_go(volume, &bodies, core);
        core.device.catalog.slots_mut().look_for_victims();
        self.pump_of(volume, volumes, commits, core, clean);
    }

    /// Turns a whole extent that is on the origin into a clean copy at its place.
    pub(crate) fn promote(key: ExtentKey, volumes: &DirtyVolumes, core: &mut Core, clean: &mut Clean) {
        let Some(dirty) = volumes.get(&key.volume) else { return };
        let DestagePhase::Writing { run, .. } = &dirty.destaging.step else { return };
        let whole = 0..core.base.extent_bytes() / SECTOR_BYTES;
        let place =
            dirty.data.of_epochs(key.extent, run).into_iter().find_map(|version| match version.body {
                Body::Stored { place, .. } if version.span == whole && version.stored == whole => Some(place),
                _ => None,
            });
        let Some(place) = place else { return };
        if core.device.catalog.is_mapped(key)
            || core.device.catalog.meta().is_pressed()
            || !core.device.catalog.table().may_share(&place)
        {
            return;
        }
        core.base.stats.promoted += 1;
        core.device.catalog.map_extent(key, Mapping::Duplicate(place), &mut core.base);
        let stored = Stored { offset_units: place.offset_units, pages: place.pages };
        if let Some(print) = core.device.catalog.contents().headers().content_at(place.slot, stored) {
            clean.copies_mut().recipes_mut().learn(key, print, core);
        }
    }

    /// Handles parts of a destaging write that could not be read.
    fn gather_failed(
        &mut self,
        gather: Gather,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
        clean: &mut Clean,
    ) {
        let Gather { volume, batch, failed, again, .. } = gather;
        if !again {
            self.gather(volume, batch, true, volumes, core, clean);
            return;
        }
        let Some(dirty) = volumes.get_mut(&volume) else { return };
        let parts = || failed.iter().filter_map(|part| batch.parts.get(*part));
        for (extent, version) in parts() {
            let _known = dirty.unreadable.add(*extent, version);
        }
        let open = parts().find(|(extent, version)| !dirty.data.cover(*extent, version).open.is_empty());
        if let Some((extent, version)) = open.cloned() {
            core.base.stats.dirty_unreadable += 1;
            Self::stuck(volume, extent, version, volumes, core);
            return;
        }
        let until = parts().map(|(extent, version)| dirty.data.cover(*extent, version).until).max();
        for (extent, version) in parts() {
            let sectors = SectorSpan::new(&version.span).expect_held();
            core.base.stats.dirty_skipped_bytes += u64::from(sectors.len_bytes());
            core.base.port.emit(Action::Note(Note::DirtySkipped { volume, extent: *extent, sectors }));
        }
        volumes.destaging(volume).hurry_until(until.unwrap_or(0));
        self.replace_batch(volume, &batch, batch.without(&failed), volumes, core, clean);
    }
}

/// Returns `true` if the origin may use the fingerprint that reading a version yields: it is a whole extent, and
/// contents are fingerprinted.
fn is_kept(volume: VolumeId, version: &Version, base: &Base) -> bool {
    let whole = base.whole_sectors();
    version.span == whole
        && version.stored == whole
        && base.volume(volume).is_some_and(|volume| volume.cfg().recipes)
}

fn run_bounds(destage: Destage) -> RunBounds {
    let (epochs, past_flushes) = match destage {
        Destage::Epoch => (RUN_EPOCHS_MAX, false),
        Destage::Coalesce => (COALESCED_EPOCHS_MAX, true),
    };
    RunBounds { epochs, bytes: RUN_BYTES_MAX, past_flushes, last: u64::MAX }
}
