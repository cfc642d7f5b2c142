//! Messages of the handshake.
//!
//! Job: greeting, options and option replies. Invariants and bounds: see [`crate::wire`].
//!
//! It does not decide which option is legal when.

use super::{Reader, WireError, len_u32};
use crate::proto::limits::{INFO_REQUESTS_MAX, QUERIES_MAX};
use crate::proto::{GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, info};

/// The server's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// [`crate::proto::handshake_flag`] bits.
    pub flags: u16,
}

impl Greeting {
    /// Length on the wire.
    pub const BYTES: usize = 18;

    /// Appends the greeting.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
    }

    /// Decodes a greeting.
    ///
    /// # Errors
    /// Too short, or not a newstyle NBD server.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("the server's greeting", bytes);
        reader.magic64(GREETING_MAGIC)?;
        reader.magic64(OPTION_MAGIC)?;
        Ok(Self { flags: reader.u16()? })
    }
}

/// Appends the client's 32-bit answer to the greeting.
pub fn encode_client_flags(flags: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&flags.to_be_bytes());
}

/// Header of an option; `length` bytes of data follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option, see [`crate::proto::option`].
    pub option: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionHeader {
    /// Length on the wire.
    pub const BYTES: usize = 16;

    /// Appends the header.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.option.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
    }

    /// Appends header and data of an option.
    pub fn encode_with(option: u32, data: &[u8], out: &mut Vec<u8>) {
        Self { option, length: len_u32(data.len()) }.encode(out);
        out.extend_from_slice(data);
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// Too short or a wrong magic.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("an option", bytes);
        reader.magic64(OPTION_MAGIC)?;
        Ok(Self { option: reader.u32()?, length: reader.u32()? })
    }
}

/// Header of an option reply; `length` bytes of data follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option answered.
    pub option: u32,
    /// The reply, see [`crate::proto::reply`].
    pub reply: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionReplyHeader {
    /// Length on the wire.
    pub const BYTES: usize = 20;

    /// Appends the header.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.option.to_be_bytes());
        out.extend_from_slice(&self.reply.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
    }

    /// Appends header and data of a reply.
    pub fn encode_with(option: u32, reply: u32, data: &[u8], out: &mut Vec<u8>) {
        Self { option, reply, length: len_u32(data.len()) }.encode(out);
        out.extend_from_slice(data);
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// Too short or a wrong magic.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("an option reply", bytes);
        reader.magic64(OPTION_REPLY_MAGIC)?;
        Ok(Self { option: reader.u32()?, reply: reader.u32()?, length: reader.u32()? })
    }
}

/// Answer to `EXPORT_NAME`; the only one without a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportNameReply {
    /// Size of the export.
    pub size_bytes: u64,
    /// [`crate::proto::tx_flag`] bits.
    pub flags: u16,
}

impl ExportNameReply {
    /// Length on the wire without padding.
    pub const BYTES: usize = 10;
    /// Zero bytes that follow unless both sides chose `NO_ZEROES`.
    pub const PADDING_BYTES: usize = 124;

    /// Appends the reply, padded or not.
    pub fn encode(self, padded: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.size_bytes.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        if padded {
            out.resize(out.len() + Self::PADDING_BYTES, 0);
        }
    }

    /// Decodes the reply, padding not included.
    ///
    /// # Errors
    /// Too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("the answer to EXPORT_NAME", bytes);
        Ok(Self { size_bytes: reader.u64()?, flags: reader.u16()? })
    }
}

/// Data of `INFO` and `GO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoRequest {
    /// The export; empty for the default one.
    pub export: String,
    /// [`crate::proto::info`] numbers that the client requests.
    pub infos: Vec<u16>,
}

impl GoRequest {
    /// Appends the option's data.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_string(&self.export, out);
        let count = u16::try_from(self.infos.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&count.to_be_bytes());
        for info in self.infos.iter().take(usize::from(count)) {
            out.extend_from_slice(&info.to_be_bytes());
        }
    }

    /// Decodes the option's data. Information requests beyond 256 are read past: all known ones come before.
    ///
    /// # Errors
    /// Lengths that do not match, a bad string.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("INFO or GO", bytes);
        let length = reader.u32()?;
        let export = reader.string(length.into())?;
        let count = usize::from(reader.u16()?);
        let mut infos = Vec::with_capacity(count.min(INFO_REQUESTS_MAX));
        for index in 0..count {
            let wanted = reader.u16()?;
            if index < INFO_REQUESTS_MAX {
                infos.push(wanted);
            }
        }
        reader.end("bytes follow the last information request")?;
        Ok(Self { export, infos })
    }
}

/// Data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaRequest {
    /// The export; empty for the default one.
    pub export: String,
    /// Context names or, when listing, prefixes such as `base:`.
    pub queries: Vec<String>,
}

impl MetaRequest {
    /// Appends the option's data.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_string(&self.export, out);
        out.extend_from_slice(&len_u32(self.queries.len()).to_be_bytes());
        for query in &self.queries {
            put_string(query, out);
        }
    }

    /// Decodes the option's data.
    ///
    /// # Errors
    /// Lengths that do not match, a bad string, more than 256 queries.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "a meta context option";
        let mut reader = Reader::new(WHAT, bytes);
        let length = reader.u32()?;
        let export = reader.string(length.into())?;
        let count = zc_core::usize_from_u32(reader.u32()?);
        if count > QUERIES_MAX {
            let found = zc_core::u64_from_usize(count);
            return Err(WireError::TooLong {
                what: WHAT,
                found,
                bound: zc_core::u64_from_usize(QUERIES_MAX),
            });
        }
        let mut queries = Vec::with_capacity(count);
        for _ in 0..count {
            let length = reader.u32()?;
            queries.push(reader.string(length.into())?);
        }
        reader.end("bytes follow the last query")?;
        Ok(Self { export, queries })
    }
}

/// Data of a `REP_INFO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InfoReply {
    /// Size and transmission flags.
    Export {
        /// Size of the export.
        size_bytes: u64,
        /// [`crate::proto::tx_flag`] bits.
        flags: u16,
    },
    /// Canonical name.
    Name(String),
    /// Description for people.
    Description(String),
    /// Block size constraints, all in bytes.
    BlockSize {
        /// Requests are multiples of this.
        min: u32,
        /// Requests should be multiples of this.
        preferred: u32,
        /// Largest payload.
        max: u32,
    },
    /// An unknown kind; clients ignore it.
    Other(u16),
}

impl InfoReply {
    /// Appends the reply's data; an unknown kind is written without content.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Export { size_bytes, flags } => {
                out.extend_from_slice(&info::EXPORT.to_be_bytes());
                out.extend_from_slice(&size_bytes.to_be_bytes());
                out.extend_from_slice(&flags.to_be_bytes());
            }
            Self::Name(name) => {
                out.extend_from_slice(&info::NAME.to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Self::Description(text) => {
                out.extend_from_slice(&info::DESCRIPTION.to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Self::BlockSize { min, preferred, max } => {
                out.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
                for value in [min, preferred, max] {
                    out.extend_from_slice(&value.to_be_bytes());
                }
            }
            Self::Other(kind) => out.extend_from_slice(&kind.to_be_bytes()),
        }
    }

    /// Decodes the reply's data.
    ///
    /// # Errors
    /// A length that does not fit the kind, a bad string.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        const FIXED: &str = "the length does not fit the kind of information";
        let mut reader = Reader::new("an INFO reply", bytes);
        let decoded = match reader.u16()? {
            info::EXPORT => Self::Export { size_bytes: reader.u64()?, flags: reader.u16()? },
            info::NAME => Self::Name(reader.rest_string()?),
            info::DESCRIPTION => Self::Description(reader.rest_string()?),
            info::BLOCK_SIZE => {
                Self::BlockSize { min: reader.u32()?, preferred: reader.u32()?, max: reader.u32()? }
            }
            other => {
                reader.rest();
                Self::Other(other)
            }
        };
        reader.end(FIXED)?;
        Ok(decoded)
    }
}

/// Data of a `REP_SERVER`: one export of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// Name of the export.
    pub name: String,
    /// Text for people, may be empty.
    pub description: String,
}

impl ServerEntry {
    /// Appends the reply's data.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_string(&self.name, out);
        out.extend_from_slice(self.description.as_bytes());
    }

    /// Decodes the reply's data.
    ///
    /// # Errors
    /// Lengths that do not match, a bad string.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("an entry of an export list", bytes);
        let length = reader.u32()?;
        Ok(Self { name: reader.string(length.into())?, description: reader.rest_string()? })
    }
}

/// Data of a `REP_META_CONTEXT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaContextReply {
    /// Id of a selected context; 0 when listing.
    pub id: u32,
    /// Name of the context.
    pub name: String,
}

impl MetaContextReply {
    /// Appends the reply's data.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(self.name.as_bytes());
    }

    /// Decodes the reply's data.
    ///
    /// # Errors
    /// Too short, a bad string.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("a meta context reply", bytes);
        Ok(Self { id: reader.u32()?, name: reader.rest_string()? })
    }
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&len_u32(text.len()).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
