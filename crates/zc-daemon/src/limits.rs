//! Bounds of the control plane, of a start and of the read-only services.

/// Milliseconds that calls which block get at the end of the control plane.
pub(crate) const CALLS_END_MS: u64 = 2_000;
/// Milliseconds in which the configuration and the files that it names must have been read.
pub(crate) const CONFIG_READ_MS: u64 = 5_000;
/// Concurrent reads of the configuration that may hang, with a thread each; further ones are refused.
pub(crate) const CONFIG_READS_MAX: usize = 4;
/// Milliseconds within which a displaced idle control connection must release its slot.
pub(crate) const CONTROL_PLACE_WAIT_MS: u64 = 5_000;
/// Connections that wait for a place, in times of the places; ...
pub(crate) const CONTROL_QUEUE_TIMES: usize = 8;
/// Milliseconds between searches for an idle control connection.
pub(crate) const CONTROL_RETRY_MS: u64 = 20;
/// Bytes of one line on the control socket.
pub(crate) const CONTROL_LINE_BYTES_MAX: usize = 64 << 10;
/// Control connections at a time.
pub(crate) const CONTROL_CONNECTIONS_MAX: usize = 32;
/// Milliseconds for which a command that changes settings waits for its turn.
pub(crate) const SETTINGS_WAIT_MS: u64 = 20_000;
/// Queued orders for ublk devices.
pub(crate) const UBLK_ORDERS_MAX: usize = 64;
/// Time-out for the data plane to release a stopped ublk device, in milliseconds.
pub(crate) const UBLK_GONE_MS: u64 = 10_000;
/// Time-out for flushing the kernel's dirty pages before a device is detached, in milliseconds. Its origin may be
/// slow.
pub(crate) const UBLK_CLAIM_MS: u64 = 60_000;
/// Recordings at a time.
pub(crate) const RECORDINGS_MAX: usize = 8;
/// Smallest and default size of a recording's file in bytes.
pub(crate) const RECORD_BYTES_MIN: u64 = 64 << 10;
pub(crate) const RECORD_BYTES_DEFAULT: u64 = 1 << 30;
/// Milliseconds in which the origins must have all dirty data before the cache is moved or a stop with a flush. Longer
/// than the 30 s after which a volume that leaves write-back has new writes wait, so that a fast writer does not prevent
/// it.
pub(crate) const DRAIN_REST_MS: u64 = 60_000;
/// Interval of these checks in milliseconds.
pub(crate) const DRAIN_LOOK_MS: u64 = 20;
/// Milliseconds in which the origins of volumes that are to be served answer to being opened.
pub(crate) const ORIGIN_LOOK_MS: u64 = 10_000;
/// Interval of measuring origins, in milliseconds.
pub(crate) const LENGTHS_PAUSE_MS: u64 = 10_000;
/// Interval of checking the time of day, for destage windows, in milliseconds.
pub(crate) const WINDOW_LOOK_MS: u64 = 1_000;
/// Interval of checks for absent volumes, in milliseconds: initial and largest. It doubles.
pub(crate) const ABSENT_PAUSE_MIN_MS: u64 = 500;
pub(crate) const ABSENT_PAUSE_MAX_MS: u64 = 8_000;
/// Concurrent connections for the metrics, and as many for the live page; a further one displaces another.
pub(crate) const HTTP_CONNECTIONS_MAX: usize = 64;
/// Answers of them that are computed at a time; must be less.
pub(crate) const HTTP_ANSWERS_MAX: usize = 8;
/// Bits of an IPv6 address that one site has all addresses of, for these connections.
pub(crate) const HTTP_IPV6_PREFIX_BITS: u8 = 64;
/// Maximum duration of an HTTP connection in milliseconds.
pub(crate) const HTTP_REQUEST_MS_MAX: u64 = 10_000;
/// Milliseconds within which an HTTP request must arrive: a silent client keeps its slot no longer.
pub(crate) const HTTP_HEAD_MS_MAX: u64 = 2_000;
/// Newest events that the live page shows.
pub(crate) const LIVE_EVENTS_MAX: usize = 50;
/// Maximum bytes of an HTTP request line with headers.
pub(crate) const HTTP_HEAD_BYTES_MAX: usize = 16 << 10;
