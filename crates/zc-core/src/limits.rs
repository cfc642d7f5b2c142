//! Bounds that several crates share, with their arithmetic. Those of one crate stand in its own `limits`, or beside
//! what they bound.

/// Smallest extent.
pub const EXTENT_BYTES_MIN: u32 = 4 << 10;
/// Largest extent: one 128 KiB request, the paper's largest.
pub const EXTENT_BYTES_MAX: u32 = 128 << 10;
/// Default extent: the median I/O size of the traces in Nitro 3.1.
pub const EXTENT_BYTES_DEFAULT: u32 = 8 << 10;
/// Sectors in the largest extent: 128 KiB / 512 B.
pub const SECTORS_PER_EXTENT_MAX: usize = 256;

/// Smallest WEU. Real caches use 512 KiB and up (Nitro Table 1); the simulator uses small ones to reach wraps.
pub const WEU_BYTES_MIN: u32 = 32 << 10;
/// Largest WEU: extent offsets are kept in 64-byte units in 16 bits, 64 KiB * 64 B.
pub const WEU_BYTES_MAX: u32 = 4 << 20;
/// Default WEU (Nitro 3.1: one or more SSD erase blocks).
pub const WEU_BYTES_DEFAULT: u32 = 2 << 20;
/// Extents start at multiples of this inside a WEU: 2^16 positions cover the largest WEU.
pub const PLACE_ALIGN_BYTES: u32 = 64;

/// Block of the cache device: the unit of its metadata and of its reads.
pub const BLOCK_BYTES: u32 = 4096;
/// Most slots of one cache: 24 bits, 32 TiB of 2 MiB WEUs.
pub const SLOTS_MAX: u32 = 1 << 24;
/// Most volumes of one cache: 10 bits of the file index key.
pub const VOLUMES_MAX: u16 = 1 << 10;
/// Most extents of one volume: 38 bits of the file index key, 1 PiB at 4 KiB.
pub const EXTENTS_PER_VOLUME_MAX: u64 = 1 << 38;
/// Most chunks of one volume of a store: four levels of 504 in a map.
pub const STORE_CHUNKS_PER_VOLUME_MAX: u64 = 504 * 504 * 504 * 504;
/// Most volumes of one cache with a share of their own: each fills a unit of its own, which is in memory meanwhile.
pub const CACHE_SHARES_MAX: u8 = 32;
/// What the reserves of all volumes together may take of a cache, in per cent: the rest is for others and dirty data.
pub const RESERVES_PERCENT_MAX: u8 = 80;
/// What pinned ranges of all volumes together may be of a cache, in per cent: where nothing can be reduced and much is
/// overwritten they take a quarter more, and reserves, dirty data and everything else needs room beside that.
pub const PINS_PERCENT_MAX: u8 = 50;
/// Pinned ranges of one volume.
pub const PINS_MAX: usize = 64;
/// Fewest write-evict units of a cache in which anything can be pinned.
pub const KEPT_SLOTS_MIN: u32 = 16;
/// Longest volume name in bytes.
pub const VOLUME_NAME_BYTES_MAX: usize = 64;

/// Largest single client request that moves payload: the size NBD clients may rely on (NBD spec, 32 MiB).
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Queues of a ublk device; the I/O threads divide them.
pub const UBLK_QUEUES_MAX: u16 = 32;
/// Requests of a queue of a ublk device: the kernel's most (UBLK_MAX_QUEUE_DEPTH).
pub const UBLK_QUEUE_DEPTH_MAX: u16 = 4096;
/// Requests of all queues of a ublk device together: each holds an entry of the ring.
pub const UBLK_TAGS_MAX: u32 = 4096;
/// Threads that hash and compress.
pub const REDUCE_THREADS_MAX: u32 = 256;
/// Smallest region: smaller ones would be marked and cleared more often than they say where was written.
pub const REGION_BYTES_MIN: u64 = 1 << 20;
/// Most regions that one region map names: those active now, and those the last session left marked.
pub const ACTIVE_REGIONS_MAX: u32 = 2040;
/// Regions a volume is cut into by default: a crash distrusts those that were written in the last half minute.
pub const REGIONS_PER_VOLUME: u64 = 512;
/// Active regions by default: all of one volume, so that random writes do not mark and clear them in turn.
pub const ACTIVE_REGIONS_DEFAULT: u32 = ACTIVE_REGIONS_MAX / 2;
