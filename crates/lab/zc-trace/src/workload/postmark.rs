//! Blocks that a mail server's files allocate and release under PostMark.
//!
//! From Katcher, "PostMark: A New File System Benchmark" (Network Appliance, TR-3022, 1997): a pool of files of 500
//! bytes to 9.77 KiB (10,000 bytes), with uniform sizes; transactions, each a pair: create or delete a file, and read
//! a file whole or append to one, equally likely by default; an append is shorter than the largest size and leaves no
//! file larger than that. 20,000 files are those of the report's larger runs.
//!
//! Not from it: the pool exists when the trace begins, and remains when it ends; data reaches the volume at once,
//! metadata every 800 pairs, with which about 30 % of writes are metadata, as reported by Lee et al. (BlueZIP, IEEE
//! Transactions on Consumer Electronics, 2011) for PostMark. An append reads the block that it continues. Other sizes
//! are in use, too: FlaZ (Makatos et al., section 3.2) has 150 files of 10 to 100 MB, accesses of 64 KiB and 35 %
//! reads.
//!
//! Invariants: an empty pool gets a file; if there is no space for another, one is deleted.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use super::files::{File, Space, blocks_of, table_blocks};
use super::program::{Accesses, Program};
use super::{BLOCK_BYTES, Postmark};
use crate::request::Op;

/// Pairs of transactions after which metadata are written.
const COMMIT_PAIRS: u64 = 800;
/// Files that there can be, over those of the pool at first.
const GROWTH: u64 = 2;

/// Blocks that a volume has at least: the pool and one file more fit, if all are as large as can be.
pub(super) const fn blocks_min(postmark: &Postmark) -> u64 {
    let file = blocks_of(postmark.bytes.1);
    table_blocks(postmark.files.saturating_mul(GROWTH))
        .saturating_add(postmark.files.saturating_add(1).saturating_mul(file))
}

/// A pool of files.
#[derive(Debug)]
pub(super) struct Pool {
    postmark: Postmark,
    space: Space,
    files: Vec<File>,
    pairs: u64,
}

impl Pool {
    /// Creates the pool in a volume that has [`blocks_min`] blocks.
    pub(super) fn new(postmark: Postmark, blocks: u64, rng: &mut Pcg64Mcg) -> Self {
        assert!(postmark.bytes.0 > 0 && postmark.bytes.0 <= postmark.bytes.1, "files have sizes");
        assert!(postmark.files > 0, "a pool has files");
        let space = Space::new(blocks, postmark.files * GROWTH);
        let mut pool = Self { postmark, space, files: Vec::new(), pairs: 0 };
        for _ in 0..postmark.files {
            pool.create(rng, None);
        }
        pool
    }

    const fn most(&self) -> u64 {
        blocks_of(self.postmark.access_bytes)
    }

    /// Creates a file; returns `false` if there is no space.
    fn create(&mut self, rng: &mut Pcg64Mcg, accesses: Option<&mut Accesses>) -> bool {
        let bytes = rng.random_range(self.postmark.bytes.0..=self.postmark.bytes.1);
        let Some(mut file) = self.space.create() else { return false };
        if !self.space.grow(&mut file, bytes) {
            self.space.remove(file);
            return false;
        }
        if let Some(accesses) = accesses {
            file.access(Op::Write, 0..bytes, self.most(), accesses);
            self.space.touch(&file);
        }
        self.files.push(file);
        true
    }

    fn delete(&mut self, rng: &mut Pcg64Mcg) {
        let file = self.files.swap_remove(rng.random_range(0..self.files.len()));
        self.space.touch(&file);
        self.space.remove(file);
    }

    fn append(&mut self, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        let (most, largest) = (self.most(), self.postmark.bytes.1);
        let at = rng.random_range(0..self.files.len());
        let file = &mut self.files[at];
        let before = file.bytes;
        let after = largest.min(before + rng.random_range(1..=largest));
        if after == before || !self.space.grow(file, after) {
            return;
        }
        if !before.is_multiple_of(u64::from(BLOCK_BYTES)) {
            file.access(Op::Read, before - 1..before, most, accesses);
        }
        file.access(Op::Write, before..after, most, accesses);
        self.space.touch(file);
    }
}

impl Program for Pool {
    fn transaction(&mut self, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        let creates = self.files.len() < 2 || rng.random_bool(self.postmark.creates);
        if !(creates && self.create(rng, Some(accesses))) {
            self.delete(rng);
        }
        if rng.random_bool(self.postmark.reads) {
            let file = &self.files[rng.random_range(0..self.files.len())];
            file.access(Op::Read, 0..file.bytes, self.most(), accesses);
        } else {
            self.append(rng, accesses);
        }
        self.pairs += 1;
        if self.pairs.is_multiple_of(COMMIT_PAIRS) {
            self.space.commit(accesses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    /// Blocks of data read, of data written, of metadata written.
    fn run(pool: &mut Pool, pairs: u64) -> (u64, u64, u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        let (mut accesses, mut counts) = (Accesses::default(), (0, 0, 0));
        for _ in 0..pairs {
            pool.transaction(&mut rng, &mut accesses);
            while let Some((op, blocks)) = accesses.pop() {
                let count = blocks.end - blocks.start;
                match op {
                    Op::Read => counts.0 += count,
                    _ if blocks.start < pool.space.table() => counts.2 += count,
                    _ => counts.1 += count,
                }
            }
        }
        counts
    }

    fn pool(postmark: Postmark, blocks: u64) -> Pool {
        Pool::new(postmark, blocks, &mut Pcg64Mcg::seed_from_u64(1))
    }

    #[test]
    fn the_pool_is_that_of_the_report() {
        let pool = pool(Postmark::default(), 1 << 18);
        let sizes: Vec<u64> = pool.files.iter().map(|file| file.bytes).collect();
        assert_eq!(sizes.len(), 20_000);
        assert!(sizes.iter().all(|bytes| (500..=10_000).contains(bytes)));
        let mean = sizes.iter().sum::<u64>() / 20_000;
        assert!((5200..5300).contains(&mean), "{mean}");
    }

    #[test]
    fn transactions_come_in_the_proportions_asked_for() {
        let mut pool = pool(Postmark::default(), 1 << 18);
        let (read, data, metadata) = run(&mut pool, 60_000);
        // As many files come as go.
        assert!((19_000..21_000).contains(&pool.files.len()), "{}", pool.files.len());
        let share = metadata as f64 / (data + metadata) as f64;
        assert!((0.28..0.32).contains(&share), "{share}");
        let ratio = read as f64 / data as f64;
        assert!((0.7..1.3).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_pool_neither_runs_dry_nor_over() {
        let small = Postmark { files: 10, ..Postmark::default() };
        for creates in [0.0, 1.0] {
            let mut pool = pool(Postmark { creates, ..small }, blocks_min(&small).max(1024));
            run(&mut pool, 10_000);
            let expected = if creates > 0.0 { 19..=20 } else { 1..=2 };
            assert!(expected.contains(&pool.files.len()), "{}", pool.files.len());
        }
        // Full volumes.
        for files in [1, 10] {
            let full = Postmark { files, bytes: (9000, 10_000), creates: 1.0, ..small };
            let mut pool = pool(full, blocks_min(&full));
            run(&mut pool, 1000);
            assert!(!pool.files.is_empty() && pool.files.iter().all(|file| file.bytes <= 10_000));
        }
    }

    #[test]
    fn large_files_are_accessed_in_pieces_as_in_flaz() {
        let flaz = Postmark {
            files: 15,
            bytes: (10 << 20, 100 << 20),
            access_bytes: 64 << 10,
            ..Postmark::default()
        };
        let mut pool = pool(flaz, blocks_min(&flaz));
        let mut accesses = Accesses::default();
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        (0..10).for_each(|_| pool.transaction(&mut rng, &mut accesses));
        let lengths: Vec<u64> =
            std::iter::from_fn(|| accesses.pop()).map(|(_, at)| at.end - at.start).collect();
        assert!(lengths.iter().all(|blocks| *blocks <= 16));
        let full = lengths.iter().filter(|blocks| **blocks == 16).count();
        assert!(full * 10 > lengths.len() * 9, "{full} of {}", lengths.len());
    }
}
