//! What writes to origins have in flight, and where each end goes.

use zc_core::{BufId, ExtentKey, WeuSlot};

use crate::clean::Clean;
use crate::device::Core;
use crate::port::Ended;
use crate::seam::Purpose;
use crate::write_back::WriteBack;

/// An operation of the write way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A piece of a write, trim or zeroing goes to the origin.
    Piece(u64),
    /// A staged extent reads what it lacks from its stored copy.
    Merge { key: ExtentKey, slot: WeuSlot, into: BufId },
}

impl Op {
    /// What the device does for it; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Merge { .. } => Some(Purpose::ExtentRead),
            Self::Piece(_) => None,
        }
    }
}

impl WriteBack {
    pub(crate) fn write_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core, clean: &mut Clean) {
        match (op, ended) {
            (Op::Piece(write), Ended::Origin(result)) => self.piece_done(write, result, core, clean),
            (Op::Merge { key, slot, into }, Ended::Extents(result)) => {
                clean.merge_done(key, slot, into, result, core);
            }
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
