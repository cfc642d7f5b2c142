//! Dirty extents that become corrupt, one at a time, and are rewritten or given up.
//!
//! Job: damage a stored extent, or store another content there under its fingerprint. Then a client rewrites its
//! sectors and flushes, or an operator gives them up, before any other client request. If there is no capacity for
//! the rewrite, the extent stays corrupt, as with plain bit rot. Otherwise nothing excuses the volume from then on:
//! it must become clean, and no request may fail. The origin alone is checked in all sectors except those that the
//! manager reports as left out (`CONSISTENCY.md`, G6). Data that is given up reads as zeros.
//!
//! That holds for pieces of extents, which are stored without a fingerprint and never shared. A shared extent is
//! corrupt for all its users, as with plain bit rot.
//!
//! It does not corrupt extents that are rewritten in part, or never (the seeds with plain bit rot do).

use zc_cache::CacheManager;
use zc_cache::seam::Event;
use zc_core::{Codec, Mode, SECTOR_BYTES, VolumeId, limits};
use zc_format::{EXTENT_HEADER_BYTES, ExpectedExtent, ExtentHeader};

use crate::placed::Placed;
use crate::rest::{drain, write_anew};
use crate::world::{PATIENCE, World};

/// Corrupts a stored extent; then its sectors are rewritten and flushed, or an operator gives them up.
pub(crate) fn rot_one(world: &mut World) {
    drain(world);
    if world.cache.placed_mut().is_empty() || world.env.is_violated() {
        return;
    }
    let index = world.env.random_range(0..world.cache.placed_mut().len());
    let Some(Placed { header, offset_bytes }) = world.cache.placed_mut().take(index) else { return };
    let volume = usize::from(header.key.volume.0);
    let first = header.key.extent.0 * u64::from(world.cache.geometry().extent_bytes)
        + u64::from(header.first_sector) * u64::from(SECTOR_BYTES);
    let writes = world.volumes.is_served(volume) && world.volumes[volume].mode == Mode::WriteBack;
    if !writes || !rot_extent(world, &header, offset_bytes, true) {
        return;
    }
    world.trouble.rotten = true;
    if world.env.random_bool(0.3) {
        give_up_rotten(world, volume);
    } else {
        write_anew(world, volume, first as usize, header.raw_bytes as usize);
        world.env.note("stored extents rotted and written anew");
    }
    world.trouble.rotten = false;
    if header.fingerprint.0 != [0; 32] {
        // Other extents may share it, and no client has rewritten those.
        world.trouble.damage();
    }
}

/// Lets destaging or a scrub find unreadable data, if any dirty data is corrupt, before an operator gives it up.
fn give_up_rotten(world: &mut World, volume: usize) {
    let id = VolumeId(volume as u16);
    world.event(Event::Destage { volume: id });
    let unreadable = |world: &World| world.dirty(volume).is_some_and(|dirty| dirty.unreadable_bytes > 0);
    wait_until(world, |world| world.dirty(volume).is_none() || unreadable(world));
    if !unreadable(world) {
        if world.dirty(volume).is_some() {
            // A failed cache reads nothing: the extent stays corrupt.
            world.trouble.lie(true);
        }
        return;
    }
    world.losses.given_up(volume);
    world.event(Event::GiveUpUnreadable { volume: id });
    let giving_up = |world: &World| world.manager.as_ref().is_some_and(|manager| manager.is_giving_up(id));
    wait_until(world, |world| !giving_up(world));
    let done = world.manager.as_ref().is_some_and(CacheManager::is_healthy) && !giving_up(world);
    zeros_ended(world, volume, done);
}

fn wait_until(world: &mut World, ends: impl Fn(&World) -> bool) {
    for _ in 0..PATIENCE {
        if ends(world) || world.env.is_violated() {
            return;
        }
        world.step_or_tick();
    }
}

/// Records the end of these zeros; without `done` it is unknown if they are durable.
fn zeros_ended(world: &mut World, volume: usize, done: bool) {
    world.env.advance();
    world.models.zeros_ended(volume, done, world.env.now());
    if done {
        world.env.note("rotten dirty data given up alone");
    } else {
        world.trouble.lie(true);
    }
}

/// Corrupts some of the most recently placed extents. Returns `true` if any was corrupted.
pub(crate) fn rot_placed(world: &mut World, share: f64) -> bool {
    let mut any = false;
    for Placed { header, offset_bytes } in world.cache.placed_mut().take_all() {
        any |= world.env.random_bool(share) && rot_extent(world, &header, offset_bytes, false);
    }
    if any {
        world.trouble.lie(true);
    }
    any
}

/// Flips a bit of a stored extent, or stores another content there if `may_forge` permits. Returns `false` if the
/// extent is not on the device.
fn rot_extent(world: &mut World, header: &ExtentHeader, offset_bytes: u32, may_forge: bool) -> bool {
    let at = (world.cache.geometry().slot_offset(header.slot) + u64::from(offset_bytes)) as usize;
    let len = (EXTENT_HEADER_BYTES + header.stored_bytes).next_multiple_of(limits::PLACE_ALIGN_BYTES);
    let expected = ExpectedExtent {
        salt: world.cache.geometry().salt,
        slot: header.slot,
        generation: header.generation,
        weu_seq: header.weu_seq,
        offset_bytes,
        raw_bytes: header.raw_bytes,
        first_sector: header.first_sector,
        key: Some(header.key),
        print: None,
    };
    let bytes = &world.cache.disk().seen[at..at + len as usize];
    if ExtentHeader::verify(bytes, &expected).is_err() {
        return false;
    }
    if may_forge
        && header.fingerprint.0 != [0; 32]
        && world.env.random_bool(0.5)
        && forge(world, header, offset_bytes, at)
    {
        world.env.note("stored extents with another content");
        return true;
    }
    let spoiled = at + world.env.random_range(0..(EXTENT_HEADER_BYTES + header.stored_bytes) as usize);
    let byte = world.cache.disk().seen[spoiled] ^ (1 << world.env.random_range(0..8));
    world.cache.disk_mut().damage(spoiled, &[byte]);
    true
}

/// Stores another content under the same fingerprint, with a valid checksum.
fn forge(world: &mut World, header: &ExtentHeader, offset_bytes: u32, at: usize) -> bool {
    // No client writes this.
    let content = vec![0x5a; header.raw_bytes as usize];
    let mut packed = vec![0; header.stored_bytes as usize];
    let payload = match world.memory.reducer().compress(header.codec, &content, &mut packed) {
        Some(len) => &packed[..len],
        None if header.codec == Codec::Raw => &content[..],
        None => return false,
    };
    let forged = ExtentHeader { stored_bytes: payload.len() as u32, ..*header };
    let mut bytes = vec![0; EXTENT_HEADER_BYTES as usize + payload.len()];
    forged.seal(offset_bytes, payload, &mut bytes, world.cache.geometry().salt);
    world.env.trace(|| format!("another content in {:?} at {offset_bytes}", header.slot));
    world.cache.disk_mut().damage(at, &bytes);
    world.trouble.forged = true;
    true
}
