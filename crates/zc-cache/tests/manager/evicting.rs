//! Which unit leaves: the oldest, or one that is mostly dead.

use zc_cache::config::Replacement;

use crate::world::{Shape, V, World, noise};

const E: u64 = 8 << 10;
/// Extents of a unit.
const UNIT: u64 = 31;

fn write(world: &mut World, extents: core::ops::Range<u64>, id: u64) {
    extents.for_each(|at| world.write(V, at * E, &noise(id + at, 8 << 10)));
}

/// Evicts one unit: the oldest is in use, and all of the one after it was written over since. Extents of the oldest that
/// have to be read from the origin then.
fn lost(replacement: Replacement) -> usize {
    let mut world = World::new(Shape { replacement, ..Shape::default() });
    write(&mut world, 0..UNIT, 0);
    write(&mut world, UNIT..2 * UNIT, 1000);
    write(&mut world, UNIT..2 * UNIT, 2000);
    let mut at = 2 * UNIT;
    while world.stat("evictions") == 0 {
        write(&mut world, at..at + 1, 3000);
        at += 1;
        assert!(at < 500, "the cache is full before");
    }
    world.origin_reads.clear();
    (0..UNIT).for_each(|at| drop(world.read(V, at * E, E)));
    let lost = world.origin_reads.len();
    world.stop();
    lost
}

#[test]
fn a_dead_unit_leaves_before_an_older_one_that_is_in_use() {
    assert_eq!(lost(Replacement::CostBenefit), 0);
    assert!(lost(Replacement::Lru) > 20, "the oldest leaves");
}
