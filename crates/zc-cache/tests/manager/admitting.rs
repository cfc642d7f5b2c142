//! What enters where the manager chooses: all, or read misses at their second time.

use crate::world::{Shape, V, World, noise, volume};
use zc_cache::config::{Admission, VolumeConfig};

const E: u64 = 8 << 10;
/// Extents that fit the cache, about two thirds of it.
const USED: u64 = 300;
/// Extents of the volume: a scan ends before it begins anew, because the cache remembers what it saw of it.
const ALL: u64 = 12_900;

/// A full cache of a volume that has different bytes everywhere.
fn world(admission: Admission) -> World {
    let volume_bytes = ALL * E;
    let mut world = World::new(Shape { volume_bytes, ..Shape::default() });
    let bytes: Vec<u8> = (0..ALL).flat_map(|at| noise(at, 8 << 10)).collect();
    world.origins.get_mut(&V).unwrap().copy_from_slice(&bytes);
    world.configure(VolumeConfig { admission, ..volume(V, volume_bytes) });
    world
}

fn read(world: &mut World, extent: u64) {
    drop(world.read(V, extent * E, E));
}

/// Extents that a scan of new ones brings into the cache, after so many reads of what is in use, with two of a scan
/// after each.
fn entered(admission: Admission, reads: u64) -> u64 {
    let mut world = world(admission);
    let mut state = 1_u64;
    for at in 0..reads {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        read(&mut world, (state >> 33) % USED);
        // Steps of seven make no stream.
        for scanned in [2 * at, 2 * at + 1] {
            read(&mut world, USED + scanned * 7 % (ALL / 2 - USED));
        }
    }
    world.tick(2000);
    let before = world.stat("insert_stored");
    for at in 0..200 {
        read(&mut world, ALL / 2 + at * 7);
    }
    world.tick(2000);
    let entered = world.stat("insert_stored") - before;
    world.stop();
    entered
}

#[test]
fn scans_stay_out_when_that_brings_hits_and_not_before() {
    assert_eq!(entered(Admission::Always, 3000), 200);
    assert_eq!(entered(Admission::SecondTouch, 3000), 0);
    assert_eq!(entered(Admission::Auto, 3000), 0, "the scan drove out what was in use");
    assert_eq!(entered(Admission::Auto, 300), 200, "nothing is known yet");
}
