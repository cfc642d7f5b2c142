//! Properties of all policies, and of some.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::{Kind, Policy};

/// Hits of a policy, with the bounds checked at every step.
fn hits(kind: Kind, capacity: usize, keys: &[u64]) -> Vec<bool> {
    let mut policy = kind.build(capacity, || keys.to_vec());
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for key in keys {
        let hit = policy.access(*key);
        let new = seen.insert(*key);
        assert!(!(hit && new), "{kind:?}: a hit on a key that was never there");
        assert!(policy.len() <= capacity, "{kind:?}: {} of {capacity}", policy.len());
        assert!(policy.len() <= seen.len());
        out.push(hit);
    }
    out
}

fn count(kind: Kind, capacity: usize, keys: &[u64]) -> usize {
    hits(kind, capacity, keys).into_iter().filter(|hit| *hit).count()
}

/// LRU by its definition: a hit if fewer than `capacity` other keys were used since.
fn lru_by_distance(capacity: usize, keys: &[u64]) -> usize {
    let is_hit = |at: usize| {
        let last = keys[..at].iter().rposition(|key| *key == keys[at]);
        last.is_some_and(|last| keys[last + 1..at].iter().collect::<BTreeSet<_>>().len() < capacity)
    };
    (0..keys.len()).filter(|at| is_hit(*at)).count()
}

/// Keys of a working set with loops and stray keys, as far as a small example can have them.
fn keys() -> impl Strategy<Value = Vec<u64>> {
    let piece = prop_oneof![
        (0..40_u64).prop_map(|key| vec![key]),
        (0..200_u64).prop_map(|key| vec![key]),
        (0..50_u64, 2..30_u64).prop_map(|(from, len)| (from..from + len).collect()),
    ];
    proptest::collection::vec(piece, 1..80).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn every_policy_keeps_its_bounds_and_belady_is_the_best(keys in keys(), capacity in 1..60_usize) {
        let best = count(Kind::Belady, capacity, &keys);
        for kind in Kind::ALL {
            let found = count(kind, capacity, &keys);
            prop_assert!(found <= best, "{:?} {} Belady {}", kind, found, best);
        }
    }

    #[test]
    fn with_room_for_all_keys_no_policy_misses_twice(keys in keys()) {
        let distinct = keys.iter().collect::<BTreeSet<_>>().len();
        // Policies with fixed segments need a minimum capacity: the small queue of S3-FIFO is a tenth.
        for kind in Kind::ALL {
            let found = count(kind, 20 * distinct, &keys);
            prop_assert_eq!(found, keys.len() - distinct, "{:?}", kind);
        }
    }

    #[test]
    fn lru_is_a_stack(keys in keys(), capacity in 1..60_usize) {
        let small = hits(Kind::Lru, capacity, &keys);
        let large = hits(Kind::Lru, capacity + 1, &keys);
        prop_assert!(small.iter().zip(&large).all(|(small, large)| !small || *large));
        prop_assert_eq!(count(Kind::Lru, capacity, &keys), lru_by_distance(capacity, &keys));
    }

    #[test]
    fn more_cache_never_hurts_the_optimum(keys in keys(), capacity in 1..60_usize) {
        prop_assert!(count(Kind::Belady, capacity, &keys) <= count(Kind::Belady, capacity + 1, &keys));
    }
}

#[test]
fn examples_done_by_hand() {
    let keys = [1, 2, 3, 1, 4, 1, 2, 5, 1, 2];
    let shown = |kind: Kind| -> String {
        hits(kind, 3, &keys).iter().map(|hit| if *hit { 'h' } else { '.' }).collect()
    };
    assert_eq!(shown(Kind::Lru), "...h.h..hh");
    assert_eq!(shown(Kind::Fifo), "...h....hh");
    assert_eq!(shown(Kind::Clock), "...h.h..hh");
    assert_eq!(shown(Kind::Sieve), "...h.h..hh");
    assert_eq!(shown(Kind::Belady), "...h.hh.hh");
}

#[test]
fn a_scan_does_not_wash_out_what_is_used_often() {
    let mut keys = Vec::new();
    for round in 0..40_u64 {
        (0..3).for_each(|_| keys.extend(0..40_u64));
        keys.extend((0..100).map(|key| 1000 + round * 100 + key));
    }
    let lru = count(Kind::Lru, 64, &keys);
    for kind in [Kind::Arc, Kind::Lirs, Kind::S3Fifo, Kind::WTinyLfu] {
        let found = count(kind, 64, &keys);
        assert!(found > lru + 1000, "{kind:?}: {found}, LRU {lru}");
    }
}

#[test]
fn what_comes_back_as_a_ghost_stays_in_2q() {
    // Every key of 22 is used again after 65 others.
    let keys: Vec<u64> = (0..2200).flat_map(|at| [at % 22, 1000 + 2 * at, 1001 + 2 * at]).collect();
    assert_eq!(count(Kind::Lru, 64, &keys), 0);
    let found = count(Kind::TwoQ, 64, &keys);
    assert!(found > 2000, "{found}");
}

#[test]
fn a_loop_a_little_larger_than_the_cache_suits_lirs() {
    let keys: Vec<u64> = (0..50).flat_map(|_| 0..120_u64).collect();
    assert_eq!(count(Kind::Lru, 100, &keys), 0);
    let (lirs, best) = (count(Kind::Lirs, 100, &keys), count(Kind::Belady, 100, &keys));
    assert!(lirs * 100 >= best * 95, "{lirs} of {best}");
}

#[test]
fn memory_is_bounded_by_the_capacity() {
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Belady) {
        let mut policy: Box<dyn Policy> = kind.build(1000, Vec::new);
        let mut held = 0;
        for key in 0..200_000_u64 {
            policy.access(key * 7 % 190_001);
            if key == 20_000 {
                held = policy.ram_bytes();
            }
        }
        assert!(held > 0 && policy.ram_bytes() <= 2 * held, "{kind:?}: {held} {}", policy.ram_bytes());
        assert!(policy.ram_bytes() < 1000 * 400, "{kind:?}: {}", policy.ram_bytes());
        assert!(!policy.is_empty());
    }
}
