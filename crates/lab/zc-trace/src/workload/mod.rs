//! Synthetic workloads, for cases that no available trace covers: skewed access, a file server's mix, scans, restores
//! of snapshots, a database, a mail server's files, a file server.
//!
//! # Workloads
//! - *zipf*: addresses by Zipf's law of a given exponent, scrambled by a hash so that popular ones are not adjacent
//!   (the form of YCSB, Cooper et al., SoCC 2010).
//! - *mix*: the published properties of the FIU traces in Nitro's evaluation (Li et al., USENIX ATC 2014, section 5:
//!   3.6 to 4.3 writes per read, 5 to 12 % of the volume accessed, each content at least 1.5 times): four writes per
//!   read, in a twelfth of the volume, 8 KiB at a time, with YCSB's skew of 0.99. Not from the paper: the skew, the
//!   length of runs, and the share of writes that do not change the data (none by default).
//! - *sensitivity*: random reads of 8 KiB all over the volume, with a configurable repetition of contents (Nitro's
//!   Figure 7, section 6.2: working sets of 1 to 10 caches, deduplicated 1 to 10 times).
//! - *scan*: sequential reads of the volume, repeatedly, 128 KiB at a time.
//! - *snapshots*: daily copies of a volume, each at an address of its own, read sequentially, 512 KiB at a time; from
//!   one day to the next 2.3 % of the volume change (the median of Nitro's section 5), in runs of 64 KiB.
//! - *tpcc*: the pages of a database under TPC-C; its module distinguishes the specification's parts. The ratio sets
//!   the compressibility: [`ratio_of_saving`] has the values for "Compression and SSD: Where and How?".
//! - *postmark* and *specsfs*: the files of a mail server under PostMark, and of a file server under a load like that
//!   of SPECsfs2008; see their modules.
//!
//! Contents are identified by address and version; sharing and compressibility are independent draws from these.
//! Shared contents come from a pool of a sixteenth of the addresses in use; a single write of a mix is shared as a
//! whole, and so is a changed run between snapshots.
//!
//! Invariants: the same seed yields the same requests; a read returns the last write.

mod files;
mod postmark;
mod program;
mod specsfs;
mod text;
mod tpcc;
mod zipf;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::Map;

use crate::distinct::mix;
use crate::request::{Content, Op, Request};
use program::{Accesses, Program};
pub use text::lines;
pub use zipf::Zipf;

/// Unit of contents.
const BLOCK_BYTES: u32 = 4096;
/// Nanoseconds from one request to the next.
const STEP_NS: u64 = 1_000_000;
/// Blocks that change together from one snapshot to the next.
const CHANGED_BLOCKS: u64 = 16;
/// Addresses per shared content.
const POOL_DIVISOR: u64 = 16;

/// Parameters of a file server's mix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// Writes per read.
    pub writes_per_read: f64,
    /// The volume over the part of it that is accessed.
    pub spread: u64,
    /// Share of writes that do not change the data.
    pub repeated: f64,
    /// Exponent of Zipf's law, above 0.
    pub theta: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self { writes_per_read: 4.0, spread: 12, repeated: 0.0, theta: 0.99 }
    }
}

/// Parameters of PostMark's pool and transactions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Postmark {
    /// Files at first, at least 1.
    pub files: u64,
    /// Bytes of the smallest file, at least 1, and of the largest.
    pub bytes: (u64, u64),
    /// Bytes that are read or written at once, in whole blocks.
    pub access_bytes: u64,
    /// Share of reads among reads and appends, from 0 to 1.
    pub reads: f64,
    /// Share of creations among creations and deletions, from 0 to 1.
    pub creates: f64,
}

impl Default for Postmark {
    fn default() -> Self {
        Self { files: 20_000, bytes: (500, 10_000), access_bytes: 4096, reads: 0.5, creates: 0.5 }
    }
}

/// Kind of a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Addresses by Zipf's law.
    Zipf {
        /// Its exponent, above 0.
        theta: f64,
    },
    /// A file server's mix.
    Mix(Mix),
    /// Random reads of 8 KiB.
    Sensitivity {
        /// Number of copies of a content in the volume, at least 1.
        dedup: u64,
    },
    /// From front to back.
    Scan,
    /// Copies day by day.
    Snapshots {
        /// Share that changes in a day.
        changed: f64,
    },
    /// Pages of a database under TPC-C.
    Tpcc,
    /// A mail server's files.
    Postmark(Postmark),
    /// A file server's files.
    Specsfs,
}

impl Kind {
    /// Blocks that a volume has at least.
    #[must_use]
    pub const fn blocks_min(&self) -> u64 {
        match self {
            Self::Tpcc => tpcc::BLOCKS_MIN,
            Self::Specsfs => specsfs::BLOCKS_MIN,
            Self::Postmark(postmark) => {
                let least = postmark::blocks_min(postmark);
                if least > 1024 { least } else { 1024 }
            }
            Self::Zipf { .. }
            | Self::Mix(_)
            | Self::Sensitivity { .. }
            | Self::Scan
            | Self::Snapshots { .. } => 1024,
        }
    }

    /// Blocks that a volume has at most.
    #[must_use]
    pub const fn blocks_max(&self) -> u64 {
        match self {
            Self::Postmark(_) | Self::Specsfs => crate::limits::FILES_VOLUME_BLOCKS_MAX,
            Self::Zipf { .. }
            | Self::Mix(_)
            | Self::Sensitivity { .. }
            | Self::Scan
            | Self::Snapshots { .. }
            | Self::Tpcc => 1 << 40,
        }
    }
}

/// Mean and standard deviation of the compression ratio with which compression saves this share of all bytes.
///
/// A database under TPC-C saves 0.82 ("HighComp"), 0.70 ("MedComp") or 0.63 ("LowComp") in "Compression and SSD: Where
/// and How?" (section 4.1): there fields are random in part, so that the whole database compresses by that much. Sizes
/// are the reciprocals of ratios, of which the mean is above the reciprocal of the mean: by the square of the relative
/// deviation, in second order, which this makes up for. With a deviation of 0.5 that is good to 0.001 for savings of a
/// half and more; below, more is saved, as no ratio is below 1.
///
/// # Panics
/// If not 0 <= saving < 1.
#[must_use]
pub fn ratio_of_saving(saving: f64, deviation: f64) -> (f64, f64) {
    assert!((0.0..1.0).contains(&saving), "a share is saved, not all");
    let size = 1.0 - saving;
    ((1.0 + (deviation * size).powi(2)) / size, deviation)
}

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// Kind of workload.
    pub kind: Kind,
    /// Blocks of 4 KiB of the volume.
    pub blocks: u64,
    /// Requests.
    pub requests: u64,
    /// Share of requests that read; scans and snapshots only read, the others have their own.
    pub reads: f64,
    /// Share of contents that come from the pool.
    pub shared: f64,
    /// Mean and standard deviation of the compression ratio.
    pub ratio: (f64, f64),
    /// Seed.
    pub seed: u64,
}

/// Requests of a workload.
#[derive(Debug)]
pub struct Requests {
    workload: Workload,
    rng: Pcg64Mcg,
    zipf: Zipf,
    /// Generator of accesses, for kinds that need one, with its pending accesses.
    program: Option<Box<dyn Program>>,
    accesses: Accesses,
    /// Number of writes of each block.
    versions: Map<u64, u64>,
    next: u64,
    /// Remaining blocks of the current request, and its kind.
    pending: std::ops::Range<u64>,
    op: Op,
    /// `true` if the current request does not change the data.
    repeats: bool,
}

impl Workload {
    /// Its requests, one block of 4 KiB each; blocks of one request have the same time.
    ///
    /// # Panics
    /// If the volume has fewer or more blocks than its kind takes.
    #[must_use]
    pub fn generate(&self) -> Requests {
        let sizes = self.kind.blocks_min()..=self.kind.blocks_max();
        assert!(sizes.contains(&self.blocks), "a volume has what its kind takes");
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let theta = match self.kind {
            Kind::Zipf { theta } | Kind::Mix(Mix { theta, .. }) => theta,
            _ => 1.0,
        };
        Requests {
            workload: *self,
            zipf: Zipf::new(self.in_use() / self.request_blocks(), theta),
            program: self.program(&mut rng),
            rng,
            accesses: Accesses::default(),
            versions: Map::default(),
            next: 0,
            pending: 0..0,
            op: Op::Read,
            repeats: false,
        }
    }

    fn program(&self, rng: &mut Pcg64Mcg) -> Option<Box<dyn Program>> {
        match self.kind {
            Kind::Tpcc => Some(Box::new(tpcc::Tpcc::new(self.blocks, self.seed))),
            Kind::Postmark(postmark) => Some(Box::new(postmark::Pool::new(postmark, self.blocks, rng))),
            Kind::Specsfs => Some(Box::new(specsfs::Server::new(self.blocks, rng))),
            Kind::Zipf { .. }
            | Kind::Mix(_)
            | Kind::Sensitivity { .. }
            | Kind::Scan
            | Kind::Snapshots { .. } => None,
        }
    }

    /// One day's copy of snapshots alone.
    ///
    /// # Panics
    /// If the workload is another, or its volume has fewer than 1024 blocks.
    pub fn copy_of(&self, day: u64) -> impl Iterator<Item = Request> + use<> {
        assert!(matches!(self.kind, Kind::Snapshots { .. }), "only snapshots have days");
        let requests = self.blocks / self.request_blocks();
        let (next, whole) = (day * requests, Self { requests: (day + 1) * requests, ..*self });
        Requests { next, ..whole.generate() }
    }

    /// Blocks that can be accessed.
    fn in_use(&self) -> u64 {
        match self.kind {
            Kind::Mix(mix) => self.blocks / mix.spread.max(1),
            _ => self.blocks,
        }
    }

    const fn request_blocks(&self) -> u64 {
        match self.kind {
            Kind::Zipf { .. } | Kind::Tpcc | Kind::Postmark(_) | Kind::Specsfs => 1,
            Kind::Mix(_) | Kind::Sensitivity { .. } => 2,
            Kind::Scan => 32,
            Kind::Snapshots { .. } => 128,
        }
    }

    fn reads(&self) -> f64 {
        match self.kind {
            Kind::Zipf { .. } => self.reads.clamp(0.0, 1.0),
            Kind::Mix(mix) => 1.0 / (1.0 + mix.writes_per_read.max(0.0)),
            Kind::Sensitivity { .. }
            | Kind::Scan
            | Kind::Snapshots { .. }
            | Kind::Tpcc
            | Kind::Postmark(_)
            | Kind::Specsfs => 1.0,
        }
    }

    fn hash(&self, salt: u64, number: u64) -> u64 {
        mix(u128::from(self.seed ^ salt.rotate_left(48)) << 64 | u128::from(number))
    }

    /// The content that a block of this version has.
    fn content(&self, block: u64, version: u64) -> Content {
        // A single write is shared as a whole.
        let run = match self.kind {
            Kind::Mix(_) | Kind::Sensitivity { .. } => self.request_blocks(),
            Kind::Snapshots { .. } => CHANGED_BLOCKS,
            _ => 1,
        };
        let place = match self.kind {
            Kind::Sensitivity { dedup } => block / run % (self.blocks / run / dedup.max(1)).max(1),
            _ => block / run,
        };
        let own = self.hash(1 + version, place);
        let id = if uniform(self.hash(2, own)) < self.shared {
            self.hash(3, own % (self.in_use() / run / POOL_DIVISOR))
        } else {
            own
        };
        let id = if run == 1 { id } else { self.hash(8, id ^ (block % run)) };
        // Box and Muller 1958; the content decides, not the address.
        let (radius, angle) = (1.0 - uniform(self.hash(4, id)), uniform(self.hash(5, id)));
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let ratio = (self.ratio.0 + self.ratio.1 * normal).max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 4096")]
        let size = ((f64::from(BLOCK_BYTES) / ratio) as u32).max(64);
        // Between the two as on root file systems of Debian 12 and 13.
        let zstd = if size >= BLOCK_BYTES { size } else { size * 79 / 100 };
        Content { fingerprint: u128::from(id), lz4_bytes: Some(size), zstd1_bytes: Some(zstd) }
    }

    /// Returns the initial contents of the volume, block by block; for snapshots, the days that are read.
    pub fn image(&self) -> impl Iterator<Item = Content> + '_ {
        (0..self.image_blocks()).map(|block| self.at_first(block))
    }

    /// Blocks of the image.
    #[must_use]
    pub fn image_blocks(&self) -> u64 {
        match self.kind {
            Kind::Snapshots { .. } => self.requests.saturating_mul(self.request_blocks()),
            _ => self.blocks,
        }
    }

    fn at_first(&self, block: u64) -> Content {
        let Kind::Snapshots { changed } = self.kind else { return self.content(block, 0) };
        let whole = self.blocks / 128 * 128;
        let (day, block) = (block / whole, block % whole);
        self.content(block, self.version_on(block, day, changed))
    }

    /// Returns the number of changes of a block by that day.
    fn version_on(&self, block: u64, day: u64, changed: f64) -> u64 {
        let run = block / CHANGED_BLOCKS;
        let changes = (1..=day).filter(|day| uniform(self.hash(6 + (day << 8), run)) < changed);
        zc_core::u64_from_usize(changes.count())
    }
}

/// From 0 to 1.
fn uniform(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

impl Requests {
    /// Begins the next request.
    fn begin(&mut self) {
        let Some(program) = &mut self.program else { return self.draw() };
        let (op, blocks) = loop {
            if let Some(access) = self.accesses.pop() {
                break access;
            }
            program.transaction(&mut self.rng, &mut self.accesses);
        };
        (self.op, self.pending) = (op, blocks);
        self.next += 1;
    }

    /// Begins the next request of a kind that has no program.
    fn draw(&mut self) {
        let workload = self.workload;
        let len = workload.request_blocks();
        let pieces = (workload.in_use() / len).max(1);
        let piece = match workload.kind {
            Kind::Zipf { .. } | Kind::Mix(_) => workload.hash(7, self.zipf.draw(&mut self.rng)) % pieces,
            Kind::Sensitivity { .. } => self.rng.random_range(0..pieces),
            Kind::Scan => self.next % pieces,
            Kind::Snapshots { .. } | Kind::Tpcc | Kind::Postmark(_) | Kind::Specsfs => self.next,
        };
        // A mix lies all over the volume, in runs of 512 KiB.
        let first = match workload.kind {
            Kind::Mix(mix) => {
                let (run, within) = (piece * len / 128, piece * len % 128);
                run * 128 * mix.spread.max(1) + within
            }
            _ => piece * len,
        };
        self.op = if self.rng.random_bool(workload.reads()) { Op::Read } else { Op::Write };
        self.repeats = match workload.kind {
            Kind::Mix(mix) if mix.repeated > 0.0 => self.rng.random_bool(mix.repeated.min(1.0)),
            _ => false,
        };
        self.pending = first..first + len;
        self.next += 1;
    }

    fn content(&mut self, block: u64) -> Content {
        if let Kind::Snapshots { .. } = self.workload.kind {
            return self.workload.at_first(block);
        }
        let version = match self.op {
            Op::Write if !self.repeats => {
                let version = self.versions.entry(block).or_default();
                *version += 1;
                *version
            }
            _ => self.versions.get(&block).copied().unwrap_or(0),
        };
        self.workload.content(block, version)
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.pending.is_empty() {
            if self.next >= self.workload.requests {
                return None;
            }
            self.begin();
        }
        let block = self.pending.next()?;
        let content = Some(self.content(block));
        let time_ns = (self.next - 1) * STEP_NS;
        let offset_bytes = block * u64::from(BLOCK_BYTES);
        Some(Request::new(time_ns, self.op, offset_bytes, BLOCK_BYTES).of(content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Info, Options, Reader};

    fn workload(kind: Kind, requests: u64) -> Workload {
        Workload { kind, blocks: 1 << 18, requests, reads: 0.7, shared: 0.4, ratio: (2.0, 0.5), seed: 1 }
    }

    fn info(workload: &Workload) -> Info {
        let mut info = Info::default();
        workload.generate().for_each(|request| info.add(&request));
        info
    }

    #[test]
    fn a_mix_is_like_what_is_known_of_fiu() {
        let mix = Workload { blocks: 1 << 17, ..workload(Kind::Mix(Mix::default()), 60_000) };
        let info = info(&mix);
        let ratio = info.writes.requests as f64 / info.reads.requests as f64;
        assert!((3.6..4.3).contains(&ratio), "{ratio}");
        let touched = info.footprint_bytes() as f64 / (mix.blocks * 4096) as f64;
        assert!((0.05..0.12).contains(&touched), "{touched}");
        let blocks = (info.reads.requests + info.writes.requests) as f64;
        let dedup = blocks / info.unique_contents().unwrap() as f64;
        assert!(dedup >= 1.5, "{dedup}");
        let lz4 = info.compression_ratios().0.unwrap();
        assert!((1.7..2.1).contains(&lz4), "{lz4}");
    }

    #[test]
    fn reads_see_what_was_written_last_or_the_image() {
        let postmark = Kind::Postmark(Postmark::default());
        let plain = [Kind::Zipf { theta: 1.2 }, Kind::Mix(Mix::default()), Kind::Scan];
        let reads = [Kind::Sensitivity { dedup: 4 }, Kind::Snapshots { changed: 0.1 }];
        for kind in plain.into_iter().chain(reads).chain([Kind::Tpcc, postmark, Kind::Specsfs]) {
            let requests = if matches!(kind, Kind::Snapshots { .. }) { 3 << 11 } else { 20_000 };
            let made = workload(kind, requests);
            let mut disk: Vec<Content> = made.image().collect();
            for request in made.generate() {
                let held = &mut disk[usize::try_from(request.offset_bytes / 4096).unwrap()];
                let content = request.content.unwrap();
                assert!(request.op == Op::Write || *held == content);
                *held = content;
            }
        }
    }

    #[test]
    fn sensitivity_repeats_contents_as_often_as_asked() {
        for dedup in [1, 2, 10] {
            let made = Workload { shared: 0.0, ..workload(Kind::Sensitivity { dedup }, 1000) };
            let distinct: std::collections::BTreeSet<u128> =
                made.image().map(|content| content.fingerprint).collect();
            let times = made.blocks as f64 / distinct.len() as f64;
            assert!((times / dedup as f64 - 1.0).abs() < 0.001, "{times}");
            let mut requests = made.generate();
            let (first, second) = (requests.next().unwrap(), requests.next().unwrap());
            assert!(first.op == Op::Read && first.offset_bytes.is_multiple_of(8192));
            assert_eq!(second.offset_bytes, first.end_bytes());
        }
    }

    #[test]
    fn the_seed_decides() {
        let postmark = Kind::Postmark(Postmark::default());
        for kind in [Kind::Mix(Mix::default()), Kind::Tpcc, postmark, Kind::Specsfs] {
            let all = |seed: u64| Workload { seed, ..workload(kind, 3000) }.generate().collect::<Vec<_>>();
            assert_eq!(all(1), all(1));
            assert_ne!(all(1), all(2));
        }
    }

    #[test]
    fn compression_saves_what_is_asked_for() {
        for saving in [0.82, 0.70, 0.63, 0.5] {
            let ratio = ratio_of_saving(saving, 0.5);
            let pages = Workload { ratio, shared: 0.0, ..workload(Kind::Tpcc, 50_000) };
            let sizes: Vec<u32> = pages.generate().filter_map(|page| page.content?.lz4_bytes).collect();
            let mean = sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / sizes.len() as f64;
            let saved = 1.0 - mean / f64::from(BLOCK_BYTES);
            assert!((saved - saving).abs() < 0.005, "{saving} {saved}");
        }
    }

    #[test]
    fn some_writes_bring_what_is_there() {
        let repeats = |repeated: f64| {
            let (mut disk, mut writes, mut same) = (Map::default(), 0_u32, 0_u32);
            let mix = Mix { repeated, ..Mix::default() };
            for request in (Workload { shared: 0.0, ..workload(Kind::Mix(mix), 50_000) }).generate() {
                let before = disk.insert(request.offset_bytes, request.content);
                if request.op == Op::Write && before.is_some() {
                    writes += 1;
                    same += u32::from(before == Some(request.content));
                }
            }
            f64::from(same) / f64::from(writes)
        };
        assert_eq!(repeats(0.0), 0.0);
        let half = repeats(0.5);
        assert!((0.48..0.52).contains(&half), "{half}");
    }

    #[test]
    fn skew_is_as_asked_for() {
        let top = |theta: f64| {
            let mut counts: Map<u64, u64> = Map::default();
            let all = workload(Kind::Zipf { theta }, 100_000).generate();
            all.for_each(|request| *counts.entry(request.offset_bytes).or_default() += 1);
            counts.into_values().max().unwrap()
        };
        // The most popular of 2^18: 1 / (sum of 1 / k^theta) of all.
        let (mild, strong) = (top(0.99), top(1.2));
        assert!((6500..8300).contains(&mild), "{mild}");
        assert!((18_000..22_500).contains(&strong), "{strong}");
    }

    #[test]
    fn snapshots_change_little_from_day_to_day() {
        let kind = Kind::Snapshots { changed: 0.023 };
        let small = Workload { blocks: 1 << 16, shared: 0.0, ..workload(kind, 3 << 9) };
        let all: Vec<Content> = small.generate().filter_map(|request| request.content).collect();
        let days: Vec<&[Content]> = all.chunks(1 << 16).collect();
        assert_eq!(days.len(), 3);
        let differing = |a: usize, b: usize| days[a].iter().zip(days[b]).filter(|(a, b)| a != b).count();
        let (one, two) = (differing(0, 1) as f64 / 65536.0, differing(0, 2) as f64 / 65536.0);
        assert!((0.015..0.032).contains(&one) && (0.03..0.06).contains(&two), "{one} {two}");
    }

    #[test]
    fn a_copy_is_that_of_its_day() {
        let small = Workload { blocks: 1 << 12, ..workload(Kind::Snapshots { changed: 0.1 }, 3 << 5) };
        let all: Vec<Request> = small.generate().collect();
        let days: Vec<Request> = (0..3).flat_map(|day| small.copy_of(day)).collect();
        assert!(all.len() == 3 << 12 && days == all);
    }

    #[test]
    fn a_trace_that_is_written_reads_back() {
        let mix = workload(Kind::Mix(Mix::default()), 500);
        let mut text = Vec::new();
        lines(mix.generate(), &mut text).unwrap();
        let reader = Reader::from_vec(text, Options { strict: true, ..Options::default() }).unwrap();
        assert_eq!(reader.format().name(), "fingerprints");
        let read: Vec<Request> = reader.map(Result::unwrap).collect();
        assert_eq!(read, mix.generate().collect::<Vec<_>>());
    }
}
