//! Unit for dirty extents, and its writes.
//!
//! A unit is written in pieces, one for each commit; no page is written twice, so that a torn write cannot damage
//! flushed data. A full unit is completed by a write of its remainder with a header, as for any WEU. A failed write is
//! retried: dirty data is not abandoned while the device works.
//!
//! Invariant: a unit is read from memory until all its writes have completed. A slot is pinned once for each dirty
//! body. Out of scope: the set of dirty extents, and the time of a commit.

use zc_core::{BufId, ErrorKind, Map, VolumeId, WeuSlot, limits};
use zc_format::{GrowingUnit, Record, WeuHeader};

use crate::base::Base;
use crate::device::catalog::Catalog;
use crate::device::slots::Slots;
use crate::device::slots::class_id::ClassId;
use crate::device::stored::placed_bytes;
use crate::device::units::clean_unit::open_unit;
use crate::device::units::unit::{Content, Unit};
use crate::device::units::unit_writes::UnitWrites;
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Place;
use crate::ops::dirty::{Op as DirtyOp, Part};
use crate::ops::unit::Op;
use crate::seam::{Action, Purpose, Source};

/// Maximum attempts to write a piece of a dirty unit.
const PART_TRIES: u32 = 4;

/// Unit being filled with dirty extents.
#[derive(Debug)]
pub(crate) struct DirtyUnit {
    unit: Unit,
    fill_bytes: u32,
    written_bytes: u32,
    /// Bytes before this offset are written, with no write of them in flight.
    settled_bytes: u32,
    parts: u32,
}

#[derive(Debug)]
struct SealedUnit {
    buf: BufId,
    header: Box<WeuHeader>,
    start_bytes: u32,
    data_bytes: u32,
    number: u64,
    tries: u32,
    /// Piece writes in flight, and `true` once the last write has completed.
    parts: u32,
    ended: bool,
}

/// Dirty unit being filled, and the writes of all dirty units.
#[derive(Debug, Default)]
pub(crate) struct DirtyUnits {
    open: Option<DirtyUnit>,
    /// Full units whose last writes have not completed.
    sealed: Map<WeuSlot, SealedUnit>,
    writes: UnitWrites,
}

impl DirtyUnit {
    /// Returns `true` if it holds unwritten data.
    pub(crate) const fn has_unwritten(&self) -> bool {
        self.fill_bytes > self.written_bytes
    }

    pub(crate) const fn fill_bytes(&self) -> u32 {
        self.fill_bytes
    }

    pub(crate) fn entry_count(&self) -> u32 {
        self.unit.len()
    }

    pub(crate) const fn slot(&self) -> WeuSlot {
        self.unit.slot()
    }

    pub(crate) const fn buf(&self) -> BufId {
        self.unit.buf()
    }

    /// Description of the unit being filled, for a journal block.
    pub(crate) const fn growing(&self) -> GrowingUnit {
        let page = self.written_bytes / limits::BLOCK_BYTES;
        GrowingUnit { slot: self.unit.slot(), generation: self.unit.generation(), page }
    }

    /// Zeros its memory from the fill level to `end`, so that old contents do not reach the device.
    pub(crate) fn zero_until(&self, end_bytes: u32, base: &mut Base) {
        self.unit.zero(self.fill_bytes, end_bytes, base);
    }
}

impl DirtyUnits {
    /// Unit being filled.
    pub(crate) const fn open(&self) -> Option<&DirtyUnit> {
        self.open.as_ref()
    }

    pub(crate) const fn writes(&self) -> &UnitWrites {
        &self.writes
    }

    /// Piece writes, to be notified of flushes.
    pub(crate) const fn writes_mut(&mut self) -> &mut UnitWrites {
        &mut self.writes
    }

    /// Returns `true` if the unit being filled is in the slot and has an extent of a matching volume.
    pub(crate) fn has_open_extent_of(&self, slot: WeuSlot, is_one: impl Fn(VolumeId) -> bool) -> bool {
        self.open
            .as_ref()
            .map(|open| &open.unit)
            .filter(|unit| unit.slot() == slot)
            .is_some_and(|unit| unit.has_extent_of(is_one))
    }

    /// Memory of the slot's unit, while reads use it.
    pub(super) fn memory_of(&self, slot: WeuSlot) -> Option<BufId> {
        let open = self.open.as_ref().filter(|open| open.slot() == slot).map(DirtyUnit::buf);
        open.or_else(|| self.sealed.get(&slot).map(|sealed| sealed.buf))
    }

    fn is_open(&self, slot: WeuSlot) -> bool {
        self.open.as_ref().is_some_and(|open| open.slot() == slot)
    }

    /// Returns `true` if a full unit has writes in flight.
    pub(super) fn is_any_sealed(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Returns `true` if the unit being written in the slot contains dirty extents.
    pub(crate) fn is_sealed(&self, slot: WeuSlot) -> bool {
        self.sealed.contains_key(&slot)
    }

    /// Places a dirty extent in the dirty unit, whose slot then counts as dirty. Returns its place, or `None` without
    /// a slot.
    pub(crate) fn place(
        &mut self,
        content: &Content,
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> Option<Place> {
        if !self.ensure_room(content.payload.len_bytes, catalog, base) {
            return None;
        }
        let open = self.open.as_mut().expect_held();
        let stored = open.unit.place(content, open.fill_bytes, base);
        open.fill_bytes += placed_bytes(content.payload.len_bytes);
        let (slot, generation) = (open.unit.slot(), open.unit.generation());
        catalog.slots_mut().add_dirty(content.key.volume, slot, true);
        Some(catalog.place(slot, generation, stored))
    }

    /// Ensures that the dirty unit has space for one more extent.
    fn ensure_room(&mut self, stored_bytes: u32, catalog: &mut Catalog, base: &mut Base) -> bool {
        if let Some(open) = &self.open {
            let need = open.fill_bytes + placed_bytes(stored_bytes) + open.unit.header_bytes_with_next();
            if need <= base.cfg().geometry.weu_bytes {
                return true;
            }
            self.seal(catalog, base);
        }
        let Some(unit) = open_unit(ClassId::DEFAULT, catalog, base) else { return false };
        let slot = unit.slot();
        catalog.table_mut().begin_filling(slot);
        let entry = catalog.table().get(slot);
        let (generation, weu_seq) = (entry.generation(), entry.weu_seq());
        catalog.record(Record::SlotDirty { slot, generation, weu_seq }, base);
        self.open = Some(DirtyUnit { unit, fill_bytes: 0, written_bytes: 0, settled_bytes: 0, parts: 0 });
        catalog.sweep_share(base);
        true
    }

    /// Writes the pages of the unit that contain unwritten data. The next extent begins on a new page. `durable`:
    /// writes with FUA; otherwise a flush must follow.
    pub(crate) fn write_pages(&mut self, durable: bool, base: &mut Base) {
        let Some(open) = self.open.as_ref().filter(|open| open.has_unwritten()) else { return };
        let end_bytes = open.fill_bytes.next_multiple_of(limits::BLOCK_BYTES);
        open.zero_until(end_bytes, base);
        self.write_part(end_bytes, durable, base);
    }

    /// Writes the unit from the written offset to `end_bytes`, a page boundary; returns the number of the write.
    ///
    /// # Panics
    /// If no unit is being filled.
    pub(crate) fn write_part(&mut self, end_bytes: u32, durable: bool, base: &mut Base) -> u64 {
        let Self { open, writes, .. } = self;
        let open = open.as_mut().expect_held();
        let (slot, start_bytes) = (open.unit.slot(), open.written_bytes);
        open.fill_bytes = end_bytes;
        open.written_bytes = end_bytes;
        open.parts += 1;
        let number = writes.begin(durable);
        let len_bytes = end_bytes - start_bytes;
        self.issue_part(Part { slot, number, start_bytes, len_bytes, durable, tries: 0 }, base);
        number
    }

    fn issue_part(&self, part: Part, base: &mut Base) {
        let Part { slot, start_bytes, len_bytes, durable, .. } = part;
        base.stats.weu_bytes_written += u64::from(len_bytes);
        let weu = self.memory_of(slot).expect_held();
        let op = base.port.op(DirtyOp::Part(part));
        base.port.keep_source(op, Source::Memory(weu));
        base.port.emit(Action::WritePart { op, slot, weu, start_bytes, len_bytes, durable });
    }

    /// Handles the completion of a piece's write; a failed one may be retried. Returns `true` if it is written.
    pub(crate) fn part_written(
        &mut self,
        part: Part,
        result: Result<(), ErrorKind>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> bool {
        if let Err(error) = result {
            base.stats.device_write_errors += 1;
            // The flush within a durable write may have failed, which a retry would not report.
            if base.is_good() && part.tries < PART_TRIES && !part.durable {
                self.issue_part(Part { tries: part.tries + 1, ..part }, base);
                return false;
            }
            base.fail_device(Purpose::WeuWrite, error);
        }
        let Self { open, writes, .. } = self;
        writes.ended(part.number);
        if let Some(open) = open.as_mut().filter(|open| open.unit.slot() == part.slot) {
            open.parts -= 1;
            if open.parts == 0 {
                open.settled_bytes = open.written_bytes;
            }
        } else if let Some(sealed) = self.sealed.get_mut(&part.slot) {
            sealed.parts -= 1;
            self.end_unit(part.slot, catalog, base);
        }
        result.is_ok()
    }

    /// Writes the remainder of the unit with its header.
    pub(crate) fn seal(&mut self, catalog: &mut Catalog, base: &mut Base) {
        let Some(open) = self.open.take() else { return };
        let DirtyUnit { unit, fill_bytes, written_bytes, parts, .. } = open;
        let (slot, buf) = (unit.slot(), unit.buf());
        let (header, header_bytes) = unit.into_header(base.session.number());
        catalog.slots_mut().set_owner(slot, header.entries.iter().map(|entry| entry.key));
        catalog.table_mut().begin_writing(slot, header_bytes);
        base.stats.weu_writes += 1;
        let sealed = SealedUnit {
            buf,
            header,
            start_bytes: written_bytes,
            data_bytes: fill_bytes.max(written_bytes),
            number: self.writes.begin(false),
            tries: 0,
            parts,
            ended: false,
        };
        self.sealed.insert(slot, sealed);
        self.issue_sealed(slot, catalog, base);
    }

    fn issue_sealed(&self, slot: WeuSlot, catalog: &Catalog, base: &mut Base) {
        let sealed = self.sealed.get(&slot).expect_held();
        let (buf, start_bytes, data_bytes) = (sealed.buf, sealed.start_bytes, sealed.data_bytes);
        let header = sealed.header.clone();
        let header_bytes = catalog.table().get(slot).header_bytes();
        let written = data_bytes.next_multiple_of(limits::BLOCK_BYTES) - start_bytes + header_bytes;
        base.stats.weu_bytes_written += u64::from(written);
        let op = base.port.op(Op::Write(slot));
        base.port.emit(Action::WriteWeu { op, slot, weu: buf, start_bytes, data_bytes, header });
    }

    /// Handles the completion of the last write of a dirty unit. The data is never dropped while the device works.
    pub(crate) fn unit_written(
        &mut self,
        slot: WeuSlot,
        result: Result<(), ErrorKind>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        let sealed = self.sealed.get_mut(&slot).expect_held();
        if let Err(error) = result {
            base.stats.device_write_errors += 1;
            if base.is_good() && sealed.tries < PART_TRIES {
                sealed.tries += 1;
                return self.issue_sealed(slot, catalog, base);
            }
            base.fail_device(Purpose::WeuWrite, error);
        }
        let sealed = self.sealed.get_mut(&slot).expect_held();
        sealed.ended = true;
        let number = sealed.number;
        self.writes.ended(number);
        self.end_unit(slot, catalog, base);
    }

    /// Switches reads of the unit to the device once none of its writes is in flight.
    fn end_unit(&mut self, slot: WeuSlot, catalog: &mut Catalog, base: &mut Base) {
        if !self.sealed.get(&slot).is_some_and(|sealed| sealed.ended && sealed.parts == 0) {
            return;
        }
        let sealed = self.sealed.remove(&slot).expect_held();
        base.port.release(sealed.buf);
        catalog.unit_written(slot, base);
    }

    /// Drops the unit being filled, because the device has failed.
    pub(crate) fn drop_open(&mut self, base: &mut Base) {
        if let Some(open) = self.open.take() {
            base.port.release(open.buf());
        }
    }

    /// Returns `true` if dirty data may refer to a slot: it is on the device, or in the unit that the next commit
    /// writes; and at most `lent_max` slots are kept for that alone.
    pub(crate) fn may_hold(&self, slot: WeuSlot, lent_max: u64, slots: &Slots) -> bool {
        let is_filling = self.is_open(slot);
        let has_room = slots.dirty().contains(slot) || slots.dirty().lent() < lent_max;
        (is_filling || slots.table().is_on_device(slot)) && has_room
    }

    /// Returns `true` if the place is read from the device only. The unit being filled stays in memory, but is not
    /// written again, and a page of it on the device may be corrupt already.
    pub(crate) fn is_left_to_device(&self, place: &Place) -> bool {
        let offset_bytes = u32::from(place.offset_units) * limits::PLACE_ALIGN_BYTES;
        let open = self.open.as_ref().filter(|open| open.slot() == place.slot);
        open.is_none_or(|open| offset_bytes < open.settled_bytes)
    }
}
