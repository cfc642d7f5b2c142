//! Every bound of a pool's thread, with its arithmetic.

use std::time::Duration;

/// Entries of the submission queue of a pool's ring.
pub const RING_ENTRIES: u32 = 128;
/// Operations in the ring; more wait. The store has at most a few hundred reads and writes in flight.
pub const RING_OPS_MAX: usize = 1024;
/// Idle memory for device operations that is retained: 16 reads of the largest size.
pub const BUFFERS_BYTES: usize = 16 << 20;
/// Most threads that hash, compress and decode for one pool.
pub const WORKERS_MAX: u32 = 16;
/// Largest job that a client waits for and that runs on the pool's own thread: two wake-ups take longer.
pub const INLINE_BYTES_MAX: u64 = 32 << 10;
/// Memory for the writes of a pool opened read-only: its recovery, one checkpoint, and a margin.
pub const OVERLAY_BYTES_MAX: usize = 512 << 20;
/// Interval of ticks while the pool has work of its own.
pub const TICK_BUSY: Duration = Duration::from_millis(20);
/// Interval of ticks otherwise.
pub const TICK_IDLE: Duration = Duration::from_millis(500);
/// Chunk of new volumes, as a power of two: the extent of the cache.
pub const CHUNK_SHIFT: u8 = 13;
/// Addresses that one order of a scrub covers: at 8 KiB each 8 GiB. Shared content is read once in an order.
pub const SCRUB_ADDRESSES: u64 = 1 << 20;
