//! Tests that keys are recovered from their entries.

use super::*;

fn mixed(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x1234_5678_9abc_def1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 32;
    x.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[test]
fn permutations_are_inverted() {
    for bits in [1, 2, 7, 19, 35, 48, 63] {
        let quotients = Quotients::new(bits, 3);
        for n in 0..1000 {
            let key = mixed(n) >> (64 - bits);
            for permutation in &quotients.permutations {
                assert_eq!(permutation.invert(permutation.apply(key)), key, "{bits} bits");
            }
        }
    }
}

#[test]
fn keys_come_back_from_bucket_and_remainder() {
    for buckets in [1, 2, 3, 5, 16, 1000, 657_895, (1 << 32) - 1, 1 << 32] {
        for key_bits in [33, 48, 63] {
            let quotients = Quotients::new(key_bits, buckets);
            for n in 0..2000 {
                let key = mixed(n) >> (64 - key_bits);
                for which in 0..2 {
                    let (bucket, tag) = quotients.locate(key, which);
                    assert!(bucket < buckets);
                    let width = quotients.remainder_bits + 1;
                    assert!(
                        tag.checked_shr(width).unwrap_or(0) == 0,
                        "remainder too wide for {buckets} buckets"
                    );
                    assert_eq!(quotients.key_of(bucket, tag), (key, which));
                }
            }
        }
    }
}
