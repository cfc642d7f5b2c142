//! The seam: requests in, work and answers out.
//!
//! Rules a driver keeps:
//! - Work is begun in the order given. Each operation's end is reported once, in any order, by [`crate::Pool::ended`].
//! - A flush covers the writes whose end was reported before it was given. Writes that are given together never overlap.
//! - Jobs may run anywhere; one that is urgent has a client that waits.

use bytes::Bytes;
use zc_core::{Codec, ErrorKind, Fingerprint, OpId, ReqId};
use zc_store::seam::{Run, StoreError};
use zc_store::{CatalogChange, RootId, SurveyKind, Surveyed};

use crate::job::{Job, Outcome};

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The driver's number; answered by [`Work::Answer`].
    pub req: ReqId,
    /// What is asked.
    pub kind: RequestKind,
}

/// What is known of a chunk that is written. The driver answers for it: the pool computes none of it again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownChunk {
    /// The BLAKE3 fingerprint of its bytes, without a key.
    pub print: Option<Fingerprint>,
    /// A codec, and bytes that decode to the chunk with it. Its level does not count.
    pub encoding: Option<(Codec, Bytes)>,
}

/// What is asked. Any byte may be the first or last of a range; ranges on borders of chunks cost least.
#[derive(Debug, Clone)]
pub enum RequestKind {
    /// Tell bytes of a volume or snapshot.
    Read {
        /// Which.
        root: RootId,
        /// First byte.
        offset_bytes: u64,
        /// How many; at most [`crate::limits::REQUEST_BYTES_MAX`].
        len_bytes: u32,
    },
    /// Store bytes.
    Write {
        /// The volume.
        root: RootId,
        /// First byte.
        offset_bytes: u64,
        /// The bytes; at most [`crate::limits::REQUEST_BYTES_MAX`].
        data: Bytes,
        /// What is known of whole chunks among them, by the chunk's number in the volume, lowest first.
        known: Vec<(u64, KnownChunk)>,
    },
    /// A range reads as zero from now on; whole chunks take no space.
    Zero {
        /// The volume.
        root: RootId,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        len_bytes: u64,
    },
    /// A range is not needed: whole chunks read as zero from now on, parts of chunks stay.
    Discard {
        /// The volume.
        root: RootId,
        /// First byte.
        offset_bytes: u64,
        /// How many.
        len_bytes: u64,
    },
    /// Make all changes durable that were answered. Fails once with [`StoreError::Dropped`] if the store was opened
    /// without changes that may have been durable.
    Flush,
    /// A flush for the driver itself: says nothing of such changes.
    Sync,
    /// Change volumes and snapshots.
    Catalog(CatalogChange),
    /// Ask about the whole pool; needs ticks to go on.
    Survey(SurveyKind),
    /// Tell the fingerprints of chunks, as far as they are known.
    Recipe {
        /// Volume or snapshot.
        root: RootId,
        /// First chunk.
        first: u64,
        /// How many; at most [`zc_store::limits::RECIPE_CHUNKS_MAX`].
        count: u32,
    },
    /// Tell which chunks hold something.
    Allocation {
        /// Volume or snapshot.
        root: RootId,
        /// First chunk.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// An operation of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceOperation {
    /// Read so many bytes, in whole blocks of 4 KiB.
    Read {
        /// Byte offset.
        offset_bytes: u64,
        /// How many.
        len_bytes: u32,
    },
    /// Write these bytes, in whole blocks of 4 KiB.
    Write {
        /// Byte offset.
        offset_bytes: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Discard whole blocks: their contents may be anything afterwards. May fail, without further consequence.
    Discard {
        /// Byte offset.
        offset_bytes: u64,
        /// Number of bytes.
        len_bytes: u32,
    },
    /// Make the writes durable that have ended.
    Flush,
}

/// What to do.
#[derive(Debug)]
pub enum Work {
    /// Carry out an operation of the device; ends with [`Ended::Read`] or [`Ended::Device`].
    Device {
        /// The operation.
        op: OpId,
        /// What.
        operation: DeviceOperation,
    },
    /// Run a job; ends with [`Ended::Job`].
    Job {
        /// The operation.
        op: OpId,
        /// What.
        job: Job,
        /// A client waits.
        urgent: bool,
    },
    /// Answer a request.
    Answer {
        /// The request.
        req: ReqId,
        /// Its outcome.
        result: Result<Answer, PoolError>,
    },
    /// Recovery ended: the pool serves, or says why it cannot.
    Opened {
        /// The outcome.
        result: Result<(), StoreError>,
    },
    /// Everything is on the device.
    Stopped,
}

/// The answer to a request that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// The bytes of a read, in pieces that follow each other.
    Bytes(Vec<Bytes>),
    /// Fingerprints, one for each chunk that was asked for; none at all when it cannot be told now.
    Recipe(Vec<Option<Fingerprint>>),
    /// Runs of chunks that hold something, and of those that do not. They may end before what was asked for.
    Allocation(Vec<Run>),
    /// What was found about the pool.
    Surveyed(Box<Surveyed>),
}

/// How an operation ended.
#[derive(Debug)]
pub enum Ended {
    /// A read of the device.
    Read(Result<Bytes, ErrorKind>),
    /// A write or flush of the device.
    Device(Result<(), ErrorKind>),
    /// A job.
    Job(Outcome),
}

/// What went wrong with a request, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{error} (root {}, byte {offset_bytes})", .root.0)]
pub struct PoolError {
    /// What.
    pub error: StoreError,
    /// The volume or snapshot; 0 where none is concerned.
    pub root: RootId,
    /// First byte of the request.
    pub offset_bytes: u64,
}

impl PoolError {
    /// For front ends.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.error.kind()
    }
}
