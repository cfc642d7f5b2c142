//! Every bound of this crate.

/// Longest line of a text trace in bytes; a longer one is a bad line and skipped.
pub const LINE_BYTES_MAX: usize = 4096;
/// Bytes after decompression that are examined to detect the format of a trace.
pub const PEEK_BYTES: usize = 64 << 10;
/// Lines that are examined to detect the format.
pub const PEEK_LINES: usize = 200;
/// Memory of the xz decoder in KiB: `xz -9` takes 64 MiB.
pub const XZ_MEMORY_KIB: u32 = 96 << 10;
/// Window of the Zstandard decoder, as a power of two in bytes: that of `zstd -19`; `--ultra` and `--long` may exceed
/// it.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Members of a tar archive that are listed when none was named.
pub const MEMBERS_LISTED_MAX: usize = 32;
/// Bad lines of which number and reason are kept; all are counted.
pub const BAD_LINES_KEPT: usize = 5;
/// Ranges that upper devices of a blkparse trace passed down and whose own requests may still follow.
pub const REMAPS_MAX: usize = 1024;
/// Devices of a blkparse trace that may be above others.
pub const STACKED_DEVICES_MAX: usize = 256;
/// Files of an I/O log of fio.
pub const IOLOG_FILES_MAX: usize = 4096;
/// Devices of a trace whose requests are counted one by one.
pub const DEVICES_COUNTED_MAX: usize = 1024;
/// Largest offset plus length of a request in bytes.
pub const ADDRESS_MAX: u64 = zc_recording::ADDRESS_MAX;
/// Most members of a distinct counter (16 bytes and a flag each, at most 40 MiB with the table's slack); beyond, it
/// continues with half as many, selected by hash.
pub const DISTINCT_MAX: usize = 1 << 20;
/// Blocks of 4 KiB that the template of a boot storm may touch: 1 GiB.
pub const TEMPLATE_BLOCKS_MAX: usize = 1 << 18;
/// Requests of a template.
pub const TEMPLATE_REQUESTS_MAX: usize = 1 << 20;
/// Blocks of 4 KiB of a volume whose files a generator keeps books of: 64 GiB. A bitmap of them takes 2 MiB; files of
/// one block, of which 14 million fit, some 120 bytes each: 1.6 GiB in all.
pub const FILES_VOLUME_BLOCKS_MAX: u64 = 1 << 24;
/// Smallest database of TPC-H, in bytes: below, nations have no three suppliers, and next to nothing is read
/// of them.
pub const DATABASE_BYTES_MIN: u64 = 16 << 20;
/// Largest database of TPC-H, in bytes: the positions of rows in a table have 32 bits, and the largest table
/// has 0.43 of all bytes. It takes 2.1 GB of memory to make.
pub const DATABASE_BYTES_MAX: u64 = 8 << 30;
