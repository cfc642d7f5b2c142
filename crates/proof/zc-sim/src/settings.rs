//! Settings of volumes that change while served, and volumes that are added to a running manager.

use zc_cache::CacheManager;
use zc_cache::config::VolumeConfig;
use zc_cache::seam::Event;
use zc_core::Mode;

use crate::judges::{pins, shares};
use crate::setup;
use crate::world::World;

pub(crate) fn reconfigure(world: &mut World) {
    if world.faults.is_state_failing(world.env.now()) {
        // The state directory must first record that a volume may become dirty.
        world.env.note("settings refused: the state directory fails");
        return;
    }
    let volume = world.env.random_range(0..world.volumes.len());
    if world.volumes.is_leaving(volume) {
        return;
    }
    serve_volume(world, volume);
    draw_settings(world, volume);
    reconfigured(world, volume);
}

/// Changes pins while a start reads headers or the index image.
pub(crate) fn change_pins_early(world: &mut World) {
    for _ in 0..world.env.random_range(0..8) {
        world.step();
    }
    if world.manager.as_ref().is_some_and(|manager| !manager.is_loaded()) {
        world.env.note("pins changed while the index is loaded");
        reconfigure(world);
        world.tick();
    }
}

/// Draws new settings for a volume, which the manager does not have yet.
pub(crate) fn draw_settings(world: &mut World, volume: usize) {
    setup::reconfigure(world.env.rng(), &mut world.volumes[volume]);
    if world.plan.sharing {
        world.volumes[volume].share = shares::draw(world.env.rng(), world.cache.geometry());
    }
    if world.plan.pinning {
        let size_bytes = world.volumes[volume].size_bytes;
        world.volumes[volume].pins = pins::draw(world.env.rng(), size_bytes);
        world.env.note("pins changed");
    }
    if world.plan.write_back {
        setup::reconfigure_write_back(world.env.rng(), &mut world.volumes[volume]);
        world.models.configured(volume, &world.volumes[volume]);
    }
}

/// Records changed settings of a volume.
pub(crate) fn reconfigured(world: &mut World, volume: usize) {
    world.volumes.changed(volume);
    let to = world.volumes[volume].mode;
    if to == Mode::WriteBack {
        // Waiting requests and current flushes may be served in write-back.
        world.clients.writes_back(volume);
        // A failed cache accepts no dirty data, and nothing is recorded.
        world.state.note_dirty(volume, world.manager.as_ref().is_some_and(CacheManager::is_healthy));
        world.env.note("changes to write-back");
    } else if world.dirty(volume).is_some() {
        world.env.note("changes from write-back while dirty");
    }
    let config = world.volumes[volume].clone();
    configure(world, config);
}

/// Serves a volume and makes its origin writable.
pub(crate) fn make_writable(world: &mut World, volume: usize) {
    serve_volume(world, volume);
    if world.volumes[volume].mode == Mode::ReadOnly {
        world.volumes[volume].mode = Mode::WriteThrough;
        world.volumes.changed(volume);
        configure(world, world.volumes[volume].clone());
    }
}

pub(crate) fn configure(world: &mut World, config: VolumeConfig) {
    world.losses.configured(usize::from(config.id.0), &config);
    world.event(Event::Configure(Box::new(config)));
}

/// Adds a volume that is not served.
pub(crate) fn serve_volume(world: &mut World, volume: usize) {
    if !world.volumes.is_served(volume) {
        world.volumes.serve(volume, true);
        world.volumes[volume].may_be_dirty = world.state.may_be_dirty(volume);
        world.volumes[volume].lost_writes = world.losses.taken_up(volume);
        let healthy = world.manager.as_ref().is_some_and(CacheManager::is_healthy);
        world.state.note_dirty(volume, healthy && world.volumes[volume].mode == Mode::WriteBack);
        world.env.note("volumes added while serving");
        let config = world.volumes[volume].clone();
        configure(world, config);
    }
}
