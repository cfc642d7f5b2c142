//! Bounds of this crate.

/// Most submission queue entries of a ring: the kernel's bound (IORING_MAX_ENTRIES).
pub const RING_ENTRIES_MAX: u32 = 32_768;
/// Submission queue entries by default: one batch of a data plane iteration.
pub const RING_ENTRIES_DEFAULT: u32 = 256;
/// Most operations of a ring by default, queued ones included.
pub const RING_OPS_DEFAULT: usize = 4096;
/// Most operations of a ring: the kernel's largest completion queue (IORING_MAX_CQ_ENTRIES).
pub const RING_OPS_MAX: usize = 65_536;
/// Bytes moved by one kernel operation: below MAX_RW_COUNT (2 GiB - 4 KiB); larger ones are continued.
pub const TRANSFER_BYTES_MAX: usize = 1 << 30;
/// Pieces of one vectored operation (UIO_MAXIOV); more are sent in further rounds.
pub const PIECES_PER_TRANSFER_MAX: usize = 1024;
/// Consecutive interrupted or refused attempts without progress before an operation fails.
pub const ATTEMPTS_MAX: u8 = 64;
/// Consecutive refusals of a batch with nothing in flight before the ring reports an error.
pub const ENTER_ATTEMPTS_MAX: u32 = 64;
/// Largest buffer: 1 GiB, above every request and WEU.
pub const BUF_BYTES_MAX: usize = 1 << 30;
/// Prefix that must be zero for a file or device to count as unused.
pub(crate) const BLANK_BYTES: u64 = 1 << 20;
