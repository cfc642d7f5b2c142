//! Operations of origins in flight beside reads and writes.

use zc_core::VolumeId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Flush(VolumeId),
}
