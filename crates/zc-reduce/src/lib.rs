//! Reduce: fingerprints, zero detection and codecs for one extent at a time.
//!
//! Job: the CPU work of the insertion path (Nitro 3.2, steps 1 and 3) and of a hit. Invariants: pure functions of
//! their input; decoding arbitrary bytes gives an error, never a panic, never a byte past the output. What it does not
//! do: decide what is compressed or shared, or on which thread.
#![forbid(unsafe_code)]

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use sha1::Digest as _;
use zc_core::{Codec, Fingerprint, FingerprintKind};

/// Fingerprint of an extent.
#[must_use]
pub fn fingerprint(kind: FingerprintKind, bytes: &[u8]) -> Fingerprint {
    match kind {
        FingerprintKind::Blake3 => Fingerprint(*blake3::hash(bytes).as_bytes()),
        FingerprintKind::Sha1 => {
            let mut print = [0; 32];
            let digest = sha1::Sha1::digest(bytes);
            for (to, from) in print.iter_mut().zip(digest.iter()) {
                *to = *from;
            }
            Fingerprint(print)
        }
    }
}

/// Whether all bytes are zero.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    rest.iter().all(|byte| *byte == 0)
        && chunks.iter().all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Stored bytes that do not decode to the extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored bytes do not decode to an extent of the expected size")]
pub struct DecodeError;

/// A codec with its working memory; one per thread.
pub struct Reducer {
    scratch: Vec<u8>,
    deflate: Option<(u8, Compress)>,
    inflate: Option<Decompress>,
    zstd_in: Option<(u8, zstd::bulk::Compressor<'static>)>,
    zstd_out: Option<zstd::bulk::Decompressor<'static>>,
}

impl core::fmt::Debug for Reducer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reducer").finish_non_exhaustive()
    }
}

impl Default for Reducer {
    fn default() -> Self {
        Self::new()
    }
}

impl Reducer {
    /// A reducer; contexts are made on first use.
    #[must_use]
    pub fn new() -> Self {
        Self { scratch: Vec::new(), deflate: None, inflate: None, zstd_in: None, zstd_out: None }
    }

    /// Compresses `input` into `out`. The compressed size in bytes, or `None` if it does not fit into `out`.
    pub fn compress(&mut self, codec: Codec, input: &[u8], out: &mut [u8]) -> Option<usize> {
        match codec {
            Codec::Raw => None,
            Codec::Lz4 => {
                let worst = lz4_flex::block::get_maximum_output_size(input.len());
                if self.scratch.len() < worst {
                    self.scratch.resize(worst, 0);
                }
                let len = lz4_flex::block::compress_into(input, &mut self.scratch).ok()?;
                out.get_mut(..len)?.copy_from_slice(self.scratch.get(..len)?);
                Some(len)
            }
            Codec::Zlib(level) => {
                let level = level.clamp(1, 9);
                if self.deflate.as_ref().is_none_or(|(have, _)| *have != level) {
                    self.deflate = Some((level, Compress::new(Compression::new(u32::from(level)), true)));
                }
                let (_, context) = self.deflate.as_mut()?;
                context.reset();
                let status = context.compress(input, out, FlushCompress::Finish).ok()?;
                (status == Status::StreamEnd).then(|| zc_core::usize_from_u64(context.total_out()))
            }
            Codec::Zstd(level) => {
                let level = level.clamp(1, 19);
                if self.zstd_in.as_ref().is_none_or(|(have, _)| *have != level) {
                    self.zstd_in = Some((level, zstd::bulk::Compressor::new(i32::from(level)).ok()?));
                }
                let (_, context) = self.zstd_in.as_mut()?;
                context.compress_to_buffer(input, out).ok()
            }
        }
    }

    /// Decodes `stored` into all of `out`.
    ///
    /// # Errors
    /// When the bytes are not an encoding of exactly as many bytes as `out` has.
    pub fn decompress(&mut self, codec: Codec, stored: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let len = match codec {
            Codec::Raw => {
                if stored.len() != out.len() {
                    return Err(DecodeError);
                }
                out.copy_from_slice(stored);
                stored.len()
            }
            Codec::Lz4 => lz4_flex::block::decompress_into(stored, out).map_err(|_| DecodeError)?,
            Codec::Zlib(_) => {
                let context = self.inflate.get_or_insert_with(|| Decompress::new(true));
                context.reset(true);
                let status =
                    context.decompress(stored, out, FlushDecompress::Finish).map_err(|_| DecodeError)?;
                if status != Status::StreamEnd {
                    return Err(DecodeError);
                }
                zc_core::usize_from_u64(context.total_out())
            }
            Codec::Zstd(_) => {
                if self.zstd_out.is_none() {
                    self.zstd_out = Some(zstd::bulk::Decompressor::new().map_err(|_| DecodeError)?);
                }
                let context = self.zstd_out.as_mut().ok_or(DecodeError)?;
                context.decompress_to_buffer(stored, out).map_err(|_| DecodeError)?
            }
        };
        (len == out.len()).then_some(()).ok_or(DecodeError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CODECS: [Codec; 4] = [Codec::Raw, Codec::Lz4, Codec::Zlib(6), Codec::Zstd(1)];

    proptest! {
        #[test]
        fn what_compresses_comes_back(words in prop::collection::vec(0_u8..4, 4096), codec in 1_usize..4) {
            let mut reducer = Reducer::new();
            let mut stored = vec![0; 4096 - 64];
            let len = reducer.compress(CODECS[codec], &words, &mut stored).expect("two bits a byte compress");
            let mut back = vec![0xff; words.len()];
            reducer.decompress(CODECS[codec], &stored[..len], &mut back).unwrap();
            prop_assert_eq!(back, words);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..512), codec in 0_usize..4) {
            let mut reducer = Reducer::new();
            let mut out = vec![0; 4096];
            prop_assert!(reducer.decompress(CODECS[codec], &bytes, &mut out).is_err() || !bytes.is_empty());
        }
    }

    #[test]
    fn incompressible_input_is_refused_not_expanded() {
        let mut noise = Vec::new();
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"noise");
        noise.resize(8192, 0);
        hasher.finalize_xof().fill(&mut noise);
        let mut reducer = Reducer::new();
        for codec in CODECS {
            assert_eq!(reducer.compress(codec, &noise, &mut vec![0; 8192 - 64]), None, "{codec:?}");
        }
    }

    #[test]
    fn fingerprints_are_the_published_ones() {
        let sha1 = fingerprint(FingerprintKind::Sha1, b"abc");
        assert_eq!(sha1.0[..4], [0xa9, 0x99, 0x3e, 0x36]);
        assert_eq!(sha1.0[20..], [0; 12]);
        assert_eq!(fingerprint(FingerprintKind::Blake3, b"abc").0[..4], [0x64, 0x37, 0xb3, 0xac]);
    }

    #[test]
    fn zero_is_seen_at_every_length() {
        for len in 0..300 {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            if let Some(last) = bytes.last_mut() {
                *last = 1;
                assert!(!is_zero(&bytes));
            }
        }
    }
}
