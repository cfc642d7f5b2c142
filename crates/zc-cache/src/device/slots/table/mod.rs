//! Table of WEU slots: states, generations, pins, and invalid base entries.
//!
//! Invariants: a slot's generation only increases; a location is live only while its slot has that generation and is
//! readable; a pinned slot is not reused. Out of scope: choosing victims (see `policy`), and I/O.

mod replay;

use std::collections::VecDeque;

use zc_core::{Generation, VolumeId, WeuSeq, WeuSlot, usize_from_u32};

use crate::device::slots::class_id::ClassId;
use crate::index::file_index::Place;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// The header has not been read since the start. Slots named by checkpoint or journal are `known`, so that
    /// duplicates in them can be served already.
    Unread {
        /// Generation, sequence and header size come from checkpoint or journal.
        known: bool,
    },
    /// No readable contents.
    Free,
    /// The open WEU, readable from memory.
    Open,
    /// Its write has not completed; readable from memory.
    Writing,
    Sealed,
    /// Being evicted: its header is being read, or the slot is being discarded. Not readable.
    Leaving,
}

#[derive(Debug, Clone)]
pub(crate) struct Slot {
    state: SlotState,
    generation: Generation,
    /// The generation is invalid on media too: only a later one may be trusted.
    retired: bool,
    /// Free, with a generation and sequence that no WEU has: no header read from it is trusted.
    tombstone: bool,
    /// A dirty unit whose header may never have been written.
    filling: bool,
    weu_seq: WeuSeq,
    header_bytes: u32,
    pins: u32,
    /// Offsets (64-byte units) of base entries in the header whose mapping is invalid.
    void_bases: Vec<u16>,
    /// Offsets (64-byte units) of extents that failed verification; duplicates must not refer to them.
    damaged: Vec<u16>,
    /// Mappings to its current unit.
    live: u32,
    /// Mappings of kept extents among those (see `kept`).
    kept: u32,
    /// Volume of most extents of its unit, once it is determined.
    owner: Option<VolumeId>,
    /// Class of its unit; `None` if the slot is not in the replacement policy.
    class: Option<ClassId>,
    /// Count of opened units at the last use of its content.
    used: u32,
    reuses_now: u32,
    reuses_before: u32,
    reuse_pass: u64,
}

impl Slot {
    pub(crate) const fn state(&self) -> SlotState {
        self.state
    }

    /// Generation of the current or last contents.
    pub(crate) const fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns `true` if the generation is invalid on media too: only a later one may be trusted.
    pub(crate) const fn is_retired(&self) -> bool {
        self.retired
    }

    /// Returns `true` if no header read from it is trusted.
    pub(crate) const fn is_tombstone(&self) -> bool {
        self.tombstone
    }

    /// Returns `true` for a dirty unit whose header may never have been written.
    pub(crate) const fn is_filling(&self) -> bool {
        self.filling
    }

    pub(crate) const fn weu_seq(&self) -> WeuSeq {
        self.weu_seq
    }

    pub(crate) const fn header_bytes(&self) -> u32 {
        self.header_bytes
    }

    /// Offsets (64-byte units) of base entries in the header whose mapping is invalid.
    pub(crate) fn void_bases(&self) -> &[u16] {
        &self.void_bases
    }

    pub(crate) const fn owner(&self) -> Option<VolumeId> {
        self.owner
    }

    pub(crate) const fn class(&self) -> Option<ClassId> {
        self.class
    }

    pub(crate) const fn kept(&self) -> u32 {
        self.kept
    }

    pub(crate) const fn used(&self) -> u32 {
        self.used
    }
}

#[derive(Debug)]
pub(crate) struct SlotTable {
    slots: Vec<Slot>,
    free: VecDeque<WeuSlot>,
    leaving: usize,
    /// Mappings to all current units.
    live_total: u64,
    generation_mask: u32,
    /// Completed passes of the index sweep.
    pass: u64,
    /// Count of opened units, the clock of uses.
    opened: u32,
}

impl SlotTable {
    /// Creates a table of `count` slots that have not been read yet.
    pub(crate) fn new(count: u32, generation_bits: u8) -> Self {
        let slot = Slot {
            state: SlotState::Unread { known: false },
            generation: Generation(0),
            retired: false,
            tombstone: false,
            filling: false,
            weu_seq: WeuSeq(0),
            header_bytes: 0,
            pins: 0,
            void_bases: Vec::new(),
            damaged: Vec::new(),
            live: 0,
            kept: 0,
            owner: None,
            class: None,
            used: 0,
            reuses_now: 0,
            reuses_before: 0,
            reuse_pass: 0,
        };
        Self {
            slots: vec![slot; usize_from_u32(count)],
            free: VecDeque::new(),
            leaving: 0,
            live_total: 0,
            generation_mask: (1 << generation_bits) - 1,
            pass: 0,
            opened: 0,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, slot: WeuSlot) -> &Slot {
        &self.slots[usize_from_u32(slot.0)]
    }

    fn get_mut(&mut self, slot: WeuSlot) -> &mut Slot {
        &mut self.slots[usize_from_u32(slot.0)]
    }

    pub(crate) fn contains(&self, slot: WeuSlot) -> bool {
        usize_from_u32(slot.0) < self.slots.len()
    }

    /// Part of a generation that locations contain.
    pub(crate) fn short(&self, generation: Generation) -> Generation {
        Generation(generation.0 & self.generation_mask)
    }

    /// Returns `true` if a location can be read now.
    pub(crate) fn is_live(&self, place: &Place) -> bool {
        let slot = self.get(place.slot);
        self.short(slot.generation) == place.generation && is_readable(slot)
    }

    /// Returns `true` if new entries may refer to a location.
    pub(crate) fn may_share(&self, place: &Place) -> bool {
        self.is_live(place) && !self.get(place.slot).damaged.contains(&place.offset_units)
    }

    pub(crate) fn pin(&mut self, slot: WeuSlot) {
        self.get_mut(slot).pins += 1;
    }

    pub(crate) fn unpin(&mut self, slot: WeuSlot) {
        let entry = self.get_mut(slot);
        assert!(entry.pins > 0, "{slot:?} unpinned without a pin");
        entry.pins -= 1;
    }

    pub(crate) fn is_pinned(&self, slot: WeuSlot) -> bool {
        self.get(slot).pins > 0
    }

    /// Begins to fill the open unit with dirty extents: its header may never be written.
    pub(crate) fn begin_filling(&mut self, slot: WeuSlot) {
        self.get_mut(slot).filling = true;
    }

    /// Begins the last write of its unit, with a header of this length.
    pub(crate) fn begin_writing(&mut self, slot: WeuSlot, header_bytes: u32) {
        let entry = self.get_mut(slot);
        entry.state = SlotState::Writing;
        entry.header_bytes = header_bytes;
    }

    pub(crate) fn written(&mut self, slot: WeuSlot) {
        let entry = self.get_mut(slot);
        entry.state = SlotState::Sealed;
        entry.filling = false;
    }

    /// Counts a new mapping to the place.
    pub(crate) fn mapped(&mut self, place: &Place) {
        self.get_mut(place.slot).live += 1;
        self.live_total += 1;
    }

    /// Counts the end of a mapping to the place.
    pub(crate) fn unmapped(&mut self, place: &Place) {
        if self.is_live(place) {
            let entry = self.get_mut(place.slot);
            assert!(entry.live > 0, "{place:?} was never counted");
            entry.live -= 1;
            self.live_total -= 1;
        }
    }

    /// Counts a mapping of a kept extent to the slot's current unit.
    pub(crate) fn keep(&mut self, slot: WeuSlot) {
        self.get_mut(slot).kept += 1;
    }

    /// Decrements the slot's count of kept extents; returns the remaining count.
    pub(crate) fn let_go(&mut self, slot: WeuSlot) -> u32 {
        let entry = self.get_mut(slot);
        assert!(entry.kept > 0, "nothing was kept in {slot:?}");
        entry.kept -= 1;
        entry.kept
    }

    pub(crate) const fn live_total(&self) -> u64 {
        self.live_total
    }

    pub(crate) fn live(&self, slot: WeuSlot) -> u32 {
        self.get(slot).live
    }

    /// Sets the volume of most extents of the slot's unit, if they belong to one.
    pub(crate) fn set_owner(&mut self, slot: WeuSlot, owner: Option<VolumeId>) {
        self.get_mut(slot).owner = owner;
    }

    pub(crate) fn set_class(&mut self, slot: WeuSlot, class: Option<ClassId>) {
        self.get_mut(slot).class = class;
    }

    pub(crate) fn note_use(&mut self, slot: WeuSlot) -> &Slot {
        let opened = self.opened;
        let entry = self.get_mut(slot);
        entry.used = opened;
        entry
    }

    /// Counts an opened unit.
    pub(crate) const fn count_opened(&mut self) {
        self.opened = self.opened.saturating_add(1);
    }

    /// Records that the mapping of a base entry is invalid. Returns the slot's generation.
    pub(crate) fn void_base(&mut self, place: &Place) -> Generation {
        let entry = self.get_mut(place.slot);
        entry.void_bases.push(place.offset_units);
        entry.generation
    }

    /// Records a failed verification at the place, to which duplicates must not refer.
    pub(crate) fn damage(&mut self, place: &Place) {
        if self.may_share(place) {
            self.get_mut(place.slot).damaged.push(place.offset_units);
        }
    }

    pub(crate) fn release(&mut self, slot: WeuSlot) {
        let entry = self.get_mut(slot);
        assert!(entry.state != SlotState::Free, "{slot:?} freed twice");
        let left = usize::from(entry.state == SlotState::Leaving);
        entry.state = SlotState::Free;
        entry.retired = true;
        entry.filling = false;
        entry.void_bases = Vec::new();
        entry.damaged = Vec::new();
        entry.kept = 0;
        let live = core::mem::take(&mut entry.live);
        self.live_total -= u64::from(live);
        self.leaving -= left;
        self.free.push_back(slot);
    }

    /// Marks the slot as being evicted.
    pub(crate) fn begin_leaving(&mut self, slot: WeuSlot) {
        let entry = self.get_mut(slot);
        assert!(entry.state == SlotState::Sealed && entry.pins == 0, "{slot:?} leaves while in use");
        entry.state = SlotState::Leaving;
        self.leaving += 1;
    }

    /// Number of slots being evicted.
    pub(crate) fn leaving(&self) -> usize {
        self.leaving
    }

    /// Returns `true` if the slot's WEU is on the device and readable there.
    pub(crate) fn is_on_device(&self, slot: WeuSlot) -> bool {
        self.get(slot).state == SlotState::Sealed
    }

    /// Returns `true` if fingerprints may refer to the slot.
    pub(crate) fn holds_content(&self, slot: WeuSlot) -> bool {
        !matches!(self.get(slot).state, SlotState::Free | SlotState::Leaving)
    }

    pub(crate) fn free_len(&self) -> usize {
        self.free.len()
    }

    /// Returns `true` if a slot can be reused without its short generation matching index entries of an earlier use:
    /// such entries may remain from the current and the previous sweep pass.
    pub(crate) fn may_reuse(&mut self, slot: WeuSlot) -> bool {
        let mask = self.generation_mask;
        let entry = self.normalised(slot);
        entry.reuses_now + entry.reuses_before < mask
    }

    /// Takes a free slot and assigns its next generation.
    pub(crate) fn open(&mut self, weu_seq: WeuSeq) -> Option<(WeuSlot, Generation)> {
        for _ in 0..self.free.len() {
            let slot = self.free.pop_front()?;
            if self.may_reuse(slot) && !self.is_pinned(slot) {
                let entry = self.normalised(slot);
                entry.reuses_now += 1;
                entry.state = SlotState::Open;
                entry.retired = false;
                entry.tombstone = false;
                entry.filling = false;
                entry.generation = Generation(entry.generation.0 + 1);
                entry.weu_seq = weu_seq;
                entry.header_bytes = 0;
                entry.owner = None;
                assert!(entry.void_bases.is_empty(), "{slot:?} opened with void entries");
                return Some((slot, entry.generation));
            }
            self.free.push_back(slot);
        }
        None
    }

    /// Takes the slot that has been free for longest out of use temporarily, without a change.
    pub(crate) fn take_free(&mut self) -> Option<WeuSlot> {
        let place = self.free.iter().position(|slot| !self.is_pinned(*slot))?;
        self.free.remove(place)
    }

    pub(crate) fn give_back_free(&mut self, slot: WeuSlot) {
        assert!(self.get(slot).state == SlotState::Free, "{slot:?} was used meanwhile");
        self.free.push_back(slot);
    }

    /// Completes a pass of the index sweep.
    pub(crate) fn sweep_ended(&mut self) {
        self.pass += 1;
    }

    fn normalised(&mut self, slot: WeuSlot) -> &mut Slot {
        let pass = self.pass;
        let entry = self.get_mut(slot);
        match pass - entry.reuse_pass {
            0 => {}
            1 => {
                entry.reuses_before = entry.reuses_now;
                entry.reuses_now = 0;
            }
            _ => {
                entry.reuses_before = 0;
                entry.reuses_now = 0;
            }
        }
        entry.reuse_pass = pass;
        entry
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        let voids: usize = self
            .slots
            .iter()
            .map(|slot| (slot.void_bases.capacity() + slot.damaged.capacity()) * size_of::<u16>())
            .sum();
        let fixed = self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<WeuSlot>();
        zc_core::u64_from_usize(voids + fixed)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WeuSlot, &Slot)> {
        (0_u32..).map(WeuSlot).zip(self.slots.iter())
    }
}

fn is_readable(slot: &Slot) -> bool {
    matches!(
        slot.state,
        SlotState::Open | SlotState::Writing | SlotState::Sealed | SlotState::Unread { known: true }
    ) && !slot.retired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_leaves_room_for_the_policy_in_what_max_ram_counts_for_it() {
        // `zc_config::manager` counts 128 bytes a slot; policies have up to 11 of them.
        assert!(size_of::<Slot>() <= 112, "{}", size_of::<Slot>());
    }

    #[test]
    fn a_slot_that_skipped_generations_waits_for_two_sweeps() {
        let mut slots = SlotTable::new(1, 2);
        let slot = WeuSlot(0);
        slots.skip_to(slot, Generation(9));
        slots.release(slot);
        for _ in 0..2 {
            assert_eq!(slots.open(WeuSeq(1)), None, "generations 9 and 13 look alike");
            slots.sweep_ended();
        }
        assert_eq!(slots.open(WeuSeq(1)), Some((slot, Generation(10))));
    }
}
