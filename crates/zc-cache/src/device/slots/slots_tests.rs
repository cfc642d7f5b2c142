//! Tests of slots, classes and policy together.

use zc_core::{FingerprintKind, Generation, VolumeId, WeuSeq, WeuSlot};
use zc_format::{Geometry, PlanOptions};

use super::*;

const V: VolumeId = VolumeId(1);

fn slots() -> Slots {
    let options = PlanOptions {
        device_bytes: 2 << 20,
        weu_bytes: 32 << 10,
        extent_bytes: 4096,
        align_bytes: 0,
        journal_blocks: Some(4),
    };
    let geometry = Geometry::plan(&options).unwrap();
    Slots::new(&ManagerConfig::new(geometry, FingerprintKind::Blake3, 1024))
}

/// Opens a unit of the default class in a slot.
fn open(slots: &mut Slots) -> (WeuSlot, Generation) {
    let slot = WeuSlot(u32::try_from(slots.table().free_len()).unwrap());
    slots.table_mut().release(slot);
    let opened = slots.table_mut().open(WeuSeq(7)).unwrap();
    slots.join(opened.0, ClassId::DEFAULT);
    opened
}

#[test]
fn a_unit_counts_in_one_class_until_it_leaves() {
    let mut slots = slots();
    let (slot, _) = open(&mut slots);
    assert_eq!(slots.classes().units(ClassId::DEFAULT), 1);
    slots.join(slot, ClassId::KEPT);
    assert_eq!((slots.classes().units(ClassId::DEFAULT), slots.kept_units()), (0, 1));
    assert!(slots.may_keep_in(slot));
    slots.leave(slot);
    slots.leave(slot);
    assert_eq!((slots.classes().units(ClassId::DEFAULT), slots.kept_units()), (0, 0));
    assert!(!slots.may_keep_in(slot) && slots.table().get(slot).class().is_none());
}

#[test]
fn a_unit_holds_one_generation_and_dirty_data_pins_it() {
    let mut slots = slots();
    let (slot, generation) = open(&mut slots);
    assert!(slots.holds(slot, generation) && !slots.holds(slot, Generation(generation.0 + 1)));
    slots.add_dirty(V, slot, true);
    assert!(slots.table().is_pinned(slot) && slots.dirty().contains(slot));
    slots.join_found(slot, |_| panic!("a unit with dirty data is in the default class"));
    assert_eq!(slots.classes().units(ClassId::DEFAULT), 1);
}

#[test]
fn a_search_without_success_is_not_repeated_until_something_changes() {
    let mut slots = slots();
    slots.has_no_victim(5);
    assert!(slots.is_without_victim(5) && !slots.is_without_victim(6));
    slots.look_for_victims();
    assert!(!slots.is_without_victim(5));
    slots.want_sweep(true);
    slots.want_sweep(false);
    assert!(slots.is_sweep_urgent(), "one who waits is enough");
    slots.sweep_is_over();
    assert!(!slots.is_sweep_urgent());
}
