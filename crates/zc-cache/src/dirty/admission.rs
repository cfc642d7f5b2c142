//! Admission: decides which waiting writes enter the dirty layer, and which wait for free capacity or fail.
//!
//! A write waits when units of dirty data reach the high watermark, when too much of it is only in memory, when there
//! are too many records, or when the journal is nearly full. Units and records are shared (`shares`): a volume always
//! gets capacity within its reserve, which its own destaging frees. A volume whose origin refuses its data gets none
//! beyond that.
//!
//! Order: a volume's writes are admitted in order, and volumes in turn, a piece each. A discard or a write of zeros
//! takes no memory, and may overtake a write that waits for memory. A volume without capacity keeps its turn, so it
//! cannot starve: until one of its pieces is admitted no other volume takes the resource that it lacks, memory or
//! shared capacity.
//!
//! Failures: a write fails if it would wait forever: when unreadable or held-back data occupies the capacity, when the
//! manager stops and the origin refuses, and when the origin has had no space for `full_wait_ms`.
//!
//! Out of scope: dividing the capacity (`shares`), and freeing it (`destage`).

use zc_core::{Ack, BufId, BufSlice, ErrorKind, Mode, VolumeId};
use zc_format::EXTENT_HEADER_BYTES;

use crate::base::Base;
use crate::clean::read::portion::{portions, sector_range};
use crate::device::Core;
use crate::dirty::bounds::is_epoch_full;
use crate::dirty::commit::Commits;
use crate::dirty::dirty_jobs::DirtyJobs;
use crate::dirty::record_bounds::dirty_records_max;
use crate::dirty::shares::Division;
use crate::dirty::versions::{Body, DirtyFill, EpochState};
use crate::dirty::volume::{VolumeDirty, WaitingWrite, is_held_back, let_go};
use crate::dirty::volumes::DirtyVolumes;
use crate::expect_held::ExpectHeld;
use crate::seam::{Action, Request, RequestKind};

/// Dirty records at or below which a clearing of [`crate::config::ManagerConfig::drain_extents_min`] extents waits for
/// destaging; a longer clearing waits for more in proportion.
const RECORDS_MAX: u64 = 512;

/// Largest part of a request that is admitted at once.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Units above the high watermark for writes that replace unreadable data.
const MENDING_UNITS: u64 = 1;
/// Share of the record limit that is added for requests that relieve a shortage: writes that replace unreadable data,
/// discards and writes of zeros.
const MENDING_RECORDS: u64 = 4;

#[derive(Debug, Default)]
struct Turns {
    /// Volume whose waiting write is examined first.
    first: VolumeId,
    shared: Option<VolumeId>,
    /// A write waits for memory, or for the journal.
    is_short: bool,
    /// Number of volumes that share the capacity.
    sharers: u64,
}

/// Outcome of the attempt to admit a waiting write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admitted {
    /// A piece of it was admitted, or it was refused.
    Piece,
    /// No write waits, or the first one waits for the volume's own capacity.
    Nothing,
    /// The write waits for memory or the journal, which free capacity without destaging.
    Short,
}

/// Resource that a piece lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// Memory, or the journal.
    Passing,
    /// Units or records.
    Share,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    len_bytes: u64,
    memory_bytes: u64,
    /// Maximum number of extents that it touches.
    extents: u64,
}

impl WaitingWrite {
    fn next_piece(&self, base: &Base) -> Piece {
        let start = self.request.offset_bytes + self.done_bytes;
        let extent = u64::from(base.extent_bytes());
        let most = PIECE_BYTES_MAX.min(u64::from(base.cfg().geometry.weu_bytes / 4)).max(extent);
        let len_bytes = (self.request.len_bytes - self.done_bytes).min(most - start % extent);
        let memory_bytes = if self.clears() { 0 } else { len_bytes };
        Piece { start, len_bytes, memory_bytes, extents: len_bytes.div_ceil(extent) + 1 }
    }

    /// Returns `true` if it takes no memory.
    const fn clears(&self) -> bool {
        !matches!(self.request.kind, RequestKind::Write { .. })
    }
}

impl VolumeDirty {
    fn unplaced(&self) -> u64 {
        let newest = self.data.epochs.iter().rev().take_while(|epoch| epoch.state != EpochState::Committed);
        newest.map(|epoch| u64::from(epoch.unplaced)).sum()
    }

    /// Returns the first waiting write without memory needs, after the first write.
    fn next_clearing(&self) -> Option<usize> {
        self.waiting.iter().skip(1).position(WaitingWrite::clears).map(|at| at + 1)
    }

    /// Records of its dirty data, or 0.
    fn held_records(&self) -> u64 {
        if self.data.is_empty() { 0 } else { self.data.record_count() }
    }
}

/// Upper bound on the dirty units for bytes in memory: the worst case is that nothing compresses, each piece has its
/// inline header, and each commit begins a page.
fn units_for(memory_bytes: u64, base: &Base) -> u64 {
    let unit_bytes = u64::from(base.cfg().geometry.weu_bytes) * 3 / 4;
    (memory_bytes + memory_bytes / 32).div_ceil(unit_bytes)
}

/// Takes waiting writes into the dirty layer.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    turns: Turns,
    jobs: DirtyJobs,
}

impl Admission {
    pub(crate) const fn jobs(&self) -> &DirtyJobs {
        &self.jobs
    }

    pub(crate) const fn jobs_mut(&mut self) -> &mut DirtyJobs {
        &mut self.jobs
    }

    /// Recounts the volumes that share the capacity, after a possible change of settings.
    pub(crate) fn count_sharers(&mut self, core: &Core) {
        let writes_back = core.base.volumes().filter(|volume| volume.cfg().mode == Mode::WriteBack);
        self.turns.sharers = zc_core::u64_from_usize(writes_back.count());
    }

    /// Admits waiting writes of all volumes, in turn, while capacity is available.
    pub(crate) fn pump(
        &mut self,
        volumes: &mut DirtyVolumes,
        commits: &mut Commits,
        core: &mut Core,
    ) -> Vec<VolumeId> {
        let mut ids = volumes.awake_ids();
        let turn = self.turns.first;
        let first = ids.iter().position(|id| *id >= turn).unwrap_or(0);
        ids.rotate_left(first);
        while self.admit_round(&ids, volumes, commits, core) {}
        volumes.set_short_of_room(self.turns.is_short || self.turns.shared.is_some());
        ids
    }

    /// Admits a piece of each volume while capacity is available. Returns `true` if another round may admit more.
    fn admit_round(
        &mut self,
        ids: &[VolumeId],
        volumes: &mut DirtyVolumes,
        commits: &mut Commits,
        core: &mut Core,
    ) -> bool {
        let mut taken = false;
        self.turns.is_short = false;
        if self
            .turns
            .shared
            .is_some_and(|volume| !volumes.is_waiting_of(volume) || !self.may_share(volume, volumes, core))
        {
            self.turns.shared = None;
        }
        for volume in ids {
            match self.admit_of(*volume, volumes, commits, core) {
                Admitted::Piece => taken = true,
                Admitted::Nothing => {}
                Admitted::Short if self.turns.is_short => {}
                Admitted::Short => {
                    self.turns.is_short = true;
                    self.turns.first = *volume;
                }
            }
        }
        taken && !self.turns.is_short
    }

    /// Admits a piece of a volume's first waiting write, or, if that must wait, of the first clearing.
    fn admit_of(
        &mut self,
        volume: VolumeId,
        volumes: &mut DirtyVolumes,
        commits: &mut Commits,
        core: &mut Core,
    ) -> Admitted {
        if !core.base.is_good() {
            return Admitted::Nothing;
        }
        self.wait_to_clear(volume, volumes, core);
        let Some(dirty) = volumes.get(&volume).filter(|dirty| !dirty.waiting.is_empty()) else {
            return Admitted::Nothing;
        };
        if dirty.phase.is_clearing() {
            return Admitted::Nothing;
        }
        if dirty.phase.makes_writes_wait() {
            return self.waits_for_end(volume, volumes, commits, core);
        }
        let first = self.admit_piece(volume, 0, volumes, commits, core);
        let clearing = volumes.get(&volume).and_then(VolumeDirty::next_clearing);
        match (first, clearing) {
            (Admitted::Piece, _) | (_, None) => first,
            (_, Some(at)) => match self.admit_piece(volume, at, volumes, commits, core) {
                Admitted::Piece => Admitted::Piece,
                _ => first,
            },
        }
    }

    /// Makes new writes wait until nothing is dirty. Discards continue while the origin has no space, because they may
    /// free some.
    fn waits_for_end(
        &mut self,
        volume: VolumeId,
        volumes: &mut DirtyVolumes,
        commits: &mut Commits,
        core: &mut Core,
    ) -> Admitted {
        if Self::is_stuck(volume, volumes) || (core.base.is_stopping() && Self::is_refused(volume, volumes)) {
            volumes.refuse_waiting(volume, ErrorKind::Io, core);
            return Admitted::Nothing;
        }
        let dirty = volumes.get(&volume).expect_held();
        if !dirty.destaging.is_out_of_space() {
            return Admitted::Nothing;
        }
        if let Some(at) = dirty.waiting.iter().position(WaitingWrite::clears)
            && self.admit_piece(volume, at, volumes, commits, core) == Admitted::Piece
        {
            return Admitted::Piece;
        }
        if Self::is_full_for_long(volume, volumes, core) {
            Self::refuse_full(volume, volumes, core);
        }
        Admitted::Nothing
    }

    /// Admits the next piece of a waiting write of a volume.
    fn admit_piece(
        &mut self,
        volume: VolumeId,
        at: usize,
        volumes: &mut DirtyVolumes,
        commits: &mut Commits,
        core: &mut Core,
    ) -> Admitted {
        let dirty = volumes.get_mut(&volume).expect_held();
        let write = dirty.waiting.get(at).expect_held();
        let piece = write.next_piece(&core.base);
        let (request, done_bytes) = (write.request.clone(), write.done_bytes);
        let mends = Self::is_stuck(volume, volumes)
            && Self::meets_gap(volume, piece.start..piece.start + piece.len_bytes, volumes, core);
        let full = is_epoch_full(volume, piece.extents, volumes, core);
        let mut lack = self.lack_of(volume, piece, volumes, core);
        if lack.is_none() && self.turns.is_short && piece.memory_bytes > 0 && !mends {
            lack = Some(Lack::Passing);
        }
        if lack.is_some() && mends && self.has_mending_room(piece.memory_bytes, volumes, core) {
            lack = None;
        }
        if full || lack.is_some() {
            core.base.stats.dirty_waits += 1;
            if mends && (full || core.device.catalog.meta().is_pressed()) {
                return Admitted::Nothing;
            }
            return self.waits(volume, if full { None } else { lack }, volumes, core);
        }
        self.take_in(&request, done_bytes, piece.len_bytes, volumes, core);
        if self.turns.shared == Some(volume) {
            self.turns.shared = None;
        }
        let dirty = volumes.get_mut(&volume).expect_held();
        if piece.memory_bytes > 0 {
            dirty.full_since_ms = None;
        }
        let write = dirty.waiting.get_mut(at).expect_held();
        write.done_bytes += piece.len_bytes;
        if write.done_bytes == request.len_bytes {
            dirty.waiting.remove(at);
            Self::taken_in(&request, volumes, commits, core);
        }
        Admitted::Piece
    }

    /// Handles a piece for which capacity is lacking. Its write waits, or fails if it would wait forever.
    fn waits(
        &mut self,
        volume: VolumeId,
        lack: Option<Lack>,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) -> Admitted {
        if Self::is_stuck(volume, volumes) {
            return Self::refuse_first(volume, volumes, core);
        }
        let no_end = Self::is_shut_out(volumes, core)
            || (core.base.is_stopping() && Self::is_refused(volume, volumes));
        if no_end {
            volumes.refuse_waiting(volume, ErrorKind::Io, core);
            return Admitted::Nothing;
        }
        if Self::is_crowded_out(volume, volumes, core) {
            volumes.refuse_waiting(volume, ErrorKind::NoSpace, core);
            return Admitted::Nothing;
        }
        match lack {
            // The open epoch closes without further action.
            None => Admitted::Nothing,
            Some(Lack::Passing) => Admitted::Short,
            Some(Lack::Share) if Self::is_full_for_long(volume, volumes, core) => {
                Self::refuse_full(volume, volumes, core);
                Admitted::Nothing
            }
            Some(Lack::Share) => {
                if self.turns.shared.is_none() && self.may_share(volume, volumes, core) {
                    self.turns.shared = Some(volume);
                }
                Admitted::Nothing
            }
        }
    }

    /// Returns `true` if dirty data that cannot be read back occupies the capacity, so waiting does not help.
    fn is_stuck(volume: VolumeId, volumes: &DirtyVolumes) -> bool {
        volumes.get(&volume).is_some_and(|dirty| dirty.destaging.is_stuck())
    }

    /// Returns `true` if the origin has had no space for so long that writes no longer wait for it.
    fn is_full_for_long(volume: VolumeId, volumes: &mut DirtyVolumes, core: &Core) -> bool {
        let wait_ms = core.base.volume(volume).map_or(0, |volume| volume.cfg().write_back.full_wait_ms);
        let dirty = volumes.get_mut(&volume).expect_held();
        if !dirty.destaging.is_out_of_space() {
            dirty.full_since_ms = None;
            return false;
        }
        let now_ms = core.base.now_ms();
        let since_ms = *dirty.full_since_ms.get_or_insert(now_ms);
        now_ms.saturating_sub(since_ms) >= wait_ms
    }

    /// Returns `true` if volumes that cannot be destaged occupy all capacity, so waiting does not help: their data is
    /// unreadable, their origin is missing, they are read-only, or they wait for an operator.
    fn is_crowded_out(volume: VolumeId, volumes: &DirtyVolumes, core: &Core) -> bool {
        let mut others = volumes.iter().filter(|(_, dirty)| !dirty.data.is_empty()).peekable();
        others.peek().is_some()
            && others.all(|(id, dirty)| {
                *id != volume && (dirty.destaging.is_stuck() || is_held_back(*id, dirty, &core.base))
            })
    }

    /// Returns `true` if the origin or the cache device refused the volume's destaging.
    fn is_refused(volume: VolumeId, volumes: &DirtyVolumes) -> bool {
        volumes.get(&volume).is_some_and(|dirty| dirty.destaging.is_refused())
    }

    /// Returns `true` if destaging frees no more capacity: the manager stops, and all origins refuse. A manager that
    /// does not stop waits for the origins to recover.
    fn is_shut_out(volumes: &DirtyVolumes, core: &Core) -> bool {
        let mut dirty = volumes.iter().filter(|(_, dirty)| !dirty.data.is_empty()).peekable();
        core.base.is_stopping()
            && dirty.peek().is_some()
            && dirty.all(|(id, dirty)| dirty.destaging.is_refused() || is_held_back(*id, dirty, &core.base))
    }

    fn meets_gap(
        volume: VolumeId,
        written: core::ops::Range<u64>,
        volumes: &DirtyVolumes,
        core: &Core,
    ) -> bool {
        volumes.get(&volume).is_some_and(|dirty| dirty.meets_gap(core.base.extent_bytes(), &written))
    }

    /// Refuses the first waiting write, for which there will be no capacity; a later one may free some.
    fn refuse_first(volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core) -> Admitted {
        let dirty = volumes.get_mut(&volume).expect_held();
        let Some(write) = dirty.waiting.pop_front() else { return Admitted::Nothing };
        core.base.answer_write(&write.request, Err(ErrorKind::Io));
        Admitted::Piece
    }

    /// Refuses the waiting writes of a volume whose origin has had no space for too long. Discards and writes of zeros
    /// continue to wait, unless one of them is first: then there is no capacity for them either.
    fn refuse_full(volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core) {
        let dirty = volumes.get_mut(&volume).expect_held();
        let keeps_clearing = dirty.waiting.front().is_some_and(|write| !write.clears());
        for write in core::mem::take(&mut dirty.waiting) {
            if keeps_clearing && write.clears() {
                dirty.waiting.push_back(write);
            } else {
                core.base.answer_write(&write.request, Err(ErrorKind::NoSpace));
            }
        }
    }

    /// Returns `true` if a volume may take shared capacity: no other one has its turn, and its origin accepts data.
    /// Without reserves all capacity is shared.
    fn may_share(&self, volume: VolumeId, volumes: &DirtyVolumes, core: &Core) -> bool {
        let is_turn = self.turns.shared.is_none_or(|holder| holder == volume);
        is_turn && (!Self::is_refused(volume, volumes) || self.units(core).reserve == 0)
    }

    fn units(&self, core: &Core) -> Division {
        Division::new(core.device.catalog.slots().dirty_bounds(&core.base).filled, self.turns.sharers)
    }

    /// Returns the resource that a piece lacks: journal, records, memory or units.
    fn lack_of(&self, volume: VolumeId, piece: Piece, volumes: &DirtyVolumes, core: &Core) -> Option<Lack> {
        if core.device.catalog.meta().is_pressed() {
            return Some(Lack::Passing);
        }
        let may_share = self.may_share(volume, volumes, core);
        if !self.has_records(volume, piece, may_share, volumes, core) {
            return Some(Lack::Share);
        }
        if piece.memory_bytes == 0 {
            return None;
        }
        let pending = self.jobs.memory_bytes() + piece.memory_bytes;
        if self.jobs.memory_bytes() > 0 && pending > core.base.cfg().dirty.memory_bytes {
            return Some(Lack::Passing);
        }
        let overhead = piece.extents * u64::from(EXTENT_HEADER_BYTES * 2);
        let units = units_for(pending + overhead, &core.base);
        (!self.has_units(volume, piece, units, may_share, volumes, core)).then_some(Lack::Share)
    }

    /// Returns `true` if the records of a piece are within the bounds.
    fn has_records(
        &self,
        volume: VolumeId,
        piece: Piece,
        may_share: bool,
        volumes: &DirtyVolumes,
        core: &Core,
    ) -> bool {
        let max = dirty_records_max(&core.base);
        let division = Division::new(max, self.turns.sharers);
        let records = volumes.record_count();
        let dirty = volumes.get(&volume);
        let own = dirty.map_or(0, VolumeDirty::held_records);
        let with_margin = max + max / MENDING_RECORDS;
        // A discard may free the space at the origin that the remaining data needs.
        let clears = piece.memory_bytes == 0 && dirty.is_some_and(|dirty| dirty.destaging.is_out_of_space());
        (may_share && records < division.shared)
            || (division.is_reserved(own, piece.extents) && records < with_margin)
            || (clears && records < with_margin)
    }

    /// Returns `true` if enough units are available for a piece and all data that is only in memory.
    fn has_units(
        &self,
        volume: VolumeId,
        piece: Piece,
        units: u64,
        may_share: bool,
        volumes: &DirtyVolumes,
        core: &Core,
    ) -> bool {
        let (slots, division) = (core.device.catalog.slots().dirty(), self.units(core));
        let bounds = core.device.catalog.slots().dirty_bounds(&core.base);
        let in_shared = slots.filled() + units <= division.shared
            && slots.len() + units <= bounds.all() - division.reserved();
        if may_share && in_shared {
            return true;
        }
        let unplaced = volumes.get(&volume).map_or(0, VolumeDirty::unplaced);
        let charge = slots.charge(volume);
        // At most one slot per extent, plus the slots opened besides the open one.
        let more = (unplaced + piece.extents).min(units + 1);
        let own = if charge == 0 && unplaced == 0 { 0 } else { charge.max(1) };
        division.is_reserved(own, more) && slots.len() + units <= bounds.all()
    }

    /// Use of the capacity of all volumes.
    pub(crate) fn fill(volumes: &DirtyVolumes, core: &Core) -> DirtyFill {
        DirtyFill {
            units: core.device.catalog.slots().dirty().filled(),
            units_max: core.device.catalog.slots().dirty_bounds(&core.base).filled,
            records: volumes.record_count(),
            records_max: dirty_records_max(&core.base),
        }
    }

    /// Returns `true` if a piece that replaces unreadable data fits above the watermarks. Its admission ends the
    /// shortage.
    fn has_mending_room(&self, memory_bytes: u64, volumes: &DirtyVolumes, core: &Core) -> bool {
        let records = volumes.record_count();
        let records_max = dirty_records_max(&core.base);
        let units = units_for(self.jobs.memory_bytes() + memory_bytes, &core.base);
        let bounds = core.device.catalog.slots().dirty_bounds(&core.base);
        let fits_device = core.device.catalog.slots().dirty().filled() + units
            <= bounds.filled + MENDING_UNITS
            && core.device.catalog.slots().dirty().len() + units
                < u64::from(core.device.catalog.table().len());
        !core.device.catalog.meta().is_pressed()
            && records < records_max + records_max / MENDING_RECORDS
            && (memory_bytes == 0 || fits_device)
    }

    /// Begins the wait of a clearing that is the volume's first waiting write, or ends one that failed.
    fn wait_to_clear(&mut self, volume: VolumeId, volumes: &mut DirtyVolumes, core: &mut Core) {
        let now_ms = core.base.now_ms();
        let Some(dirty) = volumes.get(&volume) else { return };
        let is_free = Self::is_free_to_drain(volume, dirty, volumes, core);
        let begins = is_free && !dirty.phase.is_clearing() && is_much_longer(dirty, core);
        let Some(dirty) = volumes.get_mut(&volume) else { return };
        if begins {
            dirty.phase.clear(now_ms);
            core.base.stats.dirty_clears += 1;
        } else if dirty.phase.is_clearing()
            && !(is_free && is_untouched(dirty) && !dirty.phase.clears_late(now_ms))
        {
            dirty.phase.clear_no_more();
            if let Some(first) = dirty.waiting.front_mut() {
                first.has_waited = true;
            }
        }
    }

    /// Returns `true` if nothing prevents destaging all dirty data.
    fn is_free_to_drain(volume: VolumeId, dirty: &VolumeDirty, volumes: &DirtyVolumes, core: &Core) -> bool {
        volumes.writes_back(volume, core)
            && !dirty.phase.is_leaving()
            && !dirty.is_settling()
            && !dirty.destaging.is_stuck()
            && !dirty.destaging.is_refused()
            && !is_held_back(volume, dirty, &core.base)
            && !core.base.is_stopping()
    }

    /// Creates versions for a piece of a request.
    fn take_in(
        &mut self,
        request: &Request,
        done_bytes: u64,
        len_bytes: u64,
        volumes: &mut DirtyVolumes,
        core: &mut Core,
    ) {
        let volume = request.volume;
        let src = match request.kind {
            RequestKind::Write { buf, .. } => {
                let start_bytes = u32::try_from(done_bytes).unwrap_or(u32::MAX);
                Some(BufSlice { buf, start_bytes, len_bytes: u32::try_from(len_bytes).unwrap_or(u32::MAX) })
            }
            _ => None,
        };
        let len = u32::try_from(len_bytes).unwrap_or(u32::MAX);
        let range = src.unwrap_or(BufSlice { buf: BufId(0), start_bytes: 0, len_bytes: len });
        for portion in portions(volume, request.offset_bytes + done_bytes, range, core.base.extent_bytes()) {
            let sectors = sector_range(portion.skip_bytes, portion.len_bytes);
            let body = match src {
                None => Body::Zero {
                    no_hole: matches!(request.kind, RequestKind::WriteZeroes { no_hole: true, .. }),
                },
                Some(_) => self.jobs.start(portion.key, &sectors, portion.dest, volumes, core),
            };
            let now_ms = core.base.now_ms();
            let dirty = volumes.get_mut(&volume).expect_held();
            let replaced = dirty.data.write(portion.key.extent, sectors, body, now_ms);
            let_go(volume, &replaced, core);
        }
        core.base.stats.dirty_written_bytes += len_bytes;
    }

    /// Completes the admission of a request: replies now or after a commit.
    fn taken_in(request: &Request, volumes: &mut DirtyVolumes, commits: &mut Commits, core: &mut Core) {
        let fua = match request.kind {
            RequestKind::Write { fua, .. } | RequestKind::Trim { fua } => fua,
            RequestKind::WriteZeroes { fua, .. } => fua,
            RequestKind::Read { .. } | RequestKind::Flush | RequestKind::Prefetch | RequestKind::Warm => {
                false
            }
        };
        let ack = core.base.volume(request.volume).map_or(Ack::Durable, |volume| volume.cfg().write_back.ack);
        if let RequestKind::Write { buf, .. } = request.kind {
            core.base.port.release(buf);
        }
        let clears = !matches!(request.kind, RequestKind::Write { .. });
        let makes_space = clears && volumes.destaging(request.volume).discards();
        if fua || ack == Ack::Durable {
            commits.request_commit(request.volume, Some(request.req), volumes, core);
        } else {
            if let Some(dirty) = volumes.get_mut(&request.volume) {
                dirty.data.acknowledge();
            }
            core.base.port.emit(Action::Reply { req: request.req, result: Ok(()) });
            if makes_space {
                commits.request_commit(request.volume, None, volumes, core);
            }
        }
    }
}

/// Returns `true` if the first waiting write is a clearing without admitted pieces.
fn is_untouched(dirty: &VolumeDirty) -> bool {
    dirty.waiting.front().is_some_and(|first| {
        let clears = matches!(first.request.kind, RequestKind::Trim { .. } | RequestKind::WriteZeroes { .. });
        clears && first.done_bytes == 0
    })
}

/// Returns `true` if the first waiting write is a clearing of many more extents than there are records of dirty data.
fn is_much_longer(dirty: &VolumeDirty, core: &Core) -> bool {
    let Some(first) = dirty.waiting.front() else { return false };
    let extents = first.request.len_bytes / u64::from(core.base.extent_bytes());
    let extents_min = core.base.cfg().drain_extents_min;
    is_untouched(dirty)
        && !first.has_waited
        && extents >= extents_min
        && dirty.data.record_count().saturating_mul(extents_min) <= extents.saturating_mul(RECORDS_MAX)
}
