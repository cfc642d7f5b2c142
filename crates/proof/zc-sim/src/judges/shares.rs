//! Shares of the cache: the shares that a seed draws, and a check that they hold at every step.
//!
//! Job: watch the usage of volumes with a quota or a reserve after each event. A quota is exceeded only by units that
//! moved, or until enough has been released after it shrank; insertion never raises usage above it. A reserve is used
//! only for its own volume or for dirty data, and the manager counts both.
//!
//! It does not track the owner of each unit.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use zc_cache::config::ShareConfig;
use zc_cache::{CacheManager, VolumeShare};
use zc_core::units::SizeOrShare;
use zc_core::{Priority, VolumeId};
use zc_format::Geometry;

use super::Judge;

/// Judge of shares: the state after the previous event.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    seen: Option<SharesBefore>,
}

#[derive(Debug, Clone)]
struct SharesBefore {
    shares: BTreeMap<VolumeId, VolumeShare>,
    /// Number of units that moved to another volume's account.
    moved: u64,
    /// Number of uses of a reserve that are allowed.
    excused: u64,
    is_loaded: bool,
}

impl SharesBefore {
    fn of(manager: &CacheManager) -> Self {
        let stats = manager.stats();
        Self {
            shares: manager.shares().into_iter().map(|share| (share.volume, share)).collect(),
            moved: stats.units_moved,
            excused: stats.evictions_within_reserve
                + stats.evictions_for_quota
                + stats.evictions_for_erasure
                + stats.device_write_errors,
            is_loaded: manager.is_loaded(),
        }
    }
}

impl Judge for Shares {
    fn fork(&self) -> Box<dyn Judge> {
        Box::new(Self::default())
    }

    fn begins(&mut self) {
        self.seen = None;
    }

    fn handled(&mut self, manager: &CacheManager) -> Option<String> {
        if self.seen.is_none() && manager.shares().is_empty() {
            return None;
        }
        let now = SharesBefore::of(manager);
        let before = self.seen.replace(now.clone())?;
        if !before.is_loaded || !manager.is_healthy() {
            return None;
        }
        now.shares.values().find_map(|share| {
            let earlier = before.shares.get(&share.volume)?;
            let came = now.moved - before.moved;
            // One event may insert up to the quota, and then have units move.
            let breaks_quota = share
                .quota
                .is_some_and(|quota| u64::from(share.units) > u64::from(earlier.units.max(quota)) + came);
            let breaks_reserve = share.units < earlier.units
                && share.units < share.reserve
                && share.reserve == earlier.reserve
                && came == 0
                && now.excused == before.excused;
            let bound = if breaks_quota {
                "exceeds its quota"
            } else if breaks_reserve {
                "lost content of its reserve"
            } else {
                return None;
            };
            Some(format!("a volume {bound}: {share:?}, before {earlier:?}"))
        })
    }
}

/// Draws a share of a cache with this layout.
pub(crate) fn draw(rng: &mut Pcg64Mcg, geometry: &Geometry) -> ShareConfig {
    let slots = u64::from(geometry.slots);
    let mut size = |most: u64| {
        let units = rng.random_range(1..=most.max(1));
        let bytes = SizeOrShare::Bytes(units * u64::from(geometry.weu_bytes));
        let share = SizeOrShare::Permyriad(units * 10_000 / slots);
        rng.random_bool(0.5).then(|| if rng.random_bool(0.5) { bytes } else { share })
    };
    let (quota, reserve) = (size(slots / 2), size(slots / 3));
    let priority =
        [Priority::Low, Priority::Normal, Priority::Normal, Priority::High][rng.random_range(0..4)];
    ShareConfig { quota, reserve, priority }
}
