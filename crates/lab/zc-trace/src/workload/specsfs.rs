//! Blocks that a file server accesses under a load like that of SPECsfs2008.
//!
//! From its NFSv3 load, according to Eisler's blog of April 2008: of all operations 18 % read, 10 % write, 4 % set
//! attributes, 1 % create and 1 % remove a file; 24 % look up, 26 % get attributes, 11 % check access, and 5 % read
//! links and directories or query free space. A read or write has at most 32 KiB, the largest transfer of the
//! benchmark (its FAQ). From SFS 3.0 (User's Guide, table 2), because the distribution of the later one is
//! unavailable: sizes of files, 1 KiB to 1 MiB; a tenth of the files is accessed.
//!
//! Not from them: the server answers operations on names and attributes from its memory, so they reach no block unless
//! they change something, which is written every 10,000 operations; files fill three quarters of the volume, and the
//! accessed ones are accessed uniformly; reads and writes begin at a multiple of 32 KiB; files are created at their
//! final size; removed files are among the accessed ones.
//!
//! Invariants: about as many files are created as removed; if there is no space for another, none is created.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use super::files::{File, Space, blocks_of};
use super::program::{Accesses, Program};
use crate::request::Op;

/// Most that is read or written at once.
const TRANSFER_BYTES: u64 = 32 << 10;
/// Operations after which metadata are written.
const COMMIT_OPERATIONS: u64 = 10_000;
/// Percentage of files with this size in KiB.
const SIZES: [(u64, u64); 10] =
    [(33, 1), (21, 2), (13, 4), (10, 8), (8, 16), (5, 32), (4, 64), (3, 128), (2, 256), (1, 1024)];
/// Blocks per place in the table: a file has 7 in the mean, and a quarter of the volume has none.
const BLOCKS_PER_FILE: u64 = 8;
/// Files of which one is accessed.
const FILES_PER_ACCESSED: u64 = 10;
/// Blocks that a volume has at least; then some 170 files are accessed.
pub(super) const BLOCKS_MIN: u64 = 1 << 14;

/// The files of a server.
#[derive(Debug)]
pub(super) struct Server {
    space: Space,
    /// Files that clients access; the other files only occupy space.
    files: Vec<File>,
    operations: u64,
}

/// A draw from the distribution of sizes.
fn size(rng: &mut Pcg64Mcg) -> u64 {
    let mut percent: u64 = rng.random_range(0..100);
    for (share, kib) in SIZES {
        match percent.checked_sub(share) {
            Some(rest) => percent = rest,
            None => return kib << 10,
        }
    }
    0
}

impl Server {
    /// Creates the files in a volume of at least [`BLOCKS_MIN`] blocks.
    pub(super) fn new(blocks: u64, rng: &mut Pcg64Mcg) -> Self {
        let mut server =
            Self { space: Space::new(blocks, blocks / BLOCKS_PER_FILE), files: Vec::new(), operations: 0 };
        let mut taken = 0;
        for number in 0.. {
            let Some(file) = server.file(rng) else { break };
            taken += blocks_of(file.bytes);
            if number % FILES_PER_ACCESSED == 0 {
                server.files.push(file);
            }
            if taken >= blocks / 4 * 3 {
                break;
            }
        }
        server
    }

    /// Creates a file, if there is space.
    fn file(&mut self, rng: &mut Pcg64Mcg) -> Option<File> {
        let bytes = size(rng);
        let mut file = self.space.create()?;
        if self.space.grow(&mut file, bytes) {
            return Some(file);
        }
        self.space.remove(file);
        None
    }

    fn any(&self, rng: &mut Pcg64Mcg) -> usize {
        rng.random_range(0..self.files.len())
    }

    /// Reads or writes a piece of a file.
    fn transfer(&self, op: Op, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        let file = &self.files[self.any(rng)];
        let at = rng.random_range(0..file.bytes.div_ceil(TRANSFER_BYTES)) * TRANSFER_BYTES;
        let bytes = at..file.bytes.min(at + TRANSFER_BYTES);
        file.access(op, bytes, blocks_of(TRANSFER_BYTES), accesses);
    }

    fn create(&mut self, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        let Some(file) = self.file(rng) else { return };
        file.access(Op::Write, 0..file.bytes, blocks_of(TRANSFER_BYTES), accesses);
        self.space.touch(&file);
        self.files.push(file);
    }

    fn remove(&mut self, rng: &mut Pcg64Mcg) {
        if self.files.len() > 1 {
            let at = self.any(rng);
            let file = self.files.swap_remove(at);
            self.space.touch(&file);
            self.space.remove(file);
        }
    }
}

impl Program for Server {
    fn transaction(&mut self, rng: &mut Pcg64Mcg, accesses: &mut Accesses) {
        match rng.random_range(0..100) {
            0..18 => self.transfer(Op::Read, rng, accesses),
            18..28 => self.transfer(Op::Write, rng, accesses),
            28..32 => self.space.touch(&self.files[self.any(rng)]),
            32 => self.create(rng, accesses),
            33 => self.remove(rng),
            // Answered from the server's memory.
            _ => {}
        }
        self.operations += 1;
        if self.operations.is_multiple_of(COMMIT_OPERATIONS) {
            self.space.commit(accesses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn sizes_are_those_of_the_table() {
        assert_eq!(SIZES.iter().map(|(share, _)| share).sum::<u64>(), 100);
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let drawn: Vec<u64> = (0..100_000).map(|_| size(&mut rng)).collect();
        for (share, kib) in SIZES {
            let count = drawn.iter().filter(|bytes| **bytes == kib << 10).count();
            let percent = count as f64 / 1000.0;
            assert!((percent - share as f64).abs() < 0.6, "{kib} {percent}");
        }
    }

    #[test]
    fn files_fill_three_quarters_and_a_tenth_is_accessed() {
        let blocks = 1 << 18;
        let server = Server::new(blocks, &mut Pcg64Mcg::seed_from_u64(1));
        let accessed: u64 = server.files.iter().map(|file| blocks_of(file.bytes)).sum();
        let share = accessed as f64 / blocks as f64;
        assert!((0.065..0.085).contains(&share), "{share}");
        // 7 blocks a file.
        let expected = blocks / 4 * 3 / 7 / FILES_PER_ACCESSED;
        let files = zc_core::u64_from_usize(server.files.len());
        assert!(files.abs_diff(expected) < expected / 20, "{files}");
    }

    #[test]
    fn operations_come_in_the_shares_of_the_mix() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut server = Server::new(1 << 18, &mut rng);
        let (table, mut accesses) = (server.space.table(), Accesses::default());
        let (mut reads, mut writes, mut metadata) = (0_u64, 0_u64, 0_u64);
        for _ in 0..100_000 {
            server.transaction(&mut rng, &mut accesses);
            let (mut read, mut written) = (0, 0);
            while let Some((op, blocks)) = accesses.pop() {
                assert!(blocks.end - blocks.start <= 8);
                match op {
                    Op::Read => read = 1,
                    _ if blocks.start < table => metadata += 1,
                    _ => written = 1,
                }
            }
            (reads, writes) = (reads + read, writes + written);
        }
        assert!((17_500..18_500).contains(&reads), "{reads}");
        // With the files created.
        assert!((10_600..11_400).contains(&writes), "{writes}");
        // Ten times some 600 files of 1,755 blocks.
        assert!((3000..6000).contains(&metadata), "{metadata}");
    }

    #[test]
    fn a_full_server_goes_on() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut server = Server::new(BLOCKS_MIN, &mut rng);
        let mut accesses = Accesses::default();
        let before = server.files.len();
        (0..20_000).for_each(|_| server.create(&mut rng, &mut accesses));
        assert!(server.files.len() > before && server.file(&mut rng).is_none());
        while accesses.pop().is_some() {}
        while accesses.pop().is_some() {}
        server.remove(&mut rng);
        server.create(&mut rng, &mut accesses);
        assert!(accesses.pop().is_some());
    }
}
