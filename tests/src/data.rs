//! Data with known reducibility, the same for the same seed on every machine.
//!
//! Invariant: a block depends on the seed, its kind and its content number only, so a test can recompute the expected
//! bytes instead of keeping a copy.

use rand::{Rng as _, RngExt as _, SeedableRng as _};

/// The generator of the tests: its stream is fixed by its definition, unlike that of a "standard" one.
pub type Rng = rand_pcg::Pcg64Mcg;

/// A generator for `seed`.
#[must_use]
pub fn rng(seed: u64) -> Rng {
    Rng::seed_from_u64(seed)
}

/// Returns the seed in `ZC_SEED`, or `default`, and prints it, so that a failure can be repeated.
///
/// # Panics
/// `ZC_SEED` is not a number.
#[must_use]
pub fn seed_from_env(default: u64) -> u64 {
    let seed = match std::env::var("ZC_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("ZC_SEED={text} is not a number")),
        Err(_) => default,
    };
    eprintln!("seed {seed} (repeat with ZC_SEED={seed})");
    seed
}

/// Reducibility of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Only zeros.
    Zero,
    /// Different from every other block; LZ4 makes it about half as long.
    Compressible,
    /// Different from every other block; no codec makes it shorter.
    Incompressible,
}

/// Makes blocks of one size.
#[derive(Debug, Clone, Copy)]
pub struct DataGen {
    seed: u64,
    block_bytes: usize,
}

impl DataGen {
    /// A generator of blocks of `block_bytes`.
    ///
    /// # Panics
    /// `block_bytes` is not a positive multiple of 512.
    #[must_use]
    pub fn new(seed: u64, block_bytes: usize) -> Self {
        assert!(
            block_bytes > 0 && block_bytes.is_multiple_of(512),
            "blocks are whole sectors, not {block_bytes} B"
        );
        Self { seed, block_bytes }
    }

    /// The block of this kind and content number. Equal arguments give equal bytes: that is how duplicates are made.
    #[must_use]
    pub fn block(&self, kind: BlockKind, content: u64) -> Vec<u8> {
        let mut block = vec![0; self.block_bytes];
        let mut rng = rng(self.seed ^ content.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        match kind {
            BlockKind::Zero => {}
            BlockKind::Incompressible => rng.fill_bytes(&mut block),
            // Sixteen random bytes, sixteen that repeat them, and so on: about two to one for every codec.
            BlockKind::Compressible => {
                for pair in block.chunks_exact_mut(32) {
                    let (random, copy) = pair.split_at_mut(16);
                    rng.fill_bytes(random);
                    copy.copy_from_slice(random);
                }
            }
        }
        block
    }

    /// `blocks` blocks as on a real disk: of 20, ten compressible ones, five duplicates of earlier ones, three
    /// incompressible ones and two of zeros, in random order.
    #[must_use]
    pub fn mixed(&self, blocks: usize) -> Vec<u8> {
        let mut choice = rng(self.seed.rotate_left(32) ^ 0xD1CE);
        let mut image = Vec::with_capacity(blocks.saturating_mul(self.block_bytes));
        let mut unique = 0_u64;
        for _ in 0..blocks {
            let block = match choice.random_range(0..20_u32) {
                0..=4 if unique > 0 => self.block(BlockKind::Compressible, choice.random_range(0..unique)),
                0..=14 => {
                    unique += 1;
                    self.block(BlockKind::Compressible, unique - 1)
                }
                15..=17 => self.block(BlockKind::Incompressible, choice.next_u64()),
                _ => self.block(BlockKind::Zero, 0),
            };
            image.extend_from_slice(&block);
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_same_seed_gives_the_same_data_and_another_seed_other_data() {
        let image = DataGen::new(1, 4096).mixed(64);
        assert_eq!(image, DataGen::new(1, 4096).mixed(64));
        assert_ne!(image, DataGen::new(2, 4096).mixed(64));
        assert_eq!(image.len(), 64 * 4096);
    }

    #[test]
    fn kinds_are_what_they_say() {
        let generate = DataGen::new(7, 8192);
        assert_eq!(generate.block(BlockKind::Zero, 3), vec![0; 8192]);
        let block = generate.block(BlockKind::Compressible, 3);
        assert!(block.chunks(32).all(|pair| pair[..16] == pair[16..]));
        assert_ne!(block[..16], block[32..48]);
        assert_ne!(block, generate.block(BlockKind::Compressible, 4));
        let random = generate.block(BlockKind::Incompressible, 3);
        let distinct: std::collections::BTreeSet<&[u8]> = random.chunks(8).collect();
        assert_eq!(distinct.len(), 1024);
    }

    #[test]
    fn the_mix_has_the_promised_shares() {
        let image = DataGen::new(5, 512).mixed(4000);
        let mut times: BTreeMap<&[u8], usize> = BTreeMap::new();
        for block in image.chunks(512) {
            *times.entry(block).or_default() += 1;
        }
        let zeros = times.remove(&[0_u8; 512][..]).unwrap_or(0);
        let duplicates: usize = times.values().map(|count| count - 1).sum();
        assert!((320..480).contains(&zeros), "{zeros} zero blocks");
        assert!((900..1100).contains(&duplicates), "{duplicates} duplicates");
    }
}
