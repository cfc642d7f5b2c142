//! Workloads of FlaZ's evaluation, as block traces of the same proportions, smaller.
//!
//! From the paper (section 3): PostMark with 150 mailboxes of 10 to 100 MB, 600 transactions, 35 % reads, accesses of
//! 64 KiB; TPC-H with 4 GB of data and 2.5 GB of indices, queries Q3, Q11 and Q14 in sequence, 40 % saved by lzo;
//! SPECsfs with small random I/O over a tenth of a file set. Sizes are divided by 64 at small scale and by 8 at full.
//!
//! Not from the paper: files are allocated first fit, without gaps; an append is a quarter of a file; the plans of
//! queries and the memory in front of them (documented in `zc_trace::tpch`), all queries twice, each time with
//! parameters of their own; SPECsfs is the generator of `zc_trace::workload`, whose module documents the benchmark's
//! share.
//!
//! Sizes after LZ4: TPC-H's are those of the rows of its generator. PostMark's are drawn to match the savings of lzo
//! there; those after zlib are in the proportion of the paper's Tables 2 and 3.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::Map;
use zc_replay::{Ratios, ReplayError, Trace};
use zc_trace::tpch::{Database, Run};
use zc_trace::workload::{Kind, Workload};
use zc_trace::{Content, Op, Request};

use crate::context::{Context, Scale};
use crate::error::FigureError;

const MB: u64 = 1_000_000;
const BLOCK: u64 = 4096;
/// PostMark's access.
const ACCESS_BLOCKS: u64 = 16;

/// A workload with its parameters for a compressed cache.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) name: &'static str,
    pub(crate) trace: Trace,
    /// Bytes from the first block to the last; of a database, all.
    pub(crate) span_bytes: u64,
    /// Lines over blocks: a little less than it compresses under lzo.
    pub(crate) overbooking: f64,
}

/// Ratio of a block's size under LZ4, and that of zlib to it.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    lz4: f64,
    zlib: f64,
}

/// Writes the lines of a trace.
struct Recorder {
    rng: Pcg64Mcg,
    /// `true` if contents compress at all.
    compresses: bool,
    lines: Vec<Request>,
    versions: Map<u64, u64>,
    sizes: Sizes,
    now_ns: u64,
}

impl Recorder {
    fn new(sizes: Sizes, compresses: bool) -> Self {
        let rng = Pcg64Mcg::seed_from_u64(11);
        Self { rng, compresses, lines: Vec::new(), versions: Map::default(), sizes, now_ns: 0 }
    }

    fn content(&self, block: u64) -> Content {
        let version = self.versions.get(&block).copied().unwrap_or(0);
        let print = (block + 1) << 20 | version;
        let spread = (print.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24);
        // Evenly within a third of the mean.
        let share = (self.sizes.lz4 * (2.0 / 3.0 + spread * 2.0 / 3.0)).min(1.0);
        let share = if self.compresses { share } else { 1.0 };
        let bytes = |share: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a block")]
            let bytes = (share * BLOCK as f64) as u32;
            bytes
        };
        let zlib = if self.compresses { share * self.sizes.zlib / self.sizes.lz4 } else { share };
        let zlib = bytes(zlib);
        Content { fingerprint: u128::from(print), lz4_bytes: Some(bytes(share)), zstd1_bytes: Some(zlib) }
    }

    fn request(&mut self, op: Op, first: u64, blocks: u64) {
        self.now_ns += 1_000_000;
        for block in first..first + blocks {
            if op == Op::Write {
                *self.versions.entry(block).or_default() += 1;
            }
            let content = Some(self.content(block));
            let (offset_bytes, time_ns) = (block * BLOCK, self.now_ns);
            self.lines.push(Request::new(time_ns, op, offset_bytes, 4096).of(content));
        }
    }

    fn range(&mut self, op: Op, first: u64, blocks: u64, step: u64) {
        let mut at = first;
        while at < first + blocks {
            let piece = step.min(first + blocks - at);
            self.request(op, at, piece);
            at += piece;
        }
    }

    fn load(self, name: &'static str) -> Result<Loaded, FigureError> {
        let overbooking = 0.92 / self.sizes.lz4;
        let trace = Trace::load(self.lines.into_iter().map(Ok), Ratios::default())?;
        Ok(Loaded { name, span_bytes: trace.spans().iter().sum(), trace, overbooking })
    }
}

fn divisor(context: &Context) -> u64 {
    match context.scale {
        Scale::Small => 64,
        Scale::Full => 8,
    }
}

/// Allocation of files: first fit.
#[derive(Default)]
struct Disk {
    free: Vec<(u64, u64)>,
    end: u64,
}

impl Disk {
    fn take(&mut self, blocks: u64) -> u64 {
        if let Some(hole) = self.free.iter_mut().find(|(_, len)| *len >= blocks) {
            let at = hole.0;
            *hole = (hole.0 + blocks, hole.1 - blocks);
            return at;
        }
        self.end += blocks;
        self.end - blocks
    }

    fn give(&mut self, at: u64, blocks: u64) {
        self.free.push((at, blocks));
        self.free.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (at, len) in self.free.drain(..).filter(|(_, len)| *len > 0) {
            match merged.last_mut() {
                Some(last) if last.0 + last.1 == at => last.1 += len,
                _ => merged.push((at, len)),
            }
        }
        self.free = merged;
    }
}

/// PostMark.
pub(crate) fn postmark(context: &Context) -> Result<Loaded, FigureError> {
    // A third saved by lzo, a half by zlib (Table 2; mailbox 2 of Table 3).
    let mut recorder = Recorder::new(Sizes { lz4: 0.66, zlib: 0.46 }, !context.are_incompressible());
    let mut disk = Disk::default();
    let divisor = divisor(context);
    let size = |recorder: &mut Recorder| recorder.rng.random_range(10 * MB..100 * MB) / divisor / BLOCK;
    let mut files = Vec::new();
    let create = |recorder: &mut Recorder, disk: &mut Disk| {
        let blocks = size(recorder);
        let at = disk.take(blocks);
        recorder.range(Op::Write, at, blocks, ACCESS_BLOCKS);
        vec![(at, blocks)]
    };
    for _ in 0..150 {
        files.push(create(&mut recorder, &mut disk));
    }
    for _ in 0..600 {
        if recorder.rng.random_bool(0.5) || files.len() < 2 {
            files.push(create(&mut recorder, &mut disk));
        } else {
            let gone = recorder.rng.random_range(0..files.len());
            files.swap_remove(gone).into_iter().for_each(|(at, blocks)| disk.give(at, blocks));
        }
        let which = recorder.rng.random_range(0..files.len());
        if recorder.rng.random_bool(0.35) {
            for (at, blocks) in files[which].clone() {
                recorder.range(Op::Read, at, blocks, ACCESS_BLOCKS);
            }
        } else {
            let more = (size(&mut recorder) / 4).max(1);
            let at = disk.take(more);
            recorder.range(Op::Write, at, more, ACCESS_BLOCKS);
            files[which].push((at, more));
        }
    }
    recorder.load("PostMark")
}

/// TPC-H.
pub(crate) fn tpch(context: &Context) -> Result<Loaded, FigureError> {
    let database = Database::new(6500 * MB / divisor(context)).map_err(ReplayError::from)?;
    let run = Run { passes: 2, ..Run::default() };
    let whole = |content: Content| Content { lz4_bytes: Some(4096), zstd1_bytes: Some(4096), ..content };
    let requests = database.requests(&run).map(|request| match request.content {
        Some(content) if context.are_incompressible() => Ok(request.of(Some(whole(content)))),
        _ => Ok(request),
    });
    let trace = Trace::load(requests, Ratios::default())?;
    let sizes = (0..database.blocks()).filter_map(|block| database.content(block)?.lz4_bytes);
    let lz4 = sizes.map(u64::from).sum::<u64>() as f64 / database.bytes() as f64;
    Ok(Loaded { name: "TPC-H", span_bytes: database.bytes(), trace, overbooking: 0.92 / lz4 })
}

/// SPECsfs.
pub(crate) fn specsfs(context: &Context) -> Result<Loaded, FigureError> {
    let workload = Workload {
        kind: Kind::Specsfs,
        blocks: context.scale.pick(1 << 19, 1 << 21),
        requests: context.scale.pick(150_000, 1_200_000),
        reads: 1.0,
        shared: 0.0,
        ratio: context.ratio((1.7, 0.3)),
        seed: 5,
    };
    let trace = Trace::load(workload.generate().map(Ok), Ratios::default())?;
    Ok(Loaded { name: "SPECsfs", span_bytes: trace.spans().iter().sum(), trace, overbooking: 1.5 })
}
