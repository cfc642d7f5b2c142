//! Bounds of this crate.

/// Requests a queue may hold (UBLK_MAX_QUEUE_DEPTH).
pub const QUEUE_DEPTH_MAX: u16 = 4096;
/// Queues of a device that we ask for; one thread serves all of them.
pub const QUEUES_MAX: u16 = 32;
/// Requests of all queues of a device together: each holds a place in the ring.
pub const TAGS_MAX: usize = 4096;
/// Bytes of the largest request (25 bits of the buffer offset).
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Bytes of a set of CPUs: 8192 of them, as many as Linux can have.
pub(crate) const CPU_SET_BYTES: usize = 1024;
/// Devices that are looked at when all are listed.
pub const DEVICES_MAX: usize = 1024;
/// Milliseconds that a control command may take.
pub const CONTROL_MS: u64 = 10_000;
/// Milliseconds that starting a device may take: the kernel reads its partition table through us, from the origin.
pub const START_MS: u64 = 30_000;
/// Milliseconds that stopping a device may take: what the kernel holds for it is written first.
pub const STOP_MS: u64 = 60_000;
/// Milliseconds that the kernel gets to notice that the process behind a device is gone.
pub const QUIESCE_MS: u64 = 20_000;
