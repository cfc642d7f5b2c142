//! The fingerprint index against a set of pairs, its false hints and its size.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn shape(slots: u32) -> IndexShape {
    IndexShape { slots, weu_bytes: 2 << 20, extent_bytes: 8 << 10, generation_bits: 8 }
}

/// A well mixed stand-in for the hash of the `n`-th content.
fn print(n: u64) -> Fingerprint {
    let mut x = n.wrapping_add(0x517c_c1b7_2722_0a95).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 32;
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&x.to_le_bytes());
    Fingerprint(bytes)
}

#[test]
fn disabled_with_capacity_0() {
    let mut index = FingerprintIndex::new(shape(10), 0);
    index.insert(&print(1), WeuSlot(1));
    index.touch(&print(1), WeuSlot(1));
    assert!(index.candidates(&print(1)).is_empty() && !index.remove(&print(1), WeuSlot(1)));
    assert_eq!((index.len(), index.capacity(), index.evictions(), index.buckets()), (0, 0, 0, 0));
    assert!(index.sweep(&mut SweepCursor::default(), 1, |_| Keep::No));
}

#[test]
fn one_content_in_several_slots() {
    let mut index = FingerprintIndex::new(shape(100), 1000);
    for slot in [3, 99, 0, 3] {
        index.insert(&print(7), WeuSlot(slot));
    }
    index.insert(&print(7), WeuSlot(100));
    let mut found = index.candidates(&print(7));
    found.sort_unstable();
    assert_eq!(found.as_slice(), [WeuSlot(0), WeuSlot(3), WeuSlot(99)]);
    assert!(index.remove(&print(7), WeuSlot(3)) && !index.remove(&print(7), WeuSlot(3)));
    assert_eq!(index.len(), 2);
}

#[test]
fn the_least_recently_used_of_a_bucket_goes_first() {
    let mut index = FingerprintIndex::new(shape(100), 15);
    for n in 0..16 {
        index.insert(&print(u64::from(n)), WeuSlot(n));
    }
    index.touch(&print(0), WeuSlot(0));
    index.insert(&print(1), WeuSlot(1));
    index.insert(&print(99), WeuSlot(50));
    assert_eq!((index.len(), index.evictions()), (16, 1));
    assert!(index.candidates(&print(0)).contains(&WeuSlot(0)));
    assert!(index.candidates(&print(1)).contains(&WeuSlot(1)));
    assert!(!index.candidates(&print(2)).contains(&WeuSlot(2)));
}

#[test]
fn false_hints_are_rare_and_true_ones_complete() {
    let entries = 100_000;
    let mut index = FingerprintIndex::new(shape(20_480), entries);
    let slot = |n: u64| WeuSlot(u32::try_from(n % 20_480).expect("fits"));
    (0..entries).for_each(|n| index.insert(&print(n), slot(n)));
    assert_eq!((index.len() + index.evictions(), index.evictions()), (entries, 0));
    assert!((0..entries).all(|n| index.candidates(&print(n)).contains(&slot(n))));
    let wrong = (entries..2 * entries).filter(|n| !index.candidates(&print(*n)).is_empty()).count();
    assert!(wrong < 100, "{wrong} of {entries} lookups had a false candidate");
}

#[test]
fn ten_million_entries_take_at_most_4_4_bytes_each() {
    for (slots, most) in [(20_480, 4400), ((1 << 17) - 1, 4400), (1 << 24, 6400)] {
        let index = FingerprintIndex::new(shape(slots), 10_000_000);
        assert_eq!(index.ram_bytes(), FingerprintIndex::ram_bytes_for(shape(slots), 10_000_000));
        let per_entry = index.ram_bytes() * 1000 / 10_000_000;
        assert!(per_entry <= most, "{per_entry} thousandths of a byte for {slots} slots");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_set_of_pairs(
        capacity in 1u64..60,
        steps in prop::collection::vec((0u8..10, 0u64..30, 0u32..8, 0usize..4), 1..300),
    ) {
        let mut index = FingerprintIndex::new(shape(8), capacity);
        let mut model: BTreeSet<(u64, u32)> = BTreeSet::new();
        let mut cursor = SweepCursor::default();
        for (kind, n, slot, buckets) in steps {
            let evictions = index.evictions();
            match kind {
                0..6 => {
                    index.insert(&print(n), WeuSlot(slot));
                    model.insert((n, slot));
                }
                6..8 => prop_assert_eq!(index.remove(&print(n), WeuSlot(slot)), model.remove(&(n, slot))),
                8 => index.touch(&print(n), WeuSlot(slot)),
                _ => {
                    index.sweep(&mut cursor, buckets, |held| if held.0 == slot { Keep::No } else { Keep::Yes });
                    let held = |&(n, slot): &(u64, u32)| index.candidates(&print(n)).contains(&WeuSlot(slot));
                    let (kept, dropped): (BTreeSet<_>, BTreeSet<_>) = model.into_iter().partition(held);
                    prop_assert!(dropped.iter().all(|pair| pair.1 == slot));
                    model = kept;
                }
            }
            if index.evictions() > evictions {
                let before = model.len();
                model.retain(|&(n, slot)| index.candidates(&print(n)).contains(&WeuSlot(slot)));
                prop_assert_eq!(model.len() + 1, before);
                prop_assert!(model.contains(&(n, slot)), "the new entry itself went");
            }
            prop_assert_eq!(index.len(), model.len() as u64);
            for n in 0..30 {
                let mut found: Vec<_> = index.candidates(&print(n)).iter().map(|slot| slot.0).collect();
                found.sort_unstable();
                let wanted: Vec<_> = model.range((n, 0)..=(n, u32::MAX)).map(|pair| pair.1).collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
