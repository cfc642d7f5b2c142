//! Faults of the cache device: each sees every write, read and flush, and may end it in the device's stead, or strike
//! the device at a moment of its own.
//!
//! A new fault is one file here: a type that implements [`Fault`], and a line in [`DeviceFaults::new`]. It tells
//! [`Trouble`](crate::trouble::Trouble) what it did, as far as that excuses failures, and taints the pages that do not
//! hold what the device acknowledged. What happened is counted by name; a name that a full run must have seen is listed
//! in `coverage.rs`.

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

/// Numbers that are drawn for a moment of decay: each fault takes some of them.
const DECAYS: u32 = 12;

/// A write that the cache device is asked for.
pub(crate) struct Write<'a> {
    pub(crate) op: OpId,
    pub(crate) zone: Zone,
    /// First byte on the device.
    pub(crate) at: usize,
    pub(crate) data: &'a [u8],
}

/// The device that is struck, and what it meets.
pub(crate) struct Strike<'a, 'b> {
    pub(crate) disk: &'a mut Disk,
    pub(crate) geometry: &'a Geometry,
    pub(crate) cx: &'a mut Bench<'b>,
}

impl Strike<'_, '_> {
    /// Bytes of the slots on the device.
    fn slots(&self) -> Range<usize> {
        let start = self.geometry.slots_offset as usize;
        start..start + self.geometry.slots as usize * self.geometry.weu_bytes as usize
    }

    /// A bit of a byte flips.
    fn flip(&mut self, at: usize) {
        let byte = self.disk.seen[at] ^ (1 << self.cx.env.random_range(0..8));
        self.disk.damage(at, &[byte]);
    }

    /// The place of so many bytes that are taken for others: at a block of any zone that is written while serving.
    fn other_place(&mut self, len: usize) -> usize {
        let (start, end) = self.random_zone();
        let end = end.max(start + PAGE);
        let at = self.cx.env.random_range(start / PAGE..end / PAGE) * PAGE;
        at.min((self.disk.seen.len() - len) / PAGE * PAGE)
    }

    /// A zone of the device, as its first byte and the one after its last.
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

/// A fault of the cache device. Each method is called at its moment in every run; one that is not needed is left out.
///
/// Chance comes from the run's generator, so a fault that a seed does not have draws nothing. One that is new draws from
/// a generator of its own, seeded by [`Env::seed`](crate::env::Env::seed) and a number that nothing else has: then the
/// seeds that do not have it stay what they were.
pub(crate) trait Fault: core::fmt::Debug {
    /// Returns the fault for a copy of the machine after a power cut.
    fn fork(&self) -> Box<dyn Fault>;

    /// The device is another one, or was made empty.
    fn device_replaced(&mut self) {}

    /// A write comes. `Some`: the device has ended it so, and no other fault is asked.
    fn writes(&mut self, _at: &mut Strike<'_, '_>, _write: &Write<'_>) -> Option<Result<(), ErrorKind>> {
        None
    }

    /// A read of these bytes comes. It fails, or brings what is at the place that is returned.
    ///
    /// # Errors
    /// That of the read.
    fn reads(&mut self, _at: &mut Strike<'_, '_>, bytes: Range<usize>) -> Result<Range<usize>, ErrorKind> {
        Ok(bytes)
    }

    /// Returns `true` if a flush fails.
    fn flushes(&mut self, _at: &mut Strike<'_, '_>) -> bool {
        false
    }

    /// A moment in which the device may decay, with a number below [`DECAYS`] that was drawn for it. Returns `true` if
    /// this fault took the moment.
    fn decays(&mut self, _at: &mut Strike<'_, '_>, _drawn: u32) -> bool {
        false
    }

    /// No session serves the device.
    fn rests(&mut self, _at: &mut Strike<'_, '_>) {}
}

/// All faults of a cache device, in the order in which they are asked.
#[derive(Debug)]
pub(crate) struct DeviceFaults(Vec<Box<dyn Fault>>);

impl DeviceFaults {
    /// The list: each fault has its line here.
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

    /// How a write ends in the device's stead, if a fault ends it.
    pub(crate) fn writes(
        &mut self,
        at: &mut Strike<'_, '_>,
        write: &Write<'_>,
    ) -> Option<Result<(), ErrorKind>> {
        self.0.iter_mut().find_map(|fault| fault.writes(at, write))
    }

    /// The bytes that a read brings.
    ///
    /// # Errors
    /// Those of faults.
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

    /// Something may happen to the device that the manager did not ask for.
    pub(crate) fn decays(&mut self, at: &mut Strike<'_, '_>) {
        let drawn = at.cx.env.random_range(0..DECAYS);
        self.0.iter_mut().any(|fault| fault.decays(at, drawn));
    }

    pub(crate) fn rests(&mut self, at: &mut Strike<'_, '_>) {
        self.0.iter_mut().for_each(|fault| fault.rests(at));
    }
}
