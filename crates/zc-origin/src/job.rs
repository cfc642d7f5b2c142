//! Requests to an origin, as sequences of ring operations.
//!
//! The engine calls [`crate::Origin::start`], submits the returned operation, and passes each completion to
//! [`crate::Origin::advance`] until the job is finished. A job has at most one operation in the ring at a time.

use zc_io::{Operation, Segment, Target};

use crate::error::{OriginError, RequestClass};

/// Request to an origin. Offsets and lengths are multiples of 512 bytes.
#[derive(Debug)]
pub enum OriginRequest {
    /// Fill the target. Bytes past the origin's end read as zero.
    Read {
        /// First byte.
        offset: u64,
        /// Destination of the bytes.
        target: Target,
    },
    /// Store the segments, one after the other.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        segments: Vec<Segment>,
        /// Completes only when durable.
        fua: bool,
    },
    /// Make all finished writes durable.
    Flush,
    /// Release the range; it reads as undefined but stable data afterwards.
    Trim {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Completes only when durable.
        fua: bool,
    },
    /// Make the range read as zero.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Keep the space allocated.
        no_hole: bool,
        /// Completes only when durable.
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

    /// Returns first byte and length; 0, 0 for a flush.
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

/// Request in flight.
#[derive(Debug)]
pub struct Job {
    pub(crate) class: RequestClass,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) stage: Stage,
}

/// Stage of a job: its operation in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Read,
    /// The write of the client's bytes.
    Write {
        fua: bool,
    },
    /// A fallocate that zeroes the range.
    ZeroAtOnce {
        no_hole: bool,
        fua: bool,
    },
    /// Writing zeros up to `next`.
    ZeroByWriting {
        next: u64,
        fua: bool,
    },
    /// A discard or hole.
    Trim {
        fua: bool,
    },
    Flush,
}

/// Next action of a job.
#[derive(Debug)]
pub enum JobStep {
    /// Submit the operation; pass its completion and the job to [`crate::Origin::advance`].
    Submit(Job, Operation),
    /// The request ended.
    Done(Finished),
}

/// Completed request.
#[derive(Debug)]
pub struct Finished {
    /// Outcome.
    pub result: Result<(), OriginError>,
    /// The target of a read, with its bytes if it succeeded.
    pub target: Option<Target>,
}
