//! Cost-benefit policy: of the less recently used half of a class, evicts the unit with the fewest live extents,
//! weighted by recency. 8 bytes per slot.
//!
//! A unit is evicted as a whole. Overwritten data in it is dead and takes space until then; live data is lost with it.
//! So a mostly dead unit is evicted before one that was used less recently, as in the cleaner of a log-structured file
//! system (Rosenblum and Ousterhout, SOSP 1991). Each live extent counts 1 in the oldest unit, and up to 4 in the most
//! recent one that is considered. Without overwrites this is close to WEU-LRU.

use zc_core::{WeuSlot, u64_from_usize, usize_from_u32};

use super::lru::WeuLru;
use super::order::ReplacementPolicy;
use crate::device::slots::class_id::ClassId;

/// Share of the slots that is considered: one in this number.
const WINDOW_PART: u32 = 2;
/// Maximum number of slots considered.
const WINDOW_MAX: u32 = 1024;
/// Additional weight of a live extent at the end of the window.
const RECENCY: u64 = 3;

#[derive(Debug)]
pub(super) struct WeuCostBenefit {
    order: WeuLru,
    slots: u32,
    known: Vec<u32>,
}

impl WeuCostBenefit {
    pub(super) fn new(slots: u32) -> Self {
        Self { order: WeuLru::new(slots), slots, known: vec![0; usize_from_u32(ClassId::COUNT)] }
    }

    /// Number of slots of a class that are considered. All unused slots are counted in the default class.
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
