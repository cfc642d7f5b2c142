//! The zones that faults and delays are aimed at.

use zc_cache::seam::{Action, Source};

/// A class of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    SlotRead,
    SlotWrite,
    Journal,
    Map,
    Checkpoint,
    Flush,
    OriginRead,
    OriginWrite,
    /// Hashing, compressing, comparing, what is in memory.
    Work,
}

/// Zones in which a device may be slow.
pub(crate) const SLOW: [Zone; 9] = [
    Zone::SlotRead,
    Zone::SlotWrite,
    Zone::Journal,
    Zone::Map,
    Zone::Checkpoint,
    Zone::Flush,
    Zone::OriginRead,
    Zone::OriginWrite,
    Zone::Work,
];

impl Zone {
    pub(crate) fn of(action: &Action) -> Self {
        match action {
            Action::ReadExtents { source: Source::Device, .. } | Action::ReadHeader { .. } => Self::SlotRead,
            Action::WriteWeu { .. } | Action::DiscardSlot { .. } => Self::SlotWrite,
            Action::WriteJournal { .. } => Self::Journal,
            Action::WriteRegionMap { .. } => Self::Map,
            Action::WriteCheckpoint { .. } | Action::CommitCheckpoint { .. } => Self::Checkpoint,
            Action::FlushCache { .. } => Self::Flush,
            Action::OriginRead { .. } => Self::OriginRead,
            Action::OriginWrite { .. }
            | Action::OriginTrim { .. }
            | Action::OriginZero { .. }
            | Action::OriginFlush { .. } => Self::OriginWrite,
            _ => Self::Work,
        }
    }

    pub(crate) fn lost(self) -> &'static str {
        match self {
            Self::SlotWrite => "writes lost: WEU",
            Self::Journal => "writes lost: journal",
            Self::Map => "writes lost: region map",
            _ => "writes lost: checkpoint",
        }
    }

    pub(crate) fn misdirected(self) -> &'static str {
        match self {
            Self::SlotWrite => "writes misdirected: WEU",
            Self::Journal => "writes misdirected: journal",
            Self::Map => "writes misdirected: region map",
            _ => "writes misdirected: checkpoint",
        }
    }

    pub(crate) fn replayed(self) -> &'static str {
        match self {
            Self::SlotWrite => "writes replayed: WEU",
            Self::Journal => "writes replayed: journal",
            Self::Map => "writes replayed: region map",
            _ => "writes replayed: checkpoint",
        }
    }

    pub(crate) fn stalled(self) -> &'static str {
        match self {
            Self::SlotRead => "slow: reads of slots",
            Self::SlotWrite => "slow: WEU writes",
            Self::Journal => "slow: journal",
            Self::Map => "slow: region map",
            Self::Checkpoint => "slow: checkpoint",
            Self::Flush => "slow: flush",
            Self::OriginRead => "slow: origin reads",
            Self::OriginWrite => "slow: origin writes",
            Self::Work => "slow: reduce",
        }
    }
}
