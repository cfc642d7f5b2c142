//! Volumes that grow while they are served.

use crate::content::{self, SECTOR};
use crate::requests::request;
use crate::settings::{configure, serve_volume};
use crate::stored::grow_root;
use crate::world::World;

/// Size beyond which a volume does not grow.
const VOLUME_BYTES_MAX: usize = 1 << 20;

/// Extends a volume's origin, and then the volume, while requests are in progress. Often its end cuts an extent,
/// before or after. Mostly another volume used the added space before.
pub(crate) fn grow(world: &mut World) {
    let volume = world.env.random_range(0..world.volumes.len());
    serve_volume(world, volume);
    let old = world.volumes[volume].size_bytes as usize;
    let new = old + world.env.random_range(1..64) * SECTOR;
    if new > VOLUME_BYTES_MAX {
        return;
    }
    let cut = old % world.cache.geometry().extent_bytes as usize;
    if cut > 0 && world.env.random_bool(0.5) {
        world.env.note("requests under way where a volume ended");
        request(world, volume, old - cut, cut);
    }
    if !grow_root(world, volume, new as u64) {
        return;
    }
    let mut rest = vec![0; new - old];
    // A store's volume holds nothing where it was never written.
    let in_store = world.pooled.as_ref().is_some_and(|pooled| pooled.has(volume));
    let was_used = world.env.random_bool(0.7) && !in_store;
    for sector in rest.chunks_mut(SECTOR) {
        let value = if was_used { world.clients.new_content() } else { 0 };
        content::fill(value, sector);
        world.models.grow(volume, value);
    }
    world.origins[volume].grow(&rest);
    world.volumes[volume].size_bytes = new as u64;
    world.env.note("volumes grown while serving");
    let config = world.volumes[volume].clone();
    configure(world, config);
}
