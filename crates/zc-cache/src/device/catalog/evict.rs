//! Eviction of WEUs, in the order class, victim, header, both indexes, discard; and the index sweep.
//!
//! A slot is reused as a whole (Nitro 3.2). Its header lists the base entries and fingerprints to drop. Duplicate
//! entries remain and are detected as stale by their generation, until a sweep of the index removes them. The sweep
//! advances when WEUs open and completes a pass at least every quarter of the slots; a slot that is reused faster
//! waits for it (see `slots`).

use zc_core::{ErrorKind, WeuSlot};
use zc_format::{Record, WeuHeader};

use crate::base::Base;
use crate::device::catalog::Catalog;
use crate::device::slots::class_id::ClassId;
use crate::index::file_index::{Keep, Mapping};
use crate::ops::unit::Op;
use crate::seam::Action;

/// Slots kept free, so that a new WEU does not wait for an eviction.
const FREE_SLOTS: usize = 2;
/// Maximum slots being freed at a time for quotas or an erasure.
pub(crate) const LEAVING_MAX: usize = 8;
/// Index buckets swept per event while a slot waits for the sweep.
const URGENT_BUCKETS: usize = 4096;

/// Reason that an extent cannot be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// No slot is available now; a retry may succeed.
    Slot,
    /// Its class is at its quota, and none of its units can be evicted now.
    Quota,
}

impl Catalog {
    /// Number of slots to keep free, which applies only once the cache has filled up.
    fn spare_slots(&self) -> usize {
        if self.table().len() > 8 { FREE_SLOTS } else { 1 }
    }

    /// Drops the entries of the header from both indexes, and erases the slot if `erase` is set.
    pub(crate) fn evict_with_header(
        &mut self,
        slot: WeuSlot,
        result: Result<Option<Box<WeuHeader>>, ErrorKind>,
        erase: bool,
        base: &mut Base,
    ) {
        match result {
            Ok(Some(header))
                if header.generation == self.table().get(slot).generation()
                    && header.weu_seq == self.table().get(slot).weu_seq() =>
            {
                let short = self.table().short(header.generation);
                for entry in &header.entries {
                    let offset = entry.offset_bytes / zc_core::limits::PLACE_ALIGN_BYTES;
                    self.files.remove_if(entry.key, |mapping| {
                        matches!(mapping, Mapping::Base(place)
                            if place.slot == slot && place.generation == short && u32::from(place.offset_units) == offset)
                    });
                    self.contents.drop_entry(entry, slot);
                }
            }
            _ => base.stats.evictions_headerless += 1,
        }
        self.contents.headers_mut().remove(slot);
        if (base.cfg().discard || erase) && base.is_good() {
            let op = base.port.op(Op::Discard(slot));
            base.port.emit(Action::DiscardSlot { op, slot, erase });
        } else {
            self.table_mut().release(slot);
        }
    }

    /// Sweeps the share of the index that is due when a WEU opens.
    pub(crate) fn sweep_share(&mut self, base: &mut Base) {
        let slots = usize::try_from(self.table().len() / 4).unwrap_or(1).max(1);
        self.sweep_buckets(self.files.buckets().div_ceil(slots), base);
        self.contents.sweep_share(slots, self.slots.table(), base);
    }

    /// Continues a sweep that a slot waits for.
    pub(crate) fn pump_sweep(&mut self, base: &mut Base) {
        if self.slots.is_sweep_urgent() && self.sweep_buckets(URGENT_BUCKETS, base) {
            self.slots.sweep_is_over();
        }
    }

    fn sweep_buckets(&mut self, buckets: usize, base: &mut Base) -> bool {
        if base.is_reading_image() {
            // A pass over the temporary index would not cover the index itself.
            return false;
        }
        let Self { files, slots, sweep, .. } = self;
        let table = slots.table();
        let mut swept = 0;
        let wrapped = files.sweep(sweep, buckets, |_, mapping| match mapping {
            Mapping::Base(place) | Mapping::Duplicate(place) if !table.is_live(&place) => {
                swept += 1;
                Keep::No
            }
            _ => Keep::Yes,
        });
        base.stats.swept_entries += swept;
        if wrapped {
            base.stats.sweep_passes += 1;
            self.table_mut().sweep_ended();
        }
        wrapped
    }
}

/// Current demand for slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotNeed {
    /// Clean extents wait for placement.
    pub(crate) is_for_clean: bool,
    /// Dirty extents wait for placement.
    pub(crate) is_for_dirty: bool,
    /// Stored extents are being read.
    pub(crate) are_hits: bool,
}

impl SlotNeed {
    const fn is_now(self) -> bool {
        self.is_for_clean || self.is_for_dirty
    }
}

impl Catalog {
    /// Evicts units until enough slots are free. Returns `false` if a slot is needed and no unit can be evicted:
    /// holders of optional pins should then release them.
    pub(crate) fn keep_free_slots(&mut self, need: SlotNeed, base: &mut Base) -> bool {
        if !base.is_loaded() && !need.is_now() {
            return true;
        }
        let wanted = if need.is_now() { FREE_SLOTS } else { FREE_SLOTS.min(self.spare_slots()) };
        // Dirty extents must be placed, regardless of the evictions in progress.
        while base.is_good()
            && (!base.is_stopping() || need.is_for_dirty)
            && self.table().free_len() + self.table().leaving() < wanted
            && (!self.meta.is_pressed() || need.is_for_dirty)
        {
            if self.slots.is_without_victim(base.now_ms()) {
                return true;
            }
            if !self.evict_one(need, base) {
                // A search scans the whole list, so it is repeated only after a change.
                self.slots.has_no_victim(base.now_ms());
                self.slots.want_sweep(need.is_now());
                return !need.is_now();
            }
        }
        true
    }

    /// Evicts a unit of the first class, in the order of loss, that has an evictable one.
    fn evict_one(&mut self, need: SlotNeed, base: &mut Base) -> bool {
        if let Some(slot) = self.slots.dead_unit() {
            self.evict(slot, need.are_hits, base);
            return true;
        }
        if !self.slots.classes().are_divided() {
            return self.evict_from(ClassId::DEFAULT, need.are_hits, base);
        }
        let losers = self.slots.losers(need.is_for_clean, need.is_for_dirty, base.now_ms());
        losers.into_iter().any(|class| {
            let is_within = self.slots.classes().is_within_reserve(class);
            let evicted = self.evict_from(class, need.are_hits, base);
            base.stats.evictions_within_reserve += u64::from(evicted && is_within);
            evicted
        })
    }

    /// Ensures that the class may use one more unit; a class at its quota evicts first. Returns `false` if that fails.
    /// `anew`: for relocated kept extents.
    pub(crate) fn make_room_in_class(&mut self, class: ClassId, anew: bool, base: &mut Base) -> bool {
        if class == ClassId::KEPT {
            return self.make_room_to_keep(anew, base);
        }
        if !self.slots.classes().is_at_quota(class) {
            return true;
        }
        if !base.is_good()
            || base.is_stopping()
            || self.meta.is_pressed()
            || self.slots.classes().is_without_victim(class, base.now_ms())
        {
            return false;
        }
        let evicted = self.evict_from(class, false, base);
        base.stats.evictions_for_quota += u64::from(evicted);
        evicted && !self.slots.classes().is_at_quota(class)
    }

    fn make_room_to_keep(&mut self, anew: bool, base: &mut Base) -> bool {
        if !self.slots.has_room_to_keep(anew)
            && base.is_good()
            && !base.is_stopping()
            && !self.meta.is_pressed()
            && let Some(slot) = self.slots.dead_unit()
        {
            self.evict(slot, false, base);
        }
        self.slots.has_room_to_keep(anew)
    }

    /// Evicts a few units of classes above their quota, after a change of settings or the end of dirty data.
    pub(crate) fn keep_quotas(&mut self, need: SlotNeed, base: &mut Base) {
        if !self.slots.classes().are_divided() || !base.is_loaded() {
            return;
        }
        while base.is_good()
            && !base.is_stopping()
            && !self.meta.is_pressed()
            && self.table().leaving() < LEAVING_MAX
            && let Some(class) = self.slots.classes().over_quota(base.now_ms())
        {
            let evicted = self.evict_from(class, need.are_hits, base);
            base.stats.evictions_for_quota += u64::from(evicted);
        }
    }

    /// Evicts a unit of the class. Returns `false` if none can be evicted.
    fn evict_from(&mut self, class: ClassId, are_hits: bool, base: &mut Base) -> bool {
        let Some((slot, pinned)) = self.slots.victim(class, are_hits, base) else { return false };
        self.evict(slot, pinned, base);
        true
    }

    /// Evicts a unit; `while_reading`: stored extents are being read.
    pub(crate) fn evict(&mut self, slot: WeuSlot, while_reading: bool, base: &mut Base) {
        let entry = self.table().get(slot);
        assert!(
            entry.kept() == 0 || entry.class() != Some(ClassId::KEPT),
            "{slot:?} leaves with what is kept"
        );
        self.slots.kept_may_be_gone(slot);
        base.stats.evictions += 1;
        base.stats.evictions_while_reading += u64::from(while_reading);
        self.slots.leave(slot);
        self.table_mut().begin_leaving(slot);
        // From here on entries of the slot are dropped without individual records.
        let generation = self.table().get(slot).generation();
        self.record(Record::SlotRetired { slot, generation }, base);
        let hint_bytes = self.table().get(slot).header_bytes();
        let op = base.port.op(Op::HeaderEvict(slot));
        base.port.emit(Action::ReadHeader { op, slot, hint_bytes });
    }
}
