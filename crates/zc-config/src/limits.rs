//! Bounds of the configuration, in one place. Bounds shared with other crates are in `zc_core::limits`.

use core::ops::RangeInclusive;

use zc_core::limits::{
    ACTIVE_REGIONS_MAX, EXTENT_BYTES_DEFAULT, EXTENT_BYTES_MIN, EXTENTS_PER_VOLUME_MAX, REDUCE_THREADS_MAX,
    REGION_BYTES_MIN, REQUEST_BYTES_MAX, SLOTS_MAX, STORE_CHUNKS_PER_VOLUME_MAX, UBLK_QUEUE_DEPTH_MAX,
    UBLK_QUEUES_MAX, WEU_BYTES_MAX, WEU_BYTES_MIN,
};

/// Largest accepted file: 1,024 volumes take about 300 KiB with every key written out.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
/// Mistakes that are reported at once; a file with more is not a configuration.
pub(crate) const MISTAKES_MAX: usize = 50;
/// Longest value that a message quotes, in characters.
pub(crate) const SHOWN_CHARS_MAX: usize = 80;

/// Cache size: from metadata and a few small units to every slot of the largest unit (64 TiB).
pub(crate) const CACHE_BYTES: RangeInclusive<u64> = 1 << 20..=SLOTS_MAX as u64 * WEU_BYTES_MAX as u64;
/// Wait for a missing cache device at a start: service managers time out after 90 s.
pub(crate) const CACHE_WAIT_MS: RangeInclusive<u64> = 0..=60_000;
/// Journal file: at least 64 blocks and a label; a ring has at most 2^18 blocks.
pub(crate) const JOURNAL_BYTES: RangeInclusive<u64> = 512 << 10..=2 << 30;
/// Fewest extents of a unit: below, packing and headers waste more than compression saves.
pub(crate) const EXTENTS_PER_WEU_MIN: u32 = 4;
/// RAM for the indexes: 1 MiB holds 70,000 extents, 16 TiB exceeds any machine.
pub(crate) const RAM_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 44;
/// I/O threads: beyond 64, lock contention exceeds the gain.
pub(crate) const IO_THREADS: RangeInclusive<u32> = 1..=64;
/// Reduce threads; 0 = automatic.
pub(crate) const REDUCE_THREADS: RangeInclusive<u32> = 0..=REDUCE_THREADS_MAX;
/// Polling of completions before sleeping, in microseconds: no gain beyond a millisecond.
pub(crate) const POLL_US: RangeInclusive<u32> = 0..=1000;
/// CPU numbers: Linux' largest `CONFIG_NR_CPUS` is 8,192.
pub(crate) const CPUS_MAX: u16 = 8192;
/// Longest list of CPUs: 585 ranges of any width.
pub(crate) const CPU_LIST_BYTES_MAX: usize = 4096;
/// Age at which an open unit is written partially filled. A lower age writes nearly empty units.
pub(crate) const WEU_AGE_MS: RangeInclusive<u64> = 100..=3_600_000;
/// Deadline of a cache device operation; 0: none. Below a second, a garbage collection in the SSD would disable the
/// cache.
pub(crate) const DEVICE_DEADLINE_MS: RangeInclusive<u64> = 0..=600_000;
/// Age of a request to a local origin at which that counts as unreachable; 0: never. A disk that spins up takes 15 s.
pub(crate) const ORIGIN_DEADLINE_MS: RangeInclusive<u64> = 0..=3_600_000;
/// Default of that age: the kernel's limit for one attempt with a disk.
pub(crate) const ORIGIN_DEADLINE_DEFAULT_MS: u64 = 30_000;
/// Time that requests wait for an unreachable origin; 0: forever. A restart of a server takes seconds.
pub(crate) const OUTAGE_MS: RangeInclusive<u64> = 0..=86_400_000;
/// Default of that time for an origin on this machine without write-back: the kernel's six attempts with a disk. An
/// error before it reports one would be a false one.
pub(crate) const LOCAL_OUTAGE_DEFAULT_MS: u64 = 180_000;
/// Default for an NBD export without write-back. Below the time-outs of clients and kernels.
pub(crate) const OUTAGE_DEFAULT_MS: u64 = 30_000;
pub(crate) const ORIGIN_CONNECTIONS: RangeInclusive<u32> = 1..=16;
/// Default of them. One connection is often bound to one thread of the server, and to one queue of a network card.
pub(crate) const CONNECTIONS_DEFAULT: u32 = 4;
/// Time after which a cache read falls back to the origin; 0: never.
pub(crate) const SLOW_READ_MS: RangeInclusive<u64> = 0..=600_000;
/// Sequential bytes after which prefetch starts.
pub(crate) const PREFETCH_THRESHOLD_BYTES: RangeInclusive<u64> = 0..=1 << 30;
/// Prefetch: 8 times the largest in the paper.
pub(crate) const PREFETCH_BYTES: RangeInclusive<u64> = 0..=1 << 20;
/// Read buffer and staging area; 0 = off.
pub(crate) const BUFFER_BYTES: RangeInclusive<u64> = 0..=1 << 30;
/// Fingerprints of evicted extents; 0: off.
pub(crate) const LEARNED_BYTES: RangeInclusive<u64> = 0..=1 << 40;
/// Bytes of insertions in flight: at least the largest extent, or nothing would ever be inserted.
pub(crate) const INSERT_BYTES: RangeInclusive<u64> = 128 << 10..=2 << 30;
/// Active regions. The upper half of the map's capacity is for volumes with marks from before a crash.
pub(crate) const REGIONS_ACTIVE: RangeInclusive<u32> = 8..=ACTIVE_REGIONS_MAX / 2;
/// Region size, a power of two. Below 1 MiB nearly every write would have to mark a region first.
pub(crate) const REGION_BYTES: RangeInclusive<u64> = REGION_BYTES_MIN..=1 << 40;
/// Slots that may be dirty: clean ones keep some capacity, or only dirty data would be cached.
pub(crate) const DIRTY_HIGH_PERCENT: RangeInclusive<u8> = 1..=90;
/// Acknowledged writes in memory: at least a few extents.
pub(crate) const DIRTY_MEMORY_BYTES: RangeInclusive<u64> = 1 << 20..=16 << 30;
/// Age of dirty data. With less than the duration of a destaging run, the origin would be busy all the time.
pub(crate) const DIRTY_AGE_MS: RangeInclusive<u64> = 100..=86_400_000;
/// Longest wait of a write for an origin without free space; clients time out after minutes.
pub(crate) const FULL_WAIT_MS: RangeInclusive<u64> = 0..=3_600_000;
/// Idle time before destaging starts.
pub(crate) const DESTAGE_IDLE_MS: RangeInclusive<u64> = 10..=3_600_000;
/// Destage writes in flight; beyond a device's queue depth they only wait.
pub(crate) const DESTAGE_WRITES: RangeInclusive<u32> = 1..=1024;
/// Bytes per second of destaging; 0: unlimited.
pub(crate) const DESTAGE_RATE: RangeInclusive<u64> = 0..=1 << 40;
/// Interval of scrubbing dirty data; 0: never.
pub(crate) const DIRTY_SCRUB_MS: RangeInclusive<u64> = 0..=30 * 86_400_000;
/// One hit in this number is hashed; 0: none.
pub(crate) const PROVE_HITS: RangeInclusive<u32> = 0..=1 << 20;
/// Sequential bytes after which a stream is not inserted; 0: unlimited.
pub(crate) const SEQUENTIAL_CUTOFF: RangeInclusive<u64> = 0..=1 << 40;
/// Quota or reserve of a volume; 0 = none.
pub(crate) const CACHE_SHARE: RangeInclusive<u64> = 0..=*CACHE_BYTES.end();
/// Smallest share: a quota needs two units, one to fill and one to read from.
pub(crate) const CACHE_SHARE_MIN: u64 = 2 * WEU_BYTES_MIN as u64;
/// Size of a file origin to create. The file index addresses 1 PiB with extents of any size.
pub(crate) const ORIGIN_BYTES: RangeInclusive<u64> = 4096..=EXTENTS_PER_VOLUME_MAX * EXTENT_BYTES_MIN as u64;
/// Largest volume that a start creates in a store, whose chunks are extents of the default size: 480.7 TiB.
pub(crate) const STORE_ORIGIN_BYTES_MAX: u64 = STORE_CHUNKS_PER_VOLUME_MAX * EXTENT_BYTES_DEFAULT as u64;

pub(crate) const STORES_MAX: usize = 64;
pub(crate) const STORE_NAME_BYTES_MAX: usize = 64;
/// Memory for pages of a store's tables and maps: at least a few hundred, or changes wait for each of them.
pub(crate) const PAGE_CACHE_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Memory for a store's fingerprints.
pub(crate) const FINGERPRINT_INDEX_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Free space of a store, in per cent, at which its cleaner starts and stops.
pub(crate) const CLEAN_PERCENT: RangeInclusive<u8> = 1..=90;
/// Bytes per second of a store's cleaner while free space is sufficient.
pub(crate) const CLEAN_RATE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Requests per second of a volume's clients; 0: unlimited.
pub(crate) const IOPS: RangeInclusive<u32> = 0..=100_000_000;
pub(crate) const IOPS_BURST: RangeInclusive<u32> = 1..=100_000_000;
/// Bytes per second of a volume's clients; 0: unlimited.
pub(crate) const BYTES_PER_S: RangeInclusive<u64> = 0..=1 << 40;
/// Lowest rate: the largest request delays the next by 512 s.
pub(crate) const BYTES_PER_S_MIN: u64 = REQUEST_BYTES_MAX as u64 / 512;
pub(crate) const BYTES_BURST: RangeInclusive<u64> = 512..=1 << 40;

pub(crate) const UBLK_QUEUES: RangeInclusive<u32> = 1..=UBLK_QUEUES_MAX as u32;
pub(crate) const UBLK_DEPTH: RangeInclusive<u32> = 1..=UBLK_QUEUE_DEPTH_MAX as u32;
/// Largest request of a ublk device: the driver addresses 25 bits.
pub(crate) const UBLK_REQUEST_BYTES: RangeInclusive<u64> = 4096..=REQUEST_BYTES_MAX as u64;

/// TCP addresses and Unix sockets to listen on.
pub(crate) const LISTEN_MAX: usize = 64;
pub(crate) const ALLOWED_MAX: usize = 256;
pub(crate) const WINDOWS_MAX: usize = 16;
/// Longest path of a Unix socket: `sun_path` has 108 bytes with the closing zero (unix(7)).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
pub(crate) const CONNECTIONS: RangeInclusive<u32> = 1..=65_536;
/// Connections of one client; 0: unlimited.
pub(crate) const CONNECTIONS_PER_CLIENT: RangeInclusive<u32> = 0..=65_536;
/// Bits of an IPv6 address that distinguish clients.
pub(crate) const IPV6_CLIENT_PREFIX: RangeInclusive<u32> = 16..=128;
/// Requests in flight on a connection.
pub(crate) const REQUESTS: RangeInclusive<u32> = 1..=4096;
/// Bytes of requests in flight: at least one of the largest.
pub(crate) const REQUEST_BYTES: RangeInclusive<u64> = REQUEST_BYTES_MAX as u64..=1 << 40;
/// Time a client has to choose an export.
pub(crate) const HANDSHAKE_MS: RangeInclusive<u64> = 100..=3_600_000;
/// Time a client may stall within a request or reply.
pub(crate) const STALL_MS: RangeInclusive<u64> = 1_000..=3_600_000;
/// Time a client may be idle; 0: unlimited.
pub(crate) const IDLE_MS: RangeInclusive<u64> = 0..=7 * 86_400_000;
/// Idle time before a TCP probe; 0: no probes, at most `MAX_TCP_KEEPIDLE` (tcp(7)).
pub(crate) const KEEPALIVE_MS: RangeInclusive<u64> = 0..=32_767_000;
/// Longest description of an export: NBD strings have at most 4,096 bytes (NBD protocol, "String values").
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4096;
pub(crate) const DOMAIN_NAME_BYTES_MAX: usize = 64;
