//! Every bound of the store, with its arithmetic.

/// Block: the unit of metadata, of writes and of checksums.
pub const BLOCK_BYTES: u32 = zc_core::limits::BLOCK_BYTES;
/// Smallest segment: sixteen blocks, for simulations.
pub const SEGMENT_BYTES_MIN: u32 = 64 << 10;
/// Largest segment.
pub const SEGMENT_BYTES_MAX: u32 = 64 << 20;
/// Default segment (Nitro's and LSVD's order of magnitude): some seeks cost little beside its transfer.
pub const SEGMENT_BYTES_DEFAULT: u32 = 4 << 20;
/// Most segments of one store: 4 TiB of the smallest, 64 TiB of the default ones. RAM: [`SEGMENT_RAM_BYTES`] each.
pub const SEGMENTS_MAX: u32 = 1 << 24;
/// Largest count that a superblock may have: of batches, rewrites and epochs. At a million a second it is reached in
/// 146,000 years.
pub const COUNT_MAX: u64 = 1 << 62;
/// Most openings: their batch numbers, which begin at 2^32 times that, are counts.
pub const SESSIONS_MAX: u64 = 1 << 30;
/// Batch numbers between the end of a log and the first of the next session: more than were ever in flight.
pub const SESSION_GAP: u64 = 1 << 16;
/// Numbers of chunks, for each byte of the pool one in so many. A chunk takes 57 bytes at least, its record among them;
/// the rest is for numbers that a mark has yet to find free. Sets of numbers take an eighth of that in bytes.
pub const CHUNK_NUMBER_BYTES: u64 = 32;
/// Numbers of map pages, likewise. A map page takes 4112 bytes.
pub const PAGE_NUMBER_BYTES: u64 = 512;
/// Numbers of either kind in the smallest pool.
pub const NUMBERS_MIN: u64 = 1 << 16;
/// Fewest segments: the log's two, the reserve and something to store.
pub const SEGMENTS_MIN: u32 = 16;
/// Milliseconds without another commit after which the last one is proven.
pub const PROOF_MS: u64 = 10;
/// Pages that cannot be read and that changes pass over; of more, changes get an error. RAM: 64 bytes each.
pub const LOST_PAGES_MAX: usize = 1 << 16;
/// Chunks that are known to be damaged, so that nothing is shared with them. RAM: 16 bytes each. The chunk table knows of
/// more.
pub const DAMAGED_CHUNKS_MAX: usize = 1 << 16;
/// Smallest chunk.
pub const CHUNK_BYTES_MIN: u32 = zc_core::limits::EXTENT_BYTES_MIN;
/// Largest chunk.
pub const CHUNK_BYTES_MAX: u32 = zc_core::limits::EXTENT_BYTES_MAX;
/// Most volumes and snapshots together. RAM: 128 bytes each.
pub const ROOTS_MAX: u16 = 4096;
/// Most stored bytes of one request in segments of this size: its records and contents are in one batch, which has a
/// header of a block.
#[must_use]
pub const fn request_bytes_max(segment_bytes: u32) -> u32 {
    segment_bytes - BLOCK_BYTES
}
/// Most chunks of one request: their records, 88 bytes each at most, fit one batch header (4032 bytes).
pub const REQUEST_CHUNKS_MAX: u32 = 32;
/// Most chunks whose fingerprints are asked for at once: those of a leaf of a map.
pub const RECIPE_CHUNKS_MAX: u32 = 504;
/// Most runs of an answer about holes, with as many pages looked at: at 8 KiB a chunk one of data is up to 4 MiB long.
pub const ALLOCATION_RUNS_MAX: usize = 64;
/// Most chunks of one volume.
pub const VOLUME_CHUNKS_MAX: u64 = zc_core::limits::STORE_CHUNKS_PER_VOLUME_MAX;
/// Changes that may wait in line; a driver that sends more is told so.
pub const CHANGES_MAX: usize = 4096;
/// Reads in progress; a driver that sends more is told so.
pub const READS_MAX: usize = 4096;
/// Fewest pages in the cache. The budget is soft: pages that a waiting request has used stay, so that it comes to its
/// end.
pub const CACHE_PAGES_MIN: usize = 8;
/// Chunks that the cleaner moves at a time.
pub const MOVES_MAX: usize = 32;
/// Longest name of a volume or snapshot.
pub const NAME_BYTES_MAX: usize = zc_core::limits::VOLUME_NAME_BYTES_MAX;
/// Damaged addresses after which a scrub answers: it goes on where it was when it is asked again.
pub const DAMAGE_MAX: usize = 1024;
/// Segments that are emptied before the log is made durable for their sake, if there is room for what is moved: a flush
/// of the device then costs little beside the moves.
pub const RELEASED_MIN: usize = 4;
/// Segments that are emptied before a checkpoint frees them, if the log alone cannot and there is room for what is moved.
pub const EMPTIED_MAX: usize = 16;
/// Checkpoints in a row that bring no change that waits for space nearer to it, after which none is waited for.
pub const FRUITLESS_MAX: u32 = 4;
/// Segments that are emptied while a change waits for room: the reserve has room for moving so many.
pub const EMPTIED_SHORT: usize = 4;
/// Segments that the log takes for moving what a victim holds: not quite one is full of contents, and where a batch
/// does not fit the end of one, another is begun.
pub const VICTIM_SEGMENTS_MAX: usize = 2;
/// Part of the pool, one in so many segments, that is kept for what comes in place of other contents,
pub const OVERWRITE_PART: u32 = 32;
/// and at most so many: a gibibyte of the default size, which outlasts a round of the cleaner.
pub const OVERWRITE_SEGMENTS_MAX: usize = 256;
/// Segments of the log of a store that was opened: the one it is in, and the one that its headers name as next.
pub const LOG_SEGMENTS: usize = 2;
/// Segments for the records of deletions while nothing else has room: one that is full of them, and the next. The first
/// is free after a checkpoint.
pub const DELETION_SEGMENTS: usize = 2;
/// Part of the pool that the log between two checkpoints may take: one in so many bytes,
pub const CHECKPOINT_LOG_PART: u64 = 8;
/// but not less than that.
pub const CHECKPOINT_LOG_BYTES_MIN: u64 = 64 << 20;
/// Part of the pool that a round of the cleaner has to give while clients write, one in so many segments: that much
/// shares the walk over all maps. Less would cost more walks. More would be kept free in vain: what is free holds no
/// garbage, and the less garbage there is, the more live contents lie in each victim.
pub const ROUND_PART: u32 = 64;
/// Fewest segments that a round of the cleaner has to give while clients write.
pub const ROUND_SEGMENTS_MIN: usize = 2;
/// Segments that are kept free for what it moves before a checkpoint frees its victims, beside what the reserve has for
/// that: at most so many, and at most one of so many.
pub const MOVING_SEGMENTS: usize = 8;
/// See [`MOVING_SEGMENTS`].
pub const MOVING_PART: u32 = 32;
/// What the cleaner reads and writes for each byte that clients write, as a power of 2: when a round begins in time, and
/// when none of the segments is left that it was to free. The latter is enough for victims that are 98 % live.
pub const PACE_SHIFTS: [usize; 2] = [1, 6];
/// Bytes that the cleaner may owe before clients wait for it: a few milliseconds of an SSD.
pub const OWED_BYTES_MAX: u64 = 1 << 20;
/// What is owed beyond this is forgiven, so that no change waits for long: while the cleaner is in time, and while it is
/// not.
pub const OWED_BYTES_LIMITS: [u64; 2] = [4 << 20, 16 << 20];
/// Of a victim that is cleaned ahead of need, the part that has to be garbage: one in so many bytes.
pub const AHEAD_GAIN_PART: u32 = 4;
/// What is gathered together: twice what a disk transfers in the time of as many jumps as may stay, when contents
/// compress two to one.
pub const GATHER_BYTES: u64 = 16 << 20;
/// Jumps in a window that are left as they are: five movements of a disk's arm take as long as its transfer.
pub const GATHER_JUMPS_MAX: u32 = 4;
/// What a disk passes over is no jump: a track or so.
pub const GATHER_NEAR_BYTES: u64 = 1 << 20;
/// What is read at once to be gathered: jumps,
pub const GATHER_READ_JUMPS: u32 = 8;
/// or bytes: together about a tenth of a second of a disk.
pub const GATHER_READ_BYTES: u64 = 2 << 20;
/// Windows to be looked at: 1 TiB that is written between two pauses. RAM: about 24 bytes each.
pub const GATHER_WINDOWS_MAX: usize = 1 << 16;
/// Free segments above the reserve at which cleaning becomes urgent: the log's, which contents have filled by the time
/// the first victim is free.
pub const URGENT_SEGMENTS: usize = LOG_SEGMENTS;
/// Pages that one change may change, none of which was changed before: a write of 32 chunks has two paths of 4 map
/// pages, for each map page a path of 5 in the page table, for each chunk a path of 5 in the chunk table (heights of
/// tables for 2^38 numbers). All other changes and steps of the cleaner have fewer.
pub const CHANGE_PAGES_MAX: usize = 8 + 8 * 5 + 32 * 5;
/// Pages of the catalog: 133 leaves of 31 records for [`ROOTS_MAX`], and one above.
pub const CATALOG_PAGES_MAX: usize = 134;
/// Pages of a batch: their records, 24 bytes each, fit its header.
pub const BATCH_PAGES_MAX: u32 = 168;
/// Numbers of chunks and of map pages that a pool of so many bytes may have given: none from these on.
#[must_use]
pub const fn numbers_max(pool_bytes: u64) -> [u64; 2] {
    [NUMBERS_MIN + pool_bytes / CHUNK_NUMBER_BYTES, NUMBERS_MIN + pool_bytes / PAGE_NUMBER_BYTES]
}
/// Levels of a table with so many numbers.
#[must_use]
pub const fn table_height(numbers: u64, per_leaf: u64) -> u32 {
    let (mut height, mut pages) = (1, numbers.div_ceil(per_leaf));
    while pages > 1 {
        pages = pages.div_ceil(252);
        height += 1;
    }
    height
}
/// Pages of the segment table of so many segments: leaves of 168 records, and levels of 252 pointers above.
#[must_use]
pub const fn segment_table_pages(segments: u32) -> usize {
    table_pages(segments as u64, 168)
}
/// Pages of a table with so many numbers, if each leaf is there.
#[must_use]
pub const fn table_pages(numbers: u64, per_leaf: u64) -> usize {
    let mut level = numbers.div_ceil(per_leaf);
    let mut pages = level;
    while level > 1 {
        level = level.div_ceil(252);
        pages += level;
    }
    zc_core::usize_from_u64(pages)
}
/// What cleaning a segment must give: a twentieth of it (moving more than 19 times what is gained is not worth it), and
/// its share of the pages that the checkpoint behind it writes.
pub const fn victim_gain_bytes_min(segment_bytes: u32) -> u32 {
    segment_bytes / 20 + 4 * BLOCK_BYTES
}
/// Memory of a segment: 40 bytes, and an entry of 16, or of 4 if it is free, in an ordered set that is two thirds full.
pub const SEGMENT_RAM_BYTES: usize = 40 + 24;
/// Memory of a cached page: the block, and its entries in the maps of the cache.
pub const PAGE_RAM_BYTES: usize = 4096 + 120;
