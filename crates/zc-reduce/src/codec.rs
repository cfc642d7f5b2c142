//! Codecs with their working memory.
//!
//! Job: compress and decompress an extent without allocating per call: match tables, deflate and zstd contexts are
//! made on first use and reused.
//!
//! Invariants: a decoder fills exactly its output or fails; an encoder fails rather than exceed its bound. Every table
//! of a decoder has a fixed size that stored bytes cannot raise: LZ4 needs none, zlib a 32 KiB window, zstd decodes
//! straight into the output.
//!
//! It does not choose a codec, or remember incompressible streams (`zc-cache` does).

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use lz4_flex::block::CompressTable;
use zc_core::Codec;
use zc_core::limits::PLACE_ALIGN_BYTES;

/// Fewest bytes that compression must save to be used: the alignment of extents in a unit. A smaller saving frees no
/// capacity, and costs a decompression at every hit.
pub const SAVING_BYTES_MIN: u32 = PLACE_ALIGN_BYTES;

/// Largest useful encoding of an extent of `extent_bytes`: the size of the buffer for [`Reducer::compress`]. 0 if no
/// saving is possible.
#[must_use]
pub const fn useful_stored_bytes_max(extent_bytes: u32) -> u32 {
    extent_bytes.saturating_sub(SAVING_BYTES_MIN)
}

/// Stored bytes that do not decode to the extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored bytes do not decode to an extent of the expected size")]
pub struct DecodeError;

/// A codec with its working memory; one per thread.
pub struct Reducer {
    lz4_out: Vec<u8>,
    lz4_small: CompressTable,
    lz4_large: Option<CompressTable>,
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
    /// Creates a reducer; all but a small LZ4 table is allocated on first use.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lz4_out: Vec::new(),
            lz4_small: CompressTable::small(),
            lz4_large: None,
            deflate: None,
            inflate: None,
            zstd_in: None,
            zstd_out: None,
        }
    }

    /// Compresses `input` into the start of `out`. Returns the stored size in bytes, or `None` if the encoding does
    /// not fit (store the raw bytes then) or the codec is [`Codec::Raw`]. `out` may be overwritten in both cases.
    ///
    /// The length of `out` is the bound; [`useful_stored_bytes_max`] is the usual one. Levels outside a codec's range
    /// are clamped.
    pub fn compress(&mut self, codec: Codec, input: &[u8], out: &mut [u8]) -> Option<usize> {
        match codec {
            Codec::Raw => None,
            Codec::Lz4 => self.compress_lz4(input, out),
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

    /// LZ4 cannot stop early: it gets a buffer for the worst case, and the result is copied if it is small enough.
    fn compress_lz4(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        let worst = lz4_flex::block::get_maximum_output_size(input.len());
        if self.lz4_out.len() < worst {
            self.lz4_out.resize(worst, 0);
        }
        // 16-bit table entries reach 64 KiB; longer inputs have a table of their own, so that alternating sizes do not
        // reallocate.
        let table = if input.len() < usize::from(u16::MAX) {
            &mut self.lz4_small
        } else {
            self.lz4_large.get_or_insert_with(CompressTable::large)
        };
        let len = lz4_flex::block::compress_into_with_table(input, &mut self.lz4_out, table).ok()?;
        out.get_mut(..len)?.copy_from_slice(self.lz4_out.get(..len)?);
        Some(len)
    }

    /// Decodes `stored` into all of `out`.
    ///
    /// # Errors
    /// When `stored` is not, to its last byte, an encoding of exactly `out.len()` bytes. The content of `out` is then
    /// unspecified.
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
            Codec::Zlib(_) => self.inflate(stored, out)?,
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

    fn inflate(&mut self, stored: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let context = self.inflate.get_or_insert_with(|| Decompress::new(true));
        context.reset(true);
        let status = context.decompress(stored, out, FlushDecompress::Finish).map_err(|_| DecodeError)?;
        if status != Status::StreamEnd || zc_core::usize_from_u64(context.total_in()) != stored.len() {
            return Err(DecodeError);
        }
        Ok(zc_core::usize_from_u64(context.total_out()))
    }
}
