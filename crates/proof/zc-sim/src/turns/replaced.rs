//! Volumes that go while others are served, and others that come under their numbers, with other origins.
//!
//! Job: be the driver of a removal. Nothing of the volume is asked any more, what is dirty goes to its origin, other
//! volumes go on, and at any step the machine may be cut off. When the manager has forgotten the volume, another origin
//! takes its place, with contents that were never anywhere, and the driver believes whatever the cache holds under the
//! number. The oracles know only the new contents: one old sector is a violation (G1, G2).
//!
//! The other one comes at once, or later, or with a start, or never. What the cache holds of the first may be erased
//! meanwhile.
//!
//! What it does not do: remove volumes of a store.

use zc_cache::CacheManager;
use zc_cache::seam::Event;
use zc_core::{ErrorKind, Mode, VolumeId};

use crate::boot::{kill, power_cut};
use crate::content::{self, SECTOR};
use crate::requests::request_of_another;
use crate::rest::drain;
use crate::settings::{draw_settings, serve_volume};
use crate::world::{PATIENCE, World};

/// Steps between two ticks while a volume goes.
const TURNS_PER_TICK: u32 = 16;

/// A volume goes, and another one takes its number.
pub(crate) fn replace_volume(world: &mut World) {
    let volume = world.env.random_range(0..world.volumes.len());
    let in_store = world.pooled.as_ref().is_some_and(|pooled| pooled.has(volume));
    let is_known = world.state.was_given_up(volume) || world.state.is_incomplete(volume);
    // Nothing is written to the origin of a volume that is read-only.
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

/// Erases data of a removed volume, while others are served and another one comes.
fn erase_removed(world: &mut World, volume: usize) {
    world.env.note("erasures");
    let others = (0..world.volumes.len()).filter(|other| *other != volume);
    let keep = others.map(|other| VolumeId(other as u16)).collect();
    world.event(Event::Erase { keep });
}

fn is_well(world: &World) -> bool {
    world.manager.as_ref().is_some_and(CacheManager::is_healthy)
}

/// The volume becomes clean, as no client asks anything of it.
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
        // Time goes on however much there is to do: what is under way is looked at once a tick.
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

/// Another origin takes the place of the volume's, and is served under the number, now or later.
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
    // Nothing is known of the number: the cache is believed.
    (config.trusted, config.may_be_dirty, config.lost_writes) = (true, false, false);
    world.state.trust(volume);
    world.state.set_dirty(volume, false);
    world.volumes.replace(volume);
    if world.env.random_bool(0.6) {
        serve_volume(world, volume);
    }
}
