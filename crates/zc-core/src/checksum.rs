//! CRC-32C (RFC 3720, section 12.1), which all formats of zcached check bytes with.
//!
//! Invariants: the sum of bytes does not depend on how they are cut, nor on what the CPU can do.
//!
//! What it does not do: bind bytes to their place; formats do.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The checksum of bytes whose checksum is `before`, and of `bytes` behind them.
#[must_use]
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    // The crate's sums have 64 bits for all widths.
    let [a, b, c, d, ..] = digest.finalize().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, a bit at a time.
    fn slow(bytes: &[u8]) -> u32 {
        const REFLECTED: u32 = 0x82f6_3b78;
        let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ REFLECTED } else { sum >> 1 };
        !bytes.iter().fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), |sum, _| step(sum)))
    }

    /// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
    #[test]
    fn known_sums() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let sums = [&[0; 32], &[0xff; 32], &ascending[..], &descending, b"123456789", b""].map(crc32c);
        assert_eq!(sums, [0x8a91_36aa, 0x62a8_ab43, 0x46dd_794e, 0x113f_db5c, 0xe306_9283, 0]);
    }

    proptest! {
        #[test]
        fn sums_follow_the_definition_wherever_bytes_lie_and_are_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..20_000),
            skip in 0_usize..64,
            cut in 0_usize..20_000,
        ) {
            let bytes = &bytes[skip.min(bytes.len())..];
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(crc32c(bytes), slow(bytes));
            prop_assert_eq!(crc32c_append(crc32c(head), tail), slow(bytes));
        }
    }
}
