//! The manager's full path without bytes: a hit, a miss with insertion, a duplicate. Measured is the manager's own
//! work per 8 KiB request, with every operation answered at once.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use zc_bench::driver::Driver;

const EXTENTS: u64 = 100_000;

fn path(c: &mut Criterion) {
    let mut group = c.benchmark_group("manager");
    let mut warm = Driver::new(1 << 30, 4 * EXTENTS, 1);
    (0..EXTENTS).for_each(|extent| warm.read(extent));
    let mut at = 0;
    group.bench_function("hit", |b| {
        b.iter(|| {
            at = (at + 7919) % EXTENTS;
            warm.read(at);
        });
    });
    let mut fresh = Driver::new(1 << 30, 4 * EXTENTS, 1);
    let mut at = 0;
    group.bench_function("miss_and_insertion", |b| {
        b.iter(|| {
            at += 3;
            fresh.read(at);
        });
    });
    let mut alike = Driver::new(1 << 30, 4 * EXTENTS, 64);
    let mut at = 0;
    group.bench_function("miss_and_duplicate", |b| {
        b.iter(|| {
            at += 3;
            alike.read(at);
        });
    });
    black_box(alike.manager.stats().insert_duplicates);
    group.finish();
}

/// A hit beside volumes with dirty data and without clients.
fn idle_volumes(c: &mut Criterion) {
    let mut group = c.benchmark_group("manager/hit_beside_dirty_volumes");
    for volumes in [0, 1, 100, 1000] {
        let mut warm = Driver::new(1 << 30, 4 * EXTENTS, 1);
        warm.add_dirty_volumes(volumes);
        (0..EXTENTS).for_each(|extent| warm.read(extent));
        let state = warm.manager.dirty(zc_core::VolumeId(volumes));
        assert!(volumes == 0 || state.is_some_and(|dirty| dirty.extents == 1), "{state:?}");
        let mut at = 0;
        group.bench_function(BenchmarkId::from_parameter(volumes), |b| {
            b.iter(|| {
                at = (at + 7919) % EXTENTS;
                warm.read(at);
            });
        });
    }
    group.finish();
}

/// Long hits of a cache whose index no processor holds in its caches.
fn long_hits(c: &mut Criterion) {
    const MANY: u64 = 5_000_000;
    let mut group = c.benchmark_group("manager/hit_of_5_million");
    let mut warm = Driver::new(64 << 30, MANY * 5 / 4, 1);
    (0..MANY / 16).for_each(|run| warm.read_run(run * 16, 16));
    for extents in [1, 4, 16] {
        let mut at = 0;
        group.bench_function(BenchmarkId::from_parameter(extents), |b| {
            b.iter(|| {
                at = (at + 7919 * 16) % (MANY - 16);
                warm.read_run(at, extents);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, path, idle_volumes, long_hits);
criterion_main!(benches);
