//! What operators bring into the cache.

use crate::world::{Shape, V, World, volume};
use zc_cache::config::{Admission, VolumeConfig};
use zc_cache::seam::RequestKind;
use zc_core::{ErrorKind, Mode};

const EXTENT: u64 = 8 << 10;
const MIB: u64 = 1 << 20;

fn world() -> World {
    World::new(Shape { slots: 40, volume_bytes: 4 * MIB, ..Shape::default() })
}

fn warm(world: &mut World, offset_bytes: u64, len_bytes: u64) -> u64 {
    world.submit(V, offset_bytes, len_bytes, RequestKind::Warm)
}

#[test]
fn a_warmed_range_is_hit_whatever_the_admission_says() {
    for admission in [Admission::Never, Admission::SecondTouch, Admission::Auto, Admission::Always] {
        let mut world = world();
        world.configure(VolumeConfig { admission, ..volume(V, 4 * MIB) });
        let req = warm(&mut world, EXTENT + 512, MIB);
        assert_eq!(world.replies.remove(&req).unwrap().0, Ok(()));
        world.tick(1000);
        assert_eq!(world.stat("warmed_extents"), 129, "rounded out to whole extents");
        world.origin_reads.clear();
        world.read(V, EXTENT, 129 * EXTENT);
        assert_eq!(world.origin_reads, vec![], "{admission:?}");
        world.stop();
    }
}

#[test]
fn what_is_cached_is_not_read_again() {
    let mut world = world();
    world.read(V, 4 * EXTENT, 2 * EXTENT);
    world.tick(1000);
    world.origin_reads.clear();
    let _req = warm(&mut world, 0, 8 * EXTENT);
    assert_eq!(world.origin_reads, vec![(0, 4 * 8192), (6 * EXTENT, 2 * 8192)]);
    world.tick(1000);
    let req = warm(&mut world, 0, 8 * EXTENT);
    assert_eq!(world.replies.remove(&req).unwrap().0, Ok(()), "with nothing to read");
    assert_eq!((world.origin_reads.len(), world.stat("warmed_extents")), (2, 6));
    world.stop();
}

#[test]
fn the_answer_comes_when_the_origin_is_read() {
    let mut world = world();
    world.origin_reads_hang = true;
    let first = warm(&mut world, 0, MIB);
    let same = warm(&mut world, 0, MIB);
    assert!(!world.replies.contains_key(&first));
    assert!(world.replies.contains_key(&same), "what is on its way is not read twice");
    // A client that wants it meanwhile waits for the same read.
    let read = world.submit_read(V, 0, EXTENT);
    assert_eq!(world.origin_reads.len(), 1);
    world.end_origin_reads();
    world.is_read(read, V, 0);
    assert_eq!(world.replies.remove(&first).unwrap().0, Ok(()));
    world.stop();
}

#[test]
fn a_write_meanwhile_is_not_overtaken() {
    let mut world = world();
    world.origin_reads_hang = true;
    let _req = warm(&mut world, 0, 2 * EXTENT);
    world.write(V, 0, &[7; 8192]);
    world.end_origin_reads();
    world.origin_reads_hang = false;
    world.tick(1000);
    assert_eq!(world.stat("insert_stale"), 1);
    assert_eq!(world.read(V, 0, EXTENT), vec![7; 8192]);
    world.stop();
}

#[test]
fn there_is_room_until_half_of_the_insertions_are_taken() {
    let mut world =
        World::new(Shape { insert_bytes_max: 1 << 20, volume_bytes: 4 * MIB, ..Shape::default() });
    world.hashes = Some(Vec::new());
    assert!(world.manager.has_room_to_warm(MIB / 2));
    assert!(world.manager.has_room_to_warm(2 * MIB), "alone, whatever its size");
    let _req = warm(&mut world, 0, MIB / 4);
    assert!(world.manager.has_room_to_warm(MIB / 4) && !world.manager.has_room_to_warm(MIB / 4 + EXTENT));
}

#[test]
fn a_volume_in_pass_through_and_an_unknown_one_read_nothing() {
    let mut world = world();
    world.configure(VolumeConfig { mode: Mode::PassThrough, ..volume(V, 4 * MIB) });
    let req = warm(&mut world, 0, MIB);
    assert_eq!(world.replies.remove(&req).unwrap().0, Ok::<(), ErrorKind>(()));
    assert_eq!(world.origin_reads, vec![]);
    world.stop();
}
