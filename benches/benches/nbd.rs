//! Parsing a burst of pipelined requests and encoding their replies.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use zc_nbd::server::{BlockSizes, ExportFlags, ExportInfo, ServerConfig, ServerEvent, ServerSession};

const BURST: u64 = 32;

fn export() -> [ExportInfo; 1] {
    [ExportInfo {
        name: "v".to_owned(),
        description: String::new(),
        size_bytes: 1 << 30,
        flags: ExportFlags::default(),
        blocks: BlockSizes::new(1, 4096, 32 << 20).expect("valid"),
        contexts: Vec::new(),
        token: 1,
    }]
}

/// Greeting answered, export chosen with GO.
fn attached(export: &[ExportInfo]) -> ServerSession {
    let mut out = Vec::new();
    let mut session = ServerSession::new(ServerConfig::default(), &mut out);
    let mut handshake = 3_u32.to_be_bytes().to_vec();
    handshake.extend_from_slice(b"IHAVEOPT");
    handshake.extend_from_slice(&7_u32.to_be_bytes());
    handshake.extend_from_slice(&7_u32.to_be_bytes());
    handshake.extend_from_slice(&1_u32.to_be_bytes());
    handshake.extend_from_slice(b"v\0\0");
    let mut input = handshake.as_slice();
    let event = session.next_event(&mut input, export, &mut out);
    assert!(matches!(event, Some(ServerEvent::Attached { token: 1 })), "{event:?}");
    session
}

fn reads() -> Vec<u8> {
    let mut bytes = Vec::new();
    for cookie in 0..BURST {
        bytes.extend_from_slice(&0x2560_9513_u32.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0]);
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&(cookie * 4096).to_be_bytes());
        bytes.extend_from_slice(&4096_u32.to_be_bytes());
    }
    bytes
}

fn burst(c: &mut Criterion) {
    let export = export();
    let mut session = attached(&export);
    let requests = reads();
    let mut out = Vec::with_capacity(1 << 16);
    let mut group = c.benchmark_group("nbd");
    group.throughput(Throughput::Elements(BURST));
    group.bench_function("32_reads_parsed_and_answered", |b| {
        b.iter(|| {
            out.clear();
            let mut input = requests.as_slice();
            while let Some(event) = session.next_event(&mut input, export.as_slice(), &mut out) {
                if let ServerEvent::Request(request) = event {
                    session.reply_read(request, &mut out);
                }
            }
            black_box(out.len())
        });
    });
    group.finish();
}

criterion_group!(benches, burst);
criterion_main!(benches);
