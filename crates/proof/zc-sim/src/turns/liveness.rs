//! Liveness: once nothing fails any more, everything comes to an end.
//!
//! Job: at the end of a seed operations hang and requests wait; then every fault is switched off, devices and origins
//! answer, and nothing is cut off any more. From then on every request ends. A cache that is out of order is taken up
//! again, and stays in order. Every volume becomes clean: by itself, or, where the device lost what it had acknowledged,
//! once an operator gives that up. Then no request fails for what the device once did, and the stop is a clean one.
//!
//! What it does not do: say how long that may take, but for a number of steps that no run should need.

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

/// Turns in which clients ask while a zone hangs.
const HUNG_TURNS: u32 = 150;

/// Everything that hangs or fails is mended, and everything has to come to an end.
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
    // A start goes on from what it finds, and writes over damaged metadata: the one after it finds the rest whole.
    if world.trouble.damaged && !world.env.is_violated() {
        stop_and_start(world);
        become_clean(world);
    }
    if world.env.is_violated() {
        return;
    }
    // What only the device had is on the origins: nothing else excuses a volume any more.
    world.trouble = Trouble { forged: world.trouble.forged, ..Trouble::default() };
    read_all(world);
    for volume in 0..world.volumes.len() {
        let len = world.volumes[volume].size_bytes.min(u64::from(SECTOR_BYTES)) as usize;
        write_anew(world, volume, 0, len);
    }
    judge_order(world);
}

/// Clients ask while a zone does not answer.
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
    world.plan.habits.hangs = None;
    world.plan.habits.crash_after_flush = 0.0;
    world.crashes.call_off();
    world.cache.disk_mut().mend();
}

fn is_in_order(world: &World) -> bool {
    world.manager.as_ref().is_some_and(CacheManager::is_healthy)
}

/// The cache stays in order once it has been taken up again.
fn judge_order(world: &mut World) {
    if !is_in_order(world) {
        world.env.violate("the cache is out of order though nothing fails");
    }
}

/// Every volume is served, and its dirty data goes to the origin or is given up.
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

/// Waits until the volume is clean. What the device has lost does not become so: an operator gives it up.
fn wait_until_clean(world: &mut World, volume: usize) {
    for _ in 0..PATIENCE {
        if world.env.is_violated() || is_known_clean(world, volume) {
            return;
        }
        // Destaging that is stuck at what was not read is tried again; what is damaged is not read then either.
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

/// What a start finds is not all known until it has been looked at.
fn is_known_clean(world: &World, volume: usize) -> bool {
    world.dirty(volume).is_none() && world.manager.as_ref().is_some_and(CacheManager::is_loaded)
}
