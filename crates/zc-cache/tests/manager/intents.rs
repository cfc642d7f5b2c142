//! Restarts with dirty data in the intent log alone.

use zc_cache::seam::Event;
use zc_core::WeuSlot;
use zc_format::Record;

use crate::world::{Shape, V, W, World, noise};
use crate::write_back::{E, Twin, extents};

/// Writes more than the cache holds, into one region.
fn fill(world: &mut World, id: u64) {
    for at in 0..64 {
        world.write(W, at % 4 * 4 * E, &noise(id + at, 4 * (8 << 10)));
        world.tick(20);
    }
    world.tick(2000);
}

fn slot_of_the_dirty_extent(world: &World) -> WeuSlot {
    let slot = |record: &Record| match *record {
        Record::Dirty { slot, .. } => Some(slot),
        _ => None,
    };
    world.intents.iter().find_map(slot).expect("a dirty extent was recorded")
}

#[test]
fn a_body_stays_until_the_journal_has_that_its_epoch_is_clean() {
    let mut t = Twin::new(Shape { slots: 8, weu_bytes: 64 << 10, ..Shape::default() });
    // The first unit is full; a summary in the last one contains its records.
    t.write(0, &extents(1, 40));
    t.flush();
    t.world.tick(100);
    let slot = slot_of_the_dirty_extent(&t.world);
    // It was destaged; the daemon was killed before the journal heard of it.
    t.world.origins.insert(V, t.twin.clone());
    t.world = t.world.restart_killed_told(&[Record::Clean { volume: V, epoch: 1 }]);
    assert_eq!(t.world.manager.dirty(V).unwrap().extents, 0);
    let body = t.world.slot_bytes(slot).to_vec();
    fill(&mut t.world, 100);
    assert!(t.world.stat("evictions") > 0, "other slots are used again");
    assert!(t.world.slot_bytes(slot) == body, "after a power cut the epoch is dirty once more");
    t.world.end_journal_writes(Ok(()));
    fill(&mut t.world, 200);
    assert!(t.world.slot_bytes(slot) != body, "it is kept for ever");
    t.check(0, 40 * E);
}

#[test]
fn the_next_epoch_waits_until_the_journal_has_what_the_intent_log_alone_calls_clean() {
    let mut t = Twin::new(Shape { slots: 8, weu_bytes: 64 << 10, ..Shape::default() });
    t.write(0, &extents(1, 1));
    t.flush();
    let first = t.twin.clone();
    t.write(0, &extents(2, 1));
    t.write(E, &extents(3, 1));
    t.flush();
    t.world.tick(100);
    // The first epoch was destaged; the daemon was killed before the journal recorded that.
    t.world.origins.insert(V, first.clone());
    t.world = t.world.restart_killed_told(&[Record::Clean { volume: V, epoch: 1 }]);
    assert_eq!(t.world.manager.dirty(V).unwrap().extents, 2);
    t.world.event(Event::Destage { volume: V });
    t.world.tick(1000);
    let is_first = t.world.origins[&V] == first;
    assert!(is_first, "after a power cut the first epoch would be written over the second");
    t.world.end_journal_writes(Ok(()));
    t.clean();
    assert!(t.world.origins[&V] == t.twin, "the origin has it all");
}
