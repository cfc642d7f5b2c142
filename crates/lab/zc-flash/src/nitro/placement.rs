//! Placement of reduction: in the cache, inside the SSD, in both, or in neither ("Compression and SSD: Where and How?"
//! compares these for databases and file systems; here the layer above is the cache).
//!
//! The same cache of units on the same flash. An SSD that compresses lays out pages without gaps
//! ([`Scheme::Compaction`]). Its gain is free space for itself: it exposes as many pages as one that does not, because
//! no device can guarantee a compression ratio. The gain of the cache is capacity for more extents. Pages of a unit
//! with compressed extents do not compress again.

use super::weu::{self, Store};
use super::{Access, Outcome, PAGE_BYTES, Settings};
use crate::error::GeometryError;
use crate::geometry::Latencies;
use crate::packing::{Device, Scheme};
use crate::stats::Stats;

/// Reserved flash, in thousandths of the exposed flash: 17 % of the total, as in Nitro's unmodified SSD.
const OVER_PROVISIONING_PERMILLE: u32 = 205;

/// The part that reduces data: the cache, the SSD, both or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Name.
    pub name: &'static str,
    /// `true` if the cache keeps equal extents once.
    pub dedup: bool,
    /// `true` if the cache compresses.
    pub compress: bool,
    /// `true` if the SSD compresses.
    pub ssd: bool,
}

/// The choices.
pub const PLACES: [Place; 5] = [
    Place { name: "neither", dedup: false, compress: false, ssd: false },
    Place { name: "the SSD compresses", dedup: false, compress: false, ssd: true },
    Place { name: "the cache deduplicates, the SSD compresses", dedup: true, compress: false, ssd: true },
    Place { name: "the cache reduces", dedup: true, compress: true, ssd: false },
    Place { name: "both", dedup: true, compress: true, ssd: true },
];

/// Outcome of a choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// The choice.
    pub place: Place,
    /// Statistics of cache and flash.
    pub outcome: Outcome,
    /// Flash pages read per hit; none are for a WEU that is still in RAM.
    pub pages_per_hit: f64,
    /// Bytes of RAM of the SSD's map per exposed page.
    pub map_bytes: f64,
    /// Bytes that the SSD has to decompress per hit.
    pub decompressed_bytes_per_hit: f64,
}

/// The SSD, which compresses or not.
struct Ssd {
    device: Device,
    weu_pages: u32,
}

impl Store for Ssd {
    fn slots(&self) -> u32 {
        self.device.pages() / self.weu_pages
    }

    fn write(&mut self, slot: u32, sizes: &[u32]) {
        (slot * self.weu_pages..).zip(sizes).for_each(|(page, bytes)| self.device.write(page, *bytes));
    }

    fn read(&mut self, slot: u32, pages: std::ops::Range<u32>) {
        for page in pages {
            let found = self.device.read(slot * self.weu_pages + page);
            assert!(found.is_some(), "what the index names is on the SSD");
        }
    }

    fn stats(&self) -> Stats {
        self.device.counts().flash
    }
}

/// Runs accesses through the cache with one choice.
///
/// # Errors
/// The SSD cannot be that small.
pub fn row(
    place: Place,
    settings: &Settings,
    accesses: impl Iterator<Item = Access>,
) -> Result<Row, GeometryError> {
    let settings = Settings { dedup: place.dedup, compress: place.compress, ..*settings };
    let scheme = if place.ssd { Scheme::Compaction } else { Scheme::PageMapping };
    let latencies = Latencies::nitro(u64::from(settings.block_bytes));
    let device = Device::new(settings.geometry()?, latencies, OVER_PROVISIONING_PERMILLE, scheme)?;
    let ssd = Ssd { device, weu_pages: settings.weu_bytes / PAGE_BYTES };
    let (outcome, ssd) = weu::run(ssd, &settings, accesses);
    let (counts, hits) = (ssd.device.counts(), outcome.hits.max(1) as f64);
    Ok(Row {
        place,
        outcome,
        pages_per_hit: counts.read_pages as f64 / hits,
        map_bytes: ssd.device.map_bytes() as f64 / f64::from(ssd.device.pages()),
        decompressed_bytes_per_hit: counts.decompressed_bytes as f64 / hits,
    })
}

#[cfg(test)]
mod tests {
    use zc_trace::workload::{Kind, Mix, Workload};

    use super::super::accesses;
    use super::*;

    #[test]
    fn the_cache_gains_hits_and_lifetime_and_the_ssd_lifetime_only() {
        let workload = Workload {
            kind: Kind::Mix(Mix::default()),
            blocks: 1 << 18,
            requests: 80_000,
            reads: 0.2,
            shared: 0.4,
            ratio: (2.0, 0.5),
            seed: 1,
        };
        let settings = Settings::small((1 << 18) * 8192 / 50);
        let make = |place| row(place, &settings, accesses(&workload, settings.extent_bytes)).unwrap();
        let [neither, ssd, split, cache, both] = PLACES.map(make);
        let hit = |row: &Row| row.outcome.hit_ratio();
        let erasures = |row: &Row| row.outcome.flash.erasures;
        assert_eq!(neither.outcome.hits, ssd.outcome.hits);
        assert_eq!(neither.outcome.flash.host_writes, ssd.outcome.flash.host_writes);
        assert!(hit(&cache) > hit(&split) && hit(&split) > hit(&ssd), "{cache:?} {split:?} {ssd:?}");
        assert!(erasures(&ssd) * 3 < erasures(&neither) * 2, "{ssd:?} {neither:?}");
        assert!(erasures(&cache) < erasures(&ssd), "{cache:?} {ssd:?}");
        let twice = erasures(&both) as f64 / erasures(&cache) as f64;
        assert!((0.9..1.15).contains(&twice), "there is little left to gain: {twice}");
        assert_eq!(both.outcome.hits, cache.outcome.hits);
        assert!(cache.decompressed_bytes_per_hit == 0.0 && ssd.decompressed_bytes_per_hit > 4096.0);
        assert!(cache.map_bytes < ssd.map_bytes);
    }
}
