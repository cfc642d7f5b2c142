//! Lookup, insertion and replacement in the two indexes at a million entries.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_cache::index::{FileIndex, FingerprintIndex, IndexShape, Mapping, Place};
use zc_core::{ExtentKey, ExtentNo, Fingerprint, Generation, VolumeId, WeuSlot};

const ENTRIES: u64 = 1_000_000;
/// Some 300 MB of index.
const LARGE_ENTRIES: u64 = 32 << 20;
/// Extents that are called up together.
const GROUP: usize = 8;
const SHAPE: IndexShape =
    IndexShape { slots: 20_000, weu_bytes: 2 << 20, extent_bytes: 8 << 10, generation_bits: 8 };

fn key(number: u64) -> ExtentKey {
    ExtentKey { volume: VolumeId(1), extent: ExtentNo(number) }
}

fn mapping(number: u64) -> Mapping {
    let slot = u32::try_from(number % 20_000).expect("small");
    Mapping::Base(Place { slot: WeuSlot(slot), generation: Generation(3), offset_units: 65, pages: 2 })
}

fn print(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8].copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    Fingerprint(bytes)
}

fn file_index(c: &mut Criterion) {
    let mut index = FileIndex::new(SHAPE, ENTRIES);
    for number in 0..ENTRIES {
        index.insert(key(number * 7), mapping(number));
    }
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut group = c.benchmark_group("file_index");
    group.bench_function("get_hit", |b| {
        b.iter(|| black_box(index.get(key(rng.random_range(0..ENTRIES) * 7))));
    });
    group.bench_function("get_miss", |b| {
        b.iter(|| black_box(index.get(key(rng.random_range(0..ENTRIES) * 7 + 1))));
    });
    group.bench_function("replace", |b| {
        b.iter(|| {
            let number = rng.random_range(0..ENTRIES) * 7;
            index.remove(key(number));
            black_box(index.insert(key(number), mapping(number)))
        });
    });
    group.finish();
}

fn fingerprint_index(c: &mut Criterion) {
    let mut index = FingerprintIndex::new(SHAPE, ENTRIES);
    for number in 0..ENTRIES {
        index.insert(&print(number), WeuSlot(u32::try_from(number % 20_000).expect("small")));
    }
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut group = c.benchmark_group("fingerprint_index");
    group.bench_function("candidates_hit", |b| {
        b.iter(|| black_box(index.candidates(&print(rng.random_range(0..ENTRIES)))));
    });
    group.bench_function("candidates_miss", |b| {
        b.iter(|| black_box(index.candidates(&print(rng.random_range(ENTRIES..2 * ENTRIES)))));
    });
    group.finish();
}

/// Replacement in an index that no processor cache holds, as at a start: each extent for itself, and in groups that are
/// called up first.
fn large_index(c: &mut Criterion) {
    let mut index = FileIndex::new(SHAPE, LARGE_ENTRIES);
    for number in 0..LARGE_ENTRIES {
        index.insert(key(number * 7), mapping(number));
    }
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut group = c.benchmark_group("large_file_index");
    group.throughput(Throughput::Elements(GROUP as u64));
    for (name, is_called_up) in [("replace_one_by_one", false), ("replace_called_up", true)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let keys: [_; GROUP] = core::array::from_fn(|_| key(rng.random_range(0..LARGE_ENTRIES) * 7));
                if is_called_up {
                    keys.iter().for_each(|key| index.call_up(*key));
                }
                for key in keys {
                    index.remove(key);
                    black_box(index.insert(key, mapping(key.extent.0)));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, file_index, fingerprint_index, large_index);
criterion_main!(benches);
