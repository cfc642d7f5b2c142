//! Every kind of corruption is detected in the affected structure, and in no other.

use super::*;
use crate::samples_tests::{self as samples, Bytes, image};
use crate::{
    BLOCK as BLOCK_LEN, CheckpointHeader, ExtentHeader, JournalBlock, RegionMap, VolumeTable, WeuHeader,
    decode_checkpoint_block,
};

/// Sequence or generation of every structure of the image, in a fixed order; `None` if invalid.
fn survey(image: &Bytes) -> Vec<(Place, Option<u64>)> {
    let geometry = samples::geometry();
    let bytes = |place: Place| {
        let (offset, len) = place.range(&geometry).unwrap();
        image.at(offset, usize_from_u64(len))
    };
    let mut found = Vec::new();
    for copy in 0..4 {
        let place = Place::Superblock(copy);
        found.push((place, Superblock::decode(bytes(place), copy).ok().map(|s| s.sequence)));
    }
    for copy in 0..2 {
        let place = Place::VolumeTable(copy);
        found
            .push((place, VolumeTable::decode(bytes(place), copy, samples::salt()).ok().map(|t| t.sequence)));
        let place = Place::RegionMap(copy);
        found.push((place, RegionMap::decode(bytes(place), copy, samples::salt()).ok().map(|m| m.sequence)));
        let place = Place::CheckpointHeader(copy);
        let header =
            CheckpointHeader::decode(bytes(place), copy, geometry.checkpoint_blocks, samples::salt()).ok();
        found.push((place, header.map(|h| h.sequence)));
        for block in 0..2 {
            let place = Place::CheckpointBlock { area: copy, block };
            let checkpoint = 9 + 2 + zc_core::u64_from_usize(copy);
            let records = decode_checkpoint_block(bytes(place), checkpoint, block, samples::salt());
            found.push((place, records.ok().map(|_| checkpoint)));
        }
    }
    for sequence in 24..29 {
        let place = Place::JournalBlock(JournalSeq(sequence));
        let block = JournalBlock::decode(bytes(place), JournalSeq(sequence), samples::salt()).ok();
        found.push((place, block.map(|b| b.session)));
    }
    for slot in (0..geometry.slots).map(WeuSlot) {
        let place = Place::WeuHeader(slot);
        let weu =
            WeuHeader::decode(bytes(place), slot, samples::WEU_BYTES, samples::EXTENT_BYTES, samples::salt())
                .ok();
        found.push((place, weu.map(|w| u64::from(w.generation.0))));
        let mut expected = samples::expected(&samples::extent_header(slot.0, 100), 0);
        expected.generation.0 += 1;
        expected.weu_seq.0 += 1 << 20;
        let offset = geometry.slot_offset(slot);
        let extent = ExtentHeader::verify(image.at(offset, BLOCK_LEN), &expected).ok();
        found.push((Place::InlineHeader(slot), extent.map(|e| u64::from(e.header.generation.0))));
    }
    found
}

/// Places whose survey entry shows corruption of `place`.
fn shows_at(place: Place) -> Vec<Place> {
    match place {
        Place::ExtentBody(slot) => vec![Place::InlineHeader(slot)],
        Place::Slot(slot) => vec![Place::WeuHeader(slot), Place::InlineHeader(slot)],
        other => vec![other],
    }
}

fn changed(damage: Damage, seed: u64) -> Vec<(Place, Option<u64>)> {
    let geometry = samples::geometry();
    let (mut image, mut older) = (image(1), image(0));
    let before = survey(&image);
    assert!(before.iter().all(|(_, found)| found.is_some()), "the image is whole");
    apply(&damage.plan(&geometry, seed), &mut image, &mut older).unwrap();
    let after = survey(&image);
    after.into_iter().zip(before).filter(|(now, then)| now != then).map(|(now, _)| now).collect()
}

fn all_places() -> Vec<Place> {
    let mut places: Vec<_> = (0..4).map(Place::Superblock).collect();
    for copy in 0..2 {
        places.extend([Place::VolumeTable(copy), Place::RegionMap(copy), Place::CheckpointHeader(copy)]);
        places.push(Place::CheckpointBlock { area: copy, block: 0 });
    }
    places.extend((24..29).map(|sequence| Place::JournalBlock(JournalSeq(sequence))));
    for slot in [0, samples::geometry().slots - 1].map(WeuSlot) {
        places.extend([Place::WeuHeader(slot), Place::InlineHeader(slot), Place::ExtentBody(slot)]);
    }
    places
}

#[test]
fn flips_and_zeros_are_noticed_exactly_where_they_are() {
    for place in all_places() {
        for seed in 0..20 {
            let expected: Vec<_> = shows_at(place).into_iter().map(|place| (place, None)).collect();
            assert_eq!(changed(Damage::At(place, Effect::Flip), seed), expected, "{place} seed {seed}");
        }
        let expected: Vec<_> = shows_at(place).into_iter().map(|place| (place, None)).collect();
        assert_eq!(changed(Damage::At(place, Effect::Zero), 0), expected, "{place}");
    }
}

#[test]
fn swapped_structures_are_noticed_in_both_places() {
    let geometry = samples::geometry();
    for place in all_places() {
        // The two compared checkpoint blocks hold the same records, and payloads are equal: only their binding detects
        // the swap.
        let found = changed(Damage::At(place, Effect::Swap), 0);
        if matches!(place, Place::ExtentBody(_)) {
            assert_eq!(found, [], "equal payloads of two slots");
            continue;
        }
        let mut expected = shows_at(place);
        expected.extend(shows_at(place.neighbour(&geometry)));
        expected.retain(|place| *place != Place::JournalBlock(JournalSeq(29)));
        let mut places: Vec<_> = found.iter().map(|(place, _)| *place).collect();
        places.sort_by_key(|place| format!("{place:?}"));
        expected.sort_by_key(|place| format!("{place:?}"));
        assert_eq!(places, expected, "{place}");
        assert!(found.iter().all(|(_, found)| found.is_none()), "{place}");
    }
}

#[test]
fn swapped_slots_are_noticed_in_header_and_extents() {
    let found = changed(Damage::At(Place::Slot(WeuSlot(1)), Effect::Swap), 0);
    let both = [WeuSlot(1), WeuSlot(2)];
    let expected: Vec<_> = both
        .iter()
        .flat_map(|slot| [(Place::WeuHeader(*slot), None), (Place::InlineHeader(*slot), None)])
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_rolled_back_structure_is_whole_but_shows_its_age() {
    let age = |place| changed(Damage::At(place, Effect::RollBack), 0);
    let superblock = samples::superblock().sequence;
    assert_eq!(age(Place::Superblock(3)), [(Place::Superblock(3), Some(superblock))]);
    assert_eq!(age(Place::RegionMap(1)), [(Place::RegionMap(1), Some(9))]);
    assert_eq!(age(Place::VolumeTable(0)), [(Place::VolumeTable(0), Some(7))]);
    assert_eq!(age(Place::CheckpointHeader(1)), [(Place::CheckpointHeader(1), Some(10))]);
    // Its blocks are bound to the checkpoint, journal blocks to their number, extents to the generation.
    let block = Place::CheckpointBlock { area: 0, block: 0 };
    assert_eq!(age(block), [(block, None)]);
    let block = Place::JournalBlock(JournalSeq(24));
    assert_eq!(age(block), [(block, None)]);
    let generation = u64::from(samples::extent_header(1, 100).generation.0);
    let slot = WeuSlot(1);
    let whole = [(Place::WeuHeader(slot), Some(generation)), (Place::InlineHeader(slot), None)];
    assert_eq!(age(Place::Slot(slot)), whole);
    assert_eq!(age(Place::WeuHeader(slot)), [(Place::WeuHeader(slot), Some(generation))]);
    assert_eq!(age(Place::InlineHeader(slot)), [(Place::InlineHeader(slot), None)]);
}

#[test]
fn a_tear_leaves_the_second_half_old() {
    let geometry = samples::geometry();
    let new = image(1);
    let slot = WeuSlot(1);
    // A slot's body is in its first half, its header in the second: an old header over a new body.
    let generation = u64::from(samples::extent_header(1, 100).generation.0);
    let found = changed(Damage::At(Place::Slot(slot), Effect::Tear), 0);
    assert_eq!(found, [(Place::WeuHeader(slot), Some(generation))]);
    let (mut torn, mut older) = (new.clone(), image(0));
    apply(&Damage::At(Place::Slot(slot), Effect::Tear).plan(&geometry, 0), &mut torn, &mut older).unwrap();
    let (start, half) = (geometry.slot_offset(slot), usize_from_u64(u64::from(samples::WEU_BYTES) / 2));
    let middle = start + u64::from(samples::WEU_BYTES) / 2;
    assert_eq!(torn.at(start, half), new.at(start, half));
    assert_eq!(torn.at(middle, half), older.at(middle, half));
}

#[test]
fn every_damage_is_planned_inside_its_structure() {
    let geometry = samples::geometry();
    let all = Damage::every(&geometry, 7);
    assert_eq!(all, Damage::every(&geometry, 7));
    assert_eq!(all.len(), 51);
    for damage in &all {
        let patches = damage.plan(&geometry, 3);
        assert!(!patches.is_empty(), "{damage}");
        for patch in patches {
            assert!(patch.offset_bytes < geometry.device_bytes, "{damage}");
        }
    }
    let names: Vec<_> = all.iter().map(ToString::to_string).collect();
    assert!(names.iter().enumerate().all(|(i, name)| !names[..i].contains(name)), "names are distinct");
    assert_eq!(Damage::At(Place::Superblock(4), Effect::Zero).plan(&geometry, 0), []);
    assert_eq!(Damage::At(Place::Slot(WeuSlot(geometry.slots)), Effect::Swap).plan(&geometry, 0), []);
}

#[test]
fn a_cut_off_device_loses_the_superblocks_at_its_end() {
    let geometry = samples::geometry();
    let len_bytes = geometry.slot_offset(WeuSlot(geometry.slots - 1));
    let lost: Vec<_> =
        changed(Damage::Truncate { len_bytes }, 0).into_iter().map(|(place, _)| place).collect();
    let last = WeuSlot(geometry.slots - 1);
    let expected =
        [Place::Superblock(2), Place::Superblock(3), Place::WeuHeader(last), Place::InlineHeader(last)];
    assert_eq!(lost, expected);
}
