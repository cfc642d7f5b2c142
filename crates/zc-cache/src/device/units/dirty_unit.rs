//! The unit that dirty extents are placed in, and its writes.
//!
//! A unit is written in pieces, one for each commit; a page that was written is never written again, so that what a
//! flush covered cannot be torn. When it is full the rest goes out with a header, as for any WEU. A failed write is
//! tried again: dirty data is not given up while the device works.
//!
//! Invariant: a unit is read from memory until all its writes have ended. A slot is pinned once for each dirty body.
//! What it does not do: know what is dirty, or when a commit is due.

use zc_core::{BufId, ErrorKind, VolumeId, WeuSlot, limits};
use zc_format::{GrowingUnit, Record, WeuHeader};

use crate::base::Base;
use crate::device::Device;
use crate::device::units::classes::ClassId;
use crate::device::units::unit::{Content, Unit};
use crate::device::units::unit_writes::UnitWrites;
use crate::device::units::{Op, WritingWeu, placed_bytes};
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Place;
use crate::ops::dirty::{Op as DirtyOp, Part};
use crate::seam::{Action, Purpose, Source};

/// Times a failed write of a dirty unit is tried again.
const PART_TRIES: u32 = 4;

/// The unit that dirty extents are placed in.
#[derive(Debug)]
pub(crate) struct DirtyUnit {
    unit: Unit,
    fill_bytes: u32,
    written_bytes: u32,
    /// Everything before this has been written, and no write of it is in flight.
    settled_bytes: u32,
    parts: u32,
}

/// A full dirty unit whose last writes have not ended.
#[derive(Debug)]
pub(super) struct SealedUnit {
    header: Box<WeuHeader>,
    start_bytes: u32,
    data_bytes: u32,
    number: u64,
    tries: u32,
    /// Writes of pieces in flight, and whether the last write has ended.
    parts: u32,
    ended: bool,
}

/// The dirty unit that is being filled, and the writes of all of them.
#[derive(Debug, Default)]
pub(crate) struct DirtyUnits {
    open: Option<DirtyUnit>,
    writes: UnitWrites,
}

impl DirtyUnit {
    /// Whether it holds what is not written.
    pub(crate) const fn has_unwritten(&self) -> bool {
        self.fill_bytes > self.written_bytes
    }

    /// Bytes that are taken.
    pub(crate) const fn fill_bytes(&self) -> u32 {
        self.fill_bytes
    }

    /// Extents in it.
    pub(crate) fn entry_count(&self) -> u32 {
        self.unit.len()
    }

    /// Its slot.
    pub(crate) const fn slot(&self) -> WeuSlot {
        self.unit.slot()
    }

    /// Its memory.
    pub(crate) const fn buf(&self) -> BufId {
        self.unit.buf()
    }

    /// What a journal block says of it.
    pub(crate) const fn growing(&self) -> GrowingUnit {
        let page = self.written_bytes / limits::BLOCK_BYTES;
        GrowingUnit { slot: self.unit.slot(), generation: self.unit.generation(), page }
    }

    /// What it held before, from its fill to `end`, does not go to the device.
    pub(crate) fn zero_until(&self, end_bytes: u32, base: &mut Base) {
        self.unit.zero(self.fill_bytes, end_bytes, base);
    }
}

impl DirtyUnits {
    /// The unit that is being filled.
    pub(crate) const fn open(&self) -> Option<&DirtyUnit> {
        self.open.as_ref()
    }

    /// The writes of pieces.
    pub(crate) const fn writes(&self) -> &UnitWrites {
        &self.writes
    }

    /// The writes of pieces, to be told of flushes.
    pub(crate) const fn writes_mut(&mut self) -> &mut UnitWrites {
        &mut self.writes
    }

    /// Whether the slot is that of the unit being filled.
    /// The unit that is being filled, if it is in this slot.
    pub(super) fn open_unit(&self, slot: WeuSlot) -> Option<&Unit> {
        self.open.as_ref().map(|open| &open.unit).filter(|unit| unit.slot() == slot)
    }

    pub(super) fn is_open(&self, slot: WeuSlot) -> bool {
        self.open.as_ref().is_some_and(|open| open.slot() == slot)
    }
}

impl Device {
    /// The dirty units.
    pub(crate) const fn dirty_units(&self) -> &DirtyUnits {
        &self.units.dirty
    }

    /// The dirty units, to be told of flushes.
    pub(crate) const fn dirty_units_mut(&mut self) -> &mut DirtyUnits {
        &mut self.units.dirty
    }

    /// Puts a dirty extent into the dirty unit. From now on its slot counts as dirty. Where it is, or none without a
    /// slot.
    pub(crate) fn place_dirty(&mut self, content: &Content, base: &mut Base) -> Option<Place> {
        if !self.ensure_dirty_room(content.payload.len_bytes, base) {
            return None;
        }
        let open = self.units.dirty.open.as_mut().expect_held();
        let stored = open.unit.place(content, open.fill_bytes, base);
        open.fill_bytes += placed_bytes(content.payload.len_bytes);
        let (slot, generation) = (open.unit.slot(), open.unit.generation());
        self.add_dirty(content.key.volume, slot, true);
        Some(self.place(slot, generation, stored))
    }

    /// Makes sure the dirty unit has room for one more extent.
    fn ensure_dirty_room(&mut self, stored_bytes: u32, base: &mut Base) -> bool {
        if let Some(open) = &self.units.dirty.open {
            let need = open.fill_bytes + placed_bytes(stored_bytes) + open.unit.header_bytes_with_next();
            if need <= base.cfg().geometry.weu_bytes {
                return true;
            }
            self.seal_dirty_unit(base);
        }
        let Some(unit) = self.open_unit(ClassId::DEFAULT, base) else { return false };
        let slot = unit.slot();
        self.units.slots.begin_filling(slot);
        let entry = self.units.slots.get(slot);
        let (generation, weu_seq) = (entry.generation(), entry.weu_seq());
        self.record(Record::SlotDirty { slot, generation, weu_seq }, base);
        self.units.dirty.open =
            Some(DirtyUnit { unit, fill_bytes: 0, written_bytes: 0, settled_bytes: 0, parts: 0 });
        self.sweep_share(base);
        true
    }

    /// Writes the pages of the unit that hold something and are not written yet. What comes next begins on a new page.
    /// `durable`: their end means that they are, else a flush is to follow.
    pub(crate) fn write_dirty_pages(&mut self, durable: bool, base: &mut Base) {
        let Some(open) = self.units.dirty.open.as_ref().filter(|open| open.has_unwritten()) else { return };
        let end_bytes = open.fill_bytes.next_multiple_of(limits::BLOCK_BYTES);
        open.zero_until(end_bytes, base);
        self.write_dirty_part(end_bytes, durable, base);
    }

    /// Writes the unit from where it was written to `end_bytes`, a page's; the number of the write.
    ///
    /// # Panics
    /// When no unit is being filled.
    pub(crate) fn write_dirty_part(&mut self, end_bytes: u32, durable: bool, base: &mut Base) -> u64 {
        let DirtyUnits { open, writes } = &mut self.units.dirty;
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
        let Source::Memory(weu) = self.source(slot) else {
            panic!("{slot:?} is written from memory that is gone")
        };
        let op = base.port.op(DirtyOp::Part(part));
        base.port.keep_source(op, Source::Memory(weu));
        base.port.emit(Action::WritePart { op, slot, weu, start_bytes, len_bytes, durable });
    }

    /// A piece was written, or not: then it may be tried again. Whether it is written.
    pub(crate) fn part_written(
        &mut self,
        part: Part,
        result: Result<(), ErrorKind>,
        base: &mut Base,
    ) -> bool {
        if let Err(error) = result {
            base.stats.device_write_errors += 1;
            // What failed may have been the flush within a durable write: the next one would not say what is lost.
            if base.is_good() && part.tries < PART_TRIES && !part.durable {
                self.issue_part(Part { tries: part.tries + 1, ..part }, base);
                return false;
            }
            base.fail_device(Purpose::WeuWrite, error);
        }
        let DirtyUnits { open, writes } = &mut self.units.dirty;
        writes.ended(part.number);
        if let Some(open) = open.as_mut().filter(|open| open.unit.slot() == part.slot) {
            open.parts -= 1;
            if open.parts == 0 {
                open.settled_bytes = open.written_bytes;
            }
        } else if let Some(sealed) = self.sealed_mut(part.slot) {
            sealed.parts -= 1;
            self.end_dirty_unit(part.slot, base);
        }
        result.is_ok()
    }

    fn sealed_mut(&mut self, slot: WeuSlot) -> Option<&mut SealedUnit> {
        self.units.writing.get_mut(&slot).and_then(|weu| weu.dirty.as_mut())
    }

    /// Writes what is left of the unit, with its header.
    pub(crate) fn seal_dirty_unit(&mut self, base: &mut Base) {
        let Some(open) = self.units.dirty.open.take() else { return };
        let DirtyUnit { unit, fill_bytes, written_bytes, parts, .. } = open;
        let (slot, buf) = (unit.slot(), unit.buf());
        let (header, header_bytes) = unit.into_header(base.session.number());
        self.set_owner(slot, header.entries.iter().map(|entry| entry.key));
        self.units.slots.begin_writing(slot, header_bytes);
        base.stats.weu_writes += 1;
        let sealed = SealedUnit {
            header,
            start_bytes: written_bytes,
            data_bytes: fill_bytes.max(written_bytes),
            number: self.units.dirty.writes.begin(false),
            tries: 0,
            parts,
            ended: false,
        };
        self.units.writing.insert(slot, WritingWeu { buf, keys: Vec::new(), dirty: Some(sealed) });
        self.issue_sealed(slot, base);
    }

    fn issue_sealed(&self, slot: WeuSlot, base: &mut Base) {
        let weu = self.units.writing.get(&slot).expect_held();
        let sealed = weu.dirty.as_ref().expect_held();
        let (buf, start_bytes, data_bytes) = (weu.buf, sealed.start_bytes, sealed.data_bytes);
        let header = sealed.header.clone();
        let header_bytes = self.units.slots.get(slot).header_bytes();
        let written = data_bytes.next_multiple_of(limits::BLOCK_BYTES) - start_bytes + header_bytes;
        base.stats.weu_bytes_written += u64::from(written);
        let op = base.port.op(Op::Write(slot));
        base.port.emit(Action::WriteWeu { op, slot, weu: buf, start_bytes, data_bytes, header });
    }

    /// The last write of a dirty unit ended. It is never given up while the device works.
    pub(crate) fn dirty_unit_written(
        &mut self,
        slot: WeuSlot,
        result: Result<(), ErrorKind>,
        base: &mut Base,
    ) {
        let sealed = self.sealed_mut(slot).expect_held();
        if let Err(error) = result {
            base.stats.device_write_errors += 1;
            if base.is_good() && sealed.tries < PART_TRIES {
                sealed.tries += 1;
                return self.issue_sealed(slot, base);
            }
            base.fail_device(Purpose::WeuWrite, error);
        }
        let sealed = self.sealed_mut(slot).expect_held();
        sealed.ended = true;
        let number = sealed.number;
        self.units.dirty.writes.ended(number);
        self.end_dirty_unit(slot, base);
    }

    /// From here on the unit is read from the device, when nothing of it is in flight any more.
    fn end_dirty_unit(&mut self, slot: WeuSlot, base: &mut Base) {
        let sealed = self.units.writing.get(&slot).and_then(|weu| weu.dirty.as_ref());
        if !sealed.is_some_and(|sealed| sealed.ended && sealed.parts == 0) {
            return;
        }
        let weu = self.units.writing.remove(&slot).expect_held();
        base.port.release(weu.buf);
        self.record_written(slot, base);
    }

    /// The device failed for good: the unit that is being filled goes.
    pub(crate) fn drop_dirty_unit(&mut self, base: &mut Base) {
        if let Some(open) = self.units.dirty.open.take() {
            base.port.release(open.buf());
        }
    }

    /// Whether dirty data may point at a slot: it is on the device, or in the unit that the next commit writes; and
    /// not more than so many slots are kept for that alone.
    pub(crate) fn may_hold_dirty(&self, slot: WeuSlot, lent_max: u64) -> bool {
        let is_filling = self.units.dirty.is_open(slot);
        let has_room = self.units.dirty_slots.contains(slot) || self.units.dirty_slots.lent() < lent_max;
        (is_filling || self.units.slots.is_on_device(slot)) && has_room
    }

    /// Returns `true` if the device alone has what is at the place. The unit that dirty data is placed in stays in
    /// memory, but that memory is not written again: a page of it that the device has may be damaged there already.
    pub(crate) fn is_left_to_device(&self, place: &Place) -> bool {
        let offset_bytes = u32::from(place.offset_units) * limits::PLACE_ALIGN_BYTES;
        let open = self.units.dirty.open.as_ref().filter(|open| open.slot() == place.slot);
        open.is_none_or(|open| offset_bytes < open.settled_bytes)
    }

    /// A body of a volume's dirty data is in the slot; `own`: it was stored there as such.
    pub(crate) fn add_dirty(&mut self, volume: VolumeId, slot: WeuSlot, own: bool) {
        self.units.slots.pin(slot);
        self.units.dirty_slots.add(volume, slot, own);
    }

    /// A body of a volume's dirty data in the slot is not needed any more.
    pub(crate) fn remove_dirty(&mut self, volume: VolumeId, slot: WeuSlot, own: bool, base: &mut Base) {
        self.units.slots.unpin(slot);
        self.units.dirty_slots.remove(volume, slot, own);
        self.settle(slot, base);
    }
}
