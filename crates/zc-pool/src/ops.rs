//! Operations in flight: those that the driver has, and requests that the store has.
//!
//! Job: say for each what its end needs. What it does not do: begin or end any.

use bytes::Bytes;
use zc_core::{BufId, BufSlice, Codec, OpId, ReqId};
use zc_store::RootId;

use crate::spans::Span;

/// An operation that the driver has.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// The store's block.
    Block(OpId),
    /// The store's write or flush.
    Device(OpId),
    Encode {
        op: OpId,
        codec: Codec,
        chunks: Vec<BufSlice>,
    },
    Fetch {
        fetch: OpId,
        span: Span,
    },
    Decode {
        fetch: OpId,
    },
    Examine(Chunks),
}

/// A request that the store has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Inner {
    Piece(Piece, BufId),
    Recipe(ReqId),
    /// A part of a change.
    Change(u64),
    /// The driver's change of the catalog, and the root concerned.
    Catalog(ReqId, RootId),
    /// The driver's, as it came.
    Plain(ReqId),
}

/// Bytes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) root: RootId,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

/// Of requests that concern no volume.
pub(crate) const NOWHERE: Range = Range { root: RootId(0), offset_bytes: 0, len_bytes: 0 };

impl Range {
    pub(crate) const fn end(&self) -> Option<u64> {
        self.offset_bytes.checked_add(self.len_bytes)
    }
}

/// A piece of a read that the store has or gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) root: RootId,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) dest_bytes: u32,
    pub(crate) whose: Whose,
}

/// Whose a piece is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose {
    /// Of a client's read: which of its pieces.
    Read(ReqId, usize),
    /// A chunk of which a change keeps a part.
    Edge(u64),
}

/// Whole chunks of a change on their way to the store, each with its encoding if that came along.
#[derive(Debug)]
pub(crate) struct Chunks {
    pub(crate) change: u64,
    pub(crate) first: u64,
    pub(crate) chunks: Vec<(Bytes, Option<(Codec, Bytes)>)>,
}
