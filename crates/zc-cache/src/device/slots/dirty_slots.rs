//! Slots that hold dirty bodies, and their bounds, at which writes wait.
//!
//! A slot is *filled* with dirty extents, or clean extents in it have the content of dirty ones (*lent*). In both
//! cases it is not evicted until its bodies are clean. The two have separate bounds: if many writes have content that
//! is cached already, each may lock another slot, and a few hundred of them would take all the capacity for content
//! that must be stored. The watermarks count filled slots; of the other slots three quarters may be lent, and beyond
//! that a copy is stored.
//!
//! After a restart the data that filled a slot is unknown: dirty data of earlier sessions counts as lent.
//!
//! Each volume is charged for every slot with a dirty body of it, regardless of other volumes' bodies in the slot,
//! because the slot is locked until the last one is clean. So the charges add up to more than the slots.

use zc_core::{Map, VolumeId, WeuSlot};

#[derive(Debug, Default)]
pub(crate) struct DirtySlots {
    slots: Map<WeuSlot, Bodies>,
    /// Slots with bodies of each volume, and the number in each.
    charged: Map<VolumeId, Map<WeuSlot, u32>>,
    /// Slots with bodies stored as dirty extents.
    filled: u64,
}

#[derive(Debug, Default)]
struct Bodies {
    own: u32,
    all: u32,
}

impl DirtySlots {
    pub(crate) fn contains(&self, slot: WeuSlot) -> bool {
        self.slots.contains_key(&slot)
    }

    pub(crate) fn len(&self) -> u64 {
        zc_core::u64_from_usize(self.slots.len())
    }

    /// Slots with bodies stored as dirty extents.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// Slots whose dirty bodies are all contents of clean extents.
    pub(crate) fn lent(&self) -> u64 {
        self.len() - self.filled
    }

    pub(crate) fn charge(&self, volume: VolumeId) -> u64 {
        self.charged.get(&volume).map_or(0, |slots| zc_core::u64_from_usize(slots.len()))
    }

    /// Adds a body of a volume; `own`: it was stored as a dirty extent.
    pub(crate) fn add(&mut self, volume: VolumeId, slot: WeuSlot, own: bool) {
        *self.charged.entry(volume).or_default().entry(slot).or_default() += 1;
        let bodies = self.slots.entry(slot).or_default();
        bodies.all += 1;
        self.filled += u64::from(own && bodies.own == 0);
        bodies.own += u32::from(own);
    }

    /// Removes a body of a volume.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn remove(&mut self, volume: VolumeId, slot: WeuSlot, own: bool) {
        self.discharge(volume, slot);
        let Some(bodies) = self.slots.get_mut(&slot) else { panic!("{slot:?} has no dirty data") };
        bodies.all -= 1;
        bodies.own -= u32::from(own);
        self.filled -= u64::from(own && bodies.own == 0);
        if bodies.all == 0 {
            self.slots.remove(&slot);
        }
    }

    fn discharge(&mut self, volume: VolumeId, slot: WeuSlot) {
        let charged = self.charged.get_mut(&volume);
        let Some((charged, count)) = charged.and_then(|slots| {
            let count = slots.get_mut(&slot)?;
            *count -= 1;
            let count = *count;
            Some((slots, count))
        }) else {
            panic!("{volume:?} has no dirty data in {slot:?}")
        };
        if count == 0 {
            charged.remove(&slot);
        }
        if charged.is_empty() {
            self.charged.remove(&volume);
        }
    }
}

/// Bounds on slots with dirty bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirtyBounds {
    /// Maximum filled slots (the high watermark).
    pub(crate) filled: u64,
    /// Maximum lent slots.
    pub(crate) lent: u64,
}

impl DirtyBounds {
    /// Bounds for `slots` slots, with a high watermark in per cent.
    pub(crate) fn new(slots: u32, high_percent: u8) -> Self {
        let slots = u64::from(slots);
        let filled = (slots * u64::from(high_percent) / 100).max(2);
        Self { filled, lent: slots.saturating_sub(filled) * 3 / 4 }
    }

    pub(crate) fn all(&self) -> u64 {
        self.filled + self.lent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_counts_as_filled_while_a_body_of_its_own_is_in_it_and_as_lent_after_that() {
        let (a, b, v) = (WeuSlot(3), WeuSlot(9), VolumeId(1));
        let mut dirty = DirtySlots::default();
        dirty.add(v, a, false);
        assert_eq!((dirty.filled(), dirty.lent()), (0, 1));
        dirty.add(v, a, true);
        dirty.add(v, a, true);
        dirty.add(v, b, true);
        assert_eq!((dirty.filled(), dirty.lent(), dirty.len()), (2, 0, 2));
        dirty.remove(v, a, true);
        dirty.remove(v, b, true);
        assert!(dirty.contains(a) && !dirty.contains(b));
        assert_eq!((dirty.filled(), dirty.lent()), (1, 0));
        dirty.remove(v, a, true);
        assert_eq!((dirty.filled(), dirty.lent()), (0, 1), "what is left is another extent's content");
        dirty.remove(v, a, false);
        assert_eq!((dirty.len(), dirty.contains(a)), (0, false));
    }

    #[test]
    fn each_volume_is_charged_for_a_slot_as_long_as_it_has_a_body_there() {
        let (a, b, v, w) = (WeuSlot(3), WeuSlot(9), VolumeId(1), VolumeId(2));
        let mut dirty = DirtySlots::default();
        for (volume, slot, own) in [(v, a, true), (v, a, false), (w, a, true), (w, b, true)] {
            dirty.add(volume, slot, own);
        }
        assert_eq!((dirty.charge(v), dirty.charge(w), dirty.len()), (1, 2, 2));
        dirty.remove(v, a, true);
        assert_eq!(dirty.charge(v), 1);
        dirty.remove(v, a, false);
        assert_eq!(
            (dirty.charge(v), dirty.charge(w), dirty.len()),
            (0, 2, 2),
            "the slot stays for the other one"
        );
        dirty.remove(w, a, true);
        assert_eq!((dirty.charge(w), dirty.len()), (1, 1));
    }

    #[test]
    fn some_slots_are_always_left() {
        for slots in 4..200 {
            for percent in 1..=90 {
                let bounds = DirtyBounds::new(slots, percent);
                assert!(bounds.all() < u64::from(slots), "{bounds:?} of {slots}, {percent} %");
            }
        }
    }
}
