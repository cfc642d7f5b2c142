//! The one control call that no safe wrapper offers.
#![expect(unsafe_code, reason = "ioctl")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// BLKDISCARD of linux/fs.h: _IO(0x12, 119).
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Discards a range of a block device; blocks until it is done.
pub(crate) fn discard_blocks(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: BLKDISCARD reads two 64-bit integers at the pointer, which lives across the call; the descriptor is open.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
