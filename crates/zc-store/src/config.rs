//! Settings of a store while it is open. What it is on media stands in the superblock.

use zc_core::HashKey;

use crate::limits;

/// The settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Pages of all trees in memory, 4 KiB each; a few more while many requests wait for pages.
    pub cache_pages: usize,
    /// Changed pages at which a checkpoint begins.
    pub dirty_pages_max: usize,
    /// Bytes of log after which a checkpoint begins: what a restart reads at most.
    pub checkpoint_log_bytes: u64,
    /// Largest batch: one write of the device.
    pub batch_bytes_max: u32,
    /// Fingerprints in memory, 28 bytes each: a sample of all, and lists of those that streams are at.
    pub fingerprints_max: usize,
    /// Free segments, in per cent, below which the cleaner begins.
    pub clean_below_percent: u8,
    /// Free segments, in per cent, at which it ends.
    pub clean_until_percent: u8,
    /// Bytes a second that the cleaner reads and writes while space is not short.
    pub clean_bytes_per_s: u64,
    /// Recover although the device lost a part of the log.
    pub accept_loss: bool,
    /// What the places of pages and fingerprints in hash maps depend on. Clients choose contents, and must not know it.
    pub hash_key: HashKey,
    /// A deliberate bug.
    #[cfg(zc_canary)]
    pub canary: Option<Canary>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache_pages: 16 << 10,
            dirty_pages_max: 2 << 10,
            checkpoint_log_bytes: 64 << 20,
            batch_bytes_max: 512 << 10,
            fingerprints_max: 1 << 20,
            clean_below_percent: 15,
            clean_until_percent: 20,
            clean_bytes_per_s: 64 << 20,
            accept_loss: false,
            hash_key: HashKey::fixed(),
            #[cfg(zc_canary)]
            canary: None,
        }
    }
}

impl Config {
    /// Brings what is out of bounds into them.
    #[must_use]
    pub fn bounded(mut self, segment_bytes: u32) -> Self {
        self.cache_pages = self.cache_pages.max(limits::CACHE_PAGES_MIN);
        self.dirty_pages_max = self.dirty_pages_max.clamp(1, self.cache_pages / 2);
        self.batch_bytes_max = self.batch_bytes_max.clamp(2 * limits::BLOCK_BYTES, segment_bytes);
        self.clean_below_percent = self.clean_below_percent.min(90);
        self.clean_until_percent = self.clean_until_percent.clamp(self.clean_below_percent, 95);
        self
    }

    /// Segments that a checkpoint fills at most: all changed pages, those above them, and the catalog.
    const fn checkpoint_segments(&self, segment_bytes: u32) -> usize {
        let pages = self.dirty_pages_max + self.dirty_pages_max / 4 + 64;
        (pages * crate::media::BLOCK).div_ceil(zc_core::usize_from_u32(segment_bytes))
    }

    /// Segments that only checkpoints and deletions may use: a checkpoint now, one of a recovery, and the log's two.
    #[must_use]
    pub const fn floor_segments(&self, segment_bytes: u32) -> usize {
        2 * self.checkpoint_segments(segment_bytes) + 4
    }

    /// Segments that contents may not use: the floor, and room for the cleaner and for changes that free space.
    #[must_use]
    pub const fn reserve_segments(&self, segment_bytes: u32) -> usize {
        self.floor_segments(segment_bytes) + self.checkpoint_segments(segment_bytes) + 2 * limits::EMPTIED_MAX
    }
}

/// Deliberate bugs, each switched on at run time: proof that the simulator can fail. They exist only where the compiler
/// is told `--cfg zc_canary`.
#[cfg(zc_canary)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canary {
    /// S1: a flush is answered before the device's.
    EarlyFlush,
    /// S2: pages are not checked when they are read.
    TrustPages,
    /// S3: numbers that are put while a mark runs are not marked.
    NoBarrier,
}
