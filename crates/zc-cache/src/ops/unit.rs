//! Operations of slots and their units in flight, and the target of each completion.

use zc_core::WeuSlot;

use crate::seam::Purpose;

/// An operation of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Its header is read to evict the entries in it,
    HeaderEvict(WeuSlot),
    HeaderPrints(WeuSlot),
    /// A unit is written, clean or dirty.
    Write(WeuSlot),
    Discard(WeuSlot),
    Erase(WeuSlot),
}

impl Op {
    /// Purpose of its device operation; `None` if no client waits for it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::HeaderEvict(_) | Self::HeaderPrints(_) => Some(Purpose::HeaderRead),
            Self::Write(_) => Some(Purpose::WeuWrite),
            Self::Discard(_) | Self::Erase(_) => None,
        }
    }
}
