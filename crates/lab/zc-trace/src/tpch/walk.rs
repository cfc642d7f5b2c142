//! Turns bytes into blocks, and measures them.
//!
//! Invariants: blocks are emitted in order, each once, as soon as it is full; measurements of a block depend on its
//! bytes alone.

use std::io::{self, Write};

use super::BLOCK_BYTES;
use crate::request::Content;

const BLOCK: usize = zc_core::usize_from_u32(BLOCK_BYTES);

/// Splits its input into blocks.
pub(super) struct Blocks<F> {
    block: Box<[u8; BLOCK]>,
    filled: usize,
    done: u64,
    each: F,
}

impl<F: FnMut(&[u8]) -> io::Result<()>> Blocks<F> {
    pub(super) fn new(each: F) -> Self {
        Self { block: Box::new([0; BLOCK]), filled: 0, done: 0, each }
    }

    /// Bytes so far.
    pub(super) const fn bytes(&self) -> u64 {
        self.done * BLOCK_BYTES as u64 + zc_core::u64_from_usize(self.filled)
    }

    /// Fills the block under way with zeroes; the number of the next.
    pub(super) fn end_block(&mut self) -> io::Result<u64> {
        if self.filled > 0 {
            self.block[self.filled..].fill(0);
            self.emit()?;
        }
        Ok(self.done)
    }

    fn emit(&mut self) -> io::Result<()> {
        (self.each)(&self.block[..])?;
        self.filled = 0;
        self.done += 1;
        Ok(())
    }
}

impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Blocks<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK - self.filled);
        self.block[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        if self.filled == BLOCK {
            self.emit()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A content of one block in 20 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Short {
    fingerprint: [u8; 16],
    lz4_bytes: u16,
    zstd1_bytes: u16,
}

impl Short {
    pub(super) fn content(&self) -> Content {
        Content {
            fingerprint: u128::from_be_bytes(self.fingerprint),
            lz4_bytes: Some(u32::from(self.lz4_bytes)),
            zstd1_bytes: Some(u32::from(self.zstd1_bytes)),
        }
    }
}

/// Hashes and compresses blocks.
pub(super) struct Measure {
    zstd: zstd::bulk::Compressor<'static>,
    out: Vec<u8>,
}

impl Measure {
    pub(super) fn new() -> io::Result<Self> {
        let out = vec![
            0;
            lz4_flex::block::get_maximum_output_size(BLOCK)
                .max(zstd::zstd_safe::compress_bound(BLOCK))
        ];
        Ok(Self { zstd: zstd::bulk::Compressor::new(1)?, out })
    }

    /// The first half of its BLAKE3, and its sizes under LZ4 and under Zstandard at level 1, at most its own.
    pub(super) fn block(&mut self, block: &[u8]) -> Short {
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&blake3::hash(block).as_bytes()[..16]);
        let lz4 = lz4_flex::block::compress_into(block, &mut self.out).ok();
        let zstd = self.zstd.compress_to_buffer(block, &mut self.out[..]).ok();
        let capped = |size: Option<usize>| {
            let size = size.map_or(block.len(), |size| size.min(block.len()));
            let Ok(size) = u16::try_from(size) else { unreachable!("a block has 4096 bytes") };
            size
        };
        Short { fingerprint, lz4_bytes: capped(lz4), zstd1_bytes: capped(zstd) }
    }
}
