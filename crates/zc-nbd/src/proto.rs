//! Numbers of the NBD protocol (NetworkBlockDevice/nbd, doc/proto.md) and the crate's limits.
//!
//! Job: every magic, flag, option, command and error number under one name.
//!
//! Invariants: [`ErrorCode`] holds only the eight numbers the protocol allows on the wire.
//!
//! It does not encode or decode anything; that is [`crate::wire`].

use zc_core::{Errno, ErrorKind};

/// First eight bytes of the server's greeting, `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Magic of newstyle options, `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Magic of option replies.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic of a compact (28-byte) request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic of an extended (32-byte) request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Magic of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Magic of an extended reply chunk.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Flags of the server's greeting and of the client's answer (same bits).
pub mod handshake_flag {
    /// Fixed newstyle: unknown options get an error reply instead of a disconnect.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No 124 zero bytes after the answer to `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags: capabilities of an export.
pub mod tx_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// The export takes no writes.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is offered.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The `FUA` command flag is offered.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The export behaves like a rotating disk.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// `TRIM` is offered.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is offered.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The `DF` command flag is offered (needs structured replies).
    pub const SEND_DF: u16 = 1 << 7;
    /// Several connections see one coherent export; a flush covers all of them.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `CACHE` is offered.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The `FAST_ZERO` command flag is offered.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// `BLOCK_STATUS` takes a payload that names contexts (needs extended headers).
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Options of the handshake.
pub mod option {
    /// Choose an export, without error replies.
    pub const EXPORT_NAME: u32 = 1;
    /// End the handshake.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Upgrade to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Choose an export.
    pub const GO: u32 = 7;
    /// Request structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Request extended (64-bit) headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of option replies.
pub mod reply {
    /// The option is done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information on an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Bit that marks errors.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is unknown or not offered.
    pub const ERR_UNSUP: u32 = ERROR_BIT | 1;
    /// Forbidden by policy.
    pub const ERR_POLICY: u32 = ERROR_BIT | 2;
    /// The option's data is malformed or the option is out of place.
    pub const ERR_INVALID: u32 = ERROR_BIT | 3;
    /// Not possible on this platform.
    pub const ERR_PLATFORM: u32 = ERROR_BIT | 4;
    /// TLS must be started first.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    /// The server is stopping.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT | 7;
    /// The client must request block sizes first.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT | 8;
    /// The option's data is too large.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT | 9;
    /// Extended headers were negotiated and exclude this option.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR_BIT | 10;
}

/// Kinds of information in `INFO` replies.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Block size constraints.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands of the transmission phase.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows the header.
    pub const WRITE: u16 = 1;
    /// Leave; no reply.
    pub const DISC: u16 = 2;
    /// Make replied writes durable.
    pub const FLUSH: u16 = 3;
    /// Discard a range.
    pub const TRIM: u16 = 4;
    /// Prefetch a range.
    pub const CACHE: u16 = 5;
    /// Write zeroes without a payload.
    pub const WRITE_ZEROES: u16 = 6;
    /// Describe a range by the negotiated contexts.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod command_flag {
    /// Force unit access: durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// `WRITE_ZEROES` must provision.
    pub const NO_HOLE: u16 = 1 << 1;
    /// `READ` must be answered in one content chunk.
    pub const DF: u16 = 1 << 2;
    /// `BLOCK_STATUS` requests one extent per context.
    pub const REQ_ONE: u16 = 1 << 3;
    /// `WRITE_ZEROES` must be fast or fail with `ENOTSUP`.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// Extended headers: `length` counts a payload that follows.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Chunk types and flags of structured replies.
pub mod chunk {
    /// Flag: the last chunk of this reply.
    pub const FLAG_DONE: u16 = 1 << 0;
    /// No content.
    pub const NONE: u16 = 0;
    /// Offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// Offset and length of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// 32-bit block status of one context.
    pub const BLOCK_STATUS: u16 = 5;
    /// 64-bit block status of one context (extended headers).
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Bit that marks error chunks.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// Error and text.
    pub const ERROR: u16 = ERROR_BIT | 1;
    /// Error, text and offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// The metadata context that every server with block status has.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The metadata context of zcached's exports that tells cached content from content of the origin alone.
pub const RESIDENCY: &str = "x-zcached:residency";
/// [`RESIDENCY`]: the cache of the server has the range.
pub const STATE_CACHED: u32 = 1 << 0;
/// [`RESIDENCY`]: the range comes from the cache of a server behind the server.
pub const STATE_CACHED_BEHIND: u32 = 1 << 1;
/// `base:allocation`: the range is not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// `base:allocation`: the range reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// Bounds of the crate.
pub mod limits {
    /// Longest string the protocol allows, in bytes.
    pub const STRING_BYTES_MAX: usize = 4096;
    /// Largest payload of a READ or WRITE that clients may rely on without negotiation (32 MiB).
    pub const PAYLOAD_BYTES_MAX: u32 = zc_core::limits::REQUEST_BYTES_MAX;
    /// Default cap of one option's data a server buffers: a longest name and 15 longest queries.
    pub const OPTION_DATA_BYTES_DEFAULT: u32 = 64 << 10;
    /// Longest option a server reads past to answer `ERR_TOO_BIG`; beyond it the connection is closed.
    pub const OPTION_DRAIN_BYTES_MAX: u32 = 16 << 20;
    /// Default number of options one handshake may send.
    pub const OPTIONS_DEFAULT: u32 = 1024;
    /// Default number of requests in flight per connection.
    pub const IN_FLIGHT_DEFAULT: u32 = 1024;
    /// Default payload bytes (read and write) in flight per connection: four largest requests.
    pub const IN_FLIGHT_BYTES_DEFAULT: u64 = 4 * (PAYLOAD_BYTES_MAX as u64);
    /// Default length of unsent output at which a session stops taking input.
    pub const OUTPUT_BYTES_DEFAULT: usize = 1 << 20;
    /// Most metadata contexts of one export.
    pub const CONTEXTS_MAX: usize = 16;
    /// Longest payload of a `BLOCK_STATUS`: effect length and every context once.
    pub const STATUS_PAYLOAD_BYTES_MAX: u64 = 8 + 4 * (CONTEXTS_MAX as u64);
    /// Most queries of one meta context option that are kept; more are an invalid option.
    pub const QUERIES_MAX: usize = 256;
    /// Most information requests of one `INFO`/`GO` that are evaluated.
    pub const INFO_REQUESTS_MAX: usize = 256;
    /// Most extents of one block status chunk (proto.md).
    pub const EXTENTS_MAX: usize = 1 << 20;
    /// Most extents a server of this crate puts into one chunk: 512 KiB at 8 bytes.
    pub const EXTENTS_SENT_MAX: usize = 1 << 16;
    /// Longest chunk body a client buffers (block status, errors): 2^20 64-bit extents and a header.
    pub const CHUNK_BODY_BYTES_MAX: u32 = (16 << 20) + 8;
    /// Longest option reply a client buffers: two longest strings and their lengths.
    pub const OPTION_REPLY_BYTES_MAX: u32 = 16 << 10;
    /// Most replies to one option a client reads.
    pub const OPTION_REPLIES_MAX: u32 = 1 << 16;
    /// Most bytes of all replies to one option a client reads.
    pub const OPTION_REPLIES_BYTES_MAX: u64 = 16 << 20;
    /// Most disjoint pieces of one read a client tracks while chunks arrive out of order.
    pub const READ_PIECES_MAX: usize = 4096;
    /// Largest preferred or minimum block size that makes sense on the wire (proto.md: minimum <= 64 KiB).
    pub const BLOCK_MIN_BYTES_MAX: u32 = 64 << 10;
}

/// The error numbers NBD allows on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ErrorCode {
    /// 1: not permitted, e.g. a write to a read-only export.
    #[error("operation not permitted")]
    Perm,
    /// 5: I/O error.
    #[error("I/O error")]
    Io,
    /// 12: out of memory; servers should not send it.
    #[error("out of memory")]
    NoMem,
    /// 22: invalid request.
    #[error("invalid request")]
    Inval,
    /// 28: no space, or a write past the end.
    #[error("no space left on the device")]
    NoSpc,
    /// 75: value too large.
    #[error("value too large")]
    Overflow,
    /// 95: not supported; only for `FAST_ZERO`.
    #[error("not supported")]
    NotSup,
    /// 108: the server is stopping.
    #[error("server is shutting down")]
    Shutdown,
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Perm => 1,
            Self::Io => 5,
            Self::NoMem => 12,
            Self::Inval => 22,
            Self::NoSpc => 28,
            Self::Overflow => 75,
            Self::NotSup => 95,
            Self::Shutdown => 108,
        }
    }

    /// The code for a number received from a peer; numbers outside the protocol become [`ErrorCode::Inval`].
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Perm,
            5 => Self::Io,
            12 => Self::NoMem,
            28 => Self::NoSpc,
            75 => Self::Overflow,
            95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Inval,
        }
    }

    /// The code for a host errno: `EDQUOT` and `EFBIG` are `ENOSPC`, `EROFS` and `EACCES` are `EPERM`;
    /// `ENOMEM`, `ENOTSUP` (kept for `FAST_ZERO`) and everything NBD has no number for are `EIO`.
    #[must_use]
    pub const fn from_errno(errno: Errno) -> Self {
        match errno.0 {
            1 | 13 | 30 => Self::Perm,
            22 => Self::Inval,
            27 | 28 | 122 => Self::NoSpc,
            75 => Self::Overflow,
            108 => Self::Shutdown,
            _ => Self::Io,
        }
    }
}

impl From<ErrorKind> for ErrorCode {
    fn from(kind: ErrorKind) -> Self {
        Self::from_errno(kind.errno())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn must_15_only_the_eight_numbers_reach_the_wire() {
        let legal = [1, 5, 12, 22, 28, 75, 95, 108];
        for errno in 0..200 {
            let code = ErrorCode::from_errno(Errno(errno));
            assert!(legal.contains(&code.number()), "errno {errno}");
            assert_ne!(code, ErrorCode::NoMem, "errno {errno}: servers should not send ENOMEM");
            assert_ne!(code, ErrorCode::NotSup, "errno {errno}: ENOTSUP is for FAST_ZERO only");
        }
        for number in legal {
            assert_eq!(ErrorCode::from_number(number).number(), number);
        }
        assert_eq!(ErrorCode::from_number(4711), ErrorCode::Inval);
    }

    #[test]
    fn must_15_quota_and_file_size_errors_are_no_space() {
        assert_eq!(ErrorCode::from_errno(Errno(122)), ErrorCode::NoSpc);
        assert_eq!(ErrorCode::from_errno(Errno(27)), ErrorCode::NoSpc);
        assert_eq!(ErrorCode::from(ErrorKind::ReadOnly), ErrorCode::Perm);
        assert_eq!(ErrorCode::from(ErrorKind::Corrupt), ErrorCode::Io);
        assert_eq!(ErrorCode::from(ErrorKind::Limit), ErrorCode::Io);
    }
}
