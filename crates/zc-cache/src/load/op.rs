//! What the load after a start has in flight, and where each end goes.

use zc_core::WeuSlot;

use crate::device::Core;
use crate::port::Ended;
use crate::seam::Purpose;
use crate::write_back::WriteBack;

/// An operation of the load or of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A header is read.
    Header(WeuSlot),
    /// A sample is read from the origin
    ProbeOrigin(u64),
    /// and from the cache device,
    ProbeRead(u64),
    /// and compared,
    ProbeCompare(u64),
    /// or hashed where zeros are expected.
    ProbeHash(u64),
}

impl Op {
    /// What the device does for it; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::Header(_) => Some(Purpose::HeaderRead),
            Self::ProbeRead(_) => Some(Purpose::ExtentRead),
            Self::ProbeOrigin(_) | Self::ProbeCompare(_) | Self::ProbeHash(_) => None,
        }
    }
}

impl WriteBack {
    pub(crate) fn load_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core) {
        match (op, ended) {
            (Op::Header(slot), Ended::Header(result)) => {
                core.device.header_loaded(slot, result, &mut core.base)
            }
            (Op::ProbeOrigin(id), Ended::Origin(result)) => self.probe_read(id, result.is_ok(), core),
            (Op::ProbeRead(id), Ended::Extents(result)) => self.probe_ours_read(id, result, core),
            (Op::ProbeCompare(id), Ended::Compared(equal)) => self.probe_ended(id, Some(equal), core),
            (Op::ProbeHash(id), Ended::Hashed(digest)) => self.probe_hashed(id, digest, core),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
