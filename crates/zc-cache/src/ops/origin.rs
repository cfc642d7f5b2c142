//! Operations of origins in flight beside reads and writes.

use zc_core::VolumeId;

/// An operation of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Its flush.
    Flush(VolumeId),
}
