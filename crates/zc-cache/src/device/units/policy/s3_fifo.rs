//! S3-FIFO over units: Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023.
//! 11 bytes a slot.
//!
//! New units go through a small queue; those that were not used much leave from there, while it holds a tenth of all
//! units or more. The others go on to the main queue, a FIFO with re-insertion, from which units leave otherwise. Of
//! the paper's three queues that of ghosts is missing: units do not come back.

use zc_core::{WeuSlot, u64_from_usize, usize_from_u32};

use super::ReplacementPolicy;
use super::ring::{Queue, Ring};
use super::uses::Uses;

const SMALL: Queue = Queue(0);
const MAIN: Queue = Queue(1);
/// One in so many units is in the small queue before units leave from there.
const SMALL_PART: u32 = 10;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct WeuS3Fifo {
    ring: Ring,
    uses: Uses,
    in_main: Vec<bool>,
    /// Slots in the small and in the main queue.
    small: u32,
    main: u32,
    spared: u64,
}

impl WeuS3Fifo {
    /// For `slots` slots, none of them known.
    pub(super) fn new(slots: u32) -> Self {
        let in_main = vec![false; usize_from_u32(slots)];
        Self { ring: Ring::new(slots, 2), uses: Uses::new(slots), in_main, small: 0, main: 0, spared: 0 }
    }

    /// The oldest of a queue that was not used much; those before it become the newest of the main queue.
    fn leaver(&mut self, queue: Queue, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        let Self { ring, uses, in_main, small, main, spared } = self;
        ring.second_chance(queue, skip, |ring, slot| {
            let stays = uses.many(slot);
            if stays {
                uses.halve(slot);
                ring.renew(MAIN, slot);
                *spared += 1;
                if !core::mem::replace(&mut in_main[usize_from_u32(slot.0)], true) {
                    *small -= 1;
                    *main += 1;
                }
            }
            stays
        })
    }
}

impl ReplacementPolicy for WeuS3Fifo {
    fn inserted(&mut self, slot: WeuSlot) {
        self.removed(slot);
        self.ring.push(SMALL, slot);
        self.uses.enter();
        self.small += 1;
    }

    fn touched(&mut self, slot: WeuSlot) {
        if self.ring.contains(slot) {
            self.uses.add(slot);
        }
    }

    fn removed(&mut self, slot: WeuSlot) {
        if !self.ring.contains(slot) {
            return;
        }
        self.ring.unlink(slot);
        self.uses.leave(slot);
        let was_main = core::mem::take(&mut self.in_main[usize_from_u32(slot.0)]);
        *(if was_main { &mut self.main } else { &mut self.small }) -= 1;
    }

    fn victim(&mut self, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        let small_is_full = self.small >= (self.small + self.main).div_ceil(SMALL_PART);
        let [first, second] = if small_is_full { [SMALL, MAIN] } else { [MAIN, SMALL] };
        self.leaver(first, skip)
            .or_else(|| self.leaver(second, skip))
            .or_else(|| self.ring.oldest_but(first, skip))
            .or_else(|| self.ring.oldest_but(second, skip))
    }

    fn spared(&self) -> u64 {
        self.spared
    }

    fn ram_bytes(&self) -> u64 {
        let marks = u64_from_usize(self.in_main.capacity() * size_of::<bool>() + size_of::<Self>());
        self.ring.ram_bytes() + self.uses.ram_bytes() + marks
    }
}
