//! The way a WEU leaves: class, victim, header, both indexes, discard; and the index sweep.
//!
//! A slot is reused whole (Nitro 3.2). Its header tells which base entries and fingerprints to drop; duplicate
//! entries stay behind and are told stale by their generation, until a sweep of the index removes them. The sweep
//! runs in step with the opening of WEUs and ends a pass at least every quarter of the slots; where a slot is reused
//! faster, it waits (see `slots`).

use zc_core::{ErrorKind, WeuSlot};
use zc_format::{Record, WeuHeader};

use crate::base::Base;
use crate::device::units::Op;
use crate::device::units::classes::ClassId;
use crate::device::units::classes::choice::{Wanted, losers};
use crate::device::units::slots::SlotState;
use crate::device::{Device, Units};
use crate::index::file_index::{Keep, Mapping, SweepCursor};
use crate::seam::Action;

/// Slots kept free, so that a WEU that fills up does not wait for an eviction.
const FREE_SLOTS: usize = 2;
/// Slots on their way to being free at once for the sake of quotas, or of an erasure.
pub(super) const LEAVING_MAX: usize = 8;
/// Index buckets swept per event while a slot waits for the sweep.
const URGENT_BUCKETS: usize = 4096;

/// Where the sweeps of the indexes are, and what waits for them.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    files: SweepCursor,
    prints: SweepCursor,
    /// A slot can be reused only after the sweep.
    pub(in crate::device) urgent: bool,
    /// When no slot could be evicted.
    pub(in crate::device) no_victim_ms: Option<u64>,
}

impl Sweeps {
    /// The file index is another one.
    pub(in crate::device) fn restart_files(&mut self) {
        self.files = SweepCursor::default();
    }
}

impl Device {
    /// Free slots are kept ahead of need only once the cache has filled up.
    fn spare_slots(&self) -> usize {
        if self.units.slots.len() > 8 { FREE_SLOTS } else { 1 }
    }

    /// Drops what the header names from both indexes.
    pub(crate) fn evict_with_header(
        &mut self,
        slot: WeuSlot,
        result: Result<Option<Box<WeuHeader>>, ErrorKind>,
        base: &mut Base,
    ) {
        match result {
            Ok(Some(header))
                if header.generation == self.units.slots.get(slot).generation()
                    && header.weu_seq == self.units.slots.get(slot).weu_seq() =>
            {
                let short = self.units.slots.short(header.generation);
                for entry in &header.entries {
                    let offset = entry.offset_bytes / zc_core::limits::PLACE_ALIGN_BYTES;
                    self.index.files.remove_if(entry.key, |mapping| {
                        matches!(mapping, Mapping::Base(place)
                            if place.slot == slot && place.generation == short && u32::from(place.offset_units) == offset)
                    });
                    self.index.prints.remove(&entry.fingerprint, slot);
                }
            }
            _ => base.stats.evictions_headerless += 1,
        }
        self.units.headers.remove(slot);
        let erase = self.units.erasure.takes(slot);
        if (base.cfg().discard || erase) && base.is_good() {
            let op = base.port.op(Op::Discard(slot));
            base.port.emit(Action::DiscardSlot { op, slot, erase });
        } else {
            self.units.slots.release(slot);
        }
    }

    /// The slot may be reused, whether the device took the discard or not.
    pub(crate) fn discarded(&mut self, slot: WeuSlot, result: Result<(), ErrorKind>, base: &Base) {
        self.units.slots.release(slot);
        self.units.erasure.ended(slot, result, base.now_ms());
    }

    /// The share of the index that is swept when a WEU opens.
    pub(crate) fn sweep_share(&mut self, base: &mut Base) {
        let slots = usize::try_from(self.units.slots.len() / 4).unwrap_or(1).max(1);
        self.sweep_buckets(self.index.files.buckets().div_ceil(slots), base);
        let slots_all = &self.units.slots;
        let mut swept = 0;
        let buckets = self.index.prints.buckets().div_ceil(slots);
        self.index.prints.sweep(&mut self.units.sweeps.prints, buckets, |slot| {
            let live = slots_all.contains(slot) && slots_all.holds_content(slot);
            swept += u64::from(!live);
            if live { Keep::Yes } else { Keep::No }
        });
        base.stats.swept_entries += swept;
    }

    /// Goes on with a sweep that a unit waits for.
    pub(crate) fn pump_sweep(&mut self, base: &mut Base) {
        if self.units.sweeps.urgent && self.sweep_buckets(URGENT_BUCKETS, base) {
            self.units.sweeps.urgent = false;
        }
    }

    fn sweep_buckets(&mut self, buckets: usize, base: &mut Base) -> bool {
        if self.is_reading_image() {
            // A pass over what stands in for the index would say nothing of it.
            return false;
        }
        let slots = &self.units.slots;
        let mut swept = 0;
        let wrapped =
            self.index.files.sweep(&mut self.units.sweeps.files, buckets, |_, mapping| match mapping {
                Mapping::Base(place) | Mapping::Duplicate(place) if !slots.is_live(&place) => {
                    swept += 1;
                    Keep::No
                }
                _ => Keep::Yes,
            });
        base.stats.swept_entries += swept;
        if wrapped {
            base.stats.sweep_passes += 1;
            self.units.slots.sweep_ended();
        }
        wrapped
    }
}

/// What slots are needed for now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotNeed {
    /// Clean extents wait to be placed.
    pub(crate) is_for_clean: bool,
    /// Dirty extents do.
    pub(crate) is_for_dirty: bool,
    /// Stored extents are being read.
    pub(crate) are_hits: bool,
}

impl SlotNeed {
    const fn is_now(self) -> bool {
        self.is_for_clean || self.is_for_dirty
    }
}

impl Device {
    /// Evicts units until enough slots are free. False if a slot is needed and no unit can be evicted: what pins slots
    /// for later should let go of them.
    pub(crate) fn keep_free_slots(&mut self, need: SlotNeed, base: &mut Base) -> bool {
        if self.recovery.load.is_some() && !need.is_now() {
            return true;
        }
        let wanted = if need.is_now() { FREE_SLOTS } else { FREE_SLOTS.min(self.spare_slots()) };
        // Dirty extents have to be placed, whatever else goes on.
        while base.is_good()
            && (!base.is_stopping() || need.is_for_dirty)
            && self.units.slots.free_len() + self.units.slots.leaving() < wanted
            && (!self.journal_is_pressed() || need.is_for_dirty)
        {
            if self.units.sweeps.no_victim_ms == Some(base.now_ms()) {
                return true;
            }
            if !self.evict_one(need, base) {
                // A search walks the whole list: not again before something can have changed.
                self.units.sweeps.no_victim_ms = Some(base.now_ms());
                self.units.sweeps.urgent |= need.is_now();
                return !need.is_now();
            }
        }
        true
    }

    /// Evicts a unit of the class that loses one first, of those that have any that may go.
    fn evict_one(&mut self, need: SlotNeed, base: &mut Base) -> bool {
        if let Some(slot) = self.dead_unit() {
            self.evict(slot, need.are_hits, base);
            return true;
        }
        if !self.units.classes.are_divided() {
            return self.evict_from(ClassId::DEFAULT, need.are_hits, base);
        }
        let wanted = Wanted {
            class: self.units.classes.wanting().filter(|_| need.is_for_clean),
            is_for_dirty: need.is_for_dirty,
        };
        let Units { policy, slots, classes, .. } = &self.units;
        let last_used = |class| policy.oldest(class).map_or(0, |slot| slots.get(slot).used());
        let losers = losers(classes.standings(base.now_ms(), last_used), wanted);
        losers.into_iter().any(|class| {
            let is_within = self.units.classes.is_within_reserve(class);
            let evicted = self.evict_from(class, need.are_hits, base);
            base.stats.evictions_within_reserve += u64::from(evicted && is_within);
            evicted
        })
    }

    /// Makes sure that the class may have one unit more: one at its quota evicts first. False if it cannot. `anew`: for
    /// kept extents that are placed anew.
    pub(super) fn make_room_in_class(&mut self, class: ClassId, anew: bool, base: &mut Base) -> bool {
        if class == ClassId::KEPT {
            return self.make_room_to_keep(anew, base);
        }
        if !self.units.classes.is_at_quota(class) {
            return true;
        }
        if !base.is_good()
            || base.is_stopping()
            || self.journal_is_pressed()
            || self.units.classes.is_without_victim(class, base.now_ms())
        {
            return false;
        }
        let evicted = self.evict_from(class, false, base);
        base.stats.evictions_for_quota += u64::from(evicted);
        evicted && !self.units.classes.is_at_quota(class)
    }

    fn make_room_to_keep(&mut self, anew: bool, base: &mut Base) -> bool {
        if !self.has_room_to_keep(anew)
            && base.is_good()
            && !base.is_stopping()
            && !self.journal_is_pressed()
            && let Some(slot) = self.dead_unit()
        {
            self.evict(slot, false, base);
        }
        self.has_room_to_keep(anew)
    }

    /// Evicts units of classes above their quota, as settings or the end of dirty data left them, a few at once.
    pub(crate) fn keep_quotas(&mut self, need: SlotNeed, base: &mut Base) {
        if !self.units.classes.are_divided() || self.recovery.load.is_some() {
            return;
        }
        while base.is_good()
            && !base.is_stopping()
            && !self.journal_is_pressed()
            && self.units.slots.leaving() < LEAVING_MAX
            && let Some(class) = self.units.classes.over_quota(base.now_ms())
        {
            let evicted = self.evict_from(class, need.are_hits, base);
            base.stats.evictions_for_quota += u64::from(evicted);
        }
    }

    /// Evicts a unit of the class. False if none may go.
    fn evict_from(&mut self, class: ClassId, are_hits: bool, base: &mut Base) -> bool {
        let slots = &mut self.units.slots;
        let mut pinned = are_hits;
        let victim = self.units.policy.emptiest(class, &mut |slot| {
            let busy = slots.is_pinned(slot);
            pinned |= busy;
            let may_go = !busy && slots.get(slot).state() == SlotState::Sealed && slots.may_reuse(slot);
            may_go.then(|| slots.live(slot))
        });
        base.stats.evictions_spared = self.units.policy.spared();
        let Some(slot) = victim else {
            self.units.classes.has_no_victim(class, base.now_ms());
            return false;
        };
        self.evict(slot, pinned, base);
        true
    }

    /// Evicts a unit; `while_reading`: stored extents are being read.
    pub(super) fn evict(&mut self, slot: WeuSlot, while_reading: bool, base: &mut Base) {
        let entry = self.units.slots.get(slot);
        assert!(
            entry.kept() == 0 || entry.class() != Some(ClassId::KEPT),
            "{slot:?} leaves with what is kept"
        );
        self.kept_may_be_gone(slot);
        base.stats.evictions += 1;
        base.stats.evictions_while_reading += u64::from(while_reading);
        self.units.leave(slot);
        self.units.slots.begin_leaving(slot);
        // From here on entries of the slot are dropped without a record each.
        let generation = self.units.slots.get(slot).generation();
        self.record(Record::SlotRetired { slot, generation }, base);
        let hint_bytes = self.units.slots.get(slot).header_bytes();
        let op = base.port.op(Op::HeaderEvict(slot));
        base.port.emit(Action::ReadHeader { op, slot, hint_bytes });
    }
}
