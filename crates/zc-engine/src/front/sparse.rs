//! Detects zeros in read data, so that clients with support for holes receive holes.
//!
//! Job: split the bytes of a read at boundaries of whole zero blocks. It inspects the bytes themselves, so it covers
//! zeros of the cache, of the origin and of clients alike, and no later write can invalidate the result.
//!
//! It costs little without zeros: a block is abandoned at its first non-zero bytes.

/// Block size of the search, on the volume.
const BLOCK_BYTES: usize = 4096;
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) len_bytes: usize,
    pub(crate) is_zero: bool,
}

/// Splits `bytes`, whose first byte is at `offset` of the volume, into data and zero blocks. Zeros that fill no block
/// count as data. `None`: all of it is data, the common case.
pub(crate) fn pieces(bytes: &[u8], offset: u64) -> Option<Vec<Piece>> {
    let block = zc_core::u64_from_usize(BLOCK_BYTES);
    let head = zc_core::usize_from_u64(offset.next_multiple_of(block) - offset).min(bytes.len());
    let (edge, blocks) = bytes.split_at(head);
    // As nearly always; it costs no memory.
    if !blocks.chunks_exact(BLOCK_BYTES).any(|chunk| chunk == &ZEROS[..]) {
        return None;
    }
    let mut pieces: Vec<Piece> = Vec::new();
    if !edge.is_empty() {
        pieces.push(Piece { len_bytes: edge.len(), is_zero: false });
    }
    for chunk in blocks.chunks(BLOCK_BYTES) {
        let is_zero = chunk.len() == BLOCK_BYTES && chunk == &ZEROS[..];
        match pieces.last_mut() {
            Some(last) if last.is_zero == is_zero => last.len_bytes += chunk.len(),
            _ => pieces.push(Piece { len_bytes: chunk.len(), is_zero }),
        }
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_blocks_of_zeros_are_holes() {
        let mut bytes = vec![0; 5 * 4096];
        bytes[3 * 4096] = 1;
        let zero = |len_bytes| Piece { len_bytes, is_zero: true };
        let data = |len_bytes| Piece { len_bytes, is_zero: false };
        assert_eq!(pieces(&bytes, 8192).unwrap(), [zero(3 * 4096), data(4096), zero(4096)]);
        assert_eq!(pieces(&bytes, 8192 + 512).unwrap()[0], data(3584), "up to the next block");
        assert_eq!(pieces(&bytes[3 * 4096..4 * 4096], 0), None);
        assert_eq!(pieces(&[0; 512], 0), None);
        assert_eq!(pieces(&[], 0), None);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_bytes_and_holes_are_zero(
            offset in 0_u64..10_000,
            data in prop::collection::vec((0_usize..30_000, 1_u8..), 0..6),
            len in 0_usize..30_000,
        ) {
            let mut bytes = vec![0; len];
            for (at, value) in data {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Some(pieces) = pieces(&bytes, offset) {
                let mut at = 0;
                for piece in pieces {
                    let part = &bytes[at..at + piece.len_bytes];
                    prop_assert!(!piece.is_zero || part.iter().all(|&byte| byte == 0));
                    prop_assert!(!part.is_empty());
                    at += piece.len_bytes;
                }
                prop_assert_eq!(at, bytes.len());
            }
        }
    }
}
