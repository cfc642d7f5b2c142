//! Building and reading WEU headers, sealing and verifying extents.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use zc_core::{Codec, ExtentKey, ExtentNo, Fingerprint, Generation, VolumeId, WeuSeq, WeuSlot};
use zc_format::{ExpectedExtent, ExtentHeader, Salt, WeuEntry, WeuHeader};

const WEU: u32 = 2 << 20;

fn key(number: u64) -> ExtentKey {
    ExtentKey { volume: VolumeId(1), extent: ExtentNo(number) }
}

fn header(entries: u32) -> WeuHeader {
    let entry = |index: u32| WeuEntry {
        key: key(index.into()),
        offset_bytes: index * 4160,
        stored_bytes: 4096,
        codec: Codec::Lz4,
        fingerprint: Fingerprint([u8::try_from(index % 251).expect("small"); 32]),
        dirty: None,
    };
    WeuHeader {
        slot: WeuSlot(1),
        generation: Generation(2),
        weu_seq: WeuSeq(3),
        session: 4,
        entries: (0..entries).map(entry).collect(),
    }
}

fn weu_header(c: &mut Criterion) {
    let header = header(480);
    let mut tail = vec![0; zc_core::usize_from_u32(WeuHeader::encoded_bytes(480))];
    let mut group = c.benchmark_group("weu_header_480_extents");
    group.bench_function("encode", |b| b.iter(|| header.encode_into(black_box(&mut tail), Salt::NONE)));
    group.bench_function("decode", |b| {
        b.iter(|| WeuHeader::decode(black_box(&tail), WeuSlot(1), WEU, 8192, Salt::NONE).expect("valid"));
    });
    group.finish();
}

fn extent(c: &mut Criterion) {
    let payload = vec![7; 4096];
    let header = ExtentHeader {
        slot: WeuSlot(1),
        generation: Generation(2),
        weu_seq: WeuSeq(3),
        stored_bytes: 4096,
        raw_bytes: 8192,
        first_sector: 0,
        key: key(9),
        codec: Codec::Lz4,
        fingerprint: Fingerprint([1; 32]),
    };
    let expected = ExpectedExtent {
        salt: Salt::NONE,
        slot: WeuSlot(1),
        generation: Generation(2),
        weu_seq: WeuSeq(3),
        offset_bytes: 640,
        raw_bytes: 8192,
        first_sector: 0,
        key: Some(key(9)),
        print: None,
    };
    let mut out = vec![0; 4160];
    let mut group = c.benchmark_group("extent_4096_stored");
    group.throughput(Throughput::Bytes(4096));
    group.bench_function("seal", |b| b.iter(|| header.seal(640, &payload, black_box(&mut out), Salt::NONE)));
    group.bench_function("verify", |b| {
        b.iter(|| ExtentHeader::verify(black_box(&out), &expected).expect("valid"));
    });
    group.finish();
}

criterion_group!(benches, weu_header, extent);
criterion_main!(benches);
