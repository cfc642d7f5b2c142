//! The index image: what a clean stop leaves, when a start takes it, and that nothing but time depends on it.

use core::ops::Range;

use zc_cache::startup;
use zc_core::{WeuSlot, usize_from_u32, usize_from_u64};
use zc_format::{BLOCK, ImageDirectory, ImageHead, ImagePiece, Superblock};

use crate::EXTENT;
use crate::world::{Shape, V, W, World, half};

/// A cache that has stopped in order, with contents of its own, shared ones, and zeros; some were overwritten.
fn stopped() -> World {
    let mut world = World::new(Shape { slots: 32, volume_bytes: 32 << 20, ..Shape::default() });
    // So that the area has room for it.
    (world.config.file_index_entries, world.config.fingerprint_index_entries) = (1024, 1024);
    let mut world = world.restart(false);
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    world.write(V, 0, &image);
    world.write(W, 0, &image);
    world.write(V, 1 << 20, &vec![0; 64 << 10]);
    world.write(V, 0, &half(900, 8192));
    world.stop();
    assert!(world.stopped == Some(true) && world.manager.index_image() > 0);
    world
}

/// Reads what the cache holds, without the origins.
pub(crate) fn all_is_there(world: &mut World) {
    world.tick(1);
    assert!(world.manager.is_loaded());
    world.origin_reads.clear();
    world.read(V, 0, 512 << 10);
    world.read(W, 0, 512 << 10);
    world.read(V, 1 << 20, 64 << 10);
    assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
}

/// Whether the start took the image, refused it, and how many headers it read.
pub(crate) fn start_of(world: &World) -> (u64, u64, bool) {
    (world.stat("load_by_image"), world.stat("load_image_refused"), world.stat("load_headers") > 0)
}

/// Damages the last piece of the image: that is found when all others have been read.
pub(crate) fn damage_the_last_piece(world: &mut World) {
    let found = Found::of(world);
    let (_, last) = found.piece(found.head.pieces() - 1);
    world.device.0[last.start + 70] ^= 1;
}

/// Where the image is.
fn area(world: &World) -> usize {
    let salt = world.geometry().salt;
    let is_head = |area: &usize| {
        let at = usize_from_u64(world.geometry().image_block_offset(*area, 0));
        ImageHead::decode(&world.device.0[at..at + BLOCK], *area, u64::MAX, salt).is_ok()
    };
    (0..2).find(is_head).expect("there is an image")
}

/// The image that lies there.
struct Found {
    /// Where its area begins.
    at: usize,
    head: ImageHead,
    directory: ImageDirectory,
}

impl Found {
    fn of(world: &World) -> Self {
        let (area, salt) = (area(world), world.geometry().salt);
        let at = usize_from_u64(world.geometry().image_block_offset(area, 0));
        let head = ImageHead::decode(&world.device.0[at..], area, u64::MAX, salt).unwrap();
        let blocks = usize_from_u32(head.directory().blocks);
        let bytes = &world.device.0[at + BLOCK..at + BLOCK + blocks * BLOCK];
        let directory = ImageDirectory::decode(&head, bytes, u64::MAX, salt).unwrap();
        Self { at, head, directory }
    }

    /// A piece, and where it lies on the device.
    fn piece(&self, number: u64) -> (ImagePiece, Range<usize>) {
        let place = self.directory.place(number).unwrap();
        let start = self.at + usize_from_u64(place.first_block) * BLOCK;
        (self.head.piece(number).unwrap(), start..start + usize_from_u32(place.blocks) * BLOCK)
    }
}

#[test]
fn a_start_after_a_clean_stop_reads_the_image_and_no_header() {
    let mut world = stopped().restart(true);
    all_is_there(&mut world);
    assert_eq!(start_of(&world), (1, 0, false));
    // Mappings from the image are evicted, shared and overwritten like those from a header.
    let loaded = world.stat("load_mappings");
    (0..2400).for_each(|at| world.write(V, (at + 256) * EXTENT, &half(at + 1000, 8192)));
    world.write(V, 3 * EXTENT, &half(901, 8192));
    world.read(V, 0, 512 << 10);
    world.read(W, 0, 512 << 10);
    assert!(loaded >= 2 * 64 + 8 && world.stat("evictions") > 0, "{loaded} mappings");
    assert_eq!(world.stat("evictions_headerless"), 0);
    world.stop();
    let mut world = world.restart(true);
    world.tick(1);
    world.read(V, 0, 512 << 10);
    assert_eq!(start_of(&world), (1, 0, false), "one start after the other");
    world.stop();
}

#[test]
fn a_session_that_is_cut_off_leaves_no_image_though_one_lies_there() {
    let world = stopped().restart(true);
    assert_eq!(start_of(&world).0, 1);
    let mut world = world.restart(false);
    world.tick(1);
    assert_eq!(start_of(&world), (0, 0, true), "the area still has it");
    area(&world);
    all_is_there(&mut world);
    world.stop();
}

#[test]
fn damage_anywhere_in_the_image_is_found_and_headers_are_read() {
    let mut world = stopped();
    for number in 0..Found::of(&world).head.pieces() {
        let (_, place) = Found::of(&world).piece(number);
        world.device.0[place.start + 70] ^= 1;
        world = world.restart(true);
        all_is_there(&mut world);
        assert_eq!(start_of(&world), (0, 1, true), "piece {number}");
        world.stop();
    }
    // A damaged head is none.
    let at = usize_from_u64(world.geometry().image_block_offset(area(&world), 0));
    world.device.0[at + 20] ^= 1;
    let mut world = world.restart(true);
    all_is_there(&mut world);
    assert_eq!(start_of(&world), (0, 0, true));
    world.stop();
}

#[test]
fn an_image_that_the_superblock_of_a_later_session_names_is_not_its_own() {
    let mut world = stopped();
    // A program that does not know images leaves its field as it was, one that knows them never does.
    let (next, image) = (world.manager.journal_next(), world.manager.index_image());
    let mut later = world.superblock.clone();
    later.session += 1;
    startup::mark_clean(&mut world.device, &later, next, image).unwrap();
    let mut world = world.restart(false);
    all_is_there(&mut world);
    assert_eq!(start_of(&world), (0, 0, true));
    world.stop();
    // A journal that continues after it is replayed, too.
    world.append_journal(Vec::new());
    let mut world = world.restart(true);
    world.tick(1);
    assert_eq!(start_of(&world), (0, 0, true));
    world.stop();
}

#[test]
fn another_size_of_the_indexes_or_a_volume_without_trust_needs_headers() {
    // Buckets of a smaller index would fit into a larger one, where nothing finds them.
    let mut world = stopped();
    world.config.file_index_entries += 4096;
    let mut world = world.restart(true);
    all_is_there(&mut world);
    assert_eq!(start_of(&world), (0, 1, true));
    world.stop();
    let mut world = stopped();
    world.config.file_index_entries -= 512;
    let mut world = world.restart(true);
    all_is_there(&mut world);
    assert_eq!(start_of(&world), (0, 1, true));
    world.stop();
    let mut world = world.restart_trusting(W, false);
    world.tick(1);
    assert_eq!(start_of(&world), (0, 1, true));
    world.origin_reads.clear();
    world.read(V, 0, 512 << 10);
    assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
    world.read(W, 0, 512 << 10);
    assert!(!world.origin_reads.is_empty());
    world.stop();
}

#[test]
fn a_slot_that_changed_after_the_image_is_no_part_of_it() {
    let mut world = stopped();
    // The unit is another one by journal, which the image does not know.
    let (found, salt) = (Found::of(&world), world.geometry().salt);
    let (piece, place) = found.piece(1);
    let bytes = &mut world.device.0[place];
    let mut units = found.head.decode_piece(&piece, bytes, salt).unwrap().to_vec();
    units[8] ^= 1;
    bytes.copy_from_slice(&found.head.encode_piece(&piece, &units, salt));
    let mut world = world.restart(true);
    all_is_there(&mut world);
    assert_eq!(start_of(&world), (0, 1, true));
    world.stop();
}

#[test]
fn what_is_written_while_the_image_is_read_is_newer() {
    let mut world = stopped().restart_reading();
    assert!(!world.manager.is_loaded(), "the image is being read");
    world.write(V, 5 * EXTENT, &half(700, 8192));
    world.write(W, 6 * EXTENT, &vec![0; 8192]);
    world.write(V, 1 << 20, &half(701, 8192));
    world.read(V, 7 * EXTENT, EXTENT);
    world.end_image_reads();
    world.tick(1);
    assert_eq!(start_of(&world), (1, 0, false));
    world.read(V, 0, 512 << 10);
    world.read(W, 0, 512 << 10);
    world.read(V, 1 << 20, 64 << 10);
    world.stop();
    // So it is on media.
    let mut world = world.restart(true).restart(false);
    world.tick(1);
    world.read(V, 0, 512 << 10);
    world.read(W, 0, 512 << 10);
    world.read(V, 1 << 20, 64 << 10);
    world.stop();
}

#[test]
fn what_is_stored_while_an_image_is_read_that_is_refused_is_newer() {
    let mut world = stopped();
    damage_the_last_piece(&mut world);
    let mut world = world.restart_reading();
    // The directory, and then the slots.
    world.end_an_image_read();
    world.end_an_image_read();
    // Slots are free now. What the checkpoint calls duplicates is stored once more.
    world.read(W, 0, 512 << 10);
    world.end_image_reads();
    world.tick(1);
    assert_eq!(start_of(&world), (0, 1, true));
    world.write(W, 21 * EXTENT, &half(700, 8192));
    world.manager.leave_no_image();
    world.stop();
    let mut world = world.restart(true);
    world.tick(1);
    assert_eq!(start_of(&world), (0, 0, true));
    world.read(W, 0, 512 << 10);
    world.stop();
}

#[test]
fn a_header_that_rotted_is_not_missed_until_its_extents_are_read() {
    let mut world = stopped();
    (0..world.slots()).for_each(|slot| world.slot_bytes(WeuSlot(slot)).fill(0));
    let mut world = world.restart(true);
    world.tick(1);
    assert_eq!(start_of(&world).0, 1);
    world.read(V, 0, 512 << 10);
    world.read(W, 0, 512 << 10);
    assert!(world.stat("failed_hits") > 0);
    world.stop();
}

#[test]
fn a_stop_without_an_image_names_none() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 128 << 10));
    world.manager.leave_no_image();
    world.stop();
    assert_eq!((world.stopped, world.manager.index_image()), (Some(true), 0));
    let world = world.restart(true);
    assert_eq!(start_of(&world), (0, 0, true));
    let Superblock { index_image, clean, .. } = world.superblock;
    assert_eq!((index_image, clean), (0, false));
}
