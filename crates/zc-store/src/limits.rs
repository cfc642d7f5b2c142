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
/// Fewest segments: the log's two, the reserve and something to store.
pub const SEGMENTS_MIN: u32 = 16;
/// Smallest chunk.
pub const CHUNK_BYTES_MIN: u32 = zc_core::limits::EXTENT_BYTES_MIN;
/// Largest chunk.
pub const CHUNK_BYTES_MAX: u32 = zc_core::limits::EXTENT_BYTES_MAX;
/// Most volumes and snapshots together. RAM: 128 bytes each.
pub const ROOTS_MAX: u16 = 4096;
/// Most chunks of one request: their records, 88 bytes each at most, fit one batch header (4032 bytes).
pub const REQUEST_CHUNKS_MAX: u32 = 32;
/// Most chunks whose fingerprints are asked for at once: those of a leaf of a map.
pub const RECIPE_CHUNKS_MAX: u32 = 504;
/// Most chunks of one volume: four levels of 504 in a map.
pub const VOLUME_CHUNKS_MAX: u64 = 504 * 504 * 504 * 504;
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
/// Segments that are emptied before a checkpoint frees them.
pub const EMPTIED_MAX: usize = 4;
/// What cleaning a segment must give: a twentieth of it (moving more than 19 times what is gained is not worth it), and
/// its share of the pages that the checkpoint behind it writes.
pub const fn victim_gain_bytes_min(segment_bytes: u32) -> u32 {
    segment_bytes / 20 + 4 * BLOCK_BYTES
}
/// Memory of a segment: 40 bytes, and an entry of 16 in an ordered set that is two thirds full.
pub const SEGMENT_RAM_BYTES: usize = 40 + 24;
/// Memory of a cached page: the block, and its entries in the maps of the cache.
pub const PAGE_RAM_BYTES: usize = 4096 + 120;
