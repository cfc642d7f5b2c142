//! What volumes with a share of the cache of their own, or with pins, hold of it, for people and tools.

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

/// What is pinned of a volume, in whole extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumePins {
    /// The volume.
    pub volume: VolumeId,
    /// Bytes that its settings name.
    pub asked_bytes: u64,
    /// Of those, what the cache has room for.
    pub kept_bytes: u64,
    /// Of those, what was cached for good when the cache looked last.
    pub safe_bytes: u64,
}
