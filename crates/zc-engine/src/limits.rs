//! Bounds of the daemon's driver.

/// Operations the shard's ring holds; more wait in the driver.
pub(crate) const RING_OPS: usize = 16_384;
/// Submission queue entries of the shard's ring.
pub(crate) const RING_ENTRIES: u32 = 512;
/// Milliseconds between ticks while something is under way.
pub(crate) const TICK_BUSY_MS: u64 = 10;
/// Milliseconds between ticks while nothing is: the age of open write units is still watched.
pub(crate) const TICK_IDLE_MS: u64 = 200;
/// Bytes of a connection's receive buffer: requests of a turn, and payloads that come with them.
pub(crate) const RECEIVE_BYTES: usize = 64 << 10;
/// Payload bytes in flight of one connection.
pub(crate) const PAYLOAD_BYTES_PER_CONNECTION: u64 = 64 << 20;
/// Reply bytes a connection may leave unsent before its requests are not read any more.
pub(crate) const UNSENT_BYTES_MAX: u64 = 64 << 20;
/// Milliseconds a client may pause within a payload, or leave replies lying while memory is short.
pub(crate) const CLIENT_PATIENCE_MS: u64 = 60_000;
/// Milliseconds that clients get at the end to take their replies.
pub(crate) const DRAIN_MS: u64 = 10_000;
/// Decoded bytes of one request up to which a hit is decoded on the data-plane thread (FlaZ 2.2.5 decodes larger ones
/// in parallel).
pub(crate) const INLINE_DECODE_BYTES: u32 = 32 << 10;
/// Bytes decoded on the data-plane thread in one turn; what exceeds it goes to the workers.
pub(crate) const INLINE_DECODE_BYTES_PER_TURN: u32 = 512 << 10;
/// Jobs waiting for reduce workers; beyond it a job is carried out by the thread that brings it.
pub(crate) const REDUCE_JOBS_MAX: usize = 16_384;
/// Reduce threads a configuration may ask for.
pub(crate) const REDUCE_THREADS_MAX: u32 = 256;
/// Buffer memory kept for reuse.
pub(crate) const POOL_BYTES: usize = 128 << 20;
/// Bytes between a WEU's data and its header that are written along rather than skipped: one large write is cheaper
/// than two.
pub(crate) const WEU_GAP_BYTES: u32 = 128 << 10;
/// Bytes read for a WEU header of unknown length.
pub(crate) const HEADER_READ_BYTES: u32 = 32 << 10;
/// Commands waiting for the shard.
pub(crate) const COMMANDS_MAX: usize = 64;
/// Bytes of one line on the control socket.
pub(crate) const CONTROL_LINE_BYTES_MAX: usize = 64 << 10;
/// Control connections at a time.
pub(crate) const CONTROL_CONNECTIONS_MAX: usize = 32;
/// Bytes of the intent log after which what the journal has taken over is dropped from it.
pub(crate) const INTENT_BYTES_MAX: u64 = 8 << 20;
