//! Contents that the manager reports to drivers.

use zc_cache::config::{VolumeConfig, WriteBackConfig};
use zc_cache::seam::Digest;
use zc_core::{Codec, ExtentKey, ExtentNo, Mode, VolumeId};

use crate::world::{Shape, V, W, World, half, volume};

const E: u64 = 8 << 10;

fn extents(world: &World) -> Vec<(VolumeId, u64)> {
    world.learned.iter().map(|(key, ..)| (key.volume, key.extent.0)).collect()
}

#[test]
fn only_those_who_ask_are_told() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 8 << 10));
    assert_eq!(world.learned, []);
    world.manager.tell_contents(V, true);
    world.write(V, E, &half(2, 8 << 10));
    world.write(W, 0, &half(3, 8 << 10));
    world.tick(100);
    assert_eq!(extents(&world), [(V, 1)]);
    world.manager.tell_contents(V, false);
    world.write(V, 2 * E, &half(4, 8 << 10));
    assert_eq!(extents(&world), [(V, 1)]);
    world.stop();
}

#[test]
fn stored_duplicate_and_zero_contents_are_told() {
    let mut world = World::new(Shape::default());
    world.manager.tell_contents(V, true);
    world.write(V, 0, &half(1, 8 << 10));
    world.write(V, E, &half(1, 8 << 10));
    world.write(V, 2 * E, &vec![0; 8 << 10]);
    world.origins.get_mut(&V).unwrap()[4 * 8192..5 * 8192].copy_from_slice(&half(1, 8192));
    world.read(V, 4 * E, 4096);
    assert_eq!(extents(&world), [(V, 0), (V, 1), (V, 2), (V, 4)]);
    let (_, first, stored) = world.learned[0];
    assert!(matches!(stored, Some((Codec::Lz4, 1..6000))), "{stored:?}");
    assert_eq!(world.learned[1].1, first);
    assert_eq!(world.learned[1].2, None, "a duplicate is not compressed");
    assert_eq!(world.learned[2].1, Digest::Zero);
    assert_eq!(world.learned[3].1, first, "what a miss brought");
    world.read(V, 0, 3 * E);
    assert_eq!(world.learned.len(), 4, "hits tell nothing");
    world.stop();
}

#[test]
fn a_size_is_told_only_if_compressing_was_tried() {
    let mut world = World::new(Shape::default());
    world.configure(VolumeConfig { codec: Codec::Raw, ..volume(V, Shape::default().volume_bytes) });
    world.manager.tell_contents(V, true);
    world.write(V, 0, &half(1, 8 << 10));
    let key = ExtentKey { volume: V, extent: ExtentNo(0) };
    assert!(
        matches!(world.learned[..], [(learned, Digest::Print(_), None)] if learned == key),
        "{:?}",
        world.learned
    );
    world.stop();
}

#[test]
fn what_was_written_over_meanwhile_is_not_told() {
    let mut world = World::new(Shape::default());
    world.manager.tell_contents(V, true);
    world.compressions = Some(Vec::new());
    world.write(V, 0, &half(1, 8 << 10));
    world.write(V, 0, &half(2, 8 << 10));
    for event in world.compressions.take().unwrap() {
        world.event(event);
    }
    let prints: Vec<_> = world.learned.iter().map(|(key, digest, _)| (key.extent.0, *digest)).collect();
    let newest = zc_reduce::fingerprint(
        zc_core::FingerprintKind::Blake3,
        &zc_core::DedupDomain::COMMON,
        &half(2, 8 << 10),
    );
    assert_eq!(prints, [(0, Digest::Print(newest))]);
    world.stop();
}

#[test]
fn dirty_contents_are_told_the_newest_of_an_extent() {
    let mut world = World::new(Shape::default());
    world.configure(VolumeConfig {
        mode: Mode::WriteBack,
        may_be_dirty: true,
        write_back: WriteBackConfig { max_dirty_age_ms: 3_600_000, ..WriteBackConfig::default() },
        ..volume(V, Shape::default().volume_bytes)
    });
    world.manager.tell_contents(V, true);
    world.compressions = Some(Vec::new());
    world.write(V, 0, &half(1, 8 << 10));
    world.write(V, 0, &half(2, 8 << 10));
    world.write(V, 2 * E, &half(3, 512));
    for event in world.compressions.take().unwrap() {
        world.event(event);
    }
    let newest = zc_reduce::fingerprint(
        zc_core::FingerprintKind::Blake3,
        &zc_core::DedupDomain::COMMON,
        &half(2, 8 << 10),
    );
    let learned: Vec<_> = world.learned.iter().map(|(key, digest, _)| (key.extent.0, *digest)).collect();
    assert_eq!(learned, [(0, Digest::Print(newest))]);
    world.stop();
}
