//! The pool over a device in memory: bytes that were written are read, also after a crash.

use std::collections::VecDeque;

use bytes::Bytes;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::{Codec, ErrorKind, OpId, ReqId};
use zc_reduce::Reducer;
use zc_store::{CatalogChange, CatalogOp, Config, FLAG_DEDUP, RootId, Superblock};

use crate::{Answer, DeviceOperation, Ended, Job, Pool, PoolError, Request, RequestKind, Work};

const VOLUME: RootId = RootId(1);
const SNAP: RootId = RootId(2);
const SIZE: u64 = 256 << 10;

/// What is in progress.
enum Busy {
    Device(OpId, DeviceOperation),
    Job(OpId, Job),
}

struct World {
    rng: Pcg64Mcg,
    device: Vec<u8>,
    /// A block that cannot be read.
    bad_block: Option<u64>,
    writes_fail: bool,
    pool: Pool,
    busy: Vec<Busy>,
    answers: VecDeque<(ReqId, Result<Answer, PoolError>)>,
    opened: bool,
    stopped: bool,
    next: u64,
    reducer: Reducer,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut device = vec![0; (128 << 10) + (64 << 16)];
        let bytes = zc_core::u64_from_usize(device.len());
        let superblock = Superblock::format([7; 16], bytes, 64 << 10, 1).unwrap();
        for copy in 0..2 {
            let at = zc_core::usize_from_u64(Superblock::offset_bytes(copy));
            device[at..at + 4096].copy_from_slice(&superblock.encode(copy)[..]);
        }
        Self::on(device, seed)
    }

    fn on(device: Vec<u8>, seed: u64) -> Self {
        let mut out = Vec::new();
        let config = Config { cache_pages: 64, dirty_pages_max: 8, ..Config::default() };
        let pool = Pool::open(config, seed + 2, &mut out);
        let mut world = Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            device,
            bad_block: None,
            writes_fail: false,
            pool,
            busy: Vec::new(),
            answers: VecDeque::new(),
            opened: false,
            stopped: false,
            next: 0,
            reducer: Reducer::new(),
        };
        world.take(out);
        world.settle();
        assert!(world.opened);
        world
    }

    fn take(&mut self, work: Vec<Work>) {
        for work in work {
            match work {
                Work::Device { op, operation } => self.busy.push(Busy::Device(op, operation)),
                Work::Job { op, job, .. } => self.busy.push(Busy::Job(op, job)),
                Work::Answer { req, result } => self.answers.push_back((req, result)),
                Work::Opened { result } => self.opened = result.is_ok(),
                Work::Stopped => self.stopped = true,
            }
        }
    }

    /// All that is in progress ends, in any order.
    fn settle(&mut self) {
        while !self.busy.is_empty() {
            let at = self.rng.random_range(0..self.busy.len());
            let (op, ended) = match self.busy.swap_remove(at) {
                Busy::Job(op, job) => (op, Ended::Job(job.run(&mut self.reducer))),
                Busy::Device(op, DeviceOperation::Flush) => (op, Ended::Device(Ok(()))),
                Busy::Device(op, DeviceOperation::Read { offset_bytes, len_bytes }) => {
                    let at = zc_core::usize_from_u64(offset_bytes);
                    let bytes = &self.device[at..at + zc_core::usize_from_u32(len_bytes)];
                    let range = offset_bytes..offset_bytes + u64::from(len_bytes);
                    let is_bad = self.bad_block.is_some_and(|block| range.contains(&block));
                    let bytes = if is_bad { Err(ErrorKind::Io) } else { Ok(Bytes::copy_from_slice(bytes)) };
                    (op, Ended::Read(bytes))
                }
                Busy::Device(op, DeviceOperation::Write { .. }) if self.writes_fail => {
                    (op, Ended::Device(Err(ErrorKind::Io)))
                }
                Busy::Device(op, DeviceOperation::Write { offset_bytes, bytes }) => {
                    let at = zc_core::usize_from_u64(offset_bytes);
                    self.device[at..at + bytes.len()].copy_from_slice(&bytes);
                    (op, Ended::Device(Ok(())))
                }
            };
            let mut out = Vec::new();
            self.pool.ended(op, ended, &mut out);
            self.take(out);
        }
    }

    fn submit(&mut self, kind: RequestKind) {
        self.next += 1;
        let mut out = Vec::new();
        self.pool.submit(Request { req: ReqId(self.next), kind }, &mut out);
        self.take(out);
    }

    fn ask(&mut self, kind: RequestKind) -> Result<Answer, PoolError> {
        self.submit(kind);
        self.settle();
        self.answers.pop_back().unwrap().1
    }

    fn catalog(&mut self, op: CatalogOp, id: RootId, name: &str) {
        let change = CatalogChange {
            op,
            id,
            source: VOLUME,
            codec: Codec::Lz4,
            chunk_shift: 13,
            size_chunks: SIZE >> 13,
            flags: FLAG_DEDUP,
            name: name.to_owned(),
        };
        assert_eq!(self.ask(RequestKind::Catalog(change)), Ok(Answer::Done));
    }

    fn read(&mut self, root: RootId, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
        match self.ask(RequestKind::Read { root, offset_bytes, len_bytes }) {
            Ok(Answer::Bytes(pieces)) => pieces.concat(),
            other => panic!("{other:?}"),
        }
    }

    fn all(&mut self, root: RootId) -> Vec<u8> {
        self.read(root, 0, u32::try_from(SIZE).unwrap())
    }

    /// Some changes at once, which overlap; the model has them in the order in which they were given.
    fn change(&mut self, model: &mut [u8]) {
        for _ in 0..self.rng.random_range(1..6) {
            let offset_bytes = self.rng.random_range(0..SIZE - 1);
            let len_bytes = self.rng.random_range(1..=(SIZE - offset_bytes).min(40_000));
            let start = zc_core::usize_from_u64(offset_bytes);
            let range = start..start + zc_core::usize_from_u64(len_bytes);
            if self.rng.random_bool(0.2) {
                model[range].fill(0);
                self.submit(RequestKind::Zero { root: VOLUME, offset_bytes, len_bytes });
            } else {
                let value = self.rng.random_range(1..250);
                let bytes: Vec<u8> = (0..range.len()).map(|at| value + u8::from(at % 3 == 0)).collect();
                model[range].copy_from_slice(&bytes);
                let (data, prints) = (bytes.into(), Vec::new());
                self.submit(RequestKind::Write { root: VOLUME, offset_bytes, data, prints });
            }
        }
        self.settle();
        for (req, result) in self.answers.drain(..) {
            assert_eq!(result, Ok(Answer::Done), "{req:?}");
        }
    }
}

#[test]
fn bytes_are_what_was_written_last_also_after_a_crash() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.catalog(CatalogOp::Create, VOLUME, "disk");
        let mut model = vec![0; zc_core::usize_from_u64(SIZE)];
        for _ in 0..15 {
            world.change(&mut model);
            assert!(world.all(VOLUME) == model, "seed {seed}");
        }
        world.catalog(CatalogOp::Snapshot, SNAP, "disk@one");
        let kept = model.clone();
        world.change(&mut model);
        assert_eq!(world.ask(RequestKind::Flush), Ok(Answer::Done));
        let mut world = World::on(world.device, seed + 100);
        assert!(world.all(VOLUME) == model && world.all(SNAP) == kept, "seed {seed}");
        let mut out = Vec::new();
        world.pool.stop(&mut out);
        world.take(out);
        world.settle();
        assert!(world.stopped && world.pool.requests() == 0);
    }
}

#[test]
fn a_discard_keeps_parts_of_chunks() {
    let mut world = World::new(1);
    world.catalog(CatalogOp::Create, VOLUME, "disk");
    let (data, prints) = (vec![5; 32 << 10].into(), Vec::new());
    let write = RequestKind::Write { root: VOLUME, offset_bytes: 0, data, prints };
    assert_eq!(world.ask(write), Ok(Answer::Done));
    let discard = RequestKind::Discard { root: VOLUME, offset_bytes: 4096, len_bytes: 16 << 10 };
    assert_eq!(world.ask(discard), Ok(Answer::Done));
    let mut model = vec![5; 32 << 10];
    model[8192..16_384].fill(0);
    assert_eq!(world.read(VOLUME, 0, 32 << 10), model);
}

#[test]
fn requests_outside_are_refused() {
    let mut world = World::new(1);
    world.catalog(CatalogOp::Create, VOLUME, "disk");
    for (root, offset_bytes) in [(VOLUME, SIZE), (VOLUME, u64::MAX), (RootId(9), 0)] {
        let error = world.ask(RequestKind::Read { root, offset_bytes, len_bytes: 512 }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let zero = RequestKind::Zero { root, offset_bytes, len_bytes: 512 };
        assert_eq!(world.ask(zero).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_block_that_cannot_be_read_takes_no_neighbour_along() {
    let mut world = World::new(1);
    world.catalog(CatalogOp::Create, VOLUME, "disk");
    let mut noise = vec![0; 32 << 10];
    world.rng.fill(&mut noise[..]);
    let write =
        RequestKind::Write { root: VOLUME, offset_bytes: 0, data: noise.clone().into(), prints: Vec::new() };
    assert_eq!(world.ask(write), Ok(Answer::Done));
    assert_eq!(world.ask(RequestKind::Flush), Ok(Answer::Done));
    // Opened anew, so that nothing comes from memory.
    let mut world = World::on(world.device, 2);
    let third = &noise[16 << 10..(16 << 10) + 64];
    let at = world.device.windows(64).position(|window| window == third).unwrap();
    world.bad_block = Some(zc_core::u64_from_usize(at.next_multiple_of(4096)));
    let scrub = zc_store::SurveyKind::Scrub { from: None, addresses_max: u64::MAX };
    let mut now_ms = 0;
    world.submit(RequestKind::Survey(scrub));
    while world.answers.is_empty() {
        let mut out = Vec::new();
        now_ms += 1000;
        world.pool.tick(now_ms, &mut out);
        world.take(out);
        world.settle();
    }
    let Some((_, Ok(Answer::Surveyed(surveyed)))) = world.answers.pop_front() else { panic!("a report") };
    let zc_store::Surveyed::Scrub(report) = *surveyed else { panic!("a scrub") };
    let places: Vec<u64> = report.damage.iter().map(|damage| damage.first).collect();
    assert_eq!((places, report.chunks), (vec![2], 4));
}

#[test]
fn a_device_that_fails_is_told_by_the_flush_and_stops() {
    for fails_before_the_stop in [true, false] {
        let mut world = World::new(1);
        world.catalog(CatalogOp::Create, VOLUME, "disk");
        let (data, prints) = (vec![5; 8 << 10].into(), Vec::new());
        let write = RequestKind::Write { root: VOLUME, offset_bytes: 0, data, prints };
        assert_eq!(world.ask(write), Ok(Answer::Done));
        world.writes_fail = true;
        if fails_before_the_stop {
            assert_eq!(world.ask(RequestKind::Flush).unwrap_err().kind(), ErrorKind::Io);
        }
        let mut out = Vec::new();
        world.pool.stop(&mut out);
        world.take(out);
        world.settle();
        assert!(world.stopped);
    }
}
