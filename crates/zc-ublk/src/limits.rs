//! Bounds of this crate. Those that the configuration keeps to as well are in `zc_core::limits`.

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
