//! Compressed bytes: gzip, xz and Zstandard, of one member or several.
//!
//! Invariants: decoders' memory is bounded ([`XZ_MEMORY_KIB`], [`ZSTD_WINDOW_LOG_MAX`]). Zeros behind a member are
//! padding, as tapes and block devices add it. Anything else there is an error, after all bytes of the members before it.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;

use crate::limits::{XZ_MEMORY_KIB, ZSTD_WINDOW_LOG_MAX};

/// A stream of bytes that may move between threads.
pub(crate) type Bytes = Box<dyn BufRead + Send>;

const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Gzip,
    Xz,
    Zstd,
}

impl Kind {
    /// Returns the compression of a stream by its first bytes.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        let kinds = [(GZIP, Self::Gzip), (XZ, Self::Xz), (ZSTD, Self::Zstd)];
        kinds.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, kind)| kind)
    }

    /// Returns `true` if a further member may begin with this byte.
    const fn may_begin_with(self, byte: u8) -> bool {
        match self {
            Self::Gzip => byte == GZIP[0],
            Self::Xz => byte == XZ[0],
            // Skippable frames begin with 0x50 to 0x5f.
            Self::Zstd => byte == ZSTD[0] || byte >> 4 == 5,
        }
    }

    fn decoder(self, bytes: Bytes) -> io::Result<Decoder> {
        Ok(match self {
            Self::Gzip => Decoder::Gzip(Box::new(GzDecoder::new(bytes))),
            Self::Xz => Decoder::Xz(Box::new(XzReader::new_mem_limit(bytes, false, XZ_MEMORY_KIB))),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes)?.single_frame();
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Decoder::Zstd(decoder)
            }
        })
    }
}

/// The decoder of one member.
enum Decoder {
    Gzip(Box<GzDecoder<Bytes>>),
    Xz(Box<XzReader<Bytes>>),
    Zstd(zstd::stream::read::Decoder<'static, Bytes>),
}

impl Decoder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Xz(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }

    /// Returns the bytes after the member, once it was read to its end.
    fn rest(self) -> Bytes {
        match self {
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Xz(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
        }
    }
}

/// Reads the members of a stream, one after the other.
pub(crate) struct Members {
    kind: Kind,
    /// `None` at the end and after an error.
    decoder: Option<Decoder>,
}

impl Members {
    pub(crate) fn new(kind: Kind, bytes: Bytes) -> io::Result<Self> {
        Ok(Self { kind, decoder: Some(kind.decoder(bytes)?) })
    }

    /// Returns the decoder of the next member, `None` if only zeros are left.
    fn next_member(&self, mut rest: Bytes) -> io::Result<Option<Decoder>> {
        loop {
            let bytes = fill(&mut *rest)?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            match (bytes.get(zeros), zeros) {
                (Some(byte), _) if self.kind.may_begin_with(*byte) => {
                    rest.consume(zeros);
                    return self.kind.decoder(rest).map(Some);
                }
                (Some(_), _) => {
                    let why = "the compressed data is followed by other bytes";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                (None, 0) => return Ok(None),
                (None, _) => rest.consume(zeros),
            }
        }
    }
}

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(mut decoder) = self.decoder.take() {
            match decoder.read(buffer) {
                Ok(0) if !buffer.is_empty() => self.decoder = self.next_member(decoder.rest())?,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                result => {
                    self.decoder = Some(decoder);
                    return result;
                }
            }
        }
        Ok(0)
    }
}

/// Returns the next bytes of a stream, empty at its end.
pub(crate) fn fill(bytes: &mut dyn BufRead) -> io::Result<&[u8]> {
    // Once for the error, once for the bytes: the borrow checker does not follow a loop that returns them.
    while let Err(error) = bytes.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    bytes.fill_buf()
}
