//! Bounds of this crate. Those shared with the configuration are in `zc_core::limits`.

/// Bytes of a set of CPUs: 8192, the most that Linux supports.
pub(crate) const CPU_SET_BYTES: usize = 1024;
/// Most devices in a list.
pub const DEVICES_MAX: usize = 1024;
/// Time-out of a control command in milliseconds.
pub const CONTROL_MS: u64 = 10_000;
/// Time-out of starting a device in milliseconds: the kernel reads its partition table through us, from the origin.
pub const START_MS: u64 = 30_000;
/// Time-out of stopping a device in milliseconds: the kernel first writes its dirty pages.
pub const STOP_MS: u64 = 60_000;
/// Time in milliseconds for the kernel to detect that the process of a device is gone.
pub const QUIESCE_MS: u64 = 20_000;
