//! Writes that stay in memory.
//!
//! Job: hold the writes of a pool that is opened read-only, and merge them into reads of the file. Invariants: a read
//! returns the newest write of each block; the file is never changed, then or later.

use std::collections::BTreeMap;

use zc_core::{ErrorKind, u64_from_usize, usize_from_u32, usize_from_u64};
use zc_store::limits::BLOCK_BYTES;

use crate::limits::OVERLAY_BYTES_MAX;

/// Written blocks.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Overlay {
    /// Records a write of whole blocks.
    ///
    /// # Errors
    /// `NoSpace` when its memory bound is reached.
    pub(crate) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
        let kept = (self.blocks.len() + bytes.len().div_ceil(block_bytes())) * block_bytes();
        if kept > OVERLAY_BYTES_MAX {
            return Err(ErrorKind::NoSpace);
        }
        let first = offset_bytes / u64::from(BLOCK_BYTES);
        for (number, block) in (first..).zip(bytes.chunks(block_bytes())) {
            self.blocks.insert(number, block.into());
        }
        Ok(())
    }

    /// Merges written blocks into bytes read from the file.
    pub(crate) fn lay_over(&self, offset_bytes: u64, bytes: &mut [u8]) {
        let first = offset_bytes / u64::from(BLOCK_BYTES);
        let end = first + u64_from_usize(bytes.len().div_ceil(block_bytes()));
        for (number, block) in self.blocks.range(first..end) {
            let at = usize_from_u64(number - first) * block_bytes();
            let covered = &mut bytes[at..];
            let len = block.len().min(covered.len());
            covered[..len].copy_from_slice(&block[..len]);
        }
    }
}

const fn block_bytes() -> usize {
    usize_from_u32(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = block_bytes();

    #[test]
    fn a_read_sees_the_newest_write_of_each_block_and_the_file_elsewhere() {
        let mut overlay = Overlay::default();
        overlay.write(u64::from(BLOCK_BYTES), &vec![1; 2 * BLOCK]).unwrap();
        overlay.write(u64::from(2 * BLOCK_BYTES), &vec![2; BLOCK]).unwrap();
        let mut bytes = vec![9; 4 * BLOCK];
        overlay.lay_over(0, &mut bytes);
        let firsts: Vec<u8> = bytes.chunks(BLOCK).map(|block| block[0]).collect();
        assert_eq!(firsts, [9, 1, 2, 9]);
        let mut tail = vec![9; BLOCK];
        overlay.lay_over(u64::from(2 * BLOCK_BYTES), &mut tail);
        assert!(tail.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn writes_beyond_the_bound_are_refused_and_change_nothing() {
        let mut overlay = Overlay::default();
        assert_eq!(overlay.write(0, &vec![1; OVERLAY_BYTES_MAX + BLOCK]), Err(ErrorKind::NoSpace));
        let mut bytes = vec![9; BLOCK];
        overlay.lay_over(0, &mut bytes);
        assert_eq!(bytes[0], 9);
    }
}
