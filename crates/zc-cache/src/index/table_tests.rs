//! The table against a list of pairs, its load before the first eviction, and passes that run while entries move.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn mixed(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x1234_5678_9abc_def1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 32;
    x.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[test]
fn is_nearly_full_before_the_first_eviction() {
    for buckets in [1, 2, 7, 100, 20_000] {
        let mut table = Table::new(48, 40, buckets);
        let mut n = 0;
        while table.insert(n, n + 1).is_none() {
            n += 1;
        }
        assert!(n * 100 >= table.places() * 95, "{n} entries fit in {} places", table.places());
        assert_eq!(table.len(), n);
        for key in 0..n {
            let found = table.find(key, |_| true).map(|spot| table.value(spot));
            assert!(found == Some(key + 1) || found.is_none());
        }
    }
}

#[test]
fn the_least_recently_used_of_a_bucket_goes_first() {
    let mut table = Table::new(20, 8, 1);
    for key in 0..16 {
        assert_eq!(table.insert(key, 1), None);
    }
    let oldest = table.find(0, |_| true).expect("held");
    table.touch(oldest);
    assert_eq!(table.insert(100, 1), Some((1, 1)));
    assert_eq!(table.insert(101, 1), Some((2, 1)));
    assert!(table.find(0, |_| true).is_some());
}

#[test]
fn a_table_without_buckets_holds_nothing() {
    let mut table = Table::new(20, 8, 0);
    assert_eq!(table.insert(1, 2), Some((1, 2)));
    assert_eq!(table.find(1, |_| true), None);
    assert!(table.sweep(&mut SweepCursor::default(), 1, |_, _| Keep::Yes));
    assert_eq!(table.ram_bytes(), 0);
}

#[test]
fn a_pass_sees_all_that_stays_while_entries_move() {
    let mut table = Table::new(40, 30, 64);
    let mut next = 0;
    while table.len() * 100 < table.places() * 80 {
        table.insert(next, 1);
        next += 1;
    }
    let (mut moves_seen, mut passes) = (0, 0);
    for _ in 0..40 {
        let mut cursor = SweepCursor::default();
        let mut present: BTreeMap<u64, u64> = BTreeMap::new();
        table.sweep(&mut SweepCursor::default(), usize::MAX, |key, value| {
            present.insert(key, value);
            Keep::Yes
        });
        let (mut seen, mut gone) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let wrapped = table.sweep(&mut cursor, 3, |key, _| {
                seen.insert(key);
                Keep::Yes
            });
            if wrapped {
                break;
            }
            let before = layout(&table);
            for _ in 0..12 {
                if let Some((key, _)) = table.insert(next, 1) {
                    gone.insert(key);
                }
                next += 1;
            }
            moves_seen += layout(&table)
                .iter()
                .filter(|(key, at)| before.get(key).is_some_and(|was| was != *at))
                .count();
            let drop: Vec<_> =
                present.keys().filter(|key| mixed(**key + next).is_multiple_of(90)).copied().collect();
            for key in drop {
                gone.insert(key);
                if let Some(spot) = table.find(key, |_| true) {
                    table.remove(spot);
                }
            }
        }
        passes += 1;
        for key in present.keys().filter(|key| !gone.contains(key)) {
            assert!(seen.contains(key), "pass {passes} missed {key}");
        }
    }
    assert!(moves_seen > 100, "only {moves_seen} entries changed buckets: the test shows nothing");
}

fn layout(table: &Table) -> BTreeMap<u64, u64> {
    let mut at = BTreeMap::new();
    for bucket in 0..table.buckets {
        for index in 0..table.used(bucket) {
            at.insert(table.quotients.key_of(bucket, low_u64(table.load(bucket, index))).0, bucket);
        }
    }
    at
}

#[test]
fn a_displaced_pass_starts_again() {
    let mut table = Table::new(40, 30, 8);
    for key in 0..50 {
        table.insert(key, 1);
    }
    let mut cursors: Vec<SweepCursor> = Vec::new();
    for _ in 0..=SWEEPS_MAX {
        let mut cursor = SweepCursor::default();
        assert!(!table.sweep(&mut cursor, 5, |_, _| Keep::Yes));
        cursors.push(cursor);
    }
    let mut first = cursors.swap_remove(0);
    let mut seen = 0;
    assert!(!table.sweep(&mut first, 5, |_, _| Keep::Yes), "it had to start again");
    assert!(table.sweep(&mut first, 5, |_, _| Keep::Yes));
    assert!(table.sweep(&mut cursors[0], 3, |_, _| Keep::Yes), "the last one goes on");
    table.sweep(&mut first, usize::MAX, |_, _| {
        seen += 1;
        Keep::No
    });
    assert_eq!((seen, table.len()), (50, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64, u64),
    Remove(u64),
    Set(u64, u64),
    Touch(u64),
    Sweep(usize, u64),
}

fn step(keys: u64, values: u64) -> impl Strategy<Value = Step> {
    let (key, value) = (0..keys, 1..values);
    prop_oneof![
        5 => (key.clone(), value.clone()).prop_map(|(k, v)| Step::Insert(k, v)),
        2 => key.clone().prop_map(Step::Remove),
        1 => (key.clone(), value).prop_map(|(k, v)| Step::Set(k, v)),
        1 => key.prop_map(Step::Touch),
        1 => (0usize..4, 2u64..9).prop_map(|(n, m)| Step::Sweep(n, m)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_bucket_is_in_order_of_use(
        key_bits in 8u32..50,
        value_bits in 3u32..60,
        steps in prop::collection::vec((0u8..3, 0u64..40), 1..200),
    ) {
        let mut table = Table::new(key_bits, value_bits, 1);
        let mut model: Vec<(u64, u64)> = Vec::new();
        for (number, (what, key)) in (0..).zip(steps) {
            let at = model.iter().position(|(held, _)| *held == key);
            let spot = table.find(key, |_| true);
            prop_assert_eq!(spot.map(|spot| spot.index), at);
            match (what, spot, at) {
                (0, Some(spot), Some(at)) => {
                    table.remove(spot);
                    model.remove(at);
                }
                (_, Some(spot), Some(at)) => {
                    table.touch(spot);
                    model[..=at].rotate_right(1);
                }
                (0, ..) => {}
                _ => {
                    let oldest = (model.len() == WAYS).then(|| model.pop()).flatten();
                    let value = number % 7 + 1;
                    prop_assert_eq!(table.insert(key, value), oldest);
                    model.insert(0, (key, value));
                }
            }
            let mut seen = Vec::new();
            table.sweep(&mut SweepCursor::default(), 1, |key, value| {
                seen.push((key, value));
                Keep::Yes
            });
            prop_assert_eq!(&seen, &model);
        }
    }

    #[test]
    fn packed_buckets_are_the_table_and_other_bytes_are_refused(
        buckets in 1_u64..6,
        value_bits in 3_u32..60,
        keys in prop::collection::vec((0_u64..256, 1_u64..8), 0..100),
        (at, flip) in (any::<prop::sample::Index>(), 1_u8..),
    ) {
        let mut table = Table::new(32, value_bits, buckets);
        let mut other = Table::new(32, value_bits, buckets);
        for (key, value) in keys {
            table.insert(key, value);
            other.insert(key ^ 0xffff, value);
        }
        let entries = |table: &mut Table| {
            let mut seen = Vec::new();
            table.sweep(&mut SweepCursor::default(), 8, |key, value| {
                seen.push((key, value));
                Keep::Yes
            });
            seen
        };
        let count = u32::try_from(buckets).unwrap();
        let mut packed = table.packed_buckets(0, count);
        prop_assert_eq!(packed.len(), usize_from_u64(buckets + table.len() * u64::from(table.entry_bytes)));
        let mut seen = Vec::new();
        let is_set = other.set_buckets(0, count, &packed, |key, value| {
            seen.push((key, value));
            true
        });
        prop_assert!(is_set);
        prop_assert_eq!((&other.bytes, other.len()), (&table.bytes, table.len()));
        prop_assert_eq!(seen, entries(&mut table));
        let take = |_, _| true;
        prop_assert!(!other.set_buckets(1, count, &packed, take), "behind the last bucket");
        prop_assert!(!other.set_buckets(0, count, &packed[..packed.len() - 1], take), "too short");
        prop_assert!(!other.set_buckets(0, count, &[&packed[..], &[0]].concat(), take), "too long");
        prop_assert!(table.len() == 0 || !other.set_buckets(0, count, &packed, |_, _| false));
        // Whatever they are, they are refused or are those of a table.
        let at = at.index(packed.len());
        packed[at] ^= flip;
        let mut other = Table::new(32, value_bits, buckets);
        if other.set_buckets(0, count, &packed, take) {
            prop_assert_eq!(other.packed_buckets(0, count), packed);
        }
    }

    #[test]
    fn behaves_like_a_map(
        buckets in 1u64..6,
        key_bits in 8u32..50,
        value_bits in 3u32..60,
        steps in prop::collection::vec(step(256, 8), 1..300),
    ) {
        let mut table = Table::new(key_bits, value_bits, buckets);
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut cursor = SweepCursor::default();
        for step in steps {
            match step {
                Step::Insert(key, value) => {
                    if let Some(spot) = table.find(key, |_| true) {
                        table.set_value(spot, value);
                    } else if let Some((gone, was)) = table.insert(key, value) {
                        prop_assert_eq!(model.remove(&gone), Some(was));
                    }
                    model.insert(key, value);
                }
                Step::Remove(key) => {
                    let spot = table.find(key, |_| true);
                    prop_assert_eq!(spot.map(|spot| table.value(spot)), model.remove(&key));
                    if let Some(spot) = spot {
                        table.remove(spot);
                    }
                }
                Step::Set(key, value) => {
                    if let Some(spot) = table.find(key, |_| true) {
                        table.set_value(spot, value);
                        model.insert(key, value);
                    }
                }
                Step::Touch(key) => {
                    if let Some(spot) = table.find(key, |_| true) {
                        table.touch(spot);
                    }
                }
                Step::Sweep(steps, modulus) => {
                    table.sweep(&mut cursor, steps, |key, value| {
                        assert_eq!(model.get(&key), Some(&value));
                        if key % modulus == 0 {
                            model.remove(&key);
                            return Keep::No;
                        }
                        Keep::Yes
                    });
                }
            }
            prop_assert_eq!(table.len(), model.len() as u64);
            for (key, value) in &model {
                prop_assert_eq!(table.find(*key, |_| true).map(|spot| table.value(spot)), Some(*value));
            }
        }
    }
}
