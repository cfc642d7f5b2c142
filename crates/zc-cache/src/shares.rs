//! What volumes with a share of the cache of their own hold of it, for people and tools.

use zc_core::{Priority, VolumeId};

/// A volume's share of the cache, in write-evict units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeShare {
    /// The volume.
    pub volume: VolumeId,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Units that hold its clean content now, and nothing else or little else.
    pub units: u32,
    /// At most so many, if there is a bound.
    pub quota: Option<u32>,
    /// Content of other volumes leaves so many of them alone.
    pub reserve: u32,
    /// Whether it loses them before other volumes, or after them.
    pub priority: Priority,
}
