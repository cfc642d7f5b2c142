//! What insertions have in flight, and where each end goes.

use crate::clean::Clean;
use crate::device::Core;
use crate::port::Ended;
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

impl Clean {
    pub(crate) fn insert_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core) {
        match (op, ended) {
            (Op::Hash(job), Ended::Hashed(digest)) => self.hashed(job, digest, core),
            (Op::Compress(job), Ended::Compressed(stored_bytes)) => self.compressed(job, stored_bytes, core),
            (Op::CompareRead(job), Ended::Extents(result)) => self.compare_read_done(job, result, core),
            (Op::Compare(job), Ended::Compared(equal)) => self.compared(job, equal, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
