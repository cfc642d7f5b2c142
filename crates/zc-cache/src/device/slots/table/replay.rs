//! Slots at a restart: the states that checkpoint, journal and headers leave them in.
//!
//! Invariant: a slot moves to a later generation only, and records of an earlier one are skipped.

use zc_core::{Generation, VolumeId, WeuSeq, WeuSlot};

use crate::device::slots::mapping_counts::MappingCounts;
use crate::device::slots::table::{SlotState, SlotTable};

impl SlotTable {
    /// Moves a slot to the generation a record speaks of. Returns `false` if the record is of an older one (or of no
    /// slot).
    pub(crate) fn adopt_generation(&mut self, slot: WeuSlot, generation: Generation) -> bool {
        if !self.contains(slot) {
            return false;
        }
        let entry = self.get_mut(slot);
        if generation > entry.generation {
            entry.generation = generation;
            entry.retired = false;
            entry.state = SlotState::Unread { known: false };
            entry.filling = false;
            entry.void_bases = Vec::new();
        }
        generation == entry.generation
    }

    /// Applies a record of the unit in the slot and the length of its header; none if it may have no header yet.
    pub(crate) fn adopt_unit(&mut self, slot: WeuSlot, weu_seq: WeuSeq, header_bytes: Option<u32>) {
        let entry = self.get_mut(slot);
        if !entry.retired {
            entry.state = SlotState::Unread { known: true };
            entry.weu_seq = weu_seq;
            entry.header_bytes = header_bytes.unwrap_or(0);
            entry.filling = header_bytes.is_none();
        }
    }

    /// Applies a record that the slot's generation is invalid.
    pub(crate) fn adopt_retirement(&mut self, slot: WeuSlot) {
        let entry = self.get_mut(slot);
        entry.retired = true;
        entry.filling = false;
        entry.state = SlotState::Unread { known: false };
        entry.void_bases = Vec::new();
    }

    /// Applies a record that the mapping of a base entry is invalid.
    pub(crate) fn adopt_void_base(&mut self, slot: WeuSlot, offset_units: u16) {
        let entry = self.get_mut(slot);
        if !entry.retired && !entry.void_bases.contains(&offset_units) {
            entry.void_bases.push(offset_units);
        }
    }

    /// Adopts a unit in the slot without a readable header.
    pub(crate) fn adopt_headerless(&mut self, slot: WeuSlot) {
        let entry = self.get_mut(slot);
        entry.state = SlotState::Sealed;
        entry.retired = false;
        entry.filling = true;
    }

    /// Adopts the trusted header of the slot's unit. Returns `true` if a record had named that unit.
    pub(crate) fn adopt_header(
        &mut self,
        slot: WeuSlot,
        generation: Generation,
        weu_seq: WeuSeq,
        header_bytes: u32,
    ) -> bool {
        let entry = self.get_mut(slot);
        let is_known = entry.state == SlotState::Unread { known: true };
        if generation > entry.generation {
            entry.void_bases = Vec::new();
        }
        entry.state = SlotState::Sealed;
        entry.retired = false;
        entry.generation = generation;
        entry.weu_seq = weu_seq;
        entry.header_bytes = header_bytes;
        is_known
    }

    /// Adopts the recorded unit in the slot, with these mappings to it beside those that are counted.
    pub(crate) fn adopt_known(&mut self, slot: WeuSlot, owner: Option<VolumeId>, mappings: &MappingCounts) {
        let entry = self.get_mut(slot);
        assert!(entry.state == SlotState::Unread { known: true } && !entry.retired, "{slot:?} is not known");
        entry.state = SlotState::Sealed;
        entry.owner = owner;
        entry.live += mappings.live();
        entry.kept += mappings.kept();
        self.live_total += u64::from(mappings.live());
    }

    /// Keeps a tombstone: no header found in the slot is trusted, as before.
    pub(crate) fn stay_tombstone(&mut self, slot: WeuSlot) {
        self.get_mut(slot).tombstone = true;
    }

    /// Makes a tombstone: no header of an earlier generation than this one found in the slot is trusted.
    pub(crate) fn make_tombstone(&mut self, slot: WeuSlot, generation: Generation, weu_seq: WeuSeq) {
        let entry = self.get_mut(slot);
        entry.weu_seq = weu_seq;
        entry.tombstone = true;
        // As the record has it: a checkpoint repeats that.
        entry.header_bytes = 0;
        if matches!(entry.state, SlotState::Unread { known: true }) {
            // Mappings of the recorded contents have been installed.
            self.skip_to(slot, generation);
        } else {
            entry.generation = generation;
        }
    }

    /// Gives a slot that is not in use a generation further on. Its short form may be that of an entry from before, so
    /// the slot is not used until the index was swept, twice.
    pub(super) fn skip_to(&mut self, slot: WeuSlot, generation: Generation) {
        let mask = self.generation_mask;
        let entry = self.normalised(slot);
        entry.generation = generation;
        entry.reuses_now = mask;
    }
}
