//! Admission: which waiting writes are taken into the dirty layer, and which have to wait for room, or fail.
//!
//! A write waits when units of dirty data reach the high watermark, when too much is in memory alone, when there are too
//! many records, or when the journal is nearly full. Units and records are shared (`shares`): a volume always gets room
//! within its reserve, which its own destaging makes free. A volume whose origin refuses its data gets none beyond that.
//!
//! Order: waiting writes of a volume go in order, and volumes in turn, a piece each. What clears takes no memory, and
//! need not wait behind a write that does. A volume that finds no room keeps its turn, so it cannot starve: until it has
//! a piece no other one takes memory, or room that is shared, whichever it lacks.
//!
//! Failures: a write fails when waiting is without end. That is so when the data in its way cannot be read back or is
//! held back, when the manager stops and the origin refuses, and when the origin has had no space for `full_wait_ms`.
//!
//! What it does not do: divide the room (`shares`), or make any (`destage`).

use zc_core::{ErrorKind, Mode, VolumeId};
use zc_format::EXTENT_HEADER_BYTES;

use crate::base::Base;
use crate::clean::Clean;
use crate::device::Core;
use crate::dirty::commit::epoch_writes_max;
use crate::dirty::shares::Division;
use crate::dirty::versions::{DirtyFill, EpochState};
use crate::dirty::{DirtyLayer, VolumeDirty, WaitingWrite, is_held_back};
use crate::expect_held::ExpectHeld;
use crate::seam::RequestKind;

/// Largest part of a request that is taken in at once.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Versions and epochs of all volumes together, about 100 bytes each.
const DIRTY_RECORDS_MAX: u64 = 1 << 20;
/// Units above the high watermark for writes that cover what cannot be read.
const MENDING_UNITS: u64 = 1;
/// The part of the records that there may be beyond them, for what ends a lack of room: writes that cover what cannot be
/// read, and what clears.
const MENDING_RECORDS: u64 = 4;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The volume whose waiting write is the first to be looked at.
    first: VolumeId,
    /// The volume that gets the next room that is shared.
    shared: Option<VolumeId>,
    /// A write waits for memory, or for the journal.
    is_short: bool,
    /// Volumes that share the room.
    sharers: u64,
}

/// Outcome of the attempt to take in a waiting write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// A piece of it was taken in, or it was refused.
    Piece,
    /// There is none, or it waits for what is the volume's own.
    Nothing,
    /// The write waits for memory or for the journal, which make room by themselves.
    Short,
}

/// The lack of room that a piece waits for the end of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// Memory, or the journal.
    Passing,
    /// Units or records.
    Share,
}

/// The next piece of a waiting write.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u64,
    len_bytes: u64,
    /// Bytes that it takes memory for.
    memory_bytes: u64,
    /// Extents that it covers, at most.
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
    /// Versions that are in memory alone.
    fn unplaced(&self) -> u64 {
        let newest = self.data.epochs.iter().rev().take_while(|epoch| epoch.state != EpochState::Committed);
        newest.map(|epoch| u64::from(epoch.unplaced)).sum()
    }

    /// The first waiting write behind the first that takes no memory.
    fn next_clearing(&self) -> Option<usize> {
        self.waiting.iter().skip(1).position(WaitingWrite::clears).map(|at| at + 1)
    }

    /// Records of its dirty data, none if there is none.
    fn held_records(&self) -> u64 {
        if self.data.is_empty() { 0 } else { self.data.record_count() }
    }
}

/// Dirty units that bytes in memory may come to: at worst nothing can be compressed, each piece has its inline header,
/// and each commit begins a page.
fn units_for(memory_bytes: u64, base: &Base) -> u64 {
    let unit_bytes = u64::from(base.cfg().geometry.weu_bytes) * 3 / 4;
    (memory_bytes + memory_bytes / 32).div_ceil(unit_bytes)
}

/// Records of dirty data that there may be: half of what a checkpoint has room for, and a bound on the RAM.
pub(crate) fn dirty_records_max(base: &Base) -> u64 {
    (base.cfg().geometry.checkpoint_records_max() / 2).clamp(64, DIRTY_RECORDS_MAX)
}

impl DirtyLayer {
    /// Settings of volumes may have changed: counts those that share the room.
    pub(crate) fn count_sharers(&mut self, core: &Core) {
        let writes_back = core.base.volumes().filter(|volume| volume.cfg().mode == Mode::WriteBack);
        self.turns.sharers = zc_core::u64_from_usize(writes_back.count());
    }

    /// Takes in waiting writes of all volumes as far as there is room.
    pub(crate) fn pump_admission(&mut self, core: &mut Core, clean: &mut Clean) {
        if self.volumes.is_empty() {
            return;
        }
        let mut ids = self.volumes.awake_ids();
        let turn = self.turns.first;
        let first = ids.iter().position(|id| *id >= turn).unwrap_or(0);
        ids.rotate_left(first);
        while self.admit_round(&ids, core) {}
        for volume in ids {
            self.pump_giving_up(volume, core);
            self.finish_leaving(volume, core, clean);
        }
    }

    /// Takes in a piece of each volume, as far as there is room. Returns `true` if another round may take in more.
    fn admit_round(&mut self, ids: &[VolumeId], core: &mut Core) -> bool {
        let mut taken = false;
        self.turns.is_short = false;
        if self
            .turns
            .shared
            .is_some_and(|volume| !self.is_waiting_of(volume) || !self.may_share(volume, core))
        {
            self.turns.shared = None;
        }
        for volume in ids {
            match self.admit_of(*volume, core) {
                Admission::Piece => taken = true,
                Admission::Nothing => {}
                Admission::Short if self.turns.is_short => {}
                Admission::Short => {
                    self.turns.is_short = true;
                    self.turns.first = *volume;
                }
            }
        }
        taken && !self.turns.is_short
    }

    fn is_waiting_of(&self, volume: VolumeId) -> bool {
        self.volumes.get(&volume).is_some_and(|dirty| !dirty.waiting.is_empty())
    }

    /// Returns `true` if destaging of a volume makes room that waiting writes need: its own, or room that volumes share.
    pub(crate) fn is_pressed(&self, volume: VolumeId) -> bool {
        self.turns.is_short || self.turns.shared.is_some() || self.is_waiting_of(volume)
    }

    /// Takes in a piece of a volume's first waiting write; if that has to wait, of the first one that clears.
    fn admit_of(&mut self, volume: VolumeId, core: &mut Core) -> Admission {
        if !core.base.is_good() {
            return Admission::Nothing;
        }
        self.wait_to_clear(volume, core);
        let Some(dirty) = self.volumes.get(&volume).filter(|dirty| !dirty.waiting.is_empty()) else {
            return Admission::Nothing;
        };
        if dirty.phase.is_clearing() {
            return Admission::Nothing;
        }
        if dirty.phase.makes_writes_wait() {
            return self.waits_for_end(volume, core);
        }
        let first = self.admit_piece(volume, 0, core);
        let clearing = self.volumes.get(&volume).and_then(VolumeDirty::next_clearing);
        match (first, clearing) {
            (Admission::Piece, _) | (_, None) => first,
            (_, Some(at)) => match self.admit_piece(volume, at, core) {
                Admission::Piece => Admission::Piece,
                _ => first,
            },
        }
    }

    /// New writes wait until nothing is dirty. Discards continue while the origin has no space: they may free some.
    fn waits_for_end(&mut self, volume: VolumeId, core: &mut Core) -> Admission {
        if self.is_stuck(volume) || (core.base.is_stopping() && self.is_refused(volume)) {
            self.refuse_waiting(volume, ErrorKind::Io, core);
            return Admission::Nothing;
        }
        let dirty = self.volumes.get(&volume).expect_held();
        if !dirty.destaging.is_out_of_space() {
            return Admission::Nothing;
        }
        if let Some(at) = dirty.waiting.iter().position(WaitingWrite::clears)
            && self.admit_piece(volume, at, core) == Admission::Piece
        {
            return Admission::Piece;
        }
        if self.is_full_for_long(volume, core) {
            self.refuse_full(volume, core);
        }
        Admission::Nothing
    }

    /// Takes in the next piece of a waiting write of a volume.
    fn admit_piece(&mut self, volume: VolumeId, at: usize, core: &mut Core) -> Admission {
        let dirty = self.volumes.get_mut(&volume).expect_held();
        let write = dirty.waiting.get(at).expect_held();
        let piece = write.next_piece(&core.base);
        let (request, done_bytes) = (write.request.clone(), write.done_bytes);
        let mends =
            self.is_stuck(volume) && self.meets_gap(volume, piece.start..piece.start + piece.len_bytes, core);
        let full = self.is_epoch_full(volume, piece.extents, core);
        let mut lack = self.lack_of(volume, piece, core);
        if lack.is_none() && self.turns.is_short && piece.memory_bytes > 0 && !mends {
            lack = Some(Lack::Passing);
        }
        if lack.is_some() && mends && self.has_mending_room(piece.memory_bytes, core) {
            lack = None;
        }
        if full || lack.is_some() {
            core.base.stats.dirty_waits += 1;
            if mends && (full || core.device.catalog.meta().is_pressed()) {
                return Admission::Nothing;
            }
            return self.waits(volume, if full { None } else { lack }, core);
        }
        self.take_in(&request, done_bytes, piece.len_bytes, core);
        if self.turns.shared == Some(volume) {
            self.turns.shared = None;
        }
        let dirty = self.volumes.get_mut(&volume).expect_held();
        if piece.memory_bytes > 0 {
            dirty.full_since_ms = None;
        }
        let write = dirty.waiting.get_mut(at).expect_held();
        write.done_bytes += piece.len_bytes;
        if write.done_bytes == request.len_bytes {
            dirty.waiting.remove(at);
            self.taken_in(&request, core);
        }
        Admission::Piece
    }

    /// A piece finds no room, or none in the open epoch. Its write waits, unless that is without end.
    fn waits(&mut self, volume: VolumeId, lack: Option<Lack>, core: &mut Core) -> Admission {
        if self.is_stuck(volume) {
            return self.refuse_first(volume, core);
        }
        let no_end = self.is_shut_out(core) || (core.base.is_stopping() && self.is_refused(volume));
        if no_end {
            self.refuse_waiting(volume, ErrorKind::Io, core);
            return Admission::Nothing;
        }
        if self.is_crowded_out(volume, core) {
            self.refuse_waiting(volume, ErrorKind::NoSpace, core);
            return Admission::Nothing;
        }
        match lack {
            // The open epoch closes by itself.
            None => Admission::Nothing,
            Some(Lack::Passing) => Admission::Short,
            Some(Lack::Share) if self.is_full_for_long(volume, core) => {
                self.refuse_full(volume, core);
                Admission::Nothing
            }
            Some(Lack::Share) => {
                if self.turns.shared.is_none() && self.may_share(volume, core) {
                    self.turns.shared = Some(volume);
                }
                Admission::Nothing
            }
        }
    }

    /// Returns `true` if the volume's open epoch has all the records that it may have. It closes by itself.
    pub(crate) fn is_epoch_full(&self, volume: VolumeId, extents: u64, core: &Core) -> bool {
        let open = self.volumes.get(&volume).and_then(|dirty| dirty.data.epochs.back());
        let writes = open.map_or(0, |epoch| epoch.writes);
        writes > 0 && writes + extents > epoch_writes_max(core.device.catalog.meta().journal().ring_blocks())
    }

    /// Returns `true` if dirty data that cannot be read back occupies the room, so waiting does not help.
    fn is_stuck(&self, volume: VolumeId) -> bool {
        self.volumes.get(&volume).is_some_and(|dirty| dirty.destaging.is_stuck())
    }

    /// Returns `true` if the origin has had no space for so long that writes do not wait for it any more.
    fn is_full_for_long(&mut self, volume: VolumeId, core: &Core) -> bool {
        let wait_ms = core.base.volume(volume).map_or(0, |volume| volume.cfg().write_back.full_wait_ms);
        let dirty = self.volumes.get_mut(&volume).expect_held();
        if !dirty.destaging.is_out_of_space() {
            dirty.full_since_ms = None;
            return false;
        }
        let now_ms = core.base.now_ms();
        let since_ms = *dirty.full_since_ms.get_or_insert(now_ms);
        now_ms.saturating_sub(since_ms) >= wait_ms
    }

    /// Returns `true` if volumes that cannot be destaged occupy all room, so waiting does not help: their data cannot be
    /// read, their origin is missing, they are read-only, or they wait for an operator.
    fn is_crowded_out(&self, volume: VolumeId, core: &Core) -> bool {
        let mut others = self.volumes.iter().filter(|(_, dirty)| !dirty.data.is_empty()).peekable();
        others.peek().is_some()
            && others.all(|(id, dirty)| {
                *id != volume && (dirty.destaging.is_stuck() || is_held_back(*id, dirty, &core.base))
            })
    }

    /// Returns `true` if the origin or the cache device refused the volume's destaging.
    fn is_refused(&self, volume: VolumeId) -> bool {
        self.volumes.get(&volume).is_some_and(|dirty| dirty.destaging.is_refused())
    }

    /// Returns `true` if no destaging makes room any more: the manager stops, and no dirty data reaches its origin. A
    /// manager that does not stop waits for the origins to recover.
    fn is_shut_out(&self, core: &Core) -> bool {
        let mut dirty = self.volumes.iter().filter(|(_, dirty)| !dirty.data.is_empty()).peekable();
        core.base.is_stopping()
            && dirty.peek().is_some()
            && dirty.all(|(id, dirty)| dirty.destaging.is_refused() || is_held_back(*id, dirty, &core.base))
    }

    fn meets_gap(&self, volume: VolumeId, written: core::ops::Range<u64>, core: &Core) -> bool {
        self.volumes.get(&volume).is_some_and(|dirty| dirty.meets_gap(core.base.extent_bytes(), &written))
    }

    /// The first waiting write cannot wait for room; one behind it may be what makes some.
    fn refuse_first(&mut self, volume: VolumeId, core: &mut Core) -> Admission {
        let dirty = self.volumes.get_mut(&volume).expect_held();
        let Some(write) = dirty.waiting.pop_front() else { return Admission::Nothing };
        core.base.answer_write(&write.request, Err(ErrorKind::Io));
        Admission::Piece
    }

    /// Refuses the waiting writes of a volume whose origin has had no space for long. What clears waits on, unless it is
    /// the first: then there is no room for it either.
    fn refuse_full(&mut self, volume: VolumeId, core: &mut Core) {
        let dirty = self.volumes.get_mut(&volume).expect_held();
        let keeps_clearing = dirty.waiting.front().is_some_and(|write| !write.clears());
        for write in core::mem::take(&mut dirty.waiting) {
            if keeps_clearing && write.clears() {
                dirty.waiting.push_back(write);
            } else {
                core.base.answer_write(&write.request, Err(ErrorKind::NoSpace));
            }
        }
    }

    pub(crate) fn refuse_waiting(&mut self, volume: VolumeId, error: ErrorKind, core: &mut Core) {
        let dirty = self.volumes.get_mut(&volume).expect_held();
        for write in core::mem::take(&mut dirty.waiting) {
            core.base.answer_write(&write.request, Err(error));
        }
    }

    /// Returns `true` if a volume may take shared room: no other one has its turn, and its origin takes its data. Without
    /// reserves, shared room is all there is.
    fn may_share(&self, volume: VolumeId, core: &Core) -> bool {
        let is_turn = self.turns.shared.is_none_or(|holder| holder == volume);
        is_turn && (!self.is_refused(volume) || self.units(core).reserve == 0)
    }

    /// The division of units.
    fn units(&self, core: &Core) -> Division {
        Division::new(core.device.catalog.slots().dirty_bounds(&core.base).filled, self.turns.sharers)
    }

    /// The room that a piece lacks: in the journal, among records, in memory, in units.
    fn lack_of(&self, volume: VolumeId, piece: Piece, core: &Core) -> Option<Lack> {
        if core.device.catalog.meta().is_pressed() {
            return Some(Lack::Passing);
        }
        let may_share = self.may_share(volume, core);
        if !self.has_records(volume, piece, may_share, core) {
            return Some(Lack::Share);
        }
        if piece.memory_bytes == 0 {
            return None;
        }
        let pending = self.memory_bytes + piece.memory_bytes;
        if self.memory_bytes > 0 && pending > core.base.cfg().dirty.memory_bytes {
            return Some(Lack::Passing);
        }
        let overhead = piece.extents * u64::from(EXTENT_HEADER_BYTES * 2);
        let units = units_for(pending + overhead, &core.base);
        (!self.has_units(volume, piece, units, may_share, core)).then_some(Lack::Share)
    }

    /// Returns `true` if there may be the records of a piece.
    fn has_records(&self, volume: VolumeId, piece: Piece, may_share: bool, core: &Core) -> bool {
        let max = dirty_records_max(&core.base);
        let division = Division::new(max, self.turns.sharers);
        let records = self.volumes.record_count();
        let dirty = self.volumes.get(&volume);
        let own = dirty.map_or(0, VolumeDirty::held_records);
        let with_margin = max + max / MENDING_RECORDS;
        // What clears may be what lets the origin take the rest.
        let clears = piece.memory_bytes == 0 && dirty.is_some_and(|dirty| dirty.destaging.is_out_of_space());
        (may_share && records < division.shared)
            || (division.is_reserved(own, piece.extents) && records < with_margin)
            || (clears && records < with_margin)
    }

    /// Returns `true` if there may be so many more units, for a piece and all that is in memory alone.
    fn has_units(&self, volume: VolumeId, piece: Piece, units: u64, may_share: bool, core: &Core) -> bool {
        let (slots, division) = (core.device.catalog.slots().dirty(), self.units(core));
        let bounds = core.device.catalog.slots().dirty_bounds(&core.base);
        let in_shared = slots.filled() + units <= division.shared
            && slots.len() + units <= bounds.all() - division.reserved();
        if may_share && in_shared {
            return true;
        }
        let unplaced = self.volumes.get(&volume).map_or(0, VolumeDirty::unplaced);
        let charge = slots.charge(volume);
        // At most one slot for each extent; and those that are opened, beside the one that is open.
        let more = (unplaced + piece.extents).min(units + 1);
        let own = if charge == 0 && unplaced == 0 { 0 } else { charge.max(1) };
        division.is_reserved(own, more) && slots.len() + units <= bounds.all()
    }

    /// Use of the room of all volumes.
    pub(crate) fn fill(&self, core: &Core) -> DirtyFill {
        DirtyFill {
            units: core.device.catalog.slots().dirty().filled(),
            units_max: core.device.catalog.slots().dirty_bounds(&core.base).filled,
            records: self.volumes.record_count(),
            records_max: dirty_records_max(&core.base),
        }
    }

    /// Returns `true` if a piece that replaces unreadable data fits above the watermarks. It ends the lack of room.
    fn has_mending_room(&self, memory_bytes: u64, core: &Core) -> bool {
        let records = self.volumes.record_count();
        let records_max = dirty_records_max(&core.base);
        let units = units_for(self.memory_bytes + memory_bytes, &core.base);
        let bounds = core.device.catalog.slots().dirty_bounds(&core.base);
        let fits_device = core.device.catalog.slots().dirty().filled() + units
            <= bounds.filled + MENDING_UNITS
            && core.device.catalog.slots().dirty().len() + units
                < u64::from(core.device.catalog.table().len());
        !core.device.catalog.meta().is_pressed()
            && records < records_max + records_max / MENDING_RECORDS
            && (memory_bytes == 0 || fits_device)
    }
}
