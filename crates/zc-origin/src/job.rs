//! One request to an origin and the ring operations it takes.
//!
//! The engine calls [`crate::Origin::start`], submits the operation it gets, and hands each completion to
//! [`crate::Origin::advance`] until the job is finished. A job has at most one operation in the ring at a time.

use zc_io::{Operation, Segment, Target};

use crate::error::{OriginError, RequestClass};

/// What an origin is asked for. Offsets and lengths are multiples of 512 bytes.
#[derive(Debug)]
pub enum OriginRequest {
    /// Fill the target. Bytes past the origin's end read as zero.
    Read {
        /// First byte.
        offset: u64,
        /// Where the bytes go.
        target: Target,
    },
    /// Store the segments, one after the other.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        segments: Vec<Segment>,
        /// Done only when durable.
        fua: bool,
    },
    /// Make all finished writes durable.
    Flush,
    /// The range is no longer needed; what it reads afterwards is undefined but stable.
    Trim {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Done only when durable.
        fua: bool,
    },
    /// The range reads as zero from now on.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Keep the space allocated.
        no_hole: bool,
        /// Done only when durable.
        fua: bool,
    },
}

impl OriginRequest {
    pub(crate) fn class(&self) -> RequestClass {
        match self {
            Self::Read { .. } => RequestClass::Read,
            Self::Write { .. } => RequestClass::Write,
            Self::Flush => RequestClass::Flush,
            Self::Trim { .. } => RequestClass::Trim,
            Self::WriteZeroes { .. } => RequestClass::Zero,
        }
    }

    /// First byte and length; 0, 0 for a flush.
    #[must_use]
    pub fn extent(&self) -> (u64, u64) {
        match self {
            Self::Read { offset, target } => (*offset, zc_core::u64_from_usize(target.len_bytes())),
            Self::Write { offset, segments, .. } => {
                let len = segments.iter().map(|segment| zc_core::u64_from_usize(segment.len_bytes())).sum();
                (*offset, len)
            }
            Self::Trim { offset, len, .. } | Self::WriteZeroes { offset, len, .. } => (*offset, *len),
            Self::Flush => (0, 0),
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Job {
    pub(crate) class: RequestClass,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) stage: Stage,
}

/// Where a job is: the operation in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A read.
    Read,
    /// The write of the client's bytes.
    Write { fua: bool },
    /// A fallocate that makes the range zero.
    ZeroAtOnce { no_hole: bool, fua: bool },
    /// Writing zeros up to `next`.
    ZeroByWriting { next: u64, fua: bool },
    /// A discard or hole.
    Trim { fua: bool },
    /// The flush that ends the job.
    Flush,
}

/// What to do next.
#[derive(Debug)]
pub enum Step {
    /// Submit the operation; bring its completion and the job to [`crate::Origin::advance`].
    Submit(Job, Operation),
    /// The request ended.
    Done(Finished),
}

/// The end of a request.
#[derive(Debug)]
pub struct Finished {
    /// Its outcome.
    pub result: Result<(), OriginError>,
    /// The target of a read, with its bytes if it succeeded.
    pub target: Option<Target>,
}
