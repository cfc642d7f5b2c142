//! Operations of durable metadata in flight.

use crate::seam::Purpose;

/// An operation of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    JournalWrite,
    JournalFlush,
    MapWrite,
    MapFlush,
    CheckpointChunk,
    CheckpointFlush,
    CheckpointCommit,
    CheckpointCommitFlush,
    /// A part of the index image is written.
    Image,
    StopFlush,
}

impl Op {
    /// Purpose of its device operation.
    pub(crate) const fn purpose(self) -> Purpose {
        match self {
            Self::JournalWrite => Purpose::Journal,
            Self::MapWrite => Purpose::RegionMap,
            Self::CheckpointChunk | Self::CheckpointCommit => Purpose::Checkpoint,
            Self::Image => Purpose::IndexImage,
            Self::JournalFlush
            | Self::MapFlush
            | Self::CheckpointFlush
            | Self::CheckpointCommitFlush
            | Self::StopFlush => Purpose::Flush,
        }
    }
}
