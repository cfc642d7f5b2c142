//! Bounds that several crates share, with their arithmetic. Bounds of one crate are in its own `limits`, or beside the
//! bounded item.

/// Smallest extent.
pub const EXTENT_BYTES_MIN: u32 = 4 << 10;
/// Largest extent: one 128 KiB request, the largest in the paper.
pub const EXTENT_BYTES_MAX: u32 = 128 << 10;
/// Default extent: the median I/O size of the traces in Nitro 3.1.
pub const EXTENT_BYTES_DEFAULT: u32 = 8 << 10;
/// Sectors in the largest extent: 128 KiB / 512 B.
pub const SECTORS_PER_EXTENT_MAX: usize = 256;

/// Smallest unit. Real caches use 512 KiB and more (Nitro Table 1); the simulator uses small ones so that generations
/// wrap.
pub const WEU_BYTES_MIN: u32 = 32 << 10;
/// Largest unit: extent offsets are stored in 16 bits, in multiples of 64 bytes.
pub const WEU_BYTES_MAX: u32 = 4 << 20;
/// Default unit (Nitro 3.1: one or more SSD erase blocks).
pub const WEU_BYTES_DEFAULT: u32 = 2 << 20;
/// Alignment of extents inside a unit: 2^16 positions cover the largest unit.
pub const PLACE_ALIGN_BYTES: u32 = 64;

/// Block of the cache device: the granularity of its metadata and of its reads.
pub const BLOCK_BYTES: u32 = 4096;
/// Most slots of one cache: 24 bits, 32 TiB of 2 MiB units.
pub const SLOTS_MAX: u32 = 1 << 24;
/// Most volumes of one cache: 10 bits of the file index key.
pub const VOLUMES_MAX: u16 = 1 << 10;
/// Most extents of one volume: 38 bits of the file index key, 1 PiB at 4 KiB.
pub const EXTENTS_PER_VOLUME_MAX: u64 = 1 << 38;
/// Most chunks of one volume of a store: four levels of 504 in a map.
pub const STORE_CHUNKS_PER_VOLUME_MAX: u64 = 504 * 504 * 504 * 504;
/// Most volumes of one cache with a share of their own: each fills an open unit of its own, which is in memory.
pub const CACHE_SHARES_MAX: u8 = 32;
/// Most of a cache that the reserves of all volumes take together, in per cent: other volumes and dirty data need the
/// rest.
pub const RESERVES_PERCENT_MAX: u8 = 80;
/// Most of a cache that pinned ranges of all volumes take together, in per cent. Incompressible ranges that are often
/// overwritten take a quarter more, and reserves and dirty data need capacity besides.
pub const PINS_PERCENT_MAX: u8 = 50;
/// Most pinned ranges of one volume.
pub const PINS_MAX: usize = 64;
/// Fewest units of a cache that can have pins.
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
/// Smallest region: with smaller ones, marks cost more writes than they save in distrust.
pub const REGION_BYTES_MIN: u64 = 1 << 20;
/// Most regions of one region map: active ones, and those that the last session left marked.
pub const ACTIVE_REGIONS_MAX: u32 = 2040;
/// Regions of a volume by default: a crash distrusts those that were written in the last half minute.
pub const REGIONS_PER_VOLUME: u64 = 512;
/// Active regions by default: all regions of one volume, so that random writes do not alternate between marking and
/// clearing.
pub const ACTIVE_REGIONS_DEFAULT: u32 = ACTIVE_REGIONS_MAX / 2;
