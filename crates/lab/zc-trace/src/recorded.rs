//! Requests of a recording of the daemon ([`zc_recording`]).
//!
//! Job: turn runs of a recording into requests; a run with a print or a size is split into pieces of 4 KiB, long runs
//! without contents or of zeros into pieces of at most 1 GiB. Later pieces are marked as continuations of the first.
//!
//! Invariants: contents are derived from the file only.

use std::io::{self, BufRead};

use zc_core::{Codec, usize_from_u32};
use zc_recording::{Asked, Decoder, Known, Run};

use crate::joined;
use crate::request::{Content, Op, Request};
use crate::values::Parsed;

/// Unit of contents.
const BLOCK_BYTES: u32 = 4096;
/// Longest piece of a request of which nothing is known, or which is zeros.
const PIECE_BYTES_MAX: u64 = 1 << 30;
/// The first half of the MD5 of a block of zeros, by which traces name it.
const ZERO_PRINT: u128 = 0x620f_0b67_a91f_7f74;
/// Set in the prints of contents that the recording does not name.
const NAMELESS_BIT: u128 = 1 << 112;

/// Reads the requests of a recording.
#[derive(Debug)]
pub(crate) struct Recording {
    decoder: Decoder,
    /// Rest of a run, and the content of its first block.
    rest: Option<(Run, Option<Content>)>,
    /// Extents so far whose print the recording does not name.
    nameless: u64,
}

impl Recording {
    /// Reads the header; returns its error if invalid.
    pub(crate) fn new(input: &mut dyn BufRead) -> io::Result<Result<Self, &'static str>> {
        let begun = Decoder::new(input)?;
        Ok(begun.map(|decoder| Self { decoder, rest: None, nameless: 0 }))
    }

    pub(crate) const fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// The next request or piece of one; `None` at the end.
    pub(crate) fn next(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Parsed>> {
        if let Some((run, content)) = self.rest.take() {
            return Ok(Some(Ok(Some(self.piece(run, content)))));
        }
        Ok(self.decoder.next(input)?.map(|run| {
            let run = run?;
            let content = self.content(run.known);
            Ok(Some(self.piece(run, content)))
        }))
    }

    /// The first piece of a run. The rest is kept.
    fn piece(&mut self, run: Run, content: Option<Content>) -> Request {
        let (at, end) = (run.offset_bytes, run.offset_bytes.saturating_add(run.len_bytes));
        let unit = u64::from(BLOCK_BYTES);
        let (border, of_piece) = match (run.known, content) {
            (Known::Named { .. }, Some(of_extent)) => {
                let block = at % u64::from(self.decoder.header().extent_bytes) / unit;
                let fingerprint = of_extent.fingerprint | u128::from(block);
                ((at / unit + 1) * unit, Some(Content { fingerprint, ..of_extent }))
            }
            _ => (at.saturating_add(PIECE_BYTES_MAX), content),
        };
        let border = border.min(end);
        if border < end {
            let rest = Run { offset_bytes: border, len_bytes: end - border, continues: true, ..run };
            self.rest = Some((rest, content));
        }
        Request {
            time_ns: run.time_ns,
            device: 0,
            offset_bytes: at,
            len_bytes: u32::try_from(border - at).unwrap_or(u32::MAX),
            op: op(run.asked),
            content: of_piece,
            continues: run.continues,
        }
    }

    /// Returns the content of an extent's first block.
    fn content(&mut self, known: Known) -> Option<Content> {
        let (print, stored) = match known {
            Known::Unknown => return None,
            Known::Zero => {
                return Some(Content { fingerprint: ZERO_PRINT, lz4_bytes: None, zstd1_bytes: None });
            }
            Known::Named { print, stored } => (print, stored),
        };
        let print = if let Some(print) = print {
            u128::from(print)
        } else {
            self.nameless += 1;
            NAMELESS_BIT | u128::from(self.nameless)
        };
        let blocks = usize_from_u32(self.decoder.header().extent_bytes / BLOCK_BYTES);
        // An extent that does not compress is its whole size; the others are less, however little.
        let small = |table, bytes: u32| {
            let share = joined::share_of(table, blocks, u64::from(bytes));
            u32::try_from(share).ok().map(|share| share.min(BLOCK_BYTES - 1))
        };
        let (lz4_bytes, zstd1_bytes) = match stored {
            None => (None, None),
            Some((Codec::Raw, _)) => (Some(BLOCK_BYTES), Some(BLOCK_BYTES)),
            Some((Codec::Lz4, bytes)) => (small(&joined::LZ4, bytes), None),
            Some((Codec::Zlib(_) | Codec::Zstd(_), bytes)) => (None, small(&joined::ZSTD, bytes)),
        };
        Some(Content { fingerprint: print << 8, lz4_bytes, zstd1_bytes })
    }
}

const fn op(asked: Asked) -> Op {
    match asked {
        Asked::Read => Op::Read,
        Asked::Write => Op::Write,
        Asked::Flush => Op::Flush,
        Asked::Discard | Asked::Zeroes => Op::Discard,
    }
}

#[cfg(test)]
#[path = "recorded_tests.rs"]
mod tests;
