//! Test data: compressible, incompressible and repeating.
//!
//! Job: patterns named by their ratio under LZ4, which a test checks.
//!
//! Invariants: the same arguments give the same bytes on every machine.

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Bytes without any structure: no codec makes them smaller.
pub fn fill_noise(bytes: &mut [u8], seed: u64) {
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(bytes);
}

/// Bytes that LZ4 halves in blocks of 8 KiB: short stretches of noise between copies of earlier bytes, many and
/// small, as in text and tables. (A stretch of zeroes of the same length would decode much faster than real data.)
pub fn fill_halving(bytes: &mut [u8], seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    for block in bytes.chunks_mut(8 << 10) {
        let mut at = 0;
        while at < block.len() {
            let end = (at + rng.random_range(6..=16)).min(block.len());
            rng.fill_bytes(&mut block[at..end]);
            let len = rng.random_range(8..=34).min(block.len() - end);
            let from = rng.random_range(0..=at.saturating_sub(34));
            for index in 0..len {
                block[end + index] = block[(from + index).min(end - 1)];
            }
            at = end + len;
        }
    }
}

/// [`fill_noise`] in a new vector.
#[must_use]
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill_noise(&mut bytes, seed);
    bytes
}

/// [`fill_halving`] in a new vector.
#[must_use]
pub fn halving(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill_halving(&mut bytes, seed);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use zc_core::Codec;
    use zc_reduce::Reducer;

    fn stored(bytes: &[u8]) -> Option<usize> {
        let mut out = vec![0; bytes.len()];
        Reducer::new().compress(Codec::Lz4, bytes, &mut out)
    }

    #[test]
    fn halving_is_two_to_one_under_lz4_and_noise_is_not_smaller() {
        for seed in 0..50 {
            let len = stored(&halving(8192, seed)).unwrap();
            assert!((3700..=4400).contains(&len), "seed {seed}: 8192 bytes become {len}");
            assert_eq!(stored(&noise(8192, seed)), None);
        }
        let len = stored(&halving(32 << 10, 1)).unwrap();
        assert!((15_000..=17_400).contains(&len), "32 KiB become {len}");
    }
}
