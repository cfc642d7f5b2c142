//! Messages of the transmission phase.
//!
//! Job: request headers, simple replies, chunk headers and the small chunk bodies, in the compact, structured and
//! extended forms. Invariants and bounds: see [`crate::wire`].
//!
//! It does not touch the payload of READ and WRITE, which never passes through this crate.

use super::{Reader, WireError, len_u32};
use crate::proto::limits::{CONTEXTS_MAX, EXTENTS_MAX};
use crate::proto::{
    EXTENDED_REPLY_MAGIC, EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
};

/// Negotiated header style of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HeaderStyle {
    /// Compact requests, simple replies.
    #[default]
    Simple,
    /// Compact requests, structured replies where they matter.
    Structured,
    /// 64-bit requests and reply chunks.
    Extended,
}

impl HeaderStyle {
    /// Length of a request header.
    #[must_use]
    pub const fn request_bytes(self) -> usize {
        match self {
            Self::Simple | Self::Structured => 28,
            Self::Extended => 32,
        }
    }

    /// Length of a chunk header.
    #[must_use]
    pub const fn chunk_bytes(self) -> usize {
        match self {
            Self::Simple | Self::Structured => 20,
            Self::Extended => 32,
        }
    }
}

/// Header of a request; a WRITE's payload follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// [`crate::proto::command_flag`] bits.
    pub flags: u16,
    /// [`crate::proto::command`] number.
    pub command: u16,
    /// Opaque value the reply repeats.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range; 32 bits unless the style is extended.
    pub length: u64,
}

impl RequestHeader {
    /// Appends the header. Compact headers carry at most `u32::MAX`; longer lengths are cut to it, callers check.
    pub fn encode(&self, style: HeaderStyle, out: &mut Vec<u8>) {
        let magic = if style == HeaderStyle::Extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        out.extend_from_slice(&magic.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.command.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        if style == HeaderStyle::Extended {
            out.extend_from_slice(&self.length.to_be_bytes());
        } else {
            out.extend_from_slice(&u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes());
        }
    }

    /// Decodes a header of [`HeaderStyle::request_bytes`].
    ///
    /// # Errors
    /// Too short or a wrong magic.
    pub fn decode(style: HeaderStyle, bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "a request";
        let mut reader = Reader::new(WHAT, bytes);
        let wanted = if style == HeaderStyle::Extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        let found = reader.u32()?;
        if found != wanted {
            return Err(WireError::Magic { what: WHAT, found: found.into() });
        }
        Ok(Self {
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: if style == HeaderStyle::Extended { reader.u64()? } else { reader.u32()?.into() },
        })
    }
}

/// A simple reply; the data of a successful READ follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0 or an error number.
    pub error: u32,
    /// The request's cookie.
    pub cookie: u64,
}

impl SimpleReply {
    /// Length on the wire.
    pub const BYTES: usize = 16;

    /// Appends the reply.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.error.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
    }

    /// Decodes a reply.
    ///
    /// # Errors
    /// Too short or a wrong magic.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "a simple reply";
        let mut reader = Reader::new(WHAT, bytes);
        let found = reader.u32()?;
        if found != SIMPLE_REPLY_MAGIC {
            return Err(WireError::Magic { what: WHAT, found: found.into() });
        }
        Ok(Self { error: reader.u32()?, cookie: reader.u64()? })
    }
}

/// Header of a structured or extended reply chunk; `length` bytes of body follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// [`crate::proto::chunk::FLAG_DONE`] or 0.
    pub flags: u16,
    /// [`crate::proto::chunk`] type.
    pub kind: u16,
    /// The request's cookie.
    pub cookie: u64,
    /// The request's offset; on the wire only with extended headers, else 0.
    pub offset: u64,
    /// Bytes of body that follow; 32 bits unless the style is extended.
    pub length: u64,
}

impl ChunkHeader {
    /// Appends the header. Structured headers carry at most `u32::MAX`; longer lengths are cut to it, callers check.
    pub fn encode(&self, style: HeaderStyle, out: &mut Vec<u8>) {
        let extended = style == HeaderStyle::Extended;
        let magic = if extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
        out.extend_from_slice(&magic.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        if extended {
            out.extend_from_slice(&self.offset.to_be_bytes());
            out.extend_from_slice(&self.length.to_be_bytes());
        } else {
            out.extend_from_slice(&u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes());
        }
    }

    /// Decodes a header of [`HeaderStyle::chunk_bytes`].
    ///
    /// # Errors
    /// Too short or a wrong magic.
    pub fn decode(style: HeaderStyle, bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "a reply chunk";
        let extended = style == HeaderStyle::Extended;
        let mut reader = Reader::new(WHAT, bytes);
        let wanted = if extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
        let found = reader.u32()?;
        if found != wanted {
            return Err(WireError::Magic { what: WHAT, found: found.into() });
        }
        Ok(Self {
            flags: reader.u16()?,
            kind: reader.u16()?,
            cookie: reader.u64()?,
            offset: if extended { reader.u64()? } else { 0 },
            length: if extended { reader.u64()? } else { reader.u32()?.into() },
        })
    }
}

/// Body of an `OFFSET_HOLE` chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoleChunk {
    /// First byte of the zeroes.
    pub offset: u64,
    /// Number of zeroes.
    pub length: u32,
}

impl HoleChunk {
    /// Length on the wire.
    pub const BYTES: usize = 12;

    /// Appends the body.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
    }

    /// Decodes the body.
    ///
    /// # Errors
    /// A wrong length or a hole without bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "a hole chunk";
        let mut reader = Reader::new(WHAT, bytes);
        let decoded = Self { offset: reader.u64()?, length: reader.u32()? };
        reader.end("bytes follow the hole")?;
        if decoded.length == 0 {
            return Err(WireError::Rule { what: WHAT, rule: "a hole has no bytes" });
        }
        Ok(decoded)
    }
}

/// Body of an `ERROR` or `ERROR_OFFSET` chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorChunk {
    /// The error number as sent.
    pub error: u32,
    /// Text for people, may be empty.
    pub message: String,
    /// Position of the error, for `ERROR_OFFSET`.
    pub offset: Option<u64>,
}

impl ErrorChunk {
    /// Appends the body; a longer message than 4096 bytes is cut at a character.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let message = cut(&self.message);
        out.extend_from_slice(&self.error.to_be_bytes());
        out.extend_from_slice(&u16::try_from(message.len()).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(message.as_bytes());
        if let Some(offset) = self.offset {
            out.extend_from_slice(&offset.to_be_bytes());
        }
    }

    /// Decodes the body. `with_offset` is `true` for the chunk type `ERROR_OFFSET`. An invalid message string is
    /// replaced by an empty one, because an error must not be lost over its text.
    ///
    /// # Errors
    /// Lengths that do not match, error number 0.
    pub fn decode(with_offset: bool, bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "an error chunk";
        let mut reader = Reader::new(WHAT, bytes);
        let error = reader.u32()?;
        let length = reader.u16()?;
        let text = reader.take(usize::from(length))?;
        let message = Reader::new(WHAT, text).rest_string().unwrap_or_default();
        let offset = if with_offset { Some(reader.u64()?) } else { None };
        reader.end("bytes follow the error")?;
        if error == 0 {
            return Err(WireError::Rule { what: WHAT, rule: "an error chunk says success" });
        }
        Ok(Self { error, message, offset })
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(crate::proto::limits::STRING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// One run of equal status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusExtent {
    /// Length of the run.
    pub length: u64,
    /// Meaning given by the context; for `base:allocation` [`crate::proto::STATE_HOLE`] and `STATE_ZERO`.
    pub flags: u64,
}

/// Body of a block status chunk: consecutive extents from the request's offset on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockStatus {
    /// Id of the context.
    pub context: u32,
    /// The extents.
    pub extents: Vec<StatusExtent>,
}

impl BlockStatus {
    /// Length of the body with `extents` extents.
    #[must_use]
    pub const fn body_bytes(style: HeaderStyle, extents: usize) -> usize {
        match style {
            HeaderStyle::Extended => 8 + 16 * extents,
            HeaderStyle::Simple | HeaderStyle::Structured => 4 + 8 * extents,
        }
    }

    /// Appends the body in the 64-bit form if the style is extended, else in the 32-bit form, which cuts the list
    /// at the first extent that does not fit.
    pub fn encode(&self, style: HeaderStyle, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.context.to_be_bytes());
        if style == HeaderStyle::Extended {
            out.extend_from_slice(&len_u32(self.extents.len()).to_be_bytes());
            for extent in &self.extents {
                out.extend_from_slice(&extent.length.to_be_bytes());
                out.extend_from_slice(&extent.flags.to_be_bytes());
            }
            return;
        }
        for extent in &self.extents {
            let (Ok(length), Ok(flags)) = (u32::try_from(extent.length), u32::try_from(extent.flags)) else {
                return;
            };
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&flags.to_be_bytes());
        }
    }

    /// Decodes the body.
    ///
    /// # Errors
    /// Lengths that do not match, no extent, more than 2^20 extents, an extent without bytes.
    pub fn decode(style: HeaderStyle, bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "a block status chunk";
        let rule = |rule| WireError::Rule { what: WHAT, rule };
        let mut reader = Reader::new(WHAT, bytes);
        let context = reader.u32()?;
        let extended = style == HeaderStyle::Extended;
        let announced = if extended { Some(zc_core::usize_from_u32(reader.u32()?)) } else { None };
        let body = reader.rest();
        let width = if extended { 16 } else { 8 };
        let count = body.len() / width;
        if !body.len().is_multiple_of(width) || announced.is_some_and(|announced| announced != count) {
            return Err(rule("the length does not fit the number of extents"));
        }
        if count == 0 || count > EXTENTS_MAX {
            return Err(rule("the number of extents is not within 1 and 2^20"));
        }
        let mut reader = Reader::new(WHAT, body);
        let mut extents = Vec::with_capacity(count);
        for _ in 0..count {
            let (length, flags) = if extended {
                (reader.u64()?, reader.u64()?)
            } else {
                (reader.u32()?.into(), reader.u32()?.into())
            };
            if length == 0 {
                return Err(rule("an extent has no bytes"));
            }
            extents.push(StatusExtent { length, flags });
        }
        Ok(Self { context, extents })
    }
}

/// Payload of a `BLOCK_STATUS` request with `PAYLOAD_LEN` (extended headers): the range's length and the requested
/// contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusFilter {
    /// Length of the range.
    pub length: u64,
    /// Ids of contexts.
    pub contexts: Vec<u32>,
}

impl StatusFilter {
    /// Length on the wire with `contexts` contexts.
    #[must_use]
    pub const fn body_bytes(contexts: usize) -> usize {
        8 + 4 * contexts
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.length.to_be_bytes());
        for context in &self.contexts {
            out.extend_from_slice(&context.to_be_bytes());
        }
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// A length that is not 8 + 4n, no context, more than 16 contexts.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "a block status payload";
        let mut reader = Reader::new(WHAT, bytes);
        let length = reader.u64()?;
        let ids = reader.rest();
        let count = ids.len() / 4;
        if !ids.len().is_multiple_of(4) || count == 0 || count > CONTEXTS_MAX {
            return Err(WireError::Rule {
                what: WHAT,
                rule: "the number of contexts is not within 1 and 16",
            });
        }
        let mut reader = Reader::new(WHAT, ids);
        let mut contexts = Vec::with_capacity(count);
        for _ in 0..count {
            contexts.push(reader.u32()?);
        }
        Ok(Self { length, contexts })
    }
}
