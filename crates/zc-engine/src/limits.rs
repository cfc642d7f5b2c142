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
/// The same before an export is chosen: options of the handshake. Ten thousand half-open handshakes take 40 MiB.
pub(crate) const HANDSHAKE_RECEIVE_BYTES: usize = 4 << 10;
/// Bytes of one send: a client that takes them makes progress within the time it has.
pub(crate) const SEND_BYTES_MAX: u64 = 4 << 20;
/// Milliseconds between two looks at clients that do not go on.
pub(crate) const LOOK_MS: u64 = 50;
/// Connections that wait in the kernel to be accepted, as far as `net.core.somaxconn` allows.
pub(crate) const BACKLOG: i32 = 4096;
/// Sockets of closed connections that the ring has not let go, on top of the bound of connections.
pub(crate) const CLOSING_MAX: usize = 1024;
/// Seconds between the kernel's questions to a silent TCP client, and how many go unanswered before it is given up.
pub(crate) const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
pub(crate) const KEEPALIVE_PROBES: u32 = 6;
/// Descriptors besides those of connections: devices, ring, listeners, control connections, log.
pub(crate) const OTHER_DESCRIPTORS: u64 = 1024;
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
/// Questions about holes that wait for one origin; beyond, the answer is that nothing is known.
pub(crate) const MAP_QUESTIONS_MAX: usize = 1024;
/// Runs of one answer about holes: two calls of the kernel each.
pub(crate) const MAP_RUNS_MAX: usize = 4096;
/// Replies of a turn to one client that the socket's buffer is likely to take at once (TCP starts with 16 KiB).
pub(crate) const QUICK_SEND_BYTES: u64 = 16 << 10;
