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
    /// Bytes of log after which a checkpoint begins: what a restart reads at most. Fewer in a small pool:
    /// [`limits::CHECKPOINT_LOG_PART`].
    pub checkpoint_log_bytes: u64,
    /// Largest batch: one write of the device.
    pub batch_bytes_max: u32,
    /// Fingerprints in memory, 28 bytes each: a sample of all, and lists of those that streams are at.
    pub fingerprints_max: usize,
    /// Free segments, in per cent, below which the cleaner works ahead while no client writes.
    pub clean_below_percent: u8,
    /// Free segments, in per cent, at which that ends.
    pub clean_until_percent: u8,
    /// Milliseconds without a write after which the store is quiet.
    pub quiet_ms: u64,
    /// Bytes a second that the cleaner reads and writes while space is not short.
    pub clean_bytes_per_s: u64,
    /// Bring what lies side by side in a volume side by side on the device, while no client writes: for devices that
    /// seek.
    pub gather: bool,
    /// Discard free segments while no client writes.
    pub discard: bool,
    /// Recover although the device lost a part of the log.
    pub accept_loss: bool,
    /// What the places of pages and fingerprints in hash maps depend on. Clients choose contents, and must not know it.
    pub hash_key: HashKey,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache_pages: 16 << 10,
            dirty_pages_max: 2 << 10,
            checkpoint_log_bytes: 256 << 20,
            batch_bytes_max: 512 << 10,
            fingerprints_max: 1 << 20,
            clean_below_percent: 15,
            clean_until_percent: 20,
            quiet_ms: 1000,
            clean_bytes_per_s: 64 << 20,
            gather: false,
            discard: true,
            accept_loss: false,
            hash_key: HashKey::fixed(),
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

    /// Segments that a checkpoint takes at most, if so many pages were changed before it. Beside those it writes the
    /// catalog and the segment table, which it changes itself: at most all their pages.
    fn checkpoint_segments(&self, shape: Shape, changed_pages: usize) -> usize {
        let pages = changed_pages + limits::CATALOG_PAGES_MAX + limits::segment_table_pages(shape.segments);
        // A header for each batch, and where a batch does not fit a segment's end, a block of that stays empty.
        let block = limits::BLOCK_BYTES;
        let batch_pages = (self.batch_bytes_max / block - 1).clamp(1, limits::BATCH_PAGES_MAX);
        let blocks = pages + pages.div_ceil(zc_core::usize_from_u32(batch_pages));
        blocks.div_ceil(zc_core::usize_from_u32(shape.segment_bytes / block - 2))
    }

    /// Changed pages at a checkpoint: one begins as soon as there are so many, and a change may bring some more.
    const fn changed_pages_max(&self) -> usize {
        self.dirty_pages_max + limits::CHANGE_PAGES_MAX
    }

    /// Segments that only checkpoints and deletions may use. They hold
    /// - a checkpoint now;
    /// - the one of a recovery, should the power go before that one is durable. The log it replays may have changed
    ///   as many pages again: those that changed while that checkpoint was in progress;
    /// - the two segments in which the log of the recovery goes on;
    /// - the records of deletions, of which a checkpoint frees what they filled.
    #[must_use]
    pub fn floor_segments(&self, shape: Shape) -> usize {
        self.checkpoints_segments(shape) + limits::DELETION_SEGMENTS
    }

    /// Segments that nothing but checkpoints may use.
    pub(crate) fn checkpoints_segments(&self, shape: Shape) -> usize {
        let now = self.checkpoint_segments(shape, self.changed_pages_max());
        let recovery = self.checkpoint_segments(shape, 2 * self.changed_pages_max());
        now + recovery + limits::LOG_SEGMENTS
    }

    /// Segments that changes which free space may not use: the floor, and what the cleaner takes for the victim it is
    /// at.
    #[must_use]
    pub fn cleaning_segments(&self, shape: Shape) -> usize {
        self.floor_segments(shape) + limits::VICTIM_SEGMENTS_MAX
    }

    /// Segments that only contents may use which come in place of others: so a volume can be written over although
    /// another has filled the pool. What is written over becomes free, unless a snapshot has it.
    #[must_use]
    pub fn overwrite_segments(&self, shape: Shape) -> usize {
        let part = zc_core::usize_from_u32(shape.segments / limits::OVERWRITE_PART);
        part.min(limits::OVERWRITE_SEGMENTS_MAX)
    }

    /// Segments that contents may not use: the above, and room for what the cleaner moves before a checkpoint frees its
    /// victims, and for that checkpoint.
    #[must_use]
    pub fn reserve_segments(&self, shape: Shape) -> usize {
        let moved = limits::VICTIM_SEGMENTS_MAX * (limits::EMPTIED_SHORT - 1);
        let checkpoint = self.checkpoint_segments(shape, self.changed_pages_max());
        self.cleaning_segments(shape) + moved + checkpoint
    }
}

/// The size of a store's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// How many segments there are.
    pub segments: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_of_any_size_keeps_room_for_its_own_segment_table() {
        let config = Config::default();
        let shape = |segments| Shape { segment_bytes: limits::SEGMENT_BYTES_DEFAULT, segments };
        // A sweep may change a record in each page of the table: 63 MB of them at 10 TiB.
        let table_bytes = 2_621_440 / 168 * 4096_usize;
        let large = config.floor_segments(shape(2_621_440));
        assert!(large * 4_194_304 > 2 * table_bytes, "{large}");
        assert_eq!((config.floor_segments(shape(128)), config.reserve_segments(shape(128))), (12, 23));
    }

    #[test]
    fn batches_of_a_page_double_what_a_checkpoint_takes() {
        let shape = Shape { segment_bytes: 64 << 10, segments: 100 };
        let small = Config { batch_bytes_max: 8 << 10, dirty_pages_max: 8, ..Config::default() };
        let pages = 8 + limits::CHANGE_PAGES_MAX + limits::CATALOG_PAGES_MAX + 1;
        assert_eq!(small.checkpoint_segments(shape, small.changed_pages_max()), (2 * pages).div_ceil(14));
        let large = Config { batch_bytes_max: 64 << 10, ..small };
        let batches = pages.div_ceil(15);
        assert_eq!(
            large.checkpoint_segments(shape, large.changed_pages_max()),
            (pages + batches).div_ceil(14)
        );
    }
}
