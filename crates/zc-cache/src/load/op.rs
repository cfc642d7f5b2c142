//! What the load after a start has in flight, and where each end goes.

use zc_core::WeuSlot;

use crate::manager::CacheManager;
use crate::port::Ended;
use crate::seam::Purpose;

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

impl CacheManager {
    pub(crate) fn load_op_ended(&mut self, op: Op, ended: Ended) {
        match (op, ended) {
            (Op::Header(slot), Ended::Header(result)) => {
                self.core.device.header_loaded(slot, result, &mut self.core.base)
            }
            (Op::ProbeOrigin(id), Ended::Origin(result)) => self.probe_read(id, result.is_ok()),
            (Op::ProbeRead(id), Ended::Extents(result)) => self.probe_ours_read(id, result),
            (Op::ProbeCompare(id), Ended::Compared(equal)) => self.probe_ended(id, Some(equal)),
            (Op::ProbeHash(id), Ended::Hashed(digest)) => self.probe_hashed(id, digest),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
