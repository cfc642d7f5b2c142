//! The manager's promises, one test each, in a world without faults.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod admitting;
mod bounds;
mod clearing;
mod contents;
mod curve;
mod cutoff;
mod dropping;
mod evicting;
mod failing;
mod forged;
mod golden;
mod hanging;
mod image;
mod intents;
mod kept;
mod late;
mod learned;
mod meetings;
mod neighbours;
mod packing;
mod phases;
mod pinned;
mod pinned_image;
mod proved;
mod removing;
mod rotten;
mod scans;
mod shares;
mod summaries;
mod tenants;
mod warming;
mod world;
mod write_back;

use world::{Shape, V, W, World, half, volume};
use zc_cache::config::VolumeConfig;
use zc_cache::seam::RequestKind;
use zc_cache::{RESIDENCY_EXTENTS_MAX, Residency};
use zc_core::{ErrorKind, FingerprintKind, Mode, WeuSlot};

const EXTENT: u64 = 8 << 10;

#[test]
fn written_extents_are_hits_also_while_their_weu_is_open() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 64 << 10));
    world.origin_reads.clear();
    world.read(V, 0, 64 << 10);
    assert!(world.origin_reads.is_empty());
    world.tick(100);
    world.read(V, 0, 64 << 10);
    assert!(world.device_reads.is_empty(), "on its way, then in the open WEU: served from memory");
    world.tick(1000);
    world.read(V, 0, 64 << 10);
    assert_eq!(world.device_reads.len(), 1);
    world.stop();
}

#[test]
fn a_read_miss_fills_whole_extents() {
    let mut world = World::new(Shape::default());
    world.origins.get_mut(&V).unwrap()[..16384].copy_from_slice(&half(3, 16384));
    world.read(V, 4096, 8192);
    assert_eq!(world.origin_reads, vec![(0, 16384)]);
    world.read(V, 0, 16384);
    assert_eq!(world.origin_reads.len(), 1, "both extents are hits now");
    world.stop();
}

#[test]
fn a_large_hit_of_neighbours_is_one_device_read() {
    let mut world = World::new(Shape::default());
    for at in 0..8 {
        world.write(V, at * (128 << 10), &half(at, 128 << 10));
    }
    world.tick(1000);
    world.tick(1000);
    for at in 0..8 {
        world.device_reads.clear();
        world.read(V, at * (128 << 10), 128 << 10);
        let reads = world.device_reads.len();
        assert!(reads <= 2, "128 KiB took {reads} device reads: a run is cut by a WEU's end at most once");
    }
    world.device_reads.clear();
    world.read(V, 128 << 10, 128 << 10);
    assert_eq!(world.device_reads.len(), 1);
    world.stop();
}

#[test]
fn one_image_on_two_volumes_is_stored_once_and_hits_in_the_second() {
    for kind in [FingerprintKind::Blake3, FingerprintKind::Sha1] {
        let mut world = World::new(Shape { kind, ..Shape::default() });
        let image = half(7, 1 << 20);
        let image: Vec<u8> = image.chunks(8192).zip(0_u64..).flat_map(|(_, n)| half(n + 100, 8192)).collect();
        for (volume, expected) in [(V, 0), (W, 128)] {
            for (chunk, at) in image.chunks(128 << 10).zip(0_u64..) {
                world.write(volume, at * (128 << 10), chunk);
            }
            world.tick(100);
            assert_eq!(world.stat("insert_duplicates"), expected);
        }
        assert_eq!(world.stat("insert_stored"), 128);
        world.origin_reads.clear();
        world.read(W, 0, 1 << 20);
        assert!(world.origin_reads.is_empty());
        assert_eq!(world.stat("compares") > 0, kind == FingerprintKind::Sha1);
        world.stop();
    }
}

#[test]
fn a_request_that_repeats_itself_is_stored_once() {
    let mut world = World::new(Shape::default());
    // All are looked up before the first is placed; the last one's original is in a unit that is full by then.
    let mut bytes = half(0, 8192).repeat(2);
    bytes.extend((1..=200).flat_map(|n| half(n, 8192)));
    bytes.extend(half(0, 8192));
    world.write(V, 0, &bytes);
    world.tick(1000);
    assert!(world.stat("weu_writes") > 0, "the first unit is full");
    assert_eq!((world.stat("insert_stored"), world.stat("insert_duplicates")), (201, 2));
    world.origin_reads.clear();
    world.read(V, 0, zc_core::u64_from_usize(bytes.len()));
    assert!(world.origin_reads.is_empty());
    world.stop();
}

#[test]
fn zeros_are_not_stored() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &vec![0; 1 << 20]);
    world.submit(V, 1 << 20, 1 << 20, RequestKind::WriteZeroes { no_hole: false, fua: false });
    world.origin_reads.clear();
    world.read(V, 0, 2 << 20);
    assert!(world.origin_reads.is_empty());
    assert_eq!(world.stat("insert_stored"), 0);
    world.stop();
}

#[test]
fn partial_overwrites_of_a_cached_set_keep_its_hits() {
    let mut world = World::new(Shape { slots: 40, ..Shape::default() });
    for at in 0..32 {
        world.write(V, at * (128 << 10), &half(at, 128 << 10));
    }
    let mut state = 12345_u64;
    for round in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (state >> 33) % 1024;
        world.write(V, block * 4096, &half(round + 5000, 4096));
        world.tick(3);
    }
    (0..50).for_each(|_| world.tick(20));
    world.origin_reads.clear();
    let before = world.stat("read_hits");
    for extent in 0..512 {
        world.read(V, extent * EXTENT, EXTENT);
    }
    let hits = world.stat("read_hits") - before;
    assert!(hits >= 487, "{hits} of 512 reads hit after partial overwrites");
    assert!(world.stat("merges") > 0);
    world.stop();
}

#[test]
fn small_sequential_writes_complete_extents_in_memory() {
    let mut world = World::new(Shape::default());
    for block in 0..256 {
        world.write(V, block * 4096, &half(block, 4096));
    }
    world.tick(100);
    assert_eq!(world.stat("staged_whole"), 128);
    world.origin_reads.clear();
    world.read(V, 0, 1 << 20);
    assert!(world.origin_reads.is_empty());
    world.stop();
}

#[test]
fn a_full_cache_evicts_whole_weus_and_stays_right() {
    let mut world = World::new(Shape { slots: 6, weu_bytes: 64 << 10, ..Shape::default() });
    for round in 0..6 {
        for at in 0..32 {
            world.write(V, at * (128 << 10), &half(at + 100 * round, 128 << 10));
            world.read(V, (at / 2) * (128 << 10), 128 << 10);
        }
        world.tick(500);
    }
    assert!(world.stat("evictions") > 50);
    for at in 0..32 {
        world.read(V, at * (128 << 10), 128 << 10);
    }
    world.stop();
}

#[test]
fn content_outlives_the_overwrite_of_its_base() {
    let mut world = World::new(Shape::default());
    let content = half(1, 8192);
    world.write(V, 0, &content);
    world.write(W, 0, &content);
    world.write(V, 0, &half(2, 8192));
    world.tick(1000);
    world.origin_reads.clear();
    world.read(W, 0, EXTENT);
    world.read(V, 0, EXTENT);
    assert!(world.origin_reads.is_empty());
    assert!(world.stat("duplicate_outlived_base") > 0);
    world.stop();
}

#[test]
fn a_clean_restart_is_warm_for_bases_duplicates_and_zeros() {
    let mut world = World::new(Shape::default());
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    world.write(V, 0, &image);
    world.write(W, 0, &image);
    world.write(V, 1 << 20, &vec![0; 64 << 10]);
    world.write(V, 0, &half(900, 8192));
    world.stop();
    assert_eq!(world.stopped, Some(true));
    let mut world = world.restart(true);
    image::all_is_there(&mut world);
    world.stop();
}

#[test]
fn after_a_power_cut_only_marked_regions_are_cold() {
    let mut world = World::new(Shape::default());
    for at in 0..16 {
        world.write(V, at * (128 << 10), &half(at, 128 << 10));
    }
    (0..40).for_each(|_| world.tick(100));
    assert_eq!(world.manager.active_regions().0, 0, "idle: all marks are retired");
    world.write(V, 0, &half(77, 8192));
    let marked = world.manager.active_regions().0;
    assert_eq!(marked, 1);
    let mut world = world.restart(false);
    world.tick(1);
    world.origin_reads.clear();
    for at in 0..16 {
        world.read(V, at * (128 << 10), 128 << 10);
    }
    let cold: u64 = world.origin_reads.iter().map(|(_, len)| u64::from(*len)).sum();
    assert_eq!(cold, 64 << 10, "one region of 64 KiB is distrusted");
    world.stop();
}

#[test]
fn what_an_earlier_cache_left_on_the_device_is_not_believed() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 128 << 10));
    world.stop();
    let mut world = world.reformat();
    world.origins.get_mut(&V).unwrap().fill(7);
    world.stop();
    let mut world = world.restart(true);
    world.tick(1);
    world.read(V, 0, 128 << 10);
    assert_eq!(world.stat("read_hits"), 0);
    world.stop();
}

#[test]
fn a_damaged_extent_is_a_miss_and_heals() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 128 << 10));
    world.tick(1000);
    for slot in 0..16 {
        world.slot_bytes(WeuSlot(slot))[5000] ^= 1;
    }
    world.read(V, 0, 128 << 10);
    assert_eq!(world.stat("failed_hits"), 1);
    world.origin_reads.clear();
    world.tick(1000);
    world.read(V, 0, 128 << 10);
    assert!(world.origin_reads.is_empty(), "refetched and inserted again");
    world.stop();
}

#[test]
fn a_stream_of_small_reads_decodes_each_extent_once() {
    let mut world = World::new(Shape { read_buffer_bytes: 1 << 20, ..Shape::default() });
    world.write(V, 0, &half(1, 128 << 10));
    world.tick(1000);
    world.tick(1000);
    for block in 0..256 {
        world.read(V, block * 512, 512);
    }
    assert_eq!(world.stat("verified_hits"), 16, "16 extents of 8 KiB");
    assert_eq!(world.device_reads.len(), 16);
    world.write(V, 0, &half(2, 8192));
    world.read(V, 512, 512);
    world.stop();
}

#[test]
fn read_ahead_serves_a_stream_and_does_not_fill_the_cache_with_what_is_used_once() {
    let mut world = World::new(Shape {
        prefetch_threshold_bytes: 64 << 10,
        prefetch_max_bytes: 128 << 10,
        ..Shape::default()
    });
    let image: Vec<u8> = (0..512).flat_map(|n| half(n, 8192)).collect();
    world.origins.insert(V, image);
    let scan = |world: &mut World| {
        world.origin_reads.clear();
        for at in 0..256 {
            world.read(V, at * (16 << 10), 16 << 10);
        }
        world.tick(1000);
        (world.origin_reads.len(), world.stat("insert_stored"))
    };
    let (reads, stored) = scan(&mut world);
    assert!(reads < 100, "{reads} origin reads for 256 sequential requests");
    assert!(stored < 128, "{stored} of 512 extents stored after one scan");
    assert!(world.stat("prefetched_used") > 300);
    assert_eq!(world.stat("read_hits"), 0, "a first read has no hits, though most of it is read ahead");
    assert_eq!(world.stat("read_misses"), 256);
    let (_, stored) = scan(&mut world);
    assert!(stored > 400, "{stored} of 512 extents stored after the second scan: they were seen before");
    let (reads, _) = scan(&mut world);
    assert!(reads < 10, "{reads} origin reads in the third scan");
    assert!(world.stat("read_hits") > 200, "{} of 256 requests of the third scan", world.stat("read_hits"));
    world.stop();
}

#[test]
fn an_incompressible_stream_is_stored_raw_and_hardly_tried() {
    let mut world = World::new(Shape { slots: 40, volume_bytes: 16 << 20, ..Shape::default() });
    let noise = |id: u64| {
        let mut bytes = Vec::new();
        (0..1024 * 8).for_each(|n| bytes.extend_from_slice(&half(id * 10_000 + n, 8)));
        bytes.resize(64 << 10, 0);
        bytes
    };
    for at in 0..128 {
        world.write(V, at * (64 << 10), &noise(at));
        world.tick(60);
    }
    let (tried, avoided) = (world.stat("compress_tried"), world.stat("compress_avoided"));
    assert_eq!(tried + avoided, 1024);
    assert!(tried < 128 + 1024 / 50, "{tried} of 1024 incompressible extents were tried");
    for at in 128..144 {
        world.write(V, at * (64 << 10), &half(at, 64 << 10));
        world.tick(60);
    }
    let again = world.stat("compress_tried") - tried;
    assert!(again > 0, "compression resumes within 1 MiB");
    world.stop();
}

#[test]
fn a_recipe_turns_a_miss_into_a_hit_without_the_origin() {
    let mut world = World::new(Shape::default());
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    world.write(V, 0, &image);
    world.tick(100);
    world.origins.get_mut(&W).unwrap()[..image.len()].copy_from_slice(&image);
    world.read(W, 0, EXTENT);
    assert!(world.stat("recipes_wanted") > 0, "the first miss asks");
    world.origin_reads.clear();
    world.read(W, EXTENT, 63 * EXTENT);
    assert!(world.origin_reads.is_empty(), "the recipe names contents that volume V has cached");
    assert_eq!(world.stat("recipe_hits"), 63);
    assert_eq!(world.stat("recipes_wanted"), 2, "one question for the run, one for the next");
    world.write(W, 2 * EXTENT, &half(999, 8192));
    world.read(W, 2 * EXTENT, EXTENT);
    world.stop();
}

/// The second volume has read `image`, its data has been evicted, and the first one has the same contents since.
fn learned(image: &[u8]) -> World {
    learned_with(image, Shape::default().header_prints_max)
}

/// A world as of [`learned`], with memory for so many fingerprints of headers.
fn learned_with(image: &[u8], header_prints_max: u32) -> World {
    let learned_recipes_bytes = 64 << 10;
    let mut world = World::new(Shape { learned_recipes_bytes, header_prints_max, ..Shape::default() });
    world.configure(VolumeConfig { recipes: false, ..volume(V, 4 << 20) });
    world.configure(VolumeConfig { recipes: false, mode: Mode::WriteAround, ..volume(W, 4 << 20) });
    world.origins.get_mut(&W).unwrap()[..image.len()].copy_from_slice(image);
    world.read(W, 0, image.len() as u64);
    world.tick(2000);
    for round in 0..4 {
        for at in 0..64 {
            let other: Vec<u8> =
                (0..8).flat_map(|n| half(10_000 + round * 1000 + at * 8 + n, 8192)).collect();
            world.write(V, at * 8 * EXTENT, &other);
        }
        world.tick(2000);
    }
    world.write(V, 1 << 20, image);
    world.tick(2000);
    world.origin_reads.clear();
    world
}

#[test]
fn a_learned_recipe_makes_a_hit_of_what_was_evicted_and_came_back_elsewhere() {
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    let mut world = learned(&image);
    world.read(W, 0, 64 * EXTENT);
    assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
    assert_eq!((world.stat("recipe_hits"), world.stat("recipes_wanted")), (64, 0));
    world.stop();
}

#[test]
fn a_miss_waits_for_the_headers_that_tell_where_its_content_is() {
    let image: Vec<u8> = (0..192).flat_map(|n| half(n, 8192)).collect();
    let mut world = learned_with(&image, 32);
    let headers = world.stat("hint_header_reads");
    // From unit to unit, out of order, so that nothing is known ahead.
    for extent in (0..192).map(|n| n * 67 % 192) {
        world.read(W, extent * EXTENT, EXTENT);
    }
    assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
    assert!(world.stat("hint_header_reads") > headers, "not all headers stay");
    assert_eq!(world.stat("recipe_hits"), 192);
    assert!(world.stat("recipe_waits") > 100, "{}", world.stat("recipe_waits"));
    assert_eq!(world.stat("recipe_waits_hit"), world.stat("recipe_waits"));
    world.stop();
}

#[test]
fn a_learned_recipe_goes_with_the_next_write() {
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    let mut world = learned(&image);
    world.write(W, 2 * EXTENT + 512, &half(7, 512));
    world.submit(W, 5 * EXTENT, EXTENT, RequestKind::Trim { fua: false });
    world.read(W, 0, 8 * EXTENT);
    assert_eq!(world.stat("recipe_hits"), 6);
    world.stop();
}

/// The origin loses what was written since the last flush, which fails.
fn lose_unflushed(world: &mut World, before: Vec<u8>) {
    world.origin_flushes_fail = true;
    let flush = world.submit(V, 0, 0, RequestKind::Flush);
    assert_eq!(world.replies.remove(&flush).unwrap().0, Err(ErrorKind::Io));
    world.origin_flushes_fail = false;
    *world.origins.get_mut(&V).unwrap() = before;
}

#[test]
fn what_a_failed_write_may_show_is_not_cached_until_the_origin_has_flushed() {
    let mut world = World::new(Shape {
        prefetch_threshold_bytes: 64 << 10,
        prefetch_max_bytes: 128 << 10,
        ..Shape::default()
    });
    let before = world.origins[&V].clone();
    world.origin_writes_fail = true;
    let write = world.submit_write(V, 0, &half(1, 8192));
    assert_eq!(world.replies.remove(&write).unwrap().0, Err(ErrorKind::Io));
    world.origin_writes_fail = false;
    world.read(V, 0, 8192);
    // Enough of a stream to be read ahead.
    for at in 1..32 {
        world.read(V, at * 8192, 8192);
    }
    world.tick(1000);
    assert_eq!(world.stat("insert_offered"), 0, "the origin may show what it does not keep");
    // The origin is opened again, as that of a daemon that was killed may be, and what failed is gone.
    let old = core::mem::replace(world.origins.get_mut(&V).unwrap(), before);
    world.read(V, 0, 8192);
    *world.origins.get_mut(&V).unwrap() = old;
    let flush = world.submit(V, 0, 0, RequestKind::Flush);
    assert_eq!(world.replies.remove(&flush).unwrap().0, Ok(()));
    world.read(V, 0, 8192);
    world.tick(1000);
    assert_eq!(world.stat("insert_offered"), 1, "what it shows now it keeps");
    world.stop();
}

#[test]
fn a_flush_of_ours_that_failed_fails_the_next_one_of_a_client() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 8192));
    world.origin_flushes_fail = true;
    // Idle for long enough to retire its region.
    world.tick(5000);
    world.tick(5000);
    world.origin_flushes_fail = false;
    let flush = |world: &mut World| {
        let flush = world.submit(V, 0, 0, RequestKind::Flush);
        world.replies.remove(&flush).unwrap().0
    };
    assert_eq!((flush(&mut world), flush(&mut world)), (Err(ErrorKind::Io), Ok(())));
    world.stop();
}

#[test]
fn a_loss_that_a_client_has_heard_of_is_not_told_again_when_the_origin_is_well() {
    let mut world = World::new(Shape::default());
    let flush = |world: &mut World| {
        let flush = world.submit(V, 0, 0, RequestKind::Flush);
        world.replies.remove(&flush).unwrap().0
    };
    world.write(V, 0, &half(1, 8192));
    world.origin_flushes_fail = true;
    assert_eq!(flush(&mut world), Err(ErrorKind::Io));
    // A flush of ours fails, too, before the origin is well.
    world.tick(5000);
    world.tick(5000);
    world.origin_flushes_fail = false;
    assert_eq!(flush(&mut world), Ok(()));
    // What succeeded since then is another matter.
    world.write(V, 0, &half(2, 8192));
    world.origin_flushes_fail = true;
    world.tick(5000);
    world.tick(5000);
    world.origin_flushes_fail = false;
    assert_eq!((flush(&mut world), flush(&mut world)), (Err(ErrorKind::Io), Ok(())));
    world.stop();
}

#[test]
fn what_was_written_beside_a_flush_that_fails_is_told_by_the_next_one() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 8192));
    world.origin_flushes_hang = true;
    world.origin_flushes_fail = true;
    let first = world.submit(V, 0, 0, RequestKind::Flush);
    world.write(V, 8192, &half(2, 8192));
    world.end_origin_flushes();
    assert_eq!(world.replies.remove(&first).unwrap().0, Err(ErrorKind::Io));
    world.origin_flushes_fail = false;
    let flush = |world: &mut World| {
        let flush = world.submit(V, 0, 0, RequestKind::Flush);
        world.replies.remove(&flush).unwrap().0
    };
    assert_eq!((flush(&mut world), flush(&mut world)), (Err(ErrorKind::Io), Ok(())));
    world.stop();
}

#[test]
fn what_a_failed_flush_may_have_lost_is_not_found_again_by_its_content() {
    let learned_recipes_bytes = 64 << 10;
    let mut world = World::new(Shape { learned_recipes_bytes, ..Shape::default() });
    world.configure(VolumeConfig { recipes: false, ..volume(V, 4 << 20) });
    let before = world.origins[&V].clone();
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    world.write(V, 0, &image);
    world.tick(100);
    lose_unflushed(&mut world, before);
    world.read(V, 0, 64 * EXTENT);
    assert_eq!((world.stat("recipe_hits"), world.origin_reads.is_empty()), (0, false));
    world.stop();
}

#[test]
fn what_a_failed_flush_may_have_lost_is_not_read_from_memory() {
    let mut world = World::new(Shape { read_buffer_bytes: 1 << 20, ..Shape::default() });
    let before = world.origins[&V].clone();
    // A part of an extent, of which the cache has nothing else; a whole extent, of which a reader took a part.
    world.write(V, 0, &half(1, 512));
    world.write(V, 8 * EXTENT, &half(2, 8192));
    world.tick(100);
    world.read(V, 8 * EXTENT, 512);
    lose_unflushed(&mut world, before);
    world.read(V, 0, 512);
    world.read(V, 8 * EXTENT + 512, 512);
    world.stop();
}

#[test]
fn an_origin_that_does_not_flush_leaves_others_their_room() {
    let write_all = |world: &mut World, id: u64| {
        for region in 0..60 {
            world.write(V, region * (64 << 10), &half(id + region, 8192));
            world.tick(100);
        }
    };
    let mut world = World::new(Shape::default());
    world.flushless = Some(W);
    // Half of the sixteen marks that there may be.
    (0..8).for_each(|region| world.write(W, region * (64 << 10), &half(region, 8192)));
    write_all(&mut world, 100);
    // The same with marks that were found: those of the other volume do not go.
    let mut world = world.restart_killed_and(|world| world.flushless = Some(W));
    write_all(&mut world, 200);
    assert!(world.stat("regions_retired") > 40, "{}", world.stat("regions_retired"));
    world.flushless = None;
    world.tick(3000);
    world.stop();
}

#[test]
fn what_a_failed_flush_may_have_lost_of_an_earlier_session_is_not_believed() {
    let written = || {
        let mut world = World::new(Shape::default());
        let before = world.origins[&V].clone();
        // Stored extents, a copy of one, and zeros.
        world.write(V, 0, &[half(1, 8192), half(2, 8192), half(1, 8192), vec![0; 8192]].concat());
        // The unit is written; the regions stay marked.
        world.tick(1000);
        world.tick(100);
        (world, before)
    };
    let kept = |world: &mut World| {
        let hits = world.stat("read_hits");
        world.read(V, 0, 4 * EXTENT);
        world.stat("read_hits") > hits
    };
    let (world, _) = written();
    assert!(kept(&mut world.restart_killed()), "it is believed if nothing is lost");

    let (world, before) = written();
    let mut world = world.restart_killed_and(|world| lose_unflushed(world, before));
    assert!(!kept(&mut world), "the flush failed before it was loaded");

    let (world, before) = written();
    let mut world = world.restart_killed_and(|world| world.origin_flushes_fail = true);
    *world.origins.get_mut(&V).unwrap() = before;
    assert!(!kept(&mut world), "the flush that ends the marks failed");
}

#[test]
fn what_a_failed_flush_may_have_lost_is_not_inserted_afterwards() {
    let mut world = World::new(Shape::default());
    let before = world.origins[&V].clone();
    world.write(V, 0, &half(1, 512));
    world.origin_reads_hang = true;
    let read = world.submit_read(V, 0, EXTENT);
    let written = world.origins[&V].clone();
    lose_unflushed(&mut world, before);
    world.end_origin_reads();
    let (result, bytes) = world.replies.remove(&read).expect("it is answered");
    assert_eq!(
        (result, bytes.as_deref()),
        (Ok(()), Some(&written[..8192])),
        "it was there when it was asked"
    );
    world.read(V, 0, EXTENT);
    world.stop();
}

#[test]
fn learned_recipes_keep_to_their_memory() {
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    let mut world = learned(&image);
    // Fifteen runs of 128 extents have room; these are sixteen times eight extents of other runs.
    world.configure(VolumeConfig { recipes: false, ..volume(W, 32 << 20) });
    world.origins.get_mut(&W).unwrap().resize(32 << 20, 1);
    for run in 1..=16 {
        world.read(W, run * 128 * EXTENT, 8 * EXTENT);
        world.tick(2000);
    }
    world.read(W, 0, 8 * EXTENT);
    assert_eq!(world.stat("recipe_hits"), 0);
}

#[test]
fn who_reads_on_finds_the_next_recipes_there() {
    let mut world = World::new(Shape::default());
    let image: Vec<u8> = (0..3 * 128).flat_map(|n| half(n, 8192)).collect();
    world.write(V, 0, &image);
    world.tick(100);
    world.origins.get_mut(&W).unwrap()[..image.len()].copy_from_slice(&image);
    for part in 0..3 * 128 / 8 {
        world.read(W, part * 8 * EXTENT, 8 * EXTENT);
    }
    // Of the first run the first read came before the recipe.
    assert_eq!(world.origin_reads.len(), 1, "{:?}", world.origin_reads);
    assert_eq!((world.stat("recipe_hits"), world.stat("recipes_wanted")), (3 * 128 - 8, 4));
    // A write that bypasses the cache drops the learned fingerprint of an extent; the next miss requests it again.
    world.configure(VolumeConfig { mode: Mode::WriteAround, recipes: true, ..volume(W, 4 << 20) });
    world.write(W, 5 * EXTENT, &half(9, 8192));
    world.read(W, 5 * EXTENT, EXTENT);
    assert_eq!((world.origin_reads.len(), world.stat("recipes_wanted")), (2, 5));
    world.stop();
}

#[test]
fn recipes_find_contents_whose_headers_are_on_the_device_alone() {
    let mut world = World::new(Shape::default());
    let image: Vec<u8> = (0..3 * 128).flat_map(|n| half(n, 8192)).collect();
    world.write(V, 0, &image);
    world.stop();
    let mut world = world.restart(true);
    world.tick(1);
    world.origins.get_mut(&W).unwrap()[..image.len()].copy_from_slice(&image);
    for part in 0..3 * 128 / 8 {
        world.read(W, part * 8 * EXTENT, 8 * EXTENT);
    }
    assert!(world.stat("hint_header_reads") > 0, "the headers are not at hand after a start");
    assert_eq!(world.stat("recipe_hits"), 3 * 128 - 8, "all but the first read of the first run");
    world.stop();
}

#[test]
fn a_duplicate_of_a_unit_that_was_lost_never_names_the_next_one() {
    let mut world = World::new(Shape::default());
    let content = half(1, 8192);
    world.write(V, 0, &content);
    world.write(W, 0, &content);
    world.tick(60);
    assert_eq!(world.stat("insert_duplicates"), 1);
    // The journal has the duplicate, the unit is still open: it is lost. Another one takes its slot.
    let mut world = world.restart_killed();
    world.tick(1);
    world.write(V, 1 << 20, &half(2, 8192));
    world.tick(60);
    (0..50).for_each(|_| world.tick(100));
    let mut world = world.restart_killed();
    world.tick(1);
    world.read(W, 0, EXTENT);
    world.stop();
}

#[test]
fn a_header_that_was_misread_after_the_journal_was_lost_is_not_believed_later() {
    let mut world = World::new(Shape::default());
    // More units than the session in the middle reuses.
    (0..512).for_each(|at| world.write(V, at * EXTENT, &half(at + 1000, 8192)));
    (0..20).for_each(|_| world.tick(100));
    // No record names the unit any more, and its header is misread once.
    world.wipe_history();
    let kept: Vec<_> = (0..18).map(|slot| world.slot_bytes(WeuSlot(slot)).to_vec()).collect();
    (0..18).for_each(|slot| world.slot_bytes(WeuSlot(slot)).fill(0x11));
    let mut world = world.restart(false);
    world.tick(1);
    kept.iter().zip(0..).for_each(|(kept, slot)| world.slot_bytes(WeuSlot(slot)).copy_from_slice(kept));
    (0..512).for_each(|at| world.write(V, at * EXTENT, &half(2, 512)));
    for turn in 0.. {
        world.write(W, turn % 4 * EXTENT, &half(turn + 9, 8192));
        (0..2).for_each(|_| world.tick(60));
        if world.stat("checkpoints") > 0 {
            break;
        }
        assert!(turn < 80, "no checkpoint");
    }
    world.stop();
    let mut world = world.restart(true);
    world.tick(1);
    (0..512).for_each(|at| drop(world.read(V, at * EXTENT, EXTENT)));
    assert_eq!(world.stat("probes_differed"), 0);
    world.stop();
}

#[test]
fn a_lost_journal_block_that_voided_a_cold_volume_is_missed_at_the_next_start() {
    let mut world = World::new(Shape::default());
    (0..256).for_each(|at| world.write(V, at * EXTENT, &half(at + 1000, 8192)));
    (0..30).for_each(|_| world.tick(100));
    world.stop();
    // Another program wrote to the origin; the volume starts cold; no client writes.
    world.origins.get_mut(&V).unwrap()[77 * 8192..78 * 8192].copy_from_slice(&half(2, 8192));
    let before = world.journal_bytes().to_vec();
    let mut world = world.restart_trusting(V, false);
    world.tick(1);
    world.stop();
    // The device never wrote the journal blocks of that session.
    world.journal_bytes().copy_from_slice(&before);
    let mut world = world.restart_trusting(V, true);
    world.tick(1);
    (0..256).for_each(|at| drop(world.read(V, at * EXTENT, EXTENT)));
    assert_eq!(world.stat("probes_differed"), 0);
    world.stop();
}

#[test]
fn residency_tells_cached_zero_and_origin_apart() {
    let mut world = World::new(Shape { slots: 6, weu_bytes: 64 << 10, ..Shape::default() });
    let state_of = |world: &World, offset: u64, len: u64| {
        let mut runs = Vec::new();
        world.manager.residency(V, offset, len, &mut runs);
        runs.iter().map(|run| (run.len_bytes, run.residency)).collect::<Vec<_>>()
    };
    world.write(V, 0, &half(1, 24 << 10));
    world.write(V, 24 << 10, &vec![0; 16 << 10]);
    world.tick(1000);
    let expected =
        [(24 << 10, Residency::Cached), (16 << 10, Residency::Zero), (24 << 10, Residency::OriginOnly)];
    assert_eq!(state_of(&world, 0, 64 << 10), expected);
    assert_eq!(state_of(&world, 4096 + 512, 1024), [(1024, Residency::Cached)]);
    // A part of an extent that is rewritten: those sectors are staged, the others still held, both at once not yet.
    world.write(V, 4096, &half(2, 512));
    assert_eq!(state_of(&world, 0, 4096), [(4096, Residency::Cached)]);
    assert_eq!(state_of(&world, 4096, 512), [(512, Residency::Cached)]);
    assert_eq!(state_of(&world, 0, 8192), [(8192, Residency::OriginOnly)]);
    let far = RESIDENCY_EXTENTS_MAX * EXTENT;
    assert_eq!(state_of(&world, 64 << 10, 2 * far), [(far, Residency::OriginOnly)], "a bounded answer");
    // Evicted content is the origin's alone.
    for at in 1..30 {
        world.write(V, at * (128 << 10), &half(100 + at, 128 << 10));
        world.tick(500);
    }
    assert_eq!(state_of(&world, 0, 8 << 10), [(8 << 10, Residency::OriginOnly)]);
    world.stop();
}

#[test]
fn an_answer_about_scattered_extents_ends_early() {
    let mut world = World::new(Shape { volume_bytes: 32 << 20, ..Shape::default() });
    (0..600).for_each(|at| world.write(V, at * 2 * EXTENT, &vec![0; 8 << 10]));
    world.tick(1000);
    let mut runs = Vec::new();
    world.manager.residency(V, 0, 16 << 20, &mut runs);
    assert_eq!(runs.len(), 1024);
    assert_eq!(runs.iter().map(|run| run.len_bytes).sum::<u64>(), 1024 * EXTENT);
    world.stop();
}

#[test]
fn a_restart_compares_a_sample_with_the_origin_and_serves_hits() {
    let mut world = World::new(Shape::default());
    for at in 0..8 {
        world.write(V, at * (128 << 10), &half(at, 128 << 10));
    }
    world.write(W, 0, &half(0, 128 << 10));
    world.write(W, 1 << 20, &vec![0; 64 << 10]);
    world.stop();
    let mut world = world.restart(true);
    world.tick(20);
    world.origin_reads.clear();
    assert!(world.stat("probes") >= 12, "{} compared", world.stat("probes"));
    assert_eq!(world.stat("probes_differed"), 0);
    world.origin_reads.clear();
    world.read(V, 0, 1 << 20);
    world.read(W, 0, 128 << 10);
    world.read(W, 1 << 20, 64 << 10);
    assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
    world.stop();
}

#[test]
fn an_origin_that_was_written_elsewhere_is_noticed_and_only_its_volume_forgotten() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 512 << 10));
    world.write(W, 0, &half(2, 512 << 10));
    world.write(W, 1 << 20, &half(1, 256 << 10));
    let changed = half(77, 512 << 10);
    world.stop();
    world.origins.get_mut(&V).unwrap()[..512 << 10].copy_from_slice(&changed);
    let mut world = world.restart(true);
    world.tick(20);
    assert_eq!(world.stat("probes_differed"), 1);
    assert_eq!(world.read(V, 0, 512 << 10), changed);
    world.origin_reads.clear();
    world.read(W, 0, 512 << 10);
    world.read(W, 1 << 20, 256 << 10);
    assert!(world.origin_reads.is_empty(), "contents of V still serve W: {:?}", world.origin_reads);
    world.tick(1000);
    assert_eq!(world.read(V, 0, 512 << 10), changed);
    assert!(world.origin_reads.is_empty(), "what was read is cached anew: {:?}", world.origin_reads);
    // Also after the next start.
    let mut world = world.restart_killed();
    world.tick(20);
    assert_eq!(world.stat("probes_differed"), 0);
    assert_eq!(world.read(V, 0, 512 << 10), changed);
    world.stop();
}

#[test]
fn a_cache_whose_checkpoint_is_lost_makes_another_at_once() {
    let mut world = World::new(Shape::default());
    world.write(V, 0, &half(1, 64 << 10));
    (0..30).for_each(|_| world.tick(100));
    world.lose_checkpoints();
    let mut world = world.restart(false);
    (0..30).for_each(|_| world.tick(100));
    let origin_reads = |world: &mut World| {
        let before = world.origin_reads.len();
        assert_eq!(world.read(V, 0, EXTENT), half(1, 64 << 10)[..8192]);
        world.origin_reads.len() - before
    };
    assert_eq!(origin_reads(&mut world), 1, "nothing is believed without a checkpoint");
    (0..30).for_each(|_| world.tick(100));
    assert_eq!(world.stat("checkpoints"), 1);
    world.stop();
    let mut world = world.restart(true);
    world.tick(1);
    assert_eq!(origin_reads(&mut world), 0, "the next start has one");
}
