//! A synthetic boot from a seed, for users without a trace.
//!
//! Shape: Nitro's template (Li et al., USENIX ATC 2014, section 5): 18 MB, 99 % reads, 14 % of the requests random,
//! deduplication 1.2 times; compression ratios are drawn from the normal distribution of mean 2 and variance 0.25 of
//! the same section, at least 1. Not from the paper: files of 4 KiB to 1 MiB, read sequentially in pieces of up to 128
//! KiB as by read-ahead, in an address space four times as large as the read data.
//!
//! Invariants: the content, not the address, determines the compressed size.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::request::{Content, Op, Request};

const BLOCK_BYTES: u32 = 4096;
/// Nanoseconds from one request to the next.
const STEP_NS: u64 = 1_000_000;
/// Blocks of the largest piece that is read at once.
const PIECE_BLOCKS_MAX: u64 = 32;

/// Parameters of a boot.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    /// Bytes read and written.
    pub bytes: u64,
    /// Share of requests that read.
    pub reads: f64,
    /// Share of requests that do not follow the one before.
    pub random: f64,
    /// Blocks over distinct contents.
    pub dedup_ratio: f64,
    /// Mean and standard deviation of the compression ratio.
    pub ratio: (f64, f64),
    /// Seed.
    pub seed: u64,
}

impl Default for Boot {
    fn default() -> Self {
        Self { bytes: 18 << 20, reads: 0.99, random: 0.14, dedup_ratio: 1.2, ratio: (2.0, 0.5), seed: 1 }
    }
}

struct Maker {
    rng: Pcg64Mcg,
    boot: Boot,
    /// Contents so far.
    contents: Vec<Content>,
}

impl Maker {
    /// A draw from the normal distribution (Box and Muller 1958).
    fn normal(&mut self, (mean, deviation): (f64, f64)) -> f64 {
        let (first, second): (f64, f64) = (1.0 - self.rng.random::<f64>(), self.rng.random());
        mean + deviation * (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos()
    }

    fn content(&mut self) -> Content {
        let repeated = 1.0 - 1.0 / self.boot.dedup_ratio.max(1.0);
        if !self.contents.is_empty() && self.rng.random_bool(repeated) {
            return self.contents[self.rng.random_range(0..self.contents.len())];
        }
        let ratio = self.normal(self.boot.ratio).max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive and at most 4096"
        )]
        let size = (f64::from(BLOCK_BYTES) / ratio) as u32;
        let fingerprint = u128::from(self.rng.random::<u64>());
        let content = Content { fingerprint, lz4_bytes: Some(size), zstd1_bytes: None };
        self.contents.push(content);
        content
    }
}

/// The requests of a boot, one block of 4 KiB a line; lines of one request have the same time.
#[must_use]
pub fn boot(boot: Boot) -> Vec<Request> {
    let blocks = boot.bytes / u64::from(BLOCK_BYTES);
    let mut maker = Maker { rng: Pcg64Mcg::seed_from_u64(boot.seed), boot, contents: Vec::new() };
    let mut disk: std::collections::BTreeMap<u64, Content> = std::collections::BTreeMap::new();
    let mut lines = Vec::new();
    let (mut at, mut time_ns) = (0, 0);
    while zc_core::u64_from_usize(lines.len()) < blocks {
        let random = maker.rng.random_bool(boot.random.clamp(0.0, 1.0));
        if random || disk.contains_key(&at) {
            at = maker.rng.random_range(0..(4 * blocks).max(1));
        }
        let most = if random { 4 } else { PIECE_BLOCKS_MAX };
        let piece = maker.rng.random_range(1..=most);
        let op = if maker.rng.random_bool(boot.reads.clamp(0.0, 1.0)) { Op::Read } else { Op::Write };
        for block in at..at + piece {
            let content = match (op, disk.get(&block)) {
                (Op::Read, Some(content)) => *content,
                _ => maker.content(),
            };
            disk.insert(block, content);
            let offset_bytes = block * u64::from(BLOCK_BYTES);
            let content = Some(content);
            lines.push(Request::new(time_ns, op, offset_bytes, BLOCK_BYTES).of(content));
        }
        at += piece;
        time_ns += STEP_NS;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Info;
    use crate::storm::Template;

    #[test]
    fn a_boot_is_as_asked_for() {
        let lines = boot(Boot::default());
        let mut info = Info::default();
        lines.iter().for_each(|line| info.add(line));
        let bytes = info.reads.bytes + info.writes.bytes;
        assert!((18 << 20..(18 << 20) + 131_072).contains(&bytes), "{bytes}");
        let dedup = info.read_dedup_ratio().unwrap();
        assert!((1.15..1.30).contains(&dedup), "{dedup}");
        // The mean of sizes is a little above the size of the mean.
        let template = Template::new(lines.iter().copied().map(Ok)).unwrap();
        let (reads, writes) = (template.reads().0, template.writes());
        let share = writes as f64 / (reads + writes) as f64;
        assert!((0.002..0.03).contains(&share), "{share}");
        let sizes: Vec<u32> = lines.iter().filter_map(|line| line.content?.lz4_bytes).collect();
        let mean = sizes.iter().map(|size| f64::from(*size)).sum::<f64>() / sizes.len() as f64;
        assert!((2048.0..2350.0).contains(&mean), "{mean}");
    }

    #[test]
    fn the_seed_tells_boots_apart() {
        let one = boot(Boot { bytes: 1 << 20, ..Boot::default() });
        assert_eq!(one, boot(Boot { bytes: 1 << 20, ..Boot::default() }));
        assert_ne!(one, boot(Boot { bytes: 1 << 20, seed: 2, ..Boot::default() }));
    }

    #[test]
    fn blocks_keep_their_contents_until_they_are_written() {
        let mut disk = std::collections::BTreeMap::new();
        for line in boot(Boot { reads: 0.5, random: 0.9, bytes: 4 << 20, ..Boot::default() }) {
            let before = disk.insert(line.offset_bytes, line.content);
            if line.op == Op::Read {
                assert!(before.is_none_or(|before| before == line.content));
            }
        }
    }
}
