//! Requests that are answered while writes of WEUs hang (G8).

use crate::requests::random_request;
use crate::rest::drain;
use crate::world::World;
use crate::zone::Zone;

/// Checks that clients never wait for writes of WEUs (G8): everything is answered while these hang.
pub(crate) fn clients_do_not_wait_for_weus(world: &mut World) {
    if world.state.any_dirty() {
        return;
    }
    world.queue.stall(Zone::SlotWrite, u64::MAX);
    for _ in 0..world.env.random_range(1..30) {
        random_request(world);
        world.step();
    }
    // A volume that has switched to write-back does wait: its flushes are for the cache device.
    if world.state.any_dirty() {
        world.queue.resume();
    }
    drain(world);
    world.queue.resume();
    world.env.note("requests answered while WEU writes hang");
}
