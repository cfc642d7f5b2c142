//! Packers: what a hit reads of the device, and that a restart finds what was not placed in order.

use crate::world::{Shape, V, World, half};
use zc_cache::config::Packer;

const EXTENT: usize = 8 << 10;

/// An extent that is stored in a little more than so many bytes.
fn extent(id: u64, stored: usize) -> Vec<u8> {
    let wide = half(id, 2 * stored);
    let mut bytes: Vec<u8> = wide.chunks(16).flat_map(|chunk| chunk[..8].to_vec()).collect();
    bytes.resize(EXTENT, 0);
    bytes
}

/// Where they are: no two of them make a stream, whose extents would be placed side by side.
fn places() -> impl Iterator<Item = u64> {
    (0..120).map(|number| number * 37 % 509 * EXTENT as u64)
}

/// Extents of a page and a half, and of a third of a page, each for itself.
fn written(packer: Packer) -> World {
    let mut world = World::new(Shape { packer, ..Shape::default() });
    for (place, stored) in places().zip([6200, 6200, 1400, 1400].into_iter().cycle()) {
        world.write(V, place, &extent(place, stored));
    }
    (0..3).for_each(|_| world.tick(1000));
    world
}

/// Reads all of it, extent by extent; the pages that each took.
fn pages_read(world: &mut World) -> Vec<u32> {
    world.device_reads.clear();
    world.origin_reads.clear();
    places().for_each(|place| drop(world.read(V, place, EXTENT as u64)));
    assert!(world.origin_reads.is_empty(), "{:?}", world.origin_reads);
    world.device_reads.iter().map(|(_, len_bytes)| len_bytes / 4096).collect()
}

#[test]
fn packed_hits_read_the_fewest_pages_also_after_a_restart() {
    let fewest: Vec<u32> = [2, 2, 1, 1].into_iter().cycle().take(120).collect();
    for packer in [Packer::FirstFit, Packer::BestFit] {
        let mut world = written(packer);
        assert_eq!(pages_read(&mut world), fewest, "{packer:?}");
        assert_eq!((world.stat("device_reads"), world.stat("device_read_extents")), (120, 120));
        world.stop();
        let (padding, unused) = (world.stat("weu_bytes_padding"), world.stat("weu_bytes_unused"));
        assert!(padding > 0 && padding < unused, "{padding} of {unused} bytes");
        let mut world = world.restart(true);
        world.tick(1);
        assert_eq!(pages_read(&mut world), fewest, "{packer:?} after a restart");
        world.stop();
    }
}

#[test]
fn appended_extents_lie_one_behind_the_other() {
    let mut world = written(Packer::Append);
    let pages: u32 = pages_read(&mut world).iter().sum();
    assert!(pages > 180 * 11 / 10, "120 hits took {pages} pages, of 180 at least");
    assert_eq!(world.stat("weu_bytes_padding"), 0);
    world.stop();
}

#[test]
fn what_is_written_together_is_read_together() {
    let mut world = World::new(Shape { packer: Packer::BestFit, ..Shape::default() });
    let image: Vec<u8> = (0..8).flat_map(|number| extent(number, 6200)).collect();
    world.write(V, 0, &image);
    (0..3).for_each(|_| world.tick(1000));
    world.device_reads.clear();
    world.read(V, 0, 8 * EXTENT as u64);
    let pages: Vec<u32> = world.device_reads.iter().map(|(_, len_bytes)| len_bytes / 4096).collect();
    assert_eq!(pages, [13], "8 extents of 6.3 KB");
    world.stop();
}
