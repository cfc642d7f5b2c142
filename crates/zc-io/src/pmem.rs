//! Detection of persistent memory.
//!
//! It does not map it. Persistent memory is written like any other device, with very cheap writes.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};

/// Returns `true` if `path` is on persistent memory, `false` if unknown. Block devices report it by their queue's
/// `dax` (Linux, Documentation/ABI/stable/sysfs-block), files by the attribute `STATX_ATTR_DAX` (statx(2)).
#[must_use]
pub fn is_persistent_memory(path: &Path) -> bool {
    const ATTRIBUTE_DAX: u64 = 0x0020_0000;
    let Ok(metadata) = std::fs::metadata(path) else { return false };
    if metadata.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        let dax = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/queue/dax"));
        return dax.is_ok_and(|dax| dax.trim() == "1");
    }
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| found.stx_attributes.bits() & ATTRIBUTE_DAX != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_an_ordinary_file_nor_a_missing_one_is() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("f");
        assert!(!is_persistent_memory(&path));
        std::fs::write(&path, "x").unwrap();
        assert!(!is_persistent_memory(&path));
    }
}
