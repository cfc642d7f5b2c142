//! The numbers and layouts of the protocol, written a second time on purpose.
//!
//! Job: constants and byte builders of the NBD protocol document (`doc/proto.md` of NetworkBlockDevice/nbd and its
//! `extension-ext-header` branch), and a checked cursor over received bytes.
//!
//! Invariant: nothing here comes from `zc-nbd`, so that a mistake in our codec is not mirrored by its judge.
//!
//! Out of scope: I/O, or any judgement.

use crate::stop::Stop;

pub(crate) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub(crate) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY: u32 = 0x668e_33ef;
pub(crate) const EXTENDED_REQUEST: u32 = 0x21e4_1c71;
pub(crate) const EXTENDED_REPLY: u32 = 0x6e8a_278c;

/// Handshake flags; the client's answers use the same bits.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 2;

/// Options.
pub(crate) mod opt {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const PEEK_EXPORT: u32 = 4;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META: u32 = 9;
    pub(crate) const SET_META: u32 = 10;
    pub(crate) const EXTENDED: u32 = 11;
    /// No document gives these a meaning.
    pub(crate) const UNKNOWN: u32 = 0x7a63_0001;
}

/// Replies to options.
pub(crate) mod rep {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META: u32 = 4;
    pub(crate) const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUP: u32 = ERROR + 1;
    pub(crate) const POLICY: u32 = ERROR + 2;
    pub(crate) const INVALID: u32 = ERROR + 3;
    pub(crate) const PLATFORM: u32 = ERROR + 4;
    pub(crate) const TLS_REQD: u32 = ERROR + 5;
    pub(crate) const UNKNOWN: u32 = ERROR + 6;
    pub(crate) const SHUTDOWN: u32 = ERROR + 7;
    pub(crate) const BLOCK_SIZE_REQD: u32 = ERROR + 8;
    pub(crate) const TOO_BIG: u32 = ERROR + 9;
    pub(crate) const EXT_HEADER_REQD: u32 = ERROR + 10;
}

/// Kinds of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
pub(crate) mod flag {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const DF: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
    pub(crate) const CACHE: u16 = 1 << 10;
    pub(crate) const FAST_ZERO: u16 = 1 << 11;
    pub(crate) const STATUS_PAYLOAD: u16 = 1 << 12;
    /// Bits without a meaning.
    pub(crate) const RESERVED: u16 = 0b1110_0000_0000_0000;
}

/// Commands.
pub(crate) mod cmd {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
    /// No document gives this a meaning.
    pub(crate) const UNKNOWN: u16 = 0x7a63;
}

/// Command flags.
pub(crate) mod cflag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    pub(crate) const PAYLOAD_LEN: u16 = 1 << 5;
    /// No document gives this a meaning.
    pub(crate) const UNKNOWN: u16 = 1 << 14;
}

/// Types of structured reply chunks.
pub(crate) mod chunk {
    pub(crate) const DONE: u16 = 1;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const DATA: u16 = 1;
    pub(crate) const HOLE: u16 = 2;
    pub(crate) const STATUS: u16 = 5;
    pub(crate) const STATUS_EXT: u16 = 6;
    pub(crate) const ERROR_OFFSET: u16 = 1 << 15 | 2;
    /// Set in every type that reports an error.
    pub(crate) const ERROR_BIT: u16 = 1 << 15;
}

/// Error numbers.
pub(crate) mod err {
    pub(crate) const EPERM: u32 = 1;
    pub(crate) const EIO: u32 = 5;
    pub(crate) const ENOMEM: u32 = 12;
    pub(crate) const EINVAL: u32 = 22;
    pub(crate) const ENOSPC: u32 = 28;
    pub(crate) const EOVERFLOW: u32 = 75;
    pub(crate) const ENOTSUP: u32 = 95;
    pub(crate) const ESHUTDOWN: u32 = 108;
    /// All that may appear on the wire ("Error values").
    pub(crate) const ALL: [u32; 8] = [EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN];
}

/// Bits of `base:allocation`.
pub(crate) const STATE_HOLE: u64 = 1;
pub(crate) const STATE_ZERO: u64 = 2;

/// The longest string of the protocol, in bytes ("Conventions").
pub(crate) const STRING_MAX: usize = 4096;

/// A growing message.
#[derive(Debug, Default, Clone)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// A length in 32 bits and the bytes. Lengths of this suite's own strings fit.
    pub(crate) fn counted(self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.u32(length).bytes(bytes)
    }
}

/// An option as a client sends it.
pub(crate) fn option(number: u32, data: &[u8]) -> Vec<u8> {
    Message::default().u64(IHAVEOPT).u32(number).counted(data).0
}

/// The data of INFO and GO.
pub(crate) fn info_data(name: &[u8], wanted: &[u16]) -> Vec<u8> {
    let count = u16::try_from(wanted.len()).unwrap_or(u16::MAX);
    let message = Message::default().counted(name).u16(count);
    wanted.iter().fold(message, |message, wanted| message.u16(*wanted)).0
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub(crate) fn meta_data(name: &[u8], queries: &[&str]) -> Vec<u8> {
    let count = u32::try_from(queries.len()).unwrap_or(u32::MAX);
    let message = Message::default().counted(name).u32(count);
    queries.iter().fold(message, |message, query| message.counted(query.as_bytes())).0
}

/// Bytes in hexadecimal, at most `max` of them, with the full count if some were left out.
pub(crate) fn hex(bytes: &[u8], total: usize, max: usize) -> String {
    let shown = &bytes[..bytes.len().min(max)];
    let mut text = zc_core::hex(shown);
    if total > shown.len() {
        text.push_str(&format!(".. ({total} bytes)"));
    }
    text
}

/// A cursor over bytes that a server sent. Reading past the end is the server's failure.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    what: &'a str,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(rest: &'a [u8], what: &'a str) -> Self {
        Self { rest, what }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Stop> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            let (what, left) = (self.what, self.rest.len());
            return Err(Stop::Fail(format!("{what} is too short: {count} more bytes needed, {left} left")));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let taken = self.take(N)?;
        Ok(std::array::from_fn(|index| taken[index]))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Stop> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Stop> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Stop> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Checks a string of the protocol: UTF-8, no NUL, at most 4096 bytes.
pub(crate) fn string(bytes: &[u8], what: &str) -> Result<String, Stop> {
    if bytes.len() > STRING_MAX {
        return Err(Stop::Fail(format!("{what} has {} bytes, at most 4096 are allowed", bytes.len())));
    }
    if bytes.contains(&0) {
        return Err(Stop::Fail(format!("{what} holds a NUL byte")));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| Stop::Fail(format!("{what} is not UTF-8")))
}

/// The name of a reply to an option, for messages.
pub(crate) fn reply_name(kind: u32) -> String {
    let name = match kind {
        rep::ACK => "ACK",
        rep::SERVER => "SERVER",
        rep::INFO => "INFO",
        rep::META => "META_CONTEXT",
        rep::UNSUP => "ERR_UNSUP",
        rep::POLICY => "ERR_POLICY",
        rep::INVALID => "ERR_INVALID",
        rep::PLATFORM => "ERR_PLATFORM",
        rep::TLS_REQD => "ERR_TLS_REQD",
        rep::UNKNOWN => "ERR_UNKNOWN",
        rep::SHUTDOWN => "ERR_SHUTDOWN",
        rep::BLOCK_SIZE_REQD => "ERR_BLOCK_SIZE_REQD",
        rep::TOO_BIG => "ERR_TOO_BIG",
        rep::EXT_HEADER_REQD => "ERR_EXT_HEADER_REQD",
        _ => return format!("{kind:#x}"),
    };
    name.to_owned()
}

/// The name of an error number, for messages.
pub(crate) fn error_name(number: u32) -> String {
    let name = match number {
        0 => "success",
        err::EPERM => "EPERM",
        err::EIO => "EIO",
        err::ENOMEM => "ENOMEM",
        err::EINVAL => "EINVAL",
        err::ENOSPC => "ENOSPC",
        err::EOVERFLOW => "EOVERFLOW",
        err::ENOTSUP => "ENOTSUP",
        err::ESHUTDOWN => "ESHUTDOWN",
        _ => return format!("error {number}"),
    };
    name.to_owned()
}
