//! The seam: events in, actions out.
//!
//! Job: the vocabulary between the [`crate::Store`] and whatever drives it. Contents never cross it: they are buffers
//! with ids, and facts about them (fingerprint, size, checksum) are values. The store's own metadata crosses as blocks.
//!
//! Rules a driver keeps:
//! - Actions are carried out in the order given. [`Action::Free`] and the memory parts of a [`Action::Fetch`] take effect
//!   at once; the rest start work whose end is reported once with the same [`OpId`], in any order.
//! - Writes that are in progress together never overlap. A flush covers the writes that ended before it was issued.
//! - A buffer that came with a request or an answer is the store's until [`Action::Free`]. The destination of a read is
//!   not.

use zc_core::{BufId, BufSlice, Codec, ErrorKind, Fingerprint, OpId, ReqId};

use crate::ids::{Place, RootId};
use crate::media::Block;
use crate::media::batch::{CatalogChange, Stored};
use crate::media::superblock::Superblock;
use crate::survey::{SurveyKind, Surveyed};

/// A request. Addresses are in chunks of the volume.
#[derive(Debug, Clone)]
pub struct Request {
    /// The driver's number; answered by [`Action::Reply`].
    pub req: ReqId,
    /// What is asked.
    pub kind: RequestKind,
}

/// What is asked. Changes take effect, and are logged, in the order in which they arrive.
#[derive(Debug, Clone)]
pub enum RequestKind {
    /// Fill the buffer with chunks of a volume or snapshot.
    Read {
        /// Which.
        root: RootId,
        /// First chunk.
        first: u64,
        /// How many; at most [`crate::limits::REQUEST_CHUNKS_MAX`].
        count: u32,
        /// Where the decoded chunks go, one after the other.
        dest: BufId,
    },
    /// Store chunks, as one change.
    Write {
        /// The volume.
        root: RootId,
        /// First chunk.
        first: u64,
        /// The chunks; at most [`crate::limits::REQUEST_CHUNKS_MAX`], and their bytes at most
        /// [`crate::limits::request_bytes_max`].
        chunks: Vec<NewChunk>,
    },
    /// Chunks hold nothing from now on, and read as zero.
    Discard {
        /// The volume.
        root: RootId,
        /// First chunk.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Make all acknowledged changes durable: a commit. Fails once with [`StoreError::Dropped`] if recovery dropped some.
    Flush,
    /// A flush for the driver itself: says nothing of what recovery dropped.
    Sync,
    /// Change volumes and snapshots.
    Catalog(CatalogChange),
    /// Ask about the whole pool as it is now. It may take long, and goes on with every event, so a driver gives ticks
    /// while [`crate::Store::is_busy`]. One runs at a time. Answered by [`Action::Surveyed`], or an error.
    Survey(SurveyKind),
    /// Tell the fingerprints of chunks (Nitro's recipe), as far as they are known.
    Recipe {
        /// Volume or snapshot.
        root: RootId,
        /// First chunk.
        first: u64,
        /// How many; at most [`crate::limits::RECIPE_CHUNKS_MAX`].
        count: u32,
    },
    /// Tell which chunks hold something; answered by [`Action::Allocation`].
    Allocation {
        /// Volume or snapshot.
        root: RootId,
        /// First chunk.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// Chunks of which all hold something, or none does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How many.
    pub chunks: u64,
    /// They hold nothing, and read as zero.
    pub is_hole: bool,
}

/// A chunk to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewChunk {
    /// All zero: nothing is stored.
    Zero,
    /// Contents.
    Data {
        /// Fingerprint of the bytes under a collision-resistant function, if it is known: contents may be shared.
        print: Option<Fingerprint>,
        /// The bytes: as many as a chunk of the volume has.
        raw: BufSlice,
    },
}

impl NewChunk {
    /// Bytes that were given.
    pub(crate) const fn raw_bytes(&self) -> u32 {
        match self {
            Self::Zero => 0,
            Self::Data { raw, .. } => raw.len_bytes,
        }
    }
}

/// An encoded chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// The stored bytes, at the start of a buffer of their own, or of the chunk itself if they are raw. No more than the
    /// chunk has.
    pub bytes: BufSlice,
    /// How they are encoded.
    pub codec: Codec,
    /// [`crate::payload_crc`] of them.
    pub crc: u32,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A request arrived.
    Submit(Request),
    /// An [`Action::ReadBlock`] ended.
    BlockRead {
        /// The operation.
        op: OpId,
        /// The block.
        result: Result<Box<Block>, ErrorKind>,
    },
    /// A write or flush ended.
    Done {
        /// The operation.
        op: OpId,
        /// Its outcome.
        result: Result<(), ErrorKind>,
    },
    /// An [`Action::Fetch`] ended: an outcome for each part.
    Fetched {
        /// The operation.
        op: OpId,
        /// [`ErrorKind::Corrupt`] where the checksum did not match.
        results: Vec<Result<(), ErrorKind>>,
    },
    /// An [`Action::Encode`] ended: an encoding for each chunk that it named.
    Encoded {
        /// The operation.
        op: OpId,
        /// Encodings.
        chunks: Vec<Encoded>,
    },
    /// Time passed. Milliseconds since any fixed point; never goes back.
    Tick {
        /// Now.
        now_ms: u64,
    },
    /// Clean now, whatever the thresholds say.
    Clean,
    /// Write the open batch although it is not full, without a commit: a client waits until it is on the device.
    WriteOut,
    /// Finish what is in line, make a checkpoint, then [`Action::Stopped`]. No request may follow.
    Stop,
}

/// A part of an [`Action::Fetch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPart {
    /// Where the bytes are and what they must be.
    pub stored: Stored,
    /// They are still in this memory, not on the device.
    pub memory: Option<BufSlice>,
    /// Bytes of the decoded result to skip in the destination.
    pub dest_offset_bytes: u32,
}

/// What becomes of fetched bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchTo {
    /// Decoded into the destination of a read; what no part covers is zero.
    Decoded(BufId),
    /// Kept as stored in a new buffer of this name for each part, counted up: the cleaner moves them.
    Stored(BufId),
    /// Only checked.
    Nowhere,
}

/// A piece of a batch.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Bytes from the start of the batch.
    pub offset_bytes: u32,
    /// What is there.
    pub data: PieceData,
}

/// Bytes of a batch.
#[derive(Debug, Clone)]
pub enum PieceData {
    /// A chunk's.
    Payload(BufSlice),
    /// A page.
    Page(Box<Block>),
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Answer a request.
    Reply {
        /// The request.
        req: ReqId,
        /// Its outcome.
        result: Result<(), StoreError>,
    },
    /// Answer a [`RequestKind::Recipe`]: a fingerprint, or none, for each chunk.
    Recipe {
        /// The request.
        req: ReqId,
        /// Fingerprints.
        prints: Vec<Option<Fingerprint>>,
    },
    /// Answer a [`RequestKind::Allocation`]: runs from its first chunk on. They may end before its last.
    Allocation {
        /// The request.
        req: ReqId,
        /// Runs.
        runs: Vec<Run>,
    },
    /// Answer a [`RequestKind::Survey`].
    Surveyed {
        /// The request.
        req: ReqId,
        /// What was found.
        surveyed: Box<Surveyed>,
    },
    /// Let go of a buffer.
    Free {
        /// The buffer.
        buf: BufId,
    },
    /// Read one block.
    ReadBlock {
        /// The operation.
        op: OpId,
        /// Byte offset on the device.
        offset_bytes: u64,
    },
    /// Read chunks, check them by length and CRC, and do with them what `to` says.
    Fetch {
        /// The operation.
        op: OpId,
        /// The chunks, in any order.
        parts: Vec<FetchPart>,
        /// What becomes of them.
        to: FetchTo,
        /// A client waits.
        urgent: bool,
    },
    /// Compress chunks and compute their CRC; the raw bytes may stand for themselves.
    Encode {
        /// The operation.
        op: OpId,
        /// The volume, whose codec is asked for.
        codec: Codec,
        /// The chunks.
        chunks: Vec<BufSlice>,
    },
    /// Write a batch: its header, its pieces, zeros between and behind them.
    WriteBatch {
        /// The operation.
        op: OpId,
        /// Byte offset on the device.
        offset_bytes: u64,
        /// Length in bytes.
        len_bytes: u32,
        /// The first block.
        header: Box<Block>,
        /// The rest.
        pieces: Vec<Piece>,
    },
    /// Write a copy of the superblock.
    WriteSuperblock {
        /// The operation.
        op: OpId,
        /// 0 or 1.
        copy: u8,
        /// What is in it.
        superblock: Box<Superblock>,
    },
    /// Discard a free segment: its contents are needed no more, and may be anything afterwards. A failure says that the
    /// device has no discards.
    Discard {
        /// The operation.
        op: OpId,
        /// Byte offset on the device.
        offset_bytes: u64,
        /// Length in bytes.
        len_bytes: u32,
    },
    /// Make the writes that have ended durable.
    FlushDevice {
        /// The operation.
        op: OpId,
    },
    /// Recovery ended: the store serves, or says why it cannot.
    Opened {
        /// The outcome.
        result: Result<(), StoreError>,
    },
    /// Everything is on the device.
    Stopped,
}

/// What went wrong, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The device failed.
    #[error("the store's device reported an error: {0}")]
    Device(ErrorKind),
    /// Stored bytes failed their check.
    #[error("stored bytes at segment {}, offset {} are damaged", .0.segment.0, .0.offset_bytes)]
    Damaged(Place),
    /// The log lacks a batch that was durable.
    #[error(
        "the store's device lost a part of the log that it had confirmed; `zcctl store accept-loss` shows the state before"
    )]
    LogLost,
    /// The end of the log was damaged when the store was opened, and nothing proves what it held.
    #[error(
        "the last changes before the store was opened are gone: its log ends in a damaged write; what was flushed less than a moment before may be among them"
    )]
    Dropped,
    /// Neither superblock can be read.
    #[error("there is no readable superblock: this is no store, or both copies are damaged")]
    NoSuperblock,
    /// No volume or snapshot of this number.
    #[error("there is no such volume or snapshot")]
    NoSuchRoot,
    /// The request is malformed, lies outside the volume, or is not for a snapshot.
    #[error("the request is not possible for this volume")]
    Invalid,
    /// The pool is full.
    #[error("the store has no space left")]
    NoSpace,
    /// Too many requests, volumes or snapshots.
    #[error("a limit of the store was reached")]
    Limit,
}

impl StoreError {
    /// For front ends.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::Device(kind) => kind,
            Self::Damaged(_) | Self::LogLost | Self::Dropped | Self::NoSuperblock => ErrorKind::Corrupt,
            Self::NoSuchRoot | Self::Invalid => ErrorKind::Invalid,
            Self::NoSpace => ErrorKind::NoSpace,
            Self::Limit => ErrorKind::Limit,
        }
    }
}
