//! Cached contents of a range, for people and tools (block status).
//!
//! Job: divide a volume into runs of content held by the cache, of zeros recorded in it, and of content that only the
//! origin has.
//!
//! Invariants: a query changes nothing (no recency, no counter, no clean-up), takes a bounded number of steps, and
//! the runs have no gap. An extent written in part is reported as a read of the same range would find it. The answer
//! is a moment's: a later write or eviction may change it.
//!
//! Out of scope: checking on the device that the content is still whole, and detecting holes of the origin.

/// Extents inspected in one call; the answer covers less than was requested when it takes more.
pub const RESIDENCY_EXTENTS_MAX: u64 = 1 << 14;

/// Number of runs from which on no further extent is inspected: dirty sectors may be scattered.
pub(crate) const RESIDENCY_RUNS_MAX: usize = 1024;

/// Acknowledged data that the origin of a volume may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OriginLag {
    /// The origin has everything.
    Nothing,
    /// Dirty data as in [`crate::CacheManager::residency`].
    Dirty,
    /// Anything: dirty data is out of reach, not determined in full, or being dropped.
    Unknown,
}

/// Source of the current content of a piece of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Residency {
    /// From the origin alone.
    OriginOnly,
    /// From the cache, device or memory.
    Cached,
    /// The cache has a record that it reads as zeros.
    Zero,
    /// From the cache, and the origin does not have it.
    Dirty,
}

/// A piece of a volume in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidencyRun {
    /// Its length in bytes, at least 1.
    pub len_bytes: u64,
    /// Its state.
    pub residency: Residency,
}

pub(crate) fn push(runs: &mut Vec<ResidencyRun>, len_bytes: u64, residency: Residency) {
    match runs.last_mut() {
        Some(last) if last.residency == residency => last.len_bytes += len_bytes,
        _ if len_bytes > 0 => runs.push(ResidencyRun { len_bytes, residency }),
        _ => {}
    }
}
