//! A pool on a device in memory, in the device's time.
//!
//! Job: create the pool and its volume, and measure real processor time beside the device's time ([`Cpu`]).
//!
//! Invariants: processor time does not advance the device's clock, so that a run gives the same times everywhere.

mod device;

use zc_core::{Codec, usize_from_u64};
use zc_drive::pool::{Answered, Blank, Computing, Drive, DriveError, Machine};
use zc_pool::{Answer, DeviceOperation, Ended, Pool, RequestKind};
use zc_store::{CatalogChange, CatalogOp, Config, FLAG_DEDUP, RootId};

use crate::clock::thread_ns;
use device::Device;
pub use device::{DISK, Model, SSD, Tally};

/// Bytes of a chunk, and their binary logarithm.
pub const CHUNK_BYTES: u64 = 8 << 10;
const CHUNK_SHIFT: u8 = 13;

/// The volume that loads change.
pub const VOLUME: RootId = RootId(1);

/// A pool that is to be.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Cost model of its device.
    pub model: Model,
    /// Bytes of it.
    pub device_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u32,
}

impl Place {
    /// The pool, new and opened, with default settings, but for `gather`, which is on where the device seeks.
    ///
    /// # Errors
    /// The sizes are none that a pool can have.
    pub fn rig(self) -> Result<Rig, DriveError> {
        let config = Config { gather: self.model.seek_ns > 0, ..Config::default() };
        let blank = Blank::new(self.device_bytes, self.segment_bytes, config)?;
        let mut bytes = vec![0; usize_from_u64(self.device_bytes)];
        blank.format(|offset_bytes, block| {
            let at = usize_from_u64(offset_bytes);
            bytes[at..at + block.len()].copy_from_slice(block);
        });
        let watched = Watched { device: Device::new(self.model, bytes), cpu: Cpu::default() };
        Ok(Rig { drive: Drive::open(&blank, watched)?, blank })
    }
}

/// Processor times, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    /// The pool and the store in it.
    pub pool_ns: u64,
    /// Codecs and fingerprints.
    pub jobs_ns: u64,
}

/// The device, and a clock at the processors.
#[derive(Debug)]
struct Watched {
    device: Device,
    cpu: Cpu,
}

impl Machine for Watched {
    fn begin(&mut self, now_ns: u64, operation: &DeviceOperation) -> (u64, Ended) {
        self.device.begin(now_ns, operation)
    }

    fn compute<T>(&mut self, who: Computing, work: impl FnOnce() -> T) -> T {
        let began_ns = thread_ns();
        let result = work();
        let sum_ns = match who {
            Computing::Pool => &mut self.cpu.pool_ns,
            Computing::Jobs => &mut self.cpu.jobs_ns,
        };
        *sum_ns += thread_ns() - began_ns;
        result
    }
}

/// The pool, its device and the time.
#[derive(Debug)]
pub struct Rig {
    drive: Drive<Watched>,
    blank: Blank,
}

impl Rig {
    /// Bytes of the segments that contents may use.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        self.blank.usable_bytes()
    }

    /// Opens a copy of the device as it is, as after a crash. [`Self::cpu`] begins with the opening.
    ///
    /// # Errors
    /// The pool does not open.
    pub fn crashed(&self) -> Result<Self, DriveError> {
        let watched = Watched { device: self.drive.machine().device.clone(), cpu: Cpu::default() };
        Ok(Self { drive: Drive::open(&self.blank, watched)?, blank: self.blank.clone() })
    }

    /// The pool.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        self.drive.pool()
    }

    /// Operations of the device so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.drive.machine().device.tally()
    }

    /// Processor times so far.
    #[must_use]
    pub const fn cpu(&self) -> Cpu {
        self.drive.machine().cpu
    }

    /// The device's time, in nanoseconds.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.drive.now_ns()
    }

    /// Gives the pool a request.
    ///
    /// # Errors
    /// The pool breaks the rules of its seam.
    pub fn submit(&mut self, kind: RequestKind) -> Result<(), DriveError> {
        self.drive.submit(kind).map(|_| ())
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// No operation is left that could complete one.
    pub fn answer(&mut self) -> Result<Answered, DriveError> {
        self.drive.answer()
    }

    /// Submits a request, and waits for the answer.
    ///
    /// # Errors
    /// Errors of the answer.
    pub fn ask(&mut self, kind: RequestKind) -> Result<Answer, DriveError> {
        self.drive.ask(kind)
    }

    /// Cleans now, until there is nothing left that is worth it.
    ///
    /// # Errors
    /// The pool breaks the rules of its seam.
    pub fn clean(&mut self) -> Result<(), DriveError> {
        self.drive.clean()
    }

    /// Passes `ns` of idle time; the pool may clean.
    ///
    /// # Errors
    /// The pool violates its interface.
    pub fn rest(&mut self, ns: u64) -> Result<(), DriveError> {
        self.drive.rest(ns)
    }

    /// Changes the catalog. New volumes share contents, and have LZ4 and chunks of [`CHUNK_BYTES`].
    ///
    /// # Errors
    /// The pool refuses.
    pub fn catalog(
        &mut self,
        op: CatalogOp,
        id: RootId,
        source: RootId,
        size_bytes: u64,
    ) -> Result<(), DriveError> {
        self.drive.catalog(change(op, id, source, size_bytes))
    }

    /// Makes [`VOLUME`] with this codec, sharing contents or not.
    ///
    /// # Errors
    /// The pool refuses.
    pub fn create(&mut self, codec: Codec, dedup: bool, size_bytes: u64) -> Result<(), DriveError> {
        let flags = if dedup { FLAG_DEDUP } else { 0 };
        self.drive.catalog(CatalogChange {
            codec,
            flags,
            ..change(CatalogOp::Create, VOLUME, VOLUME, size_bytes)
        })
    }
}

fn change(op: CatalogOp, id: RootId, source: RootId, size_bytes: u64) -> CatalogChange {
    let name = match op {
        CatalogOp::Snapshot => format!("volume-{}@{}", source.0, id.0),
        _ => format!("volume-{}", id.0),
    };
    CatalogChange {
        op,
        id,
        source,
        codec: Codec::Lz4,
        chunk_shift: CHUNK_SHIFT,
        size_chunks: size_bytes / CHUNK_BYTES,
        flags: FLAG_DEDUP,
        name,
    }
}
