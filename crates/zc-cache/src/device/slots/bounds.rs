//! Bounds of a class in whole units.

use zc_core::Priority;

use crate::config::ShareConfig;

/// Minimum units of a quota: one being filled, and one to read from.
const QUOTA_UNITS_MIN: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Maximum number of its units; `None`: unbounded.
    pub(crate) quota: Option<u32>,
    /// Number of units protected from other classes.
    pub(crate) reserve: u32,
    /// Order in which classes lose units, lowest first.
    pub(crate) priority: Priority,
}

impl Bounds {
    pub(super) const DEFAULT: Self = Self { quota: None, reserve: 0, priority: Priority::Normal };

    /// Bounds in a cache of `slots` slots; a quota is at least [`QUOTA_UNITS_MIN`], and a reserve is at most the
    /// quota.
    pub(super) fn new(share: &ShareConfig, slots: u32, weu_bytes: u32) -> Self {
        let cache_bytes = u64::from(slots) * u64::from(weu_bytes);
        let units = |size: zc_core::units::SizeOrShare| {
            u32::try_from(size.of(cache_bytes) / u64::from(weu_bytes)).unwrap_or(u32::MAX)
        };
        let quota = share.quota.map(|size| units(size).max(QUOTA_UNITS_MIN));
        let reserve = share.reserve.map_or(0, units).min(quota.unwrap_or(u32::MAX)).min(slots);
        Self { quota, reserve, priority: share.priority }
    }
}
