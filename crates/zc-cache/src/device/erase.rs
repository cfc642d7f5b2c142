//! Erasure of removed volumes' data from the device.
//!
//! Reads the header of each unit once. A unit with an extent of such a volume is evicted, and its slot is erased, so
//! that the device returns zeros for it. Free slots, which may contain older units, are erased as well.
//!
//! Invariants: an erasure removes only cached content of volumes that are served or kept, whatever their reserve. A
//! unit that stays in use for [`WAIT_MS`], or that holds pinned extents of another volume, is skipped and counted.
//!
//! Out of scope: the unused end of a slot with another volume's unit; metadata, which contains fingerprints and no
//! content; resumption after a restart.

use std::collections::{BTreeMap, BTreeSet};

use zc_core::{ErrorKind, VolumeId, WeuSeq, WeuSlot};
use zc_format::WeuHeader;

use crate::base::Base;
use crate::device::catalog::Catalog;
use crate::device::catalog::evict::LEAVING_MAX;
use crate::device::contents::header_reads::HeaderWaiter;
use crate::device::slots::table::{SlotState, SlotTable};
use crate::device::units::Units;
use crate::ops::unit::Op;
use crate::seam::{Action, Erased};

/// Maximum header reads and slot erasures in flight.
const UNDER_WAY_MAX: usize = 4;
/// Milliseconds without progress after which units in use are skipped.
const WAIT_MS: u64 = 20_000;

/// Erasure in progress, and the result of the last one.
#[derive(Debug, Default)]
pub(crate) struct Erasure {
    pass: Option<Pass>,
    last: Option<Erased>,
}

#[derive(Debug, Default)]
struct Pass {
    /// Volumes whose content is preserved.
    keep: BTreeSet<VolumeId>,
    /// Next slot to check.
    next: u32,
    /// Slots that were being written when they were checked; checked again later.
    later: BTreeSet<WeuSlot>,
    condemned: BTreeMap<WeuSlot, WeuSeq>,
    /// Slots with a header read or an erasure in flight.
    under_way: BTreeSet<WeuSlot>,
    /// Free slots still to be erased; `None` while units are checked.
    free_left: Option<usize>,
    progress_ms: u64,
    erased: Erased,
}

/// Result of the check of a slot.
enum Visit {
    Done,
    NotNow,
    /// Too many header reads are in flight.
    Busy,
}

impl Erasure {
    pub(crate) const fn is_active(&self) -> bool {
        self.pass.is_some()
    }

    /// Result of the last erasure, if any.
    pub(crate) const fn last(&self) -> Option<Erased> {
        self.last
    }

    /// Returns `true` if the slot's unit is evicted in order to erase the slot.
    pub(crate) fn takes(&self, slot: WeuSlot) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.under_way.contains(&slot))
    }

    /// Completes the erasure of a slot.
    pub(crate) fn ended(&mut self, slot: WeuSlot, result: Result<(), ErrorKind>, now_ms: u64) {
        let Some(pass) = &mut self.pass else { return };
        if !pass.under_way.remove(&slot) {
            return;
        }
        pass.progress_ms = now_ms;
        if result.is_ok() {
            pass.erased.slots += 1;
        } else {
            pass.erased.left += 1;
        }
    }

    fn end(&mut self, is_complete: bool) {
        if let Some(pass) = self.pass.take() {
            self.last = Some(Erased { is_complete, ..pass.erased });
        }
    }
}

impl Erasure {
    /// Begins an erasure of all content except that of these volumes and of those that the manager serves. An erasure
    /// in progress restarts.
    pub(crate) fn begin(&mut self, keep: &[VolumeId], base: &Base) {
        let under_way = self.pass.take().map(|pass| pass.under_way).unwrap_or_default();
        self.pass = Some(Pass {
            keep: keep.iter().copied().collect(),
            under_way,
            progress_ms: base.now_ms(),
            ..Pass::default()
        });
    }

    /// Continues an erasure as far as possible now.
    pub(crate) fn pump(&mut self, catalog: &mut Catalog, units: &mut Units, base: &mut Base) {
        if !self.is_active() {
            return;
        }
        if !base.is_good() || base.is_stopping() {
            self.end(false);
            return;
        }
        if !base.is_loaded() {
            return;
        }
        self.evict_condemned(catalog, base);
        self.visit_units(catalog, units, base);
        self.erase_free_slots(catalog.table_mut(), base);
        self.end_pass(catalog.table().len(), base);
    }

    fn end_pass(&mut self, count: u32, base: &Base) {
        let Some(pass) = &mut self.pass else { return };
        if !pass.under_way.is_empty() || pass.next < count {
            return;
        }
        if pass.later.is_empty() && pass.condemned.is_empty() {
            if pass.free_left == Some(0) {
                self.end(true);
            }
        } else if base.now_ms().saturating_sub(pass.progress_ms) >= WAIT_MS {
            pass.erased.left += u64::try_from(pass.later.len() + pass.condemned.len()).unwrap_or(u64::MAX);
            pass.later.clear();
            pass.condemned.clear();
        }
    }

    fn evict_condemned(&mut self, catalog: &mut Catalog, base: &mut Base) {
        let Some(pass) = &self.pass else { return };
        for (slot, weu_seq) in pass.condemned.clone() {
            if catalog.table().leaving() >= LEAVING_MAX || catalog.meta().is_pressed() {
                return;
            }
            let entry = catalog.table().get(slot);
            let is_there = entry.state() == SlotState::Sealed && entry.weu_seq() == weu_seq;
            let is_kept = entry.kept() > 0;
            let may_go = entry.class().is_some() && !catalog.table().is_pinned(slot);
            if is_there && !is_kept && !may_go {
                continue;
            }
            if is_there && !is_kept && !catalog.table_mut().may_reuse(slot) {
                catalog.slots_mut().want_sweep(true);
                continue;
            }
            let Some(pass) = &mut self.pass else { return };
            pass.condemned.remove(&slot);
            pass.progress_ms = base.now_ms();
            if is_there && is_kept {
                pass.erased.left += 1;
            } else if is_there {
                pass.under_way.insert(slot);
                base.stats.evictions_for_erasure += 1;
                catalog.evict(slot, false, base);
            }
        }
    }

    fn visit_units(&mut self, catalog: &mut Catalog, units: &mut Units, base: &mut Base) {
        let Some(pass) = &self.pass else { return };
        for slot in pass.later.clone() {
            if matches!(self.visit_unit(slot, catalog, units, base), Visit::Done)
                && let Some(pass) = &mut self.pass
            {
                pass.later.remove(&slot);
                pass.progress_ms = base.now_ms();
            }
        }
        let count = catalog.table().len();
        while let Some(pass) = &self.pass
            && pass.next < count
        {
            let slot = WeuSlot(pass.next);
            let visit = self.visit_unit(slot, catalog, units, base);
            let Some(pass) = &mut self.pass else { return };
            match visit {
                Visit::Busy => return,
                Visit::NotNow => drop(pass.later.insert(slot)),
                Visit::Done => {}
            }
            pass.next += 1;
            pass.progress_ms = base.now_ms();
        }
    }

    /// Checks the header of a unit.
    fn visit_unit(
        &mut self,
        slot: WeuSlot,
        catalog: &mut Catalog,
        units: &mut Units,
        base: &mut Base,
    ) -> Visit {
        match catalog.table().get(slot).state() {
            // Free slots are erased after all units.
            SlotState::Free | SlotState::Leaving => Visit::Done,
            SlotState::Unread { .. } | SlotState::Writing => Visit::NotNow,
            SlotState::Open => self.visit_open_unit(slot, catalog, units, base),
            SlotState::Sealed => {
                let is_full = self.pass.as_ref().is_none_or(|pass| pass.is_full());
                if is_full || !catalog.wait_for_any_header(HeaderWaiter::Erasure(slot), slot, base) {
                    return Visit::Busy;
                }
                if let Some(pass) = &mut self.pass {
                    pass.under_way.insert(slot);
                }
                Visit::Done
            }
        }
    }

    /// Seals a unit that is being filled, if it must be evicted.
    fn visit_open_unit(
        &self,
        slot: WeuSlot,
        catalog: &mut Catalog,
        units: &mut Units,
        base: &mut Base,
    ) -> Visit {
        let Some(pass) = &self.pass else { return Visit::Done };
        let is_gone = |volume: VolumeId| pass.is_gone(volume, base);
        if let Some((class, has_theirs)) = units.clean().find_open(slot, is_gone) {
            if !has_theirs {
                return Visit::Done;
            }
            units.clean_mut().seal(class, catalog, base);
        } else if units.dirty().has_open_extent_of(slot, is_gone) {
            units.dirty_mut().seal(catalog, base);
        } else {
            return Visit::Done;
        }
        Visit::NotNow
    }

    /// Handles the completion of a unit's header read; the contents are unknown if it failed.
    pub(crate) fn header_read(
        &mut self,
        slot: WeuSlot,
        result: &Result<Option<Box<WeuHeader>>, ErrorKind>,
        table: &SlotTable,
        base: &Base,
    ) {
        let entry = table.get(slot);
        let (generation, weu_seq) = (entry.generation(), entry.weu_seq());
        let Some(pass) = &mut self.pass else { return };
        pass.under_way.remove(&slot);
        pass.progress_ms = base.now_ms();
        let has_theirs = match result {
            Ok(Some(header)) if (header.generation, header.weu_seq) == (generation, weu_seq) => {
                header.entries.iter().any(|entry| pass.is_gone(entry.key.volume, base))
            }
            _ => true,
        };
        if has_theirs {
            pass.condemned.insert(slot, weu_seq);
        }
    }

    /// Erases free slots, each once, when all units have been checked.
    fn erase_free_slots(&mut self, table: &mut SlotTable, base: &mut Base) {
        let (count, free) = (table.len(), table.free_len());
        let Some(pass) = &mut self.pass else { return };
        let are_units_done = pass.next == count && pass.later.is_empty() && pass.condemned.is_empty();
        if pass.free_left.is_none() && are_units_done && pass.under_way.is_empty() {
            pass.free_left = Some(free);
        }
        while let Some(pass) = &mut self.pass
            && !pass.is_full()
            && let Some(left) = pass.free_left.as_mut().filter(|left| **left > 0)
        {
            *left -= 1;
            let Some(slot) = table.take_free() else { continue };
            pass.under_way.insert(slot);
            let op = base.port.op(Op::Erase(slot));
            base.port.emit(Action::DiscardSlot { op, slot, erase: true });
        }
    }

    /// Completes the erasure of a free slot.
    pub(crate) fn free_slot_erased(
        &mut self,
        slot: WeuSlot,
        result: Result<(), ErrorKind>,
        table: &mut SlotTable,
        base: &Base,
    ) {
        table.give_back_free(slot);
        self.ended(slot, result, base.now_ms());
    }
}

impl Pass {
    /// Returns `true` if the content of a volume must be erased.
    fn is_gone(&self, volume: VolumeId, base: &Base) -> bool {
        !self.keep.contains(&volume) && !base.has_volume(volume)
    }

    fn is_full(&self) -> bool {
        self.under_way.len() >= UNDER_WAY_MAX
    }
}
