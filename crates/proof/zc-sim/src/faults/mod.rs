//! Faults of the cache device. Each sees every write, read and flush, and may complete it instead of the device, or
//! damage the device at times of its own.
//!
//! A new fault is one file here: a type that implements [`Fault`], and a line in [`DeviceFaults::new`]. It records
//! its effects in [`Trouble`](crate::trouble::Trouble) as far as they excuse failures. It also taints the pages that
//! differ from the acknowledged contents. Occurrences are counted by name; a name required of a full run is listed in
//! `coverage.rs`.

use core::ops::Range;

use zc_core::{ErrorKind, OpId, WeuSlot};
use zc_format::Geometry;

use crate::bench::Bench;
use crate::disk::{self, Disk, PAGE};
use crate::zone::Zone;

mod errors;
mod latent;
mod lost;
mod metadata;
mod misdirected;
mod misread;
mod replayed;
mod rot;

/// Number of values drawn for decay: each fault claims some of them.
const DECAYS: u32 = 12;

/// Write requested of the cache device.
pub(crate) struct Write<'a> {
    pub(crate) op: OpId,
    pub(crate) zone: Zone,
    /// First byte on the device.
    pub(crate) at: usize,
    pub(crate) data: &'a [u8],
}

/// Device under fault injection, and the machine state that faults use.
pub(crate) struct Strike<'a, 'b> {
    pub(crate) disk: &'a mut Disk,
    pub(crate) geometry: &'a Geometry,
    pub(crate) cx: &'a mut Bench<'b>,
}

impl Strike<'_, '_> {
    /// Returns the byte range of the slots on the device.
    fn slots(&self) -> Range<usize> {
        let start = self.geometry.slots_offset as usize;
        start..start + self.geometry.slots as usize * self.geometry.weu_bytes as usize
    }

    /// Flips a bit of a byte.
    fn flip(&mut self, at: usize) {
        let byte = self.disk.seen[at] ^ (1 << self.cx.env.random_range(0..8));
        self.disk.damage(at, &[byte]);
    }

    /// Draws another place for `len` bytes: a block in any zone that is written while serving.
    fn other_place(&mut self, len: usize) -> usize {
        let (start, end) = self.random_zone();
        let end = end.max(start + PAGE);
        let at = self.cx.env.random_range(start / PAGE..end / PAGE) * PAGE;
        at.min((self.disk.seen.len() - len) / PAGE * PAGE)
    }

    /// Draws a zone of the device, as its first byte and the one after its last.
    fn random_zone(&mut self) -> (usize, usize) {
        let g = self.geometry;
        let copy = self.cx.env.random_range(0..2_usize);
        let (start, end) = match self.cx.env.random_range(0..10) {
            0 => (g.region_map[copy], g.region_map[copy] + zc_format::REGION_MAP_BYTES),
            1 => (g.checkpoint[copy], g.checkpoint_block_offset(copy, g.checkpoint_blocks - 1)),
            2..4 => {
                let journal = disk::journal_range(g);
                (journal.start as u64, journal.end as u64)
            }
            _ => (g.slots_offset, g.slot_offset(WeuSlot(g.slots - 1)) + u64::from(g.weu_bytes)),
        };
        (start as usize, end as usize)
    }
}

/// Fault of the cache device. Each method is called at its point in every run; unused ones keep their defaults.
///
/// Chance comes from the run's generator, so a fault absent from a seed draws nothing. A new fault draws from a
/// generator of its own, seeded by [`Env::seed`](crate::env::Env::seed) and a unique number. Then seeds without it
/// keep their schedules.
pub(crate) trait Fault: core::fmt::Debug {
    /// Returns the fault for a copy of the machine after a power cut.
    fn fork(&self) -> Box<dyn Fault>;

    /// Handles replacement or formatting of the device.
    fn device_replaced(&mut self) {}

    /// Handles a write. Returns `Some` if the fault completed it instead of the device; then no other fault sees it.
    fn writes(&mut self, _at: &mut Strike<'_, '_>, _write: &Write<'_>) -> Option<Result<(), ErrorKind>> {
        None
    }

    /// Handles a read. Returns the range that the device reads instead.
    ///
    /// # Errors The error of the read.
    fn reads(&mut self, _at: &mut Strike<'_, '_>, bytes: Range<usize>) -> Result<Range<usize>, ErrorKind> {
        Ok(bytes)
    }

    /// Returns `true` if a flush fails.
    fn flushes(&mut self, _at: &mut Strike<'_, '_>) -> bool {
        false
    }

    /// Offers a moment of decay with a drawn number below [`DECAYS`]. Returns `true` if this fault claims it.
    fn decays(&mut self, _at: &mut Strike<'_, '_>, _drawn: u32) -> bool {
        false
    }

    /// Handles a period in which no session serves the device.
    fn rests(&mut self, _at: &mut Strike<'_, '_>) {}
}

/// All faults of a cache device, in call order.
#[derive(Debug)]
pub(crate) struct DeviceFaults(Vec<Box<dyn Fault>>);

impl DeviceFaults {
    /// Creates the faults: each has its line here.
    pub(crate) fn new() -> Self {
        Self(vec![
            Box::new(rot::Rot::default()),
            Box::new(errors::Errors),
            Box::new(lost::Lost),
            Box::new(misdirected::Misdirected),
            Box::new(replayed::Replayed::default()),
            Box::new(latent::Latent),
            Box::new(misread::Misread),
            Box::new(metadata::Metadata),
        ])
    }

    pub(crate) fn fork(&self) -> Self {
        Self(self.0.iter().map(|fault| fault.fork()).collect())
    }

    pub(crate) fn device_replaced(&mut self) {
        self.0.iter_mut().for_each(|fault| fault.device_replaced());
    }

    /// Returns the result of a write that a fault completed instead of the device.
    pub(crate) fn writes(
        &mut self,
        at: &mut Strike<'_, '_>,
        write: &Write<'_>,
    ) -> Option<Result<(), ErrorKind>> {
        self.0.iter_mut().find_map(|fault| fault.writes(at, write))
    }

    /// Returns the range that a read delivers.
    ///
    /// # Errors Read errors injected by faults.
    pub(crate) fn reads(
        &mut self,
        at: &mut Strike<'_, '_>,
        bytes: Range<usize>,
    ) -> Result<Range<usize>, ErrorKind> {
        self.0.iter_mut().try_fold(bytes, |bytes, fault| fault.reads(at, bytes))
    }

    pub(crate) fn flushes(&mut self, at: &mut Strike<'_, '_>) -> bool {
        self.0.iter_mut().any(|fault| fault.flushes(at))
    }

    /// Lets the device decay independently of the manager's requests.
    pub(crate) fn decays(&mut self, at: &mut Strike<'_, '_>) {
        let drawn = at.cx.env.random_range(0..DECAYS);
        self.0.iter_mut().any(|fault| fault.decays(at, drawn));
    }

    pub(crate) fn rests(&mut self, at: &mut Strike<'_, '_>) {
        self.0.iter_mut().for_each(|fault| fault.rests(at));
    }
}
