//! What insertions have in flight, and where each end goes.

use crate::seam::Purpose;

/// An operation of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Hash(u64),
    Compress(u64),
    /// What is stored under the same fingerprint is read,
    CompareRead(u64),
    /// and compared.
    Compare(u64),
}

impl Op {
    /// What the device does for it; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::CompareRead(_) => Some(Purpose::ExtentRead),
            Self::Hash(_) | Self::Compress(_) | Self::Compare(_) => None,
        }
    }
}
