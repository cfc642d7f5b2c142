//! Exchanges of the manager in a process that survives them: `zcctl cache reattach`, `replace` and `resize`.
//!
//! Job: drive an exchange as the daemon does (`shard/pause` of zc-engine, `control/reattach` and `control/replace` of
//! zc-daemon). Requests are held back until nothing refers to the old manager. Then the code of a start begins a session
//! on the same device, or on a newly emptied one, and the next manager gets the held requests in order. The process may
//! end at any step.
//! For the judges, a reattached device is a kill whose clients live on. An emptied device excuses nothing: the
//! origins hold all acknowledged data.
//!
//! Invariants: a held request has not begun. It counts as issued when the next manager gets it, so no older content
//! is legal once it was answered.
//!
//! It does not exchange a journal on a separate device, or the store of a volume.

use core::mem;
use std::collections::BTreeSet;

use zc_cache::seam::Event;
use zc_cache::{CacheManager, startup};
use zc_core::{BufId, Mode, VolumeId};
use zc_format::{Geometry, PlanOptions};

use crate::boot::{cut_off_start, open, serve, start};
use crate::canary::DriverBug;
use crate::disk::{self, Disk};
use crate::ends::{gone, process_dies, session_ends};
use crate::exchange::{Device, buffer};
use crate::forgive::forgive_lies;
use crate::requests::{begin_again, client_request, random_request, span};
use crate::rest::{mark_clean, wait_for_stop};
use crate::settings::{reconfigured, serve_volume};
use crate::stored::pool_dies;
use crate::trouble::Trouble;
use crate::world::World;

/// Steps until a pause is cancelled, because operations in flight do not end.
const PAUSE_STEPS: u32 = 3_000;
/// Steps until an exchange is cancelled, because dirty data does not reach the origins.
const HOME_STEPS: u32 = 4_000;
/// I/Os of a format, one of which may be drawn as the last.
const FORMAT_IOS: u32 = 20;

/// Exchanges the manager.
pub(crate) fn exchange(world: &mut World) {
    match world.env.random_range(0..4) {
        0..2 => reattach(world),
        2 => replace_cache(world, "exchange: replace"),
        _ => replace_cache(world, "exchange: resize"),
    }
}

/// Reattaches the cache device after a failure, or at an operator's request.
fn reattach(world: &mut World) {
    if world.faults.is_journal_gone(world.env.now()) {
        return;
    }
    if world.manager.as_ref().is_some_and(CacheManager::is_healthy) {
        world.trouble.session = true;
        world.event(Event::DeviceLost);
    }
    serve_for(world, 60);
    if !pause(world) {
        return;
    }
    let found = startup::read_superblock(&mut world.cache.raw(None, false));
    let is_as_left = found.is_ok_and(|found| found.session == world.state.session() && !found.clean);
    if !is_as_left || world.env.random_bool(0.05) {
        return call_off_exchange(world);
    }
    world.env.trace(|| "exchange: reattach".to_owned());
    world.env.note("exchange: reattach");
    manager_leaves(world, false);
    if world.env.random_bool(0.3) {
        world.env.note("exchange: devices that lost power");
        world.cache.disk_mut().power_cut(world.env.rng());
        // The intent log has records that the journal lost: volumes may be fenced.
        world.trouble.damage();
    }
    memory_is_lost(world);
    forgive_lies(world, true);
    take_over(world, Device::Cold);
}

/// Serves clients for up to `turns_max` turns.
fn serve_for(world: &mut World, turns_max: u32) {
    for _ in 0..world.env.random_range(0..turns_max) {
        if world.env.is_violated() {
            return;
        }
        if world.env.random_bool(0.4) && world.in_flight() < 12 {
            random_request(world);
        } else {
            world.step_or_tick();
        }
    }
}

/// Holds requests back until nothing refers to the manager. Returns `false` if that does not happen: then the
/// requests continue.
fn pause(world: &mut World) -> bool {
    world.exchange.pause();
    for _ in 0..PAUSE_STEPS {
        if world.env.is_violated() {
            return false;
        }
        if is_quiet(world) {
            // More requests may arrive while the next manager is created.
            for _ in 0..world.env.random_range(0..4) {
                random_client_request(world);
            }
            return true;
        }
        if world.env.random_bool(0.1) && world.exchange.holds() < 8 {
            random_client_request(world);
        } else {
            world.step_or_tick();
        }
    }
    call_off_exchange(world);
    false
}

/// Submits a request of a served volume that changes no settings.
fn random_client_request(world: &mut World) {
    let volume = world.env.random_range(0..world.volumes.len());
    let (offset, len) = span(world, volume, 64 << 10);
    if !world.volumes.is_served(volume) || len == 0 {
        return;
    }
    world.env.note("exchange: requests held back");
    client_request(world, volume, offset, len);
}

/// Returns `true` if only held requests are left, and no operation in flight is the manager's.
fn is_quiet(world: &mut World) -> bool {
    let is_idle = world.manager.as_ref().is_some_and(CacheManager::is_idle);
    if world.clients.len() != world.exchange.holds() || !is_idle {
        return false;
    }
    if !world.queue.is_empty() {
        let left = format!(
            "an idle manager has {:?} and {:?} in flight",
            world.queue.pending(),
            world.queue.unheard()
        );
        world.env.violate(left);
    }
    true
}

/// Cancels the exchange; the old manager stays.
fn call_off_exchange(world: &mut World) {
    world.env.trace(|| "exchange: called off".to_owned());
    world.env.note("exchange: called off");
    for request in world.exchange.release() {
        world.event(Event::Submit(request));
    }
}

/// Drops the old manager, with all buffers and clients whose requests are not held back.
fn manager_leaves(world: &mut World, clean: bool) {
    session_ends(world, clean);
    let held: BTreeSet<BufId> = world.exchange.buffers();
    world.memory.keep_only(&held);
    if world.env.has_bug(DriverBug::ExchangeBuffers) {
        world.memory.wipe();
    }
}

/// Loses the memory of the old manager, as a kill does. Requests that are held back have not begun.
fn memory_is_lost(world: &mut World) {
    world.env.advance();
    let now = world.env.now();
    world.losses.kill();
    world.models.exchanged(|volume| world.losses.is_safe(volume), now);
    world.env.advance();
}

/// Begins a session on the device, and gives the held requests to its manager. If that fails the process ends.
fn take_over(world: &mut World, device: Device) {
    world.exchange.begin_on(Some(device));
    let mut records = Vec::new();
    let Some(Ok(opened)) = open(world, &mut records) else { return ends_in_exchange(world) };
    serve(world, opened, &records);
    world.exchange.begin_on(None);
    // Volume table and state directory agree again with the device's contents.
    for volume in (0..world.volumes.len()).filter(|volume| world.volumes.is_served(*volume)) {
        world.state.trust(volume);
    }
    world.event(Event::Tick { now_ms: world.env.now_ms() });
    for request in world.exchange.release() {
        begin_again(world, request.req);
        // A repeated request with a buffer would violate an invariant of the manager.
        if world.env.has_bug(DriverBug::ExchangeRepeats) && buffer(&request).is_none() {
            world.event(Event::Submit(request.clone()));
        }
        world.event(Event::Submit(request));
    }
}

/// Ends the process while no manager serves.
fn ends_in_exchange(world: &mut World) {
    world.env.note("exchange: crashes");
    gone(world, false);
    pool_dies(world);
    process_dies(world);
    cut_off_start(world, "exchange: cut off");
    forgive_lies(world, true);
    start(world);
}

/// Destages everything, closes the cache, and replaces the device by an empty one: another device, or the same with
/// another length.
fn replace_cache(world: &mut World, name: &'static str) {
    if world.cache.geometry().has_journal_device() || !may_replace(world) {
        return;
    }
    let before: Vec<usize> =
        (0..world.volumes.len()).filter(|volume| world.volumes[*volume].mode == Mode::WriteBack).collect();
    for volume in &before {
        world.volumes[*volume].mode = Mode::WriteThrough;
        reconfigured(world, *volume);
        world.event(Event::Destage { volume: VolumeId(*volume as u16) });
    }
    if is_all_at_home(world) && pause(world) {
        if has_dirty(world) || world.env.random_bool(0.05) {
            call_off_exchange(world);
        } else {
            exchange_device(world, name);
        }
    }
    // A crash during the exchange is followed by a start, which may have served fewer volumes or changed more.
    for volume in before {
        let may_change = world.volumes.is_served(volume) && world.volumes[volume].mode == Mode::WriteThrough;
        if may_change && !world.faults.is_state_failing(world.env.now()) && !world.env.is_violated() {
            world.volumes[volume].mode = Mode::WriteBack;
            reconfigured(world, volume);
        }
    }
}

/// Returns `true` if nothing prevents an exchange of the device.
fn may_replace(world: &mut World) -> bool {
    let Some(manager) = &world.manager else { return false };
    let is_loading = manager.is_healthy() && !manager.is_loaded();
    let is_fenced = (0..world.volumes.len()).any(|volume| world.dirty(volume).is_some_and(|d| d.fenced));
    let is_known = world.state.has_open_cases();
    if is_loading
        || is_fenced
        || is_known
        || world.faults.is_state_failing(world.env.now())
        || world.volumes.any_free()
    {
        return false;
    }
    for volume in 0..world.volumes.len() {
        serve_volume(world, volume);
    }
    true
}

fn has_dirty(world: &World) -> bool {
    let Some(manager) = &world.manager else { return true };
    (0..world.volumes.len()).any(|volume| {
        let id = VolumeId(volume as u16);
        let dirty = manager.dirty(id).unwrap_or_default();
        dirty.bytes > 0 || dirty.waiting > 0 || dirty.fenced || manager.has_volatile(id)
    })
}

/// Waits until the origins have all dirty data, while clients continue.
fn is_all_at_home(world: &mut World) -> bool {
    for _ in 0..HOME_STEPS {
        if world.env.is_violated() {
            return false;
        }
        if !has_dirty(world) {
            return true;
        }
        if world.env.random_bool(0.1) && world.in_flight() < 6 {
            let volume = world.env.random_range(0..world.volumes.len());
            let (offset, len) = span(world, volume, 32 << 10);
            client_request(world, volume, offset, len);
        } else {
            world.step_or_tick();
        }
    }
    world.env.note("exchange: called off");
    false
}

/// Executes steps 3 to 5 of `control/replace`.
fn exchange_device(world: &mut World, name: &'static str) {
    world.env.trace(|| name.to_owned());
    world.manager.as_mut().expect("runs").leave_no_image();
    world.event(Event::Stop);
    let Some(clean) = wait_for_stop(world) else { return };
    if world.clients.len() != world.exchange.holds() || is_left_over(world) {
        let left = format!(
            "left over after a close: {:?} {:?}",
            world.memory.bufs().collect::<Vec<_>>(),
            world.queue.pending()
        );
        world.env.violate(left);
        return;
    }
    if clean && !mark_clean(world) || world.env.random_bool(0.1) {
        // A start finds the old device.
        return ends_in_exchange(world);
    }
    let manager = world.manager.as_ref().expect("runs");
    if !clean {
        for volume in 0..world.volumes.len() {
            let epoch = manager.dirty(VolumeId(volume as u16)).unwrap_or_default().newest_epoch;
            world.state.set_given_up(volume, epoch);
        }
    }
    world.losses.closed(manager);
    manager_leaves(world, clean);
    world.state.all_clean();
    if clean {
        world.models.nothing_in_memory();
    }
    memory_is_lost(world);
    if !make_device(world, name == "exchange: resize") {
        return ends_in_exchange(world);
    }
    // Until here a start finds the old device, whose stamps are older than a recorded distrust.
    world.state.trust_all();
    world.env.note(name);
    take_over(world, Device::Empty);
}

fn is_left_over(world: &World) -> bool {
    let held: BTreeSet<BufId> = world.exchange.buffers();
    !world.queue.is_empty() || world.memory.bufs().any(|buf| !held.contains(&buf))
}

/// Formats an empty cache with the old one's identity and another length. Returns `false` if the process ended first.
fn make_device(world: &mut World, same: bool) -> bool {
    let old = world.cache.geometry().clone();
    let slots = u64::from(old.slots);
    let slots = match world.env.random_range(0..8) {
        0 => slots,
        1..3 => (slots / 2).max(4),
        _ => slots + world.env.random_range(1..=8),
    };
    let mut geometry = Geometry::plan(&PlanOptions {
        device_bytes: (700 << 10) + slots * u64::from(old.weu_bytes),
        weu_bytes: old.weu_bytes,
        extent_bytes: old.extent_bytes,
        align_bytes: 0,
        journal_blocks: Some(old.journal_blocks),
    })
    .expect("a layout");
    geometry.checkpoint_blocks = geometry.checkpoint_blocks.min(old.checkpoint_blocks);
    geometry.salt = old.salt;
    let len = disk::device_bytes(&geometry);
    let disk = world.cache.disk_mut();
    let before = if same { disk.clone() } else { mem::replace(disk, Disk::new(len)) };
    if same {
        world.cache.disk_mut().resize(len);
    }
    world.cache.disk_mut().now = world.env.now();
    use_geometry(world, geometry);
    let left = world.env.random_bool(0.15).then(|| world.env.random_range(0..FORMAT_IOS));
    if world.format_cut_off(left) {
        world.trouble = Trouble::default();
        return true;
    }
    // The format's remains after a power cut decide which cache a start finds.
    if world.env.random_bool(0.6) {
        world.cache.disk_mut().power_cut(world.env.rng());
    } else {
        world.cache.disk_mut().settle();
    }
    // Nothing declares another device to be the cache yet, and the same device may still hold the old cache.
    let found = startup::read_superblock(&mut world.cache.raw(None, false));
    let is_old = found.is_ok_and(|superblock| superblock.geometry != *world.cache.geometry());
    if !same || is_old {
        let old_len = disk::device_bytes(&old);
        if same && old_len <= len {
            world.cache.disk_mut().resize(old_len);
        } else {
            *world.cache.disk_mut() = before;
        }
        use_geometry(world, old);
    }
    false
}

fn use_geometry(world: &mut World, geometry: Geometry) {
    world.config.geometry = geometry.clone();
    world.cache.use_geometry(geometry);
    world.promise.forget();
    world.judges.medium_changed();
}
