//! Store of a seed.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use zc_cache::config::VolumeConfig;
use zc_store::Config;
use zc_store::config::Shape;

use super::PoolFaults;

/// Bytes of a segment; small, so that limits are reached soon.
pub(crate) const SEGMENT_BYTES: u32 = 64 << 10;
/// Share of seeds that have a store.
const SHARE: f64 = 0.35;

#[derive(Debug, Clone)]
pub(crate) struct PoolSetup {
    /// For each volume, `true` if it is in the store.
    in_store: Vec<bool>,
    pub(crate) chunk_shift: u8,
    pub(crate) faults: PoolFaults,
    spare_segments: usize,
    clean_below_percent: u8,
    cache_pages: usize,
    batch_bytes_max: u32,
}

impl PoolSetup {
    /// Draws the store from a separate generator, so that other seeds keep their schedules.
    pub(crate) fn random(seed: u64, volumes: &[VolumeConfig], extent_bytes: u32) -> Option<Self> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5354_4f52);
        if !rng.random_bool(SHARE) {
            return None;
        }
        let mut faults = PoolFaults::default();
        match rng.random_range(0..10) {
            0 => faults.errors = 0.002,
            1 => faults.rot = 0.012,
            _ => {}
        }
        // All volumes fit with each segment two thirds full; snapshots soon fill the rest.
        let bytes: u64 = volumes.iter().map(|volume| volume.size_bytes).sum();
        let needed = (bytes * 3 / 2).div_ceil(u64::from(SEGMENT_BYTES)) as usize;
        Some(Self {
            in_store: (0..volumes.len()).map(|volume| volume == 0 || rng.random_bool(0.7)).collect(),
            chunk_shift: if rng.random_bool(0.7) {
                extent_bytes.ilog2() as u8
            } else {
                rng.random_range(12..=14)
            },
            faults,
            spare_segments: needed + rng.random_range(6..14),
            clean_below_percent: [15, 60, 90][rng.random_range(0..3)],
            cache_pages: [32, 200][rng.random_range(0..2)],
            batch_bytes_max: [16 << 10, 64 << 10][rng.random_range(0..2)],
        })
    }

    pub(crate) fn holds(&self, volume: usize) -> bool {
        self.in_store[volume]
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            cache_pages: self.cache_pages,
            dirty_pages_max: 12,
            checkpoint_log_bytes: 400_000,
            batch_bytes_max: self.batch_bytes_max,
            fingerprints_max: 500,
            clean_below_percent: self.clean_below_percent,
            clean_until_percent: 95,
            // The cleaner works ahead all the time, or only when it must.
            quiet_ms: if self.clean_below_percent == 60 { 1000 } else { 0 },
            clean_bytes_per_s: 4 << 20,
            ..Config::default()
        }
        .bounded(SEGMENT_BYTES)
    }

    /// Returns the device size: the reserves, and the segments that hold all volumes besides them.
    pub(crate) fn device_bytes(&self) -> usize {
        let shape = |segments: usize| Shape { segment_bytes: SEGMENT_BYTES, segments: segments as u32 };
        let config = self.config();
        let before = config.reserve_segments(shape(0)) + self.spare_segments;
        // The overwrite reserve is a share of all segments, itself included.
        let segments = before + config.overwrite_segments(shape(before)) + 1;
        (128 << 10) + segments * SEGMENT_BYTES as usize
    }
}
