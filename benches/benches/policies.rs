//! Reference policies at the grain of one extent: accesses a second.
//!
//! With `ZC_TRACES` naming a folder that has `arc_OLTP.lis.zst`, on that trace; else on a generated one of as many
//! accesses and pages. The trace is in memory; reading it is not measured.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::hint::black_box;
use std::path::PathBuf;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_policy::Kind;
use zc_replay::Extents;
use zc_trace::{Options, Reader};

/// References and pages of OLTP.
const ACCESSES: usize = 914_145;
const PAGES: u64 = 186_880;
/// Extents of the cache.
const CAPACITY: usize = 10_000;

fn oltp(folder: &PathBuf) -> Vec<u64> {
    let path = PathBuf::from(folder).join("arc_OLTP.lis.zst");
    let mut extents = Extents::new(4096);
    let reader = Reader::open(&path, Options::default()).expect("ZC_TRACES has arc_OLTP.lis.zst");
    reader.flat_map(|request| extents.keys(&request.expect("a whole trace")).expect("one device")).collect()
}

fn skewed() -> Vec<u64> {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut wanted = || rng.random_range(0..PAGES) * rng.random_range(0..PAGES) / PAGES;
    (0..ACCESSES).map(|_| wanted() * wanted() / PAGES).collect()
}

fn policies(c: &mut Criterion) {
    let folder = std::env::var_os("ZC_TRACES").map(PathBuf::from);
    let (name, keys) = folder.map_or_else(|| ("generated", skewed()), |folder| ("oltp", oltp(&folder)));
    let mut group = c.benchmark_group(format!("policies/{name}"));
    group.throughput(Throughput::Elements(zc_core::u64_from_usize(keys.len())));
    group.sample_size(10);
    for kind in Kind::ALL {
        group.bench_function(kind.name(), |b| {
            b.iter_batched(
                || kind.build(CAPACITY, || keys.clone()),
                |mut policy| black_box(keys.iter().filter(|key| policy.access(**key)).count()),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, policies);
criterion_main!(benches);
