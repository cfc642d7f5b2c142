//! Control calls without a safe wrapper.
#![expect(unsafe_code, reason = "ioctl")]

use std::fs::File;
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

/// DM_TABLE_STATUS of linux/dm-ioctl.h: _IOWR(0xfd, 12, struct dm_ioctl).
const DM_TABLE_STATUS: libc::Ioctl = 0xc138_fd0c_u32 as libc::Ioctl;
/// Size of `struct dm_ioctl`; the reply follows it.
const DM_HEADER_BYTES: usize = 312;
/// Requests the table instead of the state of the targets.
const DM_STATUS_TABLE: u32 = 1 << 4;
/// The reply did not fit.
const DM_BUFFER_FULL: u32 = 1 << 8;
/// Capacity of the reply: a table of a few hundred targets.
const DM_BYTES: usize = 64 << 10;
/// Size of `struct dm_target_spec`; the target's parameters follow it.
const DM_TARGET_BYTES: usize = 40;

/// Segment of a device-mapper device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DmTarget {
    pub(crate) start_sectors: u64,
    pub(crate) len_sectors: u64,
    /// Type, such as `linear`.
    pub(crate) kind: String,
    pub(crate) params: String,
}

/// Returns the table of a device-mapper device; `None` if the kernel does not report it.
pub(crate) fn dm_table(device: u64) -> Option<Vec<DmTarget>> {
    let control = File::open("/dev/mapper/control").ok()?;
    // 64-bit words, because the kernel reads and writes such fields.
    let mut words = vec![0_u64; DM_BYTES / 8];
    let mut put = |offset: usize, value: u32| {
        let shift = 8 * (offset % 8);
        words[offset / 8] |= u64::from(value) << shift;
    };
    if cfg!(target_endian = "big") {
        return None;
    }
    // Version 4 of the interface, size of the buffer, and offset of the reply in it.
    for (offset, value) in [
        (0, 4),
        (12, u32::try_from(DM_BYTES).ok()?),
        (16, u32::try_from(DM_HEADER_BYTES).ok()?),
        (28, DM_STATUS_TABLE),
    ] {
        put(offset, value);
    }
    words[5] = device_for_kernel(device);
    // SAFETY: the call reads and writes at most `DM_BYTES` bytes at the pointer, as the header says, which the vector has
    // and which lives across the call; the descriptor is open.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), DM_TABLE_STATUS, words.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    targets(&bytes)
}

/// Encodes a number like the kernel's `huge_encode_dev`.
fn device_for_kernel(device: u64) -> u64 {
    let (major, minor) = (u64::from(rustix::fs::major(device)), u64::from(rustix::fs::minor(device)));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Parses the targets of a reply.
fn targets(bytes: &[u8]) -> Option<Vec<DmTarget>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (data, count, flags) = (word(16)?, word(20)?, word(28)?);
    if flags & DM_BUFFER_FULL != 0 {
        return None;
    }
    let data = zc_core::usize_from_u32(data);
    let (mut at, mut found) = (data, Vec::new());
    for _ in 0..count {
        let string = |from: usize, most: usize| {
            let text = bytes.get(from..)?;
            let text = &text[..most.min(text.len())];
            let end = text.iter().position(|byte| *byte == 0)?;
            Some(String::from_utf8_lossy(&text[..end]).into_owned())
        };
        found.push(DmTarget {
            start_sectors: long(at)?,
            len_sectors: long(at + 8)?,
            kind: string(at + 24, 16)?,
            params: string(at + DM_TARGET_BYTES, usize::MAX)?,
        });
        // Relative to the start of the reply.
        let next = data.checked_add(zc_core::usize_from_u32(word(at + 20)?))?;
        if next <= at {
            return None;
        }
        at = next;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reply with these targets, in the kernel's layout.
    fn answer(listed: &[(u64, u64, &str, &str)]) -> Vec<u8> {
        let mut bytes = vec![0; DM_HEADER_BYTES];
        bytes[16..20].copy_from_slice(&312_u32.to_le_bytes());
        bytes[20..24].copy_from_slice(&u32::try_from(listed.len()).unwrap().to_le_bytes());
        for (start, len, kind, params) in listed {
            let at = bytes.len();
            bytes.resize(at + DM_TARGET_BYTES, 0);
            bytes[at..at + 8].copy_from_slice(&start.to_le_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&len.to_le_bytes());
            bytes[at + 24..at + 24 + kind.len()].copy_from_slice(kind.as_bytes());
            bytes.extend_from_slice(params.as_bytes());
            bytes.push(0);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let next = u32::try_from(bytes.len() - DM_HEADER_BYTES).unwrap();
            bytes[at + 20..at + 24].copy_from_slice(&next.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn targets_of_an_answer_are_read_and_a_broken_one_is_none() {
        let bytes = answer(&[(0, 2048, "linear", "8:0 2048"), (2048, 8, "thin-pool", "253:0 253:1 128")]);
        let found = targets(&bytes).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|target| (target.start_sectors, target.len_sectors, &*target.kind, &*target.params))
            .collect();
        assert_eq!(shown, [(0, 2048, "linear", "8:0 2048"), (2048, 8, "thin-pool", "253:0 253:1 128")]);
        for len in 0..bytes.len() {
            let _none_or_less = targets(&bytes[..len]);
        }
        let mut full = bytes.clone();
        full[28..32].copy_from_slice(&DM_BUFFER_FULL.to_le_bytes());
        assert_eq!(targets(&full), None);
        let mut circle = bytes;
        circle[DM_HEADER_BYTES + 20..DM_HEADER_BYTES + 24].fill(0);
        assert_eq!(targets(&circle), None);
    }

    #[test]
    fn device_numbers_are_those_of_the_kernel() {
        assert_eq!(device_for_kernel(rustix::fs::makedev(253, 5)), 0xfd05);
        assert_eq!(device_for_kernel(rustix::fs::makedev(259, 0x102)), 0x02 | 259 << 8 | 0x100 << 12);
    }
}
