//! Stored extents whose checksum is right and whose content is not that of their fingerprint.

use zc_cache::seam::Event;
use zc_core::{Codec, ErrorKind, ExtentKey, ExtentNo, Fingerprint, Generation, VolumeId, WeuSeq, WeuSlot};
use zc_format::ExtentHeader;

use crate::world::{Shape, V, W, World, noise};
use crate::write_back::{E, Twin};

/// Puts `other` where the device has `bytes`, which do not compress, with their header and a checksum that is right.
pub(crate) fn forge(world: &mut World, bytes: &[u8], other: &[u8]) {
    let found = (0..world.slots()).find_map(|slot| {
        let stored = world.slot_bytes(WeuSlot(slot));
        let at = stored.windows(bytes.len()).position(|window| window == bytes)?;
        Some((WeuSlot(slot), at - 64))
    });
    let (slot, at) = found.expect("they are on the device");
    let salt = world.geometry.salt;
    let stored = world.slot_bytes(slot);
    let word = |place: usize| u32::from_le_bytes(stored[at + place..at + place + 4].try_into().unwrap());
    let long = |place: usize| u64::from_le_bytes(stored[at + place..at + place + 8].try_into().unwrap());
    let mut print = [0; 32];
    print[..24].copy_from_slice(&stored[at + 40..at + 64]);
    let header = ExtentHeader {
        slot,
        generation: Generation(word(8)),
        weu_seq: WeuSeq(long(16)),
        stored_bytes: word(12),
        raw_bytes: word(36),
        first_sector: 0,
        key: ExtentKey { volume: VolumeId(stored[at + 32].into()), extent: ExtentNo(long(24)) },
        codec: Codec::Raw,
        fingerprint: Fingerprint(print),
    };
    header.seal(u32::try_from(at).unwrap(), other, &mut stored[at..at + 64 + other.len()], salt);
}

/// Dirty and flushed at 0, on the device alone; another content lies there.
fn forged_dirty(shape: Shape) -> Twin {
    let mut t = Twin::new(shape);
    t.write(0, &noise(1, 8192));
    t.flush();
    t.world = t.world.restart(false);
    forge(&mut t.world, &noise(1, 8192), &noise(9, 8192));
    t
}

#[test]
fn a_dirty_content_that_is_another_one_does_not_reach_the_origin() {
    let mut t = forged_dirty(Shape::default());
    t.world.event(Event::Destage { volume: V });
    (0..50).for_each(|_| t.world.tick(100));
    assert!(t.world.origins[&V][..8192].iter().all(|byte| *byte == 0));
    let state = t.world.manager.dirty(V).unwrap();
    assert_eq!((state.stuck_offset_bytes, state.stuck_bytes), (0, 8192));
    forge(&mut t.world, &noise(9, 8192), &noise(1, 8192));
    (0..200).for_each(|_| t.world.tick(100));
    t.clean();
    assert!(t.world.origins[&V] == t.twin);
}

#[test]
fn the_scrub_finds_a_content_that_is_another_one() {
    let mut t = forged_dirty(Shape { scrub_interval_ms: 2000, idle_ms: 3_600_000, ..Shape::default() });
    (0..45).for_each(|_| t.world.tick(100));
    assert_eq!(t.world.manager.dirty(V).unwrap().unreadable_bytes, 8192);
    assert_eq!(t.world.stat("dirty_unreadable"), 1);
}

#[test]
fn a_read_of_dirty_data_that_is_another_content_fails() {
    let mut t = forged_dirty(Shape { prove_hits: 1, idle_ms: 3_600_000, ..Shape::default() });
    assert_eq!(t.world.try_read(V, 0, 8192), Err(ErrorKind::Io));
    assert_eq!(t.world.try_read(V, 512, 512), Err(ErrorKind::Io));
}

#[test]
fn a_clean_content_that_is_another_one_is_a_miss() {
    let mut world = World::new(Shape { prove_hits: 1, ..Shape::default() });
    for extent in 0..2_u64 {
        world.write(V, extent * E, &noise(1 + extent, 8192));
    }
    world.stop();
    world = world.restart(true);
    forge(&mut world, &noise(1, 8192), &noise(2, 8192));
    assert!(world.read(V, 0, 512) == noise(1, 8192)[..512]);
    assert_eq!((world.stat("failed_hits"), world.stat("proved_hits")), (1, 1));
    assert!(world.read(V, E, 8192) == noise(2, 8192));
    assert_eq!((world.stat("failed_hits"), world.stat("proved_hits")), (1, 2));
}

#[test]
fn one_read_in_so_many_has_to_prove_its_content() {
    let mut world = World::new(Shape { prove_hits: 4, ..Shape::default() });
    (0..10_u64).for_each(|extent| world.write(V, extent * E, &noise(extent, 8192)));
    world.stop();
    world = world.restart(true);
    (0..10_u64).for_each(|extent| drop(world.read(V, extent * E, 512)));
    assert_eq!((world.stat("verified_hits"), world.stat("proved_hits")), (10, 2));
}

#[test]
fn dirty_data_shares_no_content_of_an_earlier_session_that_is_another_one() {
    let mut t = Twin::new(Shape::default());
    t.world.write(W, 0, &noise(1, 8192));
    t.world.stop();
    t.world = t.world.restart(true);
    t.world.configure(crate::write_back::write_back());
    forge(&mut t.world, &noise(1, 8192), &noise(9, 8192));
    t.write(E, &noise(1, 8192));
    t.flush();
    assert_eq!((t.world.stat("dirty_proofs"), t.world.stat("dirty_shared")), (1, 0));
    t.check(E, E);
}
