//! Operations of the load after a start, and the target of each completion.

use zc_core::WeuSlot;

use crate::seam::Purpose;

/// An operation of the load or of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Header(WeuSlot),
    /// A piece of the index image is read.
    Image(u64),
    /// A sample is read from the origin.
    ProbeOrigin(u64),
    /// The stored content of a sample is read.
    ProbeRead(u64),
    ProbeCompare(u64),
    /// A sample of zeros on the origin is hashed.
    ProbeHash(u64),
}

impl Op {
    /// Purpose of its device operation; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Header(_) => Some(Purpose::HeaderRead),
            Self::Image(_) => Some(Purpose::IndexImage),
            Self::ProbeRead(_) => Some(Purpose::ExtentRead),
            Self::ProbeOrigin(_) | Self::ProbeCompare(_) | Self::ProbeHash(_) => None,
        }
    }
}
