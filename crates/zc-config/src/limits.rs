//! Bounds of the configuration, in one place. Those that other crates keep to as well are in `zc_core::limits`.

use core::ops::RangeInclusive;

use zc_core::limits::{
    ACTIVE_REGIONS_MAX, EXTENT_BYTES_DEFAULT, EXTENT_BYTES_MIN, EXTENTS_PER_VOLUME_MAX, REDUCE_THREADS_MAX,
    REGION_BYTES_MIN, REQUEST_BYTES_MAX, SLOTS_MAX, STORE_CHUNKS_PER_VOLUME_MAX, UBLK_QUEUE_DEPTH_MAX,
    UBLK_QUEUES_MAX, WEU_BYTES_MAX, WEU_BYTES_MIN,
};

/// Largest file that is read: 1,024 volumes take about 300 KiB with every key written out.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
/// Mistakes that are reported at once; a file with more is not a configuration.
pub(crate) const MISTAKES_MAX: usize = 50;
/// Longest value that a message repeats, in characters.
pub(crate) const SHOWN_CHARS_MAX: usize = 80;

/// Cache size: room for metadata and a few small WEUs, up to every slot of the largest WEU (64 TiB).
pub(crate) const CACHE_BYTES: RangeInclusive<u64> = 1 << 20..=SLOTS_MAX as u64 * WEU_BYTES_MAX as u64;
/// Waiting for a cache device at a start: service managers give up after 90 s.
pub(crate) const CACHE_WAIT_MS: RangeInclusive<u64> = 0..=60_000;
/// Journal file: 64 blocks and a label at least; a ring has at most 2^18 blocks.
pub(crate) const JOURNAL_BYTES: RangeInclusive<u64> = 512 << 10..=2 << 30;
/// Fewest extents in a WEU: below, packing and headers waste more than compression saves.
pub(crate) const EXTENTS_PER_WEU_MIN: u32 = 4;
/// RAM for the indexes: 1 MiB holds 70,000 extents, 16 TiB is beyond any machine.
pub(crate) const RAM_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 44;
/// Threads that serve requests: beyond 64 they would wait for each other more than they serve.
pub(crate) const IO_THREADS: RangeInclusive<u32> = 1..=64;
/// Reduce threads; 0 = automatic.
pub(crate) const REDUCE_THREADS: RangeInclusive<u32> = 0..=REDUCE_THREADS_MAX;
/// Looking for completions before sleeping, in microseconds: beyond a millisecond nothing is won.
pub(crate) const POLL_US: RangeInclusive<u32> = 0..=1000;
/// CPU numbers: Linux' largest `CONFIG_NR_CPUS` is 8,192.
pub(crate) const CPUS_MAX: u16 = 8192;
/// Longest list of CPUs: 585 ranges, however wide, are read at once.
pub(crate) const CPU_LIST_BYTES_MAX: usize = 4096;
/// Age at which an open WEU is written as it is. Less writes WEUs that are nearly empty.
pub(crate) const WEU_AGE_MS: RangeInclusive<u64> = 100..=3_600_000;
/// Longest time that the cache device may take for an operation; 0 = any. Below a second a garbage collection in the SSD
/// would put the cache out of order.
pub(crate) const DEVICE_DEADLINE_MS: RangeInclusive<u64> = 0..=600_000;
/// Time that requests wait for a remote origin that is out of reach; 0 = for ever. A restart of a server takes seconds.
pub(crate) const OUTAGE_MS: RangeInclusive<u64> = 0..=86_400_000;
/// As much, where writes do not go to the cache. Below the time-outs of clients and kernels.
pub(crate) const OUTAGE_DEFAULT_MS: u64 = 30_000;
/// Time after which a read of the cache goes to the origin instead; 0 = it waits.
pub(crate) const SLOW_READ_MS: RangeInclusive<u64> = 0..=600_000;
/// Consecutive bytes after which read-ahead starts.
pub(crate) const PREFETCH_THRESHOLD_BYTES: RangeInclusive<u64> = 0..=1 << 30;
/// Read-ahead: 8 times the paper's largest.
pub(crate) const PREFETCH_BYTES: RangeInclusive<u64> = 0..=1 << 20;
/// Read buffer and staging area; 0 = off.
pub(crate) const BUFFER_BYTES: RangeInclusive<u64> = 0..=1 << 30;
/// Fingerprints of what was evicted; 0 = off.
pub(crate) const LEARNED_BYTES: RangeInclusive<u64> = 0..=1 << 40;
/// Bytes on their way into the cache: at least the largest extent, or nothing would ever be inserted.
pub(crate) const INSERT_BYTES: RangeInclusive<u64> = 128 << 10..=2 << 30;
/// Active regions. The upper half of what the map can hold is for volumes that come with marks from before a crash.
pub(crate) const REGIONS_ACTIVE: RangeInclusive<u32> = 8..=ACTIVE_REGIONS_MAX / 2;
/// Region size, a power of two. Below 1 MiB nearly every write would have to mark a region first.
pub(crate) const REGION_BYTES: RangeInclusive<u64> = REGION_BYTES_MIN..=1 << 40;
/// Slots that may be dirty: room for clean ones stays, or nothing but dirty data would be cached.
pub(crate) const DIRTY_HIGH_PERCENT: RangeInclusive<u8> = 1..=90;
/// Acknowledged writes in memory: room for a few extents at least.
pub(crate) const DIRTY_MEMORY_BYTES: RangeInclusive<u64> = 1 << 20..=16 << 30;
/// Age of dirty data. Less than a destaging run takes would keep the origin busy all the time.
pub(crate) const DIRTY_AGE_MS: RangeInclusive<u64> = 100..=86_400_000;
/// Longest configurable wait of a write for an origin without space; clients time out after minutes.
pub(crate) const FULL_WAIT_MS: RangeInclusive<u64> = 0..=3_600_000;
/// Silence before destaging begins.
pub(crate) const DESTAGE_IDLE_MS: RangeInclusive<u64> = 10..=3_600_000;
/// Origin writes of destaging in flight; more than a device's queue holds only wait.
pub(crate) const DESTAGE_WRITES: RangeInclusive<u32> = 1..=1024;
/// Bytes a second of destaging; 0 = no bound.
pub(crate) const DESTAGE_RATE: RangeInclusive<u64> = 0..=1 << 40;
/// How often dirty data is read back; 0 = never.
pub(crate) const DIRTY_SCRUB_MS: RangeInclusive<u64> = 0..=30 * 86_400_000;
/// Of so many hits one is hashed; 0 = none.
pub(crate) const PROVE_HITS: RangeInclusive<u32> = 0..=1 << 20;
/// Consecutive bytes after which a stream's data is not inserted; 0 = none.
pub(crate) const SEQUENTIAL_CUTOFF: RangeInclusive<u64> = 0..=1 << 40;
/// Quota or reserve of a volume; 0 = none.
pub(crate) const CACHE_SHARE: RangeInclusive<u64> = 0..=*CACHE_BYTES.end();
/// The smallest of them: a quota has room for two units, one that fills and one to read from.
pub(crate) const CACHE_SHARE_MIN: u64 = 2 * WEU_BYTES_MIN as u64;
/// Size of a file origin that is to be created. The file index addresses 1 PiB with extents of any size.
pub(crate) const ORIGIN_BYTES: RangeInclusive<u64> = 4096..=EXTENTS_PER_VOLUME_MAX * EXTENT_BYTES_MIN as u64;
/// Largest volume that a start creates in a store, whose chunks are extents of the default size: 480.7 TiB.
pub(crate) const STORE_ORIGIN_BYTES_MAX: u64 = STORE_CHUNKS_PER_VOLUME_MAX * EXTENT_BYTES_DEFAULT as u64;

/// Stores of one daemon.
pub(crate) const STORES_MAX: usize = 64;
/// Length of a store's name.
pub(crate) const STORE_NAME_BYTES_MAX: usize = 64;
/// Memory for pages of a store's tables and maps: a few hundred at least, or a change waits for each of them.
pub(crate) const PAGE_CACHE_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Memory for a store's fingerprints.
pub(crate) const FINGERPRINT_INDEX_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Free space of a store, in per cent, at which its cleaner begins and ends.
pub(crate) const CLEAN_PERCENT: RangeInclusive<u8> = 1..=90;
/// Bytes a second that a store's cleaner reads and writes while space is not short.
pub(crate) const CLEAN_RATE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Requests a second of a volume's clients; 0 = no limit.
pub(crate) const IOPS: RangeInclusive<u32> = 0..=100_000_000;
/// Requests of a burst.
pub(crate) const IOPS_BURST: RangeInclusive<u32> = 1..=100_000_000;
/// Bytes a second of a volume's clients; 0 = no limit.
pub(crate) const BYTES_PER_S: RangeInclusive<u64> = 0..=1 << 40;
/// The lowest such limit: the largest request holds up the next for 512 s.
pub(crate) const BYTES_PER_S_MIN: u64 = REQUEST_BYTES_MAX as u64 / 512;
/// Bytes of a burst.
pub(crate) const BYTES_BURST: RangeInclusive<u64> = 512..=1 << 40;

/// Queues of a ublk device.
pub(crate) const UBLK_QUEUES: RangeInclusive<u32> = 1..=UBLK_QUEUES_MAX as u32;
/// Requests of a queue.
pub(crate) const UBLK_DEPTH: RangeInclusive<u32> = 1..=UBLK_QUEUE_DEPTH_MAX as u32;
/// Largest request of a ublk device: the driver addresses 25 bits.
pub(crate) const UBLK_REQUEST_BYTES: RangeInclusive<u64> = 4096..=REQUEST_BYTES_MAX as u64;

/// Addresses, and Unix sockets, to listen on.
pub(crate) const LISTEN_MAX: usize = 64;
/// Entries of an allow-list.
pub(crate) const ALLOWED_MAX: usize = 256;
/// Windows for destaging.
pub(crate) const WINDOWS_MAX: usize = 16;
/// Longest path of a Unix socket: `sun_path` has 108 bytes with the closing zero (unix(7)).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Client connections.
pub(crate) const CONNECTIONS: RangeInclusive<u32> = 1..=65_536;
/// Client connections of one client; 0 = no bound.
pub(crate) const CONNECTIONS_PER_CLIENT: RangeInclusive<u32> = 0..=65_536;
/// Bits of an IPv6 address that tell one client from another.
pub(crate) const IPV6_CLIENT_PREFIX: RangeInclusive<u32> = 16..=128;
/// Requests in flight on a connection.
pub(crate) const REQUESTS: RangeInclusive<u32> = 1..=4096;
/// Bytes of requests in flight: at least one of the largest.
pub(crate) const REQUEST_BYTES: RangeInclusive<u64> = REQUEST_BYTES_MAX as u64..=1 << 40;
/// Time a client has to choose an export.
pub(crate) const HANDSHAKE_MS: RangeInclusive<u64> = 100..=3_600_000;
/// Time a client may stop in the middle of something.
pub(crate) const STALL_MS: RangeInclusive<u64> = 1_000..=3_600_000;
/// Time a client may ask for nothing; 0 = any.
pub(crate) const IDLE_MS: RangeInclusive<u64> = 0..=7 * 86_400_000;
/// Silence before a TCP probe; 0 = no probes, at most `MAX_TCP_KEEPIDLE` (tcp(7)).
pub(crate) const KEEPALIVE_MS: RangeInclusive<u64> = 0..=32_767_000;
/// Longest description of an export: NBD strings have at most 4,096 bytes (NBD protocol, "String values").
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Length of a domain's name.
pub(crate) const DOMAIN_NAME_BYTES_MAX: usize = 64;
