//! Layouts: tiny to huge, with little overhead, and refused if impossible.

use proptest::prelude::*;

use super::*;
use crate::samples_tests as samples;

fn options(device_bytes: u64) -> PlanOptions {
    PlanOptions {
        device_bytes,
        weu_bytes: 2 << 20,
        extent_bytes: 8 << 10,
        align_bytes: 0,
        journal_blocks: None,
    }
}

fn check(geometry: &Geometry) {
    geometry.validate().unwrap();
    let mut bytes = [0; GEOMETRY_BYTES];
    geometry.encode(&mut bytes);
    assert_eq!(Geometry::decode(&bytes, Salt::NONE).as_ref(), Ok(geometry));
    assert_eq!(geometry.slots_offset % u64::from(geometry.weu_bytes), 0);
    let last = geometry.slot_offset(WeuSlot(geometry.slots - 1)) + u64::from(geometry.weu_bytes);
    assert!(last + END_BYTES <= geometry.device_bytes);
    let after = geometry.device_bytes - END_BYTES - last;
    assert!(
        after < u64::from(geometry.weu_bytes) || geometry.slots == limits::SLOTS_MAX,
        "{after} bytes unused"
    );
    for sequence in [0, 1, geometry.journal_blocks, u64::MAX] {
        let offset = geometry.journal_block_offset(JournalSeq(sequence));
        assert!(offset >= geometry.journal_offset && offset + BLOCK <= geometry.slots_offset);
    }
    let end = geometry.checkpoint_block_offset(1, geometry.checkpoint_blocks - 2) + BLOCK;
    assert_eq!(end, geometry.journal_offset);
    assert_eq!(geometry.checkpoint_block_offset(0, geometry.checkpoint_blocks - 1), geometry.checkpoint[1]);
}

#[test]
fn layouts_from_small_to_large_are_valid_and_lean() {
    for shift in 23..=45 {
        let device_bytes = 1_u64 << shift;
        let geometry = Geometry::plan(&options(device_bytes)).unwrap();
        check(&geometry);
        let slots = u64::from(geometry.slots) * u64::from(geometry.weu_bytes);
        // Outside of the slots: 1.5 %, plus fixed sizes and alignment losses.
        let fixed = (512 << 10) + 2 * u64::from(geometry.weu_bytes);
        assert!(device_bytes - slots <= device_bytes * 15 / 1000 + fixed, "overhead at 2^{shift}");
        assert_eq!(geometry.index_capacity, device_bytes / 8192 * 4);
    }
    // 32 TiB in 2 MiB units is the maximum number of slots.
    let huge = Geometry::plan(&options(64 << 40)).unwrap();
    assert_eq!(huge.slots, limits::SLOTS_MAX);
    huge.validate().unwrap();
}

#[test]
fn a_terabyte_is_laid_out_as_documented() {
    let geometry = Geometry::plan(&options(1 << 40)).unwrap();
    assert_eq!(geometry.journal_blocks, 1 << 18);
    // 1/192 of the device for each checkpoint area: 1.75 records for each raw extent, less the header.
    assert_eq!(geometry.checkpoint_blocks, (1 << 40) / 192 / BLOCK);
    let per_raw_extent_in_hundredths =
        geometry.checkpoint_records_max() * 100 / (geometry.index_capacity / 4);
    assert_eq!(per_raw_extent_in_hundredths, 174);
}

#[test]
fn tiny_devices_serve_the_simulator() {
    for (weu_bytes, slots) in [(32_u32 << 10, 8_u64), (32 << 10, 16), (64 << 10, 8), (64 << 10, 16)] {
        let device_bytes = (512 << 10) + slots * u64::from(weu_bytes);
        for journal_blocks in [4, 8] {
            let geometry = Geometry::plan(&PlanOptions {
                weu_bytes,
                extent_bytes: 4 << 10,
                journal_blocks: Some(journal_blocks),
                ..options(device_bytes)
            })
            .unwrap();
            check(&geometry);
            assert_eq!(geometry.journal_blocks, journal_blocks);
            assert!(u64::from(geometry.slots) >= slots, "{} slots", geometry.slots);
        }
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_sentence() {
    let error = Geometry::plan(&options(1 << 20)).unwrap_err();
    let GeometryError::TooSmall { needed_bytes, .. } = error else { panic!("{error}") };
    check(&Geometry::plan(&options(needed_bytes)).unwrap());
    assert!(error.to_string().contains(&needed_bytes.to_string()), "{error}");
    let sizes =
        [(0, 4096), (2 << 20, 0), (8 << 20, 8192), (16 << 10, 4096), (2 << 20, 6000), (128 << 10, 64 << 10)];
    for (weu_bytes, extent_bytes) in sizes {
        let refused = Geometry::plan(&PlanOptions { weu_bytes, extent_bytes, ..options(1 << 30) });
        assert_eq!(refused, Err(GeometryError::Sizes { weu_bytes, extent_bytes }));
    }
    let journal = PlanOptions { journal_blocks: Some(u64::MAX), ..options(1 << 30) };
    assert!(
        matches!(Geometry::plan(&journal), Err(GeometryError::TooSmall { .. })),
        "a journal larger than the device"
    );
}

#[test]
fn slots_begin_where_erase_blocks_do() {
    let geometry = Geometry::plan(&PlanOptions { align_bytes: 16 << 20, ..options(1 << 30) }).unwrap();
    check(&geometry);
    assert_eq!(geometry.slots_offset % (16 << 20), 0);
    let odd = Geometry::plan(&PlanOptions { align_bytes: u64::MAX, ..options(1 << 40) }).unwrap();
    assert_eq!(odd.slots_offset % ALIGN_BYTES_MAX, 0);
    check(&odd);
}

#[test]
fn areas_that_overlap_or_leave_the_device_are_refused() {
    type Spoil = fn(&mut Geometry);
    let spoils: [Spoil; 17] = [
        |g| g.device_bytes -= 4096 * 200,
        |g| g.volume_table[0] = 0,
        |g| g.volume_table[1] = g.volume_table[0],
        |g| g.region_map[0] -= 4096,
        |g| (g.slots, g.slots_offset) = (g.slots - 1, g.slots_offset + 512),
        |g| g.checkpoint.swap(0, 1),
        |g| g.checkpoint_blocks += 1,
        |g| g.checkpoint_blocks = 1,
        |g| g.checkpoint_blocks = u64::MAX,
        |g| g.journal_offset -= 4096,
        |g| g.journal_blocks = 0,
        |g| g.journal_blocks = u64::MAX / 4096,
        |g| g.slots_offset -= 32 << 10,
        |g| g.slots_offset = u64::MAX - 4095,
        |g| g.slots = 1,
        |g| g.slots = u32::MAX,
        |g| g.index_capacity = u64::MAX,
    ];
    for (i, spoil) in spoils.iter().enumerate() {
        let mut geometry = samples::geometry();
        geometry.validate().unwrap();
        spoil(&mut geometry);
        assert_eq!(geometry.validate(), Err(GeometryError::Overlap), "spoil {i}");
    }
    let mut geometry = samples::geometry();
    geometry.weu_bytes = 3 << 14;
    assert!(matches!(geometry.validate(), Err(GeometryError::Sizes { .. })), "WEU size");
}

#[test]
#[should_panic(expected = "slot20 of 20 slots")]
fn a_slot_beyond_the_last_is_a_bug_of_the_caller() {
    let geometry = samples::geometry();
    assert_eq!(geometry.slot_offset(WeuSlot(geometry.slots)), 0);
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..4096,
        any::<u64>(),
        (0_u32..64).prop_map(|shift| 1 << shift),
        (0_u64..5000).prop_map(|n| n * 4096)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_plan_is_an_error_or_valid(
        device_bytes in number(), weu_shift in 14_u32..24, extent_shift in 11_u32..19, align_bytes in number(),
        journal_blocks in proptest::option::of(number()),
    ) {
        let options = PlanOptions {
            device_bytes,
            weu_bytes: 1 << weu_shift,
            extent_bytes: 1 << extent_shift,
            align_bytes,
            journal_blocks,
        };
        if let Ok(geometry) = Geometry::plan(&options) {
            check(&geometry);
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_valid_geometry(
        words in proptest::collection::vec(number(), 16), kept in proptest::collection::vec(any::<bool>(), 16),
    ) {
        let mut bytes = [0; GEOMETRY_BYTES];
        samples::geometry().encode(&mut bytes);
        for ((word, kept), chunk) in words.iter().zip(kept).zip(bytes.chunks_exact_mut(8)) {
            if !kept {
                chunk.copy_from_slice(&word.to_le_bytes());
            }
        }
        if let Ok(geometry) = Geometry::decode(&bytes, Salt::NONE) {
            let last = geometry.slot_offset(WeuSlot(geometry.slots - 1)) + u64::from(geometry.weu_bytes);
            prop_assert!(last <= geometry.device_bytes - END_BYTES);
            prop_assert!(geometry.journal_block_offset(JournalSeq(u64::MAX)) < geometry.slots_offset);
        }
    }
}

#[test]
fn a_journal_device_leaves_the_cache_device_to_the_rest() {
    let inside = Geometry::plan(&options(1 << 30)).unwrap();
    let geometry = Geometry::plan_with_journal_device(&options(1 << 30), 8 << 20).unwrap();
    geometry.validate().unwrap();
    let mut bytes = [0; GEOMETRY_BYTES];
    geometry.encode(&mut bytes);
    assert_eq!(Geometry::decode(&bytes, Salt::NONE).as_ref(), Ok(&geometry));
    assert!(geometry.has_journal_device() && !inside.has_journal_device());
    assert_eq!(geometry.journal_blocks, (8 << 20) / BLOCK - 1);
    assert!(geometry.slots >= inside.slots);
    let first = geometry.journal_block_offset(JournalSeq(geometry.journal_blocks));
    assert_eq!(first - JOURNAL_DEVICE, BLOCK, "behind the label");
    let last = geometry.journal_block_offset(JournalSeq(geometry.journal_blocks - 1));
    assert_eq!(last - JOURNAL_DEVICE + BLOCK, 8 << 20);
    for wrong in [JOURNAL_DEVICE, JOURNAL_DEVICE + 2 * BLOCK, u64::MAX - BLOCK + 1] {
        assert!(Geometry { journal_offset: wrong, ..geometry.clone() }.validate().is_err());
    }
    assert!(Geometry { journal_blocks: u64::MAX / BLOCK, ..geometry.clone() }.validate().is_err());
    let small = Geometry::plan_with_journal_device(&options(1 << 30), 64 * BLOCK);
    assert_eq!(
        small,
        Err(GeometryError::JournalTooSmall { device_bytes: 64 * BLOCK, needed_bytes: 65 * BLOCK })
    );
    let least = Geometry::journal_device_bytes(0);
    assert_eq!(Geometry::plan_with_journal_device(&options(1 << 30), least).unwrap().journal_blocks, 64);
}
