//! Volumes whose origin is a volume of a store: the production [`zc_pool::Pool`] and [`zc_store::Store`] under the cache.
//!
//! Job: in a share of the seeds, connect the cache manager to a simulated device of a store. Requests to an origin are
//! submitted to the pool at once; its device operations and jobs complete in random order, between the cache's. A crash
//! affects cache, pool and store together. The oracles of the cache check reads of clients, whatever lies below (G1 to
//! G7). Contents of the store alone (S1, G6) are checked on a copy of its device, which is cut off, recovered and read.
//! Snapshots that are taken during the run never change (S3).
//!
//! | the store's device, or the daemon | must hold |
//! |---|---|
//! | power cut: unflushed writes lost or torn, reordered | G2, G6 as with any origin; a flushed snapshot is there |
//! | daemon killed | every acknowledged write is there |
//! | write or flush error | changes fail until a restart, reads continue |
//! | bit rot | an error, or the right bytes (S2); or the store does not open and reports the cause, which ends the seed |
//! | bit rot in the log since the last checkpoint | as above, or after the next crash an earlier state |
//! | full, because snapshots keep overwritten data | writes fail, nothing acknowledged is lost |
//!
//! It does not damage flushed data in a way that no checksum detects (`store` does).

use std::collections::BTreeMap;

use bytes::Bytes;
use log::Log;
use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use snaps::Snapshots;
use zc_cache::config::ManagerConfig;
use zc_core::{ErrorKind, FingerprintKind, OpId, ReqId};
use zc_pool::{Answer, DeviceOperation, Ended, Job, Pool, PoolError, Request, RequestKind, Work};
use zc_reduce::Reducer;
use zc_store::seam::StoreError;
use zc_store::{Config, RootId, Superblock};

use crate::disk::Disk;

mod log;
mod ops;
mod setup;
mod snaps;

pub(crate) use ops::Waits;
pub(crate) use setup::PoolSetup;

/// Identity of each store.
const UUID: [u8; 16] = [7; 16];
/// Steps after which a pool that should finish counts as hung.
pub(crate) const STEPS_MAX: u32 = 100_000;

/// Fault rates of the store's device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PoolFaults {
    /// Rate for writes and flushes.
    pub(crate) errors: f64,
    /// Rate per turn.
    pub(crate) rot: f64,
}

/// Work in progress at the driver of a pool.
#[derive(Debug)]
enum Busy {
    /// Device operation; for a flush, with its time of issue.
    Device(OpId, DeviceOperation, u64),
    Job(OpId, Job),
}

/// Pool, its device, and the cache's volumes that it stores.
pub(crate) struct Pooled {
    config: Config,
    disk: Disk,
    pool: Option<Pool>,
    busy: Vec<Busy>,
    waiting: BTreeMap<ReqId, Waits>,
    /// Answers that the world has not taken.
    answered: Vec<(ReqId, Result<Answer, PoolError>)>,
    /// Answer to a request of the simulation itself.
    heard: Option<(ReqId, Result<Answer, PoolError>)>,
    opened: Option<Result<(), StoreError>>,
    stopped: bool,
    /// The device lost power since it was last opened.
    lost_power: bool,
    /// Roots, by volume of the cache.
    roots: Vec<Option<RootId>>,
    chunk_shift: u8,
    extent_bytes: u32,
    /// The cache's fingerprints are those of the store.
    is_strong: bool,
    faults: PoolFaults,
    /// The device failed an operation in this session.
    is_fenced: bool,
    /// The device was damaged at some time.
    is_rotten: bool,
    /// The store had no space for a request since the last snapshot was deleted.
    is_full: bool,
    log: Log,
    snaps: Snapshots,
    next_req: u64,
    next_name: u64,
}

impl Pooled {
    /// Creates a freshly formatted store, which is not open.
    pub(crate) fn new(setup: &PoolSetup, volumes: usize, cache: &ManagerConfig) -> Self {
        let mut disk = Disk::new(setup.device_bytes());
        let superblock = Superblock::format(UUID, disk.seen.len() as u64, setup::SEGMENT_BYTES, 1)
            .expect("the device is large enough");
        for copy in 0..2 {
            disk.write_now(Superblock::offset_bytes(copy) as usize, &superblock.encode(copy)[..]);
        }
        disk.settle();
        Self {
            config: setup.config(),
            disk,
            pool: None,
            busy: Vec::new(),
            waiting: BTreeMap::new(),
            answered: Vec::new(),
            heard: None,
            opened: None,
            stopped: false,
            lost_power: false,
            roots: (0..volumes).map(|volume| setup.holds(volume).then_some(RootId(volume as u16))).collect(),
            chunk_shift: setup.chunk_shift,
            extent_bytes: cache.geometry.extent_bytes,
            is_strong: cache.fingerprint == FingerprintKind::Blake3,
            faults: setup.faults,
            is_fenced: false,
            is_rotten: false,
            is_full: false,
            log: Log::default(),
            snaps: Snapshots::default(),
            next_req: 0,
            next_name: 0,
        }
    }

    /// Returns the roots of all volumes in the store.
    pub(crate) fn roots(&self) -> impl Iterator<Item = RootId> + '_ {
        self.roots.iter().flatten().copied()
    }

    pub(crate) const fn chunk_shift(&self) -> u8 {
        self.chunk_shift
    }

    /// Returns a name that no volume or snapshot had.
    pub(crate) fn new_name(&mut self) -> String {
        self.next_name += 1;
        format!("root {}", self.next_name)
    }

    /// Takes the answer to the simulation's own request, if it has arrived.
    pub(crate) fn take_heard(&mut self) -> Option<(ReqId, Result<Answer, PoolError>)> {
        self.heard.take()
    }

    pub(crate) fn stop(&mut self) {
        self.with_pool(Pool::stop);
    }

    pub(crate) fn clean(&mut self) {
        self.with_pool(Pool::clean);
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns `true` if the store had no space for a request since the last snapshot was deleted.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Records that a snapshot was deleted.
    pub(crate) const fn has_room(&mut self) {
        self.is_full = false;
    }

    /// Returns `true` if the store accepts no changes until it is reopened.
    pub(crate) const fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Returns `true` if the store is damaged: its volumes are exempt from the final checks.
    pub(crate) const fn is_rotten(&self) -> bool {
        self.is_rotten
    }

    /// Ends all faults of the device.
    pub(crate) fn mend(&mut self) {
        self.faults = PoolFaults::default();
    }

    /// Returns `true` once if the completed start may have ended the log before a corrupt batch.
    pub(crate) fn takes_rotten_log(&mut self) -> bool {
        self.log.take_owed()
    }

    pub(crate) fn is_log_rotten(&self) -> bool {
        self.log.is_rotten()
    }

    pub(crate) fn root(&self, volume: usize) -> Option<RootId> {
        self.roots[volume]
    }

    /// Returns the number of operations and jobs in progress.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Opens the pool until it serves or reports an error. Returns `None` if it is cut off after the given number of
    /// steps.
    pub(crate) fn open(
        &mut self,
        rng: &mut Pcg64Mcg,
        reducer: &mut Reducer,
        cut_at: Option<u32>,
    ) -> Option<Result<(), StoreError>> {
        let mut out = Vec::new();
        self.opened = None;
        self.stopped = false;
        self.log.started();
        self.pool = Some(Pool::open(self.config.clone(), rng.random(), &mut out));
        self.take(out);
        for step in 0..STEPS_MAX {
            if let Some(result) = self.opened {
                return Some(result);
            }
            if cut_at == Some(step) || self.busy.is_empty() {
                return None;
            }
            self.step(rng, reducer);
        }
        None
    }

    fn with_pool(&mut self, input: impl FnOnce(&mut Pool, &mut Vec<Work>)) {
        let mut out = Vec::new();
        if let Some(pool) = &mut self.pool {
            input(pool, &mut out);
        }
        self.take(out);
    }

    fn take(&mut self, work: Vec<Work>) {
        for work in work {
            match work {
                Work::Device { op, operation } => {
                    let is_flush = matches!(operation, DeviceOperation::Flush);
                    let issued = if is_flush { self.disk.flush_issued() } else { 0 };
                    self.busy.push(Busy::Device(op, operation, issued));
                }
                Work::Job { op, job, .. } => self.busy.push(Busy::Job(op, job)),
                Work::Answer { req, result } => self.answered.push((req, result)),
                Work::Opened { result } => self.opened = Some(result),
                Work::Stopped => self.stopped = true,
            }
        }
    }

    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.with_pool(|pool, out| pool.tick(now_ms, out));
    }

    /// Completes a random operation or job.
    pub(crate) fn step(&mut self, rng: &mut Pcg64Mcg, reducer: &mut Reducer) {
        if self.busy.is_empty() {
            return;
        }
        let index = rng.random_range(0..self.busy.len());
        let (op, ended) = match self.busy.swap_remove(index) {
            Busy::Job(op, job) => (op, Ended::Job(job.run(reducer))),
            Busy::Device(op, operation, issued) => (op, self.perform(operation, issued, rng)),
        };
        self.with_pool(|pool, out| pool.ended(op, ended, out));
    }

    fn perform(&mut self, operation: DeviceOperation, issued: u64, rng: &mut Pcg64Mcg) -> Ended {
        // A refused discard is no failure of the device.
        let is_write = matches!(operation, DeviceOperation::Write { .. } | DeviceOperation::Flush);
        let fails = is_write && self.faults.errors > 0.0 && rng.random_bool(self.faults.errors);
        if fails {
            self.is_fenced = true;
        }
        match operation {
            DeviceOperation::Read { offset_bytes, len_bytes } => {
                let at = offset_bytes as usize;
                Ended::Read(Ok(Bytes::copy_from_slice(&self.disk.seen[at..at + len_bytes as usize])))
            }
            DeviceOperation::Write { offset_bytes, bytes } => {
                let kept = if fails { rng.random_range(0..=bytes.len() / 512) * 512 } else { bytes.len() };
                self.disk.write_now(offset_bytes as usize, &bytes[..kept]);
                self.log.wrote(offset_bytes, &bytes);
                Ended::Device(if fails { Err(ErrorKind::Io) } else { Ok(()) })
            }
            DeviceOperation::Discard { offset_bytes, len_bytes } => {
                self.disk.write_now(offset_bytes as usize, &vec![0; len_bytes as usize]);
                Ended::Device(Ok(()))
            }
            // Losses of failed flushes are tested with the store alone.
            DeviceOperation::Flush if fails => Ended::Device(Err(ErrorKind::Io)),
            DeviceOperation::Flush => {
                self.disk.flush(issued, rng);
                Ended::Device(Ok(()))
            }
        }
    }

    pub(crate) fn submit(&mut self, kind: RequestKind, waits: Waits) -> ReqId {
        self.next_req += 1;
        let req = ReqId(self.next_req);
        self.waiting.insert(req, waits);
        self.with_pool(|pool, out| pool.submit(Request { req, kind }, out));
        req
    }

    /// Flips a stored bit at the drawn rate. Returns `true` if it did.
    pub(crate) fn rots(&mut self, rng: &mut Pcg64Mcg) -> bool {
        let rots = self.faults.rot > 0.0 && rng.random_bool(self.faults.rot);
        if rots {
            self.rot(rng);
        }
        rots
    }

    fn rot(&mut self, rng: &mut Pcg64Mcg) {
        let at = rng.random_range(0..self.disk.seen.len());
        let byte = self.disk.seen[at] ^ (1 << rng.random_range(0..8));
        self.disk.damage(at, &[byte]);
        self.is_rotten = true;
        self.log.rot(at as u64);
    }

    /// Ends the process with its memory. Device writes in progress happen or not.
    pub(crate) fn die(&mut self, rng: &mut Pcg64Mcg) {
        for busy in core::mem::take(&mut self.busy) {
            if let Busy::Device(_, DeviceOperation::Write { offset_bytes, bytes }, _) = busy
                && rng.random_bool(0.5)
            {
                self.disk.write_now(offset_bytes as usize, &bytes);
                self.log.wrote(offset_bytes, &bytes);
            }
        }
        self.pool = None;
        self.waiting.clear();
        self.answered.clear();
        self.is_fenced = false;
    }
}

#[cfg(test)]
mod tests {
    use crate::coverage::Coverage;
    use crate::options::Options;
    use crate::run::run_seed;
    use crate::setup::Setup;

    const OPTIONS: Options =
        Options { ops: 1400, canary: None, replacement: None, packer: None, profile: None, trace: None };

    /// Number of seeds that reach all required events: a store fills up late.
    const SEEDS: usize = 80;

    /// Returns `true` if a seed has a store.
    fn has_store(seed: u64) -> bool {
        use rand::SeedableRng as _;
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
        Setup::random(seed, &mut rng, None).pool.is_some()
    }

    #[test]
    fn a_third_of_the_seeds_have_a_store() {
        let with = (1..=1000).filter(|seed| has_store(*seed)).count();
        assert!(with >= 300, "{with}");
    }

    #[test]
    fn seeds_with_a_store_are_clean_and_see_what_they_should() {
        let mut coverage = Coverage::default();
        for seed in (1..).filter(|seed| has_store(*seed)).take(SEEDS) {
            let report = run_seed(seed, &OPTIONS).unwrap_or_else(|violation| panic!("{violation:?}"));
            coverage.merge(&report.coverage);
        }
        let missing: Vec<&str> =
            coverage.missing().into_iter().filter(|name| name.starts_with("store: ")).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
