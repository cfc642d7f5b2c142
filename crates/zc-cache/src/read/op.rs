//! What reads of clients and read-ahead have in flight, and where each end goes.

use crate::clean::Clean;
use crate::device::Core;
use crate::port::Ended;
use crate::seam::Purpose;

/// An operation of the read way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A fill reads from the origin.
    Fill(u64),
    /// A read of a client goes past the cache.
    Direct { read: u64, turn: u64 },
    /// A hit reads stored extents.
    Hit(u64),
    /// An origin is asked for fingerprints.
    Recipe(u64),
}

impl Op {
    /// What the device does for it; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Hit(_) => Some(Purpose::ExtentRead),
            Self::Fill(_) | Self::Direct { .. } | Self::Recipe(_) => None,
        }
    }
}

impl Clean {
    pub(crate) fn read_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core) {
        match (op, ended) {
            (Op::Fill(fill), Ended::Origin(result)) => self.fill_done(fill, result, core),
            (Op::Direct { read, turn }, Ended::Origin(result)) => {
                self.direct_read_done(read, turn, result, core)
            }
            (Op::Hit(hit), Ended::Extents(result)) => self.hit_done(hit, result, core),
            (Op::Recipe(id), Ended::Recipe(prints)) => self.recipe_arrived(id, &prints, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
