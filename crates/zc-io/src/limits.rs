//! Bounds of this crate.

/// Submission queue entries a ring may have: what the kernel accepts at most (IORING_MAX_ENTRIES).
pub const RING_ENTRIES_MAX: u32 = 32_768;
/// Submission queue entries by default: one batch of a turn of the data plane.
pub const RING_ENTRIES_DEFAULT: u32 = 256;
/// Operations a ring holds by default, queued ones included.
pub const RING_OPS_DEFAULT: usize = 4096;
/// Operations a ring may hold: the kernel's largest completion queue (IORING_MAX_CQ_ENTRIES).
pub const RING_OPS_MAX: usize = 65_536;
/// Bytes moved by one kernel operation: below MAX_RW_COUNT (2 GiB - 4 KiB); larger ones are continued.
pub const TRANSFER_BYTES_MAX: usize = 1 << 30;
/// Pieces in one vectored operation (UIO_MAXIOV); more are sent in further rounds.
pub const PIECES_PER_TRANSFER_MAX: usize = 1024;
/// Interrupted or refused attempts in a row, without a byte moved, before an operation fails.
pub const ATTEMPTS_MAX: u8 = 64;
/// Times in a row the kernel may refuse a batch with nothing in flight before the ring reports it.
pub const ENTER_ATTEMPTS_MAX: u32 = 64;
/// Largest buffer: 1 GiB, above every request and WEU.
pub const BUF_BYTES_MAX: usize = 1 << 30;
/// So much at the start must be zero for a file or device to count as unused.
pub(crate) const BLANK_BYTES: u64 = 1 << 20;
