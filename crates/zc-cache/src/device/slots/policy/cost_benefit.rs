//! The oldest and emptiest first: within the older half of a class, the unit with the fewest live extents is evicted,
//! weighed by how recently it was used. 8 bytes a slot.
//!
//! A unit is evicted whole. Overwritten data in it is dead and takes space until then; live data is lost with it. So
//! a unit that is mostly dead goes before one that was used less recently, as in the cleaner of a log-structured file
//! system (Rosenblum and Ousterhout, SOSP 1991). Each live extent counts for 1 at the oldest unit, and for up to 4 at
//! the most recent one that is inspected. Where nothing is overwritten this is near WEU-LRU.

use zc_core::{WeuSlot, u64_from_usize, usize_from_u32};

use super::lru::WeuLru;
use super::order::ReplacementPolicy;
use crate::device::slots::class_id::ClassId;

/// Fraction of the slots that is inspected: one in this number.
const WINDOW_PART: u32 = 2;
/// Maximum number of slots inspected.
const WINDOW_MAX: u32 = 1024;
/// Additional weight of a live extent at the end of the window.
const RECENCY: u64 = 3;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct WeuCostBenefit {
    order: WeuLru,
    slots: u32,
    /// Known slots of each class.
    known: Vec<u32>,
}

impl WeuCostBenefit {
    /// For `slots` slots, none of them known.
    pub(super) fn new(slots: u32) -> Self {
        Self { order: WeuLru::new(slots), slots, known: vec![0; usize_from_u32(ClassId::COUNT)] }
    }

    /// Slots of a class that are inspected. Slots of no other class count as the default class's.
    fn window(&self, class: ClassId) -> u32 {
        let size = if class == ClassId::DEFAULT {
            self.slots - self.known.iter().skip(1).sum::<u32>()
        } else {
            self.known[class.index()]
        };
        (size / WINDOW_PART).clamp(1, WINDOW_MAX)
    }
}

impl ReplacementPolicy for WeuCostBenefit {
    fn inserted(&mut self, slot: WeuSlot, class: ClassId) {
        self.known[class.index()] += u32::from(!self.order.contains(slot));
        self.order.inserted(slot, class);
    }

    fn touched(&mut self, slot: WeuSlot, class: ClassId) {
        self.order.touched(slot, class);
    }

    fn removed(&mut self, slot: WeuSlot, class: ClassId) {
        self.known[class.index()] -= u32::from(self.order.contains(slot));
        self.order.removed(slot, class);
    }

    fn victim(&mut self, class: ClassId, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        self.order.victim(class, skip)
    }

    fn oldest(&self, class: ClassId) -> Option<WeuSlot> {
        self.order.oldest(class)
    }

    fn emptiest(&mut self, class: ClassId, live: &mut dyn FnMut(WeuSlot) -> Option<u32>) -> Option<WeuSlot> {
        let window = u64::from(self.window(class));
        let (mut seen, mut best) = (0, None);
        for slot in self.order.oldest_first(class) {
            let Some(live) = live(slot) else { continue };
            let cost = u64::from(live) * (window + RECENCY * seen);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, slot));
            }
            seen += 1;
            if seen == window {
                break;
            }
        }
        best.map(|(_, slot)| slot)
    }

    fn ram_bytes(&self) -> u64 {
        let own = size_of::<Self>() - size_of::<WeuLru>() + self.known.capacity() * size_of::<u32>();
        self.order.ram_bytes() + u64_from_usize(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(slots: u32) -> WeuCostBenefit {
        let mut policy = WeuCostBenefit::new(slots);
        (0..slots).for_each(|slot| policy.inserted(WeuSlot(slot), ClassId::DEFAULT));
        policy
    }

    #[test]
    fn the_emptiest_of_the_older_half_goes_first() {
        let mut policy = known(16);
        let live = |slot: WeuSlot| Some(if slot.0 == 5 { 2 } else { 30 });
        assert_eq!(policy.emptiest(ClassId::DEFAULT, &mut { live }), Some(WeuSlot(5)));
        let live = |slot: WeuSlot| Some(if slot.0 == 8 { 0 } else { 30 });
        assert_eq!(
            policy.emptiest(ClassId::DEFAULT, &mut { live }),
            Some(WeuSlot(0)),
            "the newer half is not looked at"
        );
    }

    #[test]
    fn recent_use_outweighs_a_few_dead_extents() {
        let mut policy = known(16);
        let live = |slot: WeuSlot| Some(if slot.0 == 7 { 20 } else { 30 });
        assert_eq!(policy.emptiest(ClassId::DEFAULT, &mut { live }), Some(WeuSlot(0)));
        let live = |slot: WeuSlot| Some(if slot.0 == 7 { 7 } else { 30 });
        assert_eq!(policy.emptiest(ClassId::DEFAULT, &mut { live }), Some(WeuSlot(7)));
    }

    #[test]
    fn what_may_not_go_is_passed_over() {
        let mut policy = known(4);
        assert_eq!(
            policy.emptiest(ClassId::DEFAULT, &mut |slot| (slot.0 > 1).then_some(9)),
            Some(WeuSlot(2))
        );
        assert_eq!(policy.emptiest(ClassId::DEFAULT, &mut |_| None), None);
    }
}
