//! Fingerprints, zero detection and codecs at the extent sizes that matter, on data that LZ4 halves and on noise.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::{Codec, FingerprintKind};
use zc_reduce::{Reducer, fingerprint, is_zero};

const SIZES: [usize; 3] = [4 << 10, 8 << 10, 32 << 10];

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(7).fill_bytes(&mut bytes);
    bytes
}

fn half(len: usize) -> Vec<u8> {
    let mut bytes = noise(len);
    bytes.chunks_mut(16).for_each(|chunk| chunk[8..].fill(0));
    bytes
}

fn hashes(c: &mut Criterion) {
    let mut group = c.benchmark_group("hash");
    for size in SIZES {
        let bytes = half(size);
        let zeros = vec![0; size];
        group.throughput(Throughput::Bytes(zc_core::u64_from_usize(size)));
        for kind in [FingerprintKind::Blake3, FingerprintKind::Sha1] {
            group.bench_with_input(BenchmarkId::new(format!("{kind:?}"), size), &bytes, |b, bytes| {
                b.iter(|| fingerprint(kind, black_box(bytes)));
            });
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
        let (half, noise) = (half(size), noise(size));
        let mut out = vec![0; size - 64];
        for codec in [Codec::Lz4, Codec::Zlib(6), Codec::Zstd(1)] {
            group.bench_function(BenchmarkId::new(format!("{codec:?}/compress_half"), size), |b| {
                b.iter(|| reducer.compress(codec, black_box(&half), &mut out));
            });
            group.bench_function(BenchmarkId::new(format!("{codec:?}/compress_noise"), size), |b| {
                b.iter(|| reducer.compress(codec, black_box(&noise), &mut out));
            });
            let len = reducer.compress(codec, &half, &mut out).expect("it halves");
            let stored = out[..len].to_vec();
            let mut raw = vec![0; size];
            group.bench_function(BenchmarkId::new(format!("{codec:?}/decompress_half"), size), |b| {
                b.iter(|| reducer.decompress(codec, black_box(&stored), &mut raw).expect("it decodes"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, hashes, codecs);
criterion_main!(benches);
