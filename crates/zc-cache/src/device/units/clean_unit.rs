//! Open units of clean extents: placement of finished runs, and the writes of full units. Each class has at most one
//! open unit (see `classes`). The packer chooses the place of an extent; the entries of a header are ordered by
//! offset.
//!
//! Invariant: a unit is read from memory until its write has completed.
//!
//! Out of scope: choosing the unit to evict for the next one (see `catalog`).

use std::collections::BTreeMap;

use zc_core::{BufId, ErrorKind, ExtentKey, Generation, Map, VolumeId, WeuSlot};

use crate::base::Base;
use crate::device::catalog::Catalog;
use crate::device::catalog::evict::NoRoom;
use crate::device::slots::class_id::ClassId;
use crate::device::stored::{Stored, placed_bytes};
use crate::device::units::packer::{Layout, Spot};
use crate::device::units::unit::{Content, Unit};
use crate::expect_held::ExpectHeld;
use crate::ops::unit::Op;
use crate::seam::Action;

/// Maximum WEU writes in flight.
const WRITING_MAX: usize = 4;

/// Open unit of a class.
#[derive(Debug)]
struct OpenWeu {
    unit: Unit,
    layout: Layout,
    opened_ms: u64,
}

#[derive(Debug)]
struct WritingWeu {
    buf: BufId,
    keys: Vec<(ExtentKey, u32)>,
}

#[derive(Debug, Default)]
pub(crate) struct CleanUnits {
    /// Open units, at most one per class.
    open: BTreeMap<ClassId, OpenWeu>,
    writing: Map<WeuSlot, WritingWeu>,
}

impl CleanUnits {
    /// Memory of the slot's unit, while reads use it.
    pub(super) fn memory_of(&self, slot: WeuSlot) -> Option<BufId> {
        let open = self.open.values().find(|open| open.unit.slot() == slot).map(|open| open.unit.buf());
        open.or_else(|| self.writing.get(&slot).map(|weu| weu.buf))
    }

    /// Returns the class of the unit being filled in the slot, if any, and `true` if it has an extent of a matching
    /// volume.
    pub(crate) fn find_open(
        &self,
        slot: WeuSlot,
        is_one: impl Fn(VolumeId) -> bool,
    ) -> Option<(ClassId, bool)> {
        let (class, open) = self.open.iter().find(|(_, open)| open.unit.slot() == slot)?;
        Some((*class, open.unit.has_extent_of(is_one)))
    }

    /// Appends an extent to the open unit of its class; `together`: it belongs to a batch of several. Returns its
    /// place.
    ///
    /// # Errors
    /// There is no capacity for it.
    pub(crate) fn append(
        &mut self,
        content: &Content,
        together: bool,
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> Result<(WeuSlot, Generation, Stored), NoRoom> {
        let is_kept = catalog.slots().kept().has(content.key);
        let class = if is_kept { ClassId::KEPT } else { catalog.slots().classes().of(content.key.volume) };
        let anew = is_kept && catalog.is_mapped(content.key);
        let offset_bytes =
            self.make_room(class, content.payload.len_bytes, (together, anew), catalog, base)?;
        let unit = &mut self.open.get_mut(&class).expect_held().unit;
        let stored = unit.place(content, offset_bytes, base);
        Ok((unit.slot(), unit.generation(), stored))
    }

    /// Finds space for one more extent in the open WEU of a class: seals a full one, opens the next.
    fn make_room(
        &mut self,
        class: ClassId,
        stored_bytes: u32,
        (together, anew): (bool, bool),
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> Result<u32, NoRoom> {
        if let Some(offset_bytes) = self.place_in_open(class, stored_bytes, together, base) {
            return Ok(offset_bytes);
        }
        self.seal(class, catalog, base);
        self.open_next(class, anew, catalog, base)?;
        self.place_in_open(class, stored_bytes, together, base).ok_or(NoRoom::Slot)
    }

    fn place_in_open(
        &mut self,
        class: ClassId,
        stored_bytes: u32,
        together: bool,
        base: &mut Base,
    ) -> Option<u32> {
        let open = self.open.get_mut(&class)?;
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

    /// Opens a WEU of a class, if a slot is free and not too many writes are in flight.
    fn open_next(
        &mut self,
        class: ClassId,
        anew: bool,
        catalog: &mut Catalog,
        base: &mut Base,
    ) -> Result<(), NoRoom> {
        if self.writing.len() >= WRITING_MAX {
            return Err(NoRoom::Slot);
        }
        if !catalog.make_room_in_class(class, anew, base) {
            return Err(NoRoom::Quota);
        }
        let Some(unit) = open_unit(class, catalog, base) else {
            catalog.slots_mut().set_wanting(Some(class));
            base.stats.reuse_waits += u64::from(catalog.table().free_len() > 0);
            return Err(NoRoom::Slot);
        };
        catalog.slots_mut().set_wanting(None);
        let owner = catalog.slots().classes().volume(class);
        catalog.table_mut().set_owner(unit.slot(), owner);
        let layout = Layout::new(base.cfg().packer);
        self.open.insert(class, OpenWeu { unit, layout, opened_ms: base.now_ms() });
        catalog.sweep_share(base);
        Ok(())
    }

    /// Writes the open WEUs of all classes.
    pub(crate) fn seal_all(&mut self, catalog: &mut Catalog, base: &mut Base) {
        while let Some(class) = self.open.keys().next().copied() {
            self.seal(class, catalog, base);
        }
    }

    /// Writes the open WEU of a class.
    pub(crate) fn seal(&mut self, class: ClassId, catalog: &mut Catalog, base: &mut Base) {
        let Some(OpenWeu { unit, layout, .. }) = self.open.remove(&class) else { return };
        let (slot, buf) = (unit.slot(), unit.buf());
        let (header, header_bytes) = unit.into_header(base.session.number());
        let keys = header.entries.iter().map(|entry| (entry.key, entry.offset_bytes)).collect();
        if class == ClassId::DEFAULT || class == ClassId::KEPT {
            catalog.slots_mut().set_owner(slot, header.entries.iter().map(|entry| entry.key));
        }
        catalog.table_mut().begin_writing(slot, header_bytes);
        let (fill_bytes, padding_bytes) = (layout.fill_bytes(), layout.padding_bytes());
        let weu_bytes = base.cfg().geometry.weu_bytes;
        let written = fill_bytes.next_multiple_of(zc_core::limits::BLOCK_BYTES) + header_bytes;
        base.stats.weu_writes += 1;
        base.stats.weu_bytes_written += u64::from(written.min(weu_bytes));
        let used_bytes = fill_bytes - padding_bytes + header_bytes;
        base.stats.weu_bytes_unused += u64::from(weu_bytes.saturating_sub(used_bytes));
        base.stats.weu_bytes_padding += u64::from(padding_bytes);
        self.writing.insert(slot, WritingWeu { buf, keys });
        let op = base.port.op(Op::Write(slot));
        let data_bytes = fill_bytes;
        base.port.emit(Action::WriteWeu { op, slot, weu: buf, start_bytes: 0, data_bytes, header });
        catalog.slots_mut().settle(slot, base);
    }

    /// Returns `true` if a unit write is in flight.
    pub(crate) fn has_units_in_flight(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Drops the units that are being filled, because the device failed.
    pub(crate) fn drop_open_units(&mut self, base: &mut Base) {
        for open in core::mem::take(&mut self.open).into_values() {
            base.port.release(open.unit.buf());
        }
    }

    /// Seals WEUs that have exceeded the maximum open time.
    pub(crate) fn age_open_weus(&mut self, catalog: &mut Catalog, base: &mut Base) {
        let (age, now_ms) = (base.cfg().weu_max_age_ms, base.now_ms());
        let is_old = |open: &OpenWeu| !open.unit.is_empty() && now_ms.saturating_sub(open.opened_ms) >= age;
        while let Some(class) = self.open.iter().find(|(_, open)| is_old(open)).map(|(class, _)| *class) {
            self.seal(class, catalog, base);
        }
    }
}

impl CleanUnits {
    /// Handles the completion of the write of a unit of clean extents.
    pub(crate) fn weu_written(
        &mut self,
        slot: WeuSlot,
        result: Result<(), ErrorKind>,
        catalog: &mut Catalog,
        base: &mut Base,
    ) {
        let weu = self.writing.remove(&slot).expect_held();
        base.port.release(weu.buf);
        match result {
            Ok(()) => {
                base.unit_write_worked();
                catalog.unit_written(slot, base);
            }
            Err(error) => {
                catalog.unit_not_written(slot, &weu.keys, base);
                base.unit_write_failed(error);
            }
        }
    }
}

/// Opens an empty unit for clean extents of a class or for dirty ones, if a slot can be reused. Otherwise speeds up
/// the sweep that frees slots.
pub(super) fn open_unit(class: ClassId, catalog: &mut Catalog, base: &mut Base) -> Option<Unit> {
    let weu_seq = base.session.next();
    let Some((slot, generation)) = catalog.table_mut().open(weu_seq) else {
        let is_any_free = catalog.table().free_len() > 0;
        catalog.slots_mut().want_sweep(is_any_free);
        return None;
    };
    base.session.take_next();
    let buf = base.port.alloc(base.cfg().geometry.weu_bytes);
    catalog.contents_mut().headers_mut().open(slot, generation);
    catalog.table_mut().count_opened();
    catalog.table_mut().note_use(slot);
    catalog.slots_mut().join(slot, class);
    Some(Unit::new(slot, generation, weu_seq, buf))
}
