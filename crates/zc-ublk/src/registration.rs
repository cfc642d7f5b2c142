//! Which device belongs to which volume.
//!
//! Job: a stamp of 64 bits that the kernel keeps with each device (cache and volume, hashed), and a small file per
//! device under [`RUN_DIR`] with the volume's name, for the udev rule that makes stable links and for people. The
//! directory lives as long as the devices do: until the machine is restarted.
//!
//! Invariants: the stamp decides whose a device is; a file alone never does. The file is there before the block device
//! is, and names in it hold no characters that a link or a rule could trip over.

use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::UblkError;
use crate::limits::DEVICES_MAX;

/// Where the files are. The udev rule names it, too.
pub const RUN_DIR: &str = "/run/zcached/ublk";

/// Characters that links keep.
const PLAIN: &str = "-_.+";
/// The upper bits of every stamp of ours: "zc", and a version.
const MARK: u64 = 0x7a63_0001;
const MARK_SHIFT: u32 = 32;

/// The stamp of a volume of a cache.
#[must_use]
pub fn stamp(cache: &[u8; 16], volume: &str) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(cache);
    hasher.write(volume.as_bytes());
    (MARK << MARK_SHIFT) | (hasher.finish() & u64::from(u32::MAX))
}

/// Whether a device was made by zcached.
#[must_use]
pub const fn is_ours(stamp: u64) -> bool {
    stamp >> MARK_SHIFT == MARK
}

/// The name of a volume as a link has it: what is not plain becomes an underscore.
#[must_use]
pub fn link_name(volume: &str) -> String {
    volume.chars().map(|c| if c.is_ascii_alphanumeric() || PLAIN.contains(c) { c } else { '_' }).collect()
}

/// The link that the udev rule makes.
#[must_use]
pub fn link_path(volume: &str) -> PathBuf {
    Path::new("/dev/disk/by-id").join(format!("zcached-{}", link_name(volume)))
}

fn path(dir: &Path, id: u32) -> PathBuf {
    dir.join(format!("{id}.env"))
}

/// Writes the file of a device.
///
/// # Errors
/// When the directory cannot be written.
pub fn register(dir: &Path, id: u32, volume: &str) -> Result<(), UblkError> {
    let path = path(dir, id);
    let write = || -> io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(&path, format!("ZCACHED_VOLUME={}\n", link_name(volume)))
    };
    write().map_err(|source| UblkError::File { what: "write", place: path.display().to_string(), source })
}

/// Removes the file of a device; one that is not there is no mistake.
pub fn unregister(dir: &Path, id: u32) {
    // Nothing depends on its absence: the stamp decides.
    let _removed = fs::remove_file(path(dir, id));
}

/// The name in a device's file.
#[must_use]
pub fn registered(dir: &Path, id: u32) -> Option<String> {
    let text = fs::read_to_string(path(dir, id)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("ZCACHED_VOLUME=")).map(str::to_owned)
}

/// Numbers of all ublk devices, lowest first.
pub(crate) fn device_numbers() -> Result<Vec<u32>, UblkError> {
    let fail = |source| UblkError::File { what: "list", place: "/dev".to_owned(), source };
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/dev").map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let number: Option<u32> =
            name.to_str().and_then(|name| name.strip_prefix("ublkc")).and_then(|rest| rest.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    numbers.truncate(DEVICES_MAX);
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_tell_caches_and_volumes_apart() {
        let stamps = [stamp(&[1; 16], "a"), stamp(&[1; 16], "b"), stamp(&[2; 16], "a")];
        assert!(stamps.iter().all(|stamp| is_ours(*stamp)));
        assert!(stamps[0] != stamps[1] && stamps[0] != stamps[2]);
        assert_eq!(stamp(&[1; 16], "a"), stamps[0]);
        assert!(!is_ours(0) && !is_ours(u64::MAX));
    }

    #[test]
    fn names_are_plain_in_links() {
        assert_eq!(link_name("db-1.x"), "db-1.x");
        assert_eq!(link_name("my disk\u{e9}$"), "my_disk__");
        assert_eq!(link_path("db").to_str(), Some("/dev/disk/by-id/zcached-db"));
    }

    #[test]
    fn files_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("deep/ublk");
        register(&dir, 3, "a volume").unwrap();
        assert_eq!(registered(&dir, 3).as_deref(), Some("a_volume"));
        unregister(&dir, 3);
        unregister(&dir, 3);
        assert_eq!(registered(&dir, 3), None);
    }
}
