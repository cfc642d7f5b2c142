//! Settings of a replay in time: devices, processors, and arrival of requests.

use super::profile::Profile;
use crate::work::HitReads;

/// Arrival of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
    /// A number of clients, each of which waits for its answer.
    Closed {
        /// Number of clients.
        clients: u32,
    },
    /// The times of the trace, accelerated.
    Open {
        /// Acceleration.
        speed: f64,
    },
}

/// Settings of a replay in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Devices and processors.
    pub profile: Profile,
    /// Arrival of requests.
    pub arrival: Arrival,
    /// Factor for the array's write memory, as the trace is smaller than the data of such an array.
    pub memory_scale: f64,
    /// Manner of reading extents.
    pub hits: HitReads,
}
