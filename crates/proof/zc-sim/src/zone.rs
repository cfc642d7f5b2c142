//! Zones that faults and delays target.

use zc_cache::seam::{Action, Source};

/// Class of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    SlotRead,
    SlotWrite,
    /// Writes of slots that a client may wait for: they hold data that only the cache has.
    DirtyWrite,
    Journal,
    Map,
    Checkpoint,
    Flush,
    OriginRead,
    OriginWrite,
    /// Changes of the state directory.
    State,
    /// Hashing, compressing and comparing data in memory.
    Work,
}

/// Zones in which a device may be slow.
pub(crate) const SLOW: [Zone; 11] = [
    Zone::SlotRead,
    Zone::SlotWrite,
    Zone::Journal,
    Zone::Map,
    Zone::Checkpoint,
    Zone::Flush,
    Zone::OriginRead,
    Zone::OriginWrite,
    Zone::Work,
    Zone::DirtyWrite,
    Zone::State,
];

impl Zone {
    /// Returns `true` if the zone lies in the slots.
    pub(crate) fn is_slots(self) -> bool {
        matches!(self, Self::SlotRead | Self::SlotWrite | Self::DirtyWrite)
    }

    pub(crate) fn of(action: &Action) -> Self {
        match action {
            Action::ReadExtents { source: Source::Device, .. } | Action::ReadHeader { .. } => Self::SlotRead,
            Action::WritePart { .. } => Self::DirtyWrite,
            Action::WriteWeu { header, .. } if header.entries.iter().any(|entry| entry.dirty.is_some()) => {
                Self::DirtyWrite
            }
            Action::WriteWeu { .. } | Action::DiscardSlot { .. } => Self::SlotWrite,
            Action::WriteJournal { .. } => Self::Journal,
            Action::WriteRegionMap { .. } => Self::Map,
            Action::WriteCheckpoint { .. }
            | Action::CommitCheckpoint { .. }
            | Action::WriteImage { .. }
            | Action::ReadImage { .. } => Self::Checkpoint,
            Action::FlushCache { .. } => Self::Flush,
            Action::OriginRead { .. } => Self::OriginRead,
            Action::OriginWrite { .. }
            | Action::OriginTrim { .. }
            | Action::OriginZero { .. }
            | Action::OriginFlush { .. } => Self::OriginWrite,
            Action::Distrust { .. } => Self::State,
            _ => Self::Work,
        }
    }

    pub(crate) fn lost(self) -> &'static str {
        match self {
            Self::SlotWrite => "writes lost: WEU",
            Self::DirtyWrite => "writes lost: dirty extents",
            Self::Journal => "writes lost: journal",
            Self::Map => "writes lost: region map",
            _ => "writes lost: checkpoint",
        }
    }

    pub(crate) fn misdirected(self) -> &'static str {
        match self {
            Self::SlotWrite => "writes misdirected: WEU",
            Self::DirtyWrite => "writes misdirected: dirty extents",
            Self::Journal => "writes misdirected: journal",
            Self::Map => "writes misdirected: region map",
            _ => "writes misdirected: checkpoint",
        }
    }

    pub(crate) fn replayed(self) -> &'static str {
        match self {
            Self::SlotWrite => "writes replayed: WEU",
            Self::DirtyWrite => "writes replayed: dirty extents",
            Self::Journal => "writes replayed: journal",
            Self::Map => "writes replayed: region map",
            _ => "writes replayed: checkpoint",
        }
    }

    pub(crate) fn stalled(self) -> &'static str {
        match self {
            Self::SlotRead => "slow: reads of slots",
            Self::SlotWrite => "slow: WEU writes",
            Self::DirtyWrite => "slow: dirty extents",
            Self::Journal => "slow: journal",
            Self::Map => "slow: region map",
            Self::Checkpoint => "slow: checkpoint",
            Self::Flush => "slow: flush",
            Self::OriginRead => "slow: origin reads",
            Self::OriginWrite => "slow: origin writes",
            Self::State => "slow: state directory",
            Self::Work => "slow: reduce",
        }
    }
}
