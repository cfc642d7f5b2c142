//! A pool on a device in memory, in the device's time.
//!
//! Job: submit requests, let time go on to the next end of an operation, tell how long each request took.
//!
//! Invariants: time goes on by operations and ticks alone, so that a run gives the same numbers everywhere. Processors
//! take no time in it; what they really took is counted beside ([`Cpu`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use anyhow::{Context as _, bail, ensure};
use zc_core::{Codec, Map, OpId, ReqId, u64_from_usize, usize_from_u32, usize_from_u64};
use zc_pool::{Answer, Ended, Pool, PoolError, Request, RequestKind, Work};
use zc_reduce::Reducer;
use zc_store::config::Shape;
use zc_store::{CatalogChange, CatalogOp, Config, FLAG_DEDUP, RootId, Superblock};

use super::device::{Device, Model, Tally};
use crate::clock::now_ns;

/// How often the daemon tells a pool the time.
const TICK_NS: u64 = 10_000_000;
/// Bytes of a chunk, and their binary logarithm.
pub const CHUNK_BYTES: u64 = 8 << 10;
const CHUNK_SHIFT: u8 = 13;

/// The volume that loads change.
pub const VOLUME: RootId = RootId(1);

/// A pool that is to be.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// What its device costs.
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
    pub fn rig(self) -> anyhow::Result<Rig> {
        let config = Config { gather: self.model.seek_ns > 0, ..Config::default() };
        Rig::new(self, config.bounded(self.segment_bytes))
    }
}

/// What processors took, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    /// The pool and the store in it.
    pub pool_ns: u64,
    /// Codecs and fingerprints.
    pub jobs_ns: u64,
}

/// A request that ended.
#[derive(Debug)]
pub struct Answered {
    /// How.
    pub result: Result<Answer, PoolError>,
    /// How long it took, in the device's time.
    pub took_ns: u64,
}

/// The pool, its device and the time.
#[derive(Debug)]
pub struct Rig {
    pool: Pool,
    device: Device,
    reducer: Reducer,
    now_ns: u64,
    tick_ns: u64,
    /// Ends that are to come: when, and a number that keeps their order.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    ends: Map<u64, (OpId, Ended)>,
    asked: Map<ReqId, u64>,
    answers: VecDeque<Answered>,
    next: u64,
    opened: Option<bool>,
    cpu: Cpu,
    usable_bytes: u64,
}

impl Rig {
    /// See [`Place::rig`].
    fn new(place: Place, config: Config) -> anyhow::Result<Self> {
        let Place { model, device_bytes, segment_bytes } = place;
        let superblock =
            Superblock::format([7; 16], device_bytes, segment_bytes, 1).context("too small for a pool")?;
        let mut bytes = vec![0; usize_from_u64(device_bytes)];
        for copy in 0..2 {
            let at = usize_from_u64(Superblock::offset_bytes(copy));
            let block = superblock.encode(copy);
            bytes[at..at + block.len()].copy_from_slice(&block[..]);
        }
        let shape = Shape { segment_bytes, segments: superblock.segments };
        let usable = usize_from_u32(shape.segments).saturating_sub(config.reserve_segments(shape));
        let usable_bytes = u64_from_usize(usable) * u64::from(segment_bytes);
        let mut work = Vec::new();
        let pool = Pool::open(config, 2, &mut work);
        let mut rig = Self {
            pool,
            device: Device::new(model, bytes),
            reducer: Reducer::new(),
            now_ns: 0,
            tick_ns: TICK_NS,
            due: BinaryHeap::new(),
            ends: Map::default(),
            asked: Map::default(),
            answers: VecDeque::new(),
            next: 0,
            opened: None,
            cpu: Cpu::default(),
            usable_bytes,
        };
        rig.take(work)?;
        while rig.opened.is_none() {
            ensure!(rig.step()?, "the pool does not open");
        }
        ensure!(rig.opened == Some(true), "the pool cannot be opened");
        Ok(rig)
    }

    /// Bytes of the segments that contents may use.
    #[must_use]
    pub const fn usable_bytes(&self) -> u64 {
        self.usable_bytes
    }

    /// The pool.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What was asked of the device so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.device.tally()
    }

    /// What processors took so far.
    #[must_use]
    pub const fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// The device's time, in nanoseconds.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn take(&mut self, work: Vec<Work>) -> anyhow::Result<()> {
        for work in work {
            let (at_ns, op, ended) = match work {
                Work::Device { op, operation } => {
                    let (at_ns, ended) = self.device.begin(self.now_ns, &operation);
                    (at_ns, op, ended)
                }
                Work::Job { op, job, .. } => {
                    let began_ns = now_ns();
                    let outcome = job.run(&mut self.reducer);
                    self.cpu.jobs_ns += now_ns() - began_ns;
                    (self.now_ns, op, Ended::Job(outcome))
                }
                Work::Answer { req, result } => {
                    let asked_ns = self.asked.remove(&req).context("an answer that no request has")?;
                    self.answers.push_back(Answered { result, took_ns: self.now_ns - asked_ns });
                    continue;
                }
                Work::Opened { result } => {
                    self.opened = Some(result.is_ok());
                    continue;
                }
                Work::Stopped => bail!("the pool stopped"),
            };
            self.next += 1;
            self.due.push(Reverse((at_ns, self.next)));
            self.ends.insert(self.next, (op, ended));
        }
        Ok(())
    }

    fn drive(&mut self, input: impl FnOnce(&mut Pool, &mut Vec<Work>)) -> anyhow::Result<()> {
        let mut work = Vec::new();
        let began_ns = now_ns();
        input(&mut self.pool, &mut work);
        self.cpu.pool_ns += now_ns() - began_ns;
        self.take(work)
    }

    /// Lets time go on to the next tick or end of an operation. False if there is none but ticks.
    fn step(&mut self) -> anyhow::Result<bool> {
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
        let (op, ended) = self.ends.remove(&number).context("an end that was not begun")?;
        self.drive(|pool, work| pool.ended(op, ended, work))?;
        Ok(true)
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.now_ns = self.tick_ns;
        self.tick_ns += TICK_NS;
        let now_ms = self.now_ns / 1_000_000;
        self.drive(|pool, work| pool.tick(now_ms, work))
    }

    /// Gives the pool a request.
    ///
    /// # Errors
    /// The pool breaks the rules of its seam.
    pub fn submit(&mut self, kind: RequestKind) -> anyhow::Result<()> {
        self.next += 1;
        let req = ReqId(self.next);
        self.asked.insert(req, self.now_ns);
        self.drive(|pool, work| pool.submit(Request { req, kind }, work))
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// There is nothing left that could bring one.
    pub fn answer(&mut self) -> anyhow::Result<Answered> {
        loop {
            if let Some(answered) = self.answers.pop_front() {
                return Ok(answered);
            }
            // A pool may need ticks to go on.
            if !self.step()? {
                ensure!(!self.asked.is_empty(), "nothing was asked");
                self.tick()?;
            }
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// It is an error.
    pub fn ask(&mut self, kind: RequestKind) -> anyhow::Result<Answer> {
        self.submit(kind)?;
        Ok(self.answer()?.result?)
    }

    /// Nothing is asked for so long; the pool may clean.
    ///
    /// # Errors
    /// The pool breaks the rules of its seam.
    pub fn rest(&mut self, ns: u64) -> anyhow::Result<()> {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns {
            if !self.step()? {
                self.tick()?;
            }
        }
        Ok(())
    }

    /// Changes the catalog. New volumes share contents and have chunks of [`CHUNK_BYTES`].
    ///
    /// # Errors
    /// The pool refuses.
    pub fn catalog(
        &mut self,
        op: CatalogOp,
        id: RootId,
        source: RootId,
        size_bytes: u64,
    ) -> anyhow::Result<()> {
        let name = match op {
            CatalogOp::Snapshot => format!("volume-{}@{}", source.0, id.0),
            _ => format!("volume-{}", id.0),
        };
        let change = CatalogChange {
            op,
            id,
            source,
            codec: Codec::Lz4,
            chunk_shift: CHUNK_SHIFT,
            size_chunks: size_bytes / CHUNK_BYTES,
            flags: FLAG_DEDUP,
            name,
        };
        self.ask(RequestKind::Catalog(change)).map(|_| ())
    }
}
