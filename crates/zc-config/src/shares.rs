//! Total of the quotas and reserves of all volumes.
//!
//! Job: report excessive ones. A size in bytes can be compared with a share only if the size of the cache is known:
//! from the file, or from the daemon that has opened the cache.
//!
//! It is independent of units. The cache rounds, and cuts reserves that still exceed it.

use zc_core::Priority;
use zc_core::limits::{CACHE_SHARES_MAX, RESERVES_PERCENT_MAX};
use zc_core::units::SizeOrShare;

use crate::key_lines::volume_key;
use crate::section::ParseState;
use crate::{CacheConfig, Config, VolumeConfig};

/// The whole, in hundredths of a per cent.
const WHOLE: u64 = 10_000;

/// Mistake in a key of a volume.
struct Wrong {
    volume: String,
    key: &'static str,
    what: String,
}

impl VolumeConfig {
    /// Returns `true` if it has a quota, a reserve or a priority of its own.
    #[must_use]
    pub fn has_share(&self) -> bool {
        let none = SizeOrShare::Bytes(0);
        self.quota != none || self.reserve != none || self.priority != Priority::Normal
    }
}

impl Config {
    /// Returns the mistake in the reserves of the volumes on a cache of this size, with file, line and key.
    #[must_use]
    pub fn reserves_mistake(&self, cache_bytes: u64) -> Option<String> {
        let Wrong { volume, key, what } = too_many_reserves(&self.volumes, Some(cache_bytes))?;
        Some(format!("{}: volume.{key}: {what}", self.key_lines.of_volume(&volume, key)))
    }
}

/// Reports mistakes that the file alone shows.
pub(crate) fn check(sheet: &mut ParseState, volumes: &[VolumeConfig], cache: &CacheConfig) {
    let cache_bytes = match cache.size {
        Some(SizeOrShare::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let above = volumes.iter().filter_map(|volume| reserve_above_quota(volume, cache_bytes));
    let found = above.chain(too_many_reserves(volumes, cache_bytes)).chain(too_many_shares(volumes));
    for Wrong { volume, key, what } in found {
        let name = volume_key(&volume, key);
        let at = sheet.key_places.iter().find(|(place, _)| *place == name).map_or(0, |(_, at)| *at);
        sheet.mistake(at, format!("volume.{key}: {what}"));
    }
}

/// Returns the share of the cache that all reserves take, in hundredths of a per cent.
pub(crate) fn reserved(volumes: &[VolumeConfig], cache_bytes: u64) -> u64 {
    let reserve_bytes = |volume: &VolumeConfig| share(volume.reserve, Some(cache_bytes)).unwrap_or(0);
    volumes.iter().map(reserve_bytes).fold(0, u64::saturating_add)
}

/// Returns a size as a share of the cache; `None` if unknown.
fn share(size: SizeOrShare, cache_bytes: Option<u64>) -> Option<u64> {
    match (size, cache_bytes) {
        (SizeOrShare::Permyriad(share), _) => Some(share),
        (SizeOrShare::Bytes(0), _) => Some(0),
        (SizeOrShare::Bytes(bytes), Some(cache_bytes)) => {
            let share = u128::from(bytes) * u128::from(WHOLE) / u128::from(cache_bytes.max(1));
            Some(u64::try_from(share).unwrap_or(u64::MAX))
        }
        (SizeOrShare::Bytes(_), None) => None,
    }
}

fn reserve_above_quota(volume: &VolumeConfig, cache_bytes: Option<u64>) -> Option<Wrong> {
    let VolumeConfig { quota, reserve, .. } = volume;
    let is_above = match (reserve, quota) {
        (_, SizeOrShare::Bytes(0)) => false,
        (SizeOrShare::Bytes(reserve), SizeOrShare::Bytes(quota)) => reserve > quota,
        _ => share(*reserve, cache_bytes)? > share(*quota, cache_bytes)?,
    };
    let what = format!("{reserve} is above the quota, which is {quota}");
    is_above.then(|| Wrong { volume: volume.name.clone(), key: "reserve", what })
}

/// Returns the first reserve that, added to those before it, exceeds the bound.
fn too_many_reserves(volumes: &[VolumeConfig], cache_bytes: Option<u64>) -> Option<Wrong> {
    let most = u64::from(RESERVES_PERCENT_MAX) * 100;
    let mut sum = 0_u64;
    for volume in volumes {
        let own = share(volume.reserve, cache_bytes).unwrap_or(0);
        sum = sum.saturating_add(own);
        if own > 0 && sum > most {
            let (sum, most) = (SizeOrShare::Permyriad(sum), SizeOrShare::Permyriad(most));
            let what = format!(
                "{} makes {sum} of the cache with the reserves above it; all together may be {most}",
                volume.reserve
            );
            return Some(Wrong { volume: volume.name.clone(), key: "reserve", what });
        }
    }
    None
}

fn too_many_shares(volumes: &[VolumeConfig]) -> Option<Wrong> {
    let most = usize::from(CACHE_SHARES_MAX);
    let beyond = volumes.iter().filter(|volume| volume.has_share()).nth(most)?;
    let none = SizeOrShare::Bytes(0);
    let key = match beyond {
        volume if volume.quota != none => "quota",
        volume if volume.reserve != none => "reserve",
        _ => "priority",
    };
    let what = format!("more than {most} volumes have a quota, a reserve or a priority");
    Some(Wrong { volume: beyond.name.clone(), key, what })
}
