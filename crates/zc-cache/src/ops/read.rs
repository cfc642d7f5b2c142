//! Operations of client reads and read-ahead in flight, and the target of each completion.

use crate::seam::Purpose;

/// An operation of the read path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Fill(u64),
    /// A client read that bypasses the cache.
    Direct {
        read: u64,
        turn: u64,
    },
    /// A hit reads stored extents.
    Hit(u64),
    /// A request to an origin for fingerprints.
    Recipe(u64),
    /// A stored extent is read for its relocation.
    Move(u64),
}

impl Op {
    /// Purpose of its device operation; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Hit(_) | Self::Move(_) => Some(Purpose::ExtentRead),
            Self::Fill(_) | Self::Direct { .. } | Self::Recipe(_) => None,
        }
    }
}
