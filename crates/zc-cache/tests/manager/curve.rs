//! Hit ratios of caches of other sizes, across restarts.

use zc_cache::{Curve, NoFigure};

use crate::world::{Shape, V, World, noise};

const EXTENT_BYTES: u64 = 8192;
/// Extents read in turn: they fit the cache, and not half of it.
const EXTENTS: u64 = 700;

fn at(curve: &Curve, quarters: u32) -> Result<f64, NoFigure> {
    let place = Curve::SIZES_QUARTERS.iter().position(|size| *size == quarters);
    curve.hit_ratios[place.unwrap()]
}

fn read_all(world: &mut World) {
    // Every other one, so that nothing is a stream.
    for extent in (0..EXTENTS).step_by(2).chain((1..EXTENTS).step_by(2)) {
        world.read(V, extent * EXTENT_BYTES, EXTENT_BYTES);
    }
}

#[test]
fn a_warm_cache_has_its_own_hit_ratio_after_a_restart() {
    let mut world = World::new(Shape { slots: 32, volume_bytes: 8 << 20, ..Shape::default() });
    let image: Vec<u8> = (0..EXTENTS).flat_map(|n| noise(n, 8192)).collect();
    world.write(V, 0, &image);
    world.stop();
    let mut world = world.restart(true);
    world.tick(1);
    assert_eq!(world.manager.curve().points().count(), 0, "nothing was read");

    read_all(&mut world);
    let curve = world.manager.curve();
    let stats = world.manager.stats();
    assert_eq!((stats.extent_hits(), stats.extents_read()), (EXTENTS, EXTENTS));
    assert_eq!([4, 8, 16].map(|quarters| at(&curve, quarters)), [Ok(1.0); 3], "{curve:?}");
    // Each extent was read once since the start: nothing shows how long ago it was read before.
    assert_eq!([1, 2].map(|quarters| at(&curve, quarters)), [Err(NoFigure::Started); 2]);
    assert!(curve.second_touch_hit_ratio.is_err(), "{curve:?}");

    (0..40).for_each(|_| read_all(&mut world));
    let curve = world.manager.curve();
    assert!(at(&curve, 1).is_ok_and(|hits| hits < 0.01), "they do not fit: {curve:?}");
    assert_eq!(at(&curve, 4), Ok(1.0));
}

#[test]
fn few_reads_give_the_own_hit_ratio_alone() {
    let mut world = World::new(Shape { slots: 32, volume_bytes: 8 << 20, ..Shape::default() });
    world.write(V, 0, &noise(1, 8192));
    for _ in 0..4 {
        world.read(V, 0, EXTENT_BYTES);
        world.read(V, 1 << 20, EXTENT_BYTES);
    }
    let curve = world.manager.curve();
    assert_eq!(at(&curve, 4), Ok(7.0 / 8.0));
    assert_eq!([1, 2, 8, 16].map(|quarters| at(&curve, quarters)), [Err(NoFigure::FewReads); 4]);
}
