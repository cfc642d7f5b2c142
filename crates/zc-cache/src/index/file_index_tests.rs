//! The file index against a map, at the edges of every field, and its size.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SMALL: IndexShape =
    IndexShape { slots: 37, weu_bytes: 64 << 10, extent_bytes: 4 << 10, generation_bits: 2 };

fn key(volume: u16, extent: u64) -> ExtentKey {
    ExtentKey { volume: VolumeId(volume), extent: ExtentNo(extent) }
}

#[test]
fn every_edge_of_every_field_comes_back() {
    let shapes = [
        SMALL,
        IndexShape { slots: 1, weu_bytes: 32 << 10, extent_bytes: 4 << 10, generation_bits: 0 },
        IndexShape {
            slots: limits::SLOTS_MAX,
            weu_bytes: 4 << 20,
            extent_bytes: 128 << 10,
            generation_bits: 8,
        },
    ];
    for shape in shapes {
        let mut index = FileIndex::new(shape, 10);
        let last_offset = shape.weu_bytes / limits::PLACE_ALIGN_BYTES - 1;
        let most_pages = (4032 + 128 + shape.extent_bytes).div_ceil(4096);
        for slot in [0, shape.slots - 1] {
            for generation in [0, (1 << shape.generation_bits) - 1] {
                for offset in [0, last_offset] {
                    for pages in [1, most_pages] {
                        let place = Place {
                            slot: WeuSlot(slot),
                            generation: Generation(generation),
                            offset_units: u16::try_from(offset).expect("fits"),
                            pages: u8::try_from(pages).expect("fits"),
                        };
                        for mapping in [Mapping::Base(place), Mapping::Duplicate(place), Mapping::Zero] {
                            for at in
                                [key(0, 0), key(limits::VOLUMES_MAX - 1, limits::EXTENTS_PER_VOLUME_MAX - 1)]
                            {
                                assert_eq!(index.insert(at, mapping), None);
                                assert_eq!(index.get(at), Some(mapping));
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(index.len(), 2);
    }
}

#[test]
fn what_does_not_fit_is_handed_back_and_not_mapped() {
    let mut index = FileIndex::new(SMALL, 10);
    let good = Place { slot: WeuSlot(36), generation: Generation(3), offset_units: 1023, pages: 3 };
    let bad = [
        Place { slot: WeuSlot(37), ..good },
        Place { offset_units: 1024, ..good },
        Place { pages: 0, ..good },
        Place { pages: 4, ..good },
    ];
    for place in bad {
        assert_eq!(index.insert(key(1, 1), Mapping::Base(good)), None);
        assert_eq!(
            index.insert(key(1, 1), Mapping::Duplicate(place)),
            Some((key(1, 1), Mapping::Duplicate(place)))
        );
        assert_eq!(index.get(key(1, 1)), None);
    }
    for at in [key(limits::VOLUMES_MAX, 0), key(0, limits::EXTENTS_PER_VOLUME_MAX)] {
        assert_eq!(index.insert(at, Mapping::Zero), Some((at, Mapping::Zero)));
        assert_eq!((index.get(at), index.remove(at)), (None, None));
        index.touch(at);
    }
    assert!(index.is_empty());
}

#[test]
fn only_the_low_bits_of_the_generation_are_kept() {
    let mut index = FileIndex::new(SMALL, 10);
    let place = Place { slot: WeuSlot(5), generation: Generation(0b1_0110), offset_units: 9, pages: 2 };
    index.insert(key(1, 1), Mapping::Base(place));
    assert_eq!(index.get(key(1, 1)), Some(Mapping::Base(Place { generation: Generation(0b10), ..place })));
}

#[test]
fn the_least_recently_used_mapping_goes_first() {
    let mut index = FileIndex::new(SMALL, 15);
    assert_eq!((index.buckets(), index.capacity()), (1, 16));
    for extent in 0..16 {
        assert_eq!(index.insert(key(0, extent), Mapping::Zero), None);
    }
    index.touch(key(0, 0));
    assert_eq!(index.insert(key(0, 16), Mapping::Zero), Some((key(0, 1), Mapping::Zero)));
    // The next that are to go are spared while any other may go.
    let spares = |key: ExtentKey| key.extent.0 < 6;
    let gone = index.insert_sparing(key(0, 17), Mapping::Zero, spares);
    assert_eq!(gone, Some((key(0, 6), Mapping::Zero)));
    let gone = index.insert_sparing(key(0, 18), Mapping::Zero, |_| true);
    assert_eq!(gone, Some((key(0, 2), Mapping::Zero)));
}

/// 8 KiB extents, 2 MiB WEUs, 10 million extents without any data reduction.
fn ten_million() -> (IndexShape, u64) {
    let entries = 10_000_000u64;
    let slots = u32::try_from((entries * (8 << 10)).div_ceil(2 << 20)).expect("fits");
    (IndexShape { slots, weu_bytes: 2 << 20, extent_bytes: 8 << 10, generation_bits: 8 }, entries)
}

#[test]
fn ten_million_entries_take_at_most_9_6_bytes_each() {
    let (shape, entries) = ten_million();
    let index = FileIndex::new(shape, entries);
    let per_entry_mb = index.ram_bytes() * 1000 / entries;
    assert!(per_entry_mb <= 9600, "{per_entry_mb} thousandths of a byte");
    // With as many chunks of the address space as may be listed.
    let most = FileIndex::ram_bytes_for(shape, entries) * 1000 / entries;
    assert!(most <= 9800, "{most} thousandths of a byte");
}

#[test]
fn the_size_is_known_beforehand() {
    // A new index has listed no chunks yet.
    let new = |shape, entries| FileIndex::new(shape, entries).ram_bytes() + Occupancy::ram_bytes_max(entries);
    for entries in [0, 1, 1000, 1_000_000] {
        assert_eq!(FileIndex::ram_bytes_for(SMALL, entries), new(SMALL, entries));
    }
    let (shape, entries) = ten_million();
    assert_eq!(FileIndex::ram_bytes_for(shape, entries), new(shape, entries));
    assert!(FileIndex::ram_bytes_for(shape, u64::MAX) > 1 << 60, "no overflow");
}

#[derive(Debug, Clone)]
enum Step {
    Insert(ExtentKey, Mapping),
    Remove(ExtentKey),
    Touch(ExtentKey),
    Sweep(usize, u32),
}

fn any_key() -> impl Strategy<Value = ExtentKey> {
    (prop_oneof![Just(0u16), Just(1), Just(1023)], 0u64..40).prop_map(|(volume, extent)| key(volume, extent))
}

fn any_mapping() -> impl Strategy<Value = Mapping> {
    let place =
        (0u32..37, 0u32..4, 0u16..1024, 1u8..4).prop_map(|(slot, generation, offset_units, pages)| Place {
            slot: WeuSlot(slot),
            generation: Generation(generation),
            offset_units,
            pages,
        });
    prop_oneof![
        3 => place.clone().prop_map(Mapping::Base),
        3 => place.prop_map(Mapping::Duplicate),
        1 => Just(Mapping::Zero),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any_key(), any_mapping()).prop_map(|(key, mapping)| Step::Insert(key, mapping)),
        2 => any_key().prop_map(Step::Remove),
        2 => any_key().prop_map(Step::Touch),
        1 => (0usize..5, 0u32..4).prop_map(|(buckets, generation)| Step::Sweep(buckets, generation)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_map(capacity in 0u64..120, steps in prop::collection::vec(any_step(), 1..300)) {
        let mut index = FileIndex::new(SMALL, capacity);
        let mut model: BTreeMap<ExtentKey, Mapping> = BTreeMap::new();
        let mut cursor = SweepCursor::default();
        for step in steps {
            match step {
                Step::Insert(key, mapping) => {
                    if let Some((gone, was)) = index.insert(key, mapping) {
                        prop_assert_ne!(gone, key);
                        prop_assert_eq!(model.remove(&gone), Some(was));
                    }
                    model.insert(key, mapping);
                }
                Step::Remove(key) => prop_assert_eq!(index.remove(key), model.remove(&key)),
                Step::Touch(key) => index.touch(key),
                Step::Sweep(buckets, generation) => {
                    index.sweep(&mut cursor, buckets, |key, mapping| {
                        assert_eq!(model.get(&key), Some(&mapping));
                        match mapping {
                            Mapping::Duplicate(place) if place.generation.0 == generation => {
                                model.remove(&key);
                                Keep::No
                            }
                            _ => Keep::Yes,
                        }
                    });
                }
            }
            prop_assert_eq!(index.len(), model.len() as u64);
            for (key, mapping) in &model {
                prop_assert_eq!(index.get(*key), Some(*mapping));
            }
        }
    }
}

#[test]
fn what_is_mapped_in_a_range_is_found_where_something_is() {
    let shape = IndexShape { slots: 64, weu_bytes: 2 << 20, extent_bytes: 8 << 10, generation_bits: 8 };
    let mut index = FileIndex::new(shape, 1000);
    let mapped = [key(1, 7), key(1, 1 << 20), key(1, (1 << 20) + 1), key(2, 8), key(1, 1 << 37)];
    for key in mapped {
        index.insert(key, Mapping::Zero);
    }
    index.insert(key(1, 7), Mapping::Zero);
    let v = VolumeId(1);
    assert_eq!(index.mapped_in(v, 0..u64::MAX), [mapped[0], mapped[1], mapped[2], mapped[4]]);
    assert_eq!(index.mapped_in(v, 8..(1 << 20) + 1), [mapped[1]]);
    assert_eq!(index.mapped_in(v, 9..9), []);
    assert_eq!(index.mapped_in(VolumeId(3), 0..1 << 38), []);
    // A chunk of 8,192 extents has the first; the rest of the way to the next is free.
    assert_eq!(index.reach(v, 0..1 << 36, 512), (512, 512));
    assert_eq!(index.reach(v, 8192..1 << 36, 512), ((1 << 20) - 8192 + 512, 512));
    assert_eq!(index.reach(v, (1 << 20) + 8192..1 << 37, 512), ((1 << 37) - (1 << 20) - 8192, 0));
    index.remove(mapped[0]);
    assert!(!index.remove_if(mapped[1], |_| false) && index.remove_if(mapped[1], |_| true));
    index.sweep(
        &mut SweepCursor::default(),
        usize::MAX,
        |key, _| {
            if key == mapped[2] { Keep::No } else { Keep::Yes }
        },
    );
    assert_eq!(index.mapped_in(v, 0..1 << 30), []);
    assert_eq!(index.reach(v, 0..1 << 36, 512), (1 << 36, 0));
}
