//! What slots and their units have in flight, and where each end goes.

use zc_core::WeuSlot;

use crate::clean::Clean;
use crate::device::Core;
use crate::port::Ended;
use crate::seam::Purpose;
use crate::write_back::WriteBack;

/// An operation of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Its header is read to evict what it names,
    HeaderEvict(WeuSlot),
    /// or for the fingerprints.
    HeaderPrints(WeuSlot),
    /// A unit is written, clean or dirty.
    Write(WeuSlot),
    Discard(WeuSlot),
}

impl Op {
    /// What the device does for it; `None` if no client waits for it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self {
            Self::HeaderEvict(_) | Self::HeaderPrints(_) => Some(Purpose::HeaderRead),
            Self::Write(_) => Some(Purpose::WeuWrite),
            Self::Discard(_) => None,
        }
    }
}

impl WriteBack {
    pub(crate) fn weu_op_ended(&mut self, op: Op, ended: Ended, core: &mut Core, clean: &mut Clean) {
        match (op, ended) {
            (Op::HeaderEvict(slot), Ended::Header(result)) => {
                core.device.evict_with_header(slot, result, &mut core.base)
            }
            (Op::HeaderPrints(slot), Ended::Header(result)) => self.header_read(slot, &result, core, clean),
            (Op::Write(slot), Ended::Device(result)) => self.weu_written(slot, result, core),
            (Op::Discard(slot), Ended::Device(_)) => core.device.discarded(slot),
            (op, ended) => panic!("{op:?} ended as {ended:?}"),
        }
    }
}
