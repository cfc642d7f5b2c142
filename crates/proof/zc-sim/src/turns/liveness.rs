//! Liveness: once nothing fails any more, everything comes to an end.
//!
//! Job: at the end of a seed operations hang and requests wait. Then every fault is switched off, devices and origins
//! answer, and nothing is cut off any more. From then on every request ends. A failed cache is reattached, and stays
//! healthy. Every volume becomes clean: by itself, or, if the device lost acknowledged data, once an operator gives
//! that up. Then no request fails for an earlier fault of the device, and the stop is a clean one.
//!
//! It does not bound the duration, except by a number of steps that no run should need.

use zc_cache::seam::Event;
use zc_cache::{CacheManager, DirtyState};
use zc_core::{SECTOR_BYTES, VolumeId};

use crate::boot::kill;
use crate::drawn::Faults;
use crate::judging::judge_origins;
use crate::requests::random_request;
use crate::rest::{drain, read_all, stop_and_start, write_anew};
use crate::settings::make_writable;
use crate::trouble::Trouble;
use crate::turns::destage::drop_dirty;
use crate::turns::store::mend_pool;
use crate::world::{PATIENCE, World};
use crate::zone;

/// Turns of client requests while a zone hangs.
const HUNG_TURNS: u32 = 150;

/// Repairs everything that hangs or fails, after which everything must come to an end.
pub(crate) fn judge_liveness(world: &mut World) {
    if world.is_pool_rotten() {
        return;
    }
    hang(world);
    mend(world);
    mend_pool(world);
    drain(world);
    if !world.env.is_violated() && !is_in_order(world) {
        world.env.note("caches taken up again at the end");
        kill(world);
    }
    become_clean(world);
    // A start continues from the state that it finds, and overwrites damaged metadata: the next one finds the rest
    // intact.
    if world.trouble.damaged && !world.env.is_violated() {
        stop_and_start(world);
        become_clean(world);
    }
    if world.env.is_violated() {
        return;
    }
    // Data that only the device had is on the origins: nothing else excuses a volume any more.
    world.trouble = Trouble { forged: world.trouble.forged, ..Trouble::default() };
    read_all(world);
    for volume in 0..world.volumes.len() {
        let len = world.volumes[volume].size_bytes.min(u64::from(SECTOR_BYTES)) as usize;
        write_anew(world, volume, 0, len);
    }
    judge_order(world);
}

/// Submits requests while a zone does not answer.
fn hang(world: &mut World) {
    let zone = zone::SLOW[world.env.random_range(0..zone::SLOW.len())];
    world.queue.stall(zone, u64::MAX);
    for _ in 0..HUNG_TURNS {
        if world.env.is_violated() {
            return;
        }
        if world.env.random_bool(0.3) && world.in_flight() < 12 {
            random_request(world);
        } else {
            world.step_or_tick();
        }
    }
}

fn mend(world: &mut World) {
    world.env.trace(|| "mended".to_owned());
    world.env.mend();
    world.trouble.lied_before = world.faults.may_lie();
    world.faults = Faults::default();
    world.queue.resume();
    world.late.mend(world.volumes.len());
    world.plan.habits.hangs = None;
    world.plan.habits.crash_after_flush = 0.0;
    world.crashes.call_off();
    world.cache.disk_mut().mend();
}

fn is_in_order(world: &World) -> bool {
    world.manager.as_ref().is_some_and(CacheManager::is_healthy)
}

/// Checks that a reattached cache stays healthy.
fn judge_order(world: &mut World) {
    if !is_in_order(world) {
        world.env.violate("the cache is out of order though nothing fails");
    }
}

/// Serves every volume, and destages or gives up its dirty data.
fn become_clean(world: &mut World) {
    for volume in 0..world.volumes.len() {
        if world.env.is_violated() {
            return;
        }
        make_writable(world, volume);
        if world.dirty(volume).is_some_and(|state| !state.fenced) {
            world.event(Event::Destage { volume: VolumeId(volume as u16) });
        }
    }
    for volume in 0..world.volumes.len() {
        wait_until_clean(world, volume);
        judge_order(world);
        if world.env.is_violated() {
            return;
        }
    }
    world.env.note("machines mended in the end");
    judge_origins(world);
}

/// Waits until the volume is clean. Data lost by the device cannot be destaged: an operator gives it up.
fn wait_until_clean(world: &mut World, volume: usize) {
    for _ in 0..PATIENCE {
        if world.env.is_violated() || is_known_clean(world, volume) {
            return;
        }
        // Destaging that is stuck at unread data is retried; damaged data fails to read again.
        let lost = |state: &DirtyState| state.fenced || (state.stuck_bytes > 0 && world.trouble.damaged);
        if world.dirty(volume).as_ref().is_some_and(lost) {
            break;
        }
        world.step_or_tick();
    }
    if !world.trouble.damaged || world.dirty(volume).is_none() {
        let state = world.dirty(volume);
        let text = format!("volume {volume} does not become clean though nothing fails: {state:?} (G6)");
        world.env.violate(text);
        return;
    }
    world.env.note("dirty data lost in the end");
    drop_dirty(world, volume);
}

/// Returns `true` if the volume is clean according to a manager that has loaded everything that its start found.
fn is_known_clean(world: &World, volume: usize) -> bool {
    world.dirty(volume).is_none() && world.manager.as_ref().is_some_and(CacheManager::is_loaded)
}
