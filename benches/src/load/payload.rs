//! Contents of writes.
//!
//! Invariants: with [`Content::Noise`] and [`Content::Halving`] no 8 KiB piece is written twice by one load; with
//! [`Content::HalfDuplicate`] every second one is.

use std::ops::Range;

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_core::usize_from_u32;

use crate::data::{halving, noise};

/// The pieces that differ.
const PIECE_BYTES: usize = 8 << 10;
/// Bytes that contents are taken from.
const POOL_BYTES: usize = 16 << 20;

/// Contents of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Does not compress, occurs once.
    Noise,
    /// LZ4 halves it, occurs once.
    Halving,
    /// LZ4 halves it; every second 8 KiB piece occurs again and again.
    HalfDuplicate,
}

/// Source of the bytes of writes.
#[derive(Debug)]
pub(crate) struct Payloads {
    pool: Vec<u8>,
    at: usize,
    stamps: Pcg64Mcg,
}

impl Payloads {
    /// For loads that do not write.
    pub(crate) fn none() -> Self {
        Self { pool: Vec::new(), at: 0, stamps: Pcg64Mcg::new(1) }
    }

    /// Contents of a kind; loads with different seeds write different bytes.
    pub(crate) fn new(content: Content, seed: u64) -> Self {
        let pool = match content {
            Content::Noise => noise(POOL_BYTES, 1),
            Content::Halving | Content::HalfDuplicate => halving(POOL_BYTES, 1),
        };
        Self { pool, at: 0, stamps: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// The next payload's place in [`Self::bytes`]; valid until the pool has been used up once more.
    pub(crate) fn take(&mut self, content: Content, len_bytes: u32) -> Range<usize> {
        let len = usize_from_u32(len_bytes);
        assert!(len <= self.pool.len(), "a payload of {len} bytes is longer than the pool");
        if self.at + len > self.pool.len() {
            self.at = 0;
        }
        let range = self.at..self.at + len;
        let first = range.start / PIECE_BYTES;
        for (piece, bytes) in self.pool[range.clone()].chunks_mut(PIECE_BYTES).enumerate() {
            if content != Content::HalfDuplicate || (first + piece).is_multiple_of(2) {
                let stamped = bytes.len().min(16);
                self.stamps.fill_bytes(&mut bytes[..stamped]);
            }
        }
        self.at = range.end;
        range
    }

    /// Returns the memory of payloads.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.pool
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn distinct(content: Content) -> usize {
        let mut payloads = Payloads::new(content, 3);
        let mut seen = BTreeSet::new();
        for _ in 0..2 * POOL_BYTES / PIECE_BYTES {
            let range = payloads.take(content, 8192);
            seen.insert(payloads.bytes()[range].to_vec());
        }
        seen.len()
    }

    #[test]
    fn only_half_duplicates_repeat() {
        let pieces = POOL_BYTES / PIECE_BYTES;
        assert_eq!(distinct(Content::Noise), 2 * pieces);
        assert_eq!(distinct(Content::Halving), 2 * pieces);
        assert_eq!(distinct(Content::HalfDuplicate), pieces + pieces / 2);
    }
}
