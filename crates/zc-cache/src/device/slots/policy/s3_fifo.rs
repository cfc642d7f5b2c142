//! S3-FIFO over units: Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023.
//! 11 bytes per slot.
//!
//! New units enter a small queue. While it holds a tenth of all units or more, units without many uses are evicted
//! from it, and the others move to the main queue, a FIFO with re-insertion, which otherwise supplies the victims. The
//! paper's third queue, of ghosts, is absent, because evicted units do not return.

use zc_core::{WeuSlot, u64_from_usize, usize_from_u32};

use super::order::ReplacementPolicy;
use super::ring::{Queue, Ring};
use super::uses::Uses;
use crate::device::slots::class_id::ClassId;

/// Share of units in the small queue from which it supplies victims: one in this number.
const SMALL_PART: u32 = 10;

#[derive(Debug)]
pub(super) struct WeuS3Fifo {
    ring: Ring,
    uses: Uses,
    in_main: Vec<bool>,
    /// Queue lengths of each class.
    lengths: Vec<Lengths>,
    spared: u64,
}

/// Slots in the small and in the main queue of a class.
#[derive(Debug, Clone, Copy, Default)]
struct Lengths {
    small: u32,
    main: u32,
}

fn small(class: ClassId) -> Queue {
    Queue(2 * class.number())
}

fn main(class: ClassId) -> Queue {
    Queue(2 * class.number() + 1)
}

impl WeuS3Fifo {
    pub(super) fn new(slots: u32) -> Self {
        let in_main = vec![false; usize_from_u32(slots)];
        let lengths = vec![Lengths::default(); usize_from_u32(ClassId::COUNT)];
        Self {
            ring: Ring::new(slots, 2 * ClassId::COUNT),
            uses: Uses::new(slots),
            in_main,
            lengths,
            spared: 0,
        }
    }

    fn is_small_full(&self, class: ClassId) -> bool {
        let Lengths { small, main } = self.lengths[class.index()];
        small >= (small + main).div_ceil(SMALL_PART)
    }

    /// Returns the oldest slot of a queue without many uses; those skipped move to the main queue.
    fn leaver(
        &mut self,
        class: ClassId,
        queue: Queue,
        skip: &mut dyn FnMut(WeuSlot) -> bool,
    ) -> Option<WeuSlot> {
        let Self { ring, uses, in_main, lengths, spared } = self;
        let lengths = &mut lengths[class.index()];
        ring.second_chance(queue, skip, |ring, slot| {
            let stays = uses.many(slot);
            if stays {
                uses.halve(slot);
                ring.renew(main(class), slot);
                *spared += 1;
                if !core::mem::replace(&mut in_main[usize_from_u32(slot.0)], true) {
                    lengths.small -= 1;
                    lengths.main += 1;
                }
            }
            stays
        })
    }
}

impl ReplacementPolicy for WeuS3Fifo {
    fn inserted(&mut self, slot: WeuSlot, class: ClassId) {
        self.removed(slot, class);
        self.ring.push(small(class), slot);
        self.uses.enter();
        self.lengths[class.index()].small += 1;
    }

    fn touched(&mut self, slot: WeuSlot, _class: ClassId) {
        if self.ring.contains(slot) {
            self.uses.add(slot);
        }
    }

    fn removed(&mut self, slot: WeuSlot, class: ClassId) {
        if !self.ring.contains(slot) {
            return;
        }
        self.ring.unlink(slot);
        self.uses.leave(slot);
        let was_main = core::mem::take(&mut self.in_main[usize_from_u32(slot.0)]);
        let lengths = &mut self.lengths[class.index()];
        *(if was_main { &mut lengths.main } else { &mut lengths.small }) -= 1;
    }

    fn victim(&mut self, class: ClassId, skip: &mut dyn FnMut(WeuSlot) -> bool) -> Option<WeuSlot> {
        let (small, main) = (small(class), main(class));
        let [first, second] = if self.is_small_full(class) { [small, main] } else { [main, small] };
        self.leaver(class, first, skip)
            .or_else(|| self.leaver(class, second, skip))
            .or_else(|| self.ring.oldest_but(first, skip))
            .or_else(|| self.ring.oldest_but(second, skip))
    }

    fn oldest(&self, class: ClassId) -> Option<WeuSlot> {
        let (small, main) = (small(class), main(class));
        let [first, second] = if self.is_small_full(class) { [small, main] } else { [main, small] };
        self.ring.oldest(first).or_else(|| self.ring.oldest(second))
    }

    fn spared(&self) -> u64 {
        self.spared
    }

    fn ram_bytes(&self) -> u64 {
        let marks = self.in_main.capacity() * size_of::<bool>();
        let lengths = self.lengths.capacity() * size_of::<Lengths>();
        let own = u64_from_usize(marks + lengths + size_of::<Self>());
        self.ring.ram_bytes() + self.uses.ram_bytes() + own
    }
}
