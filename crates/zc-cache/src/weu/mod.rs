//! The open WEU: placement of finished runs, and the writes of full WEUs. Where extents go is `packer`'s
//! matter; the entries of a header are by offset whatever the order of placement was.

pub(crate) mod evict;
pub(crate) mod header_reads;
pub(crate) mod headers;
mod op;
pub(crate) mod owed;
pub(crate) mod packer;
pub(crate) mod policy;
pub(crate) mod slots;

pub(crate) use op::Op;

use zc_core::{BufId, BufSlice, ErrorKind, ExtentKey, Generation, WeuSeq, WeuSlot};
use zc_format::{EXTENT_HEADER_BYTES, ExtentHeader, Record, WeuEntry, WeuHeader};

use crate::base::Base;
use crate::clean::Clean;
use crate::device::Core;
use crate::device::Device;
use crate::expect_held::ExpectHeld;
use crate::health::Health;
use crate::index::file_index::Mapping;
use crate::insert::{Outcome, stored_of};
use crate::seam::{Action, Note, Purpose};
use crate::weu::packer::{Layout, Spot};
use crate::weu::slots::SlotState;
use crate::write_back::WriteBack;
use crate::write_back::dirty_unit::SealedUnit;

/// WEUs that may be on their way to the device at once.
const WRITING_MAX: usize = 4;

/// The WEU being filled.
#[derive(Debug)]
pub(crate) struct OpenWeu {
    pub(crate) slot: WeuSlot,
    pub(crate) buf: BufId,
    generation: Generation,
    weu_seq: WeuSeq,
    layout: Layout,
    entries: Vec<WeuEntry>,
    opened_ms: u64,
}

/// A WEU whose write has not ended.
#[derive(Debug)]
pub(crate) struct WritingWeu {
    pub(crate) buf: BufId,
    pub(crate) keys: Vec<(ExtentKey, u32)>,
    /// For a unit of dirty extents.
    pub(crate) dirty: Option<SealedUnit>,
}

/// Whether a job was placed.
#[derive(Debug, PartialEq, Eq)]
enum Placed {
    Done,
    NeedsSlot,
}

impl Device {
    /// Finds a place for one more extent in the open WEU: seals a full one, opens the next.
    pub(crate) fn make_room(&mut self, stored_bytes: u32, together: bool, base: &mut Base) -> Option<u32> {
        if self.units.open.is_some() {
            let offset_bytes = self.place_in_open(stored_bytes, together, base);
            if offset_bytes.is_some() {
                return offset_bytes;
            }
            self.seal(base);
        }
        if self.open_next(base) { self.place_in_open(stored_bytes, together, base) } else { None }
    }

    pub(crate) fn place_in_open(
        &mut self,
        stored_bytes: u32,
        together: bool,
        base: &mut Base,
    ) -> Option<u32> {
        let open = self.units.open.as_mut().expect_held();
        let entries = u32::try_from(open.entries.len()).unwrap_or(u32::MAX).saturating_add(1);
        let limit_bytes = base.cfg.geometry.weu_bytes.saturating_sub(WeuHeader::encoded_bytes(entries));
        let bytes = placed_bytes(stored_bytes);
        let spot = if together {
            open.layout.append(bytes, limit_bytes)
        } else {
            open.layout.pack(bytes, limit_bytes)
        };
        let Spot { offset_bytes, skipped } = spot?;
        if !skipped.is_empty() {
            // What the buffer held before does not go to the device.
            let len_bytes = skipped.end - skipped.start;
            let dest = BufSlice { buf: open.buf, start_bytes: skipped.start, len_bytes };
            base.port.emit(Action::Zero { dest });
        }
        Some(offset_bytes)
    }

    /// Opens a WEU, if a slot is free and not too many are on their way to the device.
    pub(crate) fn open_next(&mut self, base: &mut Base) -> bool {
        if self.units.writing.values().filter(|weu| weu.dirty.is_none()).count() >= WRITING_MAX {
            return false;
        }
        let weu_seq = WeuSeq(base.session.weu_seq_next);
        let had_free = self.units.slots.free_len() > 0;
        let Some((slot, generation)) = self.units.slots.open(weu_seq) else {
            if had_free {
                base.stats.reuse_waits += 1;
                self.units.sweeps.urgent = true;
            }
            return false;
        };
        base.session.weu_seq_next += 1;
        let buf = base.port.alloc(base.cfg.geometry.weu_bytes);
        self.units.headers.open(slot, generation);
        self.units.policy.inserted(slot);
        self.units.open = Some(OpenWeu {
            slot,
            buf,
            generation,
            weu_seq,
            layout: Layout::new(base.cfg.packer),
            entries: Vec::new(),
            opened_ms: base.now_ms,
        });
        self.sweep_share(base);
        true
    }

    /// Writes the open WEU.
    pub(crate) fn seal(&mut self, base: &mut Base) {
        let Some(open) = self.units.open.take() else { return };
        let OpenWeu { slot, buf, generation, weu_seq, layout, mut entries, .. } = open;
        entries.sort_unstable_by_key(|entry| entry.offset_bytes);
        let (fill_bytes, padding_bytes) = (layout.fill_bytes(), layout.padding_bytes());
        let keys = entries.iter().map(|entry| (entry.key, entry.offset_bytes)).collect();
        let header_bytes = WeuHeader::encoded_bytes(u32::try_from(entries.len()).unwrap_or(u32::MAX));
        let entry = self.units.slots.get_mut(slot);
        entry.state = SlotState::Writing;
        entry.header_bytes = header_bytes;
        let written = fill_bytes.next_multiple_of(zc_core::limits::BLOCK_BYTES) + header_bytes;
        base.stats.weu_writes += 1;
        base.stats.weu_bytes_written += u64::from(written.min(base.cfg.geometry.weu_bytes));
        let used_bytes = fill_bytes - padding_bytes + header_bytes;
        base.stats.weu_bytes_unused += u64::from(base.cfg.geometry.weu_bytes.saturating_sub(used_bytes));
        base.stats.weu_bytes_padding += u64::from(padding_bytes);
        self.units.writing.insert(slot, WritingWeu { buf, keys, dirty: None });
        let header = Box::new(WeuHeader { slot, generation, weu_seq, session: base.session.number, entries });
        let op = base.port.op(Op::Write(slot));
        base.port.emit(Action::WriteWeu {
            op,
            slot,
            weu: buf,
            start_bytes: 0,
            data_bytes: fill_bytes,
            header,
        });
    }

    /// Seals the open WEU when it has been open for too long.
    pub(crate) fn age_open_weu(&mut self, base: &mut Base) {
        let age = base.cfg.weu_max_age_ms;
        let old = self.units.open.as_ref().is_some_and(|open| {
            !open.entries.is_empty() && base.now_ms.saturating_sub(open.opened_ms) >= age
        });
        if old {
            self.seal(base);
        }
    }

    /// Gives an extent a mapping and records what has to survive; the extent has none that can be served.
    pub(crate) fn map_extent(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) {
        debug_assert!(!self.is_mapped(key), "{key:?} has a mapping that was not made void");
        match mapping {
            Mapping::Base(_) => {}
            Mapping::Zero => self.record(Record::Zero { key }, base),
            Mapping::Duplicate(place) => {
                let generation = self.units.slots.get(place.slot).generation;
                self.record(
                    Record::Duplicate {
                        key,
                        slot: place.slot,
                        generation,
                        offset_units: place.offset_units,
                        pages: place.pages,
                    },
                    base,
                );
            }
        }
        if let Some((other, mapping)) = self.index.files.insert(key, mapping) {
            base.stats.file_index_evictions += 1;
            self.void(other, mapping, base);
        }
    }

    /// Takes an extent's mapping away, for good: also a restart must not find it. Returns it if it could be served.
    pub(crate) fn forget(&mut self, key: ExtentKey, base: &mut Base) -> Option<Mapping> {
        let mapping = self.index.files.remove(key)?;
        self.void(key, mapping, base).then_some(mapping)
    }

    /// Records that a mapping taken out of the index is void. Whether it was live.
    pub(crate) fn void(&mut self, key: ExtentKey, mapping: Mapping, base: &mut Base) -> bool {
        match mapping {
            Mapping::Zero => self.record(Record::Unmap { key }, base),
            Mapping::Base(place) | Mapping::Duplicate(place) if !self.units.slots.is_live(&place) => {
                return false;
            }
            Mapping::Duplicate(_) => self.record(Record::Unmap { key }, base),
            Mapping::Base(place) => {
                let slot = self.units.slots.get_mut(place.slot);
                slot.void_bases.push(place.offset_units);
                let generation = slot.generation;
                base.stats.bases_voided += 1;
                self.record(
                    Record::BaseInvalid {
                        key,
                        slot: place.slot,
                        generation,
                        offset_units: place.offset_units,
                    },
                    base,
                );
            }
        }
        true
    }
}

impl Clean {
    /// Places what is ready, in order, as far as there are slots.
    pub(crate) fn pump_placement(&mut self, core: &mut Core) {
        while let Some(jobs) = self.inserts.runs.take_first() {
            let together = jobs.len() > 1;
            let mut jobs = jobs.into_iter();
            while let Some(job) = jobs.next() {
                if self.place_job(job.1, together, core) == Placed::NeedsSlot {
                    self.inserts.runs.put_back(core::iter::once(job).chain(jobs).collect());
                    return;
                }
                self.end_job(job.1, core);
            }
            self.inserts.runs.first_placed();
        }
    }

    /// Places an extent; `together`: it came with others.
    fn place_job(&mut self, id: u64, together: bool, core: &mut Core) -> Placed {
        let job = self.inserts.job(id);
        let (guard, print, outcome) = (job.guard, job.print, job.outcome.expect_held());
        let key = guard.key;
        let holds = core.device.index.tracks.holds(&guard);
        #[cfg(zc_canary)]
        let holds = holds || core.base.canary == Some(crate::config::Canary::StaleFill);
        if core.base.health != Health::Good {
            core.base.stats.insert_dropped += 1;
        } else if !holds {
            core.base.stats.insert_stale += 1;
        } else if core.device.is_mapped(key) {
            core.base.stats.insert_present += 1;
        } else {
            match outcome {
                Outcome::Zero => {
                    core.base.stats.insert_zero += 1;
                    core.device.map_extent(key, Mapping::Zero, &mut core.base);
                }
                Outcome::Duplicate { slot, generation, stored } => {
                    let place = core.device.place(slot, generation, stored);
                    if core.device.units.slots.get(slot).generation == generation
                        && core.device.units.slots.may_share(&place)
                    {
                        self.share(key, print, slot, place, core);
                    } else {
                        core.base.stats.insert_dropped += 1;
                    }
                }
                Outcome::Store { .. } => return self.store(id, together, core),
                Outcome::OnceOnly => core.base.stats.insert_once_only += 1,
            }
        }
        Placed::Done
    }

    fn share(
        &mut self,
        key: ExtentKey,
        print: Option<zc_core::Fingerprint>,
        slot: WeuSlot,
        place: crate::index::file_index::Place,
        core: &mut Core,
    ) {
        core.base.stats.insert_duplicates += 1;
        if let Some(print) = print {
            core.device.index.prints.touch(&print, slot);
            self.learn(key, print, core);
        }
        core.device.units.policy.shared(slot);
        core.device.map_extent(key, Mapping::Duplicate(place), &mut core.base);
    }

    fn store(&mut self, id: u64, together: bool, core: &mut Core) -> Placed {
        let job = self.inserts.job(id);
        let (key, print) = (job.guard.key, job.print.expect_held());
        let Some(Outcome::Store { codec, payload }) = job.outcome else { return Placed::Done };
        let volume = core
            .base
            .volumes
            .get(&key.volume)
            .map(|volume| (volume.cfg.dedup, volume.cfg.index_share_percent));
        let (dedup, share) = volume.unwrap_or((false, 0));
        if dedup && let Some((slot, generation, stored)) = self.found_since(id, core) {
            let place = core.device.place(slot, generation, stored);
            self.share(key, Some(print), slot, place, core);
            return Placed::Done;
        }
        let Some(offset_bytes) = core.device.make_room(payload.len_bytes, together, &mut core.base) else {
            return Placed::NeedsSlot;
        };
        let open = core.device.units.open.as_mut().expect_held();
        let header = ExtentHeader {
            slot: open.slot,
            generation: open.generation,
            weu_seq: open.weu_seq,
            stored_bytes: payload.len_bytes,
            raw_bytes: core.base.extent_bytes,
            first_sector: 0,
            key,
            codec,
            fingerprint: print,
        };
        open.entries.push(WeuEntry {
            key,
            offset_bytes,
            stored_bytes: payload.len_bytes,
            codec,
            fingerprint: print,
            dirty: None,
        });
        let (slot, generation, buf) = (open.slot, open.generation, open.buf);
        let stored = stored_of(offset_bytes, payload.len_bytes);
        core.base.port.emit(Action::Place { weu: buf, offset_bytes, header, payload });
        core.base.stats.insert_stored += 1;
        core.base.stats.stored_raw_bytes += u64::from(core.base.extent_bytes);
        core.base.stats.stored_bytes += u64::from(payload.len_bytes);
        if dedup && in_share(&print, share) {
            core.device.units.headers.add(slot, print, stored);
            core.device.index.prints.insert(&print, slot);
        }
        let place = core.device.place(slot, generation, stored);
        self.learn(key, print, core);
        core.device.map_extent(key, Mapping::Base(place), &mut core.base);
        Placed::Done
    }
}

impl WriteBack {
    pub(crate) fn weu_written(&mut self, slot: WeuSlot, result: Result<(), ErrorKind>, core: &mut Core) {
        if core.device.units.writing.get(&slot).is_some_and(|weu| weu.dirty.is_some()) {
            self.dirty_unit_written(slot, result, core);
            return;
        }
        let weu = core.device.units.writing.remove(&slot).expect_held();
        core.base.port.release(weu.buf);
        let entry = core.device.units.slots.get_mut(slot);
        match result {
            Ok(()) => {
                entry.state = SlotState::Sealed;
                let (generation, weu_seq, header_bytes) =
                    (entry.generation, entry.weu_seq, entry.header_bytes);
                core.device.units.headers.settle(slot);
                core.base.errors.write_ended(false);
                core.device
                    .record(Record::SlotSealed { slot, generation, weu_seq, header_bytes }, &mut core.base);
            }
            Err(error) => {
                core.base.stats.device_write_errors += 1;
                let place =
                    |offset: u32| u16::try_from(offset / zc_core::limits::PLACE_ALIGN_BYTES).unwrap_or(0);
                for (key, offset) in weu.keys {
                    let ours = |m: &Mapping| matches!(m, Mapping::Base(p) if p.slot == slot && p.offset_units == place(offset));
                    core.device.index.files.remove_if(key, |mapping| ours(&mapping));
                }
                core.device.units.headers.remove(slot);
                core.device.units.policy.removed(slot);
                let generation = core.device.units.slots.get(slot).generation;
                core.device.record(Record::SlotRetired { slot, generation }, &mut core.base);
                core.device.units.slots.release(slot);
                core.base.port.emit(Action::Note(Note::SlotDropped { slot }));
                if core.base.errors.write_ended(true) {
                    core.base.fail_device(Purpose::WeuWrite, error);
                }
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
pub(crate) fn in_share(print: &zc_core::Fingerprint, percent: u8) -> bool {
    (print.prefix() >> 40) % 100 < u64::from(percent)
}
