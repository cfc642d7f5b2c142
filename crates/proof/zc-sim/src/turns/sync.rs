//! One client that writes and syncs, without any other: such commits are one write.

use zc_cache::seam::RequestKind;

use crate::boot::{kill, power_cut};
use crate::clients::ClientKind;
use crate::requests::{fill, span, submit};
use crate::rest::{drain, flush_if_served};
use crate::settings::serve_volume;
use crate::world::World;

/// Lets one client write and sync repeatedly without any other. Often it is cut off.
pub(crate) fn sync_often(world: &mut World) {
    drain(world);
    let volume = world.env.random_range(0..world.volumes.len());
    serve_volume(world, volume);
    world.env.note("runs of one client that syncs");
    for _ in 0..world.env.random_range(1..40) {
        write_and_sync(world, volume);
        if world.env.random_bool(0.03) {
            for _ in 0..world.env.random_range(0..12) {
                world.step();
            }
            if world.env.random_bool(0.7) {
                power_cut(world);
            } else {
                kill(world);
            }
            return;
        }
        drain(world);
        // A start that cut it off may have left the volume out.
        if world.env.is_violated() || !world.volumes.is_served(volume) {
            return;
        }
    }
}

/// Submits a small write that is durable when it completes, or one followed by a flush.
fn write_and_sync(world: &mut World, volume: usize) {
    let (offset, len) = span(world, volume, 8 << 10);
    if len == 0 {
        return;
    }
    let buf = world.clients.new_buf();
    let fua = world.env.random_bool(0.5);
    fill(world, volume, offset, len, buf);
    submit(world, volume, offset, len, RequestKind::Write { buf, fua }, ClientKind::Write { fua });
    if !fua {
        drain(world);
        flush_if_served(world, volume);
    }
}
