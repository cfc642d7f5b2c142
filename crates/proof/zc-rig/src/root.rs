//! A machine whose root file system is on a volume, booted by an initramfs of Debian's initramfs-tools.
//!
//! Job: one machine installs the package on its root disk, makes that disk the origin, and makes the initramfs. Further
//! machines boot with it: cold, warm, without zcached, and with zcached after that. In the end `e2fsck` looks at the
//! root disk alone.

use anyhow::{Context, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::boot::Packages;
use crate::machine::{Bench, Hardware, Packed, ROOT};
use crate::mode::Mode;
use crate::report::judge;
use crate::scenarios::show;
use crate::setup::Image;
use zc_host::packages::find;
use zc_host::run::run_quietly;

/// Far more than a boot and its checks take.
const LIMIT: Duration = Duration::from_secs(900);
const INSTALL: &[&str] = &["install", "cache", "state", "configure", "initramfs"];

/// A boot from the initramfs.
struct Boot {
    /// As the guest knows it.
    name: &'static str,
    /// The kernel's root=; the UUID of the file system if `None`.
    root: Option<&'static str>,
    /// A further word of the kernel's command line.
    word: &'static str,
    checks: &'static [&'static str],
}

const BOOTS: [Boot; 4] = [
    Boot {
        name: "cold",
        root: None,
        word: "",
        checks: &["on-volume", "one-daemon", "hits", "kill", "stop", "package", "keep"],
    },
    Boot {
        name: "warm",
        root: Some("/dev/disk/by-id/zcached-root"),
        word: "",
        checks: &["on-volume", "one-daemon", "ended-in-order", "warm", "settle"],
    },
    Boot { name: "without", root: None, word: "zcached.off", checks: &["on-origin"] },
    Boot { name: "after", root: None, word: "", checks: &["on-volume", "out-of-date"] },
];

/// Installs and boots.
///
/// # Errors
/// A check failed, or the root disk is not in order at the end.
pub(crate) fn root(image: &Image, packages: &Packages, mode: Mode) -> anyhow::Result<()> {
    let mode = mode.name();
    println!("    root on a volume, {mode}");
    let packed = [("zcached.deb", &packages.now), ("zcached-newer.deb", &packages.newer)];
    let packed = packed.map(|(name, path)| Packed { name, path: path.clone() }).to_vec();
    let bench = Bench::with(image, Hardware { keeps_root: true, packed, ..Hardware::usual() })?;
    let disk = bench.path(ROOT);
    let mut machine = bench.boot(image, "install-root", &[("mode", mode.as_str())])?;
    let lines = machine.follow(LIMIT, show, |_| false)?;
    judge(&lines, INSTALL).inspect_err(|_| machine.show_console())?;
    let initramfs = bench.path("initramfs");
    let dump = format!("dump /boot/initrd.img {}", initramfs.display());
    run_quietly(Command::new(tool("debugfs")?).args(["-R", &dump]).arg(&disk), &[0])?;
    let by_uuid = format!("UUID={}", uuid_of(&disk)?);
    for boot in &BOOTS {
        println!("    boot: {}", boot.name);
        let words = [("root", boot.root.unwrap_or(&by_uuid)), ("mode", &mode), ("stage", boot.name)];
        let mut machine = bench.boot_from(image, &initramfs, &words, boot.word)?;
        let lines = machine.follow(LIMIT, show, |_| false)?;
        judge(&lines, boot.checks).inspect_err(|_| machine.show_console())?;
    }
    // With write-back the last shutdown flushed: ZCACHED_FLUSH=yes.
    run_quietly(Command::new(tool("e2fsck")?).arg("-fn").arg(&disk), &[0])
}

fn tool(name: &str) -> anyhow::Result<std::path::PathBuf> {
    find(name).with_context(|| format!("there is no {name}"))
}

/// The UUID of the file system on a disk.
fn uuid_of(disk: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(tool("blkid")?);
    command.args(["-p", "-o", "value", "-s", "UUID"]).arg(disk);
    let output = command.output().context("cannot start blkid")?;
    ensure!(output.status.success(), "{} has no file system", disk.display());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
