//! Total size of the pinned ranges of all volumes.
//!
//! Job: report pins that exceed the cache. The check needs the sizes of cache and volumes, from the file or from the
//! daemon.
//!
//! It is independent of extents and units. The cache rounds, and skips pins that still exceed it.

use core::ops::Range;

use zc_core::limits::{PINS_PERCENT_MAX, RESERVES_PERCENT_MAX};
use zc_core::units::{ByteSize, SizeOrShare};

use crate::key_lines::volume_key;
use crate::section::ParseState;
use crate::shares;
use crate::{CacheConfig, Config, VolumeConfig};

/// Pins that exceed the cache.
struct Wrong {
    volume: String,
    what: String,
}

impl Config {
    /// Returns the mistake in the pins of the volumes on a cache of this size, with file, line and key. `volume_bytes`
    /// returns the size of a volume, if known.
    #[must_use]
    pub fn pins_mistake(
        &self,
        cache_bytes: u64,
        volume_bytes: impl Fn(&str) -> Option<u64>,
    ) -> Option<String> {
        let Wrong { volume, what } = too_much(&self.volumes, cache_bytes, volume_bytes)?;
        Some(format!("{}: volume.pin: {what}", self.key_lines.of_volume(&volume, "pin")))
    }
}

/// Reports mistakes that the file alone shows.
pub(crate) fn check(sheet: &mut ParseState, volumes: &[VolumeConfig], cache: &CacheConfig) {
    let Some(SizeOrShare::Bytes(cache_bytes)) = cache.size else { return };
    if let Some(Wrong { volume, what }) = too_much(volumes, cache_bytes, |_| None) {
        let name = volume_key(&volume, "pin");
        let at = sheet.key_places.iter().find(|(place, _)| *place == name).map_or(0, |(_, at)| *at);
        sheet.mistake(at, format!("volume.pin: {what}"));
    }
}

/// Returns the pinned bytes of a volume. A range without an end counts as empty while the volume's size is unknown.
fn pinned_bytes(volume: &VolumeConfig, volume_bytes: Option<u64>) -> u64 {
    let known = |span: &zc_core::units::ByteSpan| match (volume_bytes, span.end_bytes) {
        (Some(bytes), _) => span.of(bytes),
        (None, Some(end)) => span.of(end),
        (None, None) => 0..0,
    };
    let mut ranges: Vec<Range<u64>> = volume.pins.iter().map(known).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut sum, mut end) = (0_u64, 0);
    for range in ranges {
        sum += range.end.saturating_sub(range.start.max(end));
        end = end.max(range.end);
    }
    sum
}

/// Returns the first volume whose pins, added to those before it, exceed the bound.
fn too_much(
    volumes: &[VolumeConfig],
    cache_bytes: u64,
    volume_bytes: impl Fn(&str) -> Option<u64>,
) -> Option<Wrong> {
    let most = SizeOrShare::Permyriad(u64::from(PINS_PERCENT_MAX) * 100).of(cache_bytes);
    let mut sum = 0_u64;
    let mut last = None;
    for volume in volumes {
        let own = pinned_bytes(volume, volume_bytes(&volume.name));
        if own == 0 {
            continue;
        }
        sum = sum.saturating_add(own);
        last = Some(&volume.name);
        if sum > most {
            let (own, sum, cache) = (ByteSize(own), ByteSize(sum), ByteSize(cache_bytes));
            let what = format!(
                "{own} makes {sum} with the pins above it; a cache of {cache} keeps {PINS_PERCENT_MAX} %, {}, at most",
                ByteSize(most)
            );
            return Some(Wrong { volume: volume.name.clone(), what });
        }
    }
    // Pins take a quarter more, for overwritten data.
    let share = u128::from(sum) * 5 / 4 * 10_000 / u128::from(cache_bytes.max(1));
    let taken = u64::try_from(share).unwrap_or(u64::MAX);
    let reserved = shares::reserved(volumes, cache_bytes);
    if reserved > 0 && taken.saturating_add(reserved) > u64::from(RESERVES_PERCENT_MAX) * 100 {
        let (taken, reserved) = (SizeOrShare::Permyriad(taken), SizeOrShare::Permyriad(reserved));
        let what = format!(
            "pins take {taken} of the cache, with a quarter more for what is overwritten, and reserves {reserved}; \
             together they may take {RESERVES_PERCENT_MAX} %"
        );
        return Some(Wrong { volume: last?.clone(), what });
    }
    None
}
