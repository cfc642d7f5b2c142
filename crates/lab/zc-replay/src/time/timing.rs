//! What a replay in time is told: devices, processors, and how requests come.

use super::profile::Profile;
use crate::work::HitReads;

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
    /// From so many clients, each of which waits for its answer.
    Closed {
        /// How many.
        clients: u32,
    },
    /// At the times of the trace, so many times as fast.
    Open {
        /// How many times.
        speed: f64,
    },
}

/// What a replay in time needs besides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Devices and processors.
    pub profile: Profile,
    /// How requests come.
    pub arrival: Arrival,
    /// How much smaller than in the profile the write memory of the array is, as the trace is smaller than what the
    /// array was bought for.
    pub memory_scale: f64,
    /// How extents are read.
    pub hits: HitReads,
}
