//! Operations of the reduction of an extent in flight.

use crate::seam::Purpose;

/// Layer of the extent that is reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Clean,
    Dirty,
}

/// A step that takes its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReduceStep {
    Hash,
    /// The content stored under the same fingerprint is read,
    Read,
    Compare,
    Compress,
}

/// A step of a job of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) owner: Owner,
    pub(crate) job: u64,
    pub(crate) step: ReduceStep,
}

impl Op {
    /// Purpose of its device operation; `None` if the device has no part in it.
    pub(crate) const fn purpose(self) -> Option<Purpose> {
        match self.step {
            ReduceStep::Read => Some(Purpose::ExtentRead),
            ReduceStep::Hash | ReduceStep::Compare | ReduceStep::Compress => None,
        }
    }
}
