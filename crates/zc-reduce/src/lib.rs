//! Reduce: fingerprints, zero detection and codecs for one extent at a time.
//!
//! Job: the CPU work of the insertion path (Nitro 3.2, steps 1 and 3) and of a hit.
//!
//! Invariants: results depend on the input alone, not on earlier calls of a [`Reducer`]; decoding arbitrary bytes
//! yields an error, never a panic, a byte outside the output, or more memory than the codec's fixed tables.
//!
//! It does not decide which extents are compressed or shared, or on which thread, or verify decoded bytes (the CRC in
//! an extent's inline header does, `zc-format`).
//!
//! Why LZ4 and BLAKE3 are the defaults (`cargo xtask bench`, 4 to 32 KiB of data that LZ4 halves, two busy cores, so
//! compare ratios): zlib at level 6 takes 9 to 16 times as long as LZ4 to compress and 7 to 27 times to decompress,
//! which a hit waits for; zstd at level 1 takes 1.2 to 5 times and 1.6 to 4 times. An 8 KiB extent is decompressed in
//! 3.7 us by LZ4, 6.1 us by zstd, 34 us by zlib. Detecting that 8 KiB are incompressible takes LZ4 3.1 us, a fifth of
//! compressing them. SHA-1 takes 2.6 to 3.8 times as long as BLAKE3 at 8 and 32 KiB (5.1 us against 1.9 us at 8 KiB),
//! and requires a comparison of bytes besides.
//!
//! Where to read next: `codec.rs` for the codecs, `zc-cache` for the callers.
#![forbid(unsafe_code)]

mod codec;
#[cfg(test)]
mod codec_tests;

pub use codec::{DecodeError, Reducer, SAVING_BYTES_MIN, useful_stored_bytes_max};

use sha1::Digest as _;
use zc_core::{DedupDomain, Fingerprint, FingerprintKind};

/// Context string of the key derivation of domains. It is part of the media format (FORMAT.md, section 9).
const DOMAIN_CONTEXT: &str = "zcached 2026-11-25 dedup domain";

/// Returns the domain of this name on a cache. The empty name is the common domain.
#[must_use]
pub fn dedup_domain(cache_uuid: &[u8; 16], name: &str) -> DedupDomain {
    if name.is_empty() {
        return DedupDomain::COMMON;
    }
    let mut hasher = blake3::Hasher::new_derive_key(DOMAIN_CONTEXT);
    hasher.update(cache_uuid).update(name.as_bytes());
    DedupDomain::keyed(*hasher.finalize().as_bytes())
}

/// Returns the fingerprint of an extent in its domain: BLAKE3 with 256 bits, keyed; or SHA-1 of key and extent in the
/// first 20 bytes, then zeroes. The common domain has no key.
#[must_use]
pub fn fingerprint(kind: FingerprintKind, domain: &DedupDomain, bytes: &[u8]) -> Fingerprint {
    match kind {
        FingerprintKind::Blake3 => {
            let hash = domain.key().map_or_else(|| blake3::hash(bytes), |key| blake3::keyed_hash(key, bytes));
            Fingerprint(*hash.as_bytes())
        }
        FingerprintKind::Sha1 => {
            let mut print = [0; 32];
            let mut hasher = sha1::Sha1::new();
            if let Some(key) = domain.key() {
                hasher.update(key);
            }
            hasher.update(bytes);
            let digest = hasher.finalize();
            for (to, from) in print.iter_mut().zip(digest.iter()) {
                *to = *from;
            }
            Fingerprint(print)
        }
    }
}

/// Returns 64 bits of a fingerprint's keyed BLAKE3: equal for equal fingerprints under one key, and meaningless
/// without the key.
#[must_use]
pub fn blinded(key: &[u8; 32], print: &Fingerprint) -> u64 {
    let hash = blake3::keyed_hash(key, &print.0);
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Returns `true` if all bytes are zero. Scans in chunks that the compiler vectorises, and stops at the first other
/// one.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    rest.iter().all(|byte| *byte == 0)
        && chunks.iter().all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: DedupDomain = DedupDomain::COMMON;

    /// FIPS 180-4's example and BLAKE3's own published value for "abc".
    #[test]
    fn fingerprints_are_the_published_ones() {
        let sha1 = fingerprint(FingerprintKind::Sha1, &COMMON, b"abc");
        assert_eq!(sha1.0[..4], [0xa9, 0x99, 0x3e, 0x36]);
        assert_eq!(sha1.0[16..20], [0x9c, 0xd0, 0xd8, 0x9d]);
        assert_eq!(sha1.0[20..], [0; 12]);
        assert_eq!(fingerprint(FingerprintKind::Blake3, &COMMON, b"abc").0[..4], [0x64, 0x37, 0xb3, 0xac]);
    }

    /// Media depend on these bytes. They were computed independently: by Python's hashlib, and from the BLAKE3 paper.
    #[test]
    fn fingerprints_of_domains_are_what_media_have() {
        let domain = dedup_domain(&[7; 16], "tenant");
        assert_eq!(domain.key().map(|key| key[..4].to_vec()), Some(vec![0xbc, 0xaf, 0xac, 0xbb]));
        let [blake3, sha1] =
            [FingerprintKind::Blake3, FingerprintKind::Sha1].map(|kind| fingerprint(kind, &domain, b"abc"));
        assert_eq!(blake3.0[..4], [0x14, 0xeb, 0x3a, 0xf4]);
        assert_eq!(sha1.0[..4], [0x02, 0x1d, 0xa7, 0xf7]);
        assert_eq!(sha1.0[20..], [0; 12]);
    }

    #[test]
    fn equal_bytes_of_two_domains_have_nothing_in_common() {
        let (uuid, other) = ([1; 16], [2; 16]);
        assert_eq!(dedup_domain(&uuid, ""), COMMON);
        let domains = [COMMON, dedup_domain(&uuid, "a"), dedup_domain(&uuid, "b"), dedup_domain(&other, "a")];
        for kind in [FingerprintKind::Blake3, FingerprintKind::Sha1] {
            let prints = domains.map(|domain| fingerprint(kind, &domain, &[3; 4096]));
            for (at, print) in prints.iter().enumerate() {
                assert_eq!(*print, fingerprint(kind, &domains[at], &[3; 4096]));
                assert!(prints[..at].iter().all(|before| before.prefix() != print.prefix()), "{prints:?}");
            }
        }
    }

    #[test]
    fn blinded_fingerprints_are_equal_under_one_key_only() {
        let [one, other] = [b"one", b"two"].map(|bytes| fingerprint(FingerprintKind::Blake3, &COMMON, bytes));
        let [key, foreign] = [[1; 32], [2; 32]];
        assert_eq!(blinded(&key, &one), blinded(&key, &one));
        assert_ne!(blinded(&key, &one), blinded(&key, &other));
        assert_ne!(blinded(&key, &one), blinded(&foreign, &one));
    }

    #[test]
    fn one_bit_anywhere_is_not_zero() {
        for len in 0..300 {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for at in 0..len {
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes), "byte {at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
