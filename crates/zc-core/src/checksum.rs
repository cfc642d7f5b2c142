//! CRC-32C (RFC 3720, section 12.1), the checksum of all formats of zcached.
//!
//! Invariants: the checksum does not depend on how the bytes are split, nor on the instructions of the CPU.
//!
//! It does not bind bytes to their place; formats do.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Extends the checksum `before` by `bytes`.
#[must_use]
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    // The crate returns 64 bits for all widths.
    let [a, b, c, d, ..] = digest.finalize().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bitwise definition of the checksum.
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
