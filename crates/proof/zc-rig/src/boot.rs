//! A machine that boots with its own systemd, from a root disk on which the Debian package was installed.
//!
//! Job: one machine installs the package and writes fstab; two more boot that root. They find the volume mounted, restart
//! and upgrade the daemon under load, end in order, and remove the package.

use std::path::PathBuf;
use std::time::Duration;

use crate::machine::{Bench, Hardware, Packed};
use crate::report::judge;
use crate::scenarios::show;
use crate::setup::Image;

/// Far more than a boot and its checks take.
const LIMIT: Duration = Duration::from_secs(900);

/// The package, and the same as its next version.
#[derive(Debug, Clone)]
pub struct Packages {
    /// The version that is installed first.
    pub now: PathBuf,
    /// The version that comes after it.
    pub newer: PathBuf,
}

/// Runs of machines: the scenario, the number of the boot, and its checks.
const MACHINES: [(&str, &str, &[&str]); 3] = [
    ("install", "0", &["install", "existing-disk", "configure"]),
    ("booted", "1", &["mounted", "in-order", "restart", "kill", "upgrade", "keep"]),
    ("booted", "2", &["mounted", "in-order", "ended-in-order", "remove"]),
];

/// Installs and boots.
///
/// # Errors
/// A check failed.
pub(crate) fn boot(image: &Image, packages: &Packages) -> anyhow::Result<()> {
    println!("    boot from fstab, write-back, late disks");
    let packed = [("zcached.deb", &packages.now), ("zcached-newer.deb", &packages.newer)];
    let packed = packed.map(|(name, path)| Packed { name, path: path.clone() }).to_vec();
    let bench = Bench::with(image, Hardware { keeps_root: true, packed, ..Hardware::usual() })?;
    for (scenario, number, checks) in MACHINES {
        let mut machine = bench.boot(image, scenario, &[("rounds", number)])?;
        let lines = machine.follow(LIMIT, show, |_| false)?;
        judge(&lines, checks).inspect_err(|_| machine.show_console())?;
    }
    Ok(())
}
