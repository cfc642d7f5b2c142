//! The unit that dirty extents are placed in, and its writes.
//!
//! A unit is written in pieces, one for each commit; a page that was written is never written again, so that what a
//! flush covered cannot be torn. When it is full the rest goes out with a header, as for any WEU. A failed write is
//! tried again: dirty data is not given up while the device works.
//!
//! Invariant: a unit is read from memory until all its writes have ended. A slot is pinned once for each dirty body.

use zc_core::{BufId, BufSlice, Codec, ErrorKind, Fingerprint, Generation, WeuSeq, WeuSlot};
use zc_format::{ExtentHeader, GrowingUnit, Record, WeuEntry, WeuHeader};

use crate::base::Base;
use crate::device::units::contents::stored_of;
use crate::device::units::slots::SlotState;
use crate::device::units::{SealedUnit, WritingWeu, in_share, placed_bytes};
use crate::device::{Core, Device, units};
use crate::dirty::versions::Body;
use crate::dirty::{DirtyLayer, Op};
use crate::expect_held::ExpectHeld;
use crate::ops::dirty::Part;
use crate::seam::{Action, Purpose, Source};

/// Times a failed write of a dirty unit is tried again.
const PART_TRIES: u32 = 4;
/// The unit that dirty extents are placed in.
#[derive(Debug)]
pub(crate) struct DirtyUnit {
    pub(crate) slot: WeuSlot,
    pub(crate) buf: BufId,
    generation: Generation,
    weu_seq: WeuSeq,
    fill_bytes: u32,
    written_bytes: u32,
    entries: Vec<WeuEntry>,
    parts: u32,
}

impl DirtyUnit {
    /// Whether it holds what is not written.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.fill_bytes > self.written_bytes
    }

    pub(crate) fn fill_bytes(&self) -> u32 {
        self.fill_bytes
    }

    pub(crate) fn entry_count(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// What a journal block says of it.
    pub(crate) fn growing(&self) -> GrowingUnit {
        let page = self.written_bytes / zc_core::limits::BLOCK_BYTES;
        GrowingUnit { slot: self.slot, generation: self.generation, page }
    }
}

impl Device {
    fn issue_sealed(&mut self, slot: WeuSlot, base: &mut Base) {
        let weu = self.units.writing.get(&slot).expect_held();
        let sealed = weu.dirty.as_ref().expect_held();
        let (buf, start_bytes, data_bytes) = (weu.buf, sealed.start_bytes, sealed.data_bytes);
        let header = sealed.header.clone();
        let header_bytes = self.units.slots.get(slot).header_bytes;
        let page = zc_core::limits::BLOCK_BYTES;
        let written = data_bytes.next_multiple_of(page) - start_bytes + header_bytes;
        base.stats.weu_bytes_written += u64::from(written);
        let op = base.port.op(units::Op::Write(slot));
        base.port.emit(Action::WriteWeu { op, slot, weu: buf, start_bytes, data_bytes, header });
    }

    /// From here on the unit is read from the device, when nothing of it is in flight any more.
    fn settle_dirty_unit(&mut self, slot: WeuSlot, base: &mut Base) {
        let done = self
            .units
            .writing
            .get(&slot)
            .and_then(|weu| weu.dirty.as_ref())
            .is_some_and(|sealed| sealed.ended && sealed.parts == 0);
        if !done {
            return;
        }
        let weu = self.units.writing.remove(&slot).expect_held();
        base.port.release(weu.buf);
        let entry = self.units.slots.get_mut(slot);
        entry.state = SlotState::Sealed;
        entry.filling = false;
        let (generation, weu_seq, header_bytes) = (entry.generation, entry.weu_seq, entry.header_bytes);
        self.units.headers.settle(slot);
        self.record(Record::SlotSealed { slot, generation, weu_seq, header_bytes }, base);
    }
}

impl DirtyLayer {
    pub(crate) fn store_dirty(
        &mut self,
        id: u64,
        codec: Codec,
        payload: BufSlice,
        core: &mut Core,
    ) -> Option<Body> {
        if !self.ensure_dirty_room(payload.len_bytes, core) {
            return None;
        }
        let job = self.jobs.get(&id).expect_held();
        let (key, span, raw_bytes) = (job.key, job.span, job.src.len_bytes);
        let fingerprint = job.print.unwrap_or(Fingerprint([0; 32]));
        let indexed = job.print.filter(|_| job.whole);
        let unit = self.unit.as_mut().expect_held();
        let offset_bytes = unit.fill_bytes;
        let header = ExtentHeader {
            slot: unit.slot,
            generation: unit.generation,
            weu_seq: unit.weu_seq,
            stored_bytes: payload.len_bytes,
            raw_bytes,
            first_sector: span.first(),
            key,
            codec,
            fingerprint,
        };
        unit.entries.push(WeuEntry {
            key,
            offset_bytes,
            stored_bytes: payload.len_bytes,
            codec,
            fingerprint,
            dirty: Some(span),
        });
        unit.fill_bytes += placed_bytes(payload.len_bytes);
        let (slot, generation, buf) = (unit.slot, unit.generation, unit.buf);
        let stored = stored_of(offset_bytes, payload.len_bytes);
        core.base.port.emit(Action::Place { weu: buf, offset_bytes, header, payload });
        core.base.stats.dirty_stored += 1;
        core.base.stats.stored_raw_bytes += u64::from(raw_bytes);
        core.base.stats.stored_bytes += u64::from(payload.len_bytes);
        let volume = core.base.volume(key.volume).map(|v| (v.cfg().dedup, v.cfg().index_share_percent));
        if let (Some(print), Some((true, share))) = (indexed, volume)
            && in_share(&print, share)
        {
            core.device.units.headers.add(slot, print, stored);
            core.device.index.prints.insert(&print, slot);
        }
        core.device.owe(slot, true);
        Some(Body::Stored { place: core.device.place(slot, generation, stored), own: true })
    }

    /// Makes sure the dirty unit has room for one more piece.
    fn ensure_dirty_room(&mut self, stored_bytes: u32, core: &mut Core) -> bool {
        if let Some(unit) = &self.unit {
            let entries = u32::try_from(unit.entries.len()).unwrap_or(u32::MAX).saturating_add(1);
            let need = unit.fill_bytes + placed_bytes(stored_bytes) + WeuHeader::encoded_bytes(entries);
            if need <= core.base.cfg().geometry.weu_bytes {
                return true;
            }
            self.seal_dirty_unit(core);
        }
        let weu_seq = core.base.session.next();
        let Some((slot, generation)) = core.device.units.slots.open(weu_seq) else {
            core.device.units.sweeps.urgent |= core.device.units.slots.free_len() > 0;
            return false;
        };
        core.base.session.take_next();
        core.device.units.slots.get_mut(slot).filling = true;
        let buf = core.base.port.alloc(core.base.cfg().geometry.weu_bytes);
        core.device.units.headers.open(slot, generation);
        core.device.units.policy.inserted(slot);
        core.device.record(Record::SlotDirty { slot, generation, weu_seq }, &mut core.base);
        core.device.units.filling = Some((slot, buf));
        self.unit = Some(DirtyUnit {
            slot,
            buf,
            generation,
            weu_seq,
            fill_bytes: 0,
            written_bytes: 0,
            entries: Vec::new(),
            parts: 0,
        });
        core.device.sweep_share(&mut core.base);
        true
    }

    /// Writes the pages of the unit that hold something and are not written yet. What comes next begins on a new page.
    /// `durable`: their end means that they are, else a flush is to follow.
    pub(crate) fn write_unit_part(&mut self, durable: bool, core: &mut Core) {
        let Some(unit) = self.unit.as_ref().filter(|unit| unit.has_unwritten()) else { return };
        let end = unit.fill_bytes.next_multiple_of(zc_core::limits::BLOCK_BYTES);
        self.zero_unit_until(end, core);
        self.write_piece(end, durable, core);
    }

    /// What a buffer held before does not go to the device.
    pub(crate) fn zero_unit_until(&mut self, end: u32, core: &mut Core) {
        let unit = self.unit.as_ref().expect_held();
        let gap = BufSlice { buf: unit.buf, start_bytes: unit.fill_bytes, len_bytes: end - unit.fill_bytes };
        if gap.len_bytes > 0 {
            core.base.port.emit(Action::Zero { dest: gap });
        }
    }

    /// Writes the unit from where it was written to `end`, a page's; returns the number of the write.
    pub(crate) fn write_piece(&mut self, end: u32, durable: bool, core: &mut Core) -> u64 {
        let unit = self.unit.as_mut().expect_held();
        let (slot, start_bytes) = (unit.slot, unit.written_bytes);
        unit.fill_bytes = end;
        unit.written_bytes = end;
        unit.parts += 1;
        let number = self.next_part;
        self.next_part += 1;
        self.parts.insert(number);
        if !durable {
            self.unflushed.insert(number);
        }
        self.issue_part(
            Part { slot, number, start_bytes, len_bytes: end - start_bytes, durable, tries: 0 },
            core,
        );
        number
    }

    fn issue_part(&mut self, part: Part, core: &mut Core) {
        let Part { slot, start_bytes, len_bytes, durable, .. } = part;
        core.base.stats.weu_bytes_written += u64::from(len_bytes);
        let weu = match (&self.unit, core.device.units.writing.get(&slot)) {
            (Some(unit), _) if unit.slot == slot => unit.buf,
            (_, writing) => writing.expect_held().buf,
        };
        let op = core.base.port.op(Op::Part(part));
        core.base.port.hold_source(op, Source::Memory(weu));
        core.base.port.emit(Action::WritePart { op, slot, weu, start_bytes, len_bytes, durable });
    }

    pub(crate) fn part_written(&mut self, part: Part, result: Result<(), ErrorKind>, core: &mut Core) {
        if let Err(error) = result {
            core.base.stats.device_write_errors += 1;
            // What failed may have been the flush within a durable write: the next one would not say what is lost.
            if core.base.is_good() && part.tries < PART_TRIES && !part.durable {
                self.issue_part(Part { tries: part.tries + 1, ..part }, core);
                return;
            }
            core.base.fail_device(Purpose::WeuWrite, error);
        }
        self.parts.remove(&part.number);
        if let Some(unit) = self.unit.as_mut().filter(|unit| unit.slot == part.slot) {
            unit.parts -= 1;
        } else if let Some(sealed) =
            core.device.units.writing.get_mut(&part.slot).and_then(|weu| weu.dirty.as_mut())
        {
            sealed.parts -= 1;
            core.device.settle_dirty_unit(part.slot, &mut core.base);
        }
        if result.is_ok() {
            self.summary_written(part.number, core);
        }
    }

    /// Writes what is left of the unit, with its header.
    pub(crate) fn seal_dirty_unit(&mut self, core: &mut Core) {
        let Some(unit) = self.unit.take() else { return };
        core.device.units.filling = None;
        let DirtyUnit { slot, buf, generation, weu_seq, fill_bytes, written_bytes, entries, parts } = unit;
        let header_bytes = WeuHeader::encoded_bytes(u32::try_from(entries.len()).unwrap_or(u32::MAX));
        let entry = core.device.units.slots.get_mut(slot);
        entry.state = SlotState::Writing;
        entry.header_bytes = header_bytes;
        core.base.stats.weu_writes += 1;
        let number = self.next_part;
        self.next_part += 1;
        self.parts.insert(number);
        self.unflushed.insert(number);
        let header =
            Box::new(WeuHeader { slot, generation, weu_seq, session: core.base.session.number(), entries });
        let sealed = SealedUnit {
            header,
            start_bytes: written_bytes,
            data_bytes: fill_bytes.max(written_bytes),
            number,
            tries: 0,
            parts,
            ended: false,
        };
        core.device.units.writing.insert(slot, WritingWeu { buf, keys: Vec::new(), dirty: Some(sealed) });
        core.device.issue_sealed(slot, &mut core.base);
    }

    /// The last write of a dirty unit ended. It is never given up while the device works.
    pub(crate) fn dirty_unit_written(
        &mut self,
        slot: WeuSlot,
        result: Result<(), ErrorKind>,
        core: &mut Core,
    ) {
        let sealed =
            core.device.units.writing.get_mut(&slot).and_then(|weu| weu.dirty.as_mut()).expect_held();
        if let Err(error) = result {
            core.base.stats.device_write_errors += 1;
            if core.base.is_good() && sealed.tries < PART_TRIES {
                sealed.tries += 1;
                core.device.issue_sealed(slot, &mut core.base);
                return;
            }
            core.base.fail_device(Purpose::WeuWrite, error);
        }
        let sealed =
            core.device.units.writing.get_mut(&slot).and_then(|weu| weu.dirty.as_mut()).expect_held();
        sealed.ended = true;
        let number = sealed.number;
        self.parts.remove(&number);
        core.device.settle_dirty_unit(slot, &mut core.base);
    }
}

impl Device {
    /// Whether dirty data may point at a slot: it is on the device, or in the unit that the next commit writes; and
    /// not more than so many slots are kept for that alone.
    pub(crate) fn may_owe(&self, slot: WeuSlot, lent_max: u64) -> bool {
        let is_filling = self.units.filling.is_some_and(|(filling, _)| filling == slot);
        let has_room = self.units.owed.contains(slot) || self.units.owed.lent() < lent_max;
        (is_filling || self.units.slots.is_on_device(slot)) && has_room
    }

    /// A body of dirty data is in the slot; `own`: it was stored there as such.
    pub(crate) fn owe(&mut self, slot: WeuSlot, own: bool) {
        self.units.slots.pin(slot);
        self.units.owed.add(slot, own);
    }

    /// Bodies that are not needed any more.
    pub(crate) fn let_go(&mut self, bodies: &[Body]) {
        for body in bodies {
            let Body::Stored { place, own } = *body else { continue };
            self.units.slots.unpin(place.slot);
            self.units.owed.remove(place.slot, own);
        }
    }
}
