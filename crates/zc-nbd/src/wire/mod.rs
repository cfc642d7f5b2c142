//! Encoding and decoding of every NBD message, in both directions.
//!
//! Job: turn bytes into checked structs and back. Fixed headers have a `BYTES` length and decode from a slice of
//! at least that length; variable bodies decode from exactly their bytes.
//!
//! Invariants: decoding never panics and never allocates more than its input, whose length the caller bounds
//! beforehand; a decoded value encodes to a message that decodes to the same value.
//!
//! It does not keep state or check the order of messages; [`crate::server`] and [`crate::client`] do.

mod handshake;
mod transmission;

pub use handshake::{
    ExportNameReply, GoRequest, Greeting, InfoReply, MetaContextReply, MetaRequest, OptionHeader,
    OptionReplyHeader, ServerEntry, encode_client_flags,
};
pub use transmission::{
    BlockStatus, ChunkHeader, ErrorChunk, HeaderStyle, HoleChunk, RequestHeader, SimpleReply, StatusExtent,
    StatusFilter,
};

use crate::proto::limits::STRING_BYTES_MAX;

/// Reason why bytes are not the expected message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The first bytes are not the message's magic: the stream is out of step or the peer speaks something else.
    #[error("decoding {what}: magic {found:#x} is not NBD's; the peer is out of step or no NBD peer")]
    Magic {
        /// The message.
        what: &'static str,
        /// Found value.
        found: u64,
    },
    /// The message ends early.
    #[error("decoding {what}: the message ends too early")]
    Short {
        /// The message.
        what: &'static str,
    },
    /// A length is beyond its bound.
    #[error("decoding {what}: length {found} is beyond the bound of {bound}")]
    TooLong {
        /// The message.
        what: &'static str,
        /// The length found.
        found: u64,
        /// The bound.
        bound: u64,
    },
    /// The message breaks a rule of the protocol.
    #[error("decoding {what}: {rule}")]
    Rule {
        /// The message.
        what: &'static str,
        /// The rule that is broken.
        rule: &'static str,
    },
}

/// Checked big-endian reading from a slice.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let Some((head, rest)) = self.rest.split_at_checked(count) else {
            return Err(WireError::Short { what: self.what });
        };
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(WireError::Short { what: self.what });
        };
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// A string of `count` bytes.
    pub(crate) fn string(&mut self, count: u64) -> Result<String, WireError> {
        let bound = zc_core::u64_from_usize(STRING_BYTES_MAX);
        if count > zc_core::u64_from_usize(self.rest.len()) {
            return Err(WireError::Short { what: self.what });
        }
        if count > bound {
            return Err(WireError::TooLong { what: self.what, found: count, bound });
        }
        let bytes = self.take(zc_core::usize_from_u64(count))?;
        let text = core::str::from_utf8(bytes)
            .map_err(|_| WireError::Rule { what: self.what, rule: "a string is not UTF-8" })?;
        if text.contains('\0') {
            return Err(WireError::Rule { what: self.what, rule: "a string holds a NUL" });
        }
        Ok(text.to_owned())
    }

    /// The remaining bytes as a string.
    pub(crate) fn rest_string(&mut self) -> Result<String, WireError> {
        self.string(zc_core::u64_from_usize(self.rest.len()))
    }

    pub(crate) const fn end(&self, rule: &'static str) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Rule { what: self.what, rule }) }
    }

    pub(crate) fn magic64(&mut self, wanted: u64) -> Result<(), WireError> {
        let found = self.u64()?;
        if found == wanted { Ok(()) } else { Err(WireError::Magic { what: self.what, found }) }
    }
}

/// Length of a string or list this crate writes itself.
///
/// # Panics
/// When it does not fit 32 bits: all such lengths are bounded far below.
#[expect(clippy::expect_used, reason = "own strings and lists are bounded far below 4 GiB")]
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("own messages are bounded far below 4 GiB")
}
