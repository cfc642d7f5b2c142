//! Schedules that chance seldom produces: a few requests, a stalled operation, and a crash at a chosen moment.
//!
//! Job: bring the cache to a point at which a flush could be answered too early, or a start could expose data whose
//! fate it may still decide otherwise; then cut the power and read everything. Lengths, places and stalled zones are
//! drawn, so each schedule stands for many.
//!
//! It does not check anything; the model disk does, after the restart.

use zc_cache::CacheManager;
use zc_cache::seam::{Event, RequestKind};
use zc_core::{Ack, Codec, Mode, ReqId, VolumeId};

use crate::boot::{kill, power_cut};
use crate::clients::ClientKind;
use crate::content::{self, SECTOR};
use crate::coverage::NEW_CONTENTS;
use crate::requests::submit;
use crate::rest::{drain, read_all};
use crate::settings::{reconfigured, serve_volume};
use crate::turns::rot::rot_placed;
use crate::world::World;
use crate::zone::Zone;

/// Steps after which a wait for an answer is abandoned, because another stall delays it.
const ANSWER_STEPS: u32 = 400;
/// Steps after which a wait for a volume to become clean is abandoned.
const CLEAN_STEPS: u32 = 3_000;
/// Age limit that no epoch of a schedule reaches.
const LONG_AGE_MS: u64 = 60_000;

/// Whole extents of a volume.
#[derive(Debug, Clone, Copy)]
struct Place {
    volume: usize,
    offset: usize,
    len: usize,
}

/// Runs one of the schedules, with a power cut at its end.
pub(crate) fn aim(world: &mut World) {
    drain(world);
    for volume in 0..world.volumes.len() {
        serve_volume(world, volume);
        // The first flush may fail for data lost in a crash.
        flush(world, volume);
    }
    if world.env.is_violated() {
        return;
    }
    let first = world.env.random_range(0..world.volumes.len());
    let second = (first + 1) % world.volumes.len();
    let schedule = if world.config.generation_bits == 1 { 9 } else { world.env.random_range(0..9) };
    world.env.trace(|| format!("schedule {schedule} for volumes {first} and {second}"));
    match schedule {
        0 => share_clean(world, second),
        1 => share_before_a_flush(world, second),
        2 => hang_piece(world, first, second),
        3 => write_into_a_piece(world, first, second),
        4 => kill_and_flush(world, first),
        5 => kill_and_write_through(world, first),
        6 => use_a_chain_again(world, first, second),
        7 => share_rotten(world, second),
        8 => damage_last_commit(world, first),
        _ => use_slots_again(world, first),
    }
    world.queue.resume();
    if !world.env.is_violated() {
        read_all(world);
    }
}

fn in_mode(world: &World, mode: Mode) -> Vec<usize> {
    (0..world.volumes.len()).filter(|volume| world.volumes[*volume].mode == mode).collect()
}

/// Stores clean content of a volume, which another one relies on before any flush.
fn share_clean(world: &mut World, back: usize) {
    let Some(clean) = write_clean(world) else { return };
    drain(world);
    pass(world, 120);
    rely_on(world, clean, back);
}

/// Corrupts clean content of a volume before another volume writes the same content: the corruption is older than the
/// write.
fn share_rotten(world: &mut World, back: usize) {
    calm(world, back);
    world.cache.placed_mut().clear();
    let Some(clean) = write_clean(world) else { return };
    drain(world);
    for _ in 0..20 {
        tick_and_settle(world);
    }
    if world.env.is_violated() || !rot_placed(world, 0.5) {
        return;
    }
    world.env.note("aimed: content that rotted before it was shared");
    write_new(world, back);
    rely_on(world, clean, back);
}

/// Flushes a volume twice and damages the data of the second flush. Then the process dies, or the power fails, at
/// once or after the device has been idle.
fn damage_last_commit(world: &mut World, volume: usize) {
    calm(world, volume);
    let Some(place) = write_new(world, volume) else { return };
    flush(world, volume);
    world.cache.placed_mut().clear();
    write_at(world, place);
    write_new(world, volume);
    flush(world, volume);
    if world.env.random_bool(0.5) {
        for _ in 0..20 {
            tick_and_settle(world);
        }
    }
    if world.env.is_violated() || !rot_placed(world, 0.4) {
        return;
    }
    world.env.note("aimed: last commits damaged");
    if world.env.random_bool(0.5) {
        kill(world);
    } else {
        power_cut(world);
    }
}

/// Lets a volume rely on clean content of another one. The journal is durable when the clean unit completes, so
/// nothing else requests a flush.
fn share_before_a_flush(world: &mut World, back: usize) {
    calm(world, back);
    world.queue.stall(Zone::SlotWrite, u64::MAX);
    let Some(clean) = write_clean(world) else { return };
    for _ in 0..20 {
        // A unit that is not full is written when it is old.
        tick_and_settle(world);
    }
    let contents = new_contents(world, 1);
    if let Some(place) = write_extents(world, back, contents, 1) {
        flush(world, place.volume);
    }
    world.queue.resume();
    settle(world);
    rely_on(world, clean, back);
}

/// Stores new contents on a volume in write-through. Returns the first of their numbers and the number of extents.
fn write_clean(world: &mut World) -> Option<(u64, usize)> {
    let through = in_mode(world, Mode::WriteThrough);
    if through.is_empty() {
        return None;
    }
    let clean = through[world.env.random_range(0..through.len())];
    let extents = world.env.random_range(4..=16);
    let contents = new_contents(world, extents);
    write_extents(world, clean, contents, extents);
    Some((contents, extents))
}

fn rely_on(world: &mut World, (contents, extents): (u64, usize), back: usize) {
    let shared = world.env.random_range(1..=extents);
    write_extents(world, back, contents, shared);
    pass(world, 20);
    world.env.note("aimed: content that another volume stored");
    flush_and_cut(world, back);
}

/// Puts dirty data of two volumes into a piece that hangs, or whose flush does, before one of them requests a flush.
fn hang_piece(world: &mut World, first: usize, second: usize) {
    let zone = [Zone::DirtyWrite, Zone::DirtyWrite, Zone::Flush, Zone::Journal][world.env.random_range(0..4)];
    world.queue.stall(zone, u64::MAX);
    let extents = world.env.random_range(1..=6);
    let contents = new_contents(world, extents);
    write_extents(world, first, contents, extents);
    let contents = if world.env.random_bool(0.3) { contents } else { new_contents(world, extents) };
    write_extents(world, second, contents, extents);
    pass(world, 60);
    // Its region is marked first, and that is flushed.
    if let Some(through) = in_mode(world, Mode::WriteThrough).first() {
        let contents = new_contents(world, 1);
        write_extents(world, *through, contents, 1);
    }
    pass(world, 60);
    stall_sometimes(world, 0.7, Zone::Flush, u64::MAX);
    pass(world, 40);
    if world.env.random_bool(0.5) {
        let contents = new_contents(world, 1);
        write_extents(world, second, contents, 1);
        pass(world, 10);
    }
    world.env.note("aimed: pieces that hang");
    flush_and_cut(world, second);
}

/// Writes half of a volume's epoch in a piece of another volume, for which no client waits. Destaging makes the
/// journal durable, and no flush covers the piece. Then the rest of the epoch is flushed.
fn write_into_a_piece(world: &mut World, other: usize, volume: usize) {
    if other == volume {
        return;
    }
    calm(world, other);
    calm(world, volume);
    write_new(world, other);
    flush(world, other);
    write_new(world, other);
    write_new(world, volume);
    settle(world);
    stall_sometimes(world, 0.5, Zone::DirtyWrite, u64::MAX);
    world.event(Event::Destage { volume: VolumeId(other as u16) });
    pass(world, 40);
    world.queue.stall(Zone::Flush, u64::MAX);
    pass(world, 40);
    write_new(world, volume);
    pass(world, 10);
    world.env.note("aimed: epochs of which half is in another volume's piece");
    flush_and_cut(world, volume);
}

/// Kills the process with data that no flush has covered. The next one answers a flush that has nothing to write.
fn kill_and_flush(world: &mut World, volume: usize) {
    world.queue.stall(Zone::Flush, u64::MAX);
    write_new(world, volume);
    pass(world, 200);
    kill(world);
    serve_volume(world, volume);
    stall_sometimes(world, 0.5, Zone::Journal, world.env.now() + 200);
    pass(world, 6);
    world.env.note("aimed: flushes soon after a kill");
    flush_and_cut(world, volume);
}

/// Kills the process when the origin has all dirty data and only the intent log records that. The next one writes
/// past the dirty layer before the journal records it, and the power fails: the old dirty data must not return.
fn kill_and_write_through(world: &mut World, volume: usize) {
    calm(world, volume);
    // An intent log counts once the start before it has read everything.
    for _ in 0..ANSWER_STEPS {
        if world.manager.as_ref().is_some_and(CacheManager::is_loaded) || world.env.is_violated() {
            break;
        }
        world.step_or_tick();
    }
    let Some(place) = write_new(world, volume) else { return };
    flush(world, volume);
    world.queue.stall(Zone::Journal, u64::MAX);
    if world.env.is_violated() {
        return;
    }
    world.event(Event::Destage { volume: VolumeId(volume as u16) });
    settle(world);
    // The next session has other settings.
    world.volumes[volume].mode = Mode::WriteThrough;
    world.volumes.changed(volume);
    kill(world);
    serve_volume(world, volume);
    world.queue.stall(Zone::Journal, u64::MAX);
    if !world.env.is_violated() {
        write_at(world, place);
        settle(world);
    }
    world.env.note("aimed: writes past the dirty layer soon after a kill");
    flush_and_cut(world, volume);
}

/// Lets only a summary record zeros that a volume has flushed. Nothing else keeps its unit: the other extents in it
/// are rewritten until the slot has been reused.
fn use_a_chain_again(world: &mut World, other: usize, volume: usize) {
    if other == volume || write_new(world, volume).is_none() {
        return;
    }
    calm(world, other);
    calm(world, volume);
    let Some(place) = write_new(world, volume) else { return };
    if !become_clean_for(world, volume)
        || write_new(world, other).is_none()
        || !become_clean_for(world, other)
    {
        return;
    }
    let extent = world.cache.geometry().extent_bytes as usize;
    let in_unit = (world.cache.geometry().weu_bytes as usize / extent)
        .min(world.volumes[other].size_bytes as usize / extent);
    write_at(world, Place { volume: other, offset: 0, len: extent });
    settle(world);
    write_values(world, place, core::iter::repeat(0));
    settle(world);
    flush(world, volume);
    world.queue.stall(Zone::Journal, u64::MAX);
    for _ in 0..world.cache.geometry().slots + 2 {
        if world.env.is_violated() {
            return;
        }
        write_at(world, Place { volume: other, offset: 0, len: in_unit * extent });
        settle(world);
    }
    world.env.note("aimed: units of summaries used again");
    cut(world);
}

/// Fills most slots with dirty data and passes clean content through the few others. Generations of one bit wrap
/// around while the index has entries that share the slots' first contents.
fn use_slots_again(world: &mut World, back: usize) {
    let through = in_mode(world, Mode::WriteThrough);
    let Some(clean) = through.first().copied() else { return };
    let extent = world.cache.geometry().extent_bytes as usize;
    let unit = world.cache.geometry().weu_bytes as usize / extent * extent;
    let (slots, room) =
        (world.cache.geometry().slots as usize, world.volumes[clean].size_bytes as usize / unit);
    if room < 3 {
        return;
    }
    calm(world, back);
    world.volumes[clean].codec = Codec::Raw;
    reconfigured(world, clean);
    let contents = new_contents(world, unit / extent);
    for copy in 0..room / 2 {
        write_contents(world, Place { volume: clean, offset: copy * unit, len: unit }, contents);
        settle(world);
    }
    for round in 0..4 * slots {
        if world.env.is_violated() {
            return;
        }
        if round < slots / 2 {
            let contents = new_contents(world, unit / extent);
            write_extents(world, back, contents, unit / extent);
        } else {
            let offset = world.env.random_range(room / 2..room) * unit;
            write_at(world, Place { volume: clean, offset, len: unit });
            settle(world);
            let offset = world.env.random_range(0..room / 2 * unit / extent) * extent;
            read(world, Place { volume: clean, offset, len: extent });
        }
        tick_and_settle(world);
    }
    world.env.note("aimed: slots that come round");
}

/// Puts the volume in write-back. Its epochs then end only by flushes, it shares content, and it is answered at once.
fn calm(world: &mut World, volume: usize) {
    let config = &mut world.volumes[volume];
    config.mode = Mode::WriteBack;
    config.dedup = true;
    config.write_back.ack = Ack::Volatile;
    config.write_back.max_dirty_age_ms = LONG_AGE_MS;
    reconfigured(world, volume);
}

/// Destages a volume completely. Returns `true` if it became clean in time.
fn become_clean_for(world: &mut World, volume: usize) -> bool {
    world.event(Event::Destage { volume: VolumeId(volume as u16) });
    for _ in 0..CLEAN_STEPS {
        if world.env.is_violated() || world.dirty(volume).is_none() {
            break;
        }
        world.step_or_tick();
    }
    !world.env.is_violated() && world.dirty(volume).is_none()
}

/// Stalls a zone by chance; otherwise no zone hangs.
fn stall_sometimes(world: &mut World, chance: f64, zone: Zone, until: u64) {
    if world.env.random_bool(chance) {
        world.queue.stall(zone, until);
    } else {
        world.queue.resume();
    }
}

/// Executes at most `most` steps or ticks.
fn pass(world: &mut World, most: u32) {
    for _ in 0..world.env.random_range(0..=most) {
        if world.env.is_violated() {
            return;
        }
        world.step_or_tick();
    }
}

/// Completes everything that does not hang, without advancing time.
fn settle(world: &mut World) {
    for _ in 0..ANSWER_STEPS {
        if world.env.is_violated() || !world.can_step() {
            return;
        }
        world.step();
    }
}

fn tick_and_settle(world: &mut World) {
    if !world.env.is_violated() {
        world.tick();
        settle(world);
    }
}

/// Flushes for a client, and waits for the answer unless it is stalled.
fn flush(world: &mut World, volume: usize) {
    if world.env.is_violated() {
        return;
    }
    let req = ReqId(world.clients.next());
    submit(world, volume, 0, 0, RequestKind::Flush, ClientKind::Flush);
    for _ in 0..ANSWER_STEPS {
        if world.env.is_violated() || !world.clients.waits(req) {
            return;
        }
        world.step_or_tick();
    }
}

/// Flushes for a client; when it is answered the power is cut.
fn flush_and_cut(world: &mut World, volume: usize) {
    flush(world, volume);
    cut(world);
}

fn cut(world: &mut World) {
    if !world.env.is_violated() {
        world.queue.resume();
        power_cut(world);
    }
}

/// Returns the first number of new contents for this number of extents.
fn new_contents(world: &mut World, extents: usize) -> u64 {
    world.clients.new_contents(extents * world.cache.geometry().extent_bytes as usize / SECTOR)
}

fn read(world: &mut World, place: Place) {
    if world.env.is_violated() {
        return;
    }
    let Place { volume, offset, len } = place;
    let buf = world.clients.new_buf();
    world.memory.insert(buf, vec![0xaa; len]);
    submit(world, volume, offset, len, RequestKind::Read { buf }, ClientKind::Read(buf));
}

/// Writes a few extents of new contents at a drawn place.
fn write_new(world: &mut World, volume: usize) -> Option<Place> {
    let extents = world.env.random_range(1..=4);
    let contents = new_contents(world, extents);
    write_extents(world, volume, contents, extents)
}

/// Writes new contents to a place.
fn write_at(world: &mut World, place: Place) {
    let contents = new_contents(world, place.len / world.cache.geometry().extent_bytes as usize);
    write_contents(world, place, contents);
}

/// Writes whole extents at a drawn place, with contents from this number on.
fn write_extents(world: &mut World, volume: usize, contents: u64, extents: usize) -> Option<Place> {
    let extent = world.cache.geometry().extent_bytes as usize;
    let room = world.volumes[volume].size_bytes as usize / extent;
    let extents = extents.min(room);
    if extents == 0 || world.env.is_violated() {
        return None;
    }
    let offset = world.env.random_range(0..=room - extents) * extent;
    let place = Place { volume, offset, len: extents * extent };
    write_contents(world, place, contents);
    Some(place)
}

fn write_contents(world: &mut World, place: Place, contents: u64) {
    world.env.note(NEW_CONTENTS);
    write_values(world, place, contents..);
}

fn write_values(world: &mut World, place: Place, values: impl Iterator<Item = u64>) {
    let Place { volume, offset, len } = place;
    let buf = world.clients.new_buf();
    let start = world.env.now() + 1;
    let mut data = vec![0; len];
    for ((index, sector), id) in data.chunks_mut(SECTOR).enumerate().zip(values) {
        content::fill(id, sector);
        world.models.issue(volume, offset / SECTOR + index, id, start);
    }
    world.memory.insert(buf, data);
    let kind = RequestKind::Write { buf, fua: false };
    submit(world, volume, offset, len, kind, ClientKind::Write { fua: false });
}
