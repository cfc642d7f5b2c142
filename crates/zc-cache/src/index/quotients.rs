//! Part of its key that an entry of the table keeps: a bucket implies the rest.
//!
//! A hash function here is a permutation of the K-bit keys (odd multiplications and xor-shifts, both
//! invertible). For B buckets, any number, the permuted key p belongs to bucket b = floor(p * B / 2^K), and its rank
//! among the keys of that bucket is r = ((p * B) mod 2^K) / B, below ceil(2^K / B). Only r is stored: bucket, hash
//! number and r give p = ceil(b * 2^K / B) + r back, and the inverse permutation gives the key. Keys are exact, and
//! log2(B) of their bits cost nothing: for 48-bit keys and 10 million entries at 95 % load B = 657,895 and r has
//! 29 bits.
//!
//! Out of scope: holding entries.

use crate::index::divisor::Divisor;

/// An invertible map of K-bit numbers to themselves.
#[derive(Debug)]
struct Permutation {
    mask: u64,
    shift: u32,
    forward: [u64; 3],
    backward: [u64; 3],
}

impl Permutation {
    fn new(bits: u32, factors: [u64; 3]) -> Self {
        Self {
            mask: u64::MAX >> (64 - bits),
            // With a shift of at least half the width, x ^= x >> shift is its own inverse.
            shift: bits.div_ceil(2),
            forward: factors,
            backward: factors.map(inverse),
        }
    }

    const fn apply(&self, key: u64) -> u64 {
        let [a, b, c] = self.forward;
        self.mix(key, a, b, c)
    }

    const fn invert(&self, permuted: u64) -> u64 {
        let [a, b, c] = self.backward;
        self.mix(permuted, c, b, a)
    }

    const fn mix(&self, key: u64, a: u64, b: u64, c: u64) -> u64 {
        let mut x = key.wrapping_mul(a) & self.mask;
        x ^= x >> self.shift;
        x = x.wrapping_mul(b) & self.mask;
        x ^= x >> self.shift;
        x.wrapping_mul(c) & self.mask
    }
}

/// Inverse of an odd number modulo 2^64 (Newton; each round doubles the correct bits, the first guess has 3).
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// The arithmetic of a table.
#[derive(Debug)]
pub(super) struct Quotients {
    permutations: [Permutation; 2],
    key_bits: u32,
    pub(super) remainder_bits: u32,
    /// Remainder and hash number.
    pub(super) tag_mask: u64,
    buckets: u64,
    by_buckets: Divisor,
    /// 2^K, divided by the number of buckets, and the remainder.
    share: u64,
    rest: u64,
}

/// Bits that a remainder takes when keys of `key_bits` bits are spread over `buckets`.
pub(super) const fn remainder_bits(key_bits: u32, buckets: u64) -> u32 {
    let most = (1u128 << key_bits).div_ceil(if buckets == 0 { 1 } else { buckets as u128 }) - 1;
    128 - most.leading_zeros()
}

impl Quotients {
    /// Quotients for keys of `key_bits` bits, at most 63, in `buckets` buckets, at most 2^32.
    pub(super) fn new(key_bits: u32, buckets: u64) -> Self {
        let remainder_bits = remainder_bits(key_bits, buckets);
        let divided = buckets.max(1);
        Self {
            permutations: [
                Permutation::new(
                    key_bits,
                    [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xff51_afd7_ed55_8ccd],
                ),
                Permutation::new(
                    key_bits,
                    [0xc2b2_ae3d_27d4_eb4f, 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db],
                ),
            ],
            key_bits,
            remainder_bits,
            tag_mask: u64::MAX >> (63 - remainder_bits),
            buckets,
            by_buckets: Divisor::new(buckets),
            share: (1 << key_bits) / divided,
            rest: (1 << key_bits) % divided,
        }
    }

    pub(super) const fn key_bits(&self) -> u32 {
        self.key_bits
    }

    /// Bucket of a key under one of the hash functions, and the key's part of the entry.
    pub(super) fn locate(&self, key: u64, which: usize) -> (u64, u64) {
        debug_assert!(key >> self.key_bits == 0, "key wider than the table's");
        let scaled = u128::from(self.permutations[which].apply(key)) * u128::from(self.buckets);
        let bucket = low_u64(scaled >> self.key_bits);
        let (rank, _) = self.by_buckets.divide(low_u64(scaled) & self.permutations[which].mask);
        (bucket, rank | (u64::from(which == 1) << self.remainder_bits))
    }

    /// Key of an entry, of which the lower bits are given, and the number of the hash function that placed it.
    pub(super) fn key_of(&self, bucket: u64, entry: u64) -> (u64, usize) {
        self.key_after(self.first_of(bucket), entry)
    }

    /// Key of an entry in a bucket with this first permuted key, and the number of the hash function.
    pub(super) const fn key_after(&self, first: u64, entry: u64) -> (u64, usize) {
        let tag = entry & self.tag_mask;
        let rank = tag & (self.tag_mask >> 1);
        let which = if tag == rank { 0 } else { 1 };
        (self.permutations[which].invert(first + rank), which)
    }

    /// The first permuted key of a bucket.
    pub(super) const fn first_of(&self, bucket: u64) -> u64 {
        bucket * self.share + (bucket * self.rest).div_ceil(self.buckets)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
pub(super) const fn low_u64(wide: u128) -> u64 {
    wide as u64
}

#[cfg(test)]
#[path = "quotients_tests.rs"]
mod tests;
