//! What reads of clients and read-ahead have in flight, and where each end goes.

use crate::seam::Purpose;

/// An operation of the read way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A fill reads from the origin.
    Fill(u64),
    /// A read of a client goes past the cache.
    Direct { read: u64, turn: u64 },
    /// A hit reads stored extents.
    Hit(u64),
    /// An origin is asked for fingerprints.
    Recipe(u64),
    /// A stored extent is read to be placed anew.
    Move(u64),
}

impl Op {
    /// What the device does for it; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Hit(_) | Self::Move(_) => Some(Purpose::ExtentRead),
            Self::Fill(_) | Self::Direct { .. } | Self::Recipe(_) => None,
        }
    }
}
