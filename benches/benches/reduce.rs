//! Fingerprints, zero detection and codecs at the extent sizes that matter, on data that LZ4 halves at 8 KiB and on
//! noise.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zc_bench::data::{halving, noise};
use zc_core::{Codec, FingerprintKind};
use zc_reduce::{Reducer, dedup_domain, fingerprint, is_zero};

const SIZES: [usize; 3] = [4 << 10, 8 << 10, 32 << 10];

fn hashes(c: &mut Criterion) {
    let mut group = c.benchmark_group("hash");
    for size in SIZES {
        let bytes = noise(size, 7);
        let zeros = vec![0; size];
        group.throughput(Throughput::Bytes(zc_core::u64_from_usize(size)));
        for kind in [FingerprintKind::Blake3, FingerprintKind::Sha1] {
            for (domain, key) in [("", ""), ("Keyed", "tenant")] {
                let key = dedup_domain(&[1; 16], key);
                let id = BenchmarkId::new(format!("{kind:?}{domain}"), size);
                group.bench_with_input(id, &bytes, |b, bytes| {
                    b.iter(|| fingerprint(kind, &key, black_box(bytes)));
                });
            }
        }
        group.bench_with_input(BenchmarkId::new("is_zero", size), &zeros, |b, zeros| {
            b.iter(|| is_zero(black_box(zeros)));
        });
    }
    group.finish();
}

fn codecs(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec");
    let mut reducer = Reducer::new();
    for size in SIZES {
        group.throughput(Throughput::Bytes(zc_core::u64_from_usize(size)));
        let (halving, noise) = (halving(size, 7), noise(size, 7));
        let mut out = vec![0; size - 64];
        for codec in [Codec::Lz4, Codec::Zlib(6), Codec::Zstd(1)] {
            group.bench_function(BenchmarkId::new(format!("{codec:?}/compress_halving"), size), |b| {
                b.iter(|| reducer.compress(codec, black_box(&halving), &mut out));
            });
            group.bench_function(BenchmarkId::new(format!("{codec:?}/compress_noise"), size), |b| {
                b.iter(|| reducer.compress(codec, black_box(&noise), &mut out));
            });
            let len = reducer.compress(codec, &halving, &mut out).expect("it halves");
            let stored = out[..len].to_vec();
            let mut raw = vec![0; size];
            group.bench_function(BenchmarkId::new(format!("{codec:?}/decompress_halving"), size), |b| {
                b.iter(|| reducer.decompress(codec, black_box(&stored), &mut raw).expect("it decodes"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, hashes, codecs);
criterion_main!(benches);
