//! What dirty data has in flight, and where each end goes.

use crate::clean::Clean;
use crate::device::Core;
use crate::port::Ended;
use crate::seam::Purpose;
use crate::write_back::WriteBack;
use crate::write_back::dirty_unit::Part;

/// An operation of the dirty layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Hash(u64),
    Compress(u64),
    /// A stored content that may be shared proves itself,
    Proof(u64),
    /// and is compared.
    Compare(u64),
    /// A part of the unit that is being filled is written.
    Part(Part),
    /// Destaging reads what it writes.
    Gather {
        gather: u64,
        part: usize,
    },
    /// Dirty data is read to see whether that works.
    Scrub,
}

impl Op {
    /// What the device does for it; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Proof(_) | Self::Gather { .. } | Self::Scrub => Some(Purpose::ExtentRead),
            Self::Part(_) => Some(Purpose::WeuWrite),
            Self::Hash(_) | Self::Compress(_) | Self::Compare(_) => None,
        }
    }
}

impl WriteBack {
    pub(crate) fn dirty_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core, clean: &mut Clean) {
        match (op, ended) {
            (Op::Hash(job), Ended::Hashed(digest)) => self.dirty_hashed(job, digest, core, clean),
            (Op::Compress(job), Ended::Compressed(stored_bytes)) => {
                self.dirty_compressed(job, stored_bytes, core, clean)
            }
            (Op::Proof(job), Ended::Extents(result)) => self.shared_proved(job, result, core, clean),
            (Op::Compare(job), Ended::Compared(equal)) => self.dirty_compared(job, equal, core, clean),
            (Op::Part(part), Ended::Device(result)) => self.part_written(part, result, core),
            (Op::Gather { gather, part }, Ended::Extents(result)) => {
                self.gather_read_done(gather, part, result, core, clean);
            }
            (Op::Scrub, Ended::Extents(result)) => self.scrub_read_done(result, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
