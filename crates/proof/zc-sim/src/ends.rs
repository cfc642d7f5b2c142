//! Ends of a session: which state is lost with the process, and which with the power.

use zc_cache::seam::Action;

use crate::disk::Disk;
use crate::stored::pool_loses_power;
use crate::world::World;

/// Ends the process. Only a `clean` stop determines which volumes have dirty data.
pub(crate) fn gone(world: &mut World, clean: bool) {
    world.late_operations_end();
    session_ends(world, clean);
    world.exchange.call_off();
    world.memory.clear();
    world.clients.clear();
}

pub(crate) fn session_ends(world: &mut World, clean: bool) {
    for volume in 0..world.volumes.len() {
        let stays = world.state.may_be_dirty(volume) && !clean;
        let is_unknown = !world.volumes.is_served(volume) && !world.volumes.is_free(volume);
        world.state.set_dirty(volume, stays || world.dirty(volume).is_some() || is_unknown);
    }
    if let Some(manager) = world.manager.take() {
        world.losses.over(&manager, clean);
        world.trouble.left_out |= manager.stats().checkpoint_left_out > 0;
        if !manager.is_loaded() {
            world.env.note("crashes while the index loads");
        }
        if let Some((_, to)) = world.faults.dead.filter(|(from, _)| world.env.now() > *from) {
            let came_back = to < world.env.now();
            world.env.note(if came_back { "device gone and back" } else { "device died" });
            world.faults.dead = None;
        }
        if !manager.is_healthy() {
            world.env.note("sessions that ended without the cache");
        }
        for (name, value) in manager.stats().named() {
            world.env.add(name, value);
        }
    }
    world.memory.forget_known();
    world.queue.session_over();
    world.stopped = None;
    world.queue.resume();
    world.promise.session_over();
    world.kept.session_over();
    world.excuses.forget();
    world.trouble.session = false;
    world.trouble.failed_at = None;
    world.trouble.unrecorded_ms = None;
    world.cache.disk_mut().all_ended();
    world.origins.iter_mut().for_each(Disk::all_ended);
}

/// Executes some operations in flight, completely or in part, without notifying the manager.
pub(crate) fn cut_off(world: &mut World) {
    world.late_operations_end();
    let pending = world.queue.take_pending();
    for (action, issued) in pending {
        let writes = matches!(
            action,
            Action::OriginWrite { .. }
                | Action::OriginTrim { .. }
                | Action::OriginZero { .. }
                | Action::WriteWeu { .. }
                | Action::WritePart { .. }
                | Action::WriteJournal { .. }
                | Action::WriteRegionMap { .. }
                | Action::WriteCheckpoint { .. }
                | Action::CommitCheckpoint { .. }
                | Action::WriteImage { .. }
                | Action::FlushCache { .. }
                | Action::OriginFlush { .. }
                | Action::Distrust { .. }
        );
        if writes && world.env.random_bool(0.5) {
            let _event = world.perform(&action, issued);
        }
    }
}

/// Loses all volatile memory of the machine and its devices.
pub(crate) fn lose_power(world: &mut World) {
    world.cache.disk_mut().power_cut(world.env.rng());
    pool_loses_power(world);
    for origin in world.origins.iter_mut() {
        origin.power_cut(world.env.rng());
    }
    let now = world.env.now();
    world.models.power_cut(now);
    world.state.reboot();
    world.losses.reboot(world.env.now().is_multiple_of(2));
    decay_while_off(world);
}

/// Loses the memory of the process.
pub(crate) fn process_dies(world: &mut World) {
    let now = world.env.now();
    world.losses.kill();
    world.models.killed(|volume| world.losses.is_safe(volume), now);
}

pub(crate) fn decay_while_off(world: &mut World) {
    world.rest_device();
}
