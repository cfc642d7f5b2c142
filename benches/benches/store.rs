//! The store by itself: processor time of pool and store for each chunk of 8 KiB, each cleaned segment and each opening.
//!
//! The daemon's pool works on a device in memory that costs nothing here. Fingerprints, codecs and copies of the device
//! are left out, so that a figure is that of tables, log and cleaner. Contents are noise that does not repeat.
#![expect(clippy::unwrap_used, reason = "a bench whose pool fails has nothing to measure")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_bench::data::noise;
use zc_bench::pool::{CHUNK_BYTES, Place, Rig, SSD, VOLUME};
use zc_core::usize_from_u64;
use zc_pool::RequestKind;
use zc_store::CatalogOp;

const PLACE: Place = Place { model: SSD, device_bytes: 256 << 20, segment_bytes: 1 << 20 };
/// Chunks of a volume that fills the pool by about 70 %.
const CHUNKS: u64 = 20_000;
/// Overwrites before each cleaning: about a third of a volume.
const OVERWRITES: u64 = CHUNKS / 3;

/// Gives a pool requests, a number of them at once.
struct Client {
    rig: Rig,
    rng: Pcg64Mcg,
    data: Vec<u8>,
    number: u64,
}

impl Client {
    /// An empty volume.
    fn new() -> Self {
        let mut rig = PLACE.rig().unwrap();
        rig.catalog(CatalogOp::Create, VOLUME, VOLUME, CHUNKS * CHUNK_BYTES).unwrap();
        let data = noise(usize_from_u64(CHUNK_BYTES), 1);
        Self { rig, rng: Pcg64Mcg::seed_from_u64(1), data, number: 0 }
    }

    fn filled() -> Self {
        let mut client = Self::new();
        client.write(CHUNKS, 32, |number, _| number);
        client
    }

    /// Sends `count` requests; returns the processor time of pool and store.
    fn send(
        &mut self,
        requests: u64,
        depth: u64,
        mut request: impl FnMut(&mut Self, u64) -> RequestKind,
    ) -> Duration {
        let before_ns = self.rig.cpu().pool_ns;
        for number in 0..requests {
            if number >= depth {
                self.rig.answer().unwrap().result.unwrap();
            }
            let kind = request(self, number);
            self.rig.submit(kind).unwrap();
        }
        for _ in 0..requests.min(depth) {
            self.rig.answer().unwrap().result.unwrap();
        }
        Duration::from_nanos(self.rig.cpu().pool_ns - before_ns)
    }

    fn write(&mut self, requests: u64, depth: u64, chunk: impl Fn(u64, &mut Pcg64Mcg) -> u64) -> Duration {
        self.send(requests, depth, |client, number| {
            client.number += 1;
            client.data[..8].copy_from_slice(&client.number.to_le_bytes());
            let offset_bytes = chunk(number, &mut client.rng) * CHUNK_BYTES;
            let data = client.data.clone().into();
            RequestKind::Write { root: VOLUME, offset_bytes, data, known: Vec::new() }
        })
    }

    fn overwrite(&mut self, requests: u64, depth: u64) -> Duration {
        self.write(requests, depth, |_, rng| rng.random_range(0..CHUNKS))
    }
}

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("store");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    for depth in [1, 32] {
        group.bench_function(format!("write_{depth}_at_once"), |b| {
            b.iter_custom(|iters| {
                // A volume is written once from front to back, then comes another one.
                let left = (0..iters).step_by(usize_from_u64(CHUNKS)).map(|done| (iters - done).min(CHUNKS));
                left.map(|count| Client::new().write(count, depth, |number, _| number)).sum()
            });
        });
    }
    let mut client = Client::filled();
    group.bench_function("read", |b| {
        b.iter_custom(|iters| {
            client.send(iters, 1, |client, _| {
                let offset_bytes = client.rng.random_range(0..CHUNKS) * CHUNK_BYTES;
                RequestKind::Read { root: VOLUME, offset_bytes, len_bytes: 8 << 10 }
            })
        });
    });
    client.overwrite(2 * CHUNKS, 32);
    for depth in [1, 32] {
        group.bench_function(format!("overwrite_{depth}_at_once"), |b| {
            b.iter_custom(|iters| client.overwrite(iters, depth));
        });
    }
    group.finish();
}

/// The cleaning of one segment, with its share of marking and sweeping.
fn clean(c: &mut Criterion) {
    let mut group = c.benchmark_group("store");
    group.sample_size(20);
    let mut client = Client::filled();
    group.bench_function("clean_a_segment", |b| {
        b.iter_custom(|iters| {
            let (mut cleaned, mut took_ns) = (0, 0);
            while cleaned < iters {
                client.overwrite(OVERWRITES, 32);
                let cleaned_now = |rig: &Rig| rig.pool().store().stats().segments_cleaned;
                let before = (cleaned_now(&client.rig), client.rig.cpu().pool_ns);
                client.rig.clean().unwrap();
                cleaned += cleaned_now(&client.rig) - before.0;
                took_ns += client.rig.cpu().pool_ns - before.1;
                assert!(cleaned > 0, "nothing was cleaned");
            }
            Duration::from_nanos(took_ns * iters / cleaned)
        });
    });
    group.finish();
}

/// Opens a pool after a crash, with overwrites in its log after the last checkpoint.
fn open(c: &mut Criterion) {
    let mut group = c.benchmark_group("store/open_after_overwrites");
    group.sample_size(10);
    let checkpoints = |client: &Client| client.rig.pool().store().stats().checkpoints;
    let mut client = Client::filled();
    for overwrites in [0, 500, 2000] {
        let before = checkpoints(&client);
        while checkpoints(&client) == before {
            client.overwrite(32, 32);
        }
        let before = checkpoints(&client);
        client.overwrite(overwrites, 32);
        assert_eq!(checkpoints(&client), before, "a checkpoint shortened the log");
        group.bench_function(overwrites.to_string(), |b| {
            b.iter_custom(|iters| {
                let opened = |_| client.rig.crashed().unwrap().cpu().pool_ns;
                Duration::from_nanos((0..iters).map(opened).sum())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, requests, clean, open);
criterion_main!(benches);
