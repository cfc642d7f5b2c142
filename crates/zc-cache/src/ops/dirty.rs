//! Operations of dirty data in flight, and the target of each completion.

use zc_core::WeuSlot;

use crate::seam::Purpose;

/// A write of a piece of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slot: WeuSlot,
    pub(crate) number: u64,
    pub(crate) start_bytes: u32,
    pub(crate) len_bytes: u32,
    pub(crate) durable: bool,
    pub(crate) tries: u32,
}

/// An operation of the dirty layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A part of the unit that is being filled is written.
    Part(Part),
    /// Destaging reads the data to write.
    Gather { gather: u64, part: usize },
    /// Dirty data is read to check that it is readable.
    Scrub,
}

impl Op {
    /// Purpose of its device operation; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Gather { .. } | Self::Scrub => Some(Purpose::ExtentRead),
            Self::Part(_) => Some(Purpose::WeuWrite),
        }
    }
}
