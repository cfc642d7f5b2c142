//! Holdings of volumes with a share of the cache of their own, or with pins, for people and tools.

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
    /// Upper bound in units, if there is one.
    pub quota: Option<u32>,
    /// Units of it protected from content of other volumes.
    pub reserve: u32,
    /// Order in which it loses them: before other volumes, or after them.
    pub priority: Priority,
}

/// Pinned ranges of a volume, in whole extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumePins {
    /// The volume.
    pub volume: VolumeId,
    /// Bytes that its settings name.
    pub asked_bytes: u64,
    /// Bytes of these that fit the cache.
    pub kept_bytes: u64,
    /// Bytes of these that were cached for good at the last walk.
    pub safe_bytes: u64,
}
