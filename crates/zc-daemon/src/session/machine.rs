//! Memory of the machine, or of the control group that the process runs in.
//!
//! It does not report free memory, which changes every second.

use std::path::Path;
use std::sync::OnceLock;

use rustix::system::sysinfo;

/// Mount point of control groups of version 2.
const GROUPS: &str = "/sys/fs/cgroup";

/// Returns the bytes of memory that the process may use. Read once, because a sandbox hides the files later.
pub(crate) fn machine_bytes() -> u64 {
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let info = sysinfo();
        let whole = info.totalram.saturating_mul(info.mem_unit.into());
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        group_bytes(Path::new(GROUPS), &own).map_or(whole, |limit| limit.min(whole))
    })
}

/// The least limit of a group and those above it; `own` is the content of `/proc/self/cgroup`.
fn group_bytes(groups: &Path, own: &str) -> Option<u64> {
    let group = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = groups.join(group);
    let above = folder.ancestors().take_while(|folder| folder.starts_with(groups));
    // "max" is no number, and the root has no such file.
    above
        .filter_map(|folder| std::fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_the_groups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let own = "1:name=systemd:/x\n0::/a/b\n";
        assert_eq!(group_bytes(dir.path(), own), None);
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(group_bytes(dir.path(), own), None);
        std::fs::write(dir.path().join("a/memory.max"), "4096\n").unwrap();
        assert_eq!(group_bytes(dir.path(), own), Some(4096));
        std::fs::write(inner.join("memory.max"), "8192\n").unwrap();
        assert_eq!(group_bytes(dir.path(), own), Some(4096));
        assert_eq!(group_bytes(dir.path(), "0::/\n"), None);
        assert_eq!(group_bytes(dir.path(), ""), None);
        assert!(machine_bytes() > 1 << 20);
    }
}
