//! Purposes of operations in flight, by component.
//!
//! Job: one type for all of them, below all components, so that the port can keep them.
//!
//! Out of scope: routing completions to the component (`manager` does).

pub(crate) mod dirty;
pub(crate) mod load;
pub(crate) mod meta;
pub(crate) mod origin;
pub(crate) mod read;
pub(crate) mod reduce;
pub(crate) mod unit;
pub(crate) mod write;

use zc_core::VolumeId;

use crate::seam::Purpose;

/// Purpose of an operation in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpKind {
    Read(read::Op),
    Write(write::Op),
    Origin(origin::Op),
    Reduce(reduce::Op),
    Dirty(dirty::Op),
    Weu(unit::Op),
    Persist(meta::Op),
    Load(load::Op),
    /// The distrust of a volume, or of all, is recorded outside the cache device.
    Distrust(Option<VolumeId>),
}

impl OpKind {
    /// Purpose of its device operation; `None` if the device has no part in it, or no client waits for it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Read(op) => op.purpose(),
            Self::Write(op) => op.purpose(),
            Self::Reduce(op) => op.purpose(),
            Self::Dirty(op) => op.purpose(),
            Self::Weu(op) => op.purpose(),
            Self::Persist(op) => Some(op.purpose()),
            Self::Load(op) => op.purpose(),
            Self::Origin(_) | Self::Distrust(_) => None,
        }
    }

    /// Returns `true` if the device has it.
    pub(crate) const fn is_at_device(self) -> bool {
        self.purpose().is_some() || matches!(self, Self::Weu(unit::Op::Discard(_)))
    }
}

impl From<read::Op> for OpKind {
    fn from(op: read::Op) -> Self {
        Self::Read(op)
    }
}

impl From<write::Op> for OpKind {
    fn from(op: write::Op) -> Self {
        Self::Write(op)
    }
}

impl From<origin::Op> for OpKind {
    fn from(op: origin::Op) -> Self {
        Self::Origin(op)
    }
}

impl From<reduce::Op> for OpKind {
    fn from(op: reduce::Op) -> Self {
        Self::Reduce(op)
    }
}

impl From<dirty::Op> for OpKind {
    fn from(op: dirty::Op) -> Self {
        Self::Dirty(op)
    }
}

impl From<unit::Op> for OpKind {
    fn from(op: unit::Op) -> Self {
        Self::Weu(op)
    }
}

impl From<meta::Op> for OpKind {
    fn from(op: meta::Op) -> Self {
        Self::Persist(op)
    }
}

impl From<load::Op> for OpKind {
    fn from(op: load::Op) -> Self {
        Self::Load(op)
    }
}
