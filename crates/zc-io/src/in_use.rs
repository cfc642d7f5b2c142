//! Uses of a file or block device: mounts, swap, loop devices, holders such as device-mapper.
//!
//! Job: turn the kernel's bare EBUSY into a sentence, and detect uses of regular files that no lock shows. It reads
//! /proc and /sys; unreadable entries count as no use, because the exclusive open is the real guard.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// Returns a clause such as "it is mounted at /srv", or `None`.
pub(crate) fn block_device_use(major: u32, minor: u32) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = mount_place(&mounts, major, minor) {
        return Some(format!("it is mounted at {place}"));
    }
    let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    for dir in partitions_and_self(&sys) {
        if let Some(holder) = first_entry(&dir.join("holders")) {
            return Some(format!("it is used by /dev/{holder}"));
        }
    }
    None
}

/// Returns the use of a block device or one of its partitions: a clause such as "it is mounted at /srv", or `None`.
///
/// The device is not opened, because one with an unreachable server would block.
#[must_use]
pub fn block_device_user(path: &Path) -> Option<String> {
    let device = fs::metadata(path).ok()?.rdev();
    let sys = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
    partitions_and_self(&sys).iter().find_map(|dir| {
        let number = fs::read_to_string(dir.join("dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        block_device_use(major.parse().ok()?, minor.parse().ok()?)
    })
}

/// Returns the reason why a regular file must not be written: it is swap space or the backing file of a loop device.
pub(crate) fn file_use(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if is_swap(&swaps, &path) {
        return Some("it is in use as swap space".to_owned());
    }
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        if Path::new(backing.trim_end()) == path {
            return Some(format!("it is attached to /dev/{}", entry.file_name().display()));
        }
    }
    None
}

/// Returns the process that holds a lock on a file as a clause: "in use by process 27299 (zcached)".
pub(crate) fn lock_holder(file: &fs::File) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    match file.metadata().ok().and_then(|metadata| lock_process(&locks, metadata.dev(), metadata.ino())) {
        Some(pid) if pid == std::process::id() => "in use by another part of this configuration".to_owned(),
        Some(pid) => match fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("in use by process {pid} ({})", name.trim_end()),
            Err(_) => format!("in use by process {pid}"),
        },
        None => "in use by another process, or another part of this configuration".to_owned(),
    }
}

/// Returns the holder of a flock(2) lock, from the text of /proc/locks (proc(5): fields 2, 5 and 6). Waiters have an
/// arrow in place of the kind, and holders outside of this pid namespace no number above 0.
fn lock_process(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let mut lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let held =
        lines.find(|fields| fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&place.as_str()))?;
    held.get(4)?.parse().ok().filter(|pid| *pid > 0)
}

/// Returns `true` if a device is rotational; `None` if the kernel does not report it.
pub(crate) fn rotational(major: u32, minor: u32) -> Option<bool> {
    queue_attribute(major, minor, "rotational").map(|text| text == "1")
}

/// Returns `true` if a device or partition is read-only; `None` if the kernel does not report it.
pub(crate) fn read_only(major: u32, minor: u32) -> Option<bool> {
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).ok()?;
    Some(text.trim() != "0")
}

/// Returns the discard granularity of a device in bytes; `None` if it does not discard or the kernel does not report
/// it.
pub(crate) fn discard_granularity(major: u32, minor: u32) -> Option<u64> {
    let text = queue_attribute(major, minor, "discard_granularity")?;
    text.parse().ok().filter(|bytes| *bytes > 0)
}

/// Returns the sectors written to or discarded on a device (or a partition through its own node) since it appeared;
/// `None` if the kernel does not count.
pub(crate) fn sectors_written(major: u32, minor: u32) -> Option<u64> {
    queue_attribute(major, minor, "iostats").filter(|text| text != "0")?;
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    written_of(&text)
}

/// Parses a `stat` file (the kernel's block/stat.rst): the 7th field, and the 14th if present.
fn written_of(stat: &str) -> Option<u64> {
    let field = |index| stat.split_whitespace().nth(index)?.parse::<u64>().ok();
    Some(field(6)?.saturating_add(field(13).unwrap_or(0)))
}

fn queue_attribute(major: u32, minor: u32, name: &str) -> Option<String> {
    let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has its queue one level up.
    [sys.join("queue").join(name), sys.join("../queue").join(name)]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
}

fn partitions_and_self(sys: &Path) -> Vec<PathBuf> {
    let mut dirs = vec![sys.to_owned()];
    if let Ok(entries) = fs::read_dir(sys) {
        dirs.extend(
            entries.flatten().map(|entry| entry.path()).filter(|path| path.join("partition").exists()),
        );
    }
    dirs
}

fn first_entry(dir: &Path) -> Option<String> {
    let entry = fs::read_dir(dir).ok()?.flatten().next()?;
    Some(entry.file_name().display().to_string())
}

/// Returns the mount point of a device, from the text of /proc/self/mountinfo (proc(5): fields 3 and 5).
fn mount_place(mountinfo: &str, major: u32, minor: u32) -> Option<String> {
    let device = format!("{major}:{minor}");
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let found = fields.next()? == device;
        let place = fields.nth(1)?;
        found.then(|| unescape(place))
    })
}

fn is_swap(swaps: &str, path: &Path) -> bool {
    swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .any(|name| Path::new(&unescape(name)) == path)
}

/// Decodes the octal escapes of proc files for blanks, tabs, newlines and backslashes.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                          30 22 8:17 / /mnt/my\\040disk rw - xfs /dev/sdb1 rw\n\
                          short line\n";

    #[test]
    fn mount_points_are_found_by_device_number_and_unescaped() {
        assert_eq!(mount_place(MOUNTS, 8, 17).as_deref(), Some("/mnt/my disk"));
        assert_eq!(mount_place(MOUNTS, 254, 0).as_deref(), Some("/"));
        assert_eq!(mount_place(MOUNTS, 8, 1), None);
    }

    #[test]
    fn written_and_discarded_sectors_are_counted() {
        let stat = "56 0 2104 5 16 7 38 2 0 0 10 3 0 24 0 11 1\n";
        assert_eq!(written_of(stat), Some(62));
        assert_eq!(written_of("56 0 2104 5 16 7 38 2 0 0 10\n"), Some(38), "a kernel before 4.18");
        assert_eq!(written_of(""), None);
    }

    #[test]
    fn the_holder_of_a_lock_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  READ 50 fe:01:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 27299 fe:01:7 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 99 fe:01:8 0 EOF\n3: FLOCK  ADVISORY  READ -1 08:11:9 0 EOF\n";
        let process = |major, minor, inode| lock_process(locks, rustix::fs::makedev(major, minor), inode);
        assert_eq!(process(254, 1, 7), Some(27299));
        assert_eq!(process(254, 1, 8), None, "a waiter holds nothing");
        assert_eq!(process(8, 17, 9), None, "a process of another namespace");
        assert_eq!(process(254, 2, 7), None);
    }

    #[test]
    fn swap_files_are_recognised() {
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/swap\\040file   file\t1024\t0\t-2\n";
        assert!(is_swap(swaps, Path::new("/swap file")));
        assert!(!is_swap(swaps, Path::new("/swap")));
    }
}
