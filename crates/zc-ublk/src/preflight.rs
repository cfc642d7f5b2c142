//! Checks the requirements of ublk on this machine.
//!
//! Job: one sentence per obstacle, with the remedy. Kernels that are known to crash or hang when a device is added are
//! refused: a machine that hangs is worse than no device.
//!
//! It does not test the driver. A kernel outside of the list may still fail; deadlines cover that.

use std::path::Path;

use crate::control::Controller;
use crate::error::UblkError;
use crate::options::Features;

/// Results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preflight {
    /// Features of the driver.
    pub features: Features,
}

/// Kernels that must not be used, by prefix of their release, with their bug. No digit may follow the prefix.
const BAD_KERNELS: &[(&str, &str)] = &[
    ("6.18.4", "adding a ublk device crashes it"),
    ("6.18.5", "adding a ublk device crashes it"),
    ("6.17.0-1015", "adding a ublk device crashes it"),
    ("6.17.0-1017", "adding a ublk device crashes it"),
    ("6.17.0-1018", "adding a ublk device crashes it"),
    ("6.18.40", "control commands of ublk never end on it"),
    ("7.0.", "control commands of ublk never end on it up to 7.0.14"),
];

/// Releases that match an entry above but have the fix.
const GOOD_FROM: &[(&str, u32)] = &[("7.0.", 15)];

/// Checks all requirements.
///
/// # Errors
/// The first missing requirement.
pub fn preflight() -> Result<Preflight, UblkError> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if let Some(obstacle) = bad_kernel(read("/proc/sys/kernel/osrelease").trim())
        .or_else(|| io_uring_off(read("/proc/sys/kernel/io_uring_disabled").trim()))
    {
        return Err(UblkError::Unavailable(obstacle));
    }
    let features = Controller::open()?.features()?;
    match features.missing() {
        Some(missing) => Err(UblkError::Unavailable(format!(
            "the ublk driver of this kernel lacks {missing}; Linux 6.5 or newer is needed"
        ))),
        None => Ok(Preflight { features }),
    }
}

/// Availability of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Driver {
    /// The driver is loaded.
    Loaded,
    /// The kernel has it as a module, which is not loaded.
    Loadable,
    /// The kernel has none, or it is not used; with the reason.
    Missing(String),
}

/// Detects the driver on the machine with this root directory. Opens no device.
#[must_use]
pub fn driver(root: &Path) -> Driver {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let release = read("proc/sys/kernel/osrelease");
    let release = release.trim();
    if let Some(obstacle) = bad_kernel(release) {
        return Driver::Missing(obstacle);
    }
    if root.join("dev/ublk-control").exists() {
        return Driver::Loaded;
    }
    let modules = read(&format!("lib/modules/{release}/modules.dep"));
    if modules.lines().any(|line| line.split(':').next().is_some_and(|path| path.contains("/ublk_drv.ko"))) {
        return Driver::Loadable;
    }
    Driver::Missing("the kernel has no ublk (ublk_drv, Linux 6.5 or newer)".to_owned())
}

fn bad_kernel(release: &str) -> Option<String> {
    let (_, why) = BAD_KERNELS.iter().find(|(prefix, _)| matches_release(release, prefix))?;
    let is_good = GOOD_FROM.iter().any(|(prefix, from)| {
        let patch = release.strip_prefix(prefix).map(leading_number);
        patch.is_some_and(|patch| patch >= *from)
    });
    (!is_good).then(|| format!("kernel {release} is not used for ublk: {why}; use another kernel, or NBD"))
}

fn matches_release(release: &str, prefix: &str) -> bool {
    let rest = release.strip_prefix(prefix);
    rest.is_some_and(|rest| prefix.ends_with('.') || !rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn leading_number(text: &str) -> u32 {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

/// Interprets the sysctl; 1 restricts io_uring to a group and to CAP_SYS_ADMIN, which ublk needs anyway.
fn io_uring_off(value: &str) -> Option<String> {
    (value == "2")
        .then(|| "io_uring is switched off: set the sysctl kernel.io_uring_disabled to 0 or 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_kernels_are_known_exactly() {
        for bad in ["6.18.4", "6.18.5-arch1-1", "6.17.0-1015-azure", "6.18.40-foo", "7.0.3", "7.0.14-1-amd64"]
        {
            assert!(bad_kernel(bad).is_some(), "{bad}");
        }
        for good in [
            "6.12.95+deb12-cloud-amd64",
            "6.18.44",
            "6.18.0",
            "6.18.41",
            "6.17.0-1016-aws",
            "7.0.15",
            "7.2.13",
        ] {
            assert_eq!(bad_kernel(good), None);
        }
    }

    #[test]
    fn a_switched_off_ring_is_named() {
        assert!(io_uring_off("2").unwrap().contains("kernel.io_uring_disabled"));
        assert_eq!((io_uring_off("1"), io_uring_off("0"), io_uring_off("")), (None, None, None));
    }

    #[test]
    fn a_driver_is_loaded_or_can_be_or_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.12.1\n");
        assert!(matches!(driver(root.path()), Driver::Missing(why) if why.contains("no ublk")));
        write("lib/modules/6.12.1/modules.dep", "kernel/x.ko: kernel/drivers/block/ublk_drv.ko\n");
        assert!(matches!(driver(root.path()), Driver::Missing(_)), "another module's dependency");
        write("lib/modules/6.12.1/modules.dep", "kernel/x.ko:\nkernel/drivers/block/ublk_drv.ko.xz:\n");
        assert_eq!(driver(root.path()), Driver::Loadable);
        write("dev/ublk-control", "");
        assert_eq!(driver(root.path()), Driver::Loaded);
        write("proc/sys/kernel/osrelease", "6.18.4\n");
        assert!(matches!(driver(root.path()), Driver::Missing(why) if why.contains("crashes")));
    }
}
