//! Every bound of a pool's driver, with its arithmetic.

/// Most bytes of one change or read of the store: two of them fill a batch of the default size. At least one chunk.
pub const PIECE_BYTES_MAX: u32 = 256 << 10;
/// Bytes between two stored chunks that are read along with them: a device reads 16 KiB in less time than it takes to
/// begin another read.
pub const GAP_BYTES_MAX: u32 = 16 << 10;
/// Most bytes of one read of the device.
pub const READ_BYTES_MAX: u32 = 1 << 20;
/// Changes given to the store at a time; more wait. A quarter of what the store takes.
pub const STORE_CHANGES_MAX: usize = zc_store::limits::CHANGES_MAX / 4;
/// Reads given to the store at a time; more wait. A quarter of what the store takes.
pub const STORE_READS_MAX: usize = zc_store::limits::READS_MAX / 4;
/// Longest request for bytes. Zeros and discards carry none and may be longer.
pub const REQUEST_BYTES_MAX: u32 = 64 << 20;
/// Level of zlib for volumes: that of the library when none is named.
pub const ZLIB_LEVEL: u8 = 6;
/// Level of Zstandard for volumes: that of the library when none is named.
pub const ZSTD_LEVEL: u8 = 3;
