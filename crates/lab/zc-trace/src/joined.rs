//! Effect of joint compression of blocks.
//!
//! Blocks of 4 KiB that are compressed together are smaller than one by one. Source and accuracy of the factors:
//! `zc_replay`'s `content`, which converts from blocks to extents; recordings are converted the other way.

use zc_core::{u64_from_usize, usize_from_u32};

/// Size of 1, 2, 4, 8, 16, 32 jointly compressed blocks relative to their sum under LZ4, in 1/1000.
pub const LZ4: [u64; 6] = [1000, 955, 915, 902, 888, 874];
/// Size of 1, 2, 4, 8, 16, 32 jointly compressed blocks relative to their sum under Zstandard, in 1/1000.
pub const ZSTD: [u64; 6] = [1000, 942, 900, 907, 898, 889];

/// Returns the factor for this number of blocks, in 1/1000.
#[must_use]
pub fn factor(table: &[u64; 6], blocks: usize) -> u64 {
    let step = usize_from_u32(blocks.max(1).ilog2()).min(table.len() - 1);
    table[step]
}

/// Returns the size of each of `blocks` equal blocks that were `stored_bytes` together, at least 1.
#[must_use]
pub fn share_of(table: &[u64; 6], blocks: usize, stored_bytes: u64) -> u64 {
    let whole = u64_from_usize(blocks.max(1)) * factor(table, blocks);
    ((stored_bytes * 1000 + whole / 2) / whole).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_whole_again() {
        for table in [LZ4, ZSTD] {
            for (blocks, stored) in [(1, 1500), (2, 3000), (8, 20_000), (32, 70_000)] {
                let sum = share_of(&table, blocks, stored) * u64_from_usize(blocks);
                let joined = (sum * factor(&table, blocks)).div_ceil(1000);
                assert!(joined.abs_diff(stored) <= u64_from_usize(blocks), "{blocks}: {joined} for {stored}");
            }
        }
        assert_eq!(share_of(&LZ4, 0, 0), 1);
    }
}
