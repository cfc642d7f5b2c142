//! Dirty extents that rot, one at a time, and are written anew.
//!
//! Job: damage a stored extent, then have a client write its sectors and flush, before anyone else asks for anything.
//! If it finds no room, the extent stays rotten, as any that rots. Else nothing excuses the volume from then on: it has
//! to become clean, no request may fail, and the origin alone is judged in all sectors but those that the manager says
//! it leaves out (`CONSISTENCY.md`, G6).
//!
//! What it does not do: rot what is written anew in part, or never (the seeds with plain rot do).

use rand::RngExt as _;
use zc_core::{Mode, SECTOR_BYTES, limits};
use zc_format::{EXTENT_HEADER_BYTES, ExpectedExtent, ExtentHeader};

use crate::world::World;

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
        if !self.faults.rot_dirty {
            return;
        }
        if self.placed.len() == PLACED_MAX {
            self.placed.pop_front();
        }
        self.placed.push_back(Placed { header, offset_bytes });
    }

    /// A stored extent rots, and its sectors are written anew and flushed. Then one more thing is written.
    pub(crate) fn rot_and_rewrite(&mut self) {
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
        if !writes || !self.rot_extent(&header, offset_bytes) {
            return;
        }
        self.trouble.rotten = true;
        self.write_anew(volume, first as usize, header.raw_bytes as usize);
        self.trouble.rotten = false;
        self.coverage.note("stored extents rotted and written anew");
    }

    /// Flips a bit of a stored extent, if it is on the device.
    fn rot_extent(&mut self, header: &ExtentHeader, offset_bytes: u32) -> bool {
        let at = (self.geometry.slot_offset(header.slot) + u64::from(offset_bytes)) as usize;
        let len = (EXTENT_HEADER_BYTES + header.stored_bytes).next_multiple_of(limits::PLACE_ALIGN_BYTES);
        let expected = ExpectedExtent {
            slot: header.slot,
            generation: header.generation,
            weu_seq: header.weu_seq,
            offset_bytes,
            raw_bytes: header.raw_bytes,
            first_sector: header.first_sector,
            key: Some(header.key),
        };
        let bytes = &self.cache.seen[at..at + len as usize];
        if ExtentHeader::verify(bytes, &expected).is_err() {
            return false;
        }
        let spoiled = at + self.rng.random_range(0..(EXTENT_HEADER_BYTES + header.stored_bytes) as usize);
        let byte = self.cache.seen[spoiled] ^ (1 << self.rng.random_range(0..8));
        self.cache.damage(spoiled, &[byte]);
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
