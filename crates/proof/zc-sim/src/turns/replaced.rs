//! Volumes that are removed while others are served, and new volumes that reuse their numbers with other origins.
//!
//! Job: play the driver of a removal. The volume gets no more requests, its dirty data is destaged, other volumes
//! continue, and the machine may be cut off at any step. When the manager has forgotten the volume, another origin
//! with unique contents takes its place, and the driver trusts anything that the cache holds under the number. The
//! oracles hold only the new contents: one old sector is a violation (G1, G2).
//!
//! The new volume is added at once, or later, or with a start, or never. Cached data of the old one may be erased at
//! the same time.
//!
//! It does not remove volumes of a store.

use zc_cache::CacheManager;
use zc_cache::seam::Event;
use zc_core::{ErrorKind, Mode, VolumeId};

use crate::boot::{kill, power_cut};
use crate::content::{self, SECTOR};
use crate::requests::request_of_another;
use crate::rest::drain;
use crate::settings::{draw_settings, serve_volume};
use crate::world::{PATIENCE, World};

/// Steps between two ticks while a volume is being removed.
const TURNS_PER_TICK: u32 = 16;

/// Removes a volume, and lets another one take its number.
pub(crate) fn replace_volume(world: &mut World) {
    let volume = world.env.random_range(0..world.volumes.len());
    let in_store = world.pooled.as_ref().is_some_and(|pooled| pooled.has(volume));
    let is_known = world.state.was_given_up(volume) || world.state.is_incomplete(volume);
    // Nothing is written to the origin of a read-only volume.
    let is_stuck = world.volumes[volume].mode == Mode::ReadOnly && world.dirty(volume).is_some();
    if !world.volumes.is_served(volume) || in_store || is_known || is_stuck || !is_well(world) {
        return;
    }
    drain(world);
    if world.env.is_violated() || !world.volumes.is_served(volume) || !is_clean_in_time(world, volume) {
        return;
    }
    world.env.note("removals begun");
    world.volumes.leave(Some(volume));
    world.event(Event::Remove { volume: VolumeId(volume as u16) });
    let outcome = wait_for_removal(world, volume);
    world.volumes.leave(None);
    match outcome {
        Some(Ok(())) => {
            if world.env.random_bool(0.3) {
                erase_removed(world, volume);
            }
            other_origin(world, volume);
        }
        Some(Err(_)) => world.env.note("removals that failed"),
        None => {}
    }
}

/// Erases data of a removed volume, while others are served and another one is added.
fn erase_removed(world: &mut World, volume: usize) {
    world.env.note("erasures");
    let others = (0..world.volumes.len()).filter(|other| *other != volume);
    let keep = others.map(|other| VolumeId(other as u16)).collect();
    world.event(Event::Erase { keep });
}

fn is_well(world: &World) -> bool {
    world.manager.as_ref().is_some_and(CacheManager::is_healthy)
}

/// Waits until the volume is clean, without client requests to it. Returns `false` if it did not become clean in
/// time.
fn is_clean_in_time(world: &mut World, volume: usize) -> bool {
    world.event(Event::Destage { volume: VolumeId(volume as u16) });
    for _ in 0..PATIENCE / 10 {
        if world.env.is_violated() || !is_well(world) {
            return false;
        }
        if world.dirty(volume).is_none() {
            return true;
        }
        world.step_or_tick();
    }
    false
}

/// Waits for the end of a removal. Returns `None` if something else ended it.
fn wait_for_removal(world: &mut World, volume: usize) -> Option<Result<(), ErrorKind>> {
    let cut_at = world.env.random_bool(0.4).then(|| world.env.random_range(0..80));
    for turn in 0..PATIENCE {
        if world.env.is_violated() {
            return None;
        }
        if let Some(result) = world.volumes.take_removed() {
            let explained = !is_well(world)
                || world.faults.origin_errors
                || world.excuses.has_flush_failed()
                || world.faults.are_origins_gone(world.env.now());
            if result.is_err() && !explained {
                world.env.violate(format!("volume {volume} is not removed though nothing failed"));
            }
            return Some(result);
        }
        if cut_at == Some(turn) {
            world.env.note("crashes while a volume goes");
            if world.env.random_bool(0.5) {
                power_cut(world);
            } else {
                kill(world);
            }
            return None;
        }
        // Time advances regardless of the load: operations in progress are checked once a tick.
        if turn % TURNS_PER_TICK == TURNS_PER_TICK - 1 {
            world.tick();
        } else if world.env.random_bool(0.2) && world.in_flight() < 6 {
            request_of_another(world, volume);
        } else {
            world.step_or_tick();
        }
    }
    world.env.violate(format!("the removal of volume {volume} does not end"));
    None
}

/// Replaces the volume's origin, and serves it under the number, now or later.
fn other_origin(world: &mut World, volume: usize) {
    world.env.note("volumes replaced");
    world.env.trace(|| format!("volume {volume} has another origin"));
    let sectors = world.volumes[volume].size_bytes as usize / SECTOR;
    world.models.replace(volume);
    world.origins.replace(volume);
    let is_empty = world.env.random_bool(0.3);
    let mut bytes = vec![0; sectors * SECTOR];
    for sector in bytes.chunks_mut(SECTOR) {
        let value = if is_empty { 0 } else { world.clients.new_content() };
        content::fill(value, sector);
        world.models.grow(volume, value);
    }
    world.origins[volume].grow(&bytes);
    world.losses.replaced(volume);
    draw_settings(world, volume);
    let config = &mut world.volumes[volume];
    // Nothing is recorded for the number: the cache is trusted.
    (config.trusted, config.may_be_dirty, config.lost_writes) = (true, false, false);
    world.state.trust(volume);
    world.state.set_dirty(volume, false);
    world.volumes.replace(volume);
    if world.env.random_bool(0.6) {
        serve_volume(world, volume);
    }
}
