//! The pool over a device in memory: bytes that were written are read, also after a crash.

use std::collections::VecDeque;

use bytes::Bytes;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::{Codec, DedupDomain, ErrorKind, FingerprintKind, OpId, ReqId};
use zc_reduce::Reducer;
use zc_store::config::Shape;
use zc_store::{CatalogChange, CatalogOp, Config, FLAG_DEDUP, RootId, Superblock};

use crate::{
    Answer, Counters, DeviceOperation, Ended, Job, KnownChunk, Pool, PoolError, Request, RequestKind, Work,
};

const VOLUME: RootId = RootId(1);
const SNAP: RootId = RootId(2);
const SIZE: u64 = 256 << 10;
const CHUNK: u64 = 8 << 10;
const SEGMENT: u32 = 64 << 10;
/// Segments for contents.
const SPARE_SEGMENTS: usize = 40;

/// What is in progress.
enum Busy {
    Device(OpId, DeviceOperation),
    Job(OpId, Job),
}

struct World {
    rng: Pcg64Mcg,
    device: Vec<u8>,
    /// Writes that no flush covered: where, and what was there before.
    unflushed: Vec<(usize, Vec<u8>)>,
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
        Self::with_segments(seed, SPARE_SEGMENTS)
    }

    fn with_segments(seed: u64, spare: usize) -> Self {
        let reserve = config().reserve_segments(Shape { segment_bytes: SEGMENT, segments: 0 });
        let mut device = vec![0; (128 << 10) + (reserve + spare) * zc_core::usize_from_u32(SEGMENT)];
        let bytes = zc_core::u64_from_usize(device.len());
        let superblock = Superblock::format([7; 16], bytes, SEGMENT, 1).unwrap();
        for copy in 0..2 {
            let at = zc_core::usize_from_u64(Superblock::offset_bytes(copy));
            device[at..at + 4096].copy_from_slice(&superblock.encode(copy)[..]);
        }
        Self::on(device, seed)
    }

    fn on(device: Vec<u8>, seed: u64) -> Self {
        let mut out = Vec::new();
        let pool = Pool::open(config(), seed + 2, &mut out);
        let mut world = Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            device,
            unflushed: Vec::new(),
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
        while self.step() {}
    }

    /// Something that is in progress ends.
    fn step(&mut self) -> bool {
        if !self.busy.is_empty() {
            let at = self.rng.random_range(0..self.busy.len());
            let (op, ended) = match self.busy.swap_remove(at) {
                Busy::Job(op, job) => (op, Ended::Job(job.run(&mut self.reducer))),
                Busy::Device(op, DeviceOperation::Flush) => {
                    self.unflushed.clear();
                    (op, Ended::Device(Ok(())))
                }
                Busy::Device(op, DeviceOperation::Discard { offset_bytes, len_bytes }) => {
                    let at = zc_core::usize_from_u64(offset_bytes);
                    self.put(at, &vec![0; zc_core::usize_from_u32(len_bytes)]);
                    (op, Ended::Device(Ok(())))
                }
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
                    self.put(at, &bytes);
                    (op, Ended::Device(Ok(())))
                }
            };
            let mut out = Vec::new();
            self.pool.ended(op, ended, &mut out);
            self.take(out);
            return true;
        }
        false
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.unflushed.push((at, self.device[at..at + bytes.len()].to_vec()));
        self.device[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The power goes: of each write that no flush covered, also of those in progress, any sectors are kept.
    fn cut(mut self) -> Vec<u8> {
        for busy in std::mem::take(&mut self.busy) {
            if let Busy::Device(_, DeviceOperation::Write { offset_bytes, bytes }) = busy {
                self.put(zc_core::usize_from_u64(offset_bytes), &bytes);
            }
        }
        while let Some((at, before)) = self.unflushed.pop() {
            let lost = [0.1, 0.5, 1.0][self.rng.random_range(0..3)];
            for (index, sector) in before.chunks(512).enumerate() {
                if self.rng.random_bool(lost) {
                    let at = at + 512 * index;
                    self.device[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        self.device
    }

    fn write(&mut self, offset_bytes: u64, data: Vec<u8>) -> Result<Answer, PoolError> {
        let (data, known) = (data.into(), Vec::new());
        self.ask(RequestKind::Write { root: VOLUME, offset_bytes, data, known })
    }

    /// Bytes that no codec makes shorter.
    fn noise(&mut self, len: u64) -> Vec<u8> {
        let mut noise = vec![0; zc_core::usize_from_u64(len)];
        self.rng.fill(&mut noise[..]);
        noise
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
                let (data, known) = (bytes.into(), Vec::new());
                self.submit(RequestKind::Write { root: VOLUME, offset_bytes, data, known });
            }
        }
        self.settle();
        for (req, result) in self.answers.drain(..) {
            assert_eq!(result, Ok(Answer::Done), "{req:?}");
        }
    }
}

fn config() -> Config {
    Config { cache_pages: 64, dirty_pages_max: 8, ..Config::default() }.bounded(SEGMENT)
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
    let (data, known) = (vec![5; 32 << 10].into(), Vec::new());
    let write = RequestKind::Write { root: VOLUME, offset_bytes: 0, data, known };
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
    let noise = world.noise(32 << 10);
    let write =
        RequestKind::Write { root: VOLUME, offset_bytes: 0, data: noise.clone().into(), known: Vec::new() };
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
fn a_device_that_fails_is_told_by_the_write_and_the_flush_and_stops() {
    for fails_before_the_stop in [true, false] {
        let mut world = World::new(1);
        world.catalog(CatalogOp::Create, VOLUME, "disk");
        assert_eq!(world.write(0, vec![5; 8 << 10]), Ok(Answer::Done));
        world.writes_fail = true;
        if fails_before_the_stop {
            let error = world.write(CHUNK, vec![6; 8 << 10]).unwrap_err();
            assert_eq!((error.kind(), error.offset_bytes), (ErrorKind::Io, CHUNK));
            assert_eq!(world.ask(RequestKind::Flush).unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(world.read(VOLUME, 0, 512), [5; 512], "reads go on");
        }
        let mut out = Vec::new();
        world.pool.stop(&mut out);
        world.take(out);
        world.settle();
        assert!(world.stopped);
    }
}

#[test]
fn what_was_answered_outlives_the_process_without_a_flush() {
    let mut world = World::new(1);
    world.catalog(CatalogOp::Create, VOLUME, "disk");
    let mut model = vec![0; zc_core::usize_from_u64(SIZE)];
    for _ in 0..5 {
        world.change(&mut model);
        // The process is gone, the machine is not: the device has what it was given.
        world = World::on(world.device, 2);
        assert!(world.all(VOLUME) == model);
    }
}

#[test]
fn writes_that_come_together_share_a_batch() {
    let mut world = World::new(1);
    world.catalog(CatalogOp::Create, VOLUME, "disk");
    world.settle();
    let before = world.pool.store().newest_batch().0;
    for chunk in 0..30 {
        let data = vec![u8::try_from(chunk + 1).unwrap(); 8 << 10].into();
        let offset_bytes = chunk * CHUNK;
        world.submit(RequestKind::Write { root: VOLUME, offset_bytes, data, known: Vec::new() });
    }
    world.settle();
    assert!(world.answers.drain(..).all(|(_, result)| result == Ok(Answer::Done)));
    // 30 changes of 88 bytes fit one header; those whose jobs ended first went ahead of the others.
    let batches = world.pool.store().newest_batch().0 - before;
    assert!((1..=20).contains(&batches), "{batches}");
}

#[test]
fn a_full_pool_refuses_loses_nothing_and_takes_what_a_discard_frees() {
    let mut world = World::with_segments(3, 12);
    world.catalog(CatalogOp::Create, VOLUME, "disk");
    let grow = CatalogChange {
        op: CatalogOp::Grow,
        id: VOLUME,
        source: VOLUME,
        codec: Codec::Lz4,
        chunk_shift: 13,
        size_chunks: 1 << 20,
        flags: 0,
        name: String::new(),
    };
    assert_eq!(world.ask(RequestKind::Catalog(grow)), Ok(Answer::Done), "larger than the pool");
    let mut model = Vec::new();
    let error = loop {
        let noise = world.noise(3 * CHUNK);
        match world.write(zc_core::u64_from_usize(model.len()), noise.clone()) {
            Ok(_) => model.extend_from_slice(&noise),
            Err(error) => break error,
        }
    };
    let end = zc_core::u64_from_usize(model.len());
    assert_eq!((error.kind(), error.offset_bytes), (ErrorKind::NoSpace, end));
    assert!(end > 4 * u64::from(SEGMENT), "{end} bytes fit");
    let len = u32::try_from(end).unwrap();
    assert!(world.read(VOLUME, 0, len) == model);
    assert_eq!(world.ask(RequestKind::Flush), Ok(Answer::Done), "a flush needs no space");
    let discard = RequestKind::Discard { root: VOLUME, offset_bytes: 0, len_bytes: end / 2 / CHUNK * CHUNK };
    assert_eq!(world.ask(discard), Ok(Answer::Done));
    let half = zc_core::usize_from_u64(end / 2 / CHUNK * CHUNK);
    model[..half].fill(0);
    let noise = world.noise(3 * CHUNK);
    assert_eq!(world.write(0, noise.clone()), Ok(Answer::Done), "what was discarded is there to be used");
    model[..noise.len()].copy_from_slice(&noise);
    let mut world = World::on(world.device, 4);
    assert!(world.read(VOLUME, 0, len) == model, "after a start");
}

#[test]
fn after_a_power_cut_with_torn_writes_the_volume_is_as_it_was_at_some_moment_since_the_flush() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        world.catalog(CatalogOp::Create, VOLUME, "disk");
        let mut states = vec![vec![0; zc_core::usize_from_u64(SIZE)]];
        let mut flushed = 0;
        for turn in 0..20 {
            // Whole chunks that fit one change of the store.
            let (first, count) = (world.rng.random_range(0..25), world.rng.random_range(1..=6));
            let mut data = world.noise(count * CHUNK);
            if turn % 4 == 0 {
                data.fill(turn + 1);
            }
            let mut next = states[states.len() - 1].clone();
            let at = zc_core::usize_from_u64(first * CHUNK);
            next[at..at + data.len()].copy_from_slice(&data);
            states.push(next);
            assert_eq!(world.write(first * CHUNK, data), Ok(Answer::Done));
            if world.rng.random_bool(0.2) {
                assert_eq!(world.ask(RequestKind::Flush), Ok(Answer::Done));
                flushed = states.len() - 1;
            }
        }
        // The last change is under way.
        let data = world.noise(2 * CHUNK);
        let mut next = states[states.len() - 1].clone();
        next[..data.len()].copy_from_slice(&data);
        states.push(next);
        world.submit(RequestKind::Write {
            root: VOLUME,
            offset_bytes: 0,
            data: data.into(),
            known: Vec::new(),
        });
        for _ in 0..world.rng.random_range(0..6) {
            world.step();
        }
        let mut world = World::on(world.cut(), seed + 100);
        let found = world.all(VOLUME);
        assert!(states[flushed..].contains(&found), "seed {seed}: no state since the flush");
    }
}

#[test]
fn fingerprints_that_come_with_a_write_are_not_computed_and_are_found_again() {
    let mut world = World::new(3);
    world.catalog(CatalogOp::Create, VOLUME, "disk");
    let noise = world.noise(3 * CHUNK);
    let print = |chunk: usize| {
        let size = zc_core::usize_from_u64(CHUNK);
        let bytes = &noise[chunk * size..][..size];
        let print = zc_reduce::fingerprint(FingerprintKind::Blake3, &DedupDomain::COMMON, bytes);
        KnownChunk { print: Some(print), encoding: None }
    };
    let counted = |world: &World| {
        let Counters { prints_known, prints_computed, .. } = world.pool.counters();
        (prints_known, prints_computed)
    };
    // From the middle of a chunk on: only chunks 5 and 6 are whole, and the first of them is known.
    let mut data = vec![1; zc_core::usize_from_u64(CHUNK / 2)];
    data.extend(&noise[..2 * zc_core::usize_from_u64(CHUNK)]);
    let offset_bytes = 4 * CHUNK + CHUNK / 2;
    let known = vec![(5, print(0))];
    world.ask(RequestKind::Write { root: VOLUME, offset_bytes, data: data.into(), known }).unwrap();
    assert_eq!(counted(&world), (1, 2));
    let known = (10..).zip((0..3).map(print)).collect();
    let data = noise.clone().into();
    world.ask(RequestKind::Write { root: VOLUME, offset_bytes: 10 * CHUNK, data, known }).unwrap();
    assert_eq!(counted(&world), (4, 2));
    assert_eq!(world.pool.store().stats().chunks_shared, 2);
}

#[test]
fn encodings_that_come_with_a_write_are_stored_as_they_are() {
    let mut world = World::new(4);
    world.catalog(CatalogOp::Create, VOLUME, "disk");
    let size = zc_core::usize_from_u64(CHUNK);
    let text = |word: &str| Bytes::from(word.repeat(size)[..size].to_owned());
    let encoding = |codec: Codec, bytes: &Bytes| {
        let mut out = vec![0; size];
        let len = Reducer::new().compress(codec, bytes, &mut out).unwrap();
        KnownChunk { print: None, encoding: Some((codec, Bytes::copy_from_slice(&out[..len]))) }
    };
    let texts = [text("one "), text("two "), text("three "), text("four ")];
    let too_long = KnownChunk { print: None, encoding: Some((Codec::Raw, texts[2].clone())) };
    // The codec of the volume, another one, one that saves nothing, and nothing.
    let known =
        vec![(0, encoding(Codec::Lz4, &texts[0])), (1, encoding(Codec::Zlib(6), &texts[1])), (2, too_long)];
    let data = Bytes::from(texts.concat());
    world.ask(RequestKind::Write { root: VOLUME, offset_bytes: 0, data: data.clone(), known }).unwrap();
    world.ask(RequestKind::Flush).unwrap();
    let Counters { encodings_known, encodings_computed, .. } = world.pool.counters();
    assert_eq!((encodings_known, encodings_computed), (1, 3));
    assert_eq!(world.read(VOLUME, 0, u32::try_from(4 * CHUNK).unwrap()), data);
}
