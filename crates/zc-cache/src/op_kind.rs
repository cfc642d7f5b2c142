//! What an operation in flight is for: each component names its own.
//!
//! Job: one type for all of them, and the one place where the end of an operation finds its component.
//!
//! What it does not do: know what the operations of a component are.

use zc_core::VolumeId;

use crate::manager::CacheManager;
use crate::port::Ended;
use crate::seam::Purpose;
use crate::{insert, load, origin, persist, read, weu, write, write_back};

/// What an operation in flight is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpKind {
    Read(read::Op),
    Write(write::Op),
    Origin(origin::Op),
    Insert(insert::Op),
    Dirty(write_back::Op),
    Weu(weu::Op),
    Persist(persist::Op),
    Load(load::Op),
    /// The distrust of a volume, or of all, is recorded outside the cache device.
    Distrust(Option<VolumeId>),
}

impl OpKind {
    /// What the device does for an operation; `None` if the device has no part in it, or no client waits for it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Read(op) => op.purpose(),
            Self::Write(op) => op.purpose(),
            Self::Insert(op) => op.purpose(),
            Self::Dirty(op) => op.purpose(),
            Self::Weu(op) => op.purpose(),
            Self::Persist(op) => Some(op.purpose()),
            Self::Load(op) => op.purpose(),
            Self::Origin(_) | Self::Distrust(_) => None,
        }
    }

    /// Whether the device has it.
    pub(crate) const fn is_at_device(self) -> bool {
        self.purpose().is_some() || matches!(self, Self::Weu(weu::Op::Discard(_)))
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

impl From<insert::Op> for OpKind {
    fn from(op: insert::Op) -> Self {
        Self::Insert(op)
    }
}

impl From<write_back::Op> for OpKind {
    fn from(op: write_back::Op) -> Self {
        Self::Dirty(op)
    }
}

impl From<weu::Op> for OpKind {
    fn from(op: weu::Op) -> Self {
        Self::Weu(op)
    }
}

impl From<persist::Op> for OpKind {
    fn from(op: persist::Op) -> Self {
        Self::Persist(op)
    }
}

impl From<load::Op> for OpKind {
    fn from(op: load::Op) -> Self {
        Self::Load(op)
    }
}

impl CacheManager {
    /// An operation ended; nothing of it is in flight any more.
    pub(crate) fn op_ended(&mut self, kind: OpKind, ended: Ended) {
        match (kind, ended) {
            (OpKind::Read(op), ended) => self.clean.read_op_ended(op, ended, &mut self.core),
            (OpKind::Write(op), ended) => {
                self.dirty.write_op_ended(op, ended, &mut self.core, &mut self.clean)
            }
            (OpKind::Insert(op), ended) => self.clean.insert_op_ended(op, ended, &mut self.core),
            (OpKind::Dirty(op), ended) => {
                self.dirty.dirty_op_ended(op, ended, &mut self.core, &mut self.clean)
            }
            (OpKind::Weu(op), ended) => self.dirty.weu_op_ended(op, ended, &mut self.core, &mut self.clean),
            (OpKind::Load(op), ended) => self.dirty.load_op_ended(op, ended, &mut self.core),
            (OpKind::Origin(origin::Op::Flush(volume)), Ended::Origin(result)) => {
                self.origin_flushed(volume, result);
            }
            (OpKind::Persist(op), Ended::Device(result)) => self.persist_done(op, result),
            (OpKind::Distrust(volume), Ended::Device(result)) => self.distrust_done(volume, result),
            (kind, ended) => panic!("{kind:?} ended as {ended:?}"),
        }
    }
}
