//! BlueZIP's codec (section III.A): literals of 9 bits, and matches with a dictionary of patterns of 18 bytes.
//!
//! The next three bytes are hashed to an entry. If the entry begins with them, a match is written: a flag, the number
//! of the entry, and the count of equal bytes (3 to 18, four bits). Otherwise a literal is written, a flag and a byte,
//! and the entry is replaced by the bytes from here on. The decoder builds the same dictionary from its output. For
//! that reason both sides record a pattern only after its first three bytes have passed.
//!
//! Invariant: decoding inverts encoding with the same number of entries. Each chunk begins with an empty dictionary.

use zc_core::usize_from_u32;

/// Shortest and longest match.
const MATCH: std::ops::RangeInclusive<usize> = 3..=18;
/// Bits of a match's length.
const LENGTH_BITS: u32 = 4;
/// Bits of a literal.
const BYTE_BITS: u32 = 8;
/// No pattern.
const NONE: usize = usize::MAX;

/// Invalid encoded bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at bit {bit} of the compressed chunk: {what}")]
pub struct DecodeError {
    /// Position.
    pub bit: usize,
    /// Reason.
    pub what: &'static str,
}

/// Patterns by their hash: where they begin.
struct Dictionary {
    entries: Vec<usize>,
    /// Literals whose patterns are not known yet.
    pending: std::collections::VecDeque<usize>,
}

impl Dictionary {
    fn new(entries: u32) -> Self {
        let entries = usize_from_u32(entries.max(2).next_power_of_two());
        Self { entries: vec![NONE; entries], pending: std::collections::VecDeque::new() }
    }

    fn bits(&self) -> u32 {
        self.entries.len().trailing_zeros()
    }

    fn hash(&self, bytes: &[u8]) -> usize {
        let first = bytes.iter().take(3).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        usize_from_u32(first.wrapping_mul(0x9E37_79B1) >> (32 - self.bits()))
    }

    /// Records the patterns of literals that begin at least three bytes before the end of the bytes known to both
    /// sides.
    fn learn(&mut self, known: &[u8]) {
        while let Some(at) = self.pending.front().copied().filter(|at| at + 3 <= known.len()) {
            self.pending.pop_front();
            let entry = self.hash(&known[at..]);
            self.entries[entry] = at;
        }
    }
}

/// Bits, the highest of a byte first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    fn put(&mut self, value: usize, bits: u32) {
        for bit in (0..bits).rev() {
            if self.len.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if value >> bit & 1 == 1
                && let Some(last) = self.bytes.last_mut()
            {
                *last |= 0x80 >> (self.len % 8);
            }
            self.len += 1;
        }
    }
}

/// Encodes a chunk. Data without repetition grows by an eighth.
#[must_use]
pub fn encode(data: &[u8], entries: u32) -> Vec<u8> {
    let (mut dictionary, mut bits) = (Dictionary::new(entries), Bits::default());
    let mut at = 0;
    while at < data.len() {
        dictionary.learn(&data[..at]);
        let ahead = &data[at..data.len().min(at + MATCH.end())];
        let entry = dictionary.hash(ahead);
        let from = dictionary.entries[entry];
        let equal = if from == NONE || ahead.len() < *MATCH.start() {
            0
        } else {
            ahead.iter().zip(&data[from..]).take_while(|(a, b)| a == b).count()
        };
        if MATCH.contains(&equal) {
            bits.put(1, 1);
            bits.put(entry, dictionary.bits());
            bits.put(equal - MATCH.start(), LENGTH_BITS);
            at += equal;
        } else {
            bits.put(usize::from(data[at]), 1 + BYTE_BITS);
            dictionary.pending.push_back(at);
            at += 1;
        }
    }
    bits.bytes
}

/// Decodes a chunk of `len` bytes.
///
/// # Errors
/// When the bits end early, or refer to an empty entry.
pub fn decode(encoded: &[u8], len: usize, entries: u32) -> Result<Vec<u8>, DecodeError> {
    let (mut dictionary, mut data, mut bit) = (Dictionary::new(entries), Vec::with_capacity(len), 0);
    let take = |bit: &mut usize, bits: u32| {
        let mut value = 0;
        for _ in 0..bits {
            let Some(byte) = encoded.get(*bit / 8) else {
                return Err(DecodeError { bit: *bit, what: "it ends early" });
            };
            value = value << 1 | usize::from(byte >> (7 - *bit % 8) & 1);
            *bit += 1;
        }
        Ok(value)
    };
    while data.len() < len {
        dictionary.learn(&data);
        if take(&mut bit, 1)? == 0 {
            dictionary.pending.push_back(data.len());
            data.push(u8::try_from(take(&mut bit, BYTE_BITS)?).unwrap_or(0));
            continue;
        }
        let from = dictionary.entries[take(&mut bit, dictionary.bits())?];
        let equal = take(&mut bit, LENGTH_BITS)? + MATCH.start();
        if from == NONE || data.len() + equal > len {
            return Err(DecodeError { bit, what: "a match names no pattern, or goes beyond the chunk" });
        }
        // Byte by byte, because a match may overlap its own output.
        for byte in from..from + equal {
            data.push(data[byte]);
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_repeats_shrinks_and_what_does_not_grows_by_an_eighth() {
        let noise: Vec<u8> = (0..8192_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        assert_eq!(encode(&[], 64).len(), 0);
        assert_eq!(encode(b"abc", 64), [0x30, 0x98, 0x8C, 0x60]);
        let zeroes = encode(&[0; 8192], 2048);
        // A match of 18 bytes takes 16 bits.
        assert_eq!(zeroes.len(), 914);
        let text = b"pm_qos_update_request(&handle->pm_qos_req, value);\n".repeat(100);
        assert!(encode(&text, 2048).len() * 6 < text.len());
        assert!(encode(&noise, 2048).len() <= 8192 * 9 / 8);
    }

    #[test]
    fn broken_bits_are_told() {
        let encoded = encode(b"abcabcabc", 64);
        assert_eq!(decode(&encoded, 9, 64).unwrap(), b"abcabcabc");
        assert_eq!(decode(&encoded[..2], 9, 64).unwrap_err().what, "it ends early");
        assert!(decode(&[0xFF; 4], 9, 64).unwrap_err().what.starts_with("a match names no pattern"));
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(
            words in proptest::collection::vec(proptest::collection::vec(0_u8..4, 1..30), 0..60),
            bits in 1_u32..13,
        ) {
            let data = words.concat();
            let encoded = encode(&data, 1 << bits);
            prop_assert_eq!(decode(&encoded, data.len(), 1 << bits), Ok(data));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(data) = decode(&bytes, 500, 64) {
                prop_assert_eq!(data.len(), 500);
            }
        }
    }
}
