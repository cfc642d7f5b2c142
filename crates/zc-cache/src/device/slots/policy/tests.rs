//! Comparison of the policies with models on plain vectors.

use proptest::prelude::*;

use super::s3_fifo::WeuS3Fifo;
use super::second_chance::{Counts, WeuSecondChance};
use super::*;
use crate::device::slots::class_id::ClassId;
use zc_core::WeuSlot;

const ALL: [Replacement; 5] = [
    Replacement::Lru,
    Replacement::FifoReinsert,
    Replacement::S3Fifo,
    Replacement::SharedLru,
    Replacement::CostBenefit,
];

fn slots(policy: &mut dyn ReplacementPolicy, count: u32) {
    (0..count).for_each(|slot| policy.inserted(WeuSlot(slot), ClassId::DEFAULT));
}

fn use_times(policy: &mut dyn ReplacementPolicy, slot: u32, times: u32) {
    (0..times).for_each(|_| policy.touched(WeuSlot(slot), ClassId::DEFAULT));
}

/// Evicts all slots; returns the order.
fn order(policy: &mut dyn ReplacementPolicy) -> Vec<u32> {
    let next = || {
        let slot = policy.victim(ClassId::DEFAULT, &mut |_| false)?;
        policy.removed(slot, ClassId::DEFAULT);
        Some(slot.0)
    };
    core::iter::from_fn(next).collect()
}

#[test]
fn the_least_recently_used_is_the_victim() {
    let mut lru = WeuLru::new(4);
    assert_eq!(lru.victim(ClassId::DEFAULT, &mut |_| false), None);
    slots(&mut lru, 4);
    lru.touched(WeuSlot(0), ClassId::DEFAULT);
    assert_eq!(lru.victim(ClassId::DEFAULT, &mut |_| false), Some(WeuSlot(1)));
    assert_eq!(
        lru.victim(ClassId::DEFAULT, &mut |_| false),
        Some(WeuSlot(1)),
        "naming a victim changes nothing"
    );
    assert_eq!(lru.victim(ClassId::DEFAULT, &mut |slot| slot.0 < 3 && slot.0 > 0), Some(WeuSlot(3)));
    assert_eq!(lru.victim(ClassId::DEFAULT, &mut |_| true), None);
    lru.removed(WeuSlot(1), ClassId::DEFAULT);
    assert_eq!(lru.victim(ClassId::DEFAULT, &mut |_| false), Some(WeuSlot(2)));
}

#[test]
fn what_is_used_much_goes_round_once_more() {
    let mut fifo = WeuSecondChance::new(4, Counts::Uses);
    slots(&mut fifo, 4);
    use_times(&mut fifo, 0, 9);
    use_times(&mut fifo, 1, 1);
    // The mean is 2.5, then 4.5 uses of 0 remain for three more evictions; at the last it is alone.
    assert_eq!((order(&mut fifo), fifo.spared()), (vec![1, 2, 3, 0], 1));
    slots(&mut fifo, 4);
    (0..4).for_each(|slot| use_times(&mut fifo, slot, 1));
    assert_eq!((order(&mut fifo), fifo.spared()), (vec![0, 1, 2, 3], 1), "what all have is not much");
}

#[test]
fn new_units_leave_before_those_that_proved_themselves() {
    let mut s3 = WeuS3Fifo::new(20);
    slots(&mut s3, 20);
    use_times(&mut s3, 0, 100);
    use_times(&mut s3, 2, 50);
    assert_eq!(s3.victim(ClassId::DEFAULT, &mut |_| false), Some(WeuSlot(1)));
    s3.removed(WeuSlot(1), ClassId::DEFAULT);
    assert_eq!(s3.victim(ClassId::DEFAULT, &mut |_| false), Some(WeuSlot(3)));
    assert_eq!(s3.spared(), 2);
    // 0 and 2 wait in the main queue until the small one is short.
    assert_eq!(order(&mut s3), (3..20).chain([0, 2]).collect::<Vec<_>>());
    slots(&mut s3, 20);
    use_times(&mut s3, 0, 100);
    (1..20).for_each(|slot| s3.removed(WeuSlot(slot), ClassId::DEFAULT));
    assert_eq!(
        s3.victim(ClassId::DEFAULT, &mut |_| false),
        Some(WeuSlot(0)),
        "also what is used must go in the end"
    );
}

#[test]
fn sharing_is_a_use_and_keeps_a_unit() {
    let mut shared = WeuSecondChance::new(4, Counts::Shares);
    slots(&mut shared, 4);
    shared.shared(WeuSlot(1), ClassId::DEFAULT);
    [0, 2, 3].iter().for_each(|slot| use_times(&mut shared, *slot, 9));
    assert_eq!((order(&mut shared), shared.spared()), (vec![0, 2, 3, 1], 1));
    let mut lru = WeuLru::new(4);
    slots(&mut lru, 4);
    lru.shared(WeuSlot(0), ClassId::DEFAULT);
    assert_eq!(order(&mut lru), [1, 2, 3, 0]);
}

#[test]
fn ram_is_what_is_said() {
    let bytes = |kind: Replacement| {
        let [few, many] = [1000, 3000].map(|slots| policy(kind, slots).ram_bytes());
        assert!(few < 1000 * 16, "{kind:?}: {few}");
        (many - few) / 2000
    };
    assert_eq!(ALL.map(bytes), [8, 10, 11, 10, 8]);
}

#[test]
#[should_panic(expected = "does not exist")]
fn unknown_slots_are_refused() {
    WeuLru::new(4).inserted(WeuSlot(4), ClassId::DEFAULT);
}

/// Reference model of a policy, with linear search.
#[derive(Debug, Default)]
struct Model {
    /// Oldest first, with uses; the second queue is S3-FIFO's main one.
    queues: [Vec<(WeuSlot, u32)>; 2],
}

impl Model {
    fn take(&mut self, slot: WeuSlot) -> Option<u32> {
        self.queues.iter_mut().find_map(|queue| {
            let at = queue.iter().position(|(held, _)| *held == slot)?;
            Some(queue.remove(at).1)
        })
    }

    fn inserted(&mut self, slot: WeuSlot) {
        self.take(slot);
        self.queues[0].push((slot, 0));
    }

    fn used(&mut self, kind: Replacement, slot: WeuSlot, shared: bool) {
        let by_recency = matches!(kind, Replacement::Lru | Replacement::SharedLru | Replacement::CostBenefit);
        let counts = match kind {
            Replacement::Lru | Replacement::CostBenefit => false,
            Replacement::SharedLru => shared,
            _ => true,
        };
        if by_recency {
            let held = self.take(slot).map(|uses| (slot, uses));
            self.queues[0].extend(held);
        }
        let held = self.queues.iter_mut().flatten().find(|(held, _)| *held == slot);
        if let Some((_, uses)) = held {
            *uses += u32::from(counts);
        }
    }

    fn is_many(&self, uses: u32) -> bool {
        let known: usize = self.queues.iter().map(Vec::len).sum();
        let sum: u32 = self.queues.iter().flatten().map(|(_, uses)| uses).sum();
        f64::from(uses) > 2.0 * f64::from(sum) / f64::from(u32::try_from(known).unwrap())
    }

    fn victim(&mut self, kind: Replacement, skip: &dyn Fn(WeuSlot) -> bool) -> Option<WeuSlot> {
        let all = self.queues[0].len() + self.queues[1].len();
        let (first, target) = match kind {
            Replacement::S3Fifo if self.queues[0].len() * 10 >= all => (0, 1),
            Replacement::S3Fifo => (1, 1),
            _ => (0, 0),
        };
        let tries = if kind == Replacement::S3Fifo { vec![first, 1 - first] } else { vec![0] };
        for queue in &tries {
            for (slot, _) in self.queues[*queue].clone() {
                let (_, uses) = *self.queues[*queue].iter().find(|(held, _)| *held == slot).unwrap();
                if skip(slot) {
                    continue;
                }
                if !self.is_many(uses) {
                    return Some(slot);
                }
                self.take(slot);
                self.queues[target].push((slot, uses / 2));
            }
        }
        let left = tries.iter().flat_map(|queue| &self.queues[*queue]);
        left.map(|(slot, _)| *slot).find(|slot| !skip(*slot))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn all_behave_like_vectors(
        kind in 0_usize..4,
        steps in prop::collection::vec((0_u8..12, 0_u32..24, any::<u32>()), 1..400),
    ) {
        let kind = ALL[kind];
        let mut tested = policy(kind, 22);
        let mut model = Model::default();
        for (step, slot, pinned) in steps {
            let slot = WeuSlot(slot);
            match step {
                0..3 if slot.0 < 22 => {
                    tested.inserted(slot, ClassId::DEFAULT);
                    model.inserted(slot);
                }
                3..6 => {
                    tested.touched(slot, ClassId::DEFAULT);
                    model.used(kind, slot, false);
                }
                6..9 => {
                    tested.shared(slot, ClassId::DEFAULT);
                    model.used(kind, slot, true);
                }
                9 => {
                    tested.removed(slot, ClassId::DEFAULT);
                    model.take(slot);
                }
                _ => {
                    // A third of the slots cannot be evicted; occasionally none can.
                    let pinned = if pinned % 8 == 0 { u32::MAX } else { pinned & pinned >> 8 };
                    let skip = |slot: WeuSlot| pinned >> slot.0 & 1 == 1;
                    let victim = tested.victim(ClassId::DEFAULT, &mut |slot| skip(slot));
                    prop_assert_eq!(victim, model.victim(kind, &skip));
                    if let Some(victim) = victim {
                        tested.removed(victim, ClassId::DEFAULT);
                        model.take(victim);
                    }
                }
            }
        }
        // All remaining slots are evicted, each once.
        let left = model.queues.iter().map(Vec::len).sum::<usize>();
        prop_assert_eq!(order(&mut *tested).len(), left);
    }
}
