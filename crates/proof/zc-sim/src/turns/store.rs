//! Events at the store of the volumes: snapshots, bit rot, and restarts by an operator.

use crate::boot::kill;
use crate::stored::{delete_all_snapshots, delete_snapshot, judge_snapshots, take_snapshot};
use crate::world::World;

/// Executes a turn of the store. Returns `false` if nothing happened.
pub(crate) fn pool_turn(world: &mut World) -> bool {
    let Some(pooled) = &mut world.pooled else { return false };
    if pooled.rots(world.env.rng()) {
        world.env.note("store: bits rotted");
        return true;
    }
    let is_fenced = pooled.is_fenced();
    match world.env.random_range(0..1000) {
        // An operator restarts a daemon whose store fails.
        0..20 if is_fenced => kill(world),
        20..26 if !is_fenced => take_snapshot(world),
        26 if !is_fenced => delete_snapshot(world),
        27 => judge_snapshots(world),
        28 => pooled.clean(),
        _ => return false,
    }
    true
}

/// Ends the faults of the store's device, reopens a failed store, and deletes the snapshots that keep overwritten
/// data.
pub(crate) fn mend_pool(world: &mut World) {
    let Some(pooled) = &mut world.pooled else { return };
    pooled.mend();
    if pooled.is_fenced() {
        kill(world);
    }
    delete_all_snapshots(world);
}
