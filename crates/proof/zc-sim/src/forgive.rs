//! Forgiveness: sectors that may hold any former content, because a device lied about them or an operator gave them
//! up.

use crate::world::World;

/// Forgives a volume all its sectors: data that only the cache had is lost, or stale data of a lying device takes its
/// place.
pub(crate) fn forgive(world: &mut World, volume: usize) {
    let all: Vec<usize> = (0..world.models.oracle(volume).sectors()).collect();
    forgive_sectors(world, volume, &all);
    world.env.note("dirty data beyond what can be told");
}

/// Accepts any former content of these sectors.
fn forgive_sectors(world: &mut World, volume: usize, sectors: &[usize]) {
    world.env.advance();
    world.models.forgive(volume, sectors, world.env.now());
    world.env.advance();
}

/// Forgives losses on the medium that the next session starts from. Damage in slots is checked sector by sector.
pub(crate) fn forgive_lies(world: &mut World, crashed: bool) {
    if world.trouble.lied_metadata {
        forgive_all(world);
    } else if crashed && world.trouble.lied_slots {
        forgive_slots(world, world.state.log().is_there());
    }
}

/// Forgives every volume that may have dirty data.
fn forgive_all(world: &mut World) {
    for volume in 0..world.volumes.len() {
        if world.state.may_be_dirty(volume) {
            forgive(world, volume);
        }
    }
}

/// Forgives data after a crash on a device that lied about its slots. `by_intent`: the next start has the intent log,
/// so nothing is forgiven.
pub(crate) fn forgive_slots(world: &mut World, by_intent: bool) {
    if by_intent {
        return;
    }
    if world.kept.is_chain_tainted(world.cache.disk()) {
        // Only the summaries held these commits and clean epochs.
        world.env.note("summaries damaged");
        return forgive_all(world);
    }
    for (volume, sectors) in world.kept.doubtful(world.cache.disk(), world.models.oracles()) {
        world.env.note("last commits damaged before their proof");
        forgive_sectors(world, volume, &sectors);
    }
}
