//! Bounds of the data plane.

/// Minimum operations of the shard's ring besides those that wait for clients and for the kernel's block devices,
/// which occupy entries all the time; more wait in the driver.
pub(crate) const RING_WORK_OPS: usize = 8192;
/// Maximum ring operations of one origin.
pub(crate) const ORIGIN_OPS_MAX: usize = 1024;
/// Maximum ring operations of all origins. The rest is for the cache device and for clients: a hung origin must
/// neither block them nor make the cache appear hung.
pub(crate) const ORIGINS_OPS_MAX: usize = 6144;
/// Submission queue entries of the shard's ring.
pub(crate) const RING_ENTRIES: u32 = 512;
/// Milliseconds between ticks while work is in progress.
pub(crate) const TICK_BUSY_MS: u64 = 10;
/// Milliseconds between ticks while nothing is: the age of open WEUs is still watched.
pub(crate) const TICK_IDLE_MS: u64 = 200;
/// Bytes of a connection's receive buffer: requests of a turn, and their payloads.
pub(crate) const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes of a receive buffer before an export is chosen: options of the handshake. Ten thousand half-open handshakes take
/// 40 MiB.
pub(crate) const HANDSHAKE_RECEIVE_BYTES: usize = 4 << 10;
/// Bytes of one send: at the rate below, a client takes them within [`SHORT_STALL_MS`] and a tenth.
pub(crate) const SEND_BYTES_MAX: u64 = 256 << 10;
/// Bytes per second that a payload arrives with at least, once its client has had its patience.
pub(crate) const ARRIVAL_BYTES_PER_S_MIN: u64 = 256 << 10;
/// Share of `nbd.bytes_in_flight_max` that is divided into equal reserves for `nbd.connections_max` connections: one
/// in this number.
pub(crate) const RESERVED_PART: u64 = 4;
/// Maximum reserve of a connection: by default 256 connections reserve 256 KiB each, 64 of 256 MiB.
pub(crate) const RESERVE_BYTES_MAX: u64 = 256 << 10;
/// Most memory of a client or volume, as a multiple of what it leaves free: 3 leaves a quarter.
pub(crate) const GROUP_SHARE: u64 = 3;
/// Overhead of a request besides its payload: its entries in the tables of driver and manager.
pub(crate) const REQUEST_BYTES: u64 = 512;
/// Size up to which unsent replies are merged by copying, once a client has left [`COMPACT_UNSENT_BYTES`] or more than
/// one send unread: a separate buffer wastes up to a page.
pub(crate) const COMPACT_BYTES_MAX: u64 = 16 << 10;
/// See [`COMPACT_BYTES_MAX`]; also the size of the buffers that they are copied to.
pub(crate) const COMPACT_UNSENT_BYTES: u64 = 64 << 10;
/// Milliseconds after which a request that waits for memory takes precedence over all others.
pub(crate) const AGED_MS: u64 = 400;
/// ... and without progress for which these are then disconnected. A request that waits this long is answered within a
/// second: [`AGED_MS`], or this, and [`LOOK_MS`].
pub(crate) const SHORT_STALL_MS: u64 = 900;
/// Work budget of a turn, in units of about a microsecond. One request may exceed it.
pub(crate) const TURN_UNITS: u64 = 1000;
/// Units of any request, and in addition: of copying and looking up reads and writes (4 GB/s), ...
pub(crate) const REQUEST_UNITS: u64 = 2;
pub(crate) const COPY_BYTES_PER_UNIT: u64 = 4 << 10;
/// Bytes of extents that a prefetch looks up per unit of work.
pub(crate) const CACHE_BYTES_PER_UNIT: u64 = 16 << 10;
/// Bytes of extents that a status query looks up per unit of work.
pub(crate) const STATUS_BYTES_PER_UNIT: u64 = 64 << 10;
/// Bytes of extents that a trim or zeroing invalidates per unit of work (an extent of 8 KiB: three table lookups from
/// memory).
pub(crate) const CHANGE_BYTES_PER_UNIT: u64 = 8 << 10;
/// Maximum bytes of a trim or zeroing in the manager at a time, half a turn; it continues in the connection's next
/// turn.
pub(crate) const CHANGE_PIECE_BYTES: u64 = 4 << 20;
/// Maximum bytes at a time if the origin may have to write zeros because space stays allocated.
pub(crate) const CHANGE_KEPT_PIECE_BYTES: u64 = 64 << 20;
/// Maximum bytes of a read in the manager at a time: half a turn, and enough to keep an SSD busy.
pub(crate) const READ_PIECE_BYTES: u64 = 2 << 20;
/// Maximum bytes of a prefetch in the manager at a time: a quarter of a turn.
pub(crate) const CACHE_PIECE_BYTES: u64 = 4 << 20;
/// Maximum queued changes of a connection that wait for earlier ones; its socket is not read further meanwhile.
pub(crate) const BARRED_MAX: usize = 8;
/// Bytes covered by one BLOCK_STATUS, for its cost: the manager's lookups with extents of 8 KiB.
pub(crate) const STATUS_BYTES_MAX: u64 = 128 << 20;
/// Units of work of a flush, which writes dirty data.
pub(crate) const FLUSH_UNITS: u64 = 16;
/// Maximum bytes of large reads and prefetches in the manager: 16 pieces. An SSD delivers them in about 20 ms, which
/// bounds the delay of a new request.
pub(crate) const SERVE_BYTES: u64 = 32 << 20;
/// Bytes of them that each connection may have there whatever others have.
pub(crate) const SERVE_SMALL_BYTES: u64 = 256 << 10;
/// Interval of checks for stalled clients, in milliseconds.
pub(crate) const LOOK_MS: u64 = 50;
/// Interval of checks for unneeded memory, in milliseconds.
pub(crate) const GIVE_BACK_MS: u64 = 2_000;
/// Free bytes of the heap from which its free pages, each of which is visited, are returned to the kernel.
pub(crate) const GIVE_BACK_HEAP_BYTES: u64 = 16 << 20;
/// Slots of clients that choose an export, besides those of `nbd.connections_max`.
pub(crate) const HANDSHAKE_PLACES: usize = 64;
/// Milliseconds for which a client that chooses an export keeps its place against others of its own source: TLS and all
/// take five round trips, which is a client 100 ms away.
pub(crate) const HANDSHAKE_GRACE_MS: u64 = 500;
/// Share of `nbd.connections_max` above which a source gives up idle attached clients for a source with fewer: one in
/// this number.
pub(crate) const ATTACHED_PART: usize = 8;
/// Idle time after which such clients may be displaced, in milliseconds.
pub(crate) const ATTACHED_IDLE_MS: u64 = 1000;
/// Connections that wait in the kernel to be accepted, as far as `net.core.somaxconn` allows.
pub(crate) const BACKLOG: i32 = 4096;
/// Connections that a ring has places for at least: so far `nbd.connections_max` can be raised without a restart.
pub(crate) const CONNECTIONS_LIVE: usize = 4096;
/// Sockets of closed connections that the ring has not released, on top of the bound of connections.
pub(crate) const CLOSING_MAX: usize = 1024;
/// Interval of the kernel's keep-alive probes to a silent TCP client, and the number of unanswered ones before it is
/// disconnected.
pub(crate) const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
pub(crate) const KEEPALIVE_PROBES: u32 = 6;
/// Descriptors besides those of connections: devices, ring, listeners, control connections, log.
pub(crate) const OTHER_DESCRIPTORS: u64 = 1024;
/// Descriptors without which the daemon cannot start and stop in order: it has about twenty with one volume.
pub(crate) const DESCRIPTORS_MIN: u64 = 64;
/// Bytes of a file with certificates, a key or a revocation list.
pub(crate) const TLS_FILE_BYTES_MAX: u64 = 4 << 20;
/// Threads for handshakes of TLS at most; a machine with few processors has half as many as those.
pub(crate) const TLS_THREADS_MAX: usize = 4;
/// Interval of log lines about refused connections, in milliseconds; suppressed ones are counted.
pub(crate) const REFUSAL_LOG_MS: u64 = 1000;
/// Milliseconds in which state directory and cache device must have recorded the end of a session.
pub(crate) const CLOSE_WAIT_MS: u64 = 20_000;
/// Milliseconds that an operation of an origin may take once the daemon stops.
pub(crate) const STOP_ORIGIN_MS: u64 = 20_000;
/// Milliseconds that clients get at the end to take their replies.
pub(crate) const DRAIN_MS: u64 = 10_000;
/// Decoded bytes of one device read up to which compressed extents are decoded on the data-plane thread; longer ones
/// are decoded by workers in groups of this size (FlaZ 2.2.5 decodes them in parallel).
pub(crate) const INLINE_DECODE_BYTES: u32 = 32 << 10;
/// Bytes decompressed on the data-plane thread per turn (uncompressed ones count a quarter); more go to the workers.
pub(crate) const INLINE_DECODE_BYTES_PER_TURN: u32 = 512 << 10;
/// Queued jobs of reduce workers; beyond it, the submitting thread runs a job itself.
pub(crate) const REDUCE_JOBS_MAX: usize = 16_384;
/// Jobs of insertions that are handed over at once; fewer wait for others for a millisecond or two.
pub(crate) const REDUCE_JOBS_TOGETHER: usize = 8;
/// Bytes that the data-plane thread hashes, compares or compresses with LZ4 per turn while a client waits for a flush.
/// This takes about as long as two wake-ups of and by a worker.
pub(crate) const HURRY_INLINE_BYTES: usize = 32 << 10;
/// Size of a job that the data-plane thread executes itself if it is the only one: waking a worker costs more, and a
/// flush may follow at any time.
pub(crate) const ALONE_INLINE_BYTES: usize = 8 << 10;
/// Milliseconds to the next turn while jobs of insertions wait for others.
pub(crate) const TICK_JOBS_MS: u64 = 1;
/// Results of insertions that wake the data plane; fewer wait for others, ...
pub(crate) const REDUCE_RESULTS_MAX: usize = 32;
/// Maximum delay of reduction results before they wake the data plane.
pub(crate) const REDUCE_LINGER: std::time::Duration = std::time::Duration::from_micros(500);
/// Threads of a store if their number is left to the daemon.
pub(crate) const STORE_WORKERS_AUTO_MAX: u32 = 4;
/// Memory of one fingerprint in a store's index (zc-store's `fingerprints_max`).
pub(crate) const FINGERPRINT_RAM_BYTES: u64 = 28;
/// Buffer memory kept for reuse.
pub(crate) const POOL_BYTES: usize = 128 << 20;
/// Bytes between a WEU's data and its header that are written along rather than skipped: one large write is cheaper
/// than two.
pub(crate) const WEU_GAP_BYTES: u32 = 128 << 10;
/// Bytes read for a WEU header of unknown length.
pub(crate) const HEADER_READ_BYTES: u32 = 32 << 10;
/// Commands waiting for the shard.
pub(crate) const COMMANDS_MAX: usize = 64;
/// Size of the intent log after which records covered by the journal are removed from it.
pub(crate) const INTENT_BYTES_MAX: u64 = 8 << 20;
/// Memory of a BLOCK_STATUS in flight per queried sector, up to a number of runs: those of cache and origin, and the
/// extents of the reply.
pub(crate) const STATUS_RUN_BYTES: u64 = 64;
pub(crate) const STATUS_RUNS_MAX: u64 = 4096;
/// Maximum queued hole queries per origin; further ones are answered as unknown.
pub(crate) const MAP_QUESTIONS_MAX: usize = 1024;
/// Runs of one answer about holes: two calls of the kernel each.
pub(crate) const MAP_RUNS_MAX: usize = 4096;
/// Bytes of replies per turn that a client's socket buffer is likely to accept at once (TCP starts with 16 KiB).
pub(crate) const QUICK_SEND_BYTES: u64 = 16 << 10;
/// Reads of stored extents in flight from which a turn waits for several completions.
pub(crate) const GATHER_OPS_MIN: usize = 8;
/// Maximum number of completions to wait for.
pub(crate) const GATHER_MAX: usize = 16;
/// Maximum wait for several completions in microseconds: about two reads of an SSD.
pub(crate) const GATHER_TIME_US: u32 = 100;
/// Notes in a recording's batches: 64 bytes each, 4 MiB in total.
pub(crate) const RECORD_BATCH: usize = 4096;
/// Batches that go round between the data plane and a recorder.
pub(crate) const RECORD_BATCHES: usize = 16;
/// Nanoseconds that a recorded request waits for information from the cache, ...
pub(crate) const RECORD_WINDOW_NS: u64 = 1_000_000_000;
/// Maximum number of requests in the window of a recording: about 10 MiB.
pub(crate) const RECORD_WINDOW_MAX: usize = 1 << 16;
/// Interval at which a recorder checks the time.
pub(crate) const RECORD_LOOK: std::time::Duration = std::time::Duration::from_millis(200);
/// Maximum bytes of a warm-up in the manager.
pub(crate) const WARM_PIECE_BYTES: u64 = 256 << 10;
/// Maximum bytes of all warm-ups in the manager while no client request is in progress.
pub(crate) const WARM_BYTES_MAX: u64 = 4 << 20;
/// Milliseconds between pieces of warm-ups while client requests are in progress.
pub(crate) const WARM_BUSY_PAUSE_MS: u64 = 20;
/// Maximum pieces of warm-ups begun per turn of the data plane.
pub(crate) const WARM_PIECES_PER_TURN: usize = 32;
/// Ranges of a warm-up that wait: 1 MiB.
pub(crate) const WARM_RANGES_MAX: usize = 1 << 16;
/// Milliseconds after which a warm-up without polling clients ends.
pub(crate) const WARM_PATIENCE_MS: u64 = 10_000;
/// Longest time in milliseconds that requests are held back for operations in flight.
pub(crate) const PAUSE_MAX_MS: u64 = 10_000;
/// Time-out of the first connection to a remote origin, in milliseconds: shorter than a check, which then reports the
/// reason.
pub(crate) const REMOTE_OPEN_MS: u64 = 9_000;
/// Milliseconds per attempt to connect to one address of a server.
pub(crate) const REMOTE_CONNECT_MS: u64 = 5_000;
/// Milliseconds for reads and flushes of a remote origin at a start and a stop.
pub(crate) const REMOTE_WAIT_MS: u64 = 20_000;
/// Part of [`REMOTE_WAIT_MS`] for which they wait for a server that is known to be out of reach.
pub(crate) const REMOTE_OUTAGE_WAIT_MS: u64 = 2_000;
/// Idle time after which the kernel probes a server.
pub(crate) const REMOTE_KEEPALIVE_IDLE: std::time::Duration = std::time::Duration::from_secs(10);
pub(crate) const REMOTE_KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);
/// Probes without an answer after which the connection is dead.
pub(crate) const REMOTE_KEEPALIVE_PROBES: u32 = 4;
/// Milliseconds after which the connection is dead if sent data is not acknowledged.
pub(crate) const REMOTE_UNACKED_MS: u32 = 30_000;
/// Bytes that are received at once from a server.
pub(crate) const REMOTE_INPUT_BYTES: usize = 256 << 10;
/// Pieces that are sent at once; the kernel takes 1,024.
pub(crate) const REMOTE_PIECES_MAX: usize = 256;
/// Milliseconds for which the data plane waits for a change of the state directory.
pub(crate) const STATE_CHANGE_MS: u64 = 5_000;
/// Milliseconds after a failed change until the data plane retries.
pub(crate) const STATE_RETRY_MS: u64 = 5_000;
/// Bytes of a JSON file in the state directory.
pub(crate) const STATE_FILE_BYTES_MAX: u64 = 64 << 20;
/// Queued changes of the state directory.
pub(crate) const STATE_CHANGES_MAX: usize = 16;
/// Time-out of stores' status replies, in milliseconds; otherwise the previous status is used.
pub(crate) const STORE_LOOK_MS: u64 = 1_000;
/// Milliseconds for which the data plane stands still until a file that outlives the process is written, outside memory.
pub(crate) const INTENT_WAIT_MS: u64 = 1_000;
/// Milliseconds for which it waits until the cache device records that such files are invalid.
pub(crate) const VOID_WAIT_MS: u64 = 10_000;
