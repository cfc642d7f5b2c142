//! Forgiveness: sectors that may hold anything that they ever held, as a device lied about them or an operator gave
//! them up.

use crate::world::World;

/// What only the cache had is lost, or what a lying device shows instead of it.
pub(crate) fn forgive(world: &mut World, volume: usize) {
    let all: Vec<usize> = (0..world.models.oracle(volume).sectors()).collect();
    forgive_sectors(world, volume, &all);
    world.env.note("dirty data beyond what can be told");
}

/// Allows these sectors anything that they ever held.
fn forgive_sectors(world: &mut World, volume: usize, sectors: &[usize]) {
    world.env.advance();
    world.models.forgive(volume, sectors, world.env.now());
    world.env.advance();
}

/// The medium that the next session finds may not have all that was acknowledged. Damage in slots is judged sector by
/// sector.
pub(crate) fn forgive_lies(world: &mut World, crashed: bool) {
    if world.trouble.lied_metadata {
        forgive_all(world);
    } else if crashed && world.trouble.lied_slots {
        forgive_slots(world, world.state.log().is_there());
    }
}

/// Any volume may have lost dirty data.
fn forgive_all(world: &mut World) {
    for volume in 0..world.volumes.len() {
        if world.state.may_be_dirty(volume) {
            forgive(world, volume);
        }
    }
}

/// The machine or the process died after the device lied about its slots. `by_intent`: the next start has the
/// intent log.
pub(crate) fn forgive_slots(world: &mut World, by_intent: bool) {
    if by_intent {
        return;
    }
    if world.kept.is_chain_tainted(world.cache.disk()) {
        // Only the summaries had these commits and clean epochs.
        world.env.note("summaries damaged");
        return forgive_all(world);
    }
    for (volume, sectors) in world.kept.doubtful(world.cache.disk(), world.models.oracles()) {
        world.env.note("last commits damaged before their proof");
        forgive_sectors(world, volume, &sectors);
    }
}
