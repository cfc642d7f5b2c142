//! The open WEUs: placement of finished runs, and the writes of full WEUs. Each class of units that is being filled has
//! one (see `classes`). Where extents go is `packer`'s matter; the entries of a header are by offset whatever the order
//! of placement was.

pub(crate) mod classes;
pub(crate) mod contents;
pub(crate) mod dirty_slots;
pub(crate) mod dirty_unit;
pub(crate) mod erase;
pub(crate) mod evict;
pub(crate) mod header_reads;
pub(crate) mod headers;
pub(crate) mod kept;
pub(crate) mod packer;
pub(crate) mod policy;
pub(crate) mod slots;
pub(crate) mod stored;
pub(crate) mod unit;
pub(crate) mod unit_writes;

pub(crate) use crate::ops::unit::Op;

use std::collections::BTreeMap;

use zc_core::{BufId, ErrorKind, ExtentKey, Fingerprint, Generation, WeuSlot};
use zc_format::{EXTENT_HEADER_BYTES, Record};

use crate::base::Base;
use crate::device::Device;
use crate::device::units::classes::ClassId;
use crate::device::units::dirty_unit::SealedUnit;
use crate::device::units::headers::Stored;
use crate::device::units::packer::{Layout, Spot};
use crate::device::units::unit::{Content, Unit};
use crate::expect_held::ExpectHeld;
use crate::index::file_index::Mapping;
use crate::seam::{Action, Note};

/// WEUs that may be on their way to the device at once.
const WRITING_MAX: usize = 4;

/// Why an extent has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// No slot may be used now: it may be placed later.
    Slot,
    /// Its class is at its quota, and none of its units may go now.
    Quota,
}

/// The unit that clean extents of a class are placed in.
#[derive(Debug)]
pub(crate) struct OpenWeu {
    unit: Unit,
    layout: Layout,
    opened_ms: u64,
}

/// The units that are being filled, one a class at most.
#[derive(Debug, Default)]
pub(crate) struct OpenWeus(BTreeMap<ClassId, OpenWeu>);

impl OpenWeus {
    /// The memory of the slot's unit, if it is one of them.
    fn memory_of(&self, slot: WeuSlot) -> Option<BufId> {
        self.0.values().find(|open| open.unit.slot() == slot).map(|open| open.unit.buf())
    }
}

/// A WEU whose write has not ended.
#[derive(Debug)]
pub(crate) struct WritingWeu {
    buf: BufId,
    keys: Vec<(ExtentKey, u32)>,
    /// For a unit of dirty extents.
    dirty: Option<SealedUnit>,
}

impl Device {
    /// Puts an extent into the open unit of its class; `together`: it came with others. Where it is now.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn append(
        &mut self,
        content: &Content,
        together: bool,
        base: &mut Base,
    ) -> Result<(WeuSlot, Generation, Stored), NoRoom> {
        let is_kept = self.is_kept(content.key);
        let class = if is_kept { ClassId::KEPT } else { self.units.classes.of(content.key.volume) };
        let anew = is_kept && self.is_mapped(content.key);
        let offset_bytes = self.make_room(class, content.payload.len_bytes, together, anew, base)?;
        let unit = &mut self.units.open.0.get_mut(&class).expect_held().unit;
        let stored = unit.place(content, offset_bytes, base);
        Ok((unit.slot(), unit.generation(), stored))
    }

    /// Finds a place for one more extent in the open WEU of a class: seals a full one, opens the next.
    fn make_room(
        &mut self,
        class: ClassId,
        stored_bytes: u32,
        together: bool,
        anew: bool,
        base: &mut Base,
    ) -> Result<u32, NoRoom> {
        if let Some(offset_bytes) = self.place_in_open(class, stored_bytes, together, base) {
            return Ok(offset_bytes);
        }
        self.seal(class, base);
        self.open_next(class, anew, base)?;
        self.place_in_open(class, stored_bytes, together, base).ok_or(NoRoom::Slot)
    }

    fn place_in_open(
        &mut self,
        class: ClassId,
        stored_bytes: u32,
        together: bool,
        base: &mut Base,
    ) -> Option<u32> {
        let open = self.units.open.0.get_mut(&class)?;
        let weu_bytes = base.cfg().geometry.weu_bytes;
        let limit_bytes = weu_bytes.saturating_sub(open.unit.header_bytes_with_next());
        let bytes = placed_bytes(stored_bytes);
        let spot = if together {
            open.layout.append(bytes, limit_bytes)
        } else {
            open.layout.pack(bytes, limit_bytes)
        };
        let Spot { offset_bytes, skipped } = spot?;
        open.unit.zero(skipped.start, skipped.end, base);
        Some(offset_bytes)
    }

    /// Opens a WEU of a class, if a slot is free and not too many are on their way to the device.
    fn open_next(&mut self, class: ClassId, anew: bool, base: &mut Base) -> Result<(), NoRoom> {
        if self.units.writing.values().filter(|weu| weu.dirty.is_none()).count() >= WRITING_MAX {
            return Err(NoRoom::Slot);
        }
        if !self.make_room_in_class(class, anew, base) {
            return Err(NoRoom::Quota);
        }
        let Some(unit) = self.open_unit(class, base) else {
            self.units.classes.set_wanting(Some(class));
            base.stats.reuse_waits += u64::from(self.free_slots() > 0);
            return Err(NoRoom::Slot);
        };
        self.units.classes.set_wanting(None);
        let owner = self.units.classes.volume(class);
        self.units.slots.set_owner(unit.slot(), owner);
        let layout = Layout::new(base.cfg().packer);
        self.units.open.0.insert(class, OpenWeu { unit, layout, opened_ms: base.now_ms() });
        self.sweep_share(base);
        Ok(())
    }

    /// An empty unit for extents of a class, or dirty ones, if a slot may be used again. Else the sweep that frees slots
    /// hurries.
    fn open_unit(&mut self, class: ClassId, base: &mut Base) -> Option<Unit> {
        let weu_seq = base.session.next();
        let Some((slot, generation)) = self.units.slots.open(weu_seq) else {
            self.units.sweeps.urgent |= self.units.slots.free_len() > 0;
            return None;
        };
        base.session.take_next();
        let buf = base.port.alloc(base.cfg().geometry.weu_bytes);
        self.units.headers.open(slot, generation);
        self.units.slots.count_opened();
        self.units.slots.note_use(slot);
        self.units.join(slot, class);
        Some(Unit::new(slot, generation, weu_seq, buf))
    }

    /// Writes the open WEUs of all classes.
    pub(crate) fn seal_all(&mut self, base: &mut Base) {
        while let Some(class) = self.units.open.0.keys().next().copied() {
            self.seal(class, base);
        }
    }

    /// Writes the open WEU of a class.
    fn seal(&mut self, class: ClassId, base: &mut Base) {
        let Some(OpenWeu { unit, layout, .. }) = self.units.open.0.remove(&class) else { return };
        let (slot, buf) = (unit.slot(), unit.buf());
        let (header, header_bytes) = unit.into_header(base.session.number());
        let keys = header.entries.iter().map(|entry| (entry.key, entry.offset_bytes)).collect();
        if class == ClassId::DEFAULT || class == ClassId::KEPT {
            self.set_owner(slot, header.entries.iter().map(|entry| entry.key));
        }
        self.units.slots.begin_writing(slot, header_bytes);
        let (fill_bytes, padding_bytes) = (layout.fill_bytes(), layout.padding_bytes());
        let weu_bytes = base.cfg().geometry.weu_bytes;
        let written = fill_bytes.next_multiple_of(zc_core::limits::BLOCK_BYTES) + header_bytes;
        base.stats.weu_writes += 1;
        base.stats.weu_bytes_written += u64::from(written.min(weu_bytes));
        let used_bytes = fill_bytes - padding_bytes + header_bytes;
        base.stats.weu_bytes_unused += u64::from(weu_bytes.saturating_sub(used_bytes));
        base.stats.weu_bytes_padding += u64::from(padding_bytes);
        self.units.writing.insert(slot, WritingWeu { buf, keys, dirty: None });
        let op = base.port.op(Op::Write(slot));
        let data_bytes = fill_bytes;
        base.port.emit(Action::WriteWeu { op, slot, weu: buf, start_bytes: 0, data_bytes, header });
        self.settle(slot, base);
    }

    /// Whether a unit is on its way to the device.
    pub(crate) fn has_units_in_flight(&self) -> bool {
        !self.units.writing.is_empty()
    }

    /// The device failed: the units that are being filled go.
    pub(crate) fn drop_open_units(&mut self, base: &mut Base) {
        for open in core::mem::take(&mut self.units.open.0).into_values() {
            base.port.release(open.unit.buf());
        }
    }

    /// Seals the open WEUs that have been open for too long.
    pub(crate) fn age_open_weus(&mut self, base: &mut Base) {
        let (age, now_ms) = (base.cfg().weu_max_age_ms, base.now_ms());
        let is_old = |open: &OpenWeu| !open.unit.is_empty() && now_ms.saturating_sub(open.opened_ms) >= age;
        while let Some(class) =
            self.units.open.0.iter().find(|(_, open)| is_old(open)).map(|(class, _)| *class)
        {
            self.seal(class, base);
        }
    }
}

impl Device {
    /// Whether the unit that is being written in the slot is one of dirty extents.
    pub(crate) fn is_dirty_unit(&self, slot: WeuSlot) -> bool {
        self.units.writing.get(&slot).is_some_and(|weu| weu.dirty.is_some())
    }

    /// A unit is on the device, with its header.
    fn record_written(&mut self, slot: WeuSlot, base: &mut Base) {
        self.units.slots.written(slot);
        self.nothing_kept_in(slot, base);
        self.settle(slot, base);
        self.units.headers.unit_written(slot);
        let entry = self.units.slots.get(slot);
        let (generation, weu_seq, header_bytes) = (entry.generation(), entry.weu_seq(), entry.header_bytes());
        self.record(Record::SlotSealed { slot, generation, weu_seq, header_bytes }, base);
    }

    /// The write of a unit of clean extents ended.
    pub(crate) fn weu_written(&mut self, slot: WeuSlot, result: Result<(), ErrorKind>, base: &mut Base) {
        let weu = self.units.writing.remove(&slot).expect_held();
        base.port.release(weu.buf);
        match result {
            Ok(()) => {
                base.unit_write_worked();
                self.record_written(slot, base);
            }
            Err(error) => {
                let place =
                    |offset: u32| u16::try_from(offset / zc_core::limits::PLACE_ALIGN_BYTES).unwrap_or(0);
                for (key, offset) in weu.keys {
                    let ours = |m: &Mapping| matches!(m, Mapping::Base(p) if p.slot == slot && p.offset_units == place(offset));
                    self.index.files.remove_if(key, |mapping| ours(&mapping));
                }
                self.units.headers.remove(slot);
                self.kept_may_be_gone(slot);
                self.units.leave(slot);
                let generation = self.units.slots.get(slot).generation();
                self.record(Record::SlotRetired { slot, generation }, base);
                self.units.slots.release(slot);
                base.port.emit(Action::Note(Note::SlotDropped { slot }));
                base.unit_write_failed(error);
            }
        }
    }
}

/// Bytes an extent takes in a WEU: inline header, payload, padding.
pub(crate) fn placed_bytes(stored_bytes: u32) -> u32 {
    (EXTENT_HEADER_BYTES + stored_bytes).next_multiple_of(zc_core::limits::PLACE_ALIGN_BYTES)
}

/// Whether a fingerprint belongs to the share of its volume that is indexed: chosen by content, so that all volumes
/// with one share agree.
pub(crate) fn in_share(print: &Fingerprint, percent: u8) -> bool {
    (print.prefix() >> 40) % 100 < u64::from(percent)
}
