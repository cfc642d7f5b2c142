//! Files on a volume: their blocks, and the position of their metadata.
//!
//! The volume begins with a table of metadata, sixteen files a block (inodes of 256 bytes), followed by the files. A
//! file grows directly after its end if possible, else at the next free position after the last allocation.
//!
//! Invariants: no block belongs to two files; a file that does not fit stays unchanged.
//!
//! It does not buffer data; a program's reads and writes reach the volume at once.

use std::collections::BTreeSet;
use std::ops::Range;

use super::BLOCK_BYTES;
use super::program::Accesses;
use crate::request::Op;

/// Files of which a block has the metadata.
const FILES_PER_BLOCK: u64 = 16;

/// Returns the blocks of `bytes`.
pub(super) const fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES as u64)
}

/// Returns the metadata blocks of `files`.
pub(super) const fn table_blocks(files: u64) -> u64 {
    files.div_ceil(FILES_PER_BLOCK)
}

/// A file.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Its place in the table.
    slot: u64,
    /// Its length.
    pub(super) bytes: u64,
    extents: Vec<Range<u64>>,
}

impl File {
    fn blocks(&self) -> u64 {
        self.extents.iter().map(|extent| extent.end - extent.start).sum()
    }

    /// Reads or writes some bytes of it, contiguous blocks at once, at most `most`.
    pub(super) fn access(&self, op: Op, bytes: Range<u64>, most: u64, accesses: &mut Accesses) {
        let wanted = bytes.start / u64::from(BLOCK_BYTES)..blocks_of(bytes.end);
        let mut first = 0;
        for extent in &self.extents {
            let len = extent.end - extent.start;
            let (from, to) = (wanted.start.max(first), wanted.end.min(first + len));
            let mut at = from;
            while at < to {
                let end = to.min(at + most);
                accesses.push(op, extent.start + (at - first)..extent.start + (end - first));
                at = end;
            }
            first += len;
        }
    }
}

/// Blocks that files use, and metadata that have changed.
#[derive(Debug)]
pub(super) struct Space {
    /// A bit per block behind the table, set if a file has it.
    used: Vec<u64>,
    data: Range<u64>,
    free: u64,
    /// Position at which the search for a free block starts.
    cursor: u64,
    /// Freed positions in the table, and the first that was never used.
    slots: Vec<u64>,
    slots_taken: u64,
    slots_max: u64,
    /// Blocks of the table that have changed since they were written.
    changed: BTreeSet<u64>,
}

impl Space {
    /// Creates a volume for at most `files_max` files.
    pub(super) fn new(blocks: u64, files_max: u64) -> Self {
        let data = table_blocks(files_max)..blocks;
        assert!(data.start < data.end, "there is room behind the table");
        let words = zc_core::usize_from_u64((data.end - data.start).div_ceil(64));
        let free = data.end - data.start;
        let cursor = data.start;
        let (used, slots, changed) = (vec![0; words], Vec::new(), BTreeSet::new());
        Self { used, data, free, cursor, slots, slots_taken: 0, slots_max: files_max, changed }
    }

    fn bit(&self, block: u64) -> (usize, u64) {
        let at = block - self.data.start;
        (zc_core::usize_from_u64(at / 64), 1 << (at % 64))
    }

    fn is_free(&self, block: u64) -> bool {
        let (word, bit) = self.bit(block);
        self.data.contains(&block) && self.used[word] & bit == 0
    }

    /// A free block: this one, or the next after the cursor.
    fn take(&mut self, wish: u64) -> u64 {
        let mut block = wish;
        if !self.data.contains(&block) || !self.is_free(block) {
            block = self.cursor;
            while !self.is_free(block) {
                // Whole words at once.
                let (word, bit) = self.bit(block);
                block += if bit == 1 && self.used[word] == u64::MAX { 64 } else { 1 };
                if block >= self.data.end {
                    block = self.data.start;
                }
            }
            self.cursor = block;
        }
        let (word, bit) = self.bit(block);
        self.used[word] |= bit;
        self.free -= 1;
        block
    }

    /// An empty file, if there is a place in the table.
    pub(super) fn create(&mut self) -> Option<File> {
        let slot = match self.slots.pop() {
            Some(slot) => slot,
            None if self.slots_taken < self.slots_max => {
                self.slots_taken += 1;
                self.slots_taken - 1
            }
            None => return None,
        };
        Some(File { slot, ..File::default() })
    }

    /// Extends a file to this length; returns `false` if there is no space.
    pub(super) fn grow(&mut self, file: &mut File, bytes: u64) -> bool {
        let missing = blocks_of(bytes).saturating_sub(file.blocks());
        if missing > self.free {
            return false;
        }
        for _ in 0..missing {
            let wish = file.extents.last().map_or(self.cursor, |extent| extent.end);
            let block = self.take(wish);
            match file.extents.last_mut() {
                Some(extent) if extent.end == block => extent.end += 1,
                _ => file.extents.push(block..block + 1),
            }
        }
        file.bytes = file.bytes.max(bytes);
        true
    }

    /// Gives a file's blocks and its place in the table back.
    pub(super) fn remove(&mut self, file: File) {
        for block in file.extents.into_iter().flatten() {
            let (word, bit) = self.bit(block);
            self.used[word] &= !bit;
            self.free += 1;
        }
        self.slots.push(file.slot);
    }

    /// Remembers that the metadata of a file have changed.
    pub(super) fn touch(&mut self, file: &File) {
        self.changed.insert(file.slot / FILES_PER_BLOCK);
    }

    /// Writes the metadata that have changed, in the order of their addresses.
    pub(super) fn commit(&mut self, accesses: &mut Accesses) {
        for block in std::mem::take(&mut self.changed) {
            accesses.push(Op::Write, block..block + 1);
        }
    }

    /// Blocks of the table.
    #[cfg(test)]
    pub(super) const fn table(&self) -> u64 {
        self.data.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(accesses: &mut Accesses) -> Vec<(Op, Range<u64>)> {
        std::iter::from_fn(|| accesses.pop()).collect()
    }

    fn file(space: &mut Space, bytes: u64) -> File {
        let mut file = space.create().unwrap();
        assert!(space.grow(&mut file, bytes));
        file
    }

    #[test]
    fn files_share_no_block_and_leave_none_unused() {
        let mut space = Space::new(1000, 160);
        let mut files: Vec<File> = (0..100).map(|_| file(&mut space, 9 * 4096)).collect();
        // Every other file is removed; its replacement is twice as long and lies in the holes.
        for at in (0..50).rev() {
            space.remove(files.remove(2 * at));
        }
        files.extend((0..25).map(|_| file(&mut space, 18 * 4096 - 1)));
        let blocks: Vec<u64> = files.iter().flat_map(|file| file.extents.iter().cloned().flatten()).collect();
        let distinct: BTreeSet<u64> = blocks.iter().copied().collect();
        assert_eq!((blocks.len(), distinct.len()), (900, 900));
        assert!(distinct.iter().all(|block| (10..1000).contains(block)));
        let mut last = file(&mut space, 90 * 4096);
        assert!(!space.grow(&mut last, 90 * 4096 + 1));
        assert_eq!((last.bytes, space.free), (90 * 4096, 0));
    }

    #[test]
    fn a_file_is_read_in_runs_of_its_extents() {
        let file = File { slot: 0, bytes: 10 * 4096, extents: vec![100..106, 200..204] };
        let mut accesses = Accesses::default();
        file.access(Op::Read, 4095..8 * 4096 + 1, 4, &mut accesses);
        let runs = [100..104, 104..106, 200..203].map(|run| (Op::Read, run));
        assert_eq!(all(&mut accesses), runs);
        file.access(Op::Write, 4096..4097, 4, &mut accesses);
        assert_eq!(all(&mut accesses), [(Op::Write, 101..102)]);
    }

    #[test]
    fn metadata_are_written_once_and_places_are_used_again() {
        let mut space = Space::new(100, 32);
        let files: Vec<File> = (0..17).map(|_| space.create().unwrap()).collect();
        files.iter().for_each(|file| space.touch(file));
        let mut accesses = Accesses::default();
        space.commit(&mut accesses);
        assert_eq!(all(&mut accesses), [(Op::Write, 0..1), (Op::Write, 1..2)]);
        space.commit(&mut accesses);
        assert_eq!(all(&mut accesses), []);
        files.into_iter().for_each(|file| space.remove(file));
        assert_eq!((0..40).map_while(|_| space.create()).count(), 32);
    }
}
