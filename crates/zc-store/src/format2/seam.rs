//! Seam of the store of format 2: events in, actions out.
//!
//! Job: the vocabulary between the [`super::Store`] and its driver. Contents never cross it: they are buffers with
//! numbers, and facts about them (fingerprint, size) are values. Metadata crosses as encoded bytes.
//!
//! Rules for a driver:
//! - Actions are executed in the order given. [`Action::Free`] takes effect at once; the others start work whose
//!   completion is reported once with the same [`OpId`], in any order.
//! - A flush covers the writes that were completed before it was issued.
//! - Buffers of a request belong to the store until [`Action::Free`], whatever the answer; so do those of an encoding.
//!   The destination of a read does not.

use std::sync::Arc;

use zc_core::{BufId, BufSlice, Codec, ErrorKind, Fingerprint, OpId, ReqId};

use super::Name;
use super::catalog::{CatalogChange, OrderMark};
use super::frame::FrameHeader;

/// Upper bound of the blocks of a read or write.
pub const REQUEST_BLOCKS_MAX: u32 = 256;

/// Request of a client. Addresses are in blocks.
#[derive(Debug, Clone)]
pub struct Request {
    /// Number given by the driver.
    pub req: ReqId,
    /// Kind and arguments.
    pub kind: RequestKind,
}

/// Kind of a request. Changes take effect, and are logged, in the order of their arrival.
#[derive(Debug, Clone)]
pub enum RequestKind {
    /// Fill a buffer with blocks of a volume or snapshot.
    Read {
        /// Volume or snapshot.
        root: u32,
        /// First block.
        first: u64,
        /// Number of blocks, at most [`REQUEST_BLOCKS_MAX`].
        count: u32,
        /// Buffer for the contents.
        dest: BufId,
    },
    /// Store blocks, as one change.
    Write {
        /// Volume.
        root: u32,
        /// First block.
        first: u64,
        /// Blocks, at most [`REQUEST_BLOCKS_MAX`], and so many that one segment can hold them.
        blocks: Vec<NewBlock>,
    },
    /// Blocks hold nothing from now on, and read as zeros.
    Clear {
        /// Volume.
        root: u32,
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
    },
    /// Make all answered changes durable. Fails once with [`StoreError::Dropped`] if recovery dropped commits.
    Flush,
    /// Record that all writes of a cache up to a run were given before.
    Mark {
        /// Volume.
        root: u32,
        /// Cache and run.
        mark: OrderMark,
    },
    /// Change volumes and snapshots.
    Catalog(CatalogChange),
}

/// Block to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewBlock {
    /// All zeros: nothing is stored.
    Zero,
    /// Contents.
    Data {
        /// BLAKE3 of the block.
        print: Fingerprint,
        /// The bytes of the block.
        raw: BufSlice,
    },
}

/// Payload of a frame in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Encoded bytes.
    pub bytes: BufSlice,
    /// Codec, as the frame's header has it.
    pub codec: u8,
}

/// Source of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A frame with its header on the device.
    Device {
        /// Byte offset.
        offset_bytes: u64,
        /// Bytes of the frame, rounded up to units.
        len_bytes: u32,
    },
    /// A payload that may not be written yet.
    Memory(Payload),
}

/// Blocks of one frame to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPart {
    /// Place of the frame.
    pub source: Source,
    /// Name of its first block.
    pub name: Name,
    /// Blocks that it has.
    pub blocks: u8,
    /// Positions in the frame, and blocks of the destination; none to verify the frame only.
    pub wanted: Vec<(u8, u32)>,
}

/// Event for the store.
#[derive(Debug)]
pub enum Event {
    /// A client's request.
    Submit(Request),
    /// Metadata was read.
    Read {
        /// Operation.
        op: OpId,
        /// The bytes, as many as requested.
        result: Result<Vec<u8>, ErrorKind>,
    },
    /// Frames were read and verified.
    Fetched {
        /// Operation.
        op: OpId,
        /// Result of each part; [`ErrorKind::Corrupt`] if it does not verify.
        results: Vec<Result<(), ErrorKind>>,
    },
    /// Blocks were compressed.
    Encoded {
        /// Operation.
        op: OpId,
        /// Payload of each frame, in new buffers.
        frames: Vec<Payload>,
    },
    /// A write or flush was completed.
    Done {
        /// Operation.
        op: OpId,
        /// Outcome.
        result: Result<(), ErrorKind>,
    },
    /// Time passed. A driver reports it every 10 ms while anything was written since the last proof.
    Tick {
        /// Milliseconds of a clock that never goes back.
        now_ms: u64,
    },
    /// Find segments to which nothing leads, and free them.
    Clean,
    /// Close in order: no request follows.
    Stop,
}

/// Piece of a batch.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Offset from the start of the batch.
    pub offset_bytes: u32,
    /// Bytes of the piece.
    pub data: PieceData,
}

/// Bytes of a piece.
#[derive(Debug, Clone)]
pub enum PieceData {
    /// Frame: the driver puts the sealed header before the payload.
    Frame(FrameHeader, BufSlice),
    /// Encoded node.
    Node(Arc<[u8]>),
}

/// Action of the store.
#[derive(Debug)]
pub enum Action {
    /// Answer a request.
    Reply {
        /// Request.
        req: ReqId,
        /// Outcome.
        result: Result<(), StoreError>,
    },
    /// Release a buffer.
    Free {
        /// Buffer.
        buf: BufId,
    },
    /// Read metadata.
    Read {
        /// Operation.
        op: OpId,
        /// Byte offset on the device.
        offset_bytes: u64,
        /// Number of bytes.
        len_bytes: u32,
    },
    /// Read frames, verify and decode them. Blocks that no part fills are zeros.
    Fetch {
        /// Operation.
        op: OpId,
        /// Frames.
        parts: Vec<FetchPart>,
        /// Buffer for the wanted blocks.
        dest: Option<BufId>,
    },
    /// Compress blocks together.
    Encode {
        /// Operation.
        op: OpId,
        /// Codec of the volume.
        codec: Codec,
        /// Blocks of each frame.
        frames: Vec<Vec<BufSlice>>,
    },
    /// Write a batch: head, pieces, and zeros between and behind them.
    Append {
        /// Operation.
        op: OpId,
        /// Byte offset on the device.
        offset_bytes: u64,
        /// Bytes of the batch.
        len_bytes: u32,
        /// Header and directory.
        head: Vec<u8>,
        /// Frames and nodes.
        pieces: Vec<Piece>,
    },
    /// Write a copy of the superblock.
    WriteSuperblock {
        /// Operation.
        op: OpId,
        /// Byte offset on the device.
        offset_bytes: u64,
        /// The block.
        block: Vec<u8>,
    },
    /// Make completed writes durable.
    Flush {
        /// Operation.
        op: OpId,
    },
    /// Recovery ended.
    Opened {
        /// Outcome; the last durable order mark of each volume that has one.
        result: Result<Vec<(u32, OrderMark)>, StoreError>,
    },
    /// Everything is on the device.
    Stopped,
}

/// Errors of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The device failed.
    #[error("the store's device reported an error: {0}")]
    Device(ErrorKind),
    /// Stored bytes do not verify.
    #[error("stored bytes of segment {segment}, offset {offset_bytes} are corrupt")]
    Damaged {
        /// Segment.
        segment: u64,
        /// Offset in the segment.
        offset_bytes: u64,
    },
    /// The log lacks a batch that was durable.
    #[error("the store's device lost a part of the log that it had confirmed")]
    LogLost,
    /// Recovery dropped a torn end of the log, and nothing proves its contents.
    #[error("the log ended in a damaged write when the store was opened; its last changes are gone")]
    Dropped,
    /// No copy of the superblock can be read.
    #[error("there is no readable superblock of format 2: this is no store, or both copies are corrupt")]
    NoSuperblock,
    /// No root has this number.
    #[error("there is no such volume or snapshot")]
    NoSuchRoot,
    /// The request is malformed, lies outside the volume, or is not for a snapshot.
    #[error("the request is not possible for this volume")]
    Invalid,
    /// The pool is full.
    #[error("the store has no space left")]
    NoSpace,
    /// A bound of the format was reached.
    #[error("a limit of the store was reached")]
    Limit,
}
