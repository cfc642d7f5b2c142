//! Operations of writes to origins in flight, and the target of each completion.

use zc_core::{BufId, ExtentKey, WeuSlot};

use crate::seam::Purpose;

/// An operation of the write path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A piece of a write, trim or zeroing goes to the origin.
    Piece(u64),
    /// A staged extent reads its missing parts from its stored copy.
    Merge { key: ExtentKey, slot: WeuSlot, into: BufId },
}

impl Op {
    /// Purpose of its device operation; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Merge { .. } => Some(Purpose::ExtentRead),
            Self::Piece(_) => None,
        }
    }
}
