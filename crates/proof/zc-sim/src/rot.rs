//! Dirty extents that rot, one at a time, and are written anew or given up.
//!
//! Job: damage a stored extent, or put another content there under its fingerprint; then have a client write its
//! sectors and flush, or an operator give them up, before another client asks for anything. If there is no room for what
//! is written, the extent stays rotten, as any that rots. Else nothing excuses the volume from then on: it has to become
//! clean, no request may fail, and the origin alone is judged in all sectors but those that the manager says it leaves
//! out (`CONSISTENCY.md`, G6). What is given up reads as zeros. That is so for pieces of extents, which are stored
//! without a fingerprint: nothing shares them. What is shared rots for all who share it, as any that rots.
//!
//! What it does not do: rot what is written anew in part, or never (the seeds with plain rot do).

use rand::RngExt as _;
use zc_cache::CacheManager;
use zc_cache::seam::Event;
use zc_core::{Codec, Mode, SECTOR_BYTES, VolumeId, limits};
use zc_format::{EXTENT_HEADER_BYTES, ExpectedExtent, ExtentHeader};

use crate::world::{PATIENCE, World};

/// So many placed extents are remembered.
const PLACED_MAX: usize = 64;

/// Where an extent, or a piece of one, was placed.
#[derive(Clone)]
pub(crate) struct Placed {
    header: ExtentHeader,
    offset_bytes: u32,
}

impl World {
    pub(crate) fn note_placed(&mut self, header: ExtentHeader, offset_bytes: u32) {
        if self.placed.len() == PLACED_MAX {
            self.placed.pop_front();
        }
        self.placed.push_back(Placed { header, offset_bytes });
    }

    /// A stored extent rots, and its sectors are written anew and flushed, or an operator gives them up.
    pub(crate) fn rot_one(&mut self) {
        self.drain();
        if self.placed.is_empty() || self.violation.is_some() {
            return;
        }
        let index = self.rng.random_range(0..self.placed.len());
        let Some(Placed { header, offset_bytes }) = self.placed.remove(index) else { return };
        let volume = usize::from(header.key.volume.0);
        let first = header.key.extent.0 * u64::from(self.geometry.extent_bytes)
            + u64::from(header.first_sector) * u64::from(SECTOR_BYTES);
        let writes = self.served[volume] && self.volumes[volume].mode == Mode::WriteBack;
        if !writes || !self.rot_extent(&header, offset_bytes, true) {
            return;
        }
        self.trouble.rotten = true;
        if self.rng.random_bool(0.3) {
            self.give_up_rotten(volume);
        } else {
            self.write_anew(volume, first as usize, header.raw_bytes as usize);
            self.coverage.note("stored extents rotted and written anew");
        }
        self.trouble.rotten = false;
        if header.fingerprint.0 != [0; 32] {
            // Other extents may share it, and no client has written those anew.
            self.trouble.damage();
        }
    }

    /// Destaging or a scrub finds what cannot be read, if anything dirty has rotted; an operator gives it up.
    fn give_up_rotten(&mut self, volume: usize) {
        let id = VolumeId(volume as u16);
        self.event(Event::Destage { volume: id });
        let unreadable = |world: &Self| world.dirty(volume).is_some_and(|dirty| dirty.unreadable_bytes > 0);
        self.wait_until(|world| world.dirty(volume).is_none() || unreadable(world));
        if !unreadable(self) {
            if self.dirty(volume).is_some() {
                // A cache that is out of order looks at nothing: the extent stays rotten.
                self.trouble.lie(true);
            }
            return;
        }
        self.losses.given_up(volume);
        self.event(Event::GiveUpUnreadable { volume: id });
        let giving_up = |world: &Self| world.manager.as_ref().is_some_and(|manager| manager.is_giving_up(id));
        self.wait_until(|world| !giving_up(world));
        let done = self.manager.as_ref().is_some_and(CacheManager::is_healthy) && !giving_up(self);
        self.zeros_ended(volume, done);
    }

    fn wait_until(&mut self, ends: impl Fn(&Self) -> bool) {
        for _ in 0..PATIENCE {
            if ends(self) || self.violation.is_some() {
                return;
            }
            self.step_or_tick();
        }
    }

    /// The manager writes zeros where an operator gave up what cannot be read: from now on a reader may get them.
    pub(crate) fn zeros_began(&mut self, volume: usize, sectors: impl Iterator<Item = usize>) {
        self.now += 1;
        let all = self.oracles[volume].sectors();
        for sector in sectors.filter(|sector| *sector < all) {
            self.oracles[volume].issue(sector, 0, self.now);
            self.judges[volume].issue(sector, 0, self.now);
            self.given_up.push((sector, self.now));
        }
    }

    /// These zeros are durable, or it is unknown whether they are.
    fn zeros_ended(&mut self, volume: usize, done: bool) {
        self.now += 1;
        let now = self.now;
        for (sector, began) in std::mem::take(&mut self.given_up) {
            if done {
                self.oracles[volume].end(sector, began, now, true, true);
            } else {
                self.oracles[volume].end_uncertain(sector, began, now, true);
            }
            self.judges[volume].end(sector, began, now, done, done);
        }
        if done {
            self.coverage.note("rotten dirty data given up alone");
        } else {
            self.trouble.lie(true);
        }
    }

    /// Some of the extents that were placed last rot. Returns whether any did.
    pub(crate) fn rot_placed(&mut self, share: f64) -> bool {
        let mut any = false;
        for Placed { header, offset_bytes } in core::mem::take(&mut self.placed) {
            any |= self.rng.random_bool(share) && self.rot_extent(&header, offset_bytes, false);
        }
        if any {
            self.trouble.lie(true);
        }
        any
    }

    /// Flips a bit of a stored extent, or puts another content there if that is wanted too, if it is on the device.
    fn rot_extent(&mut self, header: &ExtentHeader, offset_bytes: u32, may_forge: bool) -> bool {
        let at = (self.geometry.slot_offset(header.slot) + u64::from(offset_bytes)) as usize;
        let len = (EXTENT_HEADER_BYTES + header.stored_bytes).next_multiple_of(limits::PLACE_ALIGN_BYTES);
        let expected = ExpectedExtent {
            salt: self.geometry.salt,
            slot: header.slot,
            generation: header.generation,
            weu_seq: header.weu_seq,
            offset_bytes,
            raw_bytes: header.raw_bytes,
            first_sector: header.first_sector,
            key: Some(header.key),
            print: None,
        };
        let bytes = &self.cache.seen[at..at + len as usize];
        if ExtentHeader::verify(bytes, &expected).is_err() {
            return false;
        }
        if may_forge
            && header.fingerprint.0 != [0; 32]
            && self.rng.random_bool(0.5)
            && self.forge(header, offset_bytes, at)
        {
            self.coverage.note("stored extents with another content");
            return true;
        }
        let spoiled = at + self.rng.random_range(0..(EXTENT_HEADER_BYTES + header.stored_bytes) as usize);
        let byte = self.cache.seen[spoiled] ^ (1 << self.rng.random_range(0..8));
        self.cache.damage(spoiled, &[byte]);
        true
    }

    /// Puts another content there, under the fingerprint of the one that was there and with a checksum that is right.
    fn forge(&mut self, header: &ExtentHeader, offset_bytes: u32, at: usize) -> bool {
        // No client writes this.
        let content = vec![0x5a; header.raw_bytes as usize];
        let mut packed = vec![0; header.stored_bytes as usize];
        let payload = match self.reducer.compress(header.codec, &content, &mut packed) {
            Some(len) => &packed[..len],
            None if header.codec == Codec::Raw => &content[..],
            None => return false,
        };
        let forged = ExtentHeader { stored_bytes: payload.len() as u32, ..*header };
        let mut bytes = vec![0; EXTENT_HEADER_BYTES as usize + payload.len()];
        forged.seal(offset_bytes, payload, &mut bytes, self.geometry.salt);
        self.trace(|| format!("another content in {:?} at {offset_bytes}", header.slot));
        self.cache.damage(at, &bytes);
        self.trouble.forged = true;
        true
    }

    /// Sectors whose bytes rotted do not go to the origin: it may hold there what it held.
    pub(crate) fn left_out(&mut self, volume: usize, sectors: impl Iterator<Item = usize>) {
        for sector in sectors.filter(|sector| *sector < self.oracles[volume].sectors()) {
            let values = self.oracles[volume].ever(sector).to_vec();
            self.judges[volume].forgive(sector, &values, self.now);
        }
        self.coverage.note("rotten dirty data left out");
    }
}
