//! Dirty data that operators destage, wait for, or give up (G5).

use zc_cache::CacheManager;
use zc_cache::seam::Event;
use zc_core::{Mode, VolumeId};

use crate::forgive::forgive;
use crate::judging::judge_origins;
use crate::rest::drain;
use crate::world::{PATIENCE, World};

/// Time for which an idle volume may stay dirty beyond its configured age, in simulated milliseconds.
const AGE_SLACK_MS: u64 = 15_000;

/// Destages a volume for an operator, or only waits until it is clean.
pub(crate) fn bring_home(world: &mut World, ask: bool) {
    let volume = world.env.random_range(0..world.volumes.len());
    // Nothing is written to the origin of a read-only volume.
    let read_only = world.volumes[volume].mode == Mode::ReadOnly;
    if !world.volumes.is_served(volume) || !world.writes_back(volume) || read_only {
        return;
    }
    drain(world);
    if world.env.is_violated() {
        return;
    }
    if ask {
        world.env.note("volumes destaged on demand");
        world.event(Event::Destage { volume: VolumeId(volume as u16) });
    }
    let until = world.env.now_ms() + world.volumes[volume].write_back.max_dirty_age_ms + AGE_SLACK_MS;
    for _ in 0..PATIENCE {
        if world.env.is_violated() {
            return;
        }
        if world.dirty(volume).is_none() {
            world.env.note(if ask { "volumes clean on demand" } else { "volumes clean by age" });
            return judge_origins(world);
        }
        if !ask && world.env.now_ms() > until {
            break;
        }
        world.step_or_tick();
    }
    let is_full = world.faults.origin_full > 0.0 && volume == 0;
    // Destaging marks regions, and a map filled by another origin's regions lacks capacity for that.
    let may_fail = world.faults.origin_errors || is_full || world.excuses.has_flush_failed();
    if !world.is_excused(volume) && !may_fail && !world.is_pool_in_the_way(volume) {
        let state = world.dirty(volume);
        world.env.violate(format!("volume {volume} does not become clean: {state:?} (G6)"));
    }
}

/// Gives dirty data up for an operator: it is out of reach, or by mistake.
pub(crate) fn give_up(world: &mut World) {
    let volume = world.env.random_range(0..world.volumes.len());
    let Some(state) = world.dirty(volume) else { return };
    if !state.fenced && world.env.random_bool(0.9) {
        return;
    }
    drain(world);
    if world.env.is_violated() {
        return;
    }
    let Some(state) = world.dirty(volume) else { return };
    let healthy = world.manager.as_ref().is_some_and(CacheManager::is_healthy);
    world.losses.given_up(volume);
    if state.fenced && healthy && world.env.random_bool(0.5) {
        world.env.note("losses accepted");
        world.state.complete(volume);
        world.trouble.undecided = true;
        world.trouble.old_records = true;
        world.event(Event::AcceptLoss { volume: VolumeId(volume as u16) });
        return forgive(world, volume);
    }
    drop_dirty(world, volume);
}

/// Gives up the dirty data of a volume, which is clean afterwards.
pub(crate) fn drop_dirty(world: &mut World, volume: usize) {
    let Some(state) = world.dirty(volume) else { return };
    let healthy = world.manager.as_ref().is_some_and(CacheManager::is_healthy);
    world.losses.given_up(volume);
    world.env.note("dirty data given up");
    world.trouble.undecided = true;
    world.state.complete(volume);
    if !healthy {
        world.env.note("epochs given up elsewhere");
        // If the device cannot be updated, the state directory records it.
        world.state.give_up(volume, state.newest_epoch);
        world.state.set_dirty(volume, false);
    }
    world.event(Event::DropDirty { volume: VolumeId(volume as u16), remembered: !healthy });
    for _ in 0..PATIENCE {
        let lost = healthy && !world.manager.as_ref().is_some_and(CacheManager::is_healthy);
        if world.dirty(volume).is_none() || lost || world.env.is_violated() {
            return forgive(world, volume);
        }
        world.step_or_tick();
    }
    world.env.violate(format!("volume {volume}: dirty data that was given up stays"));
}
