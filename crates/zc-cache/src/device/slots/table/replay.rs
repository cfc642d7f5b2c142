//! Slots at a restart: states derived from checkpoint, journal and headers.
//!
//! Invariant: a slot only moves to a later generation, and records of earlier ones are skipped.

use zc_core::{Generation, VolumeId, WeuSeq, WeuSlot};

use crate::device::slots::mapping_counts::MappingCounts;
use crate::device::slots::table::{SlotState, SlotTable};

impl SlotTable {
    /// Moves a slot to the generation of a record. Returns `false` if the record is older (or names no slot).
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

    /// Applies a record of the unit in the slot and its header length; `None`: it may have no header yet.
    pub(crate) fn adopt_unit(&mut self, slot: WeuSlot, weu_seq: WeuSeq, header_bytes: Option<u32>) {
        let entry = self.get_mut(slot);
        if !entry.retired {
            entry.state = SlotState::Unread { known: true };
            entry.weu_seq = weu_seq;
            entry.header_bytes = header_bytes.unwrap_or(0);
            entry.filling = header_bytes.is_none();
        }
    }

    /// Applies a record of an invalid generation.
    pub(crate) fn adopt_retirement(&mut self, slot: WeuSlot) {
        let entry = self.get_mut(slot);
        entry.retired = true;
        entry.filling = false;
        entry.state = SlotState::Unread { known: false };
        entry.void_bases = Vec::new();
    }

    /// Applies a record of a base entry with an invalid mapping.
    pub(crate) fn adopt_void_base(&mut self, slot: WeuSlot, offset_units: u16) {
        let entry = self.get_mut(slot);
        if !entry.retired && !entry.void_bases.contains(&offset_units) {
            entry.void_bases.push(offset_units);
        }
    }

    /// Adopts a unit without a readable header.
    pub(crate) fn adopt_headerless(&mut self, slot: WeuSlot) {
        let entry = self.get_mut(slot);
        entry.state = SlotState::Sealed;
        entry.retired = false;
        entry.filling = true;
    }

    /// Adopts the trusted header of the slot's unit. Returns `true` if a record named that unit.
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

    /// Adopts the recorded unit in the slot, with these mappings in addition to those already counted.
    pub(crate) fn adopt_known(&mut self, slot: WeuSlot, owner: Option<VolumeId>, mappings: &MappingCounts) {
        let entry = self.get_mut(slot);
        assert!(entry.state == SlotState::Unread { known: true } && !entry.retired, "{slot:?} is not known");
        entry.state = SlotState::Sealed;
        entry.owner = owner;
        entry.live += mappings.live();
        entry.kept += mappings.kept();
        self.live_total += u64::from(mappings.live());
    }

    /// Preserves a tombstone: no header read from the slot is trusted.
    pub(crate) fn stay_tombstone(&mut self, slot: WeuSlot) {
        self.get_mut(slot).tombstone = true;
    }

    /// Makes a tombstone: no header of an earlier generation read from the slot is trusted.
    pub(crate) fn make_tombstone(&mut self, slot: WeuSlot, generation: Generation, weu_seq: WeuSeq) {
        let entry = self.get_mut(slot);
        entry.weu_seq = weu_seq;
        entry.tombstone = true;
        // Same values as in the record, which a checkpoint repeats.
        entry.header_bytes = 0;
        if matches!(entry.state, SlotState::Unread { known: true }) {
            // Mappings of the recorded contents have been installed.
            self.skip_to(slot, generation);
        } else {
            entry.generation = generation;
        }
    }

    /// Advances the generation of an unused slot. The new short form may match stale index entries, so the slot is not
    /// used until two sweeps of the index have completed.
    pub(super) fn skip_to(&mut self, slot: WeuSlot, generation: Generation) {
        let mask = self.generation_mask;
        let entry = self.normalised(slot);
        entry.generation = generation;
        entry.reuses_now = mask;
    }
}
