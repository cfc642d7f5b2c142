//! The NBD codec: a burst of pipelined requests parsed and answered, replies decoded, block status encoded.
#![expect(clippy::expect_used, reason = "benchmarks")]

use std::cell::RefCell;
use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use zc_nbd::client::{ClientConfig, ClientEvent, ClientSession};
use zc_nbd::proto::BASE_ALLOCATION;
use zc_nbd::server::{BlockSizes, ExportFlags, ExportInfo, ServerConfig, ServerEvent, ServerSession};
use zc_nbd::wire::{HeaderStyle, RequestHeader, StatusExtent};

const BURST: u64 = 32;
const READ_BYTES: u32 = 4096;

fn export() -> [ExportInfo; 1] {
    [ExportInfo {
        name: "v".to_owned(),
        description: String::new(),
        size_bytes: 1 << 40,
        flags: ExportFlags::default(),
        blocks: BlockSizes::new(1, 4096, 32 << 20).expect("valid"),
        contexts: vec![BASE_ALLOCATION.to_owned()],
        token: 1,
    }]
}

/// Both sides of a connection, joined in memory, after their handshake.
struct Pair {
    client: ClientSession,
    server: ServerSession,
    exports: [ExportInfo; 1],
}

impl Pair {
    fn new(structured: bool, extended: bool) -> Self {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let contexts = if structured { vec![BASE_ALLOCATION.to_owned()] } else { Vec::new() };
        let config = ClientConfig {
            export: "v".to_owned(),
            structured,
            extended,
            contexts,
            ..ClientConfig::default()
        };
        let server = ServerSession::new(ServerConfig::default(), &mut down);
        let mut pair = Self { client: ClientSession::new(config), server, exports: export() };
        loop {
            let received = std::mem::take(&mut down);
            let event = pair.client.next_event(&mut received.as_slice(), &mut up).expect("a good server");
            if event == Some(ClientEvent::Ready) {
                return pair;
            }
            let received = std::mem::take(&mut up);
            let mut input = received.as_slice();
            while pair.server.next_event(&mut input, pair.exports.as_slice(), &mut down).is_some() {}
        }
    }

    /// A burst of reads on the wire.
    fn reads(&mut self) -> Vec<u8> {
        let mut up = Vec::new();
        for at in 0..BURST {
            self.client.read(at * u64::from(READ_BYTES), READ_BYTES, 0, &mut up).expect("a good read");
        }
        up
    }

    /// Parses requests and answers them; data follows each header if it is wanted.
    fn answer(&mut self, mut input: &[u8], with_data: bool, out: &mut Vec<u8>) {
        while let Some(event) = self.server.next_event(&mut input, self.exports.as_slice(), out) {
            if let ServerEvent::Request(request) = event {
                let length = zc_core::usize_from_u64(request.length());
                self.server.reply_read(request, out);
                if with_data {
                    out.resize(out.len() + length, 0xda);
                }
            }
        }
    }

    /// Takes replies; how many requests they end.
    fn decode(&mut self, mut input: &[u8]) -> u64 {
        let mut done = 0;
        loop {
            self.client.take_payload(&mut input);
            match self.client.next_event(&mut input, &mut Vec::new()).expect("a good server") {
                None => return done,
                Some(ClientEvent::Done { .. }) => done += 1,
                Some(_) => {}
            }
        }
    }
}

fn bursts(c: &mut Criterion) {
    let mut group = c.benchmark_group("nbd");
    group.throughput(Throughput::Elements(BURST));
    for (name, structured, extended) in
        [("simple", false, false), ("structured", true, false), ("extended", true, true)]
    {
        let mut pair = Pair::new(structured, extended);
        let requests = pair.reads();
        let mut out = Vec::with_capacity(1 << 16);
        group.bench_function(format!("32_reads_parsed_and_answered_{name}"), |b| {
            b.iter(|| {
                out.clear();
                pair.answer(&requests, false, &mut out);
                black_box(out.len())
            });
        });
        // Cookies are never used twice, so each burst of replies is made for the client that decodes it.
        let pair = RefCell::new(Pair::new(structured, extended));
        let replies = || {
            let mut pair = pair.borrow_mut();
            let (requests, mut replies) = (pair.reads(), Vec::new());
            pair.answer(&requests, true, &mut replies);
            replies
        };
        group.bench_function(format!("32_replies_decoded_{name}"), |b| {
            b.iter_batched(
                replies,
                |replies| assert_eq!(pair.borrow_mut().decode(&replies), BURST),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn headers(c: &mut Criterion) {
    let mut group = c.benchmark_group("nbd_header");
    let header = RequestHeader { flags: 0, command: 0, cookie: 7, offset: 1 << 20, length: 8192 };
    for (name, style) in [("compact", HeaderStyle::Simple), ("extended", HeaderStyle::Extended)] {
        let mut bytes = Vec::new();
        header.encode(style, &mut bytes);
        group.bench_function(format!("request_{name}_decoded"), |b| {
            b.iter(|| RequestHeader::decode(style, black_box(&bytes)));
        });
    }
    group.finish();
}

fn block_status(c: &mut Criterion) {
    let mut group = c.benchmark_group("nbd_block_status");
    for runs in [1_u64, 1 << 10, 1 << 16] {
        let mut pair = Pair::new(true, true);
        let mut request = Vec::new();
        pair.client.block_status(0, runs * 4096, 0, &mut request).expect("a good request");
        let extents: Vec<StatusExtent> =
            (0..runs).map(|run| StatusExtent { length: 4096, flags: run % 2 * 3 }).collect();
        let mut out = Vec::new();
        group.throughput(Throughput::Elements(runs));
        group.bench_function(format!("{runs}_runs_encoded"), |b| {
            b.iter(|| {
                out.clear();
                let event =
                    pair.server.next_event(&mut request.as_slice(), pair.exports.as_slice(), &mut out);
                let Some(ServerEvent::Request(request)) = event else { panic!("no request: {event:?}") };
                pair.server.reply_block_status(request, |_| extents.clone(), &mut out);
                black_box(out.len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bursts, headers, block_status);
criterion_main!(benches);
