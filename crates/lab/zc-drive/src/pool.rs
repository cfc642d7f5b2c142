//! Drives a pool in simulated time: for replay and benchmarks.
//!
//! Job: send requests to the daemon's own pool ([`zc_pool::Pool`]), compute the completion time of each device
//! operation with a [`Machine`], and advance time from one completion to the next.
//!
//! Invariants: time advances by operations and ticks alone, so that a run yields the same numbers everywhere.
//! Operations start when the pool issues them. Processors take no time.
//!
//! It does not model the device ([`Machine`] does), failures, or data loss (`zc-sim` does).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use zc_core::{Map, OpId, ReqId, u64_from_usize, usize_from_u32};
use zc_pool::{Answer, DeviceOperation, Ended, Pool, PoolError, Request, RequestKind, Work};
use zc_reduce::Reducer;
use zc_store::config::Shape;
use zc_store::seam::StoreError;
use zc_store::{CatalogChange, Config, Superblock};

/// Interval at which the daemon passes the time to a pool.
const TICK_NS: u64 = 10_000_000;
/// Distinguishes this opening of the pool from others.
const NONCE: u64 = 2;

/// Processors that compute for the pool, or for its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Computing {
    /// The pool and the store in it.
    Pool,
    /// Codecs and fingerprints.
    Jobs,
}

/// A device, and an observer of processor work.
pub trait Machine {
    /// Starts an operation now; returns its completion time and result.
    fn begin(&mut self, now_ns: u64, operation: &DeviceOperation) -> (u64, Ended);

    /// Computes. It takes no time of the device.
    fn compute<T>(&mut self, who: Computing, work: impl FnOnce() -> T) -> T {
        let _who = who;
        work()
    }
}

/// Reason why a pool cannot be driven further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The device is too small for a pool.
    #[error("a pool does not fit into {bytes} bytes")]
    TooSmall {
        /// Its size.
        bytes: u64,
    },
    /// The pool does not open.
    #[error("the pool cannot be opened: {0}")]
    Open(StoreError),
    /// A request failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The pool violates the contract of its interface.
    #[error("the pool {0}")]
    Broken(&'static str),
}

/// A request that ended.
#[derive(Debug)]
pub struct Answered {
    /// Request.
    pub req: ReqId,
    /// Result.
    pub result: Result<Answer, PoolError>,
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// Duration in nanoseconds.
    pub took_ns: u64,
}

/// A new pool on an empty device.
#[derive(Debug, Clone)]
pub struct Blank {
    superblock: Superblock,
    config: Config,
}

impl Blank {
    /// A pool of this size and with these settings.
    ///
    /// # Errors
    /// [`DriveError::TooSmall`].
    pub fn new(device_bytes: u64, segment_bytes: u32, config: Config) -> Result<Self, DriveError> {
        let superblock = Superblock::format([7; 16], device_bytes, segment_bytes, 1);
        let superblock = superblock.ok_or(DriveError::TooSmall { bytes: device_bytes })?;
        Ok(Self { superblock, config: config.bounded(segment_bytes) })
    }

    /// Writes the superblocks to the device.
    pub fn format(&self, mut write: impl FnMut(u64, &[u8])) {
        for copy in 0..2 {
            write(Superblock::offset_bytes(copy), &self.superblock.encode(copy)[..]);
        }
    }

    /// Bytes of the segments that contents may use.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        let Superblock { segments, segment_bytes, .. } = self.superblock;
        let reserved = self.config.reserve_segments(Shape { segment_bytes, segments });
        u64_from_usize(usize_from_u32(segments).saturating_sub(reserved)) * u64::from(segment_bytes)
    }
}

/// The pool, its machine and the time.
#[derive(Debug)]
pub struct Drive<M> {
    pool: Pool,
    machine: M,
    reducer: Reducer,
    now_ns: u64,
    tick_ns: u64,
    /// Ends that are to come: when, and a number that keeps their order.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    ends: Map<u64, (OpId, Ended)>,
    asked: Map<ReqId, u64>,
    answers: VecDeque<Answered>,
    next: u64,
    opened: Option<Result<(), StoreError>>,
}

impl<M: Machine> Drive<M> {
    /// Opens a pool on a device that was formatted.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(blank: &Blank, machine: M) -> Result<Self, DriveError> {
        let mut work = Vec::new();
        let pool = Pool::open(blank.config.clone(), NONCE, &mut work);
        let mut drive = Self {
            pool,
            machine,
            reducer: Reducer::new(),
            now_ns: 0,
            tick_ns: TICK_NS,
            due: BinaryHeap::new(),
            ends: Map::default(),
            asked: Map::default(),
            answers: VecDeque::new(),
            next: 0,
            opened: None,
        };
        drive.take(work)?;
        loop {
            match drive.opened.take() {
                None if drive.step()? => {}
                None => return Err(DriveError::Broken("does not open")),
                Some(Ok(())) => return Ok(drive),
                Some(Err(error)) => return Err(DriveError::Open(error)),
            }
        }
    }

    /// The pool.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine.
    pub const fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The device's time, in nanoseconds.
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn take(&mut self, work: Vec<Work>) -> Result<(), DriveError> {
        for work in work {
            let (at_ns, op, ended) = match work {
                Work::Device { op, operation } => {
                    let (at_ns, ended) = self.machine.begin(self.now_ns, &operation);
                    (at_ns, op, ended)
                }
                Work::Job { op, job, .. } => {
                    let reducer = &mut self.reducer;
                    let outcome = self.machine.compute(Computing::Jobs, || job.run(reducer));
                    (self.now_ns, op, Ended::Job(outcome))
                }
                Work::Answer { req, result } => {
                    let asked_ns = self.asked.remove(&req);
                    let asked_ns = asked_ns.ok_or(DriveError::Broken("answers what no request asked"))?;
                    let (at_ns, took_ns) = (self.now_ns, self.now_ns.saturating_sub(asked_ns));
                    self.answers.push_back(Answered { req, result, at_ns, took_ns });
                    continue;
                }
                Work::Opened { result } => {
                    self.opened = Some(result);
                    continue;
                }
                Work::Stopped => return Err(DriveError::Broken("stops by itself")),
            };
            self.next += 1;
            self.due.push(Reverse((at_ns, self.next)));
            self.ends.insert(self.next, (op, ended));
        }
        Ok(())
    }

    fn drive(&mut self, input: impl FnOnce(&mut Pool, &mut Vec<Work>)) -> Result<(), DriveError> {
        let (mut work, pool) = (Vec::new(), &mut self.pool);
        self.machine.compute(Computing::Pool, || input(pool, &mut work));
        self.take(work)
    }

    /// Advances time to the next tick or completion. Returns `false` if only ticks remain.
    fn step(&mut self) -> Result<bool, DriveError> {
        if self.pool.store().goes_on() {
            let now_ms = self.now_ns / 1_000_000;
            self.drive(|pool, work| pool.tick(now_ms, work))?;
            return Ok(true);
        }
        let Some(&Reverse((at_ns, number))) = self.due.peek() else { return Ok(false) };
        if self.tick_ns <= at_ns {
            self.tick()?;
            return Ok(true);
        }
        self.due.pop();
        self.now_ns = at_ns;
        let ended = self.ends.remove(&number);
        let (op, ended) = ended.ok_or(DriveError::Broken("ends what was not begun"))?;
        self.drive(|pool, work| pool.ended(op, ended, work))?;
        Ok(true)
    }

    fn tick(&mut self) -> Result<(), DriveError> {
        self.now_ns = self.now_ns.max(self.tick_ns);
        self.tick_ns += TICK_NS;
        let now_ms = self.now_ns / 1_000_000;
        self.drive(|pool, work| pool.tick(now_ms, work))
    }

    /// Gives the pool a request, now.
    ///
    /// # Errors
    /// The pool breaks the rules of its seam.
    pub fn submit(&mut self, kind: RequestKind) -> Result<ReqId, DriveError> {
        self.next += 1;
        let req = ReqId(self.next);
        self.asked.insert(req, self.now_ns);
        self.drive(|pool, work| pool.submit(Request { req, kind }, work))?;
        Ok(req)
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// When no operation is left that could cause one.
    pub fn answer(&mut self) -> Result<Answered, DriveError> {
        loop {
            if let Some(answered) = self.answers.pop_front() {
                return Ok(answered);
            }
            // A pool may need ticks to continue.
            if !self.step()? {
                if self.asked.is_empty() {
                    return Err(DriveError::Broken("was asked nothing"));
                }
                self.tick()?;
            }
        }
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// When the reply is an error.
    pub fn ask(&mut self, kind: RequestKind) -> Result<Answer, DriveError> {
        self.submit(kind)?;
        Ok(self.answer()?.result?)
    }

    /// Sends a request at a time that may precede the pool's latest actions: devices serve in the order of requests,
    /// so replies computed ahead are unaffected. Returns the time of the reply, and the reply.
    ///
    /// # Errors
    /// When the reply is an error.
    pub fn ask_at(&mut self, at_ns: u64, kind: RequestKind) -> Result<(u64, Answer), DriveError> {
        while self.due.peek().is_some_and(|Reverse((due_ns, _))| *due_ns <= at_ns) {
            self.step()?;
        }
        self.now_ns = at_ns;
        self.submit(kind)?;
        let answered = self.answer()?;
        Ok((answered.at_ns.max(at_ns), answered.result?))
    }

    /// Changes volumes or snapshots.
    ///
    /// # Errors
    /// The pool refuses.
    pub fn catalog(&mut self, change: CatalogChange) -> Result<(), DriveError> {
        self.ask(RequestKind::Catalog(change)).map(|_| ())
    }

    /// Cleans now, until there is nothing left that is worth it.
    ///
    /// # Errors
    /// The pool breaks the rules of its seam.
    pub fn clean(&mut self) -> Result<(), DriveError> {
        self.drive(Pool::clean)?;
        while self.pool.store().is_busy() {
            if !self.step()? {
                self.tick()?;
            }
        }
        Ok(())
    }

    /// Advances time without requests; the pool may clean.
    ///
    /// # Errors
    /// When the pool violates the contract of its interface.
    pub fn rest(&mut self, ns: u64) -> Result<(), DriveError> {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns {
            if !self.step()? {
                self.tick()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use zc_core::{Codec, usize_from_u64};
    use zc_store::{CatalogOp, RootId};

    use super::*;

    const VOLUME: RootId = RootId(1);

    /// Every operation takes a millisecond, one after the other.
    struct Slow {
        bytes: Vec<u8>,
        free_ns: u64,
    }

    impl Machine for Slow {
        fn begin(&mut self, now_ns: u64, operation: &DeviceOperation) -> (u64, Ended) {
            self.free_ns = self.free_ns.max(now_ns) + 1_000_000;
            let ended = match operation {
                DeviceOperation::Read { offset_bytes, len_bytes } => {
                    let at = usize_from_u64(*offset_bytes);
                    let bytes = &self.bytes[at..at + usize_from_u32(*len_bytes)];
                    Ended::Read(Ok(Bytes::copy_from_slice(bytes)))
                }
                DeviceOperation::Write { offset_bytes, bytes } => {
                    let at = usize_from_u64(*offset_bytes);
                    self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                    Ended::Device(Ok(()))
                }
                DeviceOperation::Flush | DeviceOperation::Discard { .. } => Ended::Device(Ok(())),
            };
            (self.free_ns, ended)
        }
    }

    fn drive() -> Drive<Slow> {
        let config = Config { discard: false, ..Config::default() };
        let blank = Blank::new(256 << 20, 1 << 20, config).unwrap();
        let mut bytes = vec![0; 256 << 20];
        blank.format(|offset_bytes, block| {
            let at = usize_from_u64(offset_bytes);
            bytes[at..at + block.len()].copy_from_slice(block);
        });
        let mut drive = Drive::open(&blank, Slow { bytes, free_ns: 0 }).unwrap();
        let change = CatalogChange {
            op: CatalogOp::Create,
            id: VOLUME,
            source: VOLUME,
            codec: Codec::Lz4,
            chunk_shift: 13,
            size_chunks: 1024,
            flags: 0,
            name: "volume".to_owned(),
        };
        drive.catalog(change).unwrap();
        drive
    }

    fn read(offset_bytes: u64) -> RequestKind {
        RequestKind::Read { root: VOLUME, offset_bytes, len_bytes: 8192 }
    }

    #[test]
    fn requests_take_the_time_of_the_device() {
        let mut drive = drive();
        let data = Bytes::from(vec![3; 8192]);
        let write = RequestKind::Write { root: VOLUME, offset_bytes: 8192, data, known: Vec::new() };
        let before_ns = drive.now_ns();
        drive.ask(write).unwrap();
        assert!(drive.now_ns() >= before_ns + 1_000_000, "a write waits for its record");
        drive.rest(1_000_000_000).unwrap();
        let before_ns = drive.now_ns();
        let answer = drive.ask(read(8192)).unwrap();
        assert!(matches!(answer, Answer::Bytes(pieces) if pieces[0][..] == [3; 8192]));
        assert_eq!(drive.now_ns(), before_ns + 1_000_000);
    }

    #[test]
    fn who_asks_earlier_waits_for_what_was_asked_before() {
        let mut drive = drive();
        let data = Bytes::from(vec![3; 8192]);
        drive.ask(RequestKind::Write { root: VOLUME, offset_bytes: 0, data, known: Vec::new() }).unwrap();
        drive.rest(1_000_000_000).unwrap();
        let now_ns = drive.now_ns();
        let (first_ns, _) = drive.ask_at(now_ns + 100, read(0)).unwrap();
        assert_eq!(first_ns, now_ns + 1_000_100);
        let (second_ns, _) = drive.ask_at(now_ns + 200, read(0)).unwrap();
        assert_eq!(second_ns, first_ns + 1_000_000, "it does not overtake");
    }
}
