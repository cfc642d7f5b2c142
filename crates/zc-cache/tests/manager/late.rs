//! Duplicates of units that neither checkpoint nor journal knows: they count once the header of the unit was read.

use zc_core::WeuSlot;

use crate::EXTENT;
use crate::world::{Shape, V, W, World, half};

#[test]
fn what_is_stored_before_the_header_of_its_unit_was_read_is_newer() {
    let mut world = World::new(Shape::default());
    let image: Vec<u8> = (0..64).flat_map(|n| half(n, 8192)).collect();
    let mut other = vec![7; 4 << 20];
    other[..64 << 10].copy_from_slice(&image[256 << 10..320 << 10]);
    world.origins.insert(V, [image, vec![9; (4 << 20) - (512 << 10)]].concat());
    world.origins.insert(W, other);
    // Units that the journal knows.
    for unit in 0..4 {
        world.read(V, unit * (64 << 10), 64 << 10);
        (0..3).for_each(|_| world.tick(1000));
    }
    // One that it does not know: its duplicates are in the journal, and its end is not.
    world.read(V, 256 << 10, 64 << 10);
    world.read(W, 0, 64 << 10);
    world.tick(100);
    world.tick(100);
    let end = world.journal_end();
    (0..3).for_each(|_| world.tick(1000));
    world.damage_journal_block(end);
    // Their headers are lost, so that their slots are free before the other's header is read.
    (0..4).for_each(|slot| world.slot_bytes(WeuSlot(slot)).fill(0));
    let mut world = world.restart_cut_off_and(|world| {
        world.read(W, 0, 64 << 10);
        world.tick(1000);
    });
    assert_eq!(
        (world.stat("insert_stored"), world.stat("load_mappings")),
        (8, 8),
        "no duplicate was installed"
    );
    world.tick(100);
    world.write(W, 5 * EXTENT, &half(700, 8192));
    world.manager.leave_no_image();
    world.stop();
    let mut world = world.restart(true);
    world.tick(1);
    world.read(W, 0, 64 << 10);
    world.stop();
}
